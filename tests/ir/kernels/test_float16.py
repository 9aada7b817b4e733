"""float16 and float32 into each other: numpy's numbers, for all of float16 and all ties."""
from __future__ import annotations

import numpy as np
import pytest

from shardtrace.ir.kernels.elementwise import float16

ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
EXACT = ALL.astype(np.float32)
FINITE = np.sort(EXACT[np.isfinite(EXACT)])
BETWEEN = ((FINITE[1:].astype(np.float64) + FINITE[:-1]) / 2).astype(np.float32)
ENDS = np.array([65519.996, 65520, 65536, 1e9, 2e38, 3.4e38, np.inf, np.nan, 2**-25, 2**-26, 1e-30,
                 1e-45, 0], np.float32)
DRAWN = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32)
INSIDE = np.abs(DRAWN[np.abs(DRAWN) < 65520])
# Whose first rounding, to float32's subnormal numbers, looks like a tie.
TWICE = np.array([(2 * k + 1) * 2.0**-25 + s * 2.0**-40 for k in range(1 << 10)
                  for s in (-1, 1)], np.float32)
SINGLES = {"exact": EXACT, "ties": BETWEEN, "drawn": DRAWN[:1 << 18], "inside": INSIDE,
           "finite": FINITE, "twice": np.concatenate([TWICE, -TWICE]),
           "above": np.nextafter(BETWEEN, np.float32(np.inf)),
           "below": np.nextafter(BETWEEN, np.float32(-np.inf)),
           "ends": np.resize(np.concatenate([ENDS, -ENDS]), 2 * float16.FEWEST)}


def assert_same(found, wanted):
    """To the last bit, but for what a NaN carries."""
    assert found.dtype == wanted.dtype
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nan)
    bits = np.dtype(f"u{wanted.itemsize}")
    np.testing.assert_array_equal(found[~nan].view(bits), wanted[~nan].view(bits))


@pytest.mark.parametrize("x", SINGLES.values(), ids=SINGLES)
def test_rounded_once_to_nearest_ties_to_even(x):
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float16)
        assert_same(float16.to_half(x), wanted)
        assert_same(float16.rounded(x), wanted.astype(np.float32))
        assert_same(float16.to_half(float16.rounded(x)), wanted)
        assert_same(float16.to_half(x[::-1]), wanted[::-1])


@pytest.mark.parametrize("x", [ALL, ALL[np.isfinite(ALL)], ALL[::-3], ALL[:10]])
def test_widened_as_it_is(x):
    assert_same(float16.to_single(x), x.astype(np.float32))
