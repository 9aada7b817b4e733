"""Reductions of narrow arrays are numpy's: bit by bit where it has the order, else up to rounding.
"""
from __future__ import annotations

import numpy as np

from shardtrace.ir.kernels.staged_reductions import FEWEST, reducer_of

from ...rows import rows

RNG = np.random.default_rng(0)
F32 = np.dtype(np.float32)
CASES = [((4096, 3), (0,)), ((4096, 3), (1,)), ((1024, 31), (1,)), ((16, 256, 8), (1,)),
         ((4, 64, 8, 8), (1, 3)), ((8, 16, 14, 14), (0, 2, 3)), ((8, 7, 7, 16), (0, 1, 2)),
         ((8, 128, 8, 16), (1, 2)), ((1, 1200, 1, 9), (2, 3)), ((80, 3, 5, 3, 2), (0, 2, 4)),
         ((2, 1024, 4), (0, 2)), ((5000, 2), (1,)), ((1200, 9, 5), (1,)),
         ((20, 14, 2, 14, 2, 3), (2, 4))]


@rows("shape, axes", CASES)
@rows("ufunc", [np.add, np.maximum, np.minimum])
@rows("dtype", [np.float32, np.float64, np.int32, np.uint8])
def test_reduced_as_numpy_does(shape, axes, ufunc, dtype):
    x = np.random.default_rng(0).normal(scale=50, size=shape).astype(dtype)
    reduce = reducer_of(ufunc, axes, shape, x.dtype)
    assert reduce is not None
    want = ufunc.reduce(x, axes, x.dtype)
    out = np.empty(want.shape, x.dtype)
    for found in (reduce(x), reduce(x, out), out, reduce(np.asfortranarray(x))):
        assert found.dtype == x.dtype and found.shape == want.shape
        if ufunc is np.add and x.dtype.kind == "f":
            magnitude = np.add.reduce(np.abs(x), axes, np.float64)
            assert (np.abs(found - want) <= 1e-6 * magnitude).all()
        else:
            np.testing.assert_array_equal(found, want)


@rows("count", range(1, 32))
def test_the_sum_of_a_short_row_is_numpys_to_the_last_bit(count):
    """So that it does not depend on the rows beside it, few of which are left to numpy."""
    x = RNG.normal(size=(FEWEST, count)).astype(np.float32)
    add = reducer_of(np.add, (1,), x.shape, F32)
    assert add is not None
    np.testing.assert_array_equal(add(x), np.add.reduce(x, 1))


def test_sums_are_no_worse_than_numpys():
    x = (RNG.normal(size=(1 << 16, 3)) + 100).astype(np.float32)
    add = reducer_of(np.add, (0,), x.shape, F32)
    assert add is not None
    exact = x.astype(np.float64).sum(0)
    assert np.abs(add(x) - exact).max() <= np.abs(x.sum(0) - exact).max()


def test_infinities_and_what_is_not_a_number():
    x = RNG.normal(size=(4096, 5)).astype(np.float32)
    x[3, 1], x[4, 2], x[5, 0], x[5, 4] = np.nan, np.inf, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        for ufunc in (np.add, np.maximum, np.minimum):
            for axis in (0, 1):
                reduce = reducer_of(ufunc, (axis,), x.shape, F32)
                assert reduce is not None
                np.testing.assert_allclose(reduce(x), ufunc.reduce(x, axis), rtol=1e-4, atol=1e-3)


def test_other_reductions_are_left_to_numpy():
    for shape, axes in (((64, 1024), (0,)), ((4, 64, 512), (1,)), ((10, 3), (1,)),
                        ((64, 64), ()), ((8, 16, 512), (0, 2)), ((512, 16), (1,))):
        assert reducer_of(np.add, axes, shape, F32) is None
    assert reducer_of(np.maximum, (1,), (64, 512), F32) is None
    assert reducer_of(np.multiply, (1,), (4096, 3), F32) is None
    for dtype in (np.complex64, np.float16, np.bool_):
        assert reducer_of(np.add, (1,), (4096, 3), np.dtype(dtype)) is None
