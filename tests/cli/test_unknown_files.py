"""`shardtrace explain FILE.py` finds what a file calls, or arguments in it, or asks for them."""
import json
import re
import shlex

import pytest

LAYER = """
def layer(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2            # culprit
"""
JITTED = LAYER.replace("def layer", "@st.jit\ndef layer")
ARRAYS = 'put((64, 256), "X"), put((256, 256), None, "Y"), put((256, 256), None, "Y")'
SHAPES = ARRAYS.replace("put", "struct")

FILES = {
    "called on import": f"{JITTED}\nlayer({ARRAYS})",
    "lowered on import": f"{JITTED}\nlayer.lower({SHAPES})",
    "explained on import": f"{LAYER}\nfound = st.explain(layer)({SHAPES})",
    "called by the script": f"{JITTED}\n"
                            f"def main():\n    print(layer({ARRAYS}).sum())\n"
                            "if __name__ == '__main__':\n    main()",
    "jitted in the script": f"{LAYER}\nif __name__ == '__main__':\n"
                            f"    step = st.jit(layer)\n    step({ARRAYS})",
    "called by main alone": f"{LAYER}\ndef main():\n    return st.jit(layer)({ARRAYS})",
    "a function of arguments": f"{JITTED}\ndef example_inputs():\n    return {SHAPES}",
    "a variable of arguments": f"{LAYER}\nargs = ({SHAPES})",
    "arguments by name": f"{LAYER}\nexample_args = dict(zip(('x', 'w1', 'w2'), ({SHAPES})))",
    "variables called as parameters": f"{LAYER}\nx, w1, w2 = {SHAPES}",
    "arguments of several functions": f"{LAYER}\nARGS = {{'layer': ({SHAPES}), 'other': ()}}",
    "functions that make parameters": f"{JITTED}\n"
                                      "w1 = put((256, 256), None, 'Y')\n"
                                      "def make_x():\n    return put((64, 256), 'X')\n"
                                      "def init_w2():\n    return put((256, 256), None, 'Y')",
    "declared arguments": f"{LAYER}\n__shardtrace_args__ = {{'layer': lambda: ({SHAPES})}}",
    "annotations": LAYER.replace("x, w1, w2", 'x: "f32[64@X,256]", w1: "f32[256,256@Y]", '
                                 'w2: "f32[256,256@Y]"'),
    "under a mesh": f"{JITTED}\nwith st.set_mesh(mesh):\n    layer({ARRAYS})",
    "a test": f"{JITTED}\ndef test_layer():\n    assert layer({ARRAYS}).shape == (64, 256)",
    "a method": f"{LAYER}\nimport functools\nclass Model:\n"
                "    @functools.partial(st.jit, static_argnums=0)\n"
                "    def apply(self, *args):\n        return layer(*args)\n"
                f"Model().apply({ARRAYS})",
    "a class": f"{LAYER}\nclass Model:\n    def __init__(self):\n"
               f"        self.step = st.jit(layer)\n"
               f"Model().step({ARRAYS})",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_one_command_finds_the_unwanted_gather(write, said, text):
    path = write(text)
    line = next(i for i, t in enumerate(path.read_text().split("\n"), 1) if "# culprit" in t)
    status, out, _ = said("explain", path, "--suggest", 1)
    assert status == 0
    assert "all-gather over Y" in out and f"model.py:{line}:" in out
    assert "because:" in out and "avoided by:" in out
    status, out, _ = said("explain", path, "--json", "--suggest", 0)
    found = json.loads(out)
    assert (status, found["schema"], found["command"]) == (0, 1, "explain")
    assert [c["source"]["line"] for f in found["functions"] for c in f["collectives"]] == [line]
    assert found["missing"] == []


def test_a_function_of_the_file_is_found_by_name(write, said):
    path = write(FILES["called by the script"])
    status, out, _ = said("explain", f"{path}:layer", "--suggest", 0)
    assert status == 0 and "all-gather over Y" in out
    status, out, _ = said("collectives", path)
    assert status == 0 and out.startswith("1 collective, 24,576 bytes")


def test_several_functions_are_told_apart_the_dearest_first(write, said):
    path = write(f"""{JITTED}
@st.jit
def quiet(x):
    return jnp.sin(x)

quiet(put((64, 256), "X"))
layer({ARRAYS})
""")
    status, out, _ = said("explain", path, "--suggest", 0)
    assert status == 0
    assert re.search(r"2 programs, 1 collective\n  layer: 1 all-gather.*\n.*\n  quiet: no co", out)
    status, _, err = said("trace", path)
    assert status == 2 and f"shardtrace trace {path}:quiet" in err and ":layer" in err


def test_what_communicates_outside_of_jit_is_found(write, said):
    path = write("""
x, w = put((64, 256), "X", "Y"), put((256, 64), "Y")
y = x @ w        # culprit
""")
    status, out, _ = said("explain", path, "--suggest", 0)
    assert status == 0 and "all-reduce over Y" in out and "outside of jit" in out


def test_mapped_functions_outside_of_jit_are_found(write, said):
    path = write("""
def body(x):
    return st.lax.psum(x, "X")       # culprit

y = st.shard_map(body, mesh=mesh, in_specs=P("X"), out_specs=P())(np.ones((8, 4), np.float32))
""")
    status, out, _ = said("explain", path, "--suggest", 0)
    assert status == 0 and "all-reduce over X" in out and "in `body`" in out


def test_scripts_get_their_arguments_and_modules_their_package(write, said, tmp_path):
    path = write(f"""{LAYER}
import sys
if __name__ == "__main__":
    if sys.argv[1:] != ["--steps", "3"]:
        sys.exit(2)
    st.jit(layer)({ARRAYS})
""")
    status, _, err = said("explain", path)
    assert status == 2 and "give --argv" in err
    assert "all-gather over Y" in said("explain", path, "--argv", "--steps 3", "--suggest", 0)[1]
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "sizes.py").write_text("N = 256\n")
    inside = write(f"from .sizes import N\n{JITTED}\nlayer({ARRAYS.replace('256', 'N')})",
                   "package/model.py")
    assert "all-gather over Y" in said("explain", inside, "--suggest", 0)[1]


