"""Gathers and scatters of small windows, decided once, give what the general ways give."""
from __future__ import annotations

import itertools

import numpy as np

from shardtrace.ir.op import OPS
from shardtrace.ir.ops.gather_numbers import GatherDimensionNumbers, ScatterDimensionNumbers

from ....rows import rows
from .prepared_windows import MODES, assert_combined_alike, assert_taken_alike, gather_params

RNG = np.random.default_rng(0)
# The operand, the queries, the sizes of a window, and the numbers of a gather.
KINDS = [
    ((6, 7), (), (1, 1), GatherDimensionNumbers((), (0, 1), (0, 1))),
    ((6, 7), (4,), (1, 1), GatherDimensionNumbers((), (0, 1), (0, 1))),
    ((6, 7), (4,), (1, 1), GatherDimensionNumbers((), (0, 1), (1, 0))),
    ((6, 7, 5), (3, 2), (1, 1, 5), GatherDimensionNumbers((2,), (0, 1), (0, 1))),
    ((6, 7, 5), (3, 2), (1, 1, 5), GatherDimensionNumbers((0,), (0, 1), (0, 1))),
    ((6, 7), (6,), (1, 1), GatherDimensionNumbers((), (1,), (1,), (0,), (0,))),
    ((6, 7), (6, 3), (1, 1), GatherDimensionNumbers((), (1,), (1,), (0,), (0,))),
    ((6, 7), (3, 7), (1, 1), GatherDimensionNumbers((), (0,), (0,), (1,), (1,))),
    ((6, 7), (6,), (1, 3), GatherDimensionNumbers((1,), (), (1,), (0,), (0,))),
    ((6, 7, 2), (4,), (2, 3, 2), GatherDimensionNumbers((1, 2, 3), (), (0, 1))),
    ((6, 7, 2), (4,), (2, 3, 2), GatherDimensionNumbers((0, 1, 2), (), (1, 0))),
    ((6, 1, 7), (4,), (1, 1, 1), GatherDimensionNumbers((1,), (0, 2), (0, 2))),
    ((3000, 40), (3000, 30), (1, 1), GatherDimensionNumbers((), (1,), (1,), (0,), (0,))),
    ((900, 90), (80, 1000), (1, 1), GatherDimensionNumbers((), (0, 1), (0, 1))),
]


def positions(shape, queries, sizes, n, outside, kind):
    found = np.stack([RNG.integers(0, shape[d] - sizes[d] + 1, queries)
                      for d in n.start_index_map], -1).astype(kind)
    if outside:
        found[(0,) * len(queries)] = -1
        found[(-1,) * len(queries) + (0,)] = 5000
    return found


@rows("case", range(len(KINDS)))
@rows("kind", [np.int32, np.int64])
def test_prepared_gathers_of_windows_equal_the_general_ones(case, kind):
    shape, queries, sizes, n = KINDS[case]
    x = RNG.normal(size=shape).astype(np.float32)
    assert_taken_alike(x, n, sizes, lambda outside: positions(
        shape, queries, sizes, n, outside, kind))


@rows("case", range(len(KINDS)))
@rows("name", ["scatter", "scatter-add", "scatter-max"])
def test_prepared_scatters_of_windows_equal_the_general_ones(case, name):
    shape, queries, sizes, g = KINDS[case]
    n = ScatterDimensionNumbers(g.offset_dims, g.collapsed_slice_dims, g.start_index_map,
                                g.operand_batching_dims, g.start_indices_batching_dims)
    for mode, outside in itertools.product(MODES, (False, True)):
        x = RNG.normal(size=shape).astype(np.float32)
        at = positions(shape, queries, sizes, g, outside, np.int32)
        gather = gather_params(g, sizes, mode)
        updates = RNG.normal(size=OPS["gather"].evaluate(0, x, at, **gather).shape).astype(x.dtype)
        params = {"dimension_numbers": n, "indices_are_sorted": False, "unique_indices": False,
                  "mode": mode}
        assert_combined_alike(name, x, at, updates, params)
