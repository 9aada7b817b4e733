"""Converts a pytree of arrays to one vector, and back."""
from __future__ import annotations

import math
from typing import Any

from . import jnp, lax
from .operands.dtype_promotion import dtype_name
from .operands.rank_promotion import shape_of
from .trees import tree


class _Unravel:
    """The way back from a vector to the pytree; equal for equal pytrees."""

    __slots__ = ("dtype", "leaves", "treedef")

    def __init__(self, treedef: Any, leaves: tuple[tuple[Any, tuple[int, ...]], ...],
                 dtype: Any) -> None:
        self.treedef, self.leaves, self.dtype = treedef, leaves, dtype

    def __call__(self, flat: Any) -> Any:
        mixed = any(d != self.dtype for d, _ in self.leaves)
        if mixed and dtype_name(flat) != self.dtype:
            raise TypeError(f"unravel function given array of dtype {dtype_name(flat)}, but "
                            f"expected dtype {self.dtype}")
        parts = lax.split(flat, [math.prod(s) for _, s in self.leaves]) if self.leaves else []
        out = [lax.reshape(x, s) for x, (_, s) in zip(parts, self.leaves, strict=True)]
        if mixed:
            out = [lax.conversion.convert_quietly(x, d) for x, (d, _) in zip(
                out, self.leaves, strict=True)]
        return tree.unflatten(self.treedef, out)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unravel) and (self.treedef, self.leaves, self.dtype) == (
            other.treedef, other.leaves, other.dtype)

    def __hash__(self) -> int:
        return hash((self.treedef, self.leaves))


def ravel_pytree(pytree):
    """(all leaves as one vector, the function that gives the pytree back of such a vector).

    The vector has the dtype to which the leaves promote; without leaves it is float32[0].
    Source: `jax.flatten_util.ravel_pytree`.

    >>> import shardtrace.numpy as jnp
    >>> from shardtrace.flatten_util import ravel_pytree
    >>> flat, back = ravel_pytree({"a": jnp.ones(2), "b": 3.0})
    >>> flat, back(2 * flat)["b"]
    (Array([1., 1., 3.], dtype=float32), Array(6., dtype=float32))
    """
    leaves, treedef = tree.flatten(pytree)
    if not leaves:
        return lax.full((0,), 0, "float32"), _Unravel(treedef, (), None)
    dtype = jnp.result_type(*(dtype_name(x) for x in leaves))
    described = tuple((dtype_name(x), tuple(shape_of(x))) for x in leaves)
    flat = [lax.reshape(lax.conversion.convert_quietly(x, dtype), (math.prod(shape_of(x)),))
            for x in leaves]
    return lax.concatenate(flat, 0), _Unravel(treedef, described, dtype)
