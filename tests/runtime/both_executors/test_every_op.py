"""Every op gives the same on both executors, however its operands are laid out.

For each sample of each op, operands get blocks of the sample's shape on a mesh X=2, Y=3:
replicated, in place along some dimension, or over both axes. Devices hold different permutations of
the sample's elements. The per-device executor calls the evaluator on each block alone; the
simulated executor on longer dimensions, or with leading device dimensions.
"""
from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import shardtrace as st
from shardtrace.arrays.storage import Stored
from shardtrace.ir.op import OPS

CHOICES = ((), ("X",), ("Y",), ("X", "Y"), ("Y", "X"))


def _sampled_ops():
    found = []
    for name, op in sorted(OPS.items()):
        if op.evaluate is not None and op.samples is not None and not op.subprograms:
            found.append(name)
    return found


def _layouts(operands, rng, count):
    """`count` ways to lay the operands out: entries for each dimension of each operand."""
    for _ in range(count):
        chosen = []
        for x in operands:
            entries = [()] * x.ndim
            free = ["X", "Y"]
            for a in list(rng.permutation(free)):
                if x.ndim and rng.random() < 0.75:
                    d = int(rng.integers(x.ndim))
                    entries[d] = (*entries[d], str(a))
            chosen.append(tuple(entries))
        yield chosen
    # All operands alike along each dimension: what stays in place.
    most = max((x.ndim for x in operands), default=0)
    for d, axes in itertools.product(range(most), CHOICES[1:]):
        yield [tuple(axes if i == d else () for i in range(x.ndim)) for x in operands]


@pytest.mark.parametrize("name", _sampled_ops())
def test_executors_agree_on_every_op(name, local, run_both):
    op = OPS[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    for sample in op.samples()[:6]:
        operands = [np.asarray(x) for x in sample.operands]
        for entries in _layouts(operands, rng, 3):
            builder = local(X=2, Y=3)
            args, values = [], []
            for x, e in zip(operands, entries, strict=True):
                counts = [int(np.prod([builder.sizes[a] for a in axes] or [1])) for axes in e]
                args.append(builder.arg([n * c for n, c in zip(x.shape, counts, strict=True)], e,
                                        x.dtype))
                blocks = [rng.permutation(x.reshape(-1)).reshape(x.shape)
                          for _ in range(int(np.prod(counts, dtype=int)))]
                grid = np.array(blocks).reshape((*counts, *x.shape))
                order = [k for d in range(x.ndim) for k in (d, x.ndim + d)]
                whole = grid.transpose(order).reshape(
                    [n * c for n, c in zip(x.shape, counts, strict=True)])
                values.append(Stored(whole))
            results = builder.emit(name, *args, **sample.params)
            results = results if isinstance(results, list) else [results]
            program = builder.program(*((r, ((),) * r.aval.ndim) for r in results))
            # types made by hand: what differs over the mesh is not said of all results
            with warnings.catch_warnings(), st.config.override(shardtrace_check=False):
                warnings.simplefilter("ignore")
                run_both(program, builder.mesh, values, 1e-4, 1e-4)
