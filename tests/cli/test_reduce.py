"""`reduce` keeps what is asked for and little else; what it prints shows it still."""
import json
import re
import sys

import numpy as np
import pytest

import shardtrace.numpy as jnp
from shardtrace import make_jaxpr
from shardtrace.driver.analysis.reduce import Case, count_equations, reduce_program
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.verify import verify

MODEL = """
@st.jit
def step(params, x):
    def loss(p):
        h = jnp.tanh(x @ p["w1"]) + p["b"]
        h = st.nn.relu(h * 2.0)
        y = st.nn.softmax(h @ p["w2"])
        return (y * y).mean()
    value, grads = st.value_and_grad(loss)(params)
    return value, {k: params[k] - 0.1 * grads[k] for k in params}

def example_args():
    return {"w1": struct((256, 512), None, "Y"), "b": struct((512,), "Y"),
            "w2": struct((512, 256), None, "Y")}, struct((64, 256), "X")
"""


# by time this small program sums nothing over X
pytestmark = pytest.mark.usefixtures("by_bytes")


@pytest.fixture
def model(write):
    return write(MODEL)


@pytest.mark.parametrize(("options", "most"), [
    (["--collective", "all-gather"], 1), (["--collective", "all-reduce:X"], 1),
    (["--collective", "all-reduce:Y"], 1), (["--warning", "redundant-compute"], 1)])
def test_what_is_left_is_small_and_shows_it_still(model, said, tmp_path, options, most):
    status, out, _ = said("reduce", model, *options, "-o", tmp_path / "small.st")
    assert status == 0
    program = parse_program(out)
    verify(program)
    assert count_equations(program) <= most
    removed = int(re.search(r"# (\d+) of (\d+) equations removed", out)[1])
    assert removed >= 20
    given = re.findall(r'--in "([^"]*)"', out)
    options_again = [w for text in given for w in ("--in", text)]
    verb = "check" if "--warning" in options else "collectives"
    more = ["--warnings"] if verb == "check" else []
    status, again, _ = said(verb, tmp_path / "small.st", *options_again, *more)
    wanted = {"all-gather": "all-gather", "all-reduce:X": "over X", "all-reduce:Y": "over Y",
              "redundant-compute": "redundant-compute"}[options[1]]
    assert wanted in again


def test_sizes_shrink_too(model, said):
    out = json.loads(said("reduce", model, "--collective", "all-gather", "--json")[1])
    assert out["equations"] <= 2 and out["equations_removed"] == (
        out["equations_before"] - out["equations"])
    sizes = [int(n) for n in re.findall(r"[\[,](\d+)", out["text"].split("{")[0])]
    assert max(sizes) <= 16


def test_an_error_is_kept(write, said, tmp_path):
    path = write("""
def f(x):
    a = jnp.sin(x)
    b = st.pure_callback(lambda v: v + np.ones((3, 3)), st.ShapeDtypeStruct(a.shape, a.dtype), a)
    return jnp.cos(b) + a, jnp.tan(x)

args = (st.ShapeDtypeStruct((8, 4), np.float32),)
""")
    status, out, _ = said("reduce", f"{path}:f", "--error", "incompatible shapes for broadcasting")
    assert status == 0
    assert [e.op.name for e in parse_program(out, callables=_any()).eqns] == ["pure_callback"]


def test_values_beyond_memory_are_an_error_of_the_case(tmp_path, said):
    path = tmp_path / "large.st"
    path.write_text("program @f(x: f32[1048576,1048576]) -> f32[1048576,1048576] {\n"
                    "  y: f32[1048576,1048576] = sin x\n  return y\n}\n")
    status, out, _ = said("reduce", str(path), "--error", "RESOURCE_EXHAUSTED", "--most", "5")
    assert status == 0 and "1048576" in out


def test_values_that_cannot_be_had_are_an_error_of_the_case(tmp_path, said, monkeypatch):
    def none(*given):
        raise MemoryError("Unable to allocate")
    monkeypatch.setattr("shardtrace.cli.commands.reduce.random_value", none)
    path = tmp_path / "x.st"
    path.write_text("program @f(x: f32[4]) -> f32[4] {\n  y: f32[4] = sin x\n  return y\n}\n")
    assert said("reduce", str(path), "--error", "Unable to allocate", "--most", "5")[0] == 0


def _any():
    class Any_(dict):
        def __contains__(self, key):
            return True

        def __getitem__(self, key):
            return lambda *a: a
        get = __getitem__
    return Any_()


def test_a_command_of_ones_own_decides(model, said, tmp_path):
    check = tmp_path / "check.py"
    check.write_text("import sys\nsys.exit('tanh' not in open(sys.argv[1]).read())\n")
    status, out, _ = said("reduce", model, "--command", f"{sys.executable} {check} {{}}",
                          "--most", 120)
    assert status == 0 and "tanh" in out
    assert count_equations(parse_program(out)) < 30
    assert said("reduce", model, "--command", "true")[0] == 2


def test_a_program_that_does_not_show_it_is_no_mistake(model, said):
    status, out, _ = said("reduce", model, "--collective", "collective-permute")
    assert status == 1 and "does not show collective-permute" in out
    assert said("reduce", model, "--differs")[0] == 1


def test_dumps_of_later_stages_are_reduced(model, said, tmp_path):
    said("partition", model, "--dump", tmp_path)
    path = next(tmp_path.glob("*-optimized.st"))
    before = count_equations(parse_program(path.read_text()))
    status, out, _ = said("reduce", path, "--collective", "all-reduce:X")
    after = parse_program(out)
    assert status == 0 and "over X" in out and count_equations(after) < before


def test_loops_are_reduced_inside():
    import shardtrace as st

    def f(x):
        def body(c, _):
            d = jnp.sin(jnp.cos(jnp.tan(c)))
            return jnp.exp(d), None
        return st.lax.scan(body, x, None, length=3)[0]

    program = make_jaxpr(f)(np.ones(4, np.float32))

    def has_cos(case: Case) -> bool:
        verify(case.program)
        return "cos" in str(case.program) and "scan" in str(case.program)

    found = reduce_program(program, (None,), has_cos)
    assert count_equations(found.after.program) == 2 and found.removed == 3
    with pytest.raises(ValueError, match="does not show it in the first place"):
        reduce_program(program, (None,), lambda case: False)


def test_trials_are_bounded():
    program = make_jaxpr(lambda x: jnp.sin(jnp.cos(x)) + x)(np.ones(4, np.float32))
    assert reduce_program(program, (None,), lambda case: True, most=5).tried == 5


def test_executors_that_differ(write, said):
    path = write("""
count = iter(range(10_000))

def f(x):
    a = jnp.sin(x) * 2
    b = st.pure_callback(lambda v: np.asarray(v) * 0 + next(count),
                         st.ShapeDtypeStruct(x.shape, x.dtype), a)
    return jnp.tanh(x), jnp.cos(x) + b * 3, b.sum()

args = (st.ShapeDtypeStruct((8, 4), np.float32),)
""")
    status, out, _ = said("run", f"{path}:f", "--compare")
    assert status == 1 and "the executors DIFFER" in out
    status, out, _ = said("reduce", f"{path}:f", "--differs")
    assert status == 0 and "pure_callback" in out and "7 of 8 equations removed" in out
