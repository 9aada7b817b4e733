"""The rest of `jax.tree_util`: classes with keyed children or none, single levels, broadcasts.

tree.py has the registration by functions, which everything here goes through.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import optree

from ...ir.trees.pytree import NAMESPACE, one_level
from . import tree
from .tree import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey, register_pytree_node

KeyEntry = TypeVar("KeyEntry", bound=Hashable)
KeyPath = tuple[KeyEntry, ...]
leaves_of = tree.leaves
Leafish = Callable[[Any], bool] | None


def register_pytree_with_keys(
    nodetype: type, flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """Make instances of `nodetype` subtrees whose children have keys, seen in key paths.

    `flatten_with_keys(x)` gives ((key, child) pairs, aux); `flatten_func`, faster where given,
    the same without keys; `unflatten_func(aux, children)` rebuilds x.

    >>> import shardtrace as st
    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> st.tree_util.register_pytree_with_keys(
    ...     Pair, lambda p: (((st.tree_util.GetAttrKey("a"), p.a), ("second", p.b)), None),
    ...     lambda _, children: Pair(*children))
    >>> [st.tree_util.keystr(path) for path, _ in st.tree.leaves_with_path(Pair(1, 2))]
    ['.a', 'second']
    """
    def without_keys(x: Any) -> tuple[Any, Any]:
        pairs, aux = flatten_with_keys(x)
        return tuple(child for _, child in pairs), aux

    register_pytree_node(nodetype, flatten_func or without_keys, unflatten_func, flatten_with_keys)


def register_pytree_with_keys_class(cls: type) -> type:
    """Class decorator: `tree_flatten_with_keys` and the class method `tree_unflatten` say it all.

    A method `tree_flatten`, where there is one, is used when no keys are needed.
    """
    register_pytree_with_keys(
        cls, lambda x: x.tree_flatten_with_keys(), cls.tree_unflatten,    # type: ignore[attr-defined]
        (lambda x: x.tree_flatten()) if hasattr(cls, "tree_flatten") else None)
    return cls


def register_static(cls: type) -> type:
    """Class decorator: instances are subtrees without leaves, told apart by `==` and `hash`.

    A jitted function takes them as static arguments without being declared so.

    >>> import shardtrace as st
    >>> @st.tree_util.register_static
    ... class Mode(str): pass
    >>> st.tree.leaves((1, Mode("train")))
    [1]
    """
    register_pytree_node(cls, lambda x: ((), x), lambda x, _: x)
    return cls


def static(**kwargs: Any) -> Any:
    """A dataclass field that `register_dataclass` takes for static; arguments as for `field`.

    >>> import dataclasses
    >>> import shardtrace as st
    >>> @st.tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: float
    ...     name: str = st.tree.static(default="dense")
    >>> st.tree.leaves(Layer(2.0))
    [2.0]
    """
    metadata = {"static": True, **kwargs.pop("metadata", {})}
    return dataclasses.field(metadata=metadata, **kwargs)


def is_tree_node(typ: type) -> bool:
    """Are instances of this class subtrees (containers or registered classes), not leaves?"""
    registry = optree.register_pytree_node.get(typ, namespace=NAMESPACE)    # type: ignore[attr-defined]
    return registry is not None or optree.is_namedtuple_class(typ)


def all_leaves(iterable: Iterable[Any], is_leaf: Leafish = None) -> bool:
    """Is every item a leaf?

    >>> import shardtrace as st
    >>> st.tree_util.all_leaves([1, 2.0]), st.tree_util.all_leaves([1, [2.0]])
    (True, False)
    """
    items = list(iterable)
    return len(items) == len(flat := tree.leaves(items, is_leaf)) and all(
        a is b for a, b in zip(items, flat, strict=True))


def flatten_one_level(tree: Any) -> tuple[Sequence[Any], Any]:
    """Children of a subtree, which may be subtrees themselves, and what else rebuilds it. They are
    a list for lists and where the class gives them keys, else a tuple.

    Raises ValueError for a leaf.

    >>> import shardtrace as st
    >>> st.tree_util.flatten_one_level({"b": 1, "a": [2, 3]})
    (([2, 3], 1), ('a', 'b'))
    """
    children, metadata, keys = _one_level(tree)
    listed = isinstance(tree, list) or _keyed(tree, keys)
    return list(children) if listed else children, metadata


def flatten_one_level_with_keys(tree: Any) -> tuple[Sequence[tuple[Any, Any]], Any]:
    """As `flatten_one_level`, with each child in a pair with its key: what leads to it."""
    children, metadata, keys = _one_level(tree)
    pairs = tuple(zip(keys, children, strict=True))
    return list(pairs) if _keyed(tree, keys) else pairs, metadata


def _keyed(node: Any, keys: list[Any]) -> bool:
    """Whether a subtree is of a class that gives its children keys, as named tuples and kinds of
    dictionaries do."""
    if isinstance(node, dict):
        return type(node) is not dict
    return hasattr(node, "_fields") or not isinstance(node, tuple | list) and not all(
        isinstance(k, FlattenedIndexKey) for k in keys)


def _one_level(node: Any) -> tuple[tuple[Any, ...], Any, list[Any]]:
    """(Children, metadata, keys of the children) of a container."""
    try:
        children, metadata, entries = one_level(node)
    except ValueError:
        raise ValueError(f"can't tree-flatten type: {type(node)}") from None
    if isinstance(node, dict):
        return children, _tupled(metadata), [DictKey(e) for e in entries]
    if isinstance(node, tuple | list):
        fields = getattr(node, "_fields", None)
        return children, metadata, [
            GetAttrKey(fields[i]) if fields else SequenceKey(i) for i in range(len(children))]
    return children, metadata, [getattr(e, "key", None) or FlattenedIndexKey(e) for e in entries]


def _tupled(metadata: Any) -> Any:
    """What optree keeps of a dictionary, its lists of keys as tuples."""
    if isinstance(metadata, tuple):
        return tuple(map(_tupled, metadata))
    return tuple(metadata) if isinstance(metadata, list) else metadata


def broadcast(prefix_tree: Any, full_tree: Any, is_leaf: Leafish = None) -> Any:
    """A tree like `full_tree`, each leaf replaced by the leaf of the prefix that covers it.

    Raises ValueError, naming the key path, where `prefix_tree` is no prefix of the full one.

    >>> import shardtrace as st
    >>> st.tree.broadcast((1, 2), (0, {"a": 0, "b": 0}))
    (1, {'a': 2, 'b': 2})
    """
    def everywhere(value: Any, subtree: Any) -> Any:
        return tree.map(lambda _: value, subtree, is_leaf=is_leaf)

    return tree.map(everywhere, prefix_tree, full_tree, is_leaf=is_leaf)


_NOTHING = object()


def reduce_associative(operation: Callable[[Any, Any], Any], tree: Any, *,
                       identity: Any = _NOTHING, is_leaf: Leafish = None) -> Any:
    """The leaves combined two halves at a time, each half in the same way.

    Raises TypeError for a tree without leaves where no `identity` is given.

    >>> import shardtrace as st
    >>> st.tree.reduce_associative(lambda a, b: f"({a} {b})", [1, 2, 3, 4, 5])
    '((1 2) (3 (4 5)))'
    """
    values = leaves_of(tree, is_leaf)
    if not values:
        if identity is _NOTHING:
            raise TypeError("Must specify identity for parallel reduction of empty sequence.")
        return identity

    def combined(values: list[Any]) -> Any:
        half = len(values) // 2
        return operation(combined(values[:half]), combined(values[half:])) if half else values[0]

    return combined(values)
