"""A mesh may have one device and no axes: computations on it are as on any other."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P


def double(x: Any) -> Any:
    return x * 2


def constrained(x: Any) -> Any:
    return st.lax.with_sharding_constraint(x * 2, NamedSharding(st.make_mesh((), ()), P()))


WAYS: dict[str, Callable[[NamedSharding, Any], Any]] = {
    "in_shardings": lambda s, x: st.jit(double, in_shardings=s)(x),
    "out_shardings": lambda s, x: st.jit(double, out_shardings=s)(x),
    "constraint": lambda s, x: st.jit(constrained)(x),
    "device_put": lambda s, x: double(st.device_put(x, s)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_result_is_on_the_mesh(way: str) -> None:
    sharding = NamedSharding(st.make_mesh((), ()), P())
    found = WAYS[way](sharding, jnp.arange(3.0))
    assert found.sharding == sharding
    np.testing.assert_array_equal(found, [0.0, 2.0, 4.0])
