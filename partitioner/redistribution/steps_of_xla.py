"""The steps in which XLA brings a value from one layout to another.

XLA knows tiles, not axes: into how many tiles each dimension is cut, which devices hold them, and
how many hold a copy of each. It uses the first of these methods that leads to the target:

    permute         devices exchange tiles of equal shape
    all-to-all      some dimensions give up as many tiles as others lack
    slices          copies cut the dimensions that want more tiles, then tiles are permuted
    all-gather      tiles are permuted so that the axes to be gathered come last
    split           a dimension gives up some of its tiles, as a dimension of its own
    gather one      a dimension with as many tiles as there will be copies is gathered first
    slice one       a whole dimension is cut by all copies first
    in groups       dimensions with equally many tiles before and after are set aside

If none applies, everything is gathered and cut again ("involuntary full rematerialization"). In
this way `P("x", None)` becomes `P(None, ("x", "y"))`, with y cut first:

    P("x", "y")    P(None, ("y", "x"))    P(None, ("x", "y"))
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.retiling import merged_axes
from ...ir.support.caches import cached
from ...ir.types import Entries
from .effects import Move
from .prime_axes import Axes, PrimeAxes

# by dimension the axes of its tiles, then those of copies
Tiles = tuple[Axes, ...]
Path = list[Tiles]          # intermediate layouts, then the target


@cached(4096, "steps of XLA between layouts")
def steps(mesh: AbstractMesh, source: Entries, target: Entries) -> tuple[Entries, ...]:
    """The intermediate layouts, ending with the target; each takes one exchange, or a slice."""
    own = Steps(mesh)
    found, now = [], source
    for tiles in own.path(own.tiles(source), own.tiles(target)) or []:
        (entries,) = merged_axes([tiles[:-1]], mesh.shape)
        if entries != now:
            found.append(entries)
            now = entries
    return (*found[:-1], target) if now != source else ()


def with_copies_of_xla(mesh: AbstractMesh, source: Entries, target: Entries, moves: Sequence[Move],
                       inside: Axes) -> Sequence[Move]:
    """The moves between two layouts with equal tiles, between the devices that XLA pairs.

    It numbers devices by their tile, those with copies of one by their place in the mesh, and each
    sends to the one of its own number: also along axes of copies. inside: the axes of groups of
    devices that exchange among themselves.
    """
    own = Steps(mesh)
    now, end = own.tiles(source), own.tiles(target)
    if [move.kind for move in moves] != ["retile"] or own.counts(now) != own.counts(end):
        return moves
    stay = {*own.primes(inside)}
    pairs = zip(*[[a for a in tiles[-1] if a not in stay] for tiles in (now, end)], strict=False)
    known = {*own.primes(moves[0].axes)}
    more = {a for pair in pairs if pair[0] != pair[1] for a in pair} - known
    axes = {*moves[0].axes, *own.merged(tuple([a for a in own.all if a in more]))}
    return [moves[0]._replace(axes=mesh.sort_axes(axes))]


class Steps(PrimeAxes):
    """Paths between layouts of one mesh."""

    def tiles(self, entries: Entries) -> Tiles:
        """The tiles of a layout."""
        cut = tuple(map(self.primes, entries))
        return (*cut, self.others(cut))

    def counts(self, tiles: Tiles) -> list[int]:
        """The number of tiles of each dimension, and of copies."""
        return [*map(self.count, tiles)]

    def path(self, now: Tiles, end: Tiles, whole: bool = True) -> Path | None:
        """The layouts from one to another. whole: may everything be gathered? None if it has to be.
        """
        if now == end:
            return []
        if not any(now[:-1]):
            return [end]
        if any(end[:-1]):
            if self.counts(now) == self.counts(end):
                return [end]
            attempts: list[Callable[[Tiles, Tiles], Path | None]] = [self._exchanged]
            attempts += [self._sliced, self._sliced_last] if now[-1] else []
            attempts += [self._gathered, self._gathered_first] if end[-1] else []
            for attempt in (*attempts, self._in_parts, self._in_groups):
                found = attempt(now, end)
                if found is not None:
                    return found
            if not whole:
                return None
        found = self._one_by_one(now, [()] * (len(now) - 1))
        return [*found, end] if any(end[:-1]) else found

    def _one_by_one(self, now: Tiles, end: Sequence[Axes]) -> Path:
        """The layouts while one dimension after the other is gathered."""
        found = []
        for d, axes in reversed([*enumerate(end)]):
            if now[d] != axes:
                now = (*now[:d], axes, *now[d + 1:-1], (*now[d][len(axes):], *now[-1]))
                found.append(now)
        return found

    def _exchanged(self, now: Tiles, end: Tiles) -> Path | None:
        """All-to-alls, those of different dimensions together; then tiles change places."""
        have, want = self.counts(now), self.counts(end)
        pairs = _swaps(have, want) if have[-1] == want[-1] else None
        found: Path = []
        together, after = _independent(pairs or [])
        for some in [together, *[[pair] for pair in after]]:
            moved = [*now]
            for d, to in some:
                parts = self.grouped(moved[d], self.count(moved[to]),
                                     self.count(moved[d]) // self.count(moved[to]))
                if parts is None:
                    return None
                moved[d], moved[to] = parts[0], (*moved[to], *parts[1])
            now = tuple(moved)
            found += [now] if some else []
        return None if not pairs else found if now == end else [*found, end]

    def _compatible(self, few: Tiles, many: Tiles) -> Tiles | None:
        """Tiles as many as those of `many` that lie inside those of `few`; None if none do."""
        pairs = [*zip(few[:-1], many[:-1], strict=True)]
        if any([self.count(b) % self.count(a) for a, b in pairs]):
            return None
        if all([b[:len(a)] == a for a, b in pairs]):
            return many
        parts = self.grouped(few[-1], *[self.count(b) // self.count(a) for a, b in pairs],
                             self.count(many[-1]))
        return None if parts is None else (
            *[(*a, *part) for a, part in zip(few[:-1], parts, strict=False)], parts[-1])

    def _sliced(self, now: Tiles, end: Tiles) -> Path | None:
        """Copies are cut; then tiles change places."""
        cut = self._compatible(now, end)
        return None if cut is None else [cut] if cut == end else [cut, end]

    def _gathered(self, now: Tiles, end: Tiles) -> Path | None:
        """Tiles change places; then those are gathered that no longer differ."""
        moved = self._compatible(end, now)
        if moved is None:
            return None
        found = self._one_by_one(moved, end[:-1])
        return found if moved == now else [moved, *found]

    def _sliced_last(self, now: Tiles, end: Tiles) -> Path | None:
        """All dimensions move on by one, and copies cut the last."""
        return None if not self._moved_on(end, now) else self._via(
            now, (*end[:-2], (), end[-2]), end)

    def _gathered_first(self, now: Tiles, end: Tiles) -> Path | None:
        """The last dimension is gathered; then all move on by one."""
        return None if not self._moved_on(now, end) else self._via(
            now, (*now[:-2], (), now[-2]), end)

    def _moved_on(self, tiles: Tiles, copied: Tiles) -> bool:
        """Are these the tiles of the next dimension in another layout, those of the last copies?"""
        return (not tiles[-1] and not copied[0] and bool(tiles[-2])
                and [*tiles[:-1]] == [*copied[1:]])

    def _via(self, now: Tiles, by: Tiles, end: Tiles) -> Path | None:
        """The path through a layout, `by`, if it gets by without gathering everything."""
        first = self.path(now, by)
        rest = None if first is None else self.path(by, end, False)
        return None if rest is None else [*(first or []), *rest]

    def _in_parts(self, now: Tiles, end: Tiles) -> Path | None:
        """One dimension gives or takes a part of its tiles, or what is copied changes first."""
        have, want = self.counts(now), self.counts(end)
        cut = _part(have, want) if have[-1] == want[-1] else None
        if cut is not None:
            return self._split(now, end, *cut)
        for d, axes in enumerate(now[:-1]):
            if axes and end[-1] and have[d] * have[-1] == want[-1]:
                return self._via(now, (*now[:d], (), *now[d + 1:-1], (*axes, *now[-1])), end)
        for d, axes in enumerate(now[:-1]):
            if not axes and end[d] and now[-1] and not end[-1] and want[d] % have[-1] == 0:
                return self._via(now, (*now[:d], now[-1], *now[d + 1:-1], ()), end)
        return None

    def _split(self, now: Tiles, end: Tiles, d: int, n: int) -> Path | None:
        """The path where the n major tiles of a dimension and the minor ones are two dimensions."""
        first, last = (self.grouped(tiles[d], n, self.count(tiles[d]) // n) for tiles in (now, end))
        if first is None or last is None:
            return None
        found = self.path((*now[:d], *first, *now[d + 1:]), (*end[:d], *last, *end[d + 1:]), False)
        return None if found is None else [
            (*tiles[:d], (*tiles[d], *tiles[d + 1]), *tiles[d + 2:]) for tiles in found
            if self.count(tiles[d]) == n or not tiles[d + 1]]

    def _in_groups(self, now: Tiles, end: Tiles) -> Path | None:
        """The path of the other dimensions where some keep their number of tiles; devices that
        share tiles of these exchange among themselves.
        """
        unchanged = [d for d, axes in enumerate(now[:-1])
                if axes and self.count(axes) == self.count(end[d])]
        if not unchanged:
            return None

        def without(tiles: Tiles) -> Tiles:
            return tuple([() if d in unchanged else axes for d, axes in enumerate(tiles)])

        start, stop = without(now), without(end)
        if any([now[d] != end[d] for d in unchanged]):
            # the target counts devices by other groups
            old, new = (sum(tiles, ()) for tiles in (stop, start))
            if [self.count((a,)) for a in old] != [self.count((a,)) for a in new]:
                return None
            other = dict(zip(old, new, strict=True))
            stop = tuple([tuple([other[a] for a in axes]) for axes in stop])
        found = [tuple([now[d] if d in unchanged else axes for d, axes in enumerate(tiles)])
                 for tiles in self.path(start, stop) or []]
        return [*found, *(self.path(found[-1] if found else now, end) or [])]


def _part(have: list[int], want: list[int]) -> tuple[int, int] | None:
    """(dimension, its number of major tiles) where one dimension gives a part of its tiles to one
    that has none, or takes all of another, or has a part of them left.
    """
    pairs = [*zip(have, want, strict=True)][:-1]
    some = [d for d, (a, b) in enumerate(pairs) if a != b and 1 not in (a, b)
            and max(a, b) % min(a, b) == 0]
    for d in some:
        for a, b in pairs:
            if a != b and 1 in (a, b) and have[d] * a == want[d] * b:
                return d, min(have[d], want[d])
    return next(((d, want[d]) for d in some if have[d] > want[d]), None)


def _independent(pairs: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], ...]:
    """(Those pairs of dimensions that share none, the others), by the second dimension; the first
    are none if there would be but one.
    """
    together, after, seen = [], [], set()
    for pair in sorted(pairs, key=lambda pair: pair[1]):
        (after if seen.intersection(pair) else together).append(pair)
        seen.update(pair if pair in together else ())
    return (together, after) if len(together) > 1 else ([], pairs)


def _swaps(have: list[int], want: list[int]) -> list[tuple[int, int]] | None:
    """The pairs of dimensions that exchange their numbers of tiles, one after the other, until all
    are as wanted; None if the numbers are not the same in another order.
    """
    differ = [d for d, (a, b) in enumerate(zip(have, want, strict=True)) if a != b]
    if not differ or sorted([have[d] for d in differ]) != sorted([want[d] for d in differ]):
        return None
    at, left, found = {d: have[d] for d in differ}, {*differ}, []
    order = sorted(differ)
    while left:
        least = min([at[d] for d in left])
        to = [d for d in order if d in left and at[d] == least][-1]
        if want[to] == least:
            left.remove(to)
            continue
        able = [d for d in order if d in left and at[d] == want[to]]
        if least == 1:
            best = next((d for d in able if want[d] != 1), able[-1])
        elif want[to] % least == 0:
            best = next((d for d in able if want[d] == least), able[-1])
        else:
            return None
        found.append((best, to))
        left.remove(to)
        at[best] = least
    return found
