"""Promotion of operands to one rank: leading dimensions of size 1, and the shapes that result.

A shape is brought to the rank of another by an equation; where scalars alone differ there is none.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.settings.context import config
from ...ir.source.wording import warn
from ...ir.support.caches import cached
from ...ir.types import Shape
from ...ir.values.array import Array
from ..staging.constants import unwrapped
from .callers import called_by_user
from .scalars import PYTHON_LEVEL


def shape_of(x: Any) -> Shape:
    if isinstance(x, Array):
        return x.aval.shape
    return () if type(x) in PYTHON_LEVEL else np.shape(unwrapped(x))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that all shapes broadcast to. Raises ValueError if there is none."""
    if not shapes:
        return ()
    first = shapes[0]
    if all(s == first for s in shapes[1:]):
        return tuple(first)
    rank = max(len(s) for s in shapes)
    out = [1] * rank
    for s in shapes:
        for d, n in enumerate(s, rank - len(s)):
            if n != 1:
                if out[d] != 1 and out[d] != n:
                    raise ValueError("Incompatible shapes for broadcasting: shapes="
                                     f"{[tuple(s) for s in shapes]}")
                out[d] = n
    return tuple(out)


def promote_shapes(function: str, *args: Any) -> list[Any]:
    """Operands with leading 1s to the highest rank; unchanged where all but scalars agree."""
    if len(args) < 2:
        return list(args)
    shapes = [shape_of(a) for a in args]
    ranks = {len(s) for s in shapes if len(s)}
    if len(ranks) < 2:
        return list(args)
    setting = config.jax_numpy_rank_promotion
    if setting != "allow" and called_by_user():
        _rank_promotion(function, shapes, setting)
    return [a if params is None else broadcast_in_dim_p.bind(a, **params)
            for a, params in zip(args, _to_one_rank(tuple(shapes)), strict=True)]


@cached(4096)
def _to_one_rank(shapes: tuple[Shape, ...]) -> tuple[dict[str, Any] | None, ...]:
    """The params of the equations that give these shapes leading 1s, None where none lack."""
    rank = len(broadcast_shapes(*shapes))
    return tuple([leading_ones(s, rank) for s in shapes])


def fits(shape: Shape, longer: Shape) -> bool:
    """Whether a shape broadcasts together with one of a higher rank."""
    for n, m in zip(shape, longer[-len(shape):], strict=True):
        if n != m and n != 1 and m != 1:
            return False
    return True


def leading_ones(shape: Shape, rank: int) -> Any:
    """The params that give a shape leading 1s up to this rank; None where it has it."""
    extra = rank - len(shape)
    return {"shape": (1,) * extra + tuple(shape),
            "broadcast_dimensions": tuple(range(extra, rank)), "sharding": None} if extra else None


def _rank_promotion(function: str, shapes: list[Shape], setting: str) -> None:
    """Warn of promotion between ranks, or refuse it, as the configuration says."""
    text = (f"Operands could not be broadcast together for {function} on shapes "
            f"{' '.join(map(str, shapes))} and with the config option "
            "jax_numpy_rank_promotion='raise'. For more information, see "
            "https://docs.jax.dev/en/latest/rank_promotion_warning.html.")
    if setting == "raise":
        raise ValueError(text)
    warn(f"Following NumPy automatic rank promotion for {function} on shapes "
         f"{' '.join(map(str, shapes))}. Set the jax_numpy_rank_promotion config option "
         "to 'allow' to disable this warning.")
