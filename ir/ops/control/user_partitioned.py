"""`custom_partitioning`: a user's function that is opaque but for its factor rule.

The rule is a factor rule as of any op (ir/rules/rule.py): it says what may be split, and
propagation and choice read it. `call` is what runs on blocks; it is asked for a program once their
shapes are known (partitioner/lowering/user_partitioned.py), so the function may be another one for
each way of splitting. Name and meaning are those of JAX's primitive.
"""
from __future__ import annotations

from typing import Any

from ...op import defop
from ...rules.rule import FactorRule, make_rule
from ...types import ArrayType


def _infer(*types: ArrayType, call: Any, rule: str, sizes: tuple[tuple[str, int], ...],
           result_avals: tuple[ArrayType, ...]) -> list[tuple]:
    return [(t.shape, t.dtype, t.weak_type) for t in result_avals]


def _rule(operand_shapes: tuple, result_shapes: tuple, *, rule: str,
          sizes: tuple[tuple[str, int], ...], **_: Any) -> FactorRule:
    return make_rule(rule, operand_shapes, result_shapes, dict(sizes))


def _no_batch(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("Batching rule for 'custom_partitioning' not implemented")


custom_partitioning_p = defop(
    "custom_partitioning",
    doc="Call a function that is split by `rule`, whose compound factors have these `sizes`; "
        "`call` says what runs on blocks.",
    infer=_infer, multiple_results=True, rule=_rule,
    batch=_no_batch)
