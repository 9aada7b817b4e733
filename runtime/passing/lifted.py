"""Values of which each device has its part of a dimension, seen as the whole that one device has.

Such is the last row of all of an array that is split, once it is exchanged. What is done to the
parts is done to the whole as well, as long as it leaves the dimension as it is.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.named_tuple import NamedTuple
from ...ir.program import Atom, Equation

Parts = Sequence[Any]           # of the operands of an equation those that are `Lifted`, or None


class Lifted(NamedTuple):
    """What `device` has of `whole`, of which each device has its part of dimension `part`."""
    whole: Atom
    device: int
    part: int


def taking(e: Equation) -> range:
    """Which operands are arrays of which a part is taken or changed, or chosen."""
    return {"select_n": range(1, len(e.invars)), "dynamic_update_slice": range(2)}.get(
        e.op.name, range(0, 3, 2) if e.op.name == "scatter" else range(1))


def dim_of_operand(e: Equation, i: int, part: int) -> int:
    if e.op.name == "scatter" and i:
        return part - (e.params["dimension_numbers"].inserted_window_dims[0] < part)
    return part


def _squeeze(e: Equation, given: Parts) -> int | None:
    part, gone = given[0].part, e.params["dimensions"]
    return None if part in gone else part - sum([d < part for d in gone])


def _broadcast(e: Equation, given: Parts) -> int | None:
    part = given[0].part
    to = e.params["broadcast_dimensions"][part]
    return to if e.invars[0].aval.shape[part] == e.outvars[0].aval.shape[to] else None


def _same_part(e: Equation, given: Parts) -> int | None:
    parts = {x.part for x in given if x is not None}
    return parts.pop() if len(parts) == 1 else None


def _chosen(e: Equation, given: Parts) -> int | None:
    return None if e.invars[0].aval.shape else _same_part(e, given)


def _window(e: Equation, given: Parts) -> int | None:
    """All of the dimension is read, or changed."""
    part = _same_part(e, given)
    small = e.outvars[0].aval if e.op.name == "dynamic_slice" else e.invars[1].aval
    return part if part is not None and (
        small.shape[part] == e.invars[0].aval.shape[part]) else None


def _scattered(e: Equation, given: Parts) -> int | None:
    n = e.params["dimension_numbers"]
    if (given[2] is None or given[1] is not None or n.operand_batching_dims
            or len(n.inserted_window_dims) != 1
            or n.update_window_dims != tuple(range(e.invars[2].aval.ndim))):
        return None
    part = given[2].part + (n.inserted_window_dims[0] <= given[2].part)
    if given[0] is not None and given[0].part != part:
        return None
    return part if e.invars[0].aval.shape[part] == e.invars[2].aval.shape[given[2].part] else None


LIFTS: dict[str, Callable[[Equation, Parts], int | None]] = {
    "squeeze": _squeeze, "broadcast_in_dim": _broadcast, "select_n": _chosen,
    "dynamic_slice": _window, "dynamic_update_slice": _window, "scatter": _scattered,
    **dict.fromkeys(("convert_element_type", "copy", "pvary"), _same_part)}
