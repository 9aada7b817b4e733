"""Sums of products along rows are one step in blocks, and right wherever they are not."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.runtime.blocks import blocked, fusion
from shardtrace.runtime.blocks import values as block_values

RNG = np.random.default_rng(0)
X, Y = (RNG.normal(size=(6, 10, 48)).astype(np.float32) for _ in range(2))
G = RNG.normal(size=48).astype(np.float32)


def variance(x, y, g):
    m = x.mean(-1, keepdims=True)
    return ((x - m) ** 2).mean(-1)


def products(x, y, g):
    return (jnp.tanh(x) * (y + 1)).sum(-1)


def read_twice(x, y, g):
    p = jnp.tanh(x) * y
    return p.sum(-1, keepdims=True) - p


def given_out(x, y, g):
    p = jnp.tanh(x) * y
    return p.sum(-1), p


def repeated_rows(x, y, g):
    """The factor is one row for all, and a number for each row."""
    return (jnp.tanh(x) * g).sum(-1) + (jnp.tanh(y) * y.sum(-1, keepdims=True)).sum(-1)


def repeated_alone(x, y, g):
    """Nothing of the product's own shape: as many times as there are repetitions."""
    a = jnp.broadcast_to(jnp.tanh(x[:, :, :1]), x.shape)
    return (a * a).sum(-1) + y.sum(-1)


def turned(x, y, g):
    return (x.swapaxes(0, 1) * jnp.tanh(y).swapaxes(0, 1)).sum(-1)


def two_dimensions(x, y, g):
    return (jnp.tanh(x) * y).sum((1, 2))


def constant_factor(x, y, g):
    return (jnp.tanh(x) * 0.5).sum(-1)


CASES = [variance, products, read_twice, given_out, repeated_rows, repeated_alone, turned,
         two_dimensions, constant_factor]


@pytest.mark.parametrize("f", CASES)
def test_in_blocks_as_without(f, monkeypatch):
    whole = st.tree.leaves(st.jit(f)(X, Y, G))
    st.clear_caches()
    for name in ("LARGE", "ALONE"):
        monkeypatch.setattr(fusion, name, 1)
    g = st.jit(f)
    for _ in range(3):
        for a, b in zip(whole, st.tree.leaves(g(X, Y, G)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    st.clear_caches()


@pytest.mark.parametrize("f, count", [(variance, 1), (products, 1), (read_twice, 0),
                                      (repeated_alone, 0), (constant_factor, 0)])
def test_which_sums_are_products_of_rows(f, count, monkeypatch):
    found = []

    def noted(*args):
        items = block_values.with_products(*args)
        found.extend(item for item in items if item.function is np.vecdot)
        return items

    st.clear_caches()
    monkeypatch.setattr(blocked, "with_products", noted)
    for name in ("LARGE", "ALONE"):
        monkeypatch.setattr(fusion, name, 1)
    st.jit(f)(X, Y, G)
    st.clear_caches()
    assert len(found) == count
