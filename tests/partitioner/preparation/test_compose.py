"""Slices of paddings and of concatenations are taken of what these are made of."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

from ..agreement import agree

X = np.arange(64 * 16, dtype=np.float32).reshape(64, 16)
ROW = 16 * 4


@pytest.mark.parametrize("f, most", [
    (lambda a: (lambda p: p[2:] + p[:-2])(jnp.pad(a, ((1, 1), (0, 0)))), 2 * ROW),
    (lambda a: jnp.diff(a, axis=0, prepend=np.float32(0)), ROW),
    (lambda a: jnp.pad(a, ((4, 4), (0, 0)), mode="edge"), 7 * ROW),
    (lambda a: jnp.concatenate([np.ones((4, 16), np.float32), a, a[:4]]), 10 * ROW + 7 * ROW),
    (lambda a: lax.pad(a, np.float32(0), ((0, 1, 1), (0, 0, 0))), 0),
    (lambda a: lax.pad(a, np.float32(0), ((1, 2, 1), (0, 0, 0)))[:128], 0),
    (lambda a: a[::-1, ::-1], 8 * ROW),
    (lambda a: jnp.asarray(a)[2:5] * 2, 6 * ROW),
])
def test_only_rows_that_cross_a_border_are_moved(f, most):
    out = ("x",) if np.shape(f(X))[0] % 8 == 0 else ()
    assert agree(f, [X], [("x",)], out) <= most


def test_a_five_point_stencil_of_a_padded_grid_moves_its_edges():
    x = X.reshape(32, 32)

    def f(a):
        p = jnp.pad(a, 1)
        return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * a

    assert agree(f, [x], [("x", "y")], ("x", "y"), (2, 4)) == 4 * (2 * 8 + 2 * 16)


@pytest.mark.parametrize("spec, sizes", [(("x",), (8,)), (("x", "y"), (2, 4))])
@given(data=draw.data())
@settings(max_examples=20, deadline=None)
def test_any_slice_of_any_padding(spec, sizes, data):
    config = [(data.draw(draw.integers(-3, 9)), data.draw(draw.integers(-3, 9)), inner)
              for inner in data.draw(draw.sampled_from([(0, 0), (0, 0), (1, 0), (2, 1)]))]
    padded = np.shape(lax.pad(X, np.float32(7), config))
    cut = []
    for n in padded:
        start = data.draw(draw.integers(0, n - 1))
        cut.append(slice(start, data.draw(draw.integers(start + 1, n))))

    def f(a):
        return lax.pad(a, np.float32(7), config)[tuple(cut)] * 2

    agree(f, [X], [spec], None, sizes)


@given(data=draw.data())
@settings(max_examples=30, deadline=None)
def test_any_slice_of_any_concatenation(data):
    counts = data.draw(draw.lists(draw.sampled_from([1, 3, 8, 16, 40]), min_size=1, max_size=4))
    sources = [data.draw(draw.integers(0, 64 - n)) for n in counts]
    total = sum(counts)
    start = data.draw(draw.integers(0, total - 1))
    stop = data.draw(draw.integers(start + 1, total))
    constant = data.draw(draw.integers(-1, len(counts) - 1))

    def f(a):
        pieces = [jnp.full((n, 16), 3.) if k == constant else a[s:s + n]
                  for k, (n, s) in enumerate(zip(counts, sources, strict=True))]
        whole = jnp.concatenate(pieces)
        return whole[start:stop] * 2, whole

    agree(f, [X], [("x",)], None)


def test_derivatives_and_loops():
    def loss(a):
        p = jnp.pad(a, ((1, 1), (0, 0)))
        return jnp.sum((p[2:] - p[:-2]) ** 2)

    agree(lambda a: st.grad(loss)(a), [X], [("x",)], ("x",))
    agree(lambda a: lax.fori_loop(0, 3, lambda i, c: jnp.pad(c, ((1, 0), (0, 0)))[:-1] + c, a),
          [X], [("x",)], ("x",))


@pytest.mark.parametrize("sizes, spec", [((8,), ("x",)), ((2, 4), ("y", "x")), ((3,), ("x",))])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scans_move_less_than_their_operands(sizes, spec, reverse):
    x = np.random.default_rng(0).normal(size=(96, 32)).astype(np.float32)

    def combine(u, v):
        return u[0] * v[0], u[1] * v[0] + v[1]

    def f(a, b):
        return lax.associative_scan(combine, (a, b), reverse=reverse)[1]

    moved = agree(f, [x / 2, x], [spec, spec], spec, sizes, rtol=1e-4)
    parts = int(np.prod(sizes))
    assert moved < 2 * x.nbytes * (parts - 1) // parts


@given(data=draw.data())
@settings(max_examples=20, deadline=None)
def test_strided_slices_and_what_is_computed_from_them(data):
    step = data.draw(draw.sampled_from([2, 3, 4]))
    rows = 96 // step
    start, stop = data.draw(draw.integers(0, 5)), data.draw(draw.integers(96 - 2 * step, 96))

    def f(a):
        x, y = a[start:stop:step], a[::step]
        n = min(len(x), rows - 1)
        z = x[:n] + y[1:n + 1]
        return jnp.concatenate([y[:rows - n], z]) * 2

    x = np.arange(96 * 4, dtype=np.float32).reshape(96, 4)
    agree(f, [x], [("x",)], None)
