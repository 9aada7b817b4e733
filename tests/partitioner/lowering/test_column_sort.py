"""Sorting along a split dimension: any data, ties in order, all shapes known beforehand."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.rules.factor import Factor

from ...rows import rows
from ..agreement import agree

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.0, -1.0, 3.4e38, -3.4e38]


def vector(n, kind, dtype, seed=0):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if kind == "sorted":
        x = np.arange(n) % 120
        x.sort()
    elif kind == "reversed":
        x = np.sort(np.arange(n) % 120)[::-1]
    elif kind == "equal":
        x = np.zeros(n)
    elif kind == "few":
        x = rng.integers(0, 3, n)
    elif kind == "special" and dtype.kind not in "biu":
        with np.errstate(over="ignore"):
            x = rng.choice(np.array(SPECIAL, np.float32), n)
    else:
        x = rng.normal(size=n) * 50
    with np.errstate(invalid="ignore", over="ignore"):
        return x.astype(dtype)


KINDS = ("sorted", "reversed", "equal", "few", "special", "random")


@rows("kind", KINDS)
@rows("dtype", [np.float32, np.int32, np.float16, ml_dtypes.bfloat16, np.uint8,
                np.bool_])
def test_values_are_those_of_a_stable_sort_bit_by_bit(kind, dtype):
    x = vector(1024, kind, dtype)
    moved = agree(jnp.sort, [x], [("x",)], ("x",), exact=True)
    assert moved < 7 * x.nbytes // 8 * 2


@pytest.mark.parametrize("kind", KINDS)
def test_positions_of_equal_elements_stay_in_order(kind):
    x = vector(2048, kind, np.float32)
    agree(jnp.argsort, [x], [("x",)], ("x",), exact=True)
    agree(lambda a: lax.sort((a, jnp.arange(2048.)), num_keys=1), [x], [("x",)], ("x",),
          exact=True)


def test_a_vector_takes_two_exchanges_and_edges():
    x = vector(1 << 14, "random", np.float32)
    block, edge = 4 * (1 << 14) // 8, 4 * 49
    assert agree(jnp.sort, [x], [("x",)], ("x",), exact=True) == 2 * block * 7 // 8 + 2 * edge


@pytest.mark.parametrize("spec, sizes", [(("x",), (8,)), ((("y", "x"),), (4, 2)), (("x",), (3, 2)),
                                         (("y",), (3, 2)), (("x",), (5,))])
@given(data=draw.data())
@settings(max_examples=6, deadline=None)
def test_any_vector_on_any_mesh(spec, sizes, data):
    kind = data.draw(draw.sampled_from(KINDS))
    n = data.draw(draw.sampled_from([960, 1024, 1920]))
    devices = {"x": sizes[0], "y": sizes[-1]}
    split = int(np.prod([devices[a] for a in np.ravel(spec)]))
    x = vector(n - n % split, kind, np.float32, data.draw(draw.integers(0, 99)))
    descending = data.draw(draw.booleans())
    agree(lambda a: jnp.sort(a, descending=descending), [x], [spec], None, sizes)


def test_several_keys_and_a_payload():
    a, b = vector(1024, "few", np.int32), vector(1024, "few", np.float32, 1)
    c = vector(1024, "random", np.float32, 2)
    for num_keys in (1, 2, 3):
        agree(lambda *xs, k=num_keys: lax.sort(xs, num_keys=k), [a, b, c], [("x",)] * 3, ("x",),
              exact=True)


def test_complex_numbers_and_other_dimensions():
    z = vector(1024, "few", np.complex64) + 1j * vector(1024, "few", np.float32, 1)
    agree(jnp.sort, [z.astype(np.complex64)], [("x",)], ("x",), exact=True)
    m = np.random.default_rng(0).normal(size=(3, 1024, 2)).astype(np.float32)
    agree(lambda a: jnp.sort(a, 1), [m], [(None, "x")], (None, "x"), exact=True)


@pytest.mark.parametrize("f", [
    lambda a: jnp.median(a), lambda a: jnp.quantile(a, np.float32(0.3)),
    lambda a: jnp.sort(a)[::-1][:10], lambda a: jnp.unique(a, size=8),
    lambda a: st.grad(lambda t: jnp.sum(jnp.sort(t)[:300] ** 2))(a),
    lambda a: st.grad(lambda t: jnp.median(t))(a),
])
def test_what_is_made_of_sorting(f):
    agree(f, [vector(1024, "random", np.float32)], [("x",)], None)


def test_an_axis_of_one_device_tells_nobody():
    x = vector(8, "random", np.float32)
    assert agree(lambda x: jnp.sort(x @ jnp.sort(x)[:, None]), [x], [("x",)], None, (1, 3)) == 0


def test_blocks_too_short_for_columns_are_gathered():
    def fits(size, devices):
        return Factor("k", size, "ordered", "columns").splittable_over(devices)

    assert not fits(64, 8) and fits(1024, 8) and not fits(1020, 8) and fits(4, 2)
    x = vector(64, "random", np.float32)
    assert agree(jnp.sort, [x], [("x",)], ("x",), exact=True) == 7 * 8 * 4
