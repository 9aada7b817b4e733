"""Sums along rows are numpy's sums, up to rounding, however arrays lie."""
from __future__ import annotations

import numpy as np

from shardtrace.ir.kernels.reductions import LONGEST, SHORTEST, adder_of, row_adder
from shardtrace.ir.ops.reductions.reduction import reduce_sum_p

from ...rows import rows

RNG = np.random.default_rng(0)
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


@rows("dtype", [F32, F64])
@rows("row", [(32,), (4096,), (5, 16), (8192,), (3, 64, 256), (1025 * 256,)])
@rows("rows", [(), (1,), (2, 3)])
def test_row_sums_are_close_to_those_in_double_precision(row, rows, dtype):
    add = row_adder(row, dtype)
    assert add is not None
    x = RNG.normal(size=(*rows, *row)).astype(dtype)
    axes = tuple(range(len(rows), x.ndim))
    want = x.astype(F64).sum(axes)
    close = (2e-5 if dtype == F32 else 1e-13) * np.sqrt(np.prod(row))
    for given in (x, np.asfortranarray(x), np.repeat(x, 2, -1)[..., ::2]):
        np.testing.assert_allclose(add(given), want, rtol=0, atol=close)
    assert add(x).dtype == dtype
    if rows:
        out = np.empty(rows, dtype)
        add(x, out)
        np.testing.assert_array_equal(out, add(x))


def test_whole_numbers_infinities_and_what_is_not_a_number():
    x = RNG.integers(-1000, 1000, (50, 96)).astype(np.float32)
    np.testing.assert_array_equal(row_adder((96,), F32)(x), x.sum(-1))
    x[0, 3], x[1, 5], x[2, 0], x[2, 95] = np.inf, np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(row_adder((96,), F32)(x), x.sum(-1))


def test_errors_do_not_grow_with_the_length():
    """No more than those of numpy's pairwise sums, by a small factor."""
    for length in (LONGEST, 1 << 20):
        x = (RNG.normal(size=length) + 100).astype(np.float32)
        exact = x.astype(F64).sum()
        assert abs(row_adder((length,), F32)(x) - exact) <= 1e-6 * exact


def test_short_rows_and_other_dtypes_are_left_to_numpy():
    assert row_adder((SHORTEST - 1,), F32) is None
    assert row_adder((4097,), F32) is None                  # no pieces of equal length
    for dtype in (np.int32, np.complex64, np.float16, np.bool_):
        assert row_adder((64,), np.dtype(dtype)) is None
    assert adder_of((1, 2), (3, 8, 8), F32) is row_adder((8, 8), F32)
    assert adder_of((0, 1, 2), (3, 8, 8), F32) is row_adder((3, 8, 8), F32)
    for axes in ((0,), (0, 2), (0, 1)):
        assert adder_of(axes, (64, 64, 64), F32) is None


def test_a_row_has_its_sum_whatever_is_beside_it():
    x = RNG.normal(size=(33, 100)).astype(np.float32)
    whole = reduce_sum_p.evaluate(0, x, axes=(1,))
    for i in range(len(x)):
        assert reduce_sum_p.evaluate(0, x[i:i + 1], axes=(1,))[0] == whole[i]
        assert reduce_sum_p.evaluate(1, x[:i + 1], axes=(0,))[i] == whole[i]
