"""Pytrees: nested containers of arrays, flattened and rebuilt (optree does the work).

The ground is ir/trees/pytree.py; here are key paths, tree prefixes with JAX's error texts,
registration of classes, and the rest of what the package needs. What users call is in tree_api.py.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Self

import optree

from ...ir.support.immutable import immutable
from ...ir.trees.pytree import (
    NAMESPACE,
    PLAIN_LEAVES,
    ChildKey,
    flatten,
    in_order,
    refuse_deep,
    unflatten,
)
from ...ir.trees.pytree import flatten_call as flatten_call
from ...ir.trees.pytree import flatten_tuple as flatten_tuple
from ...ir.trees.pytree import rebuilder as rebuilder
from ...ir.trees.pytree import structure_of_arrays as structure_of_arrays
from ...ir.trees.tree_prefix import PrefixError as PrefixError
from ...ir.trees.tree_prefix import broadcast_prefix as broadcast_prefix
from ...ir.trees.tree_prefix import prefix_counts as prefix_counts
from ...ir.trees.tree_prefix import prefix_leaves as prefix_leaves
from ...ir.trees.tree_prefix import prefix_mismatch
from ...ir.trees.tree_prefix import prefix_mismatches as prefix_mismatches
from ...ir.values.array import Array

PyTreeDef = optree.PyTreeSpec


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a pytree in order, as a list; None is not a leaf, unless is_leaf says so.

    >>> st.tree.leaves({"b": 3, "a": [1, 2]})
    [1, 2, 3]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> PyTreeDef:
    return flatten(tree, is_leaf)[1]


def map(f: Callable[..., Any], tree: Any, *rest: Any,
        is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """A pytree of the results of `f`, called with each leaf and what is in its place in `rest`.

    is_leaf: a function that says of subtrees whether they count as leaves. Raises ValueError,
    naming the key path, where a tree of `rest` has another structure.

    Sharding
      Auto, Explicit, Manual: a pytree is a Python container; each array in it has a sharding of
        its own.

    >>> st.tree.map(lambda w, g: w - g, {"w": 3, "b": [1]}, {"w": 1, "b": [1]})
    {'b': [0], 'w': 2}
    """
    if not rest and isinstance(tree, Array):
        return f(tree)
    flat, treedef = flatten(tree, is_leaf)
    others = _others(tree, treedef, rest, is_leaf)
    return unflatten(treedef, [f(*leaves) for leaves in zip(flat, *others, strict=True)])


def _others(tree: Any, treedef: PyTreeDef, rest: Sequence[Any],
            is_leaf: Callable[..., bool] | None) -> list[list[Any]]:
    """For each tree of `rest`, what is in the place of each leaf of `tree`."""
    others = []
    for other in rest:
        try:
            others.append(treedef.flatten_up_to(other))
        except ValueError:
            raise ValueError(prefix_mismatch(
                tree, other, lambda x: is_leaf is not None and is_leaf(x), "tree")) from None
    return others


# -- key paths ------------------------------------------------------------------------------------

@immutable
class SequenceKey:
    """A step of a key path: the item at an index of a list or tuple, `[0]`."""
    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@immutable
class DictKey:
    """A step of a key path: the value at a key of a dictionary, `['name']`."""
    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@immutable
class GetAttrKey:
    """A step of a key path: a field of a named tuple, dataclass or registered class."""
    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@immutable
class FlattenedIndexKey:
    """A position among the children of a registered class without keys."""
    key: int

    def __hash__(self) -> int:
        return hash((FlattenedIndexKey, self.key))

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


def _key(entry: Any) -> Any:
    """A step of optree's path as JAX writes it."""
    value = entry.entry
    if isinstance(value, ChildKey):
        return value.key
    if isinstance(entry, optree.GetAttrEntry | optree.NamedTupleEntry | optree.DataclassEntry):
        name = getattr(entry, "field", None) or getattr(entry, "name", None) or value
        return GetAttrKey(str(name))
    if isinstance(entry, optree.SequenceEntry):
        return SequenceKey(value)
    if isinstance(entry, optree.MappingEntry):
        return DictKey(value)
    return FlattenedIndexKey(value)


