"""assert_comm, whatif and the command: budgets that hold or name the line, and differences."""
import json

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.cli.main import main
from shardtrace.ir.text.print import save_program
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...paths import EXAMPLES
from ...user_files import example_module

MESH = AbstractMesh((2, 4), ("X", "Y"))


def struct(shape, *spec):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


ARGS = (struct((64, 256), "X"), struct((256, 256), None, "Y"), struct((256, 256), "Y"))


def layer(x, w1, w2):
    return jnp.tanh(x @ w1) @ w2


def test_a_budget_that_holds():
    st.testing.assert_comm(layer, *ARGS, max_bytes=49152, kinds={"all-reduce": 1}, axis="Y")
    st.testing.assert_comm(layer, *ARGS, kinds={}, axis="X")
    st.testing.assert_comm(layer, *ARGS, kinds={"all-reduce": 2, "all-gather": 1})
    st.testing.assert_comm(layer, *ARGS, kinds={"all-reduce": 1}, exact=True)
    st.testing.assert_comm(st.jit(layer).lower(*ARGS), max_peak_bytes=1 << 20)


@pytest.mark.parametrize(("limits", "text"), [
    ({"max_bytes": 1000}, "each device receives 49,152 bytes, 48,152 more than the 1,000 allowed"),
    ({"kinds": {"all-gather": 1}}, "it has 1 all-reduce instead of 0"),
    ({"kinds": {"all-gather": 1}, "exact": True},
     "0 all-gather instead of 1, 1 all-reduce instead of 0"),
    ({"kinds": {"all-reduce": 2}, "axis": "Y", "exact": True}, "1 all-reduce instead of 2 over Y"),
    ({"max_peak_bytes": 1000}, "more than the 1,000 allowed")])
def test_a_budget_that_is_exceeded_names_the_line(limits, text):
    with pytest.raises(AssertionError) as failed:
        st.testing.assert_comm(layer, *ARGS, **limits)
    assert text in str(failed.value)
    assert "test_budgets.py" in str(failed.value) and "@ w2" in str(failed.value)


@pytest.mark.parametrize(("limits", "error", "text"), [
    ({}, ValueError, "needs a limit"),
    ({"axis": "Y"}, ValueError, "needs a limit"),
    ({"axis": "Y", "max_peak_bytes": 1}, ValueError, "neither is given"),
    ({"exact": True, "max_bytes": 1}, ValueError, "kinds is not given"),
    ({"max_bytes": "1 MB"}, TypeError, "must be a finite number"),
    ({"max_bytes": True}, TypeError, "must be a finite number"),
    ({"max_peak_bytes": -1}, ValueError, "must not be negative"),
    ({"max_bytes": float("nan")}, TypeError, "must be a finite number"),
    ({"max_bytes": float("inf")}, TypeError, "must be a finite number"),
    ({"kinds": {"all-reduce": float("inf")}}, TypeError, "must be a finite number"),
    ({"kinds": ["all-reduce"]}, TypeError, "a number for each kind"),
    ({"kinds": {"allreduce": 1}}, ValueError, "did you mean `all-reduce`?"),
    ({"kinds": {"all-reduce": "one"}}, TypeError, "the number of all-reduce"),
    ({"max_bytes": 1, "axis": "model"}, ValueError, "the mesh has X, Y"),
    ({"max_bytes": 1, "axis": ()}, TypeError, "name of a mesh axis")])
def test_a_budget_that_nothing_could_exceed_is_refused(limits, error, text):
    with pytest.raises(error) as refused:
        st.testing.assert_comm(layer, *ARGS, **limits)
    assert text in str(refused.value)


def test_a_budget_without_arguments_is_not_passed():
    with pytest.raises(TypeError, match="missing"):
        st.testing.assert_comm(layer, max_bytes=1 << 30)


