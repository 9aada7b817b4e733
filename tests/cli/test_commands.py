"""Every command on a function and on dumps of every stage: text, JSON, exit statuses."""
import importlib.metadata
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import shardtrace as st
from shardtrace.cli.results import tolerance
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.text.parse import load_program, parse_program

LAYER = """
@st.jit
def layer(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2            # culprit

def example_args():
    return struct((64, 256), "X"), struct((256, 256), None, "Y"), struct((256, 256), None, "Y")
"""


@pytest.fixture
def layer(write):
    return write(LAYER)


@pytest.fixture
def dumps(layer, said, tmp_path):
    status, out, _ = said("partition", f"{layer}:layer", "--dump", tmp_path / "dumps")
    assert status == 0
    return dict(zip(("traced", "inlined", "resolved", "resharded", "local", "optimized"),
                    out.split(), strict=True))


def test_trace_and_partition_print_programs_that_read_back(layer, said, dumps, tmp_path):
    status, out, _ = said("trace", layer)
    assert status == 0 and programs_equal(parse_program(out), load_program(dumps["traced"]))
    for stage, path in dumps.items():
        status, out, _ = said("partition", layer, "--stage", stage, "--no-locations")
        assert status == 0 and programs_equal(parse_program(out), load_program(path))
        assert "model.py" not in out
    written = tmp_path / "out.st"
    assert said("trace", layer, "-o", written)[:2] == (0, "")
    _, again, _ = said("partition", written, "--in", "x=P('X')", "--in", "w1=P(None, 'Y')",
                       "--in", "w2=P(None, 'Y')")
    assert programs_equal(parse_program(again), parse_program(said("partition", layer)[1]))


@pytest.mark.parametrize("stage", ["traced", "resolved", "resharded", "local", "optimized"])
@pytest.mark.parametrize("verb", ["trace", "partition", "show", "collectives", "run", "explain",
                                  "why", "check", "diff"])
def test_every_command_takes_every_stage(dumps, said, stage, verb):
    more = {"why": ["h.1"], "diff": [dumps[stage]], "check": ["--warnings"],
            "explain": ["--suggest", 0]}
    status, out, err = said(verb, dumps[stage], *more.get(verb, []), "--json")
    assert status in (0, 1), err
    found = json.loads(out)
    assert found["schema"] == 1 and found["command"] == verb


@pytest.mark.parametrize("arguments", [
    ["trace"], ["partition"], ["show"], ["collectives"], ["run"], ["explain"],
    ["check", "--warnings"], ["why", "h.1"]])
def test_json_of_a_function_is_one_object(layer, said, arguments):
    verb, *more = arguments
    status, out, _ = said(verb, f"{layer}:layer", *more, "--json")
    found = json.loads(out)
    assert status in (0, 1) and (found["schema"], found["command"]) == (1, verb)
    if verb in ("collectives", "explain"):
        assert found["collectives"][0]["source"]["text"].startswith("return h @ w2")


def test_a_program_on_standard_input(dumps, said, monkeypatch):
    with open(dumps["optimized"]) as file:
        monkeypatch.setattr("sys.stdin", file)
        status, out, _ = said("collectives", "-")
    assert status == 0 and out.startswith("1 collective,")


# -- run -------------------------------------------------------------------------------------------

def test_run_takes_the_arguments_of_the_file(write, said, tmp_path):
    path = write("""
@st.jit
def double(x):
    return x * 2

double(st.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("X"))))
""")
    status, out, _ = said("run", path, "--json", "--save", tmp_path / "results.npz")
    found = json.loads(out)
    assert status == 0 and found["results"][0]["values"] == [0, 2, 4, 6, 8, 10, 12, 14]
    np.testing.assert_array_equal(np.load(tmp_path / "results.npz")["result0"], np.arange(8.) * 2)
    np.savez(tmp_path / "wrong.npz", y=np.ones(3))
    status, _, err = said("run", path, "--load", tmp_path / "wrong.npz")
    assert status == 2 and "has y, but the parameters are x" in err