def flatten_with_path(tree: Any, is_leaf: Callable[..., bool] | None = None,
                      is_leaf_takes_path: bool = False
                      ) -> tuple[list[tuple[tuple[Any, ...], Any]], PyTreeDef]:
    """((path, leaf) pairs, structure); a path is a tuple of keys, for `keystr`.

    is_leaf_takes_path: `is_leaf` is called with the path of a node, and the node.
    """
    if is_leaf_takes_path and is_leaf is not None:
        decided = iter(_decisions(tree, is_leaf, ()))
        return flatten_with_path(tree, lambda _: next(decided))
    try:
        accessors, flat, treedef = optree.tree_flatten_with_accessor(
            tree, is_leaf, namespace=NAMESPACE)
    except RecursionError as error:
        refuse_deep(error)
    return [(tuple(_key(e) for e in a), x) for a, x in zip(accessors, flat, strict=True)], treedef


def _decisions(node: Any, is_leaf: Callable[..., bool], path: tuple[Any, ...]) -> Iterator[bool]:
    """What `is_leaf(path, node)` says of each node, in the order in which nodes are visited."""
    leaf = bool(is_leaf(path, node))
    yield leaf
    if leaf:
        return
    children, _ = flatten_with_path(node, lambda x: x is not node)
    for keys, child in children:
        if keys:
            yield from _decisions(child, is_leaf, path + keys)


def map_with_path(f: Callable[..., Any], tree: Any, *rest: Any,
                  is_leaf: Callable[..., bool] | None = None,
                  is_leaf_takes_path: bool = False) -> Any:
    """A pytree of the results of `f`, called with each leaf's key path and the leaf; see `map`.

    >>> st.tree.map_with_path(lambda path, x: st.tree_util.keystr(path), {"a": [1]})
    {'a': ["['a'][0]"]}
    """
    pairs, treedef = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    others = _others(tree, treedef, rest, None if is_leaf_takes_path else is_leaf)
    return unflatten(treedef, [f(path, leaf, *(o[i] for o in others))
                               for i, (path, leaf) in enumerate(pairs)])


def keystr(keys: Sequence[Any], *, simple: bool = False, separator: str = "") -> str:
    """A key path as text: `['w'][0].bias` (simple: `w/0/bias` with separator '/')."""
    if not simple:
        return separator.join(str(k) for k in keys)
    parts = []
    for k in keys:
        parts.append(str(k).strip("[].'") if not dataclasses.is_dataclass(k)
                     else str(next(iter(vars(k).values()))))
    return separator.join(parts)


# -- registration ---------------------------------------------------------------------------------

def register_pytree_node(nodetype: type, flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
                         unflatten_func: Callable[[Any, Any], Any],
                         flatten_with_keys_func: Callable[..., Any] | None = None) -> None:
    """Make instances of `nodetype` subtrees: `flatten_func(x) -> (children, aux)` and back."""
    PLAIN_LEAVES.discard(nodetype)

    def to_children(x: Any) -> tuple[Any, ...]:
        found = flatten_func(x)
        if type(found) is not tuple or len(found) != 2:
            raise ValueError("The to_iterable function for a custom PyTree node should return a "
                             f"(children, aux_data) tuple, got {found!r}")
        children, aux = found
        try:
            children = tuple(children)
        except TypeError:
            raise ValueError(
                "The to_iterable function for a custom PyTree node should return a (children, "
                f"aux_data) tuple where 'children' is iterable, got {found!r}") from None
        if flatten_with_keys_func is not None:
            entries = tuple(ChildKey(k) for k, _ in flatten_with_keys_func(x)[0])
            return children, aux, entries
        return children, aux

    optree.register_pytree_node(nodetype, to_children, unflatten_func, namespace=NAMESPACE)


def register_pytree_node_class(cls: type) -> type:
    """Class decorator: the class has `tree_flatten` and the class method `tree_unflatten`."""
    register_pytree_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)
    return cls


