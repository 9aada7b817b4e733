"""Flattening nested containers of arrays, and rebuilding them (optree does the work).

All of the package uses one optree namespace, so that containers registered here mean nothing to
other users of optree. None is an empty subtree; dictionaries are flattened in the order of their
sorted keys and, as in JAX, also come back in that order.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NoReturn

import numpy as np
import optree

from ..diagnostics.diagnostic import fail
from ..support.caches import cached
from ..support.immutable import immutable

NAMESPACE = "shardtrace"


@immutable
class ChildKey:
    """The key that a registered class gives to one of its children; any object will do."""

    key: Any


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None
            ) -> tuple[list[Any], optree.PyTreeSpec]:
    """Leaves of a pytree in order, and its structure."""
    try:
        return optree.tree_flatten(tree, is_leaf, namespace=NAMESPACE)
    except RecursionError as error:
        refuse_deep(error)


def refuse_deep(error: RecursionError) -> NoReturn:
    """Re-raise optree's error about depth with a message that says what is deep."""
    if "the tree" not in str(error):
        raise error
    fail(RecursionError, "a pytree is nested more than "
         f"{optree.MAX_RECURSION_DEPTH} levels deep, or contains itself", code="nesting",
         help="keep what belongs together in one list or dictionary instead of a chain of them")


PLAIN_LEAVES: set[type] = {np.ndarray}
"""Classes of arrays, which the modules that have them enter: never containers."""


def flatten_call(args: Sequence[Any], kwargs: dict[str, Any]
                 ) -> tuple[list[Any], optree.PyTreeSpec]:
    """`flatten((args, kwargs))`; the structure is `structure_of_arrays(len(args))` itself where
    arrays by position are all there is."""
    if not kwargs and PLAIN_LEAVES.issuperset(map(type, args)):
        return list(args), structure_of_arrays(len(args))
    return flatten((args, kwargs))


@cached(1024)
def structure_of_arrays(count: int) -> optree.PyTreeSpec:
    """The structure of so many arrays given by position, and no keywords."""
    return flatten(((0,) * count, {}))[1]


@cached(1024)
def structure_of_tuple(count: int) -> optree.PyTreeSpec:
    """The structure of a tuple of so many arrays."""
    return flatten((0,) * count)[1]


def flatten_tuple(values: tuple[Any, ...]) -> tuple[list[Any], optree.PyTreeSpec]:
    """`flatten` of a tuple, which mostly is one of arrays."""
    if PLAIN_LEAVES.issuperset(map(type, values)):
        return list(values), structure_of_tuple(len(values))
    return flatten(values)


def unflatten(treedef: optree.PyTreeSpec, leaves: Iterable[Any]) -> Any:
    """The pytree of this structure with these leaves."""
    return in_order(treedef).unflatten(leaves)


def rebuilder(treedef: optree.PyTreeSpec) -> Callable[[Sequence[Any]], Any]:
    """`unflatten` for one structure, for those who do it many times."""
    if treedef.is_leaf():
        return itemgetter(0)
    return in_order(treedef).unflatten


def one_level(node: Any) -> tuple[tuple[Any, ...], Any, tuple[Any, ...]]:
    """Children of a subtree, what else rebuilds it, and an entry (key or index) for each child.

    Raises ValueError for a leaf.
    """
    children, metadata, entries, _ = optree.tree_flatten_one_level(node, namespace=NAMESPACE)
    return tuple(children), metadata, tuple(entries)


@cached(4096)
def in_order(treedef: optree.PyTreeSpec) -> optree.PyTreeSpec:
    """A structure with its dictionaries, which optree rebuilds as they were, in sorted order.

    Structures that differ only in that order are equal, so one of them serves for all.
    """
    if _ordered(treedef):
        return treedef
    numbered = optree.tree_unflatten(treedef, range(treedef.num_leaves))
    ordered = optree.tree_map(_rebuilt, numbered, is_leaf=_is_dict, namespace=NAMESPACE)
    return optree.tree_structure(ordered, namespace=NAMESPACE)


def _rebuilt(node: Any) -> Any:
    if not _is_dict(node):
        return node
    keys = optree.treespec_entries(optree.tree_structure(
        node, lambda x: x is not node, namespace=NAMESPACE))        # type: ignore[arg-type]
    ordered = {k: node[k] if type(node[k]) is int else optree.tree_map(
        _rebuilt, node[k], is_leaf=_is_dict, namespace=NAMESPACE) for k in keys}
    return ordered if type(node) is dict else defaultdict(node.default_factory, ordered)


def _ordered(treedef: optree.PyTreeSpec) -> bool:
    """Whether there are but leaves, tuples and lists in a structure, for all that is looked at."""
    kind = treedef.type
    if kind is not tuple and kind is not list:
        return kind is None or kind is type(None)
    for child in treedef.children():
        if not _ordered(child):
            return False
    return True


def _is_dict(x: Any) -> bool:
    return type(x) is dict or type(x) is defaultdict
