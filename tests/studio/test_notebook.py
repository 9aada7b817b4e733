"""The extension of IPython, in notebooks that a kernel executes."""
from __future__ import annotations

import re

import pytest

nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
nbformat = pytest.importorskip("nbformat")

SETUP = """
import numpy as np
import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import NamedSharding, PartitionSpec as P
mesh = st.make_mesh((2, 4), ("data", "model"))
def put(shape, *spec):
    return st.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))
x, w1, w2 = put((64, 256), "data"), put((256, 256), None, "model"), put((256, 256), None, "model")
%load_ext shardtrace
"""
LAYER = """
@st.jit
def layer(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2
"""

pytestmark = pytest.mark.filterwarnings("ignore")        # of the kernel's libraries


def run(tmp_path, *cells):
    """Execute cells; of each what it shows as HTML, and as text."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c.strip()) for c in cells])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3", allow_errors=True,
                            resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = []
    for cell in book.cells:
        html = [o["data"].get("text/html", "") for o in cell.outputs if "data" in o]
        text = [o["data"].get("text/plain", "") for o in cell.outputs if "data" in o]
        text += [o.get("text", "") or o.get("evalue", "") for o in cell.outputs]
        shown.append(("".join(html), "\n".join(text)))
    return shown


def lines(html):
    """The lines of what is shown as code, without markup."""
    found = re.search(r"<pre[^>]*>(.*?)</pre>", html, re.DOTALL)
    return re.sub(r"<[^>]*>", "", found[1]).split("\n") if found else []


def test_a_cell_is_shown_with_types_and_collectives_beside_its_lines(tmp_path) -> None:
    magic = f"%%shardtrace --page page.html\n{LAYER}y = layer(x, w1, w2)\nprint('ran', y.shape)"
    _, (html, text), (again, _), (far, _), (none, _), (_, wrong), (_, raised) = run(
        tmp_path, SETUP, magic, f"%%shardtrace --hardware h100\n{LAYER}layer(x, w1, w2)",
        "%%shardtrace\nz = layer(x, w1, w2)", "%%shardtrace\n1 + 1",
        "%%shardtrace --hardware abacus\n1 + 1", "%%shardtrace\nlayer(x, w1)")
    assert "ran (64, 256)" in text
    shown = lines(html)
    assert [line for line in shown
            if "h = jnp.tanh" in line and "h: f32[64@data,256@model]" in line]
    assert [line for line in shown if "return h @ w2" in line and "all-gather over model" in line]
    assert "<details><summary>layer: 1 collective, 24.6 kB received" in html
    assert "h100" not in html and "H100" in again
    # the function stands in another cell, whose lines are shown
    assert [line for line in lines(far) if "return h @ w2" in line and "all-gather" in line]
    assert "no jitted function ran" in none
    assert "invalid choice: 'abacus'" in wrong and "w2" in raised
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!doctype html>") and "all-gather over model" in page


def test_values_are_shown_in_one_look(tmp_path) -> None:
    _, *shown = run(
        tmp_path, SETUP + LAYER, "x", "x.sharding", "mesh", "layer.trace(x, w1, w2).jaxpr",
        "st.explain(layer)(x, w1, w2)", "st.debug.visualize_array_sharding(x)",
        "%unload_ext shardtrace\n")
    for html, _ in shown[:5]:
        assert re.match(r"<(div|pre) style='max-width:100%;overflow-x:auto;", html)
    assert "<svg" in shown[5][0]
