"""Gathers and scatters of whole rows give what the general ways give."""
from __future__ import annotations

import itertools

import numpy as np
import pytest

from shardtrace.ir.op import OPS
from shardtrace.ir.ops.indexing.common import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)

RNG = np.random.default_rng(0)
MODES = (GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP,
         GatherScatterMode.PROMISE_IN_BOUNDS)


def positions(count: int, shape: tuple[int, ...], outside: bool, kind: type) -> np.ndarray:
    found = RNG.integers(0, count, shape).astype(kind)
    if outside:
        found.reshape(-1)[[0, -1]] = -1, count
    return found[..., None]


@pytest.mark.parametrize(("d", "offsets", "queries"), [
    (0, (2,), (3, 5)), (0, (0,), (4,)), (1, (0,), (6,)), (1, (1,), (6,)), (1, (2,), (2, 3))])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_rows_taken(d, offsets, queries, kind):
    x = RNG.normal(size=(8, 7)).astype(np.float32)
    n = GatherDimensionNumbers(offsets, (d,), (d,))
    evaluate = OPS["gather"].evaluate
    sizes = tuple(1 if e == d else m for e, m in enumerate(x.shape))
    for mode, outside, turned in itertools.product(MODES, (False, True), (False, True)):
        at = positions(x.shape[d], queries, outside, kind)
        params = {"dimension_numbers": n, "slice_sizes": sizes, "unique_indices": False,
                  "indices_are_sorted": False, "mode": mode, "fill_value": None}
        f = evaluate.prepared(0, (x.shape, at.shape), (x.dtype, at.dtype), params)
        assert f is not None
        given = np.asfortranarray(x) if turned else x
        want = evaluate(0, given, at, **params)
        got = f(given, at)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["scatter", "scatter-add", "scatter-max"])
@pytest.mark.parametrize("width", [(), (5,), (40,), (3, 4)])
@pytest.mark.parametrize("outside", [False, True])
def test_rows_combined(name, width, outside):
    x, at = RNG.normal(size=(9, *width)).astype(np.float32), positions(9, (4, 6), outside, np.int32)
    updates = RNG.normal(size=(4, 6, *width)).astype(np.float32)
    n = ScatterDimensionNumbers(tuple(range(2, 2 + len(width))), (0,), (0,))
    params = {"dimension_numbers": n, "indices_are_sorted": False, "unique_indices": False,
              "mode": GatherScatterMode.FILL_OR_DROP}
    evaluate, before = OPS[name].evaluate, x.copy()
    f = evaluate.prepared(0, (x.shape, at.shape, updates.shape), (x.dtype, at.dtype, x.dtype),
                          params)
    assert f is not None
    np.testing.assert_allclose(f(x, at, updates), evaluate(0, x, at, updates, **params), rtol=1e-6)
    np.testing.assert_array_equal(x, before)
    want = f(x, at, updates)
    assert f.over(x, at, updates) is x
    np.testing.assert_array_equal(x, want)
    part = before.copy()                            # what is written is a part of the operand
    rows = np.arange(8).reshape(2, 4, 1).astype(np.int32)
    g = evaluate.prepared(0, (x.shape, rows.shape, (2, 4, *width)), (x.dtype, at.dtype, x.dtype),
                          params)
    own = part[1:].reshape(2, 4, *width)
    want = g(part, rows, own)
    np.testing.assert_array_equal(g.over(part, rows, own), want)


def test_other_windows_go_the_general_way():
    n = GatherDimensionNumbers((0, 1), (), (1,))
    params = {"dimension_numbers": n, "slice_sizes": (8, 4), "unique_indices": False,
              "indices_are_sorted": False, "mode": GatherScatterMode.CLIP, "fill_value": None}
    prepared = OPS["gather"].evaluate.prepared
    kinds = np.dtype(np.float32), np.dtype(np.int32)
    assert prepared(0, ((8, 7), (3, 1)), kinds, params) is None               # parts of all rows
    params["dimension_numbers"] = GatherDimensionNumbers((1,), (0,), (0,))
    params["slice_sizes"] = (1, 7)
    assert prepared(0, ((8, 7), (3, 1)), kinds, params) is not None
    assert prepared(1, ((2, 8, 7), (2, 3, 1)), kinds, params) is None         # for each device
    assert prepared(0, ((8, 7), (3, 1)), (kinds[0], np.dtype(np.uint32)), params) is None
