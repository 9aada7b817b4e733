"""Rings that are written step by step, as by a loop of Python, written as the body of a loop.

Each step reads the blocks that it has, what the step before made, and what is alike in all steps or
counts them. So equations are told apart by which of a block's stations they depend on; if each
station has the same equations, and their operands are these, one step's equations are the body.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from ...ir.named_tuple import NamedTuple
from ...ir.ops.arithmetic import add_p
from ...ir.ops.collective import ppermute_p
from ...ir.ops.emitting import literal
from ...ir.program import Atom, Equation, Literal, Var
from ..rewrites.equations import of_shape, repeating
from ..rewrites.flatten import FlatProgram

Stations = Sequence[Atom]       # where a block comes by: what it is called in each step


class Loop(NamedTuple):
    """What is asked of the equation of a loop."""
    params: dict[str, Any]
    invars: Sequence[Atom]
    outvars: Sequence[Var]
    location: Any


class Body(NamedTuple):
    """What is asked of its program."""
    invars: Sequence[Var]
    eqns: Sequence[Equation]
    outvars: Sequence[Var]
    consts: Sequence[Any] = ()


class Unrolled(NamedTuple):
    """before: equations that the loop needs. gone: those that it stands for, in the place of
    `last`, before which nobody else reads what they give."""
    loop: Loop
    body: Body
    before: list[Equation]
    gone: set[Equation]
    last: Equation


def unrolled_rings(flat: FlatProgram) -> Iterator[Unrolled]:
    """The rings of a program that could be written as loops."""
    rings = list(_rings(flat))
    if not rings:
        return
    readers: dict[Atom, list[int]] = {}
    for n, e in enumerate(flat.eqns):
        for a in e.invars:
            readers.setdefault(a, []).append(n)
    for ring in rings:
        try:
            yield _Steps(flat, ring, readers).rolled()
        except _Other:
            pass


class _Other(Exception):
    """It is no such ring."""


class _Ring(NamedTuple):
    """What travels together: the stations of each, and what sends it on."""
    count: int
    stations: list[Stations]
    sends: list[list[Equation]]


def _rings(flat: FlatProgram) -> Iterator[_Ring]:
    sends = {e.invars[0]: e for e in flat.eqns if e.op is ppermute_p}
    if not sends:
        return
    place = {e: n for n, e in enumerate(flat.eqns) if e.op is ppermute_p}
    sent = {e.outvars[0] for e in place}
    sizes = flat.program.mesh.shape
    rings: list[_Ring] = []
    for start, e in sends.items():
        axes = e.params["axis_name"]
        if start in sent or any([a not in sizes for a in axes]):
            continue
        way, count = [e], prod([sizes[a] for a in axes])
        while (more := sends.get(way[-1].outvars[0])) is not None and more.use is e.use:
            way.append(more)
        if not count - 1 <= len(way) <= count:
            continue
        stations = [start, *[x.outvars[0] for x in way]]
        last = rings[-1] if rings else None
        if last is not None and last.sends[0][0].use is e.use and (
                len(last.sends[0]) < 2 or place[e] < place[last.sends[0][1]]):
            last.stations.append(stations)
            last.sends.append(way)
        else:
            rings.append(_Ring(count, [stations], [way]))
    yield from rings


class _Steps:
    """The steps of a ring, and the body that they have in common.

    steps: of each step its equations. at: of what they give, step and place among them. carried:
    by place, the parameter for what the step before gave, and what the first step has instead.
    """

    def __init__(self, flat: FlatProgram, ring: _Ring, readers: dict[Atom, list[int]]) -> None:
        self.flat, self.ring, self.readers = flat, ring, readers
        self.steps: list[list[Equation]] = [[] for _ in range(ring.count)]
        self.at: dict[Atom, tuple[int, int]] = {}
        self.step_of: dict[Atom, int] = {a: i for s in ring.stations for i, a in enumerate(s)}
        self.travelling = {s[0]: (s, Var(s[0].aval)) for s in ring.stations}
        self.carried: dict[int, tuple[Var, Atom]] = {}
        self.counters: list[tuple[Var, Atom, Var]] = []
        self.known: dict[tuple[Atom, ...], Atom] = {}
        self.varying: set[Atom] = set()
        self.eqns: list[Equation] = []
        self.before: list[Equation] = []
        self.made: dict[Atom, Equation] = {}

    def rolled(self) -> Unrolled:
        self._tell_apart()
        self.made = {v: e for e in self.flat.eqns for v in e.outvars}
        first, *others = self.steps
        for e, *more in zip(first, *others, strict=True):
            operands = [self._common(x) for x in zip(e.invars, *[m.invars for m in more],
                                                     strict=True)]
            self.eqns.append(e.on(operands, e.outvars))
        return self._finish()

    def _tell_apart(self) -> None:
        """Sort equations by the last station that they depend on."""
        ring, steps, step_of = self.ring, self.steps, self.step_of
        reading = [n for s in ring.stations for n in self.readers[s[0]]
                   if self.flat.eqns[n].op is not ppermute_p]
        if not reading:
            raise _Other
        for e in self.flat.eqns[min(reading):]:
            found = [step_of[a] for a in e.invars if a in step_of]
            if not found or e.op is ppermute_p and e.outvars[0] in step_of:
                continue
            i = max(found)
            if i == ring.count or i == ring.count - 1 and len(steps[i]) == len(steps[i - 1]):
                break
            if len(e.outvars) != 1 or e.op.subprograms or e.op.effect:
                raise _Other
            step_of[e.outvars[0]] = i
            steps[i].append(e)
        if len(steps[0]) > len(steps[-1]):
            self._leave_out_others()
        for i, step in enumerate(steps):
            self.at.update({e.outvars[0]: (i, j) for j, e in enumerate(step)})
        if not steps[0] or len({len(s) for s in steps}) != 1:
            raise _Other
        for each in zip(*steps, strict=True):
            if not _are_alike(each):
                raise _Other

    def _leave_out_others(self) -> None:
        """Let the first step be without what else is made of the first blocks, before it mostly."""
        mine: list[Equation] = []
        wanted = list(self.steps[1])
        for e in reversed(self.steps[0]):
            if wanted and _are_alike((wanted[-1], e)):
                wanted.pop()
                mine.append(e)
            else:
                del self.step_of[e.outvars[0]]
        self.steps[0] = mine[::-1]

    def _common(self, atoms: tuple[Atom, ...]) -> Atom:
        """What the body has for what the steps have."""
        first = atoms[0]
        if all([a is first for a in atoms]):
            if first in self.step_of and first not in self.travelling:
                raise _Other
            return first
        if atoms not in self.known:
            self.known[atoms] = self._told(atoms)
        return self.known[atoms]

    def _told(self, atoms: tuple[Atom, ...]) -> Atom:
        first, places = atoms[0], [self.at.get(a) for a in atoms]
        if atoms[1] in self.step_of and atoms[1] not in self.at:
            stations, var = self.travelling.get(first, ((), first))
            if atoms != tuple(stations[:len(atoms)]):
                raise _Other
            return var
        if places[0] is not None:
            j = places[0][1]
            if places != [(i, j) for i in range(len(atoms))]:
                raise _Other
            return first
        if places[1] is not None:
            j = places[1][1]
            if places[1:] != [(i, j) for i in range(len(atoms) - 1)] or (
                    first in self.step_of and first not in self.travelling):
                raise _Other
            return self._carry(j, first)
        if any([a in self.step_of and a not in self.travelling for a in atoms]):
            raise _Other
        return self._counted(atoms) if type(first) is Literal else self._repeated(atoms)

    def _carry(self, j: int, first: Atom) -> Atom:
        if j not in self.carried:
            t, start = self.steps[0][j].outvars[0].aval, first
            if first.aval.dtype != t.dtype:
                raise _Other
            if first.aval.shape != t.shape:         # a number to begin with
                if first.aval.shape:
                    raise _Other
                start = Var(of_shape(t, t.shape))
                self.before.append(repeating(first, start))
            self.carried[j] = Var(t), start
            self.known[first, j] = first            # type: ignore[index]
        elif (first, j) not in self.known:
            raise _Other
        return self.carried[j][0]

    def _counted(self, atoms: tuple[Atom, ...]) -> Atom:
        t = atoms[0].aval
        if t.shape or any([type(a) is not Literal or a.aval.dtype != t.dtype for a in atoms]):
            raise _Other
        values = [a.val for a in atoms]                         # type: ignore[union-attr]
        if all([x.tobytes() == values[0].tobytes() for x in values]):
            return atoms[0]
        if t.dtype.kind != "i":
            raise _Other
        start, step = int(values[0]), int(values[1]) - int(values[0])
        if values != [start + i * step for i in range(len(values))]:
            raise _Other
        var, after = Var(t), Var(t)
        self.eqns.append(Equation(add_p, (var, literal(step, t.dtype)), (after,), {}))
        self.counters.append((var, atoms[0], after))
        self.varying.add(var)
        return var

    def _repeated(self, atoms: tuple[Atom, ...]) -> Atom:
        """What each step computes from what counts the steps, or all compute alike."""
        makers = [self.made.get(a) for a in atoms]
        eqns = [e for e in makers if e is not None]
        op = eqns[0].op if len(eqns) == len(atoms) and len(eqns[0].outvars) == 1 else None
        if op is None or op.effect or op.subprograms or op.collective is not None or (
                not _are_alike(eqns)):
            raise _Other
        operands = [self._common(x) for x in zip(*[e.invars for e in eqns], strict=True)]
        if self.varying.isdisjoint(operands):
            return atoms[0]
        out = Var(atoms[0].aval)
        self.varying.add(out)
        self.eqns.append(eqns[0].on(operands, (out,)))
        return out

    def _finish(self) -> Unrolled:
        ring, steps, flat = self.ring, self.steps, self.flat
        gone = {e for s in (*steps, *ring.sends) for e in s}
        place = max([n for n, e in enumerate(flat.eqns) if e in gone and e.op is not ppermute_p])
        inside = self.step_of.keys() - {s[0] for s in ring.stations}
        given = inside.intersection(flat.outvars)
        for a in inside:
            for n in self.readers.get(a, ()):
                if flat.eqns[n] not in gone:
                    given.add(a)
                    if n < place:
                        raise _Other
        invars, starts, results, outvars = [], [], [], []

        def carry(var: Var, start: Atom, after: Var, result: Atom | None) -> None:
            invars.append(var)
            starts.append(start)
            results.append(after)
            outvars.append(Var(after.aval) if result is None else result)

        for j, (var, start) in self.carried.items():
            carry(var, start, steps[0][j].outvars[0], steps[-1][j].outvars[0])
        for way, (stations, var) in zip(ring.sends, self.travelling.values(), strict=True):
            after = Var(var.aval)
            self.eqns.append(way[0].on((var,), (after,)))
            carry(var, stations[0], after, stations[ring.count] if (
                len(stations) > ring.count) else None)
        for var, start, after in self.counters:
            carry(var, start, after, None)
        if not given.issubset(outvars):
            raise _Other
        loop = Loop({"num_consts": 0, "num_carry": len(invars), "length": ring.count,
                     "reverse": False}, starts, outvars, steps[0][0].location)
        return Unrolled(loop, Body(invars, self.eqns, results), self.before, gone,
                        flat.eqns[place])


def _are_alike(eqns: Sequence[Equation]) -> bool:
    """Have equations one op, params, and shapes?"""
    first = eqns[0]
    return all([e.op is first.op and e.use is first.use and len(e.invars) == len(first.invars)
                and e.outvars[0].aval.shape == first.outvars[0].aval.shape
                and e.outvars[0].aval.dtype == first.outvars[0].aval.dtype for e in eqns])
