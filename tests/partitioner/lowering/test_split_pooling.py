"""Gradients of pooling by maxima along split dimensions stay split, also where windows overlap."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

from ..agreement import agree


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 10, shape).astype(np.float32)


def gradient(window: int, stride: int, padding: Any, rows: int, least: bool = False) -> Any:
    """Of a weighted sum of squares of the largest (least: smallest) numbers of windows."""
    start, reducer = (np.inf, lax.min) if least else (-np.inf, lax.max)

    def f(x: Any) -> Any:
        y = lax.reduce_window(x[:, :rows], start, reducer, (1, window, 1), (1, stride, 1), padding)
        return (y ** 2 * jnp.arange(1.0, y.shape[1] + 1)[:, None]).sum()
    return st.grad(f)


@pytest.mark.parametrize("sizes", [(8,), (2, 3)])
@given(data=draw.data())
@settings(max_examples=15, deadline=None)
def test_the_gradient_of_any_windows(sizes: tuple[int, ...], data: Any) -> None:
    window, stride = data.draw(draw.integers(1, 7)), data.draw(draw.integers(1, 4))
    padding = data.draw(draw.tuples(draw.integers(-1, window), draw.integers(-1, window)))
    rows, least = data.draw(draw.sampled_from([48, 47, 45])), data.draw(draw.booleans())
    agree(gradient(window, stride, ((0, 0), padding, (0, 0)), rows, least), [numbers(2, 48, 3)],
          [(None, "x")], (None, "x"), sizes)


@pytest.mark.parametrize("rows", [4096, 4093])
@pytest.mark.parametrize("window, stride", [(3, 2), (3, 1), (2, 1), (2, 2), (5, 4), (5, 3)])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_only_edges_are_moved(rows: int, window: int, stride: int, padding: str) -> None:
    """Of the values and of what is added to them; some only where sizes do not divide."""
    x = numbers(1, 4096, 3)
    edges = 3 * (2 * window + 2) + (4096 - rows)
    assert agree(gradient(window, stride, padding, rows), [x], [(None, "x")], (None, "x")
                 ) <= edges * x[0, 0].nbytes
