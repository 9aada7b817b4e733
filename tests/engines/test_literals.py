"""Numbers in the source that XLA runs are those of the program, bit for bit."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.engines.xla.literals import scalar
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

LAST_NAN = np.uint32(0xffffffff).view(np.float32)


@pytest.mark.parametrize(("value", "dtype"), [
    (LAST_NAN, "float32"), (np.nan, "float32"), (-np.inf, "float32"), (-0.0, "float64"),
    (np.uint16(0xffff).view(ml_dtypes.bfloat16), "bfloat16"),
    (np.uint8(0xff).view(ml_dtypes.float8_e4m3fn), "float8_e4m3fn"), (0.1, "float16"),
    (complex(1, -0.0), "complex64"), (complex(-0.0, np.inf), "complex128"), (-3, "int4")])
def test_a_number_reads_back_with_its_bits(value: Any, dtype: str) -> None:
    wanted = np.asarray(value, getattr(ml_dtypes, dtype, dtype))
    found = eval(scalar(value, wanted.dtype), {"np": np, "ml_dtypes": ml_dtypes})
    assert (found.dtype, found.tobytes()) == (wanted.dtype, wanted.tobytes())


def test_a_complex_nan_reads_back_as_one() -> None:
    found = eval(scalar(complex(np.nan, -np.inf), np.dtype("complex64")), {"np": np})
    assert np.isnan(found.real) and found.imag == -np.inf


@pytest.mark.usefixtures("jax")
def test_the_greatest_of_padded_rows_are_none_of_the_padding() -> None:
    x = np.arange(48, dtype=np.float32).reshape(16, 3)
    rows = st.device_put(x, NamedSharding(st.make_mesh((4,), ("x",)), P("x")))
    step = st.jit(lambda x: lax.top_k(x[1:-1].T, 3)).lower(rows).compile(engine="jax")
    values, places = step(rows)
    np.testing.assert_array_equal(values, x[14:11:-1].T)
    np.testing.assert_array_equal(places, jnp.broadcast_to(jnp.arange(13, 10, -1), (3, 3)))
