"""How structures of pytrees print, and what is said where they do not fit: as JAX does."""
import collections
import dataclasses

import pytest

import shardtrace as st

from ...real_jax import real_jax

Pair = collections.namedtuple("Pair", "one two")
Other = collections.namedtuple("Other", "one two")


class Node:
    def __init__(self, one, two):
        self.children = one, two

    def __repr__(self):                 # in the names of tests
        return f"Node{self.children}"


@pytest.fixture(scope="module")
def trees():
    jax = real_jax()
    for tree_util in (st.tree_util, jax.tree_util):
        tree_util.register_pytree_node(Node, lambda x: (x.children, "aux"),
                                       lambda aux, children: Node(*children))
    return st.tree, jax.tree


SHOWN = [1, [], (), (1,), (1, None), {"b": 1, "a": [2]}, Pair(1, Pair((2,), None)), Node(1, [2]),
         collections.OrderedDict(b=1, a=2), collections.defaultdict(int, c=1),
         [{"x": (Node(1, Pair(1, 2)), None)}]]
MISFITS = [([1], [1, 2]), ([1], (1,)), ((1,), (1, 2)), ((1,), 7), ((1,), [7]), ([1], {"a": 7}),
           ({"a": 1}, {"b": 1}), ({"a": 1}, {"a": 1, "b": 2}), ({"a": 1}, [7]), ({"a": 1}, 7),
           (Pair(1, 2), (1, 2)), (Pair(1, 2), Other(1, 2)), (Node(1, 2), 7),
           ([{"a": (1,)}], [{"a": 3}])]


@pytest.mark.parametrize("tree", SHOWN, ids=str)
def test_structures_print_as_in_jax(trees, tree) -> None:
    ours, theirs = trees
    assert repr(ours.structure(tree)) == repr(theirs.structure(tree))
    assert str(ours.structure([tree])) == str(theirs.structure([tree]))


@pytest.mark.parametrize(("prefix", "tree"), MISFITS, ids=str)
def test_what_is_said_where_they_do_not_fit(trees, prefix, tree) -> None:
    found = []
    for module in trees:
        with pytest.raises(ValueError) as caught:
            module.structure(prefix).flatten_up_to(tree)
        found.append(str(caught.value))
    assert found[0] == found[1]


@dataclasses.dataclass
class Point:
    x: float
    y: float = dataclasses.field(default=0.0, metadata={"static": True})


@pytest.mark.parametrize(("fields", "error"), [
    ((("x",), ("y", "z")), "Unexpected fields: {'z'}"), ((("x",), ()), "Missing fields: {'y'}"),
    ((("x", "y"), ("x",)), "Overlapping fields: {'x'}"),
    ((("x",), None), "must both be specified")])
def test_fields_of_dataclasses_are_checked(trees, fields, error) -> None:
    jax = real_jax()
    for tree_util in (st.tree_util, jax.tree_util):
        with pytest.raises((ValueError, TypeError), match=error):
            tree_util.register_dataclass(Point, *fields)
        with pytest.raises(TypeError, match="required when nodetype is not a dataclass"):
            tree_util.register_dataclass(int)
    assert st.tree.static(metadata={"static": False}).metadata == {"static": False}