def test_run_compares_profiles_and_writes_a_trace(layer, said, tmp_path):
    trace = tmp_path / "trace.json"
    status, out, _ = said("run", layer, "--compare", "--profile", "--trace", trace, "--most", 4)
    assert status == 0
    assert "the executors agree" in out and "local type" in out and "@ w2" in out
    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["pid"] for e in events if e["ph"] == "X"} == {1, 2}
    status, out, _ = said("run", layer, "--profile", "--json", "--most", 4)
    assert status == 0 and json.loads(out)["profile"]["equations"]


# -- check -----------------------------------------------------------------------------------------

def test_check_names_the_offending_line(layer, said, tmp_path):
    line = next(i for i, t in enumerate(layer.read_text().split("\n"), 1) if "culprit" in t)
    budget = tmp_path / "budget.toml"
    budget.write_text("max_bytes = 1000\n")
    status, out, _ = said("check", layer, "--budget", budget)
    assert status == 1 and f"model.py:{line}:" in out and "return h @ w2" in out
    found = json.loads(said("check", layer, "--budget", budget, "--json")[1])
    assert found["ok"] is False and found["location"]["line"] == line
    budget.write_text("[layer]\nmax_bytes = 1000000\nkinds = {all-gather = 1}\n")
    assert said("check", layer, "--budget", budget)[0] == 0
    budget.write_text(f'["{layer}:layer"]\nkinds = {{}}\n')
    assert said("check", layer, "--budget", budget)[0] == 1


@pytest.mark.parametrize(("text", "phrase"), [
    ("[layr]\nmax_bytes = 10\n", "did you mean `layer`?"),
    ("max_bytes = 1000000\n[layr]\nmax_bytes = 10\n", "did you mean `layer`?"),
    ("[layer]\nmax_bytes = 1000000\n[other]\nmax_bytes = 10\n", "there is no program `other`"),
    ("[layer]\nmax_byte = 10\n", "did you mean `max_bytes`?"),
    ("[layer]\n", "sets no limit in [layer]"),
    ("", "sets no limit"), ("max_bytes =", "budget.toml"),
    ("max_bytes = '1 MB'\n", "must be a finite number"),
    ("[layer]\nkinds = {all-reduces = 1}\n", "did you mean `all-reduce`?"),
    ("axis = 'Z'\nmax_bytes = 1\n", "the mesh has X, Y"),
    ("[layer]\naxis = 'Y'\n", "needs a limit")])
def test_a_budget_that_checks_nothing_is_no_success(layer, said, tmp_path, text, phrase):
    budget = tmp_path / "budget.toml"
    budget.write_text(text)
    for target in (layer, f"{layer}:layer"):
        status, out, err = said("check", target, "--budget", budget)
        assert status == 2 and phrase in " ".join(err.split()), (out, err)


def test_tables_for_other_functions_of_the_file_may_stand_beside(write, said, tmp_path):
    path = write(LAYER + """
def other(x):
    return x.sum()

__shardtrace_args__ = {"layer": (struct((64, 256), "X"), struct((256, 256), None, "Y"),
                                 struct((256, 256), None, "Y")),
                       "other": (struct((64,), "X"),)}
""")
    budget = tmp_path / "budget.toml"
    budget.write_text("[layer]\nmax_bytes = 1000000\n[other]\nmax_bytes = 1000000\n")
    for target in (path, f"{path}:layer", f"{path}:other"):
        assert said("check", target, "--budget", budget)[0] == 0
    budget.write_text("[layer]\nmax_bytes = 1000000\n")
    status, out, _ = said("check", path, "--budget", budget)
    assert status == 0 and "other: not checked" in out
    status, _, err = said("check", f"{path}:other", "--budget", budget)
    assert status == 2 and "nothing was checked" in err


