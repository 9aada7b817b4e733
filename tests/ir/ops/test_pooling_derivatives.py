"""What windows select, an element of all windows after the other, and each window as a whole."""
from __future__ import annotations

import numpy as np
import pytest

from shardtrace.ir.op import OPS
from shardtrace.ir.ops.reductions import pooling_derivatives

WINDOWS = [((6, 8), (2, 2), (2, 2), ((0, 0), (0, 0))),
           ((6, 8), (3, 2), (1, 2), ((1, 1), (0, 1))),
           ((5, 7), (2, 3), (1, 1), ((0, 2), (1, 0))),
           ((2, 9, 9, 3), (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))),
           ((3,), (5,), (1,), ((0, 0),))]           # none


@pytest.mark.parametrize("select", ["ge", "le"])
@pytest.mark.parametrize("shape, window, strides, padding", WINDOWS)
@pytest.mark.parametrize("odd", [(), (np.nan,), (np.inf, -np.inf), (np.nan, np.inf, -np.inf)])
def test_few_elements_are_selected_as_many_are(monkeypatch, shape, window, strides, padding, select,
                                               odd):
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, shape).astype(np.float32)
    for number in odd:
        x[rng.random(shape) < 0.2] = number
    given = rng.standard_normal(shape).astype(np.float32)
    params = {"select_prim": select, "window_dimensions": window, "window_strides": strides,
              "padding": padding}
    ones = (1,) * len(shape)
    gather, scatter = (OPS[f"select_and_{name}_add"].evaluator.function
                       for name in ("gather", "scatter"))
    found = []
    for few in (pooling_derivatives.FEW, 0):
        monkeypatch.setattr(pooling_derivatives, "FEW", few)
        out = gather(0, given, x, base_dilation=ones, window_dilation=ones, **params)
        found.append((out, scatter(0, np.arange(out.size, dtype=np.float32).reshape(out.shape) / 3,
                                   x, **params)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
