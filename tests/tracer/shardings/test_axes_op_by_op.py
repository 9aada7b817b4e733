"""auto_axes and explicit_axes outside of jit: the function runs on arrays, op by op."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType, NamedSharding, auto_axes, explicit_axes
from shardtrace.sharding import PartitionSpec as P

DATA = np.arange(16.0, dtype=np.float32).reshape(4, 4)
AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit


def mesh_of(*types):
    return st.make_mesh((2, 4), ("x", "y"), axis_types=types)


def seen_inside(switch, x):
    seen = {}

    def inner(v):
        w = v + 1
        seen.update(v=v.sharding, w=w.sharding, new=jnp.arange(4).sharding, type=st.typeof(v))
        return w

    return seen, switch(inner)(x)


@pytest.mark.parametrize("on_numpy", [False, True])
def test_values_inside_of_auto_axes_are_arrays_on_an_auto_mesh(on_numpy):
    with st.set_mesh(mesh_of(EXPLICIT, EXPLICIT)):
        x = DATA if on_numpy else st.device_put(DATA, P("x", "y"))
        seen, out = seen_inside(lambda f: auto_axes(f, out_sharding=P("x", None)), x)
    auto, spec = mesh_of(AUTO, AUTO), P() if on_numpy else P("x", "y")
    assert seen["v"] == seen["w"] == NamedSharding(auto, spec)
    assert seen["new"] == NamedSharding(auto, P())
    assert str(seen["type"]) == "float32[4,4]"
    assert out.sharding == NamedSharding(mesh_of(EXPLICIT, EXPLICIT), P("x", None))
    np.testing.assert_array_equal(out, DATA + 1)


@pytest.mark.parametrize(("axes", "types", "spec", "shown"), [
    (None, (EXPLICIT, EXPLICIT), P("x", "y"), "float32[4@x,4@y]"),
    ("x", (EXPLICIT, AUTO), P("x"), "float32[4@x,4]")])
def test_values_inside_of_explicit_axes_are_arrays_with_typed_shardings(axes, types, spec, shown):
    mesh = mesh_of(AUTO, AUTO)
    with st.set_mesh(mesh):
        x = st.device_put(DATA, P("x", "y"))
        seen, out = seen_inside(lambda f: explicit_axes(f, axes=axes, in_sharding=spec), x)
    assert seen["v"].mesh.axis_types == seen["w"].mesh.axis_types == types
    assert str(seen["type"]) == shown
    assert out.sharding == NamedSharding(mesh, P("x", "y"))
    np.testing.assert_array_equal(out, DATA + 1)


def test_python_control_flow_looks_at_values():
    with st.set_mesh(mesh_of(EXPLICIT, EXPLICIT)):
        f = auto_axes(lambda v: v if v.sum() > 0 else -v, out_sharding=P("x"))
        np.testing.assert_array_equal(f(st.device_put(-DATA, P("x", "y"))), DATA)
