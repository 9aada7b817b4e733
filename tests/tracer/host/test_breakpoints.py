"""debug.breakpoint: what its prompt says, and how programs are left from it."""
from __future__ import annotations

import io
import re

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp

V = np.arange(3, dtype=np.float32)


def stopping(commands, **options):
    """A function that stops in an inner one, and what the prompt says."""
    said = io.StringIO()

    def inner(y):
        z = y + 1
        st.debug.breakpoint(stdin=io.StringIO(commands), stdout=said, **options)
        return z

    def outer(x):
        return inner(x * 2)

    return outer, said


def test_a_breakpoint_shows_the_values_of_the_users_frames(executor):
    f, said = stopping("p z\np nothing\nu\np float(x[0])\npp {'x': x}\nc\n")
    np.testing.assert_array_equal(st.jit(f)(V), V * 2 + 1)
    text = said.getvalue()
    assert text.startswith("Entering jdb:\n(jdb) Array([1., 3., 5.], dtype=float32)\n(jdb) ")
    assert "*** NameError: name 'nothing' is not defined\n" in text
    assert "(jdb) 0.0\n(jdb) {'x': Array([0., 1., 2.], dtype=float32)}\n" in text
    assert text.endswith("(jdb) ")


def test_the_lines_around_a_frame_are_listed_and_frames_told():
    f, said = stopping("l\nu\nd\nd\nbt\nc\n", num_frames=2)
    f(V)
    listed, up, down, bottom, frames, _ = said.getvalue().split("(jdb) ")[1:]
    assert re.match(r"> .*test_breakpoints\.py\(\d+\)\n        def inner\(y\):\n", listed)
    assert "\n->          st.debug.breakpoint(" in listed and "return z" in listed
    assert "\n->          return inner(x * 2)\n" in up
    assert down == listed and bottom == "At bottommost frame.\n" + down
    assert re.fullmatch(r'Traceback:\n  File ".*", line \d+\n    return inner\(x \* 2\)\n'
                        r'  File ".*", line \d+\n    st\.debug\.breakpoint\(.*\n', frames)


@pytest.mark.parametrize("commands", ["q\n", "exit\n", ""])
def test_leaving_a_breakpoint_ends_the_program(commands):
    f, _ = stopping(commands)
    for call in (f, st.vmap(f), st.grad(lambda x: f(x).sum())):
        with pytest.raises(SystemExit):
            call(V)
    with pytest.raises(st.errors.JaxRuntimeError, match="SystemExit: 0"):
        st.jit(f)(V)


def test_what_is_no_array_is_shown_as_it_is():
    said = io.StringIO()

    @st.tree_util.register_pytree_node_class
    class Closed:
        def tree_flatten(self):
            raise TypeError("not to be opened")

        @classmethod
        def tree_unflatten(cls, _, leaves):
            return cls()

    def f(x):
        scale, closed, pair = 2.0, Closed(), {"x": x, "name": "left"}
        st.debug.breakpoint(stdin=io.StringIO("scale\nclosed\npair\nabs\njnp.ones\nClosed\nc\n"),
                            stdout=said)
        return x * scale, closed, pair

    st.jit(lambda x: f(x)[0])(1.0)
    scale, closed, pair, builtin, module, cls, _ = said.getvalue().split("(jdb) ")[1:]
    assert scale == "2.0\n" and "Closed object" in closed and "built-in function abs" in builtin
    assert pair == "{'name': 'left', 'x': Array(1., dtype=float32)}\n"
    assert "NameError" in module and "<class " in cls


def test_a_token_comes_back():
    f, said = stopping("c\n")
    token = jnp.ones(2)
    assert st.debug.breakpoint(stdin=io.StringIO("c\n"), stdout=said, token=token) is token
    with pytest.raises(ValueError, match="mutually exclusive"):
        st.debug.breakpoint(ordered=True, token=token)
