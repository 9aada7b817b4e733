"""Meshes, specs and shardings in notebooks: tables that scroll and take the page's colours."""
import html
import re

import numpy as np
import pytest

import shardtrace as st
from shardtrace.sharding import AbstractMesh, AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Explicit))
SHOWN = {
    "mesh": (MESH, ["x 2 Auto", "y 4 Explicit", "devices by y", "x=0 0 1 2 3", "x=1 4 5 6 7"]),
    "abstract mesh": (AbstractMesh((3,), ("z",)), ["z 3 Auto"]),
    "large mesh": (st.make_mesh((1, 8), ("a", "b")), ["a=0 0 1 2 3 4 5 6 7"]),
    "no axes": (AbstractMesh((), ()), ["mesh axis size type"]),
    "sharding": (NamedSharding(MESH, P(("x", "y"), None)), ["0 x, y 8", "1 whole 1"]),
    "spec": (P("x", P.UNCONSTRAINED, unreduced={"y"}),
             ["0 x", "1 unconstrained", "unreduced over y"]),
    "empty spec": (P(), ["whole on every device"]),
    "struct": (st.ShapeDtypeStruct((8, 6), np.float32, sharding=NamedSharding(MESH, P("y"))),
               ["0 y 4 8 2", "1 whole 1 6 6"]),
    "struct of no mesh": (st.ShapeDtypeStruct((8,), np.int32), ["shape=(8,), dtype=int32"]),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_shows(name):
    value, phrases = SHOWN[name]
    shown = value._repr_html_()
    assert "overflow-x:auto" in shown and "color:inherit" in shown and "#fff" not in shown
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", shown)).split())
    for phrase in phrases:
        assert phrase in text