def test_a_file_that_fails_is_not_within_its_budget(write, said, tmp_path):
    path = write("""
@st.jit
def first(x):
    return x.sum()

first(put((64,), "X"))
raise RuntimeError("the data is gone")
""")
    budget = tmp_path / "budget.toml"
    budget.write_text("max_bytes = 1000000\n")
    status, _, err = said("check", path, "--budget", budget)
    assert status == 3 and "the data is gone" in err


def test_several_targets_are_checked_at_once(layer, dumps, said, tmp_path):
    budget = tmp_path / "budget.toml"
    budget.write_text("max_bytes = 30000\n")
    given = [layer, dumps["resharded"], dumps["optimized"]]
    status, out, _ = said("check", *given, "--budget", budget)
    assert status == 0 and out.count("within the budget") == 3
    budget.write_text(f'max_bytes = 30000\n["{dumps["optimized"]}"]\nmax_bytes = 10\n')
    status, out, _ = said("check", *given, "--budget", budget, "--json")
    assert status == 1
    assert [c["ok"] for c in json.loads(out)["checked"]] == [True, True, False]


def test_check_fails_on_warnings(write, said):
    path = write("""
@st.jit
def f(a):
    return jnp.tanh(a)

f(put((64, 256), "X"))
""")
    status, out, _ = said("check", path, "--warnings")
    assert status == 1 and "warning: idle-axis: mesh axis `Y`" in out
    assert json.loads(said("check", path, "--warnings", "--json")[1])["warnings"][0]["kind"]


# -- why -------------------------------------------------------------------------------------------

def test_why_tells_the_way_from_the_annotation(layer, said):
    status, out, _ = said("why", layer, "h.1")
    assert status == 0 and "Y on dimension 1 of `h` comes from `in_shardings[1]`" in out
    status, out, _ = said("why", layer, "h")
    assert status == 0 and "X on dimension 0" in out and "Y on dimension 1" in out
    assert said("why", layer, "nobody")[0] == 2
    status, _, err = said("why", layer, "h.7")
    assert status == 2 and "no dimension 7" in err


@pytest.mark.parametrize("name", ["h", "k", "d.h", "d['h']", 'd["h"]', "out", "d.h.1", "d['h'].1",
                                  "grads.w", "params['w']", "params.w", "rest.0"])
def test_why_takes_every_name_of_a_value(write, said, name):
    path = write("""
        def act(v):
            out = jnp.tanh(v)
            return out

        @st.jit
        def step(params, x):
            def loss(params):
                d, h = {}, x @ params["w"]
                k = h
                d["h"] = act(h)
                return (d["h"] ** 2).sum()
            value, grads = st.value_and_grad(loss)(params)
            k = m = grads["w"] * 2.
            rest = [m - 1., value]
            return rest

        step({"w": put((16, 16), None, "Y")}, put((8, 16), "X"))
    """)
    status, out, _ = said("why", path, name)
    assert status == 0 and "on dimension 1 of" in out
    status, _, err = said("why", path, "nobody")
    assert status == 2 and "d.h" in err and "x @ params" not in err


# -- diff ------------------------------------------------------------------------------------------

def test_diff_of_two_functions(write, said):
    path = write(LAYER + """
@st.jit
def other(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2.T
""")
    status, out, _ = said("diff", f"{path}:layer", f"{path}:other")
    assert status == 1 and "- all-gather over Y" in out and "received bytes" in out
    assert said("diff", f"{path}:layer", f"{path}:layer")[0] == 0
    found = json.loads(said("diff", f"{path}:layer", f"{path}:other", "--json")[1])
    assert found["differs"] and found["totals"]["received_bytes"]["before"] == 24576


