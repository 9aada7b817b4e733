"""Plans halo exchanges: which rows a device needs from which other, at an offset.

A result position p of a slice, a padding or a window reads the source rows p * stride + offset and
the next ones, `reach` of them. With both split over n devices, device i needs `rows` source rows
from i * step + offset on: the end of one block, perhaps whole ones, and the beginning of another.
Where source rows lie `apart` from each other, as in a transposed convolution, the first of them is
(i * step + offset) // apart, which may be at another place of each block.
`exchange` says which blocks these are, as pieces that lie side by side in a buffer, and who sends
them. Rows that no device has (beyond the ends) are zero in the buffer.
"""
from __future__ import annotations

import numpy as np

from ...support.caches import cached
from ...support.immutable import immutable
from .row_exchange_plan import Piece as Run
from .row_exchange_plan import Wanted, lacking

Pair = tuple[int, int]          # (source, destination)
_MOST_TAKERS = 64               # devices that are compared one by one with the own one


@immutable
class Round:
    """One permutation: its pairs; the first row that device i sends is start[0] * i + start[1].
    turn: in how many steps the takers' rows begin, from the beginning of the block.
    """
    pairs: tuple[Pair, ...]
    start: tuple[int, int]
    turn: int


@immutable
class Piece:
    """Rows of the t-th block that a device needs.

    width: rows in the buffer; at_end: whether they are the end of the block (else its beginning, or
    what starts at a row of its own where there is no other piece). sent: rows that are sent, at the
    same end. own: whether "all", "none" or "some" devices have the piece themselves.
    """
    width: int
    at_end: bool
    sent: int
    own: str
    rounds: tuple[Round, ...]


@immutable
class Halo:
    """Rows `start` to `end` (not included) of the blocks at a distance; at 0, of each its own."""
    distance: int
    start: int
    end: int


@immutable
class Shared:
    """One permutation of rows `start` to `end` (not included) of blocks, each taker of which needs
    some. takers: for the t-th of the blocks that a device needs, the devices that get it here.
    """
    pairs: tuple[Pair, ...]
    start: int
    end: int
    takers: tuple[tuple[int, ...], ...]


@immutable
class Exchange:
    """block, step, offset, rows, apart: as above. pieces side by side; received: rows that a
    device gets.

    aligned: the row of its block at which every device begins, None where that differs. direct:
    the exchange of just the rows that are lacking, where permutations move more; () where they do
    not. halos: side by side in place of pieces, the same of every device. shared: permutations by
    which several pieces come.
    """
    block: int
    step: int
    offset: int
    rows: int
    pieces: tuple[Piece, ...]
    received: int
    aligned: int | None
    direct: tuple[Wanted, ...] = ()
    halos: tuple[Halo, ...] = ()
    apart: int = 1
    shared: tuple[Shared, ...] = ()

    def first(self, device: int) -> int:
        """The first source row that a device needs."""
        return (device * self.step + self.offset) // self.apart

    @property
    def exchanges(self) -> int:
        """How many there are."""
        if self.halos:
            return sum([halo.distance != 0 for halo in self.halos])
        if self.direct:
            return 1
        return len(self.shared) or sum([len(piece.rounds) for piece in self.pieces])