def register_dataclass(nodetype: type, data_fields: Sequence[str] | None = None,
                       meta_fields: Sequence[str] | None = None,
                       drop_fields: Sequence[str] = ()) -> type:
    """Make a dataclass a subtree: `data_fields` are children, `meta_fields` static."""
    is_dataclass = dataclasses.is_dataclass(nodetype)
    if data_fields is None or meta_fields is None:
        if data_fields is not None or meta_fields is not None:
            raise TypeError("register_dataclass: data_fields and meta_fields must both be "
                            f"specified when either is specified. Got {data_fields=} "
                            f"{meta_fields=}.")
        if not is_dataclass:
            raise TypeError("register_dataclass: data_fields and meta_fields are required when "
                            f"nodetype is not a dataclass. Got {nodetype=}.")
        fields = [f for f in dataclasses.fields(nodetype) if f.name not in drop_fields]
        static = [f.name for f in fields if f.metadata.get("static", False)]
        data_fields = [f.name for f in fields if f.name not in static]
        meta_fields = static
    data_fields, meta_fields = tuple(data_fields), tuple(meta_fields)

    def listed(names: set[str]) -> str:
        return "{" + ", ".join(map(repr, sorted(names))) + "}"

    both = {*data_fields} & {*meta_fields}
    if both:
        raise ValueError("data_fields and meta_fields must not overlap. Overlapping fields: "
                         f"{listed(both)}.")
    named = {*data_fields, *meta_fields}
    wanted = named if not is_dataclass else {
        f.name for f in dataclasses.fields(nodetype) if f.init} - {*drop_fields}
    if named != wanted:
        which = [f"{word} fields: {listed(names)}" for word, names in (
            ("Missing", wanted - named), ("Unexpected", named - wanted)) if names]
        raise ValueError("data_fields and meta_fields must include all dataclass fields with "
                         f"``init=True`` and only them. {'. '.join(which)}.")

    def to_children(x: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (tuple(getattr(x, n) for n in data_fields),
                tuple(getattr(x, n) for n in meta_fields))

    def rebuild(aux: tuple[Any, ...], children: Iterable[Any]) -> Any:
        return nodetype(**dict(zip(meta_fields, aux, strict=True)),
                        **dict(zip(data_fields, children, strict=True)))

    register_pytree_node(nodetype, to_children, rebuild,
                         lambda x: ([(GetAttrKey(n), getattr(x, n)) for n in data_fields], None))
    return nodetype


class Partial(functools.partial):
    """A `functools.partial` that is a pytree: its arguments are children, its function is static.

    Unlike a closure it can be an argument or a result of a jitted function.

    >>> f = st.tree_util.Partial(jnp.add, jnp.ones(2))
    >>> st.jit(lambda f, x: f(x))(f, 1.0)
    Array([2., 2.], dtype=float32)
    """

    def __new__(cls, func: Any, *args: Any, **kw: Any) -> Self:
        if isinstance(func, functools.partial):
            func = _Whole(func)         # which would be taken apart otherwise, its arguments moved
        return super().__new__(cls, func, *args, **kw)


class _Whole:
    """A `functools.partial` as a plain function."""

    __slots__ = ("fun",)

    def __init__(self, fun: functools.partial) -> None:
        self.fun = fun

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self.fun(*args, **kw)

    def __eq__(self, other: object) -> bool:
        return self.fun == (other.fun if isinstance(other, _Whole) else other)

    def __hash__(self) -> int:
        return hash(self.fun)

    def __repr__(self) -> str:
        return f"_Whole({self.fun!r})"


register_pytree_node(
    Partial, lambda p: ((p.args, p.keywords), p.func),
    lambda func, children: Partial(func.fun if isinstance(func, _Whole) else func, *children[0],
                                   **children[1]))


# -- the rest of JAX's tree functions -------------------------------------------------------------

def all(tree: Any, *, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether all leaves of a pytree are true; True where there are none.

    >>> st.tree.all({"a": True, "b": [1, 0]})
    False
    """
    return bool(functools.reduce(lambda a, b: a and b, leaves(tree, is_leaf), True))


_MISSING = object()


def reduce(function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _MISSING,
           is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The leaves of a pytree, combined from the first to the last by a function of two.

    >>> st.tree.reduce(lambda a, b: a + b, {"a": 1, "b": [2, 3]})
    6
    """
    if initializer is _MISSING:
        return functools.reduce(function, leaves(tree, is_leaf))
    return functools.reduce(function, leaves(tree, is_leaf), initializer)


def transpose(outer_treedef: PyTreeDef, inner_treedef: Any,
              pytree_to_transpose: Any) -> Any:
    """A tree of `outer` structure holding `inner` ones -> a tree of `inner` holding `outer`.

    inner_treedef: None for that of the first of them.
    """
    if inner_treedef is None:
        inner_treedef = structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    return optree.tree_transpose(in_order(outer_treedef), in_order(inner_treedef),
                                 pytree_to_transpose)


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    return treedef.num_nodes == 1


def leaves_with_path(tree: Any, is_leaf: Callable[..., bool] | None = None,
                     is_leaf_takes_path: bool = False) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves of a pytree in order, each with the tuple of keys that leads to it.

    >>> pairs = st.tree.leaves_with_path({"a": [1, 2]})
    >>> [(st.tree_util.keystr(path), leaf) for path, leaf in pairs]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]
