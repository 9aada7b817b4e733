"""The registry of pytree classes, as `jax._src.tree_util` has it."""
from __future__ import annotations

import optree

from ....ir.trees.pytree import NAMESPACE

__all__ = ["_registry"]


class _Registry:
    """`cls in registry`: are instances of exactly this class subtrees?"""

    def __contains__(self, cls: type) -> bool:
        return optree.register_pytree_node.get(cls, namespace=NAMESPACE) is not None


_registry = _Registry()
