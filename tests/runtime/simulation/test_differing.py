"""Memory for values that differ between many devices is reported before it is allocated."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.runtime.simulation import executor
from shardtrace.sharding import PartitionSpec as P

from ...executors import forget_plans


def differing() -> Any:
    mesh = st.make_mesh((8,), ("x",))

    def body() -> Any:
        return jnp.arange(64.0).reshape(16, 4) + lax.axis_index("x").astype(jnp.float32)
    return st.jit(st.shard_map(body, mesh=mesh, in_specs=(), out_specs=P("x")))


def test_many_devices_with_much_that_differs_are_told_of_with_bytes(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "MANY", 8)
    monkeypatch.setattr(executor, "LARGE", 2048)
    forget_plans()
    with pytest.warns(UserWarning, match="each of 8 devices, 256 bytes each: 2,048 b") as found:
        result = differing()()
    assert "test_differing.py" in str(found[0].message)
    assert result.shape == (128, 4)


def test_what_is_shared_or_small_is_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "MANY", 8)
    monkeypatch.setattr(executor, "LARGE", 2049)
    forget_plans()
    mesh = st.make_mesh((8,), ("x",))
    x = st.device_put(np.ones((8, 1024), np.float32), st.NamedSharding(mesh, P("x")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        differing()()
        st.jit(lambda x: x @ x.T)(x)
