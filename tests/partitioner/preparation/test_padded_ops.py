"""Every op on dimensions that an axis does not divide: padding is never seen.

Operands are constrained to be split where they do not divide, so they are padded. Each device alone
computes what the op gives of whole operands, also where padding is poison: NaN, or the largest
number, instead of zeros.
"""
from __future__ import annotations

import itertools

import numpy as np
import pytest

import shardtrace as st
from shardtrace import config, lax
from shardtrace import numpy as jnp
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.ops.identities import last_in_order
from shardtrace.ir.padded import Padded
from shardtrace.ir.program import Var
from shardtrace.partitioner.preparation import padded_equations
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...comparisons import same_bits
from ...references.interpreter import NoReference, interpret

CASES = {name: op.samples() for name, op in sorted(OPS.items())
         if op.samples is not None and op.collective is None and not op.effect and op.samples()}


def mesh_of(size):
    return st.make_mesh((size,), ("x",))


def uneven_specs(operands, size):
    """One operand's dimension each, and the same dimension of all operands of its shape."""
    found = []
    for x in operands:
        for d, n in enumerate(np.shape(x)):
            if n >= size and n % size:
                found.append((np.shape(x), d))
    return list(dict.fromkeys(found))


def numbers(x):
    return np.asarray(st.random.key_data(x) if jnp.issubdtype(x.dtype, st.dtypes.prng_key) else x)


@pytest.mark.parametrize("poisoned", [False, True], ids=["zeros", "poison"])
@pytest.mark.parametrize("name", CASES)
def test_padding_is_never_seen(name, poisoned, monkeypatch):
    if poisoned:
        monkeypatch.setattr(padded_equations, "filler",
                            lambda dtype: last_in_order(np.dtype(dtype)))
    for sample in CASES[name]:
        operands = [np.asarray(x) for x in sample.operands]
        if all(isinstance(x.dtype, np.dtype) and x.dtype.kind in "biufc" for x in operands):
            check(OPS[name], sample, operands)


def check(op, sample, operands):
    want = st.tree.leaves(st.jit(lambda *xs: op.bind(*xs, **sample.params))(*operands))
    for size in (2, 3):
        mesh = mesh_of(size)
        for shape, d in uneven_specs(operands, size):
            where = NamedSharding(mesh, P(*[None] * d, "x"))

            def f(*xs, shape=shape, where=where):
                return op.bind(*[lax.with_sharding_constraint(x, where)
                                 if x.shape == shape else x for x in xs], **sample.params)
            whole = [st.device_put(x, NamedSharding(mesh, P())) for x in operands]
            with config.override(shardtrace_engine="per_device"):
                got = st.tree.leaves(st.jit(f)(*whole))
            for a, b in itertools.zip_longest(got, want):
                a, b = numbers(a), numbers(b)
                if not same_bits(a, b):
                    np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6,
                                               err_msg=f"{sample} {shape} {d} over {size}")


@pytest.mark.parametrize("name", CASES)
def test_rows_in_front_are_never_seen(name):
    """Two rows before and one behind those of an operand, all of them poison."""
    for sample in CASES[name]:
        operands = [np.asarray(x) for x in sample.operands]
        if not all(isinstance(x.dtype, np.dtype) and x.dtype.kind in "biufc" for x in operands):
            continue
        program = st.jit(lambda *xs, sample=sample: OPS[name].bind(*xs, **sample.params)).trace(
            *operands).jaxpr
        try:
            want = interpret(program, operands)
        except NoReference:
            continue
        for i, x in enumerate(operands):
            for d in range(x.ndim):
                for got, one in zip(on_more_rows(program, operands, i, d), want, strict=True):
                    if not same_bits(got, one):
                        np.testing.assert_allclose(got, one, rtol=2e-5, atol=1e-6,
                                                   err_msg=f"{sample} {i} {d}")


def on_more_rows(program, operands, i, d):
    """The results of the equations that a program's becomes where dimension d of operand i has
    rows around its own, computed from poison there.
    """
    (eqn,) = program.eqns
    poison = last_in_order(operands[i].dtype)
    sides = [(2, 1) if e == d else (0, 0) for e in range(operands[i].ndim)]
    given = [np.pad(x, sides, constant_values=0 if poison is None else poison) if k == i else x
             for k, x in enumerate(operands)]
    invars = [Var(v.aval.update(shape=x.shape)) for v, x in zip(program.invars, given, strict=True)]
    low = [2 if e == d else 0 for e in range(operands[i].ndim)]
    padded = {v: Padded(new, v.aval.shape, None, low if k == i else None)
              for k, (v, new) in enumerate(zip(program.invars, invars, strict=True))}
    out = padded_equations.Output()
    results = padded_equations.equation_on(
        eqn, [padded.get(a, Padded(a, a.aval.shape)) for a in eqn.invars],
        [v.aval.shape for v in eqn.outvars], out)
    results = [padded_equations.with_sizes(x, x.shape, eqn, out).atom for x in results]
    written = program.replace(invars=invars, eqns=out.eqns, outvars=results)
    return interpret(written, given)
