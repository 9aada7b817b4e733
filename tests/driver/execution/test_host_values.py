"""Values in the memory of the host, in what lowering makes of ops on split dimensions.

Judge: plain numpy, and the per-device executor.
"""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.memory import Space
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...executors import EXECUTORS

X = np.arange(24, dtype=np.float32).reshape(8, 3)
OPS = {
    "update": (lambda v: lax.dynamic_update_slice(v, v[:4], (jnp.int32(3), 0)),
               np.concatenate([X[:3], X[:4], X[7:]])),
    "slice": (lambda v: lax.dynamic_slice(v, (jnp.int32(3), 0), (4, 3)), X[3:7]),
    "uneven": (lambda v: v[:7], X[:7]),
    "sum": (lambda v: jnp.sum(v[:7], 0), X[:7].sum(0)),
    "cumsum": (lambda v: jnp.cumsum(v[:7], 0), X[:7].cumsum(0)),
    "roll": (lambda v: jnp.roll(v, 3, 0), np.roll(X, 3, 0)),
    "pad": (lambda v: jnp.pad(v, ((1, 2), (0, 0))), np.pad(X, ((1, 2), (0, 0)))),
    "join": (lambda v: jnp.concatenate([v, v[:3]]), np.concatenate([X, X[:3]])),
    "reverse": (lambda v: v[::-1], X[::-1]),
    "sort": (lambda v: jnp.sort(-v, 0), np.sort(-X, 0)),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", OPS)
def test_what_lowering_makes_for_a_value_on_the_host_goes_there(name: str, executor: str) -> None:
    op, want = OPS[name]
    mesh = st.make_mesh((2,), ("x",), devices=st.devices()[:2])

    def f(v: Any) -> Any:
        return st.device_put(op(st.device_put(v, Space.Host)), Space.Device)

    with st.set_mesh(mesh), st.config.override(shardtrace_engine=executor):
        v = st.device_put(X, NamedSharding(mesh, P("x")))
        np.testing.assert_array_equal(st.jit(f)(v), want)


@pytest.mark.parametrize("dtype", [bool, jnp.bfloat16, np.int8, np.float32, np.complex64], ids=str)
def test_arrays_of_this_library_go_through_dlpack_in_any_dtype(dtype):
    x = jnp.asarray(np.arange(6).reshape(2, 3), dtype)
    for copied in (None, True):
        y = st.dlpack.from_dlpack(x, copy=copied)
        assert y.dtype == x.dtype and y.devices() == x.devices() and np.array_equal(y, x)
