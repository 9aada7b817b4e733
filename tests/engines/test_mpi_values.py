"""Values of the host as bytes, which is how they go from rank to rank."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shardtrace import random
from shardtrace.engines.mpi.values import decode, encode


def there(value: Any) -> Any:
    return decode(np.frombuffer(encode(value), np.uint8))


@pytest.mark.parametrize("value", [
    None, True, 3, -2.5, float("inf"), "word é", (), (1, "a", None), [1, [2.0, ()]],
    {"a": (1, 2), 3: [None]}, {}])
def test_plain_values_come_back(value: Any) -> None:
    assert there(value) == value and type(there(value)) is type(value)


@pytest.mark.parametrize("dtype", [
    np.bool_, np.int8, np.uint16, np.int64, np.float16, np.float64, np.complex64,
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_arrays_come_back_bit_for_bit(dtype: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    one, (two, number) = there([x, (x.T, x.dtype.type(1))])
    for found, wanted in ((one, x), (two, x.T)):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        assert found.tobytes() == wanted.tobytes()
    assert number == x.dtype.type(1) and not isinstance(number, np.ndarray)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_random_keys_come_back(impl: str) -> None:
    keys = random.split(random.key(3, impl=impl), 4).storage.data
    found = there(keys)
    assert found.dtype == keys.dtype and found.tobytes() == keys.tobytes()


@pytest.mark.parametrize("value", [object(), np.array([object()]), {1: {2}}, b"bytes"])
def test_what_is_no_data_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        encode(value)
