"""Padded values: arrays with rows around theirs so that mesh axes divide a dimension evenly.

63 rows over 8 devices are stored as 64, of which the last is padding, or the first, where a slice
cut one off in front. Most ops compute along with padding as with any other row; one that would see
it (a sum, a sort) is given rows that do not count there. How an op runs on padded operands follows
from its factor rule, or else the op says (`Op.padded`, of a `PaddedContext`).
partitioner/preparation/uneven.py pads programs by this.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .types import Shape

if TYPE_CHECKING:
    from .program import Atom
    from .rules.rule import FactorRule
    from .types import ArrayType


def with_entry(values: Sequence[Any], d: int, value: Any) -> tuple[Any, ...]:
    """The values with another one at position d, as of the dimensions of a padded value."""
    return (*values[:d], value, *values[d + 1:])


class Padded:
    """A value with more rows in some dimensions than it has.

    atom: the array with its padding. shape: without. fills: per dimension the number that its
    padding holds (within what is no padding of other dimensions), None where that is not known.
    lows: per dimension how many rows of padding come first; all others follow the last row. None
    where all rows are equal, so that any of them may be its own.
    """

    __slots__ = ("atom", "fills", "lows", "shape")

    def __init__(self, atom: Atom, shape: Shape, fills: Sequence[Any] | None = None,
                 lows: Sequence[int | None] | None = None) -> None:
        self.atom, self.shape = atom, shape
        self.fills = (None,) * len(shape) if fills is None else tuple(fills)
        self.lows = (0,) * len(shape) if lows is None else tuple(lows)

    def size(self, d: int) -> int:
        """Rows of a dimension, with padding."""
        return self.atom.aval.shape[d]

    @property
    def sizes(self) -> Shape:
        return self.atom.aval.shape

    def is_padded(self, d: int) -> bool:
        return self.size(d) != self.shape[d]

    def holds(self, d: int, value: Any) -> bool:
        """Is all padding of a dimension this number?"""
        return not self.is_padded(d) or same_number(self.fills[d], value)

    def __repr__(self) -> str:
        return f"Padded({self.atom}, {self.shape})"


def same_number(a: Any, b: Any) -> bool:
    """Are two numbers equal bit by bit? None is not a number."""
    if a is None or b is None:
        return False
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


class PaddedContext(Protocol):
    """What an op's `padded` sees of an equation, some of whose operands or results are padded.

    given, params: of the equation, the operands with what padding they have. kept: dimensions of
    which rows that the equation cuts off stay, as padding. result_types: as declared, without
    padding. sizes: per result, the shape that is wanted of it, with padding. rule: the factor rule.
    """
    given: Sequence[Padded]
    params: dict[str, Any]
    kept: Sequence[int]
    result_types: Sequence[ArrayType]
    sizes: Sequence[Shape]
    rule: FactorRule

    @property
    def operands(self) -> Sequence[Padded]:
        """The operands, all padding behind the last row."""
        ...

    def call(self, name: str, *operands: Atom, **params: Any) -> Atom:
        """The one result of another op."""
        ...

    def full(self, value: Any, like: ArrayType) -> Atom:
        """An array of one number, of the shape and dtype of a type."""
        ...

    def number(self, value: Any, like: ArrayType) -> Atom:
        """A constant of rank 0, of the dtype of a type."""
        ...

    def moved(self, x: Padded, d: int, start: int, size: int, fill: Any = 0) -> Atom:
        """`size` rows of an array with its padding, from row `start` on (which may be negative),
        the number `fill` where it has no row."""
        ...

    def masked(self, x: Padded, d: int, value: Any) -> Padded:
        """The value with this number for padding along a dimension."""
        ...

    def resized(self, x: Padded, d: int, size: int, low: int | None = 0) -> Padded:
        """The value with so many rows along a dimension, padding included, of which `low` rows come
        first. None: those that are first now, if it is padded.
        """
        ...

    def cut(self, x: Padded, d: int) -> Padded:
        """The value without padding along a dimension."""
        ...

    def by_factors(self, operands: Sequence[Padded] | None = None, *,
                   params: dict[str, Any] | None = None, safe: Sequence[int] = (),
                   own: Sequence[int] = ()) -> list[Padded]:
        """The results of the op itself, as its factor rule says.

        safe: factors of other kinds along which padding does no harm. own: factors whose dimensions
        are as they should be, operands as given and results in the sizes that are wanted.
        """
        ...
