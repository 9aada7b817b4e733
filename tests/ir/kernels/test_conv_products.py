"""Products over windows, written out in the order of memory, are the sums that convolutions are."""
from __future__ import annotations

import numpy as np
import pytest

from shardtrace.ir.kernels.matrices import conv_products as module
from shardtrace.ir.kernels.windows import windows

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("piece", [1 << 20, 1 << 11])
@pytest.mark.parametrize(("window", "strides"), [((6, 5), (1, 1)), ((3, 2), (2, 1)), ((6,), (1,)),
                                                 ((1, 1), (1, 1))])
@pytest.mark.parametrize("n", [3, 8, 20])
def test_examples_that_are_innermost(monkeypatch, dtype, piece, window, strides, n):
    """As in the gradient of a kernel: examples are channels, which lie innermost."""
    monkeypatch.setattr(module, "PIECE", piece)
    space = tuple(m + 2 for m in window)
    x = (RNG.normal(size=(7, *space, n)) * 9).astype(dtype)
    k = (RNG.normal(size=(7, *window, 4)) * 9).astype(dtype)
    x, k = np.moveaxis(x, -1, 0)[:, None], np.moveaxis(k, -1, 0)[None]
    seen = windows(x, window, strides, (1,) * len(window))
    d = len(window)
    want = np.einsum(seen, [0, 1, 2, *range(5, 5 + 2 * d)], k,
                     [1, 3, 2, *range(5 + d, 5 + 2 * d)], [0, 1, 3, *range(5, 5 + d)])
    got = module.by_products(seen, k, np.dtype(dtype))
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
