"""`shardtrace propagate` and `shardtrace freedom`."""
import io
import json
import sys

import pytest

from .conftest import LAYER

ARGS = """
def example_args():
    return struct((64, 256), "X"), struct((256, 256), None, "Y"), struct((256, 256), None, "Y")
"""


@pytest.fixture
def layer(write):
    return f"{write(LAYER + ARGS)}:layer"


def test_without_a_terminal_all_steps_are_printed(layer, said):
    status, out, _ = said("propagate", layer, "--step")
    assert status == 0 and out.startswith("layer: 3 annotations, 4 steps")
    assert "2. `tanh` (d0 d1 -> d0 d1) at model.py" in out
    assert "`h` without it: 24.6 kB received; `w2` with it: 49.2 kB" in out


def test_a_break_leaves_the_steps_of_a_value(layer, said):
    status, out, _ = said("propagate", layer, "--break", "h")
    assert status == 0 and "2. `tanh`" in out and "3. `dot_general`" not in out
    status, _, err = said("propagate", layer, "--break", "g")
    assert status == 2 and "there is no value `g`" in err.lower() + err
    found = json.loads(said("propagate", layer, "--json")[1])
    assert len(found["steps"]) == 4 and found["conflicts"][0]["cost"] == 24576


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_at_a_terminal_it_stops_behind_each_step(layer, said, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Terminal("p h\nb h\nc\np h\nwhat\n\nq\n"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    status, out, _ = said("propagate", layer, "--step", "--color", "never")
    assert status == 0 and "`h` has no axes yet" in out
    assert "3. `dot_general`" in out and "4. " not in out and "1 conflict" not in out


def test_at_a_terminal_a_break_says_where_it_stops(layer, said, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Terminal("b\np\nb h\nb x\nc\nq\n"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    status, out, _ = said("propagate", layer, "--step", "--break", "x @ w1", "--color", "never")
    assert status == 0 and out.count("name a value: h, h @ w2, ") == 2
    assert "`c` stops at step 1\n" in out and "`c` stops at step 2\n" in out
    assert "`x` changes in no step from here on" in out and "\n3. " not in out


def test_all_conflicts_are_an_option(write, said):
    target = f"""{write('''
def many(x, w):
    for _ in range(12):
        x = jnp.tanh(x @ w)
    return x
args = struct((64, 256), "X"), struct((256, 256), None, "X")
''')}:many"""
    status, out, _ = said("propagate", target)
    assert status == 0 and "10. `dot_general`" in out and "and 2 more; --all shows them" in out
    status, out, _ = said("propagate", target, "--all")
    assert status == 0 and "12. `dot_general`" in out and "more" not in out


def test_the_freedom_map(layer, said):
    status, out, _ = said("freedom", layer)
    assert status == 0 and out.startswith("layer: 4 freedoms")
    assert "by you: `x`.0 (X)" in out and "over Y: " in out
    found = json.loads(said("freedom", layer, "--json")[1])
    assert found["freedoms"][0]["members"][0] == {
        "value": "`x`", "dimension": 0, "by": "you", "axes": ["X"]}
