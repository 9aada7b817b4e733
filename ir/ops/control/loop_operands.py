"""Which operands and results of a loop are constants, carries and items: for whatever reads or
writes a `scan` or `while`.

    consts, carries, items = scan_operands(eqn.params).split(eqn.invars)
    last, stacks = scan_operands(eqn.params).results(eqn.outvars)

`split` takes a value for each operand, or for each parameter of the body, in their order.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...support.named_tuple import NamedTuple

T = TypeVar("T")


class ScanOperands(NamedTuple):
    """How many operands of a scan its body closes over, and how many it carries; the others are
    arrays of which each iteration gets an item.
    """
    consts: int
    carries: int

    @property
    def first_item(self) -> int:
        """The position of the first array that is iterated over."""
        return self.consts + self.carries

    def split(self, values: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
        """(what the body closes over, what is carried, what is iterated over)."""
        first, end = self.consts, self.consts + self.carries
        return values[:first], values[first:end], values[end:]

    def results(self, values: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
        """(what is carried, what is stacked) of results of the scan or of its body."""
        return values[:self.carries], values[self.carries:]


class WhileOperands(NamedTuple):
    """How many operands of a `while` its test closes over, and how many its body; the others are
    carried.
    """
    tests: int
    bodies: int

    def split(self, values: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
        """(what the test closes over, what the body closes over, what is carried)."""
        first, end = self.tests, self.tests + self.bodies
        return values[:first], values[first:end], values[end:]


# Traces ask for them so often that a call of Python's less is worth it.
_scan: Callable[[tuple], ScanOperands] = functools.partial(tuple.__new__, ScanOperands)
_while: Callable[[tuple], WhileOperands] = functools.partial(tuple.__new__, WhileOperands)


def scan_operands(params: Mapping[str, Any]) -> ScanOperands:
    """Of a scan with these params."""
    return _scan((params["num_consts"], params["num_carry"]))


def scan_params(consts: int, carries: int) -> dict[str, int]:
    """The params of a scan with so many."""
    return {"num_consts": consts, "num_carry": carries}


def while_operands(params: Mapping[str, Any]) -> WhileOperands:
    """Of a `while` with these params."""
    return _while((params["cond_nconsts"], params["body_nconsts"]))


def while_params(tests: int, bodies: int) -> dict[str, int]:
    """The params of a `while` with so many."""
    return {"cond_nconsts": tests, "body_nconsts": bodies}
