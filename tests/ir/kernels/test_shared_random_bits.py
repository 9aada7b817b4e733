"""Random bits that threads share are those of one thread."""
from __future__ import annotations

import numpy as np
import pytest

from shardtrace.ir.kernels.generators import threefry
from shardtrace.ir.support import threads


@pytest.mark.parametrize("width", [8, 32, 64])
@pytest.mark.parametrize(("keys", "shape"), [(np.uint64(7), (40, 30)), (np.arange(3), (5, 60))])
def test_the_bits_are_those_of_one_thread(keys, shape, width, monkeypatch):
    keys = np.asarray(keys, np.uint64)
    wanted = threefry.random_bits(keys, width, shape)
    for name, value in (("CORES", 3), ("ENOUGH", 1), ("free_cores", lambda: 16)):
        monkeypatch.setattr(threads, name, value)
    monkeypatch.setattr(threefry, "_SHARED", 100)
    assert np.array_equal(threefry.random_bits(keys, width, shape), wanted)
    part = threefry.random_bits(keys, width, (4, *shape[1:]), shape, (1, 0))
    assert np.array_equal(part, wanted[..., 1:5, :])
