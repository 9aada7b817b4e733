"""Windows over elements between which a pad put zeros sum what numpy sums, also where it crops."""
from __future__ import annotations

import itertools

import numpy as np

import shardtrace as st
from shardtrace import lax


def test_windows_over_what_was_spread_or_cropped_are_those_of_numpy() -> None:
    x = np.arange(1, 6, dtype=np.float32)
    for lo, hi, before, after, window in itertools.product((-2, 0, 1), (-1, 0), (0, 2), (0, 1),
                                                           (1, 3)):
        spread = np.zeros(9, np.float32)
        spread[::2] = x
        spread = np.pad(spread[max(-lo, 0):9 - max(-hi, 0)], (max(lo, 0), max(hi, 0)))
        want = np.convolve(np.pad(spread, (before, after)), np.ones(window), "valid")

        def f(x, config=(lo, hi, 1), window=window, padding=(before, after)):
            return lax.reduce_window(lax.pad(x, np.float32(0), (config,)), np.float32(0), lax.add,
                                     (window,), (1,), (padding,))
        np.testing.assert_allclose(st.jit(f)(x), want)
