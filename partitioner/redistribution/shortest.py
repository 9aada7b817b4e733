"""From one tiling to another within the element-counting bound: the shortest sequence of moves.

The bound says what the busiest device must receive (ir/ops/communication/retiling.py), and a direct
exchange always reaches it. So only sequences that reach it are of interest, and a move is followed
only if what it costs and what is then still needed add up to the bound: the search meets few
tilings. Among the sequences found the one with fewest exchanges is taken, of the most usual kinds,
in fewest steps:

    all_slice    each device keeps its own block of a dimension            free
    all_to_all   axes go from the minor end of one dimension to another's  L (n-1)/n
    all_gather   axes leave the minor end of a dimension                   L (n-1)
    retile       any tiling with tiles of the same size                    the bound, at most L

with L the elements of a block before the move. The search sees axes as they are first, and then
cut into parts where sizes of axes divide each other. Where axes leave a dimension that others stay
in, each axis gets a dimension of its own first, by a reshape of blocks (`expanded`).
After "Memory-efficient array redistribution" (arXiv:2112.01075).
"""
from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping

from ...ir.ops.communication.retiling import Tiling, nested, tile_counts
from ...ir.support.caches import cached
from ...ir.support.immutable import immutable
from ...ir.support.named_tuple import NamedTuple

STATES = 300            # tilings that a search visits, for few axes
_ENDS = 16              # retiles that it tries from each
FEW_AXES = 5
STATES_OF_MANY_AXES = 7     # each has many more successors

Sizes = Mapping[str, int]


class Step(NamedTuple):
    """A move between tilings; kind as in the module's table. dim, to_dim: see `Move`."""
    kind: str
    axes: tuple[str, ...]
    dim: int
    to_dim: int
    after: Tiling


@immutable
class Path:
    """Steps from `source`, over dimensions of these sizes. score: (exchanges, retiles, steps)."""
    lengths: tuple[int, ...]
    source: Tiling
    steps: tuple[Step, ...]
    score: tuple[int, int, int]


def states(of_few_axes: int, axes: int) -> int:
    """How many states a search over layouts of so many axes visits."""
    return of_few_axes if axes <= FEW_AXES else STATES_OF_MANY_AXES


@cached(4096)
def shortest(lengths: tuple[int, ...], sizes: tuple[tuple[str, int], ...], source: Tiling,
             target: Tiling) -> Path | None:
    """The best path within the bound, without tiles larger than those of both ends; None if there
    is none.

    lengths: of the dimensions that differ. source, target: without the axes with which both begin.
    """
    size = dict(sizes)
    lacks = _Lacks(lengths, target, size)
    bound = lacks[source]
    cap = max(_tile(lengths, source, size), lacks.tile)
    ticket = itertools.count()
    # (score, with what is still needed at least; ticket; tiling; elements received so far)
    queue: list[tuple] = [((0, 0, 0), next(ticket), source, 0)]
    best: dict[Tiling, tuple[int, int, int]] = {source: (0, 0, 0)}
    came: dict[Tiling, tuple[Tiling, Step]] = {}
    done: set[Tiling] = set()
    most = states(STATES, len(sizes))

    @functools.cache
    def ends(tile: int) -> list[tuple[Tiling, _Lacks]]:
        return [(end, _Lacks(lengths, end, size))
                for end in _ends(lengths, size, tile, source, target)]

    while queue and len(done) < most:
        _, _, state, spent = heapq.heappop(queue)
        if state in done:
            continue
        score = best[state]
        if state == target:
            steps: list[Step] = []
            while state != source:
                state, step = came[state]
                steps.append(step)
            return Path(lengths, source, tuple(reversed(steps)), score)
        done.add(state)
        left = bound - spent
        for cost, kind, axes, dim, to_dim, after in _steps(
                lengths, size, state, source, target, ends, cap, left):
            if cost + lacks[after] > left or after in done:
                continue
            new = (score[0] + (kind != "all_slice"), score[1] + (kind == "retile"
                   and tile_counts(after, size) != tile_counts(state, size)), score[2] + 1)
            if after not in best or new < best[after]:
                best[after] = new
                came[after] = state, Step(kind, axes, dim, to_dim, after)
                least = (new[0] + (lacks[after] > 0), new[1], new[2] + (after != target))
                heapq.heappush(queue, (least, next(ticket), after, spent + cost))
    return None


class _Lacks(dict[Tiling, int]):
    """From a tiling to the elements of its target tile that the busiest device does not have.

    That is `received` of ir/ops/communication/retiling.py for one target. tile: elements of a
    target tile.
    """

    def __init__(self, lengths: tuple[int, ...], target: Tiling, size: Sizes) -> None:
        super().__init__()
        self.size = size
        self.target = self.long(target)
        self.ends = _local(lengths, target, size)
        self.lengths, self.tile = lengths, math.prod(self.ends)

    def long(self, tiling: Tiling) -> Tiling:
        """The tiling without axes of one device."""
        if 1 not in self.size.values():
            return tiling
        return tuple([tuple([a for a in axes if self.size[a] > 1]) for axes in tiling])

    def __missing__(self, tiling: Tiling) -> int:
        size, keeps = self.size, 1
        for n, end, have, want in zip(self.lengths, self.ends, self.long(tiling), self.target,
                                      strict=True):
            if have == want:
                keeps *= end
                continue
            k = min(len(have), len(want))
            if have[:k] != want[:k]:
                keeps = 0
                break
            for a in have:
                n //= size[a]
            keeps *= n if n < end else end
        self[tiling] = found = self.tile - keeps
        return found


