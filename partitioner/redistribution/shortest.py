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
    queue: list[tuple] = [((0, 0, 0), next(ticket), source, 0, None)]
    best: dict[Tiling, tuple[int, int, int]] = {source: (0, 0, 0)}
    came: dict[Tiling, tuple[Tiling, Step]] = {}
    done: set[Tiling] = set()
    most = states(STATES, len(sizes))

    @functools.cache
    def ends(tile: int) -> list[tuple[Tiling, _Lacks]]:
        return [(end, _Lacks(lengths, end, size))
                for end in _ends(lengths, size, tile, source, target)]

    while queue and len(done) < most:
        score, _, state, spent, _ = heapq.heappop(queue)
        if state in done:
            continue
        if state == target:
            steps: list[Step] = []
            while state != source:
                state, step = came[state]
                steps.append(step)
            return Path(lengths, source, tuple(reversed(steps)), score)
        done.add(state)
        for step, cost in _steps(lengths, size, state, source, target, ends, cap, bound - spent):
            after = step.after
            if after in done or spent + cost + lacks[after] > bound:
                continue
            new = (score[0] + (step.kind != "all_slice"), score[1] + (step.kind == "retile"
                   and tile_counts(after, size) != tile_counts(state, size)), score[2] + 1)
            if new < best.get(after, (math.inf,)):
                best[after], came[after] = new, (state, step)
                heapq.heappush(queue, (new, next(ticket), after, spent + cost, None))
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
           ) -> Iterator[tuple[Step, int]]:
    """The moves from a tiling, each with its cost in elements, up to `most`, to tiles of up to
    `cap`. ends: the tilings to retile to, by tile size, with what is still lacking there.
    """
    used = {a for axes in state for a in axes}
    counts = tile_counts(state, size)
    here = math.prod([n // k for n, k in zip(lengths, counts, strict=True)])

    def with_dim(base: Tiling, d: int, axes: tuple[str, ...]) -> Tiling:
        return (*base[:d], axes, *base[d + 1:])

    for a in dict.fromkeys(a for tiling in (target, source) for axes in tiling for a in axes):
        if a not in used:
            for d, axes in enumerate(state):
                if lengths[d] % (counts[d] * size[a]) == 0:
                    yield Step("all_slice", (a,), d, -1, with_dim(state, d, (*axes, a))), 0
    for d, axes in enumerate(state):
        for k in range(1, len(axes) + 1):
            moved, n = axes[-k:], math.prod([size[a] for a in axes[-k:]])
            if here * (n - 1) // n > most:          # longer ones cost more
                break
            shorter = with_dim(state, d, axes[:-k])
            if here * n <= cap and here * (n - 1) <= most:
                yield Step("all_gather", moved, d, -1, shorter), here * (n - 1)
            for to in range(len(state)):
                if to != d and lengths[to] % (counts[to] * n) == 0:
                    after = with_dim(shorter, to, state[to] + moved)
                    yield Step("all_to_all", moved, d, to, after), here * (n - 1) // n
    for end, lacks in ends(here):
        if end != state and lacks[state] <= most:
            yield Step("retile", (), -1, -1, end), lacks[state]


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
