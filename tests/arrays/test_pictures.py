"""Pictures for notebooks are well-formed, and show each block with its devices."""
import sys
import types
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.arrays.visualize import sharding_svg
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("x", "y"))


def blocks(svg):
    root = ET.fromstring(svg)
    names = [e.tag.rpartition("}")[2] for e in root]
    return names.count("rect"), [e.text for e in root if e.tag.endswith("text")]


@pytest.mark.parametrize(("shape", "spec", "count", "first"), [
    ((8, 16), P("x", "y"), 8, "CPU 0"), ((8, 16), P("y"), 4, "CPU 0,4"),
    ((8,), P(("x", "y")), 8, "0"), ((8, 16), P(), 1, "CPU 0,1,2,3,..."),
    ((4, 8, 16), P("x", None, "y"), 8, "CPU 0"), ((8, 8), P(("y", "x")), 8, "CPU 0")])
def test_each_block_has_its_devices(shape, spec, count, first):
    found, texts = blocks(sharding_svg(shape, NamedSharding(MESH, spec)))
    assert found == count and texts[0] == first


def test_colours_may_be_given():
    picture = sharding_svg((8, 8), NamedSharding(MESH, P("x")), lambda t: (1.0, 0.0, t))
    assert "rgb(255,0,0)" in picture


def test_many_blocks_are_said_in_words():
    mesh = st.sharding.AbstractMesh((1024,), ("x",))
    assert sharding_svg((), NamedSharding(MESH, P())).startswith("<span>")
    assert mesh.size == 1024


def test_arrays_programs_and_explanations_are_shown_in_notebooks():
    x = st.device_put(np.arange(64.0, dtype=np.float32).reshape(8, 8), NamedSharding(MESH, P("x")))
    page = x._repr_html_()
    assert "<svg" in page and "float32[8,8]" in page and "over x=2, y=4" in page
    assert "<svg" not in jnp.float32(3)._repr_html_()
    jitted = st.jit(lambda a: jnp.tanh(a).sum(0))
    assert "<b>tanh</b>" in jitted.trace(x).jaxpr._repr_html_()
    local = jitted.lower(x).compile().program._repr_html_()
    assert "light-dark(#b00" in local and local.startswith("<pre ")
    assert st.explain(jitted)(x)._repr_html_().startswith("<div ")


def test_pending_sums_have_no_picture():
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    with st.set_mesh(mesh):
        x = st.device_put(np.ones((4, 8), np.float32), P(None, "x"))
        y = st.jit(lambda a: jnp.einsum("ij->i", a, out_sharding=P(None, unreduced={"x"})))(x)
        assert "<svg" not in y._repr_html_()


def test_a_notebook_shows_the_image(monkeypatch, capsys):
    shown = []
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=1)
    ipython.display = types.SimpleNamespace(HTML=lambda m: m, display=shown.append)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    x = st.device_put(np.ones((8, 8)), NamedSharding(MESH, P("x")))
    st.debug.visualize_array_sharding(x)
    assert shown[0].count("<rect") == 2 and capsys.readouterr().out == ""
    st.debug.visualize_array_sharding(x, use_color=False)
    assert "CPU 0,1,2,3" in capsys.readouterr().out


def test_html_scrolls_and_takes_its_colours_from_the_page():
    mesh = st.make_mesh((2, 4), ("X", "Y"))
    x = st.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P("X", "Y")))
    layer = st.jit(lambda x: x.sum(0))
    traced = layer.trace(x)
    lowered = traced.lower()
    for value in (x, traced, lowered, lowered.compile(), traced.jaxpr, st.explain(layer)(x)):
        page = value._repr_html_()
        assert "overflow-x:auto" in page and "background:transparent" in page
        assert "background:#" not in page and "background:white" not in page
        assert "object at 0x" not in repr(value)
    assert repr(traced) == "<traced <lambda>: 1 equation, float32[8,16] -> float32[16]>"
    assert "1 collective, " in repr(lowered.compile())
