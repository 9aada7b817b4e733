"""`shardtrace autoshard` on functions and programs."""
import json

import pytest

LAYER = """
@st.jit
def layer(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2

def example_args():
    return struct((64, 256), "X"), struct((256, 256), None, "Y"), struct((256, 256), None, "Y")
"""


@pytest.fixture
def layer(write):
    return write(LAYER)


def test_the_plan_of_a_function(layer, said):
    status, out, _ = said("autoshard", f"{layer}:layer")
    assert status == 0
    assert "w1" in out and "data parallel" in out and "jax.jit(layer" in out


def test_json_has_specs_figures_and_rivals(layer, said):
    status, out, _ = said("autoshard", layer, "--mesh", "data=4", "--json")
    found = json.loads(out)
    assert status == 0 and found["command"] == "autoshard"
    assert found["mesh"] == {"data": 4}
    assert [row["name"] for row in found["arguments"]] == ["x", "w1", "w2"]
    assert found["figures"]["time"] <= min(n["figures"]["time"] for n in found["named"]
                                           if n["figures"])


def test_the_mesh_may_be_chosen_and_specs_given(layer, said):
    status, out, _ = said("autoshard", layer, "--devices", 4, "--fix", "x=P('data')", "--json")
    found = json.loads(out)
    assert status == 0
    assert next(r["spec"] for r in found["arguments"] if r["name"] == "x") == "P('data')"
    assert len(found["meshes"]) > 1


def test_a_traced_program_is_planned_on_its_mesh(layer, said, tmp_path):
    said("trace", layer, "-o", tmp_path / "layer.st")
    status, out, _ = said("autoshard", tmp_path / "layer.st", "--json", "--explain")
    assert status == 0 and json.loads(out)["mesh"]


def test_what_has_no_meaning_is_refused(layer, said, tmp_path):
    for more, message in ((["--mesh", "data=4", "--devices", 4], "give one of them"),
                          (["--fix", "x"], "write PATH=P(...)"),
                          (["--fix", "x=3"], "is no spec"),
                          (["--memory-limit", 10], "the least that was found")):
        status, _, err = said("autoshard", layer, *more)
        assert status != 0 and message in err
    said("partition", layer, "-o", tmp_path / "local.st")
    status, _, err = said("autoshard", tmp_path / "local.st")
    assert status != 0 and "has its shardings already" in err
