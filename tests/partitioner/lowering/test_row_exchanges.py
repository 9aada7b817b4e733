"""Slices, paddings and concatenations along split dimensions: rows that a device lacks, no more."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

from ..agreement import agree

ROW = 3 * 4                     # bytes


def rows(n, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).integers(-99, 99, (n, 3)).astype(dtype)


@pytest.mark.parametrize("f, count, bound", [
    (lambda a: jnp.pad(a, ((4, 4), (0, 0))), 64, 3),
    (lambda a: a[:64] + 0, 128, 8),
    (lambda a: a[64:] + 0, 128, 8),
    (lambda a: a[3:67] + 0, 128, 8),
    (lambda a: lax.pad(a, np.float32(1), ((-4, -4, 0), (0, 0, 0))), 64, 3),
    (lambda a: jnp.concatenate([a, a]), 64, 16),
    (lambda a: jnp.concatenate([a, a * 2, a[::-1]]), 64, 24 + 8),
    (lambda a: a[1:33] + 0, 64, 4),
])
def test_the_busiest_device_receives_what_it_lacks(f, count, bound):
    assert agree(f, [rows(count)], [("x",)], ("x",)) == bound * ROW


@pytest.mark.parametrize("devices, parts", [(2, 2), (4, 2), (4, 3), (8, 3), (8, 4)])
def test_parts_of_one_value_come_in_one_exchange(devices, parts):
    block = 3
    x = np.arange(4 * block * devices * parts, dtype=np.float32).reshape(4, -1)
    moved = agree(lambda a: tuple(p + 1 for p in jnp.split(a, parts, 1)), [x], [(None, "x")],
                  (None, "x"), (devices,))
    lacks = [sum((k * devices + i) // parts != i for k in range(parts)) for i in range(devices)]
    assert moved == max(lacks) * block * 4 * 4


SPECS = [((8,), ("x",)), ((2, 4), (("y", "x"),)), ((2, 4), ("y", None))]


@pytest.mark.parametrize("sizes, spec", SPECS)
@given(data=draw.data())
@settings(max_examples=12, deadline=None)
def test_slices_of_split_rows_give_the_values_of_whole_ones(sizes, spec, data):
    n = data.draw(draw.sampled_from([16, 48, 64]))
    step = data.draw(draw.sampled_from([1, 1, 2, 3, -1, -2]))
    start = data.draw(draw.integers(0, n - 1))
    count = data.draw(draw.integers(1, (n - start) if step > 0 else start + 1))
    stop = start + step * count
    part = slice(start, stop if stop >= 0 else None, step)
    length = len(range(n)[part])
    out = spec if length % 8 == 0 else None
    agree(lambda a: a[part] * 2, [rows(n)], [spec], out, sizes)


@pytest.mark.parametrize("sizes, spec", SPECS)
@given(data=draw.data())
@settings(max_examples=12, deadline=None)
def test_padded_split_rows_give_the_values_of_whole_ones(sizes, spec, data):
    n = data.draw(draw.sampled_from([16, 48]))
    low, high = data.draw(draw.integers(-9, 20)), data.draw(draw.integers(-6, 20))
    inner = data.draw(draw.sampled_from([0, 0, 1, 2]))
    fill = data.draw(draw.sampled_from([0, 7]))
    length = n + (n - 1) * inner + low + high
    out = spec if length % 8 == 0 else None
    agree(lambda a: lax.pad(a, np.float32(fill), ((low, high, inner), (0, 0, 0))), [rows(n)],
          [spec], out, sizes)


@pytest.mark.parametrize("sizes, spec", SPECS)
@given(data=draw.data())
@settings(max_examples=15, deadline=None)
def test_concatenated_split_rows_give_the_values_of_whole_ones(sizes, spec, data):
    counts = data.draw(draw.lists(draw.sampled_from([1, 4, 7, 8, 16, 24, 40]), min_size=1,
                                  max_size=4))
    split = [data.draw(draw.booleans()) and n % 8 == 0 for n in counts]
    out = spec if sum(counts) % 8 == 0 else None
    dtype = data.draw(draw.sampled_from([np.float32, np.int32, np.bool_, np.complex64]))
    agree(lambda *xs: jnp.concatenate(xs), [rows(n, k, dtype) for k, n in enumerate(counts)],
          [spec if s else () for s in split], out, sizes)


def test_derivatives_pass_through():
    def loss(a):
        return jnp.sum(jnp.concatenate([a[8:24], a * 2]) ** 3)

    agree(lambda a: st.grad(loss)(a), [rows(32)], [("x",)], ("x",))


def test_rows_in_a_loop():
    def f(a):
        return lax.fori_loop(0, 3, lambda i, c: jnp.concatenate([c[16:], c[:16]]) + 1, a)

    agree(f, [rows(64)], [("x",)], ("x",))
