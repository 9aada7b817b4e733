"""What values are on each device while blocks travel (passing/followed.py)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.named_tuple import NamedTuple
from ...ir.program import Atom, Equation, Literal, Var
from ...ir.types import ArrayType


class Moved(NamedTuple):
    """Device d has what device `source[d]` has of `root`."""
    root: Atom
    source: np.ndarray


class Block(NamedTuple):
    """Device d has, of its own `root`, `size` along a dimension, from `start[d]` on."""
    root: Atom
    dim: int
    start: np.ndarray
    size: int


class Chosen(NamedTuple):
    """What a device has of a value where `where` says so, and zeros elsewhere."""
    value: Any
    where: np.ndarray


class Zeros(NamedTuple):
    """Zeros, on all devices."""


class Items(NamedTuple):
    """What the iterations of a loop give, or what it iterates over."""
    values: Sequence[Any]


class Term(NamedTuple):
    """What is added up or put together: the product of two operands, or one operand as it is.

    product: an equation that makes such a product; None for no product. order: in which it has the
    dimensions of the product; None for their own.
    """
    product: Equation | None
    operands: tuple[Any, ...]
    aval: ArrayType
    order: tuple[int, ...] | None = None


class Sum(NamedTuple):
    """before + term. before: None for nothing."""
    before: Any
    term: Term


class Sent(NamedTuple):
    """Device d has the sum that device `source[d]` has."""
    before: Any
    source: np.ndarray


class Put(NamedTuple):
    """before, where device d has written the term along a dimension from `start[d]` on.

    blank: nothing but zeros was there before the first such term. added: the term was added to what
    was there.
    """
    before: Any
    term: Term
    dim: int
    start: np.ndarray
    blank: bool
    added: bool = False


ZEROS = Zeros()


def number(value: Any) -> np.ndarray | None:
    """Known integers, one for each device or one for all."""
    if type(value) is np.ndarray:
        return value
    if type(value) is Literal and not value.aval.shape and value.aval.dtype.kind in "iub":
        return np.array([value.val])
    return None


def term(value: Any, aval: ArrayType) -> Term | None:
    """The value as something to add up; None if it is not one."""
    if type(value) is Term:
        return value
    if isinstance(value, (Var, Moved, Block, Zeros)):
        return Term(None, (value,), aval)
    return None
