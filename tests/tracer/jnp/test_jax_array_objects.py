"""Objects with `__jax_array__` stand for arrays in functions of `jax.numpy`."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp

from ...rows import rows


class Wrapped:
    """A value in a box of a user's own."""

    def __init__(self, x):
        self.x = x

    def __jax_array__(self):
        return jnp.asarray(self.x)


X = np.array([[1.5, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
CALLS = {
    "insert": lambda x: jnp.insert(x, 1, jnp.zeros(()), axis=1),
    "broadcast_to": lambda x: jnp.broadcast_to(x, (2, 2, 3)),
    "moveaxis": lambda x: jnp.moveaxis(x, 0, 1), "spacing": jnp.spacing, "ceil": jnp.ceil,
    "nanmean": jnp.nanmean, "nanvar": jnp.nanvar, "std": jnp.std, "any": jnp.any,
    "concatenate": lambda x: jnp.concatenate([x, x]), "where": lambda x: jnp.where(True, x, x),
    "inner": lambda x: jnp.inner(x, x), "tensordot": lambda x: jnp.tensordot(x, x, 2),
    "einsum": lambda x: jnp.einsum("ij->j", x), "sum": lambda x: jnp.sum(x, axis=0),
}


@rows("name", CALLS)
@rows("around", [lambda f: f, st.jit])
def test_functions_take_objects_that_convert(name, around):
    f = around(lambda x: CALLS[name](Wrapped(x)))
    np.testing.assert_array_equal(f(X), CALLS[name](X))


def test_errors_of_the_conversion_and_of_the_function_are_told():
    class Broken:
        def __jax_array__(self):
            raise KeyError("no array today")

    with pytest.raises(KeyError, match="no array today"):
        jnp.sum(Broken())
    with pytest.raises(ValueError, match="axis 5 is out of bounds"):
        jnp.sum(Wrapped(X), axis=5)


def test_zeros_are_trimmed_off_an_object_that_is_an_array():
    class Wrapped:
        def __jax_array__(self):
            return jnp.array([0, 0, 1, 2, 0])

    assert jnp.trim_zeros(Wrapped()).tolist() == [1, 2]


def test_lists_of_traced_numbers_have_a_dtype():
    assert st.jit(jnp.iscomplexobj)([1 + 1j, 2]) and not st.jit(jnp.isrealobj)([1 + 1j, 2])