def test_diff_of_two_objectives(write, said):
    path = write(LAYER + """

@st.jit
def rows(x, w):
    return jnp.sin(x @ w).sum()

rows.lower(st.ShapeDtypeStruct((64, 256), np.float32, sharding=NamedSharding(mesh, P("X"))),
           st.ShapeDtypeStruct((256, 256), np.float32, sharding=NamedSharding(mesh, P(None, "Y"))))
""")
    status, out, _ = said("diff", "--objective", "xla", f"{path}:rows")
    assert status == 1 and out.startswith("time -> xla: rows\n")
    assert "- all-reduce over X, Y" in out and "+ all-reduce over Y" in out
    found = json.loads(said("diff", "--objective", "xla", f"{path}:layer", "--json")[1])
    assert found["change"] == "time -> xla: layer"
    for options in ((), ("--objective", "time")):
        status, _, err = said("diff", path, *options)
        assert status == 2 and "--objective xla" in err


def test_what_comes_in_another_order_is_no_difference(write, said):
    """Two gradients are summed together, and XLA computes the first one first."""
    path = write(LAYER + """
@st.jit
def step(x, a, b):
    ga, gb = st.grad(lambda p: ((jnp.tanh(x @ p[0]) @ p[1]) ** 2).mean())((a, b))
    return a - 0.1 * ga, b - 0.1 * gb

step.lower(*[st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, spec))
             for shape, spec in (((64, 32), P("X")), ((32, 32), P()), ((32, 32), P()))])
""")
    _, out, _ = said("diff", "--objective", "xla", f"{path}:step")
    assert not [line for line in out.split("\n") if line.startswith("  -") or " -> f32" in line]


def test_diff_of_two_directories_of_dumps(layer, said, tmp_path):
    said("partition", layer, "--dump", tmp_path / "a")
    layer.write_text(layer.read_text().replace('struct((256, 256), None, "Y")\n',
                                               'struct((256, 256), "Y")\n'))
    said("partition", layer, "--dump", tmp_path / "b")
    status, out, _ = said("diff", tmp_path / "a", tmp_path / "b")
    assert status == 1
    assert "w2: f32[256,256@Y] -> f32[256@Y,256]" in out
    assert "- all-gather over Y" in out and "+ all-reduce over Y" in out
    assert said("diff", tmp_path / "a", tmp_path / "a")[0] == 0
    (tmp_path / "empty").mkdir()
    assert said("diff", tmp_path / "a", tmp_path / "empty")[0] == 2


def test_diff_of_two_revisions_is_a_review(write, said, tmp_path):
    helper = write("HIDDEN = (None, 'Y')\n", "specs.py", head="")
    path = write("from specs import HIDDEN\n" + LAYER.replace('None, "Y")\n', "*HIDDEN)\n"))

    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
                       cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    git("add", "model.py", "specs.py")
    git("commit", "-qm", "one")
    helper.write_text("HIDDEN = ('Y', None)\n")
    git("commit", "-qam", "two")
    status, out, _ = said("diff", "HEAD~1", "HEAD", f"{path}:layer")
    assert status == 1 and out.startswith("HEAD~1 -> HEAD\n")
    assert "w2: f32[256,256@Y] -> f32[256@Y,256]" in out
    assert "- all-gather over Y" in out and "+ all-reduce over Y" in out and "peak bytes" in out
    assert said("diff", "HEAD", "HEAD", f"{path}:layer")[0] == 0
    status, _, err = said("diff", "HEAD~9", "HEAD", f"{path}:layer")
    assert status == 2 and "HEAD~9" in err


# -- fmt -------------------------------------------------------------------------------------------

MESSY = '''# what this is
mesh (X=2,   Y=4 auto)
program @f( x: f32[4@X, 2], # the input
   w: f32[4@X,2]) -> f32[4@X,2] {
  # added up
  const c: f32[2] = [1.0,   2.0]
      y: f32[4@X,2] = add x w # train.py:3:5-9
  z: f32[4@X,2]   = neg y     # and turned around
  return z # done
}
'''


