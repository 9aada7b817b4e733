"""Where dimensions of a `dot_general` are among those of its operands and its result."""
from __future__ import annotations

from typing import Any

from ...ir.program import Equation


def _groups(product: Equation) -> tuple[Any, Any, list[list[int]]]:
    """Contracting and batch dimensions, and the free ones, of the two operands."""
    contracting, batch = product.params["dimension_numbers"]
    free = [[d for d in range(x.aval.ndim) if d not in contracting[k] and d not in batch[k]]
            for k, x in enumerate(product.invars)]
    return contracting, batch, free


def free_dim(product: Equation, out: int) -> tuple[int, int | None]:
    """The operand and its free dimension that a dimension of the result is; None if of both."""
    _, batch, free = _groups(product)
    place = out - len(batch[0])
    if place < 0:
        return 0, None
    k = 0 if place < len(free[0]) else 1
    return k, free[k][place - len(free[0]) * k]


def result_dim(product: Equation, k: int, d: int) -> int | None:
    """Where in the result a free dimension of an operand is."""
    _, batch, free = _groups(product)
    return len(batch[0]) + len(free[0]) * k + free[k].index(d) if d in free[k] else None


def contracted_dim(product: Equation, k: int, d: int) -> int | None:
    """The other operand's dimension that a dimension of an operand is contracted with."""
    contracting = product.params["dimension_numbers"][0]
    return contracting[1 - k][contracting[k].index(d)] if d in contracting[k] else None
