"""Selections by bits: what `numpy.where` gives, for every dtype and broadcast."""
from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from shardtrace.ir.kernels.elementwise import selection

SHAPES = [(160, 64), (1, 64), (160, 1), ()]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.bool_,
                                   np.complex64, np.float64, np.complex128, np.uint16])
def test_selection_has_the_bits_that_where_gives(dtype):
    rng = np.random.default_rng(0)
    for shapes in itertools.product(SHAPES, repeat=3):
        which = np.asarray(rng.random(shapes[0]) > 0.5)
        x, y = (np.asarray(rng.standard_normal(s)).astype(dtype) for s in shapes[1:])
        found, wanted = selection.selected(which, x, y), np.where(which, x, y)
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        assert found.tobytes() == wanted.tobytes(), shapes


def test_operands_in_other_orders_and_nans():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((64, 160)).astype(np.float32)
    x[::3] = np.nan
    which = np.tile(rng.random((160, 64)) > 0.5, (1, 2))[:, ::2]
    y = np.broadcast_to(x[:, :1], x.shape)
    assert which.size >= selection.FEWEST
    np.testing.assert_array_equal(selection.selected(which.T, x, y), np.where(which.T, x, y))