def test_fmt_writes_the_canonical_form_and_keeps_comments(said, tmp_path):
    path = tmp_path / "messy.st"
    path.write_text(MESSY)
    before = load_program(path)
    assert said("fmt", "--check", path)[:2] == (1, f"{path} is not formatted\n")
    status, out, _ = said("fmt", "--diff", path)
    assert status == 0 and "+mesh (X=2, Y=4 auto)" in out and path.read_text() == MESSY
    assert said("fmt", path)[0] == 0
    text = path.read_text()
    assert programs_equal(load_program(path), before)
    for comment in ("# what this is", "# the input", "# added up", "# and turned around", "# done",
                    "# train.py:3:5-9"):
        assert comment in text, comment
    assert "mesh (X=2, Y=4 auto)\n" in text and "const c: f32[2] = [1.0,   2.0]" in text
    assert str(path) not in text
    assert said("fmt", "--check", path)[:2] == (0, "")      # once is enough
    assert json.loads(said("fmt", "--check", path, "--json")[1])["files"] == [
        {"file": str(path), "changed": False}]


def test_fmt_of_constants_with_names_of_ones_own_and_of_equations_without_their_program(
        said, tmp_path):
    path = tmp_path / "p.st"
    path.write_text("mesh (X=2) of cpu\n\nprogram @f(x: f32[4]) -> f32[4] {\n"
                    "  const %c: f32[4] = seed 3\n  %a: f32[4] = add x %c\n  return %a\n}\n")
    status, out, _ = said("fmt", "--diff", path)
    assert status == 0 and "+  const %c0: f32[4] = seed 3" in out
    path.write_text("mesh (X=2) of cpu\n\nprogram @f(x: f32[4]) -> f32[4] {\n"
                    "  %a: f32[4] = custom_vjp_call x\n  return %a\n}\n")
    assert said("fmt", "--check", path)[0] == 0


def test_fmt_of_standard_input_and_of_what_does_not_parse(said, monkeypatch, tmp_path):
    path = tmp_path / "messy.st"
    path.write_text(MESSY)
    with open(path) as file:
        monkeypatch.setattr("sys.stdin", file)
        status, out, _ = said("fmt", "-")
    assert status == 0 and programs_equal(parse_program(out), parse_program(MESSY))
    path.write_text("program @f(")
    status, _, err = said("fmt", path)
    assert status == 2 and "messy.st:1" in err


def test_dumps_are_formatted_already(dumps, said):
    for path in dumps.values():
        status, out, _ = said("fmt", "--check", path)
        assert (status, out) == (0, ""), path


@pytest.mark.parametrize(("arguments", "phrase"), [
    (["explan", "x.py"], "did you mean `explain`?"),
    (["explain", "x.py", "--sugest", "3"], "did you mean `--suggest`?"),
    (["explain", "x.py", "--hardware", "h10"], "did you mean `h100`?")])
def test_words_that_there_are_not_bring_those_that_are_near(said, arguments, phrase):
    status, _, err = said(*arguments)
    assert status == 2 and phrase in err


@pytest.mark.parametrize(("arguments", "phrase"), [
    (["explain", "{layer}:layr"], "did you mean `layer`?"),
    (["explain", "{layer}:layer", "--arg", "w3=f32[8,8]"], "there are x, w1, w2"),
    (["explain", "{layer}:layer", "--mesh", "data=8", "--arg", "x=f32[8@dta,8]"],
     "did you mean `data`?"),
    (["why", "{layer}:layer", "hh"], "did you mean `h`?")])
def test_names_of_the_file_too(layer, said, arguments, phrase):
    status, _, err = said(*[a.format(layer=layer) for a in arguments])
    assert status == 2 and phrase in err


def test_version_option_prints_the_installed_version(said):
    assert said("--version")[:2] == (0, f"shardtrace {importlib.metadata.version('shardtrace')}\n")


