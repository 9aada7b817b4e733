"""How ops type pending sums (`{U:X}`, unreduced) and their duals (`{R:X}`, reduced).

Functions for the `pending` field of an op: (op, types, params, unreduced, reduced) -> the unreduced
and reduced axes of the result. A sum may stay pending only where the op is linear in it, and JAX
accepts fewer ops than that; each function raises what JAX raises. The two built-in rules, "none"
and "keep", are in ir/inference/infer.py.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ..diagnostics.diagnostic import fail
from ..diagnostics.errors import ShardingTypeError
from ..types import ArrayType, short_list
from .unreduced import join_reduced

Axes = frozenset[str]
_NO_AXES: Axes = frozenset()
_ISSUES = "Please file an issue at https://github.com/jax-ml/jax/issues"


def refuse(op: Any, types: Sequence[ArrayType], params: dict[str, Any], unreduced: Sequence[Axes],
           reduced: Sequence[Axes]) -> NoReturn:
    """For ops that JAX gives no rule: an operand may be neither unreduced nor reduced."""
    fail(NotImplementedError, f"unreduced/reduced rule for {op.name} is not implemented. {_ISSUES}",
         code="unreduced-operand", label=f"operands are {short_list(types)}",
         help="bring the operand to a plain spec first, with `reshard`")


refuse.on_any_mesh = "all"  # type: ignore[attr-defined]


def all_or_none(op: Any, types: Sequence[ArrayType], params: dict[str, Any],
                unreduced: Sequence[Axes], reduced: Sequence[Axes]) -> tuple[Axes, Axes]:
    """For sums of two: both operands wait for the same axes, or none does."""
    out_reduced = join_reduced(op, types, reduced)
    lhs, rhs = unreduced
    if lhs == rhs:
        return lhs, out_reduced
    if lhs and rhs:
        fail(ShardingTypeError,
             f"lhs and rhs to `{op.name}` must be unreduced along the same mesh axes. "
             f"Got lhs={lhs}, rhs={rhs}", code="unreduced-operand",
             label=f"operands are {short_list(types)}",
             help="finish the sums first, with `reshard` to a spec without `unreduced`")
    pending, other = ("lhs", "rhs") if lhs else ("rhs", "lhs")
    fail(ShardingTypeError,
         f"{pending} is unreduced while {other} is not. `{op.name}` operation does not allow this "
         "because there will be implicit communication. Please reduce "
         f"{pending} via `reshard` before calling `{op.name}`.", code="unreduced-operand",
         label=f"operands are {short_list(types)}",
         notes=(f"{other} would be added once on every device, hence many times to the sum",),
         help=f"finish the sum of {pending} first, with `reshard` to a spec without `unreduced`")


def product(op: Any, types: Sequence[ArrayType], params: dict[str, Any],
            unreduced: Sequence[Axes], reduced: Sequence[Axes]) -> tuple[Axes, Axes]:
    """For bilinear ops of two operands: a pending sum times a value reduced over its axes."""
    lhs, rhs = unreduced
    out_reduced = join_reduced(op, types, reduced)
    if not lhs and not rhs:
        return _NO_AXES, out_reduced
    if lhs and rhs:
        fail(ShardingTypeError,
             f"lhs and rhs to `{op.name}` cannot be unreduced since {op.name} is bilinear. "
             f"Got lhs={lhs}, rhs={rhs}", code="unreduced-operand",
             label=f"operands are {short_list(types)}",
             notes=("a product of two sums is not the sum of the products",),
             help="finish one sum first, with `reshard` to a spec without `unreduced`")
    waiting, factor = (0, 1) if lhs else (1, 0)
    axes = unreduced[waiting]
    if reduced[factor] != axes:
        names = ("LHS", "RHS")
        fail(ShardingTypeError,
             f"{names[factor]} should be reduced along the same axes {names[waiting]} is unreduced "
             f"on. Got lhs={types[0]} and rhs={types[1]}",
             code="unreduced-operand",
             label=f"operands are {short_list(types)}",
             help="`reshard` the factor to a spec reduced over these axes, or finish the sum first")
    return axes, _NO_AXES
