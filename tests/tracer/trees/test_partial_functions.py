"""`Partial` of partial functions, and transposing to the structure of the first tree."""
from __future__ import annotations

import functools

import shardtrace as st


def add(a, b, c):
    return a + b + c


def test_a_partial_function_within_keeps_its_arguments():
    inner = functools.partial(add, 1)
    outer = st.tree_util.Partial(inner, 2)
    assert outer.args == (2,)
    assert outer(3) == 6
    assert outer.func == inner and hash(outer.func) == hash(inner)
    assert st.tree.structure(outer) == st.tree.structure(st.tree_util.Partial(inner, 5))
    assert st.tree.map(lambda x: 10 * x, outer)(3) == 24
    assert st.tree_util.Partial(outer, 3)() == 6


def test_transposing_without_the_inner_structure():
    trees = ([1, {"a": 2}], [3, {"a": 4}])
    assert st.tree_util.tree_transpose(st.tree.structure((0, 0)), None, trees) == [
        (1, 3), {"a": (2, 4)}]