def _local(lengths: tuple[int, ...], tiling: Tiling, size: Sizes) -> tuple[int, ...]:
    return tuple([n // k for n, k in zip(lengths, tile_counts(tiling, size), strict=True)])


def _tile(lengths: tuple[int, ...], tiling: Tiling, size: Sizes) -> int:
    return math.prod(_local(lengths, tiling, size))


def _steps(lengths: tuple[int, ...], size: Sizes, state: Tiling, source: Tiling, target: Tiling,
           ends: Callable[[int], list[tuple[Tiling, _Lacks]]], cap: int, most: int
           ) -> Iterator[tuple[int, str, tuple[str, ...], int, int, Tiling]]:
    """The moves from a tiling, as (cost in elements, *fields of a `Step`): those that cost up to
    `most`, to tiles of up to `cap`. ends: the tilings to retile to, by tile size, with what is
    still lacking there.
    """
    used = {a for axes in state for a in axes}
    blocks = _local(lengths, state, size)
    here = math.prod(blocks)
    for a in dict.fromkeys(a for tiling in (target, source) for axes in tiling for a in axes):
        if a not in used:
            for d, axes in enumerate(state):
                if blocks[d] % size[a] == 0:
                    yield 0, "all_slice", (a,), d, -1, (*state[:d], (*axes, a), *state[d + 1:])
    for d, axes in sorted(enumerate(state), key=_minor_axis):
        n = 1
        for k in range(len(axes) - 1, -1, -1):
            moved = axes[k:]
            n *= size[axes[k]]
            if here * (n - 1) // n > most:          # longer ones cost more
                break
            shorter = (*state[:d], axes[:k], *state[d + 1:])
            if here * n <= cap and here * (n - 1) <= most:
                yield here * (n - 1), "all_gather", moved, d, -1, shorter
            for to, block in enumerate(blocks):
                if to != d and block % n == 0:
                    yield (here * (n - 1) // n, "all_to_all", moved, d, to,
                           (*shorter[:to], state[to] + moved, *shorter[to + 1:]))
    for end, lacks in ends(here):
        if end != state and lacks[state] <= most:
            yield lacks[state], "retile", (), -1, -1, end


def _minor_axis(dimension: tuple[int, tuple[str, ...]]) -> tuple[str, ...]:
    """Its minor axis, by which moves that cost the same are in one order for all values."""
    return dimension[1][-1:]


def _ends(lengths: tuple[int, ...], size: Sizes, tile: int, source: Tiling, target: Tiling
          ) -> Iterator[Tiling]:
    """The tilings with tiles of this size from which gathers alone lead to the target."""
    gathered, rest = divmod(_tile(lengths, target, size), tile)
    if rest or not gathered:
        return
    wanted = {a for axes in target for a in axes}
    free = [a for axes in source for a in axes if a not in wanted]
    sets = itertools.islice((some for k in range(len(free) + 1)
                             for some in itertools.combinations(free, k)), _ENDS)
    tries = ((some, dims) for some in sets if math.prod([size[a] for a in some]) == gathered
             for dims in itertools.product(range(len(target)), repeat=len(some)))
    for some, dims in itertools.islice(tries, _ENDS):
        end = tuple((*axes, *(a for a, e in zip(some, dims, strict=True) if e == d))
                    for d, axes in enumerate(target))
        if all(n % c == 0 for n, c in zip(lengths, tile_counts(end, size), strict=True)):
            yield end


# -- a dimension for each axis --------------------------------------------------------------------

def expanded(lengths: tuple[int, ...], size: Sizes, source: Tiling, target: Tiling
             ) -> tuple[tuple[tuple[int, ...], ...], Path] | None:
    """(for each dimension the sizes to split it into, the path over those dimensions).

    Each moving axis then has a dimension of its own and is in no other's way: blocks are cut along
    new axes, exchanged, and gathered along old ones. None if the tilings disagree on the position
    of axes that stay, since no reshape helps then.
    """
    if not nested(source, target, size):
        return None
    old, new = ({a for axes in tiling for a in axes} for tiling in (source, target))
    parts: list[tuple[int, ...]] = []
    before: list[tuple[str, ...]] = []
    after: list[tuple[str, ...]] = []
    for n, have, want in zip(lengths, source, target, strict=True):
        axes = max(have, want, key=len)
        cut = []
        for moves, group in itertools.groupby(axes, lambda a: a in old and a in new):
            whole = tuple(group)
            for some in ([(a,) for a in whole] if moves else [whole]):
                cut.append(math.prod([size[a] for a in some]))
                before.append(some if have else ())
                after.append(some if want else ())
        parts.append((*cut, n // math.prod(cut)))
        before.append(())
        after.append(())
    state = tuple(before)
    steps: list[Step] = []

    def add(kind: str, axes: tuple[str, ...], dim: int, to_dim: int, *changes: tuple) -> None:
        nonlocal state
        for d, now in changes:
            state = (*state[:d], now, *state[d + 1:])
        steps.append(Step(kind, axes, dim, to_dim, state))

    for d, axes in enumerate(after):
        if axes and not old & set(axes):
            add("all_slice", axes, d, -1, (d, axes))
    moving = [(d, after.index(axes)) for d, axes in enumerate(before) if axes and axes in after]
    changes = [(d, ()) for d, _ in moving] + [(to, after[to]) for _, to in moving]
    if len(moving) == 1:
        ((d, to),) = moving
        add("all_to_all", before[d], d, to, *changes)
    elif moving:
        add("retile", (), -1, -1, *changes)
    for d, axes in enumerate(before):
        if axes and not new & set(axes):
            add("all_gather", axes, d, -1, (d, ()))
    path = Path(tuple(n for p in parts for n in p), tuple(before), tuple(steps), (0, 0, 0))
    return tuple(parts), path
