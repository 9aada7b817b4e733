"""Which calls of a plan are evaluated together, block by block.

Calls on large arrays that compute element by element, or reduce the last dimensions, treat the rows
of their values apart. A *group* is a set of such calls that are joined by what they read and that
agree in what a row is: their values have the same number of rows in front, and any shape behind.
A softmax over 4096 x 1024 is one group of 4096 rows; a chain of 20 elementwise calls is one whose
rows are single elements. A group is one call of the new plan (runtime/blocked.py), in which a value
that nobody else reads is never more than a block.

A group is put where the first call that reads one of its results stands, and not later than where
its operands would be held longer than its results.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from .blocked import Blocked, Member
from .calls import Call
from .recording import REDUCE, REPEAT, RESHAPE, Kernel, Recording

Shape = tuple[int, ...]
LARGE = 1 << 15                 # elements of a value from which blocked evaluation pays
LONGEST_ROW = 1 << 18           # elements; a row must fit into a block
MOST = 256                      # calls of a group
ALONE = 8                       # times LARGE, for a single call to be evaluated in blocks


def rows_of(shape: Shape, rows: int) -> int | None:
    """How many dimensions in front have `rows` elements together; None if there is no such place.

    >>> from shardtrace.runtime.fusion import rows_of
    >>> rows_of((4, 8, 3), 32), rows_of((32,), 32), rows_of((4, 6), 8)
    (2, 1, None)
    """
    count = 1
    for d, n in enumerate(shape):
        if count == rows:
            return d
        count *= n
    return len(shape) if count == rows else None


def natural_rows(recording: Recording) -> int:
    """The most rows that a call can be cut into."""
    rows = math.prod(recording.values[recording.result][0])
    for step in recording.steps:
        if step.axes:
            (source,) = step.operands
            rows = math.gcd(rows, math.prod(recording.values[source][0][:min(step.axes)]))
    return rows


class Cut:
    """Into which rows a call can be cut, and what else groups ask of it. most: rows."""

    __slots__ = ("_fits", "is_view", "most", "recording", "reduces")

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.most = natural_rows(recording)
        self.is_view = recording.is_view
        self.reduces = any([step.kind == REDUCE for step in recording.steps])
        self._fits: dict[int, bool] = {}

    def fits(self, rows: int) -> bool:
        found = self._fits.get(rows)
        if found is None:
            found = self._fits[rows] = fits(self.recording, rows)
        return found


def _cut(kernel: Kernel) -> Cut | None:
    """None where the calls that a kernel consists of are not known."""
    if kernel.cut is None and kernel.recording is not None:
        kernel.cut = Cut(kernel.recording)
    return kernel.cut


def fits(recording: Recording, rows: int) -> bool:
    """Does the call treat rows apart, if there are `rows` of them?"""
    if not recording.in_order:
        return False
    values = recording.values
    at: list[int | None] = []
    for i, (shape, _) in enumerate(values):
        place = rows_of(shape, rows)
        if place is None and i >= recording.operands:
            return False
        if place is not None and math.prod(shape[place:]) > LONGEST_ROW:
            return False
        at.append(place)
    for step in recording.steps:
        place = at[step.result]
        shape = values[step.result][0]
        assert place is not None
        for v in step.operands:
            if type(v) is not int or not values[v][0]:
                continue                                        # a scalar
            mine = values[v][0]
            if at[v] is None:       # an operand that is repeated along the rows
                if step.kind in (REDUCE, RESHAPE, REPEAT) or len(mine) != len(shape):
                    return False
            elif step.axes:
                if min(step.axes) < at[v]:  # type: ignore[operator]
                    return False
            elif step.kind == REPEAT or len(mine) == len(shape):
                if mine[:place] != shape[:place]:
                    return False
            elif step.kind != RESHAPE:
                return False
    return True


class _Group:
    """An open group: its calls, and the slots that they read and write."""

    __slots__ = ("after", "calls", "late", "outputs", "reads", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.after: list[Call] = []         # calls that wait for the group's results
        self.late: set[int] = set()         # the slots that those write
        self.calls: list[tuple[int, Call]] = []
        self.outputs: set[int] = set()
        self.reads: set[int] = set()

    def add(self, place: int, call: Call) -> None:
        self.calls.append((place, call))
        self.reads.update(call.inputs)
        self.outputs.update(call.outputs)

    def agrees(self, rows: int) -> bool:
        return rows == self.rows or all([_known(c).fits(rows) for _, c in self.calls])


def _known(call: Call) -> Cut:
    """Of a call that is in a group."""
    assert call.kernel is not None and call.kernel.cut is not None
    return call.kernel.cut


def fused(calls: Sequence[Call], outputs: Sequence[int]) -> list[Call]:
    """The calls with groups in place of what they hold; `outputs` are read at the end."""
    if not any([c.kernel is not None and c.kernel.elements >= LARGE for c in calls]):
        return list(calls)
    return _Fusion(calls, outputs).result()


class _Fusion:
    """One pass over the calls of a plan. No open group reads what another one computes."""

    def __init__(self, calls: Sequence[Call], outputs: Sequence[int]) -> None:
        self.calls = calls
        self.readers: dict[int, int] = {}           # slot to number of reads, results included
        self.last: dict[int, int] = {}              # slot to the place of its last read
        self.bytes: dict[int, int] = {}
        self.computed: set[int] = set()
        readers, last, size = self.readers, self.last, self.bytes
        for place, (_, inputs, written, _, _, kernel, _) in enumerate(calls):
            for s in inputs:
                readers[s] = readers.get(s, 0) + 1
                last[s] = place
            self.computed.update(written)
            if kernel is not None:
                size.update(zip(inputs, kernel.sizes, strict=False))
                size[written[0]] = kernel.sizes[-1]
        for s in outputs:
            readers[s] = readers.get(s, 0) + 1
            last[s] = len(calls)
        self.open: list[_Group] = []
        self.made: dict[int, _Group] = {}           # slot to the open group that computes it
        self.out: list[Call] = []

    def result(self) -> list[Call]:
        large = LARGE
        for place, call in enumerate(self.calls):
            sources = self._sources(call.inputs) if self.made else []
            if sources:
                late = [g for g in sources if g.late and not g.late.isdisjoint(call.inputs)]
                if late:
                    self._close_all(late)
                    sources = [g for g in sources if g not in late]
            kernel = call.kernel
            if kernel is not None and (sources or kernel.elements >= large):
                cut = kernel.cut or _cut(kernel)
                if cut is not None:
                    if self._join(place, call, cut, kernel.elements >= large, sources):
                        continue
                    if cut.reduces and len(sources) == 1:
                        self._wait(call, sources[0])
                        continue
            if sources:
                self._close_all(sources)
            if self.open and call.eqn is not None and (
                    kernel is None or kernel.elements >= large):
                self._close_costly(place)
            self.out.append(call)
        self._close_all(list(self.open))
        return self.out

    def _sources(self, slots: Iterable[int]) -> list[_Group]:
        """The open groups that compute these slots."""
        found: list[_Group] = []
        for s in slots:
            g = self.made.get(s)
            if g is not None and g not in found:
                found.append(g)
        return found

    # -- joining -------------------------------------------------------------------------------
    def _wait(self, call: Call, g: _Group) -> None:
        """Let a reduction over rows stand behind the group that it reads, which may go on."""
        g.after.append(call)
        g.late.update(call.outputs)
        self.made.update(dict.fromkeys(call.outputs, g))

    def _join(self, place: int, call: Call, cut: Cut, is_large: bool, sources: list[_Group]
              ) -> bool:
        """Put the call into an open group or a new one, if it can be cut into rows."""
        home = None
        for g in sources or self._neighbours(call):
            rows = self._common(g, cut)
            if rows:
                home = g
                home.rows = rows
                break
        if home is None:
            if not is_large or cut.is_view or cut.most < 2 or not cut.fits(cut.most):
                return False
            self._close_all(sources)
            home = _Group(cut.most)
            self.open.append(home)
        elif len(sources) > 1:
            for other in sources:
                if other is not home and not self._merge(home, other):
                    self._close_all([other])
        home.add(place, call)
        self.made[call.outputs[0]] = home
        return True

    @staticmethod
    def _common(g: _Group, cut: Cut) -> int:
        """The number of rows for the group with the call; 0 if they do not agree."""
        if len(g.calls) >= MOST:
            return 0
        if cut.fits(g.rows):
            return g.rows
        own = cut.most
        if 2 <= own < g.rows and cut.fits(own) and g.agrees(own):
            return own
        return 0

    def _neighbours(self, call: Call) -> list[_Group]:
        """Open groups that read a large slot that the call reads, too."""
        if not self.open:
            return []
        large = [s for s in call.inputs if self.bytes.get(s, 0) >= 4 * LARGE]
        return [g for g in self.open if not g.reads.isdisjoint(large)]

    def _merge(self, home: _Group, other: _Group) -> bool:
        rows = min(home.rows, other.rows)
        if (len(home.calls) + len(other.calls) > MOST or not home.agrees(rows)
                or not other.agrees(rows)):
            return False
        home.rows = rows
        for place, call in other.calls:
            home.add(place, call)
            self.made.update(dict.fromkeys(call.outputs, home))
        home.after.extend(other.after)
        home.late.update(other.late)
        self.made.update(dict.fromkeys(other.late, home))
        self.open.remove(other)
        return True

    # -- closing -------------------------------------------------------------------------------
    def _close_costly(self, place: int) -> None:
        """Close groups whose operands, kept for them alone, are larger than their results."""
        for g in list(self.open):
            held = sum(self.bytes.get(s, 0) for s in g.reads - g.outputs
                       if self.last[s] <= place and s in self.computed)
            made = sum(self.bytes.get(s, 0) for s in self._needed(g))
            if held > made:
                self._close_all([g])

    def _needed(self, g: _Group) -> list[int]:
        """The slots of a group that others read."""
        inside: dict[int, int] = {}
        for _, call in g.calls:
            for s in call.inputs:
                inside[s] = inside.get(s, 0) + 1
        return [s for _, call in g.calls for s in call.outputs
                if self.readers.get(s, 0) > inside.get(s, 0)]

    def _close_all(self, groups: Sequence[_Group]) -> None:
        for g in groups:
            self.open.remove(g)
            for s in (*g.outputs, *g.late):
                del self.made[s]
            self._emit(g)
            self.out.extend(g.after)

    def _emit(self, g: _Group) -> None:
        """Append the call of a group, and as calls of their own the views of it that others read.
        """
        g.calls.sort(key=itemgetter(0))
        calls = [c for _, c in g.calls]
        needed = set(self._needed(g))
        inside: list[Call] = []
        views: list[Call] = []
        for call in reversed(calls):
            (slot,) = call.outputs
            if slot in needed and _known(call).is_view:
                views.append(call)
                needed.update(call.inputs)
        wanted = needed - {c.outputs[0] for c in views} if views else needed
        results: list[int] = []
        read = set(wanted)
        for call in reversed(calls):
            slot = call.outputs[0]
            if slot in read:
                inside.append(call)
                read.update(call.inputs)
                if slot in wanted:
                    results.append(slot)
        inside.reverse()
        results.reverse()
        if len(inside) == 1 and _elements(inside[0]) < ALONE * LARGE:
            self.out.extend(inside)
        elif results:
            members = []
            operands: dict[int, None] = {}
            made: set[int] = set()
            for _, inputs, (slot,), _, eqn, kernel, _ in inside:
                assert kernel is not None
                members.append(Member(kernel, inputs, slot, eqn))
                for s in inputs:
                    if s not in made:
                        operands[s] = None
                made.add(slot)
            slots = tuple(operands)
            function: Any = Blocked(members, slots, results, g.rows)
            self.out.append(Call(function, slots, tuple(results), True, None))
        self.out.extend(reversed(views))


def _elements(call: Call) -> int:
    assert call.kernel is not None
    return call.kernel.elements