@pytest.mark.parametrize(("name", "value", "phrase"), [
    ("SHARDTRACE_DMP", "x", "did you mean `SHARDTRACE_DUMP`?"),
    ("SHARDTRACE_VERBOSE", "1", "SHARDTRACE_DEBUG: trace"),
    ("SHARDTRACE_CHECK", "maybe", "write 1 or 0"),
    ("SHARDTRACE_DEBUG", "tracing", "write trace"),
    ("SHARDTRACE_NUM_DEVICES", "many", "a number of devices")])
def test_environment_variables_that_there_are_not_are_refused(name, value, phrase):
    for command in (["-m", "shardtrace", "--version"], ["-c", "import shardtrace as st; st.jit"]):
        run = subprocess.run([sys.executable, *command], capture_output=True, text=True,
                             env={**os.environ, name: value})
        assert run.returncode and phrase in run.stderr
        assert run.returncode == 1 or "Traceback" not in run.stderr


DONATED = """
@functools.partial(st.jit, donate_argnums=0)
def step(params, x):
    loss, grads = st.value_and_grad(lambda p: ((jnp.tanh(x @ p["w"])) ** 2).mean())(params)
    return st.tree.map(lambda p, g: p - g, params, grads), loss

params, x = {"w": put((64, 32), None, "Y") / 64}, put((16, 64), "X")
for _ in range(3):
    params, loss = step(params, x)
    print(loss)
"""


def test_run_takes_arguments_that_the_file_donates(write, said, capsys, tmp_path):
    path = write("import functools\n" + DONATED)
    first = subprocess.run([sys.executable, path], capture_output=True, text=True).stdout.split()[0]
    for target in (path, f"{path}:step"):
        status, out, err = said("run", target, "--compare", "--json")
        assert status == 0 and not err
        found = json.loads(out)
        assert float(first) == pytest.approx(found["results"][-1]["values"], rel=1e-5)
        assert found["difference"] <= found["tolerance"] == 1e-4


def test_run_says_what_is_made_up(layer, said, tmp_path):
    _, out, err = said("run", layer, "--seed", "3")
    assert err.startswith("shardtrace run: random values, of seed 3, stand for x: f32[64@X,256]")
    assert "random" not in out
    np.savez(tmp_path / "x.npz", x=np.ones((64, 256)), w1=np.ones((256, 256)))
    _, _, err = said("run", layer, "--load", tmp_path / "x.npz")
    assert "stand for w2" in err and "x:" not in err


@pytest.mark.parametrize(("dtype", "allowed"), [
    ("bfloat16", "0.02 allowed for bfloat16"), ("float32", "0.0001 allowed for float32"),
    ("int32", "0 allowed for int32"), ("float16", "0.02 allowed for float16")])
def test_results_are_compared_as_their_dtype_allows(write, said, dtype, allowed):
    path = write(f"""
@st.jit
def total(x):
    return x.sum(0)

total(put((64, 8), "X").astype(jnp.{dtype}))
""")
    status, out, _ = said("run", path, "--compare")
    assert status == 0 and allowed in out, out


def test_values_are_compared_that_are_rounded_alike(write, said):
    """On devices that compute each for itself every result is rounded to bfloat16."""
    path = write("""
@st.jit
def digits(x):
    return x * 1.01 + 1000 - 1000

digits(put((512, 512), "X").astype(jnp.bfloat16))
""")
    status, out, _ = said("run", path, "--compare", "--json")
    assert status == 0 and json.loads(out)["difference"] == 0


def test_longer_sums_may_differ_by_more():
    assert [tolerance(np.dtype(np.float32), n) for n in (1, 1 << 12, 1 << 16)] == [
        1e-4, 1e-4, 4e-4]
    assert tolerance(np.dtype(np.int64), 1 << 16) == 0


ALIKE = """
double = st.jit(lambda a: (a * 2).sum())
largest = st.jit(lambda a: a.max() + 100)

def make(total):
    def step(a):
        return a.sum() if total else a * 2
    return st.jit(step)

local, reduced = make(False), make(True)

@functools.partial(st.jit, static_argnames="train")
def static(a, train):
    return a.sum() if train else a

a = put((8,), "X")
print(double(a), largest(a), local(a)[0], reduced(a), static(a, train=False)[0],
      static(a, train=True))
"""


