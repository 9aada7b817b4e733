"""Arrays whose blocks change places, as functions that tell who can read the blocks where they are.

A `ppermute` over the axis in front moves whole ranges of rows. To copy them costs as much as two or
three elementwise ops; a group that is evaluated block by block (runtime/blocks/frames.py) takes the
rows from their old places instead.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...ir.support.named_tuple import NamedTuple

Function = Callable[[Any], Any]


class Moves(NamedTuple):
    """Of an array cut along its first dimensions into `count` equal blocks: where each one of the
    result is in the operand, for runs of neighbours (source, target, length) that fill it."""

    count: int
    runs: tuple[tuple[int, int, int], ...]

    @property
    def offsets(self) -> list[int]:
        """By block of the result: how many blocks further its source is."""
        found = [0] * self.count
        for source, target, length in self.runs:
            found[target:target + length] = [source - target] * length
        return found


class Permuted:
    """The function of an array that gives it with blocks moved, in memory of its own."""

    __slots__ = ("copied", "moves")

    def __init__(self, copied: Function, moves: Moves) -> None:
        self.copied, self.moves = copied, moves

    def __call__(self, array: Any) -> Any:
        return self.copied(array)


def starts(moves: Iterable[Moves], rows: int) -> list[int]:
    """Where ranges begin that come in one piece from each operand, of `rows` in front of it."""
    return sorted({target * rows // m.count for m in moves for _, target, _ in m.runs})


def source_of(block: tuple, offsets: list[int], rows: int) -> tuple:
    """The rows that go to a block of the result, whose first dimension has `rows` for each offset.

    A block is an index, or a slice within one range that comes in one piece.
    """
    first, *rest = block
    if type(first) is int:
        return (first + rows * offsets[first // rows], *rest)
    shift = rows * offsets[first.start // rows]
    return (slice(first.start + shift, first.stop + shift), *rest)
