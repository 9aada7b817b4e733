"""What the array API standard asks of the module and of arrays, beside JAX's answers."""
from __future__ import annotations

import pytest

import shardtrace as st
import shardtrace.numpy as jnp


def answers(m):
    info = m.numpy.__array_namespace_info__()
    return (m.numpy.__array_api_version__, info.capabilities(), info.default_dtypes(),
            info.default_device(), info.dtypes(), info.dtypes(kind="integral"),
            info.dtypes(kind=("bool", "complex floating")), len(info.devices()) > 1)


@pytest.mark.parametrize("wide", [False, True])
def test_answers_are_jaxs(wide):
    jax = pytest.importorskip("jax")
    with st.enable_x64(wide):
        ours = answers(st)
    with jax.enable_x64(wide):
        assert ours == answers(jax)


def test_arrays_name_the_module():
    assert jnp.ones(2).__array_namespace__(api_version=jnp.__array_api_version__) is jnp
    with pytest.raises(ValueError, match="not available"):
        jnp.ones(2).__array_namespace__(api_version="2021.12")