@cached(4096)
def exchange(devices: int, block: int, step: int, offset: int, rows: int,
             valid: tuple[int, int] | None, permutes: bool = False, apart: int = 1
             ) -> Exchange | None:
    """The exchange of `devices` blocks of `block` rows; None where nothing is wanted.

    permutes: by permutations, wherever there are such, even if they move more, as in XLA.

    valid: the source rows that matter, first and last + 1; None where they are a ring, the first
    following on the last. Permutations of edges where they move just the rows that are lacking,
    else the direct exchange. Source: the halo exchanges of GSPMD
    (arXiv:2105.04663, section 3.3.2), with any offset and stride.
    """
    if rows < 1 or block < 1 or step < 0:
        return None
    size = devices * block
    if valid is None:
        turns = range(offset // size, ((devices - 1) * step + offset + rows - 1) // size + 1)
        pieces = tuple([Run(k * size, (k + 1) * size, 0, 0, 1) for k in turns])
    else:
        low, high = max(valid[0], 0), min(valid[1], size)
        pieces = (Run(low, high, 0, low, 1),) if low < high else ()
    if apart > 1:
        wanted = Wanted(step, offset, rows, pieces, apart)
        least = lacking(devices, (block,), (wanted,))
        return Exchange(block, step, offset, rows, (), least, None, (wanted,), (), apart)
    halos = _halos(devices, block, step, offset, rows) if permutes and valid is not None else ()
    if halos:
        moved = sum([h.end - h.start for h in halos if h.distance])
        return Exchange(block, step, offset, rows, (), moved, None, (), halos)
    if permutes and valid is not None and devices <= _MOST_TAKERS:
        return _shared(devices, block, step, offset, rows, valid)
    wanted = Wanted(step, offset, rows, pieces)
    least = lacking(devices, (block,), (wanted,))
    found = _permutations(devices, block, step, offset, rows, valid)
    parted = least and 2 * rows <= block           # others want the rest of what is sent
    if found is not None and (permutes or found.received <= least and not parted
                              or not pieces):
        return found
    return Exchange(block, step, offset, rows, (), least, None, (wanted,))


def _halos(devices: int, block: int, step: int, offset: int, rows: int) -> tuple[Halo, ...]:
    """The rows before, in and after each block, as many as any device lacks; () where that would
    be more than twice what each wants. Source: `ExchangeHaloAndGetValidData` and `ExchangeHalo` of
    XLA's spmd_partitioner_util.cc.
    """
    i = np.arange(devices)
    first = i * step + offset - i * block           # from the beginning of the device's own block
    last = first + rows
    if max(-first.min(), last.max() - block) > 2 * rows:
        return ()
    low, high = int(first.min()), int(last.max())
    before, after = -int(first[1:].min(initial=0)), int(last[:-1].max(initial=block)) - block
    found = []
    for k in range(-(-before // block), 0, -1):
        if -k * block < high:
            found.append(Halo(-k, block - min(before - block * (k - 1), block),
                              block - max(-(k - 1) * block - high, 0)))
    if low < block and high > 0:
        found.append(Halo(0, max(low, 0), min(high, block)))
    for k in range(1 + min(max(low - block, 0), max(after, 0)) // block, -(-after // block) + 1):
        found.append(Halo(k, max(low - k * block, 0), min(after - block * (k - 1), block)))
    return tuple(found)


def _shared(devices: int, block: int, step: int, offset: int, rows: int, valid: tuple[int, int]
            ) -> Exchange | None:
    """By permutations in each of which a device sends at most once. What others need of a device it
    sends in turn, by their place in what is wanted; an end of a block waits where the other end of
    blocks goes. Source: `ExchangeHaloCompact` of XLA's spmd_partitioner_util.cc.
    """
    low, high = max(valid[0], 0), min(valid[1], devices * block)
    firsts = [i * step + offset for i in range(devices)]
    count = max([(n + rows - 1) // block - n // block for n in firsts]) + 1
    waiting: list[list[tuple[int, int, int, int, int, int]]] = [[] for _ in range(devices)]
    for t in range(count):
        for i, n in enumerate(firsts):
            j = n // block + t
            start, end = max(n, j * block, low), min(n + rows, (j + 1) * block, high)
            if start < end and i != j:
                waiting[j].append((start - n, i, start - j * block, end - j * block, t, j))
    for one in waiting:                             # by the place in what is wanted
        one.sort(key=lambda need: need[0])
    rounds: list[list[tuple[int, int, int, int, int, int]]] = []
    while any(waiting):
        sent: list[tuple[int, int, int, int, int, int]] = []
        first, last = block, 0
        for one in waiting:
            if not one:
                continue
            _, i, start, end, *_ = one[0]
            apart = first > end and last == block and start == 0 or \
                last < start and first == 0 and end == block
            if not sent or not apart and all([i != other[1] for other in sent]):
                sent.append(one.pop(0))
                first, last = min(first, start), max(last, end)
        rounds.append(sent)
    found = tuple([Shared(
        tuple([(x[5], x[1]) for x in r]), min([x[2] for x in r]), max([x[3] for x in r]),
        tuple([tuple([x[1] for x in r if x[4] == t]) for t in range(count)])) for r in rounds])
    if not found:
        return None
    return Exchange(block, step, offset, rows, (), sum([r.end - r.start for r in found]), None,
                    shared=found)


def _permutations(devices: int, block: int, step: int, offset: int, rows: int,
                  valid: tuple[int, int] | None) -> Exchange | None:
    """By permutations of the ends of blocks; None where none of this form does it."""
    i = np.arange(devices)
    first = i * step + offset
    home, begin = np.divmod(first, block)
    count = int(((first + rows - 1) // block - home).max()) + 1
    pieces, received = [], 0
    for t in range(count):
        j = home + t
        low, high = np.maximum(first, j * block), np.minimum(first + rows, (j + 1) * block)
        if valid is None:
            j = j % devices
        else:
            low = np.maximum(low, max(valid[0], 0))
            high = np.minimum(high, min(valid[1], devices * block))
        needed = low < high
        away = needed & (j != i)
        here = needed & (j == i)
        if count == 1:
            lengths = np.full(devices, rows)
        elif t == 0:
            lengths = block - begin
        else:
            lengths = np.clip(first + rows - (home + t) * block, 0, block)
        sent = int(lengths[away].max(initial=0))
        start = None if count == 1 else (0, 0 if t else block - sent)
        rounds = _rounds(j[away], i[away], begin[away], step, block, start)
        if rounds is None:
            return None
        own = "all" if here.all() else "some" if here.any() else "none"
        pieces.append(Piece(int(lengths.max()), t == 0 and count > 1, sent, own, rounds))
        received += sent * len(rounds)
    aligned = int(begin[0]) if (begin == begin[0]).all() else None
    return Exchange(block, step, offset, rows, tuple(pieces), received, aligned)


def _rounds(givers: np.ndarray, takers: np.ndarray, begin: np.ndarray, step: int, block: int,
            start: tuple[int, int] | None) -> tuple[Round, ...] | None:
    """Permutations that bring each taker its piece of its giver's block; None if there are none.

    begin: where the piece of each taker begins. start: the same for all, as a line over the
    givers; None if that has to be found.
    """
    if not len(takers):
        return ()
    if len(set(givers.tolist())) == len(givers):
        turn = np.zeros(len(takers), int)
    elif step and block % step == 0:
        turn = begin // step
    else:
        return None
    out = []
    for k in sorted(set(turn.tolist())):
        chosen = turn == k
        sources = givers[chosen]
        if len(set(sources.tolist())) != len(sources):
            return None
        line = start or _line(sources, begin[chosen])
        if line is None:
            return None
        pairs = tuple((int(a), int(b)) for a, b in zip(sources, takers[chosen], strict=True))
        out.append(Round(pairs, line, k))
    return tuple(out)


def _line(x: np.ndarray, y: np.ndarray) -> tuple[int, int] | None:
    """(p, q) with y = p * x + q, in whole numbers."""
    if len(x) == 1 or (y == y[0]).all():
        return 0, int(y[0])
    p, rest = divmod(int(y[1] - y[0]), int(x[1] - x[0]))
    q = int(y[0]) - p * int(x[0])
    return (p, q) if rest == 0 and (p * x + q == y).all() else None
