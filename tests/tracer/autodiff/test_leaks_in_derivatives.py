"""`checking_leaks` around derivatives: what these build is no leak, what a function keeps is."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

pytestmark = pytest.mark.usefixtures("only_own_objects")      # which the checks walk
X = np.array([3.0], np.float32)


def mapped(x):
    return lax.map(jnp.sin, x)


def scanned(x):
    return lax.scan(lambda c, _: (jnp.sin(c), c), x, None, length=3)[0]


@pytest.mark.parametrize("f", [mapped, scanned, st.checkpoint(mapped), st.checkpoint(scanned),
                               st.checkpoint(st.jit(scanned)), st.jit(st.checkpoint(mapped))])
@pytest.mark.parametrize("around", [lambda f: f, st.jit], ids=["at once", "jitted"])
def test_derivatives_leak_nothing(f, around):
    with st.checking_leaks():
        slope = around(st.grad(lambda x: f(x).sum()))(X)
    assert np.isfinite(slope).all()


def test_a_leak_within_what_is_differentiated_is_found():
    kept = []

    def f(x):
        kept.append(x)
        return jnp.sin(x).sum()

    with st.checking_leaks(), pytest.raises(Exception, match="Leaked trace"):
        st.grad(st.checkpoint(f))(X)
