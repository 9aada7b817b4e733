"""Commands and options that messages print can be typed into a shell as they stand."""
from __future__ import annotations

import re
import shlex

import pytest

FILE = """
import dataclasses
from typing import NamedTuple

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax


class State(NamedTuple):
    w: st.Array
    step: st.Array


@st.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    weight: st.Array
    bias: st.Array


def mlp(p, x):
    return jnp.tanh(x @ p["l1"]["w"] + p["l1"]["b"]) @ p['l2']["w"]

"""
FUNCTIONS = {
    "array": "(x):\n    return x @ x.T",
    "nested dict, through a helper": "(params, x):\n    return mlp(params, x)",
    "key with blanks": "(params, x):\n    return x @ params['a b']",
    "key with a dollar": "(params, x):\n    return x @ params['$HOME']",
    "key with a bracket": "(params, x):\n    return x @ params['w]0']",
    "key with an equals sign": "(params, x):\n    return x @ params['a=b']",
    "named tuple": "(state, x):\n    return state.w @ x, state.step + 1",
    "dataclass": "(layer: Layer, x):\n    return x @ layer.weight + layer.bias",
    "pairs": "(pairs, x):\n    for w, b in pairs:\n        x = x @ w + b\n    return x",
    "unpacked": "(p, x):\n    w, b = p\n    return x @ w + b",
    "positions": "(table, ids):\n    return table[ids]",
    "by name": "(x, *, scale):\n    return x * scale",
    "scan over a tree": ("(params, x):\n    def step(c, w):\n        return c @ w, None\n"
                         "    return lax.scan(step, x, params['layers'][None] * 1)[0]"),
    "bound argument": "(x, n=3):\n    return x * n",
}
IN_WORDS = {
    "sizes that do not fit": "(x):\n    return x.reshape(3, 5, 7)",
    "a function": "(f, x):\n    return f(x)",
    "positional only": "(x, /):\n    return x * 2",
}


def commands(text):
    """The commands in a message, lines that end in a backslash joined."""
    joined = text.replace("\\\n", "")
    return re.findall(r"^ +(shardtrace .*)$", joined, re.M)


@pytest.mark.parametrize("mesh", ["", 'mesh = st.make_mesh((2, 4), ("a", "b"))\n'],
                         ids=["without a mesh", "with a mesh"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_commands_that_give_types_run(write, said, name, mesh):
    path = write(f"{FILE}{mesh}\n@st.jit\ndef f{FUNCTIONS[name]}\n", "my model.py", head="")
    status, _, err = said("explain", path)
    (command,) = commands(err)
    assert status == 2 and ("--mesh" in command) is not bool(mesh)
    status, out, err = said(*shlex.split(command)[1:], "--suggest", 0)
    assert status == 0 and out.startswith("f on "), err


@pytest.mark.parametrize("name", IN_WORDS)
def test_what_could_not_be_traced_is_no_command(write, said, name):
    path = write(f"{FILE}\n@st.jit\ndef f{IN_WORDS[name]}\n")
    status, _, err = said("explain", path)
    assert status == 2 and not commands(err) and "or all arguments" in " ".join(err.split())


@pytest.mark.parametrize("arguments, phrase", [
    (["--arg", "p['w']=f32[8]", "--arg", "p=f32[8]"], "given already"),
    (["--arg", "p=f32[8]", "--arg", "p['w']=f32[8]"], "for the whole of it already"),
    (["--arg", "p[1]=f32[8]"], "some before are missing"),
    (["--arg", "p.kernel=f32[8]"], "no class of the file has the fields kernel"),
    (["--arg", "q['w']=f32[8]"], "no parameter `q`"),
])
def test_parts_that_make_no_tree_are_refused(write, said, arguments, phrase):
    path = write(f"{FILE}\n@st.jit\ndef f(p):\n    return p\n")
    status, _, err = said("explain", f"{path}:f", "--mesh", "x=8", *arguments)
    assert status == 2 and phrase in " ".join(err.split())




@pytest.mark.parametrize("shape", ["8,16", "3,16", "3,5,8"])
def test_a_layout_that_is_proposed_is_one(tmp_path, said, shape):
    path = tmp_path / "p.st"
    path.write_text(f"mesh (x=2 auto, y=4 auto)\n\nprogram @f(a: f32[{shape}]) -> f32[{shape}] {{\n"
                    f"  b: f32[{shape}] = tanh a\n  return b\n}}\n")
    status, _, err = said("explain", path)
    option = re.search(r'such as (--in "[^"]*")', " ".join(err.split()))[1]
    assert status == 2
    status, out, _ = said("explain", path, *shlex.split(option), "--suggest", 0)
    assert status == 0 and out.startswith("f on ")


def test_no_layout_is_proposed_where_none_divides(tmp_path, said):
    path = tmp_path / "p.st"
    path.write_text("mesh (x=2 auto)\n\nprogram @f(a: f32[3,5]) -> f32[3,5] {\n"
                    "  b: f32[3,5] = tanh a\n  return b\n}\n")
    status, _, err = said("explain", path)
    assert status == 2 and "such as" not in err


def test_code_in_help_is_not_broken_by_a_narrow_terminal(write, said):
    path = write("""
explicit = st.make_mesh((2, 4), ("x", "y"), axis_types=(st.sharding.AxisType.Explicit,) * 2)
first = st.device_put(np.ones((8, 16)), NamedSharding(explicit, P("x", None)))
second = st.device_put(np.ones((8, 16)), NamedSharding(explicit, P(None, "x")))

@st.jit
def f(first, second):
    return jnp.tanh(first) * jnp.sin(first) * jnp.cos(first) + second    # culprit

f(first, second)
""")
    status, _, err = said("explain", path, columns="60")
    code = [line for line in err.split("\n") if "reshard(" in line and "return" in line]
    assert status == 3 and len(code) == 2
    for line in code:
        changed = path.read_text().split("\n")
        at = next(i for i, text in enumerate(changed) if "# culprit" in text)
        changed[at] = f"    {line.strip()}"
        path.write_text("\n".join(changed))
        assert said("explain", path, "--suggest", 0)[0] == 0
        changed[at] += "    # culprit"
        path.write_text("\n".join(changed))
