"""Which calls of a plan are evaluated together, block by block.

Calls on large arrays that compute element by element, or reduce the last dimensions, treat the rows
of their values apart. A *group* is a set of such calls that are joined by what they read and that
agree in what a row is: their values have the same number of rows in front, and any shape behind.
A softmax over 4096 x 1024 is one group of 4096 rows; a chain of 20 elementwise calls is one whose
rows are single elements. A group is one call of the new plan (runtime/blocks/blocked.py), in which
a value that nobody else reads is never more than a block.

A group is put where the first call that reads one of its results stands, and not later than where
its operands would be held longer than its results.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ..calls.call import Call, new_call, read_counts
from ..calls.permuted import Moves, Permuted
from ..calls.recording import NOT_ASKED, REDUCE, REPEAT, RESHAPE, Kernel, Recording
from .blocked import Blocked

Shape = tuple[int, ...]
LARGE = 1 << 15                 # elements of a value from which blocked evaluation pays
LONGEST_ROW = 1 << 18           # elements; a row must fit into a block
MOST = 256                      # calls of a group
ALONE = 8                       # times LARGE, for a single call to be evaluated in blocks


def rows_of(shape: Shape, rows: int) -> int | None:
    """How many dimensions in front have `rows` elements together; None if there is no such place.

    >>> from shardtrace.runtime.blocks.fusion import rows_of
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

    __slots__ = ("is_view", "known", "most", "recording", "reduces")

    def __init__(self, recording: Recording | None, most: int) -> None:
        self.recording = recording              # None of one ufunc, see `_Elements`
        self.most = most
        self.is_view = recording is not None and recording.is_view
        self.reduces = recording is not None and any([step.axes for step in recording.steps])
        self.known: dict[int, bool] = {}

    def fits(self, rows: int) -> bool:
        found = self.known.get(rows)
        if found is None:
            assert self.recording is not None
            found = self.known[rows] = fits(self.recording, rows)
        return found


class _Elements(Cut):
    """The same of a ufunc of operands that have the result's shape, or none."""

    __slots__ = ("shape",)

    def __init__(self, shape: Shape, most: int) -> None:
        super().__init__(None, most)
        self.shape = shape

    def fits(self, rows: int) -> bool:
        found = self.known.get(rows)
        if found is None:
            place = rows_of(self.shape, rows)
            found = self.known[rows] = place is not None and (
                math.prod(self.shape[place:]) <= LONGEST_ROW)
        return found


