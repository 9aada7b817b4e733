"""Live ranges: from when to when a program holds each of its buffers.

Parameters are held throughout, unless they are donated; results from the equation that computes
them. A fused value has no buffer. What an elementwise equation makes takes over the buffer of an
operand whose live range ends there, and so does what a loop carries; a result of the program has
memory of its own, in which the operand may lie, or another value before it. An equation has three
instants: at `ENTRY` operands are copied into the order in which they are read, or packed; at `RUN`
the equation runs; at `EXIT` its output is copied into the order of its result, or unpacked.
"""
from __future__ import annotations

from collections.abc import Mapping, Set
from itertools import accumulate

from ....ir.facts import TAKEN, UPDATED
from ....ir.program import Atom, Equation, Literal, Program, Var
from ..buffers import WRITTEN, Buffers, buffers
from ..kinds import (
    copies,
    in_place,
    info_of,
    is_flattened,
    is_product,
    operand_bytes,
    reads_as_stored,
)
from .assignment import Span
from .order import BREADTH_FIRST

GIVEN = -1                      # the number of what made a parameter
INSTANTS = 3                    # of an equation:
ENTRY, RUN, EXIT = range(INSTANTS)


class Buffer(Span):
    """given: whether it is a parameter's. values: what it holds in turn, each with the number of
    the equation that makes it.
    """

    __slots__ = ("given", "values")

    def __init__(self, v: Var, made: int, start: int, end: int) -> None:
        super().__init__(v.aval.local_nbytes, start, end)
        self.given, self.values = made == GIVEN, [(made, v)]

    def value_at(self, i: int) -> tuple[int, Var]:
        """What it holds while equation i runs, or is there for, and what makes that."""
        return next((value for value in reversed(self.values) if value[0] <= i), self.values[0])


