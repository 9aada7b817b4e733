"""Integers of fewer than 8 bits: every pair of values, beside Python's integers wrapped around."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import PartitionSpec as P

from ...executors import EXECUTORS
from ...rows import rows

NARROW = ["int2", "uint2", "int4", "uint4"]


def wrapped(x: int, dtype: str) -> int:
    limits = ml_dtypes.iinfo(dtype)
    return (x - int(limits.min)) % 2**limits.bits + int(limits.min)


def truncated(x: int, y: int) -> int:
    return (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)


def logical_right(x: int, y: int, bits: int) -> int:
    return (x % 2**bits) >> min(y % 2**bits, bits)


def arithmetic_right(x: int, y: int, bits: int) -> int:
    signed = (x + 2**(bits - 1)) % 2**bits - 2**(bits - 1)
    return signed >> min(y % 2**bits, bits - 1)


BINARY: dict[str, Callable[[int, int, int], int]] = {
    "div": lambda x, y, bits: truncated(x, y) if y else -1,
    "rem": lambda x, y, bits: x - truncated(x, y) * y if y else x,
    "max": lambda x, y, bits: max(x, y),
    "bitwise_xor": lambda x, y, bits: x ^ y,
    "shift_left": lambda x, y, bits: x << min(y % 2**bits, bits),
    "shift_right_logical": logical_right,
    "shift_right_arithmetic": arithmetic_right,
}
UNARY: dict[str, Callable[[int, int], int]] = {
    "bitwise_not": lambda x, bits: ~x,
    "population_count": lambda x, bits: (x % 2**bits).bit_count(),
    "clz": lambda x, bits: bits - (x % 2**bits).bit_length(),
}


def all_values(dtype: str) -> list[int]:
    limits = ml_dtypes.iinfo(dtype)
    return [*range(int(limits.min), int(limits.max) + 1)]


def is_that(found: Any, wanted: list[int], dtype: str) -> None:
    assert found.dtype == dtype
    np.testing.assert_array_equal(np.asarray(found).astype(int).ravel(),
                                  [wrapped(x, dtype) for x in wanted])


@rows("dtype", NARROW)
@rows("name", BINARY)
def test_each_pair_of_values_gives_what_python_gives(name: str, dtype: str) -> None:
    pairs = [(x, y) for x in all_values(dtype) for y in all_values(dtype)]
    x, y = (jnp.asarray(np.array(column), dtype) for column in zip(*pairs, strict=True))
    bits = ml_dtypes.iinfo(dtype).bits
    is_that(st.jit(getattr(lax, name))(x, y), [BINARY[name](*pair, bits) for pair in pairs], dtype)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", UNARY)
def test_each_value_gives_what_python_gives(name: str, dtype: str) -> None:
    x = jnp.asarray(np.array(all_values(dtype)), dtype)
    bits = ml_dtypes.iinfo(dtype).bits
    is_that(st.jit(getattr(lax, name))(x), [UNARY[name](v, bits) for v in all_values(dtype)], dtype)


@rows("dtype", NARROW)
@rows("executor", EXECUTORS)
@rows("name,ufunc", [
    ("reduce_max", np.maximum), ("reduce_min", np.minimum), ("reduce_sum", np.add),
    ("reduce_prod", np.multiply), ("reduce_and", np.bitwise_and), ("reduce_or", np.bitwise_or),
    ("reduce_xor", np.bitwise_xor)])
def test_reductions_of_split_rows(name: str, ufunc: np.ufunc, executor: str, dtype: str) -> None:
    mesh = st.make_mesh((4,), ("x",))
    given = np.resize(all_values(dtype), (8, 3))
    x = st.device_put(jnp.asarray(given, dtype), st.NamedSharding(mesh, P("x")))
    with st.config.override(shardtrace_engine=executor):
        found = st.jit(lambda x: getattr(lax, name)(x, (0,)))(x)
    is_that(found, ufunc.reduce(given, 0).tolist(), dtype)


@rows("dtype", NARROW)
@rows("reverse", [False, True])
@rows("name,ufunc", [("cummax", np.maximum), ("cummin", np.minimum)])
def test_running_extremes_are_those_of_numpy(name: str, ufunc: np.ufunc, reverse: bool, dtype: str
                                             ) -> None:
    given = np.resize(all_values(dtype), (5, 3))
    found = st.jit(lambda x: getattr(lax, name)(x, reverse=reverse))(jnp.asarray(given, dtype))
    wanted = ufunc.accumulate(given[::-1] if reverse else given, 0)
    is_that(found, (wanted[::-1] if reverse else wanted).ravel().tolist(), dtype)
