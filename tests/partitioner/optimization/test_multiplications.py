"""Products over no dimension are multiplications in the program of a device."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace import config, lax
from shardtrace import numpy as jnp
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

OUTER = (((), ()), ((), ()))
PROGRAMS = {
    "a batch of numbers": (lambda g, t: jnp.einsum("be,bef->bef", g, t),
                           ((8, 4), P("x")), ((8, 4, 8), P("x", None, "y"))),
    "an outer product": (lambda a, b: lax.dot_general(a, b, OUTER),
                         ((8,), P("x")), ((12,), P("y"))),
    "dimensions in another order": (lambda a, b: jnp.einsum("ab,cb->bac", a, b),
                                    ((4, 8), P(None, "y")), ((6, 8), P("x"))),
    "in a loop": (lambda g, t: lax.scan(
        lambda c, x: (c + jnp.einsum("e,ef->ef", x, c), None), t, g)[0],
        ((3, 4), P()), ((4, 8), P(None, "y")))}


def placed(mesh, rng, shape, spec, dtype="float32"):
    return st.device_put(rng.normal(size=shape).astype(dtype), NamedSharding(mesh, spec))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_values_and_ops(name, kind):
    f, *given = PROGRAMS[name]
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(kind, kind))
    rng = np.random.default_rng(0)
    with st.set_mesh(mesh):
        args = [placed(mesh, rng, *one) for one in given]
        compiled = st.jit(f).lower(*args).compile()
        assert "= dot_general[" not in compiled.as_text() and "= mul " in compiled.as_text()
        with config.override(shardtrace_engine="per_device"):
            found = compiled(*args)
        with config.override(shardtrace_skip="multiply"):
            other = st.jit(lambda *xs: f(*xs)).lower(*args).compile()
    assert "= dot_general[" in other.as_text()
    np.testing.assert_array_equal(found, other(*args))
    assert found.aval == other(*args).aval


def test_the_wider_dtype_of_a_product_stays():
    mesh = st.make_mesh((2,), ("x",))
    rng = np.random.default_rng(0)
    args = [placed(mesh, rng, (8,), P("x"), "bfloat16") for _ in range(2)]
    f = st.jit(lambda a, b: lax.dot_general(a, b, OUTER, preferred_element_type="float32"))
    found = f(*args)
    a, b = (np.asarray(x).astype(np.float32) for x in args)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, a[:, None] * b)


def test_products_that_add_up_stay():
    mesh = st.make_mesh((2,), ("x",))
    x = placed(mesh, np.random.default_rng(0), (4, 4), P("x"))
    assert "= dot_general[" in st.jit(lambda x: x @ x).lower(x).compile().as_text()
