"""The containers of a checkpoint as JSON: nested nodes that end in numbers of leaves.

Dictionaries, lists, tuples and None can be rebuilt from it. Of other containers only the name of
the type is stored; they come from the tree that is given to `restore`.
"""
from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

from ...ir.diagnostics.diagnostic import clipped, fail
from ...tracer.trees import tree
from .record import MOST_NESTED

_NODES = {dict: "dict", list: "list", tuple: "tuple", type(None): "None",
          collections.OrderedDict: "OrderedDict"}


def describe(root: Any) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """A tree as JSON, in which leaves are numbers, and the leaves with their key paths."""
    leaves: list[tuple[str, Any]] = []

    def visit(x: Any, path: str, depth: int) -> dict[str, Any]:
        children, _ = tree.flatten_with_path(x, lambda y: y is not x)
        if len(children) == 1 and not children[0][0]:
            leaves.append((path, x))
            return {"leaf": len(leaves) - 1, "path": path}
        if depth == MOST_NESTED:
            fail(ValueError, f"The tree is nested in more than {MOST_NESTED} levels, at "
                 f"{clipped(path, 80)}", code="checkpoint-nesting",
                 help="save a flatter tree, such as a dictionary by key paths")
        kind = _NODES.get(type(x), f"{type(x).__module__}.{type(x).__qualname__}")
        keys = [keys[0].key for keys, _ in children] if isinstance(x, dict) else []
        if not all(isinstance(k, (str, int, float, bool, type(None))) for k in keys):
            kind, keys = "dict with keys that are no text or numbers", []
        return {"node": kind, "keys": keys, "path": path,
                "children": [visit(y, path + tree.keystr(keys), depth + 1)
                             for keys, y in children]}

    return visit(root, "", 0), leaves


def rebuilt(node: dict[str, Any], leaves: Mapping[int, Any]) -> Any:
    """The tree that was described, with these leaves. Raises ValueError for other containers."""
    if "leaf" in node:
        return leaves[node["leaf"]]
    children = [rebuilt(child, leaves) for child in node["children"]]
    kind = node["node"]
    if kind == "dict":
        return dict(zip(node["keys"], children, strict=True))
    if kind == "OrderedDict":
        return collections.OrderedDict(zip(node["keys"], children, strict=True))
    if kind in ("list", "tuple"):
        return children if kind == "list" else tuple(children)
    if kind == "None":
        return None
    fail(ValueError, f"The checkpoint has a {kind} at {node['path'] or 'its root'}, which cannot "
         "be made again from the file alone", code="checkpoint-container",
         help="pass `like`, a tree of the same containers with `ShapeDtypeStruct`s, shardings or "
              "arrays as leaves; `eval_shape` of the function that makes it gives one")


def numbers_under(node: dict[str, Any]) -> list[int]:
    if "leaf" in node:
        return [node["leaf"]]
    return [n for child in node["children"] for n in numbers_under(child)]


def all_nodes(node: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every node by its key path."""
    out = {node["path"]: node}
    for child in node.get("children", ()):
        out.update(all_nodes(child))
    return out
