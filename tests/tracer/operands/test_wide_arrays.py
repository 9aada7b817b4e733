"""Arrays of 64 bits, made where these are enabled, in functions called where they are not."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

with st.enable_x64(True):
    FLOATS, WHOLE = jnp.arange(1.0, 5.0), jnp.arange(1, 5)
    NUMBERS, ONE = FLOATS + 1j, jnp.float64(2.0)

CASES = {        # what JAX gives
    "sin of int64": (lambda: jnp.sin(WHOLE), "float64"),
    "arctan2 of int64": (lambda: jnp.arctan2(WHOLE, WHOLE), "float64"),
    "angle of int64": (lambda: jnp.angle(WHOLE), "float32"),
    "angle of float64": (lambda: jnp.angle(FLOATS), "float64"),
    "acosh of complex128": (lambda: jnp.acosh(NUMBERS), "complex128"),
    "around": (lambda: jnp.around(FLOATS, 2), "float64"),
    "full_like": (lambda: lax.full_like(FLOATS, 1), "float64"),
    "float64 and float32": (lambda: FLOATS + jnp.ones(4), "float32"),
    "cov": (lambda: jnp.cov(FLOATS), "float32"),
    "histogram": (lambda: jnp.histogram(WHOLE)[1], "float32"),
    "gradient": (lambda: jnp.gradient(FLOATS), "float32"),
    "trapezoid": (lambda: jnp.trapezoid(WHOLE), "float32"),
    "nanmax": (lambda: jnp.nanmax(FLOATS), "float32"),
    "sinc": (lambda: jnp.sinc(FLOATS), "float32"),
    "diagflat": (lambda: jnp.diagflat(WHOLE), "int32"),
    "bits of a number": (lambda: lax.bitcast_convert_type(ONE, np.int32), "int32"),
    "jacobian": (lambda: st.jacrev(jnp.sin)(FLOATS), "float64"),
    "hessian": (lambda: st.hessian(lambda x: (x ** 3).sum())(FLOATS), "float64"),
    "vjp": (lambda: st.vjp(jnp.sin, FLOATS)[1](FLOATS)[0], "float64")}


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
@pytest.mark.parametrize("case", CASES)
def test_wide_arrays_where_wide_dtypes_are_off(case):
    f, dtype = CASES[case]
    for g in (f, st.jit(f)):
        assert g().dtype == dtype
    np.testing.assert_allclose(st.jit(f)(), f(), 1e-6)


def test_the_bits_of_a_number():
    np.testing.assert_array_equal(lax.bitcast_convert_type(ONE, np.int32), [0, 1 << 30])
    np.testing.assert_array_equal(lax.bitcast_convert_type(jnp.float32(1), np.int8),
                                  [0, 0, -128, 63])


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
@pytest.mark.parametrize("other", [np.int8, np.int32, np.int64])
def test_powers_of_what_has_only_floats_in_common(other):
    with st.enable_x64(True):
        x, y = jnp.arange(1, 4, dtype=np.uint64), jnp.arange(1, 4, dtype=other)
        for found in (x ** y, y ** x):
            assert found.dtype == np.float64 and found.weak_type
            np.testing.assert_allclose(found, [1, 4, 27])
    assert (x ** y).dtype == np.float32