@pytest.mark.parametrize(("name", "value"), [
    ("double", 16), ("largest", 101), ("local", [2] * 8), ("reduced", 8)])
def test_functions_are_told_apart_by_more_than_their_names(write, said, name, value):
    path = write("import functools\n" + ALIKE)
    status, out, _ = said("run", f"{path}:{name}", "--json")
    assert status == 0 and json.loads(out)["results"][0]["values"] == value


def test_every_one_of_them_is_checked(write, said, tmp_path):
    path = write("import functools\n" + ALIKE)
    budget = tmp_path / "budget.toml"
    budget.write_text("max_bytes = 0\n")
    for target, wrong in ((path, 4), (f"{path}:local", 0), (f"{path}:reduced", 1),
                          (f"{path}:largest", 1), (f"{path}:static", 1)):
        status, out, _ = said("check", target, "--budget", budget, "--json")
        found = json.loads(out)["checked"]
        assert sum(not row["ok"] for row in found) == wrong and status == (wrong > 0), found
    budget.write_text("[largest]\nmax_bytes = 0\n[reduced]\nmax_bytes = 1000\n")
    assert said("check", path, "--budget", budget)[0] == 1
    _, _, err = said("run", f"{path}:static")
    assert "`static` is called in 2 ways" in err


@pytest.mark.parametrize("arguments", [
    ["explain", "{file}:layer", "--in", "x=P('dta')"],
    ["explain", "{file}:layer", "--mesh", "data=2,model=x"],
    ["explain", "{file}:layer", "--mesh", "data=2,model=4"],
    ["explain", "{dump}", "--mesh", "X=8"], ["explain", "{dump}", "--arg", "x=f32[8]"],
    ["explain", "{dump}", "--args", "(1,)"],
    ["run", "{file}:layer", "--seed", "-1"], ["run", "{file}:layer", "--tolerance", "nan"],
    ["run", "{file}:layer", "--profile", "--repeat", "0"], ["run", "{file}:layer", "--most", "-1"],
    ["explain", "{file}", "--suggest", "-1"], ["trace", "{file}:layer", "--width", "0"],
    ["reduce", "{file}:layer", "--collective", "all-reduc"],
    ["reduce", "{file}:layer", "--collective", "all-gather:Z"],
    ["reduce", "{file}:layer", "--warning", "idle-axs"]])
def test_options_that_are_wrong_or_change_nothing_are_refused(layer, dumps, said, arguments):
    status, out, err = said(*[a.format(file=layer, dump=dumps["traced"]) for a in arguments])
    assert status == 2 and err, (out, err)


@pytest.mark.parametrize("arguments", [["--args", "(1,"], ["--arg", "x=f32[64,64]"]])
def test_arguments_for_a_file_that_calls_its_functions_are_refused(write, said, arguments):
    path = write("""
        @st.jit
        def double(x):
            return x * 2
        double(put((8, 8), "X"))
    """)
    status, _, err = said("explain", path, *arguments)
    assert status == 2
    assert f"{arguments[0]} has no meaning for {path}, which calls its functions itself" in err


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/self/no"])
@pytest.mark.parametrize("verb", ["explain", "partition", "run", "check", "trace"])
def test_a_folder_of_dumps_that_cannot_be_used_is_an_error_of_usage(layer, said, tmp_path, place,
                                                                  verb, monkeypatch):
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / place)
    saved = st.config.read("shardtrace_dump")
    st.config.update("shardtrace_dump", folder)
    try:
        status, _, err = said(verb, f"{layer}:layer", *["--warnings"] * (verb == "check"))
    finally:
        st.config.update("shardtrace_dump", saved)
    assert status == 2
    assert f"cannot be dumped into '{folder}'" in err and "SHARDTRACE_DUMP" in err