def test_what_is_missing_is_said_with_a_command(write, said):
    path = write(JITTED)
    status, _, err = said("explain", path)
    assert status == 2
    command = err[err.index("    shardtrace"):].replace("\\\n", "")
    words = shlex.split(command)[1:]
    assert words[:5] == ["explain", f"{path}:layer", "--arg", "x=f32[64,64]", "--arg"]
    status, out, _ = said(*words)
    assert status == 0 and "no collectives" in out
    words = [w.replace(",64]", ",64@Y]") if w[:1] == "w" else w for w in words]
    assert "all-gather over Y" in said(*words)[1]


def test_a_long_run_is_ended_when_nothing_new_is_called(write, said):
    path = write(f"{JITTED}\nargs_ = ({ARRAYS})\nwhile True:\n    layer(*args_)")
    status, out, _ = said("explain", path, "--seconds", 0.5, "--suggest", 0)
    assert status == 0 and "all-gather over Y" in out


def test_it_is_ended_where_python_drops_what_ends_it(write, said):
    path = write(f"""{JITTED}
layer({ARRAYS})
class Slow:
    def __del__(self):
        sum(i for i in range(10_000))
while True:
    Slow()
    sum(i for i in range(10_000))
""")
    status, out, complained = said("explain", path, "--seconds", 0.3, "--suggest", 0)
    assert status == 0 and "all-gather over Y" in out and not complained


def test_a_file_that_fails_is_told_with_its_line(write, said):
    path = write("values = [1, 2]\nprint(values[7])     # culprit")
    line = next(i for i, t in enumerate(path.read_text().split("\n"), 1) if "# culprit" in t)
    status, _, err = said("explain", path)
    assert status == 3
    assert "IndexError" in err and f"model.py:{line}" in err and "values[7]" in err
    broken = write("def f(:\n", "broken.py")
    status, _, err = said("explain", broken)
    assert status == 3 and "SyntaxError" in err and "broken.py" in err


def test_what_a_file_prints_does_not_disturb_the_answer(write, said):
    path = write(f"{JITTED}\nprint('hello')\nlayer({ARRAYS})\nprint('goodbye')")
    status, out, _ = said("explain", path, "--json", "--suggest", 0)
    assert status == 0 and json.loads(out)["functions"][0]["function"] == "layer"


def test_suggestions_are_searched_under_the_mesh_of_the_call(write, said):
    path = write("""
from shardtrace.sharding import AxisType, reshard
explicit = st.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))

@st.jit
def f(a):
    return reshard(a, P(None, None)) * 2

with st.set_mesh(explicit):
    f(st.device_put(np.ones((64, 8), np.float32), P("x", None)))
""")
    status, out, _ = said("explain", path)
    assert status == 0 and "all-gather over x" in out and "avoided by" in out


@pytest.mark.parametrize(("arguments", "phrase"), [
    (["--arg", "x=f32[64@Z]"], "'Z' is no mesh axis: the mesh has X, Y"),
    (["--arg", "x=f99[64]"], "no dtype"),
    (["--arg", "x=64"], "write a dtype and dimensions"),
    (["--arg", "q=f32[64]"], "no parameter `q`"),
    (["--arg", "x=f32[64,256]"], "give --arg w1="),
    (["--arg", "x=f32[64]", "--mesh", "data"], "is no axis and its size"),
    (["--args", "nobody"], "NameError"),
    (["--args", f"({SHAPES})", "--topology", "a,b"], "--topology"),
])
def test_mistakes_in_arguments_say_what_to_write(write, said, arguments, phrase):
    path = write(JITTED)
    status, _, err = said("explain", f"{path}:layer", *arguments)
    assert status in (2, 3) and phrase in err


def test_no_file_and_no_function_are_told(write, said, tmp_path):
    assert said("explain", tmp_path / "none.py")[0] == 2
    path = write(JITTED)
    status, _, err = said("explain", f"{path}:other")
    assert status == 2 and "there are layer" in err
    empty = write("", "empty.py", head="x = 3\n")
    status, _, err = said("explain", empty)
    assert status == 2 and "neither defines nor calls" in err


def test_the_help_page_of_an_error(said):
    status, out, _ = said("explain", "ShardingTypeError")
    assert status == 0 and "Fix: move one operand" in out
