"""`shardtrace freeze`, `shardtrace thaw` and `--plan`."""
import json

import pytest

from .conftest import LAYER

ARGS = """
def example_args():
    return struct((64, 256), "X"), struct((256, 256), None, "Y"), struct((256, 256), None, "Y")
"""


@pytest.fixture
def frozen(write, said, tmp_path):
    """A file, and its plan."""
    path = write(LAYER + ARGS)
    status, out, _ = said("freeze", f"{path}:layer", "-o", tmp_path / "plan.json")
    assert status == 0 and "8 decisions of layer" in out
    return path, tmp_path / "plan.json"


def test_a_plan_is_kept_until_the_program_changes(frozen, said, write):
    path, plan = frozen
    status, out, _ = said("thaw", f"{path}:layer", plan)
    assert status == 0 and out.startswith("layer: 8 of 8 decisions are kept")
    other = write(LAYER.replace("jnp.tanh(", "jnp.sin(") + ARGS, "other.py")
    status, out, _ = said("thaw", f"{other}:layer", plan, "--json")
    found = json.loads(out)
    assert status == 1 and not found["fits"]
    assert {d["line"] for d in found["gone"]} == {"h = jnp.tanh(x @ w1)"}


def test_commands_keep_a_plan(frozen, said):
    path, plan = frozen
    status, out, _ = said("explain", f"{path}:layer", "--plan", plan, "--suggest", 0)
    assert status == 0 and "the frozen plan" in out
    assert said("run", f"{path}:layer", "--plan", plan, "--compare")[0] == 0
    assert "f32[64@X,256@Y]" in said("partition", f"{path}:layer", "--plan", plan)[1]


def test_what_is_no_plan_or_no_function_is_refused(frozen, said, tmp_path):
    path, plan = frozen
    (tmp_path / "bad.json").write_text("{}")
    status, _, err = said("thaw", f"{path}:layer", tmp_path / "bad.json")
    assert status == 2 and "is no frozen plan" in err
    said("trace", f"{path}:layer", "-o", tmp_path / "layer.st")
    status, _, err = said("partition", tmp_path / "layer.st", "--plan", plan)
    assert status == 2 and "plans are of functions" in err
