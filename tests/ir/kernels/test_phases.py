"""Windows over dilated operands, computed phase by phase, are those over the spread operand."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardtrace.ir.kernels.windows import output_size, padded, phases, windows
from shardtrace.ir.op import OPS
from shardtrace.ir.ops.contractions import conv_phases
from shardtrace.ir.ops.contractions.conv_typing import ConvDimensionNumbers

RNG = np.random.default_rng(0)


def _drawn() -> tuple[int, int, int, tuple[int, int], int, int]:
    """Size, window, stride, padding, base dilation and dilation of one dimension."""
    n, window, stride, base, dilation = (int(RNG.integers(1, most)) for most in (6, 5, 4, 5, 4))
    lo, hi = (int(x) for x in RNG.integers(-1, 5, 2))
    return n, window, stride, (lo, hi), base, dilation


def test_phases_are_sums_over_the_spread_operand_without_its_zeros() -> None:
    for _ in range(300):
        n, window, stride, padding, base, dilation = _drawn()
        results = output_size(n, window, stride, padding, base, dilation)
        if results < 1:
            continue
        x, k, out = RNG.normal(size=n), RNG.normal(size=window), np.zeros(results)
        for phase in phases([n], [results], [window], [stride], (padding,), [base], [dilation]):
            part = padded(0, x, 0, phase.padding, (1,))
            seen = windows(part, k[phase.window].shape, phase.strides, phase.dilation)
            out[phase.results] += seen @ k[phase.window]
        spread = windows(padded(0, x, 0, (padding,), (base,)), (window,), (stride,), (dilation,))
        np.testing.assert_allclose(out, spread @ k, atol=1e-12)


def _params(**changes: Any) -> dict[str, Any]:
    same = (0, 1, 2, 3)
    return {"window_strides": (1, 1), "padding": ((2, 1), (1, 2)), "lhs_dilation": (2, 3),
            "rhs_dilation": (1, 2), "dimension_numbers": ConvDimensionNumbers(same, same, same),
            "feature_group_count": 1, "batch_group_count": 1, "precision": None,
            "preferred_element_type": None, "out_sharding": None, **changes}


@pytest.mark.parametrize(("x", "k", "changes"), [
    ((2, 3, 5, 4), (4, 3, 3, 2), {}),
    ((2, 4, 5, 5), (6, 2, 3, 3), {"feature_group_count": 2, "window_strides": (3, 2)}),
    ((4, 3, 4, 5), (6, 3, 2, 2), {"batch_group_count": 2, "lhs_dilation": (1, 4)}),
    ((2, 5, 4, 3), (3, 3, 3, 4), {"dimension_numbers": ConvDimensionNumbers(
        (0, 3, 1, 2), (3, 2, 0, 1), (1, 0, 3, 2)), "padding": ((-1, 3), (0, 4))}),
    ((2, 3, 5, 4), (4, 3, 1, 1), {"preferred_element_type": np.dtype(np.float64)}),
    ((2, 3, 5, 4), (4, 3, 0, 2), {}),
])
@pytest.mark.parametrize("lead", [(), (2, 1)])
def test_dilated_convolutions_by_phases(monkeypatch: pytest.MonkeyPatch, x: tuple[int, ...],
                                        k: tuple[int, ...], changes: Any, lead: tuple) -> None:
    lhs = RNG.normal(size=(*lead, *x)).astype(np.float32)
    rhs = RNG.normal(size=(*lead[::-1], *k)).astype(np.float32)
    evaluate, params = OPS["conv_general_dilated"].evaluator.function, _params(**changes)
    want = evaluate(len(lead), lhs, rhs, **params)
    monkeypatch.setattr(conv_phases, "FEWEST", 0)
    got = evaluate(len(lead), lhs, rhs, **params)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
