"""Products of 8-bit integers are exact, however many are summed, and wrap as their dtype does."""
from __future__ import annotations

import itertools

import numpy as np

from shardtrace.ir.kernels.matrices.gemm import contract

from ...rows import rows

BYTES = (np.int8, np.uint8)


@rows("out", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64])
@rows("left, right", [*itertools.product(BYTES, BYTES)])
@rows("terms", [0, 1, 257, 300, 1025, 2100])
@rows("extreme", [False, True])
def test_sums_of_the_largest_products_are_exact(left, right, out, terms, extreme):
    rng = np.random.default_rng(0)

    def drawn(dtype, *shape):
        ends = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
        largest = ends[np.argmax(np.abs(ends.astype(int)))]
        return np.full(shape, largest) if extreme else rng.choice(ends, shape)
    a, b = drawn(left, 2, 3, terms), drawn(right, 2, terms, 4)
    want = np.einsum("bik,bkj->jbi", a.astype(np.int64), b.astype(np.int64)).astype(out)
    found = contract(a, "bik", b, "bkj", "jbi", np.dtype(out))
    assert found.dtype == out
    np.testing.assert_array_equal(found, want)


def test_what_one_operand_alone_sums_is_exact():
    a, b = np.full((3, 700, 500), -128, np.int8), np.full((3, 2), -128, np.int8)
    found = contract(a, "ikl", b, "ij", "ij", np.dtype(np.int32))
    np.testing.assert_array_equal(found, np.full((3, 2), 700 * 500 * 128 * 128, np.int64
                                                 ).astype(np.int32))
