"""Hints to the compiler in `jax.lax`; they are accepted and have no effect."""
from __future__ import annotations

from typing import Any

from ...ir.values.typeof import typeof
from ...tracer.trees import tree

__all__ = ["dce_sink"]


def dce_sink(val: Any) -> None:
    """Say that the arrays of a pytree are used. Nothing that is computed for them alone is."""
    for leaf in tree.leaves(val):
        typeof(leaf)
