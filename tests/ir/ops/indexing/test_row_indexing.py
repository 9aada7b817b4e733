"""Gathers and scatters of whole rows give what the general ways give."""
from __future__ import annotations

import numpy as np
import pytest

from shardtrace.ir.op import OPS
from shardtrace.ir.ops.gather_numbers import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)

from ....rows import rows
from .prepared_windows import assert_combined_alike, assert_taken_alike, gather_params

RNG = np.random.default_rng(0)


def positions(count: int, shape: tuple[int, ...], outside: bool, kind: type) -> np.ndarray:
    found = RNG.integers(0, count, shape).astype(kind)
    if outside:
        found.reshape(-1)[[0, -1]] = -1, count
    return found[..., None]


@pytest.mark.parametrize(("d", "offsets", "queries"), [
    (0, (2,), (3, 5)), (0, (0,), (4,)), (1, (0,), (6,)), (1, (1,), (6,)), (1, (2,), (2, 3))])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_prepared_gathers_of_rows_equal_the_general_ones(d, offsets, queries, kind):
    x = RNG.normal(size=(8, 7)).astype(np.float32)
    n = GatherDimensionNumbers(offsets, (d,), (d,))
    sizes = tuple(1 if e == d else m for e, m in enumerate(x.shape))
    assert_taken_alike(x, n, sizes, lambda outside: positions(x.shape[d], queries, outside, kind))


@rows("name", ["scatter", "scatter-add", "scatter-max"])
@rows("width", [(), (5,), (40,), (3, 4)])
@rows("outside", [False, True])
def test_prepared_scatters_of_rows_equal_the_general_ones(name, width, outside):
    x, at = RNG.normal(size=(9, *width)).astype(np.float32), positions(9, (4, 6), outside, np.int32)
    updates = RNG.normal(size=(4, 6, *width)).astype(np.float32)
    n = ScatterDimensionNumbers(tuple(range(2, 2 + len(width))), (0,), (0,))
    params = {"dimension_numbers": n, "indices_are_sorted": False, "unique_indices": False,
              "mode": GatherScatterMode.FILL_OR_DROP}
    before, evaluate = x.copy(), OPS[name].evaluator
    assert_combined_alike(name, x, at, updates, params)
    part = before.copy()                            # what is written is a part of the operand
    rows = np.arange(8).reshape(2, 4, 1).astype(np.int32)
    g = evaluate.prepare(0, (x.shape, rows.shape, (2, 4, *width)), (x.dtype, at.dtype, x.dtype),
                          params)
    own = part[1:].reshape(2, 4, *width)
    want = g(part, rows, own)
    np.testing.assert_array_equal(g.over(part, rows, own), want)


def test_other_windows_go_the_general_way():
    n = GatherDimensionNumbers((0, 1), (), (1,))
    params = gather_params(n, (8, 4), GatherScatterMode.CLIP)
    prepared = OPS["gather"].evaluator.prepare
    kinds = np.dtype(np.float32), np.dtype(np.int32)
    assert prepared(0, ((8, 7), (3, 1)), kinds, params) is None               # parts of all rows
    params["dimension_numbers"] = GatherDimensionNumbers((1,), (0,), (0,))
    params["slice_sizes"] = (1, 7)
    assert prepared(0, ((8, 7), (3, 1)), kinds, params) is not None
    assert prepared(1, ((2, 8, 7), (2, 3, 1)), kinds, params) is None         # for each device
    assert prepared(0, ((8, 7), (3, 1)), (kinds[0], np.dtype(np.uint32)), params) is None
