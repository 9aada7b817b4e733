"""What tests of vmap share: a loop over examples, and comparing its results with vmap's."""
from __future__ import annotations

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp

RNG = np.random.default_rng(0)


def ints(*shape):
    """Small whole numbers as floats: sums in any order are exact."""
    return RNG.integers(-5, 6, shape).astype(np.float32)


X, Y, V = ints(3, 4), ints(3, 4), ints(4)


def same(a, b):
    np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=2e-5,
                               atol=2e-5)


def loop(f, in_axes, *args):
    """The results of f for each index, stacked along a new first dimension."""
    axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
    size = next(x.shape[d] for x, d in zip(args, axes, strict=True) if d is not None)
    runs = [f(*(jnp.asarray(x if d is None else np.take(np.asarray(x), i, d))
                for x, d in zip(args, axes, strict=True))) for i in range(size)]
    first, treedef = st.tree.flatten(runs[0])
    flat = [st.tree.leaves(r) for r in runs]
    return st.tree.unflatten(treedef, [np.stack([np.asarray(r[i]) for r in flat])
                                       for i in range(len(first))])


def agree(a, b):
    leaves, treedef = st.tree.flatten(a)
    others, other = st.tree.flatten(b)
    assert treedef == other
    for x, y in zip(leaves, others, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        same(x, y)
