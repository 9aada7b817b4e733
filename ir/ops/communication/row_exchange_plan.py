"""Plans row exchanges, in which each device receives exactly the rows it lacks.

A source is split over n devices into equal blocks; several sources lie side by side in a device's
block, its *parts*. Each device wants one or more runs of consecutive *places*, of which *pieces*
say what stands there: rows of a part. This covers a concatenation (its result is the places, one
piece for each operand), edges of neighbours, slices and paddings at any offset, and several of
these at once. As with tilings (retiling.py), devices are numpy arrays of coordinates, never listed
one by one.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...support.caches import cached
from ...support.named_tuple import NamedTuple


class Piece(NamedTuple):
    """Places begin to end (not included) are the rows start, start + stride, ... of a part."""
    begin: int
    end: int
    part: int
    start: int
    stride: int


class Wanted(NamedTuple):
    """Device i wants the places (i * step + offset) // apart + (0 .. count - 1); none has what is
    in no piece.
    """
    step: int
    offset: int
    count: int
    pieces: tuple[Piece, ...]
    apart: int = 1


Runs = Iterator[tuple[int, np.ndarray, np.ndarray, int]]


def _runs(devices: int, parts: tuple[int, ...], wanted: tuple[Wanted, ...]) -> Runs:
    """(rows of a block, first row for each device, how many, stride) of each wanted piece."""
    i = np.arange(devices)
    for step, offset, size, pieces, apart in [Wanted(*run) for run in wanted]:
        first = (i * step + offset) // apart
        for begin, end, part, start, stride in pieces:
            low, high = np.maximum(first, begin), np.minimum(first + size, end)
            yield (parts[part], start + (low - begin) * stride, np.maximum(high - low, 0), stride)


def _before(place: np.ndarray, row: np.ndarray, count: np.ndarray, stride: int) -> np.ndarray:
    """How many of the rows row, row + stride, ... come before a place."""
    return np.clip(-(-(place - row) // stride), 0, count)


@cached(4096)
def lacking(devices: int, parts: tuple[int, ...], wanted: tuple[Wanted, ...]) -> int:
    """Rows that the device receives which receives most.

    >>> both_sides = Wanted(9, -4, 9, (Piece(0, 64, 0, 0, 1),))
    >>> lacking(8, (8,), (both_sides,))
    3
    """
    i = np.arange(devices)
    total = np.zeros(devices, np.int64)
    for n, row, count, stride in _runs(devices, parts, wanted):
        own = _before((i + 1) * n, row, count, stride) - _before(i * n, row, count, stride)
        total += count - own
    return int(total.max(initial=0))


@cached(4096)
def sent(devices: int, parts: tuple[int, ...], wanted: tuple[Wanted, ...]) -> int:
    """Rows that the device sends which sends most; one that several lack counts for each.

    >>> both_sides = Wanted(9, -4, 9, (Piece(0, 64, 0, 0, 1),))
    >>> sent(8, (8,), (both_sides,))
    3
    """
    i = np.arange(devices)
    total = np.zeros(devices, np.int64)
    for n, row, count, stride in _runs(devices, parts, wanted):
        lowest, highest = row // n, (row + (count - 1) * stride) // n
        for k in range(int((highest - lowest).max(where=count > 0, initial=-1)) + 1):
            owner = lowest + k
            rows = (_before((owner + 1) * n, row, count, stride)
                    - _before(owner * n, row, count, stride))
            is_sent = (rows > 0) & (owner != i)
            np.add.at(total, owner[is_sent], rows[is_sent])
    return int(total.max(initial=0))


@cached(256)
def sources(devices: int, parts: tuple[int, ...], wanted: tuple[Wanted, ...]
            ) -> tuple[np.ndarray, np.ndarray]:
    """[devices, rows]: the device that has the row wanted there (-1: none), and where it has it in
    its block, the parts one after the other."""
    owners, places = [], []
    offsets = np.cumsum((0, *parts))
    for step, offset, size, pieces, apart in [Wanted(*run) for run in wanted]:
        place = (np.arange(devices)[:, None] * step + offset) // apart + np.arange(size)
        owner = np.full(place.shape, -1)
        where = np.zeros(place.shape, np.int64)
        for begin, end, part, start, stride in pieces:
            here = (place >= begin) & (place < end)
            row = start + (place[here] - begin) * stride
            owner[here], within = np.divmod(row, parts[part])
            where[here] = offsets[part] + within
        owners.append(owner)
        places.append(where)
    return np.concatenate(owners, 1), np.concatenate(places, 1)


def concatenated_rows(devices: int, sizes: Sequence[int]
                      ) -> tuple[tuple[int, ...], tuple[Wanted, ...]]:
    """(parts, wanted) of arrays of these sizes, all split, put one after the other."""
    ends = [sum(sizes[:k + 1]) for k in range(len(sizes))]
    pieces = tuple([Piece(end - n, end, k, 0, 1)
                    for k, (n, end) in enumerate(zip(sizes, ends, strict=True)) if n])
    count = ends[-1] // devices
    return tuple([n // devices for n in sizes]), (Wanted(count, 0, count, pieces),)


def plain(wanted: Sequence[Wanted]) -> tuple[tuple, ...]:
    """As tuples, for the params of an equation; `apart` only where it is not 1."""
    return tuple([(step, offset, count, tuple(map(tuple, pieces)), *[apart] * (apart != 1))
                  for step, offset, count, pieces, apart in wanted])
