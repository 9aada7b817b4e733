"""`check`: a runtime check requested by the user, until `checkify` turns it into a value.

The operands are the leaves of an `Error` (tracer/checkify/errors.py), whose structure is `tree`.
The equation has no results; a program in which one is left cannot be partitioned, unless it is for
debugging alone: these are dropped.
"""
from __future__ import annotations

from typing import Any

from ...op import defop
from ...rules.factor import REPLICATE, Factor
from ...rules.rule import FactorRule
from ...types import ArrayType


def _infer(*types: ArrayType, tree: Any, debug: bool) -> list:
    return []


def _rule(operand_shapes: tuple, result_shapes: tuple, **params: Any) -> FactorRule:
    factors: list[Factor] = []
    maps = []
    for shape in operand_shapes:
        first = len(factors)
        factors.extend(Factor(f"f{first + d}", n, REPLICATE) for d, n in enumerate(shape))
        maps.append(tuple((first + d,) for d in range(len(shape))))
    return FactorRule(tuple(maps), (), tuple(factors))


check_p = defop(
    "check", doc="Raise the error that the operands say, if they say one.",
    infer=_infer, multiple_results=True, rule=_rule, explicit="unsharded",
    manual=lambda op, types, params: [], jvp="zero",
    transpose=lambda ct, *operands, **params: [None] * len(operands),
    arithmetic=False, effect="check")
