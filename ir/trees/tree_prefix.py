"""Tree prefixes: one value for a whole subtree, as in `device_put(tree, {"a": s, "b": None})`.

A prefix stops where it has a leaf, which then holds for everything below. Messages are JAX's.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import optree

from ..support.caches import cached
from .pytree import NAMESPACE, ChildKey, flatten, one_level, unflatten


class PrefixError(ValueError):
    """A tree that should be a prefix of another is not; the message names the key path."""


def prefix_leaves(prefix: Any) -> tuple[list[Any], optree.PyTreeSpec]:
    """The leaves of a prefix, None being one, and its structure."""
    return optree.tree_flatten(prefix, none_is_leaf=True, namespace=NAMESPACE)


@cached(4096)
def prefix_counts(prefix: optree.PyTreeSpec, full: optree.PyTreeSpec) -> tuple[int, ...]:
    """For each leaf of a prefix of the structure `full`, how many leaves of `full` it covers.

    Raises ValueError where it is no prefix; `broadcast_prefix` says where the two differ.
    """
    numbered = unflatten(full, range(full.num_leaves))
    return tuple([optree.tree_structure(subtree, namespace=NAMESPACE).num_leaves
                  for subtree in prefix.flatten_up_to(numbered)])


def broadcast_prefix(prefix: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None,
                     name: str = "prefix") -> list[Any]:
    """One value of `prefix` for every leaf of `tree`, which it must be a tree prefix of.

    None in `prefix` is a leaf. Raises PrefixError naming where the two differ.
    """
    def leafish(x: Any) -> bool:
        return x is None or (is_leaf is not None and is_leaf(x))

    try:
        return _broadcast(prefix, tree, leafish)
    except ValueError:
        reason = prefix_mismatch(prefix, tree, leafish, name)
        raise PrefixError(reason) from None


def _broadcast(prefix: Any, tree: Any, is_leaf: Callable[[Any], bool]) -> list[Any]:
    flat, treedef = flatten(prefix, is_leaf)
    out: list[Any] = []
    for value, subtree in zip(flat, treedef.flatten_up_to(tree), strict=True):
        out.extend([value] * optree.tree_structure(subtree, namespace=NAMESPACE).num_leaves)
    return out


def prefix_mismatch(prefix: Any, tree: Any, is_leaf: Callable[[Any], bool], name: str) -> str:
    """The text of JAX's pytree structure errors for the first place where the trees differ."""
    found = prefix_mismatches(prefix, tree, is_leaf, name)
    return found[0] if found else f"pytree structure error at key path\n    {name}"


def prefix_mismatches(prefix: Any, tree: Any, is_leaf: Callable[[Any], bool], name: str
                      ) -> list[str]:
    """As `prefix_mismatch`, for all places where the trees differ."""
    return list(_mismatches(prefix, tree, is_leaf, name, ""))


def _children(prefix: Any, tree: Any, name: str, path: str) -> str | list[tuple[str, Any, Any]]:
    """The children of both, each with its label; in words where the two differ themselves."""
    kind, where = type(tree).__name__, f"key path\n    {name}{path}\n"
    subtree = f"At that key path, the prefix pytree {name} has a subtree of type"
    if type(prefix) is not type(tree):
        return (f"pytree structure error: different types at {where}{subtree}\n"
                f"    {type(prefix)}\nbut at the same key path the full pytree has a subtree "
                f"of different type\n    {type(tree)}.")
    if isinstance(prefix, tuple | list):
        if len(prefix) != len(tree):
            return (f"pytree structure error: different lengths of {kind} at {where}{subtree} "
                    f"{kind} of length {len(prefix)}, but the full pytree has a "
                    f"subtree of the same type but of length {len(tree)}.")
        fields = getattr(prefix, "_fields", None)
        labels = [f".{f}" for f in fields] if fields else [f"[{i}]" for i in range(len(prefix))]
        return list(zip(labels, prefix, tree, strict=True))
    children, metadata, entries = one_level(prefix)
    others, other_metadata, other_entries = one_level(tree)
    if len(children) != len(others):
        ours, theirs = ([str(_key(e)) for e in some] for some in (entries, other_entries))
        return (f"pytree structure error: different numbers of pytree children at {where}{subtree}"
                f"\n    {type(prefix)}\nwith {len(children)} child keys\n    {' '.join(ours)}\nbut "
                "at the same key path the full pytree has a subtree of the same type but with "
                f"{len(others)} child keys\n    {' '.join(theirs)}\nso the symmetric difference on "
                f"key sets is\n    {' '.join(sorted({*ours} ^ {*theirs}))}")
    if metadata != other_metadata:
        return (f"pytree structure error: different pytree metadata at {where}{subtree}\n"
                f"    {type(prefix)}\nwith metadata\n    {metadata}\nbut at the "
                f"same key path the full pytree has a subtree of the same type but with "
                f"metadata\n    {other_metadata}")
    labels = [f"[{k!r}]" for k in entries] if isinstance(prefix, dict) else map(_label, entries)
    return list(zip(labels, children, others, strict=True))


def _mismatches(prefix: Any, tree: Any, is_leaf: Callable[[Any], bool], name: str, path: str
                ) -> Iterator[str]:
    """Where and how a prefix does not fit a tree: a sentence for each place."""
    steps = _children(prefix, tree, name, path)
    if isinstance(steps, str):
        yield steps
        return
    for key, p, t in steps:
        if is_leaf(p):
            continue
        try:
            _broadcast(p, t, is_leaf)
        except ValueError:
            yield from _mismatches(p, t, is_leaf, name, path + key)


def _key(entry: Any) -> Any:
    return entry.key if isinstance(entry, ChildKey) else entry


def _label(entry: Any) -> str:
    return str(entry.key) if isinstance(entry, ChildKey) else f"[<flat index {entry}>]"
