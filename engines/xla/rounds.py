"""Exchanges as rounds of permutations: in a round every device sends and receives at most once.

`schedule` assigns messages to rounds; all messages of a round have one shape. Where starting
several rounds would take longer than sending more, one all-to-all is used instead. What a device
sends in a round, and where it puts what it receives, is in tables over the members of a group, in
which the program looks up its row by `axis_index`.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.ops.communication.retiling import (
    Tiling,
    coordinates,
    place,
    retiled_shape,
    tile_pieces,
)
from ...ir.ops.communication.row_exchange_plan import sources
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Shape

ROUND = 1 << 16         # bytes that take as long as starting one more round, at least
MOST = 1 << 12          # pieces sent besides: they are listed in the text


class Message(NamedTuple):
    """From member `source` to member `target`: a block of this shape, which begins there and is
    put here."""
    source: int
    target: int
    shape: Shape
    there: Any
    here: Any


def schedule(messages: Sequence[Message], size: int) -> list[list[Message]]:
    """The messages in rounds, those first that go equally far around the group."""
    rounds: list[tuple[Shape, set[int], set[int], list[Message]]] = []
    for message in sorted(messages, key=lambda m: (
            m.shape, (m.target - m.source) % size, m.source)):
        free = next((r for r in rounds if r[0] == message.shape and message.source not in r[1]
                     and message.target not in r[2]), None)
        if free is None:
            free = message.shape, set(), set(), []
            rounds.append(free)
        free[1].add(message.source)
        free[2].add(message.target)
        free[3].append(message)
    return [held for *_, held in rounds]


# -- tiles ----------------------------------------------------------------------------------------

class Round(NamedTuple):
    """pairs: (source, target), () where everybody copies its own. shape: of what is sent. there,
    here: [members, dimensions], where it begins. receives: [members], whether one receives."""
    pairs: tuple[tuple[int, int], ...]
    shape: Shape
    there: np.ndarray
    here: np.ndarray
    receives: np.ndarray


class OneExchange(NamedTuple):
    """One piece from everybody to everybody. there: [senders, receivers, dimensions], where it
    begins; here: [receivers, senders, dimensions], where it is put; receives: [receivers, senders],
    whether it is one that belongs there.
    """
    shape: Shape
    there: np.ndarray
    here: np.ndarray
    receives: np.ndarray


def retile_rounds(shape: Shape, axes: Sequence[str], axis_sizes: Sequence[int], source: Tiling,
                  target: Tiling, itemsize: int = 0) -> tuple[Shape, list[Round] | OneExchange]:
    """The shape of a new tile, and the rounds in which it is put together. itemsize: bytes of an
    element, for one all-to-all where that takes less time.
    """
    size = dict(zip(axes, axis_sizes, strict=True))
    count = int(np.prod(axis_sizes))
    own: list[Message] = []
    sent: list[Message] = []
    for i in range(count):
        at = coordinates(i, axes, size)
        for where, there, here in tile_pieces(shape, source, target, axes, size, at):
            s = place(axes, where, size)
            message = Message(s, i, tuple([x.stop - x.start for x in there]),
                              [x.start for x in there], [x.start for x in here])
            (own if s == i else sent).append(message)
    new = retiled_shape(shape, source, target, size)
    between = schedule(sent, count)
    if itemsize and sent and _is_one_each((*own, *sent)) and one_exchange_is_faster(
            len(between), count - len(between), itemsize * math.prod(sent[0].shape)):
        return new, _one_exchange((*own, *sent), count, len(shape))
    rounds = [_round((), held, count, len(shape)) for held in schedule(own, count)]
    rounds += [_round(tuple([(m.source, m.target) for m in held]), held, count, len(shape))
               for held in between]
    return new, [r for r in rounds if 0 not in r.shape]


def one_exchange_is_faster(rounds: int, more: int, nbytes: int) -> bool:
    """Does one all-to-all, which sends `more` pieces of so many bytes, take less time than rounds?
    """
    return rounds > 1 and more <= MOST and more * nbytes <= ROUND * (rounds - 1)


def _is_one_each(messages: Sequence[Message]) -> bool:
    """Are all messages of one shape, and is there one at most from one member to another?"""
    return len({m.shape for m in messages}) == 1 and (
        len({(m.source, m.target) for m in messages}) == len(messages))


def _one_exchange(messages: Sequence[Message], count: int, rank: int) -> OneExchange:
    there, here = np.zeros((2, count, count, rank), np.int64)
    receives = np.zeros((count, count), bool)
    for m in messages:
        there[m.source, m.target], here[m.target, m.source] = m.there, m.here
        receives[m.target, m.source] = True
    return OneExchange(messages[0].shape, there, here, receives)


def _round(pairs: tuple, held: list[Message], count: int, rank: int) -> Round:
    """The tables of a round: what each member sends, where it puts what it receives, and whether it
    receives anything.
    """
    there, here = np.zeros((2, count, rank), np.int64)
    receives = np.zeros(count, bool)
    for m in held:
        there[m.source], here[m.target], receives[m.target] = m.there, m.here, True
    first = held[0]
    idle = np.ones(count, bool)                  # who sends nothing may as well send the same rows
    idle[[m.source for m in held]] = False
    there[idle] = first.there
    here[~receives] = first.here
    return Round(pairs, first.shape, there, here, receives)


# -- rows -----------------------------------------------------------------------------------------

class RowRound(NamedTuple):
    """pairs: (source, target), () where as many rows are for each member, in their order. rows:
    [members, count], what each sends of its block.
    """
    pairs: tuple[tuple[int, int], ...]
    rows: np.ndarray


class RowPlan(NamedTuple):
    """How wanted rows come together: what arrives in the rounds is appended to a device's own
    block; the rows wanted are then at `places` [members, rows] (-1: zeros) of that.

    runs: the same as (buffer, starts of the members, length), where all members take as many rows
    of the same buffers after each other: buffer 0 is the own block, k what round k - 1 brought.
    """
    rounds: list[RowRound]
    places: np.ndarray
    runs: list[tuple[int, np.ndarray, int]] | None


def row_rounds(size: int, parts: tuple[int, ...], wanted: tuple, nbytes: int = 0) -> RowPlan:
    """The plan of an `exchange_rows`. nbytes: of a row, for one all-to-all where that takes less
    time.
    """
    owner, where = sources(size, parts, wanted)
    own = sum(parts)
    messages = []
    for i in range(size):
        for s in np.unique(owner[i][owner[i] >= 0]).tolist():
            if s != i:
                rows = np.unique(where[i][owner[i] == s])
                messages.append(Message(s, i, (len(rows),), rows, None))
    rounds = schedule(messages, size)
    begin = np.cumsum([own, *(held[0].shape[0] for held in rounds)])
    width = max([m.shape[0] for m in messages], default=0)
    if nbytes and one_exchange_is_faster(len(rounds), own + size * width - int(begin[-1]), nbytes):
        found, silent = [_rows_in_one(messages, size, width)], [set()]
        begin = np.array([own, own + size * width])
        starts = {(m.source, m.target): own + m.source * width for m in messages}
    else:
        found = [_row_round(held, size) for held in rounds]
        silent = [{*range(size)} - {m.target for m in held} for held in rounds]
        starts = {(m.source, m.target): int(begin[k])
                  for k, held in enumerate(rounds) for m in held}
    places = np.where(owner == np.arange(size)[:, None], where, -1)
    for m in messages:
        from_source = owner[m.target] == m.source
        places[m.target][from_source] = starts[m.source, m.target] + np.searchsorted(
            m.there, where[m.target][from_source])
    return RowPlan(found, places, _runs(places, begin, silent))


def _row_round(held: Sequence[Message], size: int) -> RowRound:
    rows = np.tile(held[0].there, (size, 1))     # who sends nothing may as well send the same rows
    for m in held:
        rows[m.source] = m.there
    return RowRound(tuple([(m.source, m.target) for m in held]), rows)


def _rows_in_one(messages: Sequence[Message], size: int, width: int) -> RowRound:
    """One all-to-all, in which everybody sends `width` rows to each."""
    rows = np.zeros((size, size * width), np.int64)
    for m in messages:
        first = m.target * width
        rows[m.source, first:first + m.shape[0]] = m.there
    return RowRound((), rows)


def _runs(places: np.ndarray, begin: np.ndarray, silent: list[set[int]]
          ) -> list[tuple[int, np.ndarray, int]] | None:
    """Columns cut where some member's rows do not follow each other; None if members differ in the
    buffer they take. Who receives nothing in a round has zeros there (ppermute)."""
    size, count = places.shape
    if not count:
        return []
    buffer = np.searchsorted(begin, places, "right")             # of -1: 0, as of own rows
    cuts = {0, count}
    zero = places < 0
    for i in range(size):
        steps = (np.diff(places[i]) != 1) & ~(zero[i][1:] & zero[i][:-1])
        steps |= np.diff(buffer[i]) != 0
        cuts.update((np.flatnonzero(steps) + 1).tolist())
    runs = []
    for low, high in itertools.pairwise(sorted(cuts)):
        used = {int(buffer[i, low]) for i in range(size) if not zero[i, low]}
        empty = [i for i in range(size) if zero[i, low]]
        if len(used) != 1:
            return None
        (k,) = used
        if empty and (k == 0 or not set(empty) <= silent[k - 1]):
            return None
        base = 0 if k == 0 else int(begin[k - 1])
        starts = np.where(zero[:, low], 0, places[:, low] - base)
        runs.append((k, starts, high - low))
    return runs if len(runs) <= 4 + 2 * len(begin) else None
