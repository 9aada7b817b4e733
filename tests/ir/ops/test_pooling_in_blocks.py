"""Windows of large arrays are reduced block by block, with the same results in less memory."""
from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import shardtrace as st
from shardtrace import lax
from shardtrace.ir.ops.reductions import pooling

X = np.random.default_rng(0).normal(size=(6, 5, 9, 8)).astype(np.float32)


@pytest.mark.parametrize("reducer", [(lax.add, 0.0), (lax.max, -np.inf), (lax.min, np.inf)])
@pytest.mark.parametrize("params", [
    {"window_dimensions": (1, 1, 3, 2), "window_strides": (1, 1, 2, 1), "padding": "SAME"},
    {"window_dimensions": (1, 2, 2, 1), "window_strides": (1, 1, 1, 1), "padding": "VALID"},
    {"window_dimensions": (1, 1, 2, 2), "window_strides": (1, 1, 1, 1), "padding": "SAME",
     "base_dilation": (1, 1, 2, 1), "window_dilation": (1, 1, 1, 2)},
    {"window_dimensions": (1, 1, 1, 2), "window_strides": (2, 1, 1, 1), "padding": "VALID"}])
def test_blocks_give_what_the_whole_gives(reducer: Any, params: dict[str, Any],
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    op, start = reducer
    sharded = st.device_put(X[:4], st.NamedSharding(st.make_mesh((4,), ("x",)), st.P("x")))

    def results() -> list[np.ndarray]:
        return [np.asarray(st.jit(lambda x: lax.reduce_window(x, np.float32(start), op, **params))(
            x)) for x in (X, sharded)]
    wanted = results()
    monkeypatch.setattr(pooling, "BLOCK", 50)
    for found, want in zip(results(), wanted, strict=True):
        np.testing.assert_array_equal(found, want)


def test_what_is_between_is_as_large_as_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((64, 64, 64), np.float32)
    monkeypatch.setattr(pooling, "BLOCK", 1 << 12)
    f = st.jit(lambda x: lax.reduce_window(x, np.float32(0), lax.add, (1, 3, 3), (1, 2, 2), "SAME"))
    f(x)
    st.clear_caches()
    tracemalloc.start()
    try:
        f(x)
        assert tracemalloc.get_traced_memory()[1] < x.nbytes
    finally:
        tracemalloc.stop()