class LiveRanges:
    """The buffers of a program, in the order in which they are made, their live ranges in instants.

    free: parameters whose buffers end with their last use. own_results: whether results have
    memory of their own, rather than that of what they are made of. copies: what equations hold
    besides, as copies of operands and results. live: for each instant the bytes of all that is held
    then, but for what the programs hold that an equation has.
    """

    def __init__(self, program: Program, free: Set[Var] = frozenset(), own_results: bool = False
                 ) -> None:
        self.program = program
        results = {*program.outvars} if own_results else set[Atom]()
        held = buffers(program, WRITTEN)
        count = len(program.eqns)
        unfinished = _unfinished(program)
        self._last, self._moved = _last_uses(program, held, unfinished)
        self._of: dict[Var, Buffer] = {}
        self._ready = _ready(program, held) if BREADTH_FIRST in program.attributes else []
        self.copies: list[Span] = []
        self._copy_of: dict[tuple[object, ...], Span] = {}          # by value and order
        for v in (*program.invars, *program.constvars):
            if v not in free:
                self._last[v] = count
            self._of[v] = Buffer(v, GIVEN, 0, self._end(v, 0))
        self.buffers = list(self._of.values())
        ending: dict[int, list[Var]] = {}
        for v, i in self._last.items():
            if i < count:
                ending.setdefault(i, []).append(v)
        ordered, self._twice = _wanted(program, held)
        self._written_anew = _written_anew(program, held, unfinished) if unfinished else set()
        written_into = _written_into(program, held)
        zeros: dict[tuple[object, ...], tuple[int, Buffer, int]] = {}
        for i, eqn in enumerate(program.eqns):
            start = INSTANTS * i + self._copy(eqn, i, held, ordered)
            made = [v for v in eqn.outvars if v not in held.fused and v not in held.root]
            stacked = () if eqn.op.region is None else _stacked(eqn)
            if eqn.op.subprograms or in_place(eqn, held.kinds[i].elementwise) and not any(
                    [eqn.outvars[0] in apart for apart in (
                        held.beside, ordered, self._twice, written_into)]):
                if results.isdisjoint(made) or eqn.op.subprograms:
                    self._take_operands(i, [v for v in made if v not in stacked], ending.get(i, []))
                else:
                    start = self._end_before_result(i, made[0], ending.get(i, []))
            for v in made:
                if v not in self._of:
                    self._of[v] = Buffer(v, i, start, self._end(v, i))
                    self.buffers.append(self._of[v])
            for v in stacked:
                self._begin_with_zeros(v, start, zeros)
        self.copies += self._copy_of.values()
        for a in program.outvars:
            made_for = self._of.get(held.of(a))           # type: ignore[arg-type]
            if made_for is not None:
                made_for.result = True
        change = [0] * (INSTANTS * count + INSTANTS + 1)
        for b in (*self.buffers, *self.copies):
            change[b.start] += b.nbytes
            change[b.end + 1] -= b.nbytes
        self.live = list(accumulate(change[:INSTANTS * count]))

    def _end(self, v: Var, i: int) -> int:
        """The last instant of the buffer of a value that equation i makes."""
        return INSTANTS * self._last.get(v, i) + EXIT

    def _take_operands(self, i: int, made: list[Var], ending: list[Var]) -> None:
        """Let results of equation i have the buffers of operands that end there."""
        ends = [u for u in ending if u in self._of and (u, i) not in self._moved]
        for v in made:
            taken = min([u for u in ends if self._of[u].nbytes == v.aval.local_nbytes],
                        key=lambda u: self._of[u].start, default=None)
            if taken is not None:
                ends.remove(taken)
                buffer = self._of[v] = self._of[taken]
                buffer.end = self._end(v, i)
                buffer.values.append((i, v))

    def _end_before_result(self, i: int, v: Var, ending: list[Var]) -> int:
        """Let operands that equation i could overwrite end before its result begins, which has
        memory of its own: either may lie there until then. Returns when it begins.
        """
        for u in ending:
            if (u in self._of and (u, i) not in self._moved
                    and self._of[u].nbytes == v.aval.local_nbytes):
                self._of[u].end = INSTANTS * i + RUN
        return INSTANTS * i + EXIT

    def _copy(self, eqn: Equation, i: int, held: Buffers,
              ordered: Mapping[Var, list[int]]) -> int:
        """Add the copies that equation i makes. Returns at which instant its result is made."""
        entry, cost = INSTANTS * i, eqn.op.cost
        copied = False
        if cost.is_packed or cost.orders is not None:
            ends = self._last.get(eqn.outvars[0], i) if eqn.outvars[0] in held.fused else i
            orders = copies(eqn)
            for n, a in enumerate(eqn.invars):
                v = held.of(a)
                if v not in self._of or not (n in orders or cost.is_packed) or (
                        v in ordered and ordered[v] == orders.get(n)):
                    continue
                buffer, copied = self._of[v], True
                if self._last[v] == ends:
                    buffer.end = entry + ENTRY
                if cost.is_packed:
                    size = eqn.params["axis_size"]
                    self.copies += [Span(buffer.nbytes, entry + ENTRY, entry + RUN, size),
                                    Span(buffer.nbytes, entry + RUN, entry + EXIT, size)]
                    return EXIT
                begin = ENTRY if buffer.given else entry + ENTRY
                if v in self._twice:
                    begin = INSTANTS * buffer.value_at(i)[0]
                elif self._ready and not buffer.given and self._last[v] != ends:
                    made = buffer.value_at(i)[0]
                    begin = INSTANTS * next(
                        (j for j in range(made + 1, i) if self._ready[j] >= made), i)
                copy = self._copy_of.setdefault((v, *orders[n]), Span(buffer.nbytes, begin, begin))
                copy.end = INSTANTS * ends + RUN
        if eqn.op.collective is not None and eqn.op.collective.kind == "reduce-scatter" \
                and BREADTH_FIRST in self.program.attributes:
            self.copies.append(Span(sum(operand_bytes(eqn)[0]), entry + ENTRY, entry + EXIT))
        if cost.scratch is not None:
            nbytes = cost.scratch(*operand_bytes(eqn), eqn.types[0], eqn.params)
            self.copies.append(Span(nbytes, entry + ENTRY, entry + RUN))
        if eqn.outvars and eqn.outvars[0] in self._written_anew:
            for v in {held.of(a) for a in eqn.invars}:
                if v in self._of and self._last[v] == i:
                    self._of[v].end = min(self._of[v].end, entry + RUN)
            self.copies.append(Span(eqn.outvars[0].aval.local_nbytes, entry + RUN, entry + EXIT))
            return EXIT
        return RUN if copied else ENTRY

    def _begin_with_zeros(self, v: Var, start: int,
                          zeros: dict[tuple[object, ...], tuple[int, Buffer, int]]) -> None:
        """Let the last of the results of one type that loops stack begin where the first does:
        XLA makes the zeros in which they are written once, copies them, and writes in them at last.

        zeros: by type, where the first began, the last buffer so far, and where that would begin.
        """
        key = (v.aval.dtype, v.aval.local_shape())
        first, last, own = zeros.get(key, (start, self._of[v], start))
        last.start = own
        self._of[v].start = first
        zeros[key] = (first, self._of[v], start)

    def held_at(self, at: int) -> list[tuple[Var, Equation | None]]:
        """The values that are held at an instant, in the order in which they are made, each with
        the equation that makes it. at: `GIVEN` for before all of them.
        """
        found = sorted([b.value_at(max(at, 0) // INSTANTS) for b in self.buffers
                        if b.start <= max(at, 0) <= b.end and (at > GIVEN or b.given)],
                       key=lambda value: value[0])
        return [(v, None if i == GIVEN else self.program.eqns[i]) for i, v in found]


def _ready(program: Program, held: Buffers) -> list[int]:
    """Behind which equation each one can run, the last that makes what it reads."""
    made: dict[Atom, int] = {}
    found: list[int] = []
    for i, eqn in enumerate(program.eqns):
        found.append(max([made.get(a, GIVEN) for a in eqn.invars], default=GIVEN)
                     + bool(copies(eqn)))
        made.update([(v, found[i] if v in held.fused or v in held.root else i)
                     for v in eqn.outvars])
    return found


def _unfinished(program: Program) -> set[Var]:
    """The results that lie in another order than that of their dimensions, or in parts."""
    return {eqn.outvars[0] for eqn in program.eqns
            if eqn.op.cost.in_parts is not None and eqn.op.cost.in_parts(eqn.types[0], eqn.params)
            or eqn.op.cost.orders is not None and copies(eqn).get(len(eqn.invars))}


def _written_anew(program: Program, held: Buffers, unfinished: set[Var]) -> set[Var]:
    """The unfinished values that are copied: something reads them other than element by element."""
    found = {v for a in program.outvars if (v := held.of(a)) in unfinished}
    for eqn, kind in zip(program.eqns, held.kinds, strict=True):
        if not (kind.bitcast or kind.reads):
            found.update([v for a in eqn.invars if (v := held.of(a)) in unfinished])
    return found


def _stacked(eqn: Equation) -> list[Var]:
    """The results of a loop that have a row of each iteration."""
    assert eqn.op.region is not None
    return [eqn.outvars[slot.result] for slot in eqn.op.region(eqn).slots
            if slot.stacked and slot.result >= 0]


def _written_into(program: Program, held: Buffers) -> set[Var | None]:
    """The values that equations write into, but for results of such: XLA gives what is changed in
    place a buffer that no other value had before.
    """
    writes = [eqn for eqn in program.eqns if UPDATED in eqn.op.facts]
    return {held.of(eqn.invars[0]) for eqn in writes}.difference([e.outvars[0] for e in writes])


def _wanted(program: Program, held: Buffers) -> tuple[dict[Var, list[int]], set[Var]]:
    """What is computed element by element, or looked up, and equations want in another order: (by
    value the order in which it is made, where nothing reads it as it stands; those that XLA makes
    once more from the same operands, so for a product, and as they are, or in another order, for
    others).
    """
    eqns = program.eqns
    wanted: dict[Var, dict[int, list[int]]] = {}                    # by reader: in which order
    for i, eqn in enumerate(eqns):
        for n, order in (copies(eqn) if eqn.op.cost.orders is not None else {}).items():
            v = held.of(eqn.invars[n]) if n < len(eqn.invars) else None
            if v is not None:
                wanted.setdefault(v, {})[i] = order
    if not wanted:
        return {}, set()
    made = {v for eqn, kind in zip(eqns, held.kinds, strict=True)
            if kind.elementwise or TAKEN in eqn.op.facts
            for v in eqn.outvars if v not in held.fused and v not in held.root}
    readers: dict[Var | None, list[tuple[int, int]]] = {v: [] for v in made}
    for i, (eqn, kind) in enumerate(zip(eqns, held.kinds, strict=True)):
        for n, a in enumerate(() if kind.bitcast else eqn.invars):
            readers.get(held.of(a), []).append((i, n))
    results = {held.of(a) for a in program.outvars}
    ordered: dict[Var, list[int]] = {}
    for v, by in wanted.items():
        order, uses = next(iter(by.values())), readers.get(v, ())
        reshaped = any([eqns[i].invars[n].aval.shape != v.aval.shape for i, n in uses])
        if uses and v not in results and ({i for i, _ in uses} == {*by} and len(by) == 1 or (
                not reshaped and all([i in by or reads_as_stored(eqns[i], n, order)
                                      for i, n in uses]))):
            ordered[v] = order
    return ordered, {v for v, by in wanted.items() if len({i for i, _ in readers.get(v, ())}) > 1
                     and any([is_product(eqns[i]) and not info_of(eqns[i]).has_halos
                              for i in by])}


def _last_uses(program: Program, held: Buffers, unfinished: Set[Var]
               ) -> tuple[dict[Var, int], set[tuple[Var, int]]]:
    """(last equation that reads each buffer, directly or in a fusion; the pairs (buffer, equation)
    in which elements go to other positions, or are read at several as if in another shape).
    """
    end, root, fused = len(program.eqns), held.root, held.fused
    last: dict[Var, int] = {}
    again: dict[Var, int] = {}                              # last equation that computes it anew
    moved: set[tuple[Var, int]] = set()
    reshaped: set[tuple[Var, int]] = set()
    reads: dict[int, list[Var]] = {}
    elsewhere = {held.of(a) for a in program.outvars}       # than in products
    flattened = {v for eqn in program.eqns for v in eqn.outvars[:1] if is_flattened(eqn)}
    for a in program.outvars:
        source = held.of(a)
        if source is not None:
            last[source] = end
    for i in reversed(range(end)):
        eqn, at, moves = program.eqns[i], i, held.kinds[i].rearranged
        if eqn.outvars:
            v = eqn.outvars[0]
            if v in root:
                continue
            if v in fused and len(eqn.outvars) == 1:
                at = last.get(v, i)
                moves = moves or (v, at) in moved
            at = max(at, again.get(v, at))
        for a in eqn.invars:
            if type(a) is Literal:
                continue
            source = root.get(a, a)          # type: ignore[call-overload]
            if moves or source in unfinished:
                moved.add((source, at))
            if (source, i) in held.again:
                again[source] = max(at, again.get(source, at))
                continue
            if source not in fused:
                if source in flattened or a.aval.shape != source.aval.shape:
                    reshaped.add((source, at))
                reads.setdefault(at, []).append(source)
                if not is_product(eqn):
                    elsewhere.add(source)
            if last.get(source, -1) < at:
                last[source] = at
    return last, moved.union([(v, at) for v, at in reshaped if len(reads[at]) > 1
                              or not elsewhere.isdisjoint(program.eqns[at].outvars)])
