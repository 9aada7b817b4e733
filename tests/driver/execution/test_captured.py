"""Large arrays that a jitted function captures are reported."""
from __future__ import annotations

import warnings

import pytest

import shardtrace as st
import shardtrace.numpy as jnp


@pytest.fixture
def limit():
    """Set from how many bytes on; undone afterwards."""
    name = "jax_captured_constants_warn_bytes"
    before = getattr(st.config, name)
    yield lambda n: st.config.update(name, n)
    st.config.update(name, before)


def capturing():
    w = jnp.full((16, 16), 2.0)
    return w.nbytes, st.jit(lambda x: x @ w)


def test_a_captured_array_is_told_of_with_the_line_that_uses_it(limit):
    size, f = capturing()
    limit(size)
    with pytest.warns(UserWarning, match=r"A large amount of constants were captured during "
                      r"lowering \(1,024 bytes total\).*f32\[16,16\], which `x @ w` uses, on line "
                      r".*test_captured.py"):
        f(jnp.ones(16))
    for n in (size + 1, -1):
        limit(n)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            capturing()[1](jnp.ones(16))


def test_the_limit_is_two_gigabytes_at_first():
    assert st.config.jax_captured_constants_warn_bytes == 2_000_000_000
