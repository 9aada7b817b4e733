"""Registered classes with keys or without leaves, single levels of trees, broadcasts, messages."""
from __future__ import annotations

import collections
import dataclasses
import re

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import tree_util
from shardtrace.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

Point = collections.namedtuple("Point", "x y")


@tree_util.register_pytree_node_class
class Plain:
    def __init__(self, a, b, mode=0):
        self.a, self.b, self.mode = a, b, mode

    def tree_flatten(self):
        return (self.a, self.b), self.mode

    @classmethod
    def tree_unflatten(cls, mode, children):
        return cls(*children, mode)


@tree_util.register_pytree_with_keys_class
class Keyed(Plain):
    def tree_flatten_with_keys(self):
        return ((GetAttrKey("a"), self.a), ("other", self.b)), self.mode


@tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: object
    b: object
    name: str = st.tree.static(default="dense")


@tree_util.register_static
class Mode(str):
    pass


def test_keys_of_registered_classes_appear_in_paths():
    def paths(tree):
        return [path for path, _ in st.tree.leaves_with_path(tree)]

    assert paths(Keyed(1, [2])) == [(GetAttrKey("a"),), ("other", SequenceKey(0))]
    assert paths(Plain(1, [2])) == [
        (FlattenedIndexKey(0),), (FlattenedIndexKey(1), SequenceKey(0))]
    assert paths(Layer({"k": 1}, 2)) == [(GetAttrKey("w"), DictKey("k")), (GetAttrKey("b"),)]
    assert [tree_util.keystr(p) for p in paths(Keyed(1, [2]))] == [".a", "other[0]"]


def test_registered_classes_come_back_with_their_static_part():
    doubled = st.tree.map(lambda x: 2 * x, [Keyed(1, 2, mode=7), Layer(1, 2, "out")])
    assert (doubled[0].a, doubled[0].b, doubled[0].mode) == (2, 4, 7)
    assert doubled[1] == Layer(2, 4, "out")


def test_static_objects_have_no_leaves_and_choose_the_traced_branch():
    traced = []

    @st.jit
    def f(x, mode):
        traced.append(str(mode))
        return x + 1 if mode == "add" else x - 1

    assert st.tree.leaves(Mode("add")) == []
    assert [float(f(3.0, Mode(m))) for m in ("add", "sub", "add")] == [4.0, 2.0, 4.0]
    assert traced == ["add", "sub"]


def test_one_level_of_each_kind_of_node():
    cases = [
        ({"b": 1, "a": [2]}, ([2], 1), [DictKey("a"), DictKey("b")]),
        ((1, [2]), (1, [2]), [SequenceKey(0), SequenceKey(1)]),
        ([1, [2]], [1, [2]], [SequenceKey(0), SequenceKey(1)]),
        (Point(1, [2]), [1, [2]], [GetAttrKey("x"), GetAttrKey("y")]),
        (collections.OrderedDict(b=1, a=[2]), [1, [2]], [DictKey("b"), DictKey("a")]),
        (collections.defaultdict(int, b=1, a=[2]), [[2], 1], [DictKey("a"), DictKey("b")]),
        (Keyed(1, [2]), [1, [2]], [GetAttrKey("a"), "other"]),
        (Plain(1, [2]), (1, [2]), [FlattenedIndexKey(0), FlattenedIndexKey(1)]),
        (None, (), []),
    ]
    for node, children, keys in cases:
        assert tree_util.flatten_one_level(node)[0] == children
        assert [k for k, _ in tree_util.flatten_one_level_with_keys(node)[0]] == keys
    with pytest.raises(ValueError, match="can't tree-flatten type"):
        tree_util.flatten_one_level(3)


def test_dictionaries_of_both_kinds_come_back_in_the_order_of_their_keys():
    inner = collections.defaultdict(list, b=1, a=2)
    for tree in ({"y": inner, "x": 3}, collections.defaultdict(int, {"y": inner, "x": 3})):
        for back in (st.tree.map(lambda x: x, tree), st.jit(lambda t: t)(tree)):
            assert back == tree and type(back) is type(tree) and list(back) == ["x", "y"]
            assert back["y"].default_factory is list and list(back["y"]) == ["a", "b"]
    assert tree_util.flatten_one_level(inner)[1] == (list, ("a", "b"))


def test_keys_of_two_kinds_differ_and_so_do_their_hashes():
    assert hash(FlattenedIndexKey(1)) == hash(FlattenedIndexKey(1)) != hash(SequenceKey(1))
    assert FlattenedIndexKey(1) != SequenceKey(1)


def test_which_classes_are_nodes():
    assert all(tree_util.is_tree_node(t) for t in (dict, list, Point, Plain, Layer, type(None)))
    assert not any(tree_util.is_tree_node(t) for t in (int, str, object))
    assert tree_util.all_leaves([1, jnp.ones(2)])
    assert not tree_util.all_leaves([1, None]) and not tree_util.all_leaves([[1]])


def test_broadcast_fills_the_leaves_that_a_prefix_covers():
    assert st.tree.broadcast((1, 2), (0, {"a": 0, "b": None})) == (1, {"a": 2, "b": None})
    with pytest.raises(ValueError, match="different lengths of tuple"):
        st.tree.broadcast((1, 2), (0,))


@pytest.mark.parametrize(("n", "expected"), [
    (2, "(0 1)"), (3, "(0 (1 2))"), (5, "((0 1) (2 (3 4)))"), (7, "((0 (1 2)) ((3 4) (5 6)))")])
def test_associative_reduction_halves(n, expected):
    assert st.tree.reduce_associative(lambda a, b: f"({a} {b})", list(range(n))) == expected


def test_associative_reduction_of_nothing_needs_an_identity():
    assert st.tree.reduce_associative(max, [], identity=3) == 3
    with pytest.raises(TypeError, match="Must specify identity"):
        st.tree.reduce_associative(max, [])


@pytest.mark.parametrize(("first", "second", "message"), [
    (Plain(1, 2), Plain(1, 2, 3), "different pytree metadata at key path"),
    (Plain(1, [2]), Plain(1, 2), "different types at key path\n    tree[<flat index 1>]"),
    (Keyed(1, [2]), Keyed(1, 2), "different types at key path\n    treeother"),
    (Layer(1, [2]), Layer(1, 2), "different types at key path\n    tree.b"),
    (Point(1, [2]), Point(1, 2), "different types at key path\n    tree.y"),
])
def test_map_over_different_trees_names_the_place(first, second, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        st.tree.map(lambda a, b: a, first, second)


def test_transposed_dictionaries_are_sorted() -> None:
    steps = [{"t": 1, "obs": 3}, {"t": 2, "obs": 4}]
    found = st.tree.transpose(st.tree.structure([0, 0]), st.tree.structure(steps[0]), steps)
    assert list(found.items()) == [("obs", [3, 4]), ("t", [1, 2])]
