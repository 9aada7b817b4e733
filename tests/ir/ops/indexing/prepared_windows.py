"""Gathers and scatters of windows, decided once, beside the general ways."""
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from shardtrace.ir.op import OPS
from shardtrace.ir.ops.gather_numbers import GatherDimensionNumbers, GatherScatterMode

MODES = (GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP,
         GatherScatterMode.PROMISE_IN_BOUNDS)


def gather_params(numbers: GatherDimensionNumbers, sizes: tuple[int, ...],
                  mode: GatherScatterMode) -> dict[str, Any]:
    return {"dimension_numbers": numbers, "slice_sizes": sizes, "unique_indices": False,
            "indices_are_sorted": False, "mode": mode, "fill_value": None}


def assert_taken_alike(x: np.ndarray, numbers: GatherDimensionNumbers, sizes: tuple[int, ...],
                       positions: Callable[[bool], np.ndarray]) -> None:
    """In every mode, in both orders of memory. positions(outside): some of them are outside."""
    evaluate = OPS["gather"].evaluator
    for mode, outside, turned in itertools.product(MODES, (False, True), (False, True)):
        at, params = positions(outside), gather_params(numbers, sizes, mode)
        f = evaluate.prepare(0, (x.shape, at.shape), (x.dtype, at.dtype), params)
        assert f is not None
        given = np.asfortranarray(x) if turned else x
        want = evaluate.function(0, given, at, **params)
        got = f(given, at)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def assert_combined_alike(name: str, x: np.ndarray, at: np.ndarray, updates: np.ndarray,
                          params: dict[str, Any]) -> None:
    """A scatter of updates at positions, into a copy and into the operand itself."""
    evaluate, before = OPS[name].evaluator, x.copy()
    f = evaluate.prepare(0, (x.shape, at.shape, updates.shape), (x.dtype, at.dtype, x.dtype),
                          params)
    assert f is not None
    want = evaluate.function(0, x, at, updates, **params)
    np.testing.assert_allclose(f(x, at, updates), want, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(x, before)
    want = f(x, at, updates)
    assert f.over(x, at, updates) is x
    np.testing.assert_array_equal(x, want)