def test_an_equivalence_of_what_is_not_split_is_refused():
    with pytest.raises(ValueError, match="nothing is split"):
        st.testing.assert_equivalent(lambda x: x + 1, np.ones(8, np.float32))
    with pytest.raises(ValueError, match="nothing is split"):
        st.testing.fuzz_equivalent(lambda x: x + 1, np.ones(7, np.float32),
                                   mesh=st.make_mesh((8,), ("x",)), count=3)
    whole = st.device_put(np.ones(8, np.float32), st.NamedSharding(st.make_mesh((8,), ("x",)), P()))
    with pytest.raises(ValueError, match="nothing is split"):
        st.testing.assert_equivalent(lambda x: x + 1, whole)
    for tolerance in (np.nan, np.inf, -1):
        with pytest.raises(ValueError, match="tolerance"):
            st.testing.assert_equivalent(lambda x: x + 1, whole, tolerance=tolerance)
    with pytest.raises(ValueError, match="count"):
        st.testing.fuzz_equivalent(lambda x: x + 1, np.ones(8, np.float32),
                                   mesh=st.make_mesh((8,), ("x",)), count=0)


def test_what_if_a_spec_changes():
    found = st.whatif(layer, in_shardings={"w2": P(None, "Y")})(*ARGS)
    assert [c.kind for c in found.removed] == ["all-reduce"]
    assert [c.kind for c in found.added] == ["all-gather"]
    assert ("w2", "f32[256@Y,256]", "f32[256,256@Y]") in found.types
    assert "pass `w2` as P(None, 'Y')" in str(found)
    json.dumps(found.to_dict())


def test_what_if_the_mesh_changes():
    found = st.whatif(layer, mesh={"X": 16})(*ARGS)
    assert found.after.partitioned.mesh.axis_sizes == (16, 4)
    assert found.after.flops < found.before.flops
    with pytest.raises(ValueError, match="no axis Z"):
        st.whatif(layer, mesh={"Z": 2})(*ARGS)


def test_what_if_a_shape_changes():
    found = st.whatif(layer, shapes={"x": (128, 256)})(*ARGS)
    assert found.after.received_bytes == 2 * found.before.received_bytes


def test_what_if_a_suggestion_is_taken():
    best = st.explain(layer)(*ARGS).collectives[0].suggestions[0]
    found = st.whatif(layer, best)(*ARGS)
    assert found.after.received_bytes == best.received_bytes


@pytest.mark.parametrize("change", [{"w2": P(None, "Y")}, {"X": 16}, {"x": (128, 256)}])
def test_a_change_may_be_a_dict(change):
    found = st.whatif(layer, change)(*ARGS)
    assert found and found.to_dict()["change"] in str(found)
    assert "<pre " in found._repr_html_()


def test_what_if_axes_spread_in_another_order():
    x, w = struct((64, 256), "X"), struct((256, 512), None, "X")
    found = st.whatif(lambda x, w: jnp.tanh(x @ w), priority={"w": 1})(x, w)
    assert ("result 0", "f32[64,512@X]", "f32[64@X,512]") in found.types
    assert any(name.startswith("`tanh` line") for name, _, _ in found.types)
    assert "`w` with priority 1" in str(found)
    back = st.whatif(lambda x, w: jnp.tanh(x @ w), priority={"x": 1})(x, w)
    assert not back


def test_what_if_a_constraint_waits():
    def f(x, w):
        line = st.lax.with_sharding_constraint(x, NamedSharding(MESH, P("X")))
        return jnp.tanh(line @ w)
    x, w = struct((64, 256), "X"), struct((256, 512), None, "X")
    at = f.__code__.co_firstlineno + 1
    found = st.whatif(f, priority={at: 1})(x, w)
    assert f"line {at} with priority 1" in str(found)
    with pytest.raises(ValueError, match="no `with_sharding_constraint` at line 1"):
        st.whatif(f, priority={1: 1})(x, w)
    with pytest.raises(ValueError, match="no argument 'y'"):
        st.whatif(f, priority={"y": 1})(x, w)


def test_what_if_a_result_is_whole():
    found = st.whatif(layer, out_shardings={0: P()})(*ARGS)
    assert "ask for result [0] as P() in out_shardings" in str(found)
    assert any(name == "result 0" for name, _, _ in found.types)