def _cut(kernel: Kernel) -> Cut | None:
    """None where the calls that a kernel consists of are not known."""
    if isinstance(kernel.function, np.ufunc):
        *shapes, shape = kernel.shapes
        for given in shapes:
            if given and given != shape:
                break
        else:
            kernel.cut = _Elements(shape, kernel.elements)
            return kernel.cut
    recording = kernel.recording
    kernel.cut = None if recording is None else Cut(recording, natural_rows(recording))
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
    """An open group: its calls, and the slots that they read and write.

    operands: what it reads that it does not compute, with the bytes. outputs: with how often others
    read them. in_order: whether calls came in the plan's order. after: calls that wait for the
    group's results; late: the slots that those write.
    """

    __slots__ = ("after", "calls", "in_order", "late", "operands", "outputs", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.after: list[Call] = []
        self.late: set[int] = set()
        self.calls: list[tuple[int, Call]] = []
        self.in_order = True
        self.operands: dict[int, int] = {}
        self.outputs: dict[int, int] = {}

    def agrees(self, rows: int) -> bool:
        return rows == self.rows or all([_known(c).fits(rows) for _, c in self.calls])


def _known(call: Call) -> Cut:
    """Of a call that is in a group."""
    assert call.kernel is not None and call.kernel.cut is not None
    return call.kernel.cut


def fused(calls: Sequence[Call], outputs: Sequence[int]) -> list[Call]:
    """The calls with groups in place of what they hold; `outputs` are read at the end."""
    for c in calls:
        if c.kernel is not None and is_large(c.kernel):
            return _Fusion(calls, outputs).result()
    return list(calls)


def is_large(kernel: Kernel) -> bool:
    """Does a group begin with what is computed so?"""
    return kernel.elements >= LARGE


class _Fusion:
    """One pass over the calls of a plan. No open group reads what another one computes."""

    def __init__(self, calls: Sequence[Call], outputs: Sequence[int]) -> None:
        self.calls = calls
        self.readers = read_counts(calls, outputs)
        self.outputs = outputs
        self.last: dict[int, int] = {}      # the place of a computed slot's last read, once asked
        self.wide = 4 * LARGE                       # bytes
        self.open: dict[_Group, None] = {}          # in the order in which they began
        self.reading: dict[int, list[_Group]] = {}  # wide slot to the groups that read it
        self.made: dict[int, _Group] = {}           # slot to the open group that computes it
        self.permuted: dict[int, Call] = {}         # slot to the call that moves blocks there
        self.unread: set[int] = set()               # of these, those that nobody reads any more
        self.out: list[Call] = []

    def result(self) -> list[Call]:
        large, made = LARGE, self.made
        for place, call in enumerate(self.calls):
            function, inputs, _, _, eqn, kernel, _ = call
            sources: list[_Group] = []
            if made:
                for s in inputs:
                    if s in made and made[s] not in sources:
                        sources.append(made[s])
                for g in sources:
                    if g.late and not g.late.isdisjoint(inputs):
                        late = [g for g in sources if not g.late.isdisjoint(inputs)]
                        self._close_all(late)
                        sources = [g for g in sources if g not in late]
                        break
            if kernel is not None and (sources or kernel.elements >= large):
                cut = kernel.cut
                if cut is NOT_ASKED:
                    cut = _cut(kernel)
                if cut is not None:
                    if self._join(place, call, cut, kernel, sources):
                        continue
                    if cut.reduces and len(sources) == 1:
                        self._wait(call, sources[0])
                        continue
            if sources:
                self._close_all(sources)
            if self.open and eqn is not None and (kernel is None or kernel.elements >= large):
                self._close_costly(place)
            if type(function) is Permuted:
                self.permuted[call.outputs[0]] = call
            self.out.append(call)
        self._close_all(list(self.open))
        if self.unread:
            return [c for c in self.out if self.unread.isdisjoint(c.outputs)]
        return self.out

    # -- joining -------------------------------------------------------------------------------
    def _wait(self, call: Call, g: _Group) -> None:
        """Let a reduction over rows stand behind the group that it reads, which may go on."""
        g.after.append(call)
        g.late.update(call.outputs)
        self.made.update(dict.fromkeys(call.outputs, g))

    def _join(self, place: int, call: Call, cut: Cut, kernel: Kernel, sources: list[_Group]
              ) -> bool:
        """Put the call into an open group or a new one, if it can be cut into rows."""
        home = None
        candidates = sources
        if self.open and not sources:
            candidates = self._neighbours(call)
        for g in candidates:
            rows = g.rows
            if rows not in cut.known or not cut.known[rows] or len(g.calls) >= MOST:
                rows = self._common(g, cut)
            if rows:
                home = g
                home.rows = rows
                break
        if home is None:
            if kernel.elements < LARGE or cut.is_view or cut.most < 2 or not cut.fits(cut.most):
                return False
            self._close_all(sources)
            home = _Group(cut.most)
            self.open[home] = None
        elif len(sources) > 1:
            for other in sources:
                if other is not home and not self._merge(home, other):
                    self._close_all([other])
        home.calls.append((place, call))
        known, operands = home.outputs, home.operands
        for i, s in enumerate(call[1]):
            if s in known:
                known[s] -= 1
            elif s not in operands:
                operands[s] = n = kernel.sizes[i]
                if n >= self.wide:
                    self.reading.setdefault(s, []).append(home)
        (out,) = call[2]
        known[out] = self.readers[out]
        self.made[out] = home
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
        """Open groups that read a wide slot which the call reads, too; the first ones first."""
        reading, found = self.reading, []
        for s in call[1]:
            if s in reading:
                found += [g for g in reading[s] if g in self.open and g not in found]
        return [g for g in self.open if g in found] if len(found) > 1 else found

    def _merge(self, home: _Group, other: _Group) -> bool:
        rows = min(home.rows, other.rows)
        if (len(home.calls) + len(other.calls) > MOST or not home.agrees(rows)
                or not other.agrees(rows)):
            return False
        home.rows = rows
        home.calls.extend(other.calls)
        home.in_order = False
        home.outputs.update(other.outputs)
        home.after.extend(other.after)
        home.late.update(other.late)
        self.made.update(dict.fromkeys((*other.outputs, *other.late), home))
        for s, n in other.operands.items():
            if s not in home.operands:
                home.operands[s] = n
                if n >= self.wide:
                    self.reading[s].append(home)
        del self.open[other]
        return True

    # -- closing -------------------------------------------------------------------------------
    def _close_costly(self, place: int) -> None:
        """Close groups whose operands, kept for them alone, are larger than their results."""
        if not self.last:
            read = {s: i for i, call in enumerate(self.calls) for s in call[1]}
            read.update(dict.fromkeys(self.outputs, len(self.calls)))
            self.last = {s: read[s] for call in self.calls for s in call[2] if s in read}
        last = self.last
        for g in list(self.open):
            held = sum([n for s, n in g.operands.items() if s in last and last[s] <= place])
            if held and held > sum([
                    c.kernel.sizes[-1] for _, c in g.calls       # type: ignore[union-attr]
                    if g.outputs[c.outputs[0]]]):
                self._close_all([g])

    def _close_all(self, groups: Sequence[_Group]) -> None:
        for g in groups:
            del self.open[g]
            for s in (*g.outputs, *g.late):
                del self.made[s]
            self._emit(g)
            self.out.extend(g.after)

    def _emit(self, g: _Group) -> None:
        """Append the call of a group, and as calls of their own the views of it that others read.
        """
        if not g.in_order:
            g.calls.sort(key=itemgetter(0))
        inside = [c for _, c in g.calls]
        needed = {s for s, count in g.outputs.items() if count}
        views: list[Call] = []
        for call in reversed(inside):
            if call[2][0] in needed and _known(call).is_view:
                views.append(call)
                needed.update(call.inputs)
        if views or not self.readers.keys() >= g.outputs.keys():
            needed.difference_update([c.outputs[0] for c in views])
            read = set(needed)
            left: list[Call] = []
            for call in reversed(inside):
                if call.outputs[0] in read:
                    left.append(call)
                    read.update(call.inputs)
            left.reverse()
            inside = left
        results = [c[2][0] for c in inside if c[2][0] in needed]
        if len(inside) == 1 and _elements(inside[0]) < ALONE * LARGE:
            self.out.extend(inside)
        elif results:
            slots = tuple(g.operands)
            if not g.in_order or len(inside) < len(g.calls):
                slots = tuple(dict.fromkeys([s for c in inside for s in c.inputs
                                             if s not in g.outputs]))
            moved = self._moved(inside, slots, g.rows) if self.permuted else {}
            function: Any = Blocked(inside, slots, results, g.rows, moved)
            if moved:
                slots = tuple([self.permuted[s].inputs[0] if i in moved else s
                               for i, s in enumerate(slots)])
            self.out.append(new_call((function, slots, tuple(results), True, None, None, False)))
        self.out.extend(reversed(views))

    def _moved(self, inside: Sequence[Call], slots: Sequence[int], rows: int) -> dict[int, Moves]:
        """The operands, by number, whose blocks moved and whose rows the group can take from where
        they were; nobody else reads them."""
        found: dict[int, Moves] = {}
        for i, s in enumerate(slots):
            if s not in self.permuted:
                continue
            readers = [c for c in inside if s in c.inputs]
            function: Any = self.permuted[s].function
            moves, count = function.moves, sum([c.inputs.count(s) for c in readers])
            shape = readers[0].kernel.shapes[readers[0].inputs.index(s)]    # type: ignore[union-attr]
            if (self.readers[s] == count and rows % moves.count == 0
                    and rows_of(shape, rows) is not None
                    and all([m.count == moves.count for m in found.values()])):
                found[i] = moves
                self.unread.add(s)
        return found


def _elements(call: Call) -> int:
    assert call.kernel is not None
    return call.kernel.elements
