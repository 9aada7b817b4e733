"""Products and bits over split dimensions are all-reduces of partial results, as sums are."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

from ...rows import rows
from ..agreement import agree

RNG = np.random.default_rng(0)
AXES = (0,)
BITS = {"and": lax.reduce_and_p, "or": lax.reduce_or_p, "xor": lax.reduce_xor_p}


@rows("dtype", [np.float32, np.int32, np.uint8, np.complex64,
                ml_dtypes.bfloat16])
@rows("sizes, spec", [((8,), ("x",)), ((2, 4), (("y", "x"),)),
                      ((2, 4), ("y", "x"))])
def test_products_over_split_dimensions_move_few_bytes(dtype, sizes, spec):
    x = RNG.choice([1, 2, -1], (16, 8)).astype(dtype)
    result = np.asarray(jnp.prod(x, 0)).nbytes
    assert agree(lambda a: jnp.prod(a, 0), [x], [spec], (), sizes) <= 3 * result
    agree(lambda a: jnp.prod(a), [x], [spec], (), sizes)


@pytest.mark.parametrize("name", sorted(BITS))
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_bitwise_reductions_move_the_bytes_of_an_all_reduce(name, dtype):
    x = RNG.integers(0, 2 if dtype is np.bool_ else 99, (16, 8)).astype(dtype)
    moved = agree(lambda a: BITS[name].bind(a, axes=(0,)), [x], [("x",)], ())
    assert moved == 2 * x[0].nbytes * 7 // 8


def test_products_of_updates_that_are_split_count_what_was_there_once():
    table = RNG.choice([1., 2., 3.], (8, 4)).astype(np.float32)
    places = RNG.integers(0, 8, 16).astype(np.int32)
    updates = RNG.choice([1., 2.], (16, 4)).astype(np.float32)

    def f(t, i, u):
        return jnp.asarray(t).at[i].multiply(u)

    agree(f, [table, places, updates], [(), ("x",), ("x",)], ())
    agree(f, [table, places, updates], [("x",), (), ("y",)], ("x",), (4, 2))


def test_the_derivative_of_a_product():
    x = RNG.choice([1., 2., 0.5], (16, 4)).astype(np.float32)
    agree(lambda a: st.grad(lambda a: jnp.sum(jnp.prod(a, 0)))(a), [x], [("x",)], ("x",))


def test_products_in_a_loop_of_blocks():
    x = RNG.choice([1., 2., 0.5], (3, 16, 4)).astype(np.float32)
    agree(lambda a: lax.scan(lambda c, r: (c * jnp.prod(r, 0), c), jnp.ones(4), a), [x],
          [(None, "x")], None)
