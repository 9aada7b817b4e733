"""`jax.tree` and `jax.tree_util`: the functions over pytrees as users call them.

They are those of tree.py, except that a structure is shown as JAX shows it: a `PyTreeDef`, which
wraps the one that the rest of the package works with.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...ir.source.wording import of_pytrees
from . import tree as _tree

Leafish = Callable[[Any], bool] | None


class PyTreeDef:
    """The structure of a pytree: equal structures are equal, hash alike and print as in JAX."""

    __slots__ = ("spec",)

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    @property
    def num_leaves(self) -> int:
        return self.spec.num_leaves

    @property
    def num_nodes(self) -> int:
        return self.spec.num_nodes

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        return _tree.unflatten(self.spec, leaves)

    def flatten_up_to(self, full_tree: Any) -> list[Any]:
        try:
            return self.spec.flatten_up_to(full_tree)
        except ValueError as error:
            raise ValueError(of_pytrees(str(error))) from None

    def children(self) -> list[PyTreeDef]:
        return [PyTreeDef(s) for s in self.spec.children()]

    def compose(self, inner: PyTreeDef) -> PyTreeDef:
        return PyTreeDef(self.spec.compose(inner.spec))

    def __eq__(self, other: Any) -> bool:
        return self.spec == _spec(other)

    def __hash__(self) -> int:
        return hash(self.spec)

    def __repr__(self) -> str:
        done: list[str] = []
        for kind, count, data, _, node, *_ in self.spec.__getstate__()[0]:      # children first
            parts = done[len(done) - count:]
            del done[len(done) - count:]
            done.append(_shown(kind, parts, data, node))
        return f"PyTreeDef({done[0]})"


def _shown(kind: int, parts: Sequence[str], data: Any, node: Any) -> str:
    """A node of a structure, of which the parts below are shown already."""
    listed = ", ".join(parts)
    match _KINDS[kind]:
        case "leaf":
            return "*"
        case "none":
            return "None"
        case "tuple":
            return f"({listed},)" if len(parts) == 1 else f"({listed})"
        case "list":
            return f"[{listed}]"
        case "dict":
            pairs = zip(data, parts, strict=True)
            return "{" + ", ".join(f"{key!r}: {part}" for key, part in pairs) + "}"
        case "namedtuple":
            data = data.__name__
        case "OrderedDict":
            data = tuple(data)
        case "defaultdict":
            data = data[0], tuple(data[1])
    name = node.__name__ if node is not None else _KINDS[kind]
    return f"CustomNode({name}[{data}], [{listed}])"


_KINDS = ("custom", "leaf", "none", "tuple", "list", "dict", "namedtuple", "OrderedDict",
          "defaultdict", "deque", "structseq")


def _spec(treedef: Any) -> Any:
    return treedef.spec if isinstance(treedef, PyTreeDef) else treedef


def flatten(tree: Any, is_leaf: Leafish = None) -> tuple[list[Any], PyTreeDef]:
    """The leaves of a pytree in order, and its structure, for `unflatten`.

    >>> leaves, form = st.tree.flatten({"b": 3, "a": [1, 2]})
    >>> leaves, st.tree.unflatten(form, [10, 20, 30])
    ([1, 2, 3], {'a': [10, 20], 'b': 30})
    """
    leaves_, treedef = _tree.flatten(tree, is_leaf)
    return leaves_, PyTreeDef(treedef)


def unflatten(treedef: Any, leaves: Iterable[Any]) -> Any:
    """The pytree of this structure with these leaves, in the order of `flatten`."""
    return _tree.unflatten(_spec(treedef), leaves)


def structure(tree: Any, is_leaf: Leafish = None) -> PyTreeDef:
    """The structure of a pytree: what it is without its leaves; `*` stands for each.

    >>> st.tree.structure({"b": 3, "a": [1, 2]})
    PyTreeDef({'a': [*, *], 'b': *})
    """
    return PyTreeDef(_tree.structure(tree, is_leaf))


def flatten_with_path(tree: Any, is_leaf: Callable[..., bool] | None = None,
                      is_leaf_takes_path: bool = False
                      ) -> tuple[list[tuple[tuple[Any, ...], Any]], PyTreeDef]:
    """((path, leaf) pairs, structure); a path is a tuple of keys, for `keystr`."""
    pairs, treedef = _tree.flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    return pairs, PyTreeDef(treedef)


def transpose(outer_treedef: Any, inner_treedef: Any, pytree_to_transpose: Any) -> Any:
    """A tree of `outer` structure holding `inner` ones -> a tree of `inner` holding `outer`."""
    return _tree.transpose(_spec(outer_treedef), _spec(inner_treedef), pytree_to_transpose)


def treedef_is_leaf(treedef: Any) -> bool:
    """Whether a structure is that of a single leaf, without any container."""
    return _tree.treedef_is_leaf(_spec(treedef))


def treedef_children(treedef: Any) -> list[PyTreeDef]:
    """The structures of the items of a container, given the structure of the whole."""
    return PyTreeDef(_spec(treedef)).children()


def treedef_tuple(treedefs: Sequence[Any]) -> PyTreeDef:
    """The structure of a tuple whose items have these structures, in this order."""
    items = [_tree.unflatten(_spec(t), range(_spec(t).num_leaves)) for t in treedefs]
    return structure(tuple(items))
