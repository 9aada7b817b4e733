"""The derivative rules of ops that hold programs: a registry, by op name.

Ops of ir/ops declare `jvp` and `transpose` themselves. Those that call, repeat or choose programs
need the transformations of this package, so their rules are registered here by the module that has
them (nested/calls.py for `jit`, nested/loops.py for `scan`, solves.py for `custom_linear_solve`).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...ir.support.immutable import immutable


class PartialEvaluation(Protocol):
    """The interpreter under which `split` rules run: known operands compute, others are recorded.

    linear: the builder of the part that waits for the unknown operands.
    """
    outer: Any
    linear: Any

    def is_unknown(self, x: Any) -> bool: ...


@immutable
class CallRule:
    """Rules of one op.

    jvp: (operands, tangents, params) -> (results, their tangents); tangents are None where zero.
    split: (evaluation, operands, params) -> results, for an equation with some unknown operands:
      binds what can be computed now, and gives `evaluation.linear.process(op, operands, params)`
      what cannot; None: the whole equation waits.
    transpose: (cts, operands, params) -> cotangents; cts are None where zero, the operands in which
      the equation is linear are `LinearOperand`, the answer has None for the others.
    """
    jvp: Callable[[Sequence[Any], Sequence[Any], dict[str, Any]], tuple[list[Any], list[Any]]]
    split: Callable[[PartialEvaluation, Sequence[Any], dict[str, Any]], list[Any]] | None = None
    transpose: Callable[[Sequence[Any], Sequence[Any], dict[str, Any]], list[Any]] | None = None


CALL_RULES: dict[str, CallRule] = {}


def register(name: str, **rules: Any) -> None:
    """Enter the rules of the op `name`."""
    CALL_RULES[name] = CallRule(**rules)