@pytest.mark.parametrize("change, message", [
    ({"in_shardings": {7: P()}}, "there is no argument 7; there are x, w1, w2"),
    ({"in_shardings": {-1: P()}}, "there is no argument -1"),
    ({"out_shardings": {7: P()}}, "there is no result 7; there is 1"),
    ({"out_shardings": {-1: P()}}, "there is no result -1"),
    ({"shapes": {"y": (128, 256)}}, "there is no argument 'y'"),
    ({"change": {"y": (128, 256)}}, "there is no argument 'y'"),
    ({"priority": {"y": 1}}, "there is no argument 'y'")])
def test_a_change_of_what_is_not_there_is_an_error(change, message):
    with pytest.raises(ValueError, match=message):
        st.whatif(layer, **change)(*ARGS)


def test_what_if_nothing_changes():
    assert not st.whatif(layer)(*ARGS)


# -- the command -----------------------------------------------------------------------------------

TYPES = ["--mesh", "X=2,Y=4", "--arg", "x=f32[64@X,256]", "--arg", "w1=f32[256,256@Y]",
         "--arg", "w2=f32[256@Y,256]"]


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("import shardtrace.numpy as jnp\n\n\ndef layer(x, w1, w2):\n"
                    "    h = jnp.tanh(x @ w1)\n    return h @ w2\n")
    return f"{path}:layer"


def test_explain_a_function_of_a_file(target, capsys):
    assert main(["explain", target, *TYPES]) == 0
    out = capsys.readouterr().out
    assert "all-reduce over Y" in out and "model.py:6:12" in out and "^^^^^^" in out


def test_explain_as_json(target, capsys):
    assert main(["explain", target, *TYPES, "--json", "--hardware", "h100"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["hardware"] == "h100"
    assert data["collectives"][0]["source"]["line"] == 6


@pytest.mark.parametrize(("limit", "status"), [(100, 1), (1_000_000, 0)])
def test_check_has_an_exit_status(target, tmp_path, capsys, limit, status):
    budget = tmp_path / "budget.toml"
    budget.write_text(f'max_bytes = {limit}\naxis = "Y"\n')
    assert main(["check", target, *TYPES, "--budget", str(budget)]) == status
    said = capsys.readouterr()
    assert ("model.py:6" in said.out) == bool(status)
    assert main(["check", target, *TYPES, "--budget", str(budget), "--json"]) == status
    assert json.loads(capsys.readouterr().out)["ok"] is not bool(status)


def test_dumps_are_explained_compared_and_asked(tmp_path, capsys):
    traced = st.jit(layer).lower(*ARGS).stages["traced"]
    path = tmp_path / "layer.st"
    save_program(traced, path)
    given = ["--in", "x=P('X', None)", "--in", "w1=P(None, 'Y')", "--in", "w2=P('Y', None)"]
    assert main(["explain", str(path), *given]) == 0
    assert "avoided by" in capsys.readouterr().out
    assert main(["diff", str(path), str(path), *given]) == 0
    assert "no difference" in capsys.readouterr().out
    assert main(["why", str(path), "w1.1", *given]) == 0
    assert "Y on dimension 1 of `w1` comes from `in_shardings[1]`" in capsys.readouterr().out
    assert main(["why", str(path), "nobody.1", *given]) == 2
    local = tmp_path / "local.st"
    save_program(st.jit(layer).lower(*ARGS).compile().program, local)
    assert main(["explain", str(local)]) == 0
    assert "all-reduce over Y" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [
    ["explain", "nothing.py:f"], ["explain", "nothing.st"],
    ["explain", str(EXAMPLES / "mlp.py") + ":nothing"]])
def test_mistakes_are_said_in_a_line(arguments, capsys):
    assert main(arguments) == 2
    assert "shardtrace" in capsys.readouterr().err


# -- from shapes alone -----------------------------------------------------------------------------

def test_seventy_billion_parameters_in_seconds():
    module = example_module("llama70b_on_4096")
    found = module.main()
    assert found.partitioned.mesh.size == 4096
    # six operations a parameter and token, and attention and recomputation beside
    wanted = 6 * 70.6e9 * module.BATCH * module.LENGTH / 4096
    assert wanted < found.flops < 2 * wanted
    assert found.peak_bytes < 95e9                    # fits into a v5p
    assert {c.source.file for c in found.collectives if c.source.line} == {module.__file__}
