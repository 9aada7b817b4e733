"""Peak memory of one device, from the live ranges of all buffers (live_ranges.py).

At each equation a device holds what is live then. Equations run in the order of the program; plans
of `objective="xla"` in the order of XLA's CPU compiler (order.py). The peak is the allocation of
the whole run, in which results have memory of their own from the start (assignment.py). A
collective holds operand and result at once, and an all-to-all its packed blocks as well. A loop
holds what its body holds in addition to its operands and results; of branches the largest counts.
A rematerialised value is computed twice and has two short live ranges.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....ir.facts import BRANCHES
from ....ir.passes import OBJECTIVE
from ....ir.program import Equation, Program, Var
from ....ir.source.location import UNKNOWN, Location
from ....ir.support.immutable import immutable
from ...policy import OWN, POLICIES
from ..buffers import WRITTEN, buffers
from ..work import bodies
from .assignment import Span, block_of_temporaries
from .live_ranges import ENTRY, EXIT, GIVEN, INSTANTS, LiveRanges
from .order import breadth_first


@immutable
class Held:
    """One buffer at the peak: its name, type, bytes, and where it was made."""
    name: str
    type: str
    nbytes: int
    location: Location = UNKNOWN


@immutable
class Moment:
    """The run of one equation: its op and line, and the bytes that a device holds meanwhile,
    including what the equation needs inside.
    """
    op: str
    location: Location
    nbytes: int


@dataclass(frozen=True)
class Memory:
    """peak_bytes: what a device allocates for a run. argument_bytes, result_bytes: the part of
    it that is arguments and results. location: where the peak is. held: the buffers at the peak,
    the largest first. timeline: what is held while each equation runs, in order.
    """
    peak_bytes: int
    argument_bytes: int
    result_bytes: int
    location: Location
    held: tuple[Held, ...]
    timeline: tuple[Moment, ...] = field(default=(), repr=False, compare=False)


def memory(program: Program, donated: Sequence[bool] = ()) -> Memory:
    """The peak memory of a LOCAL program, which remembers it. donated: for each argument, whether
    results may take its buffer.
    """
    key = ("memory", tuple([i for i, free in enumerate(donated) if free]))
    found = program.memo.get(key)
    if found is None:
        found = program.memo[key] = _memory(program, donated)
    return found


def _memory(program: Program, donated: Sequence[bool]) -> Memory:
    """The memory of a program. Its peak is the larger of two: what is live at the worst equation,
    and the sum of arguments, results with memory of their own, and the block of temporaries.
    donated: for each argument, may a result take its memory?
    """
    name, *_ = program.attributes.get(OBJECTIVE, ("",))
    if POLICIES.get(name, OWN).breadth_first:
        program = breadth_first(program)
    given = dict(zip(program.invars, donated, strict=False))
    timeline: list[Moment] = []
    freed = {v for v, d in given.items() if d}
    ranges = LiveRanges(program, freed, own_results=True)
    spans: list[Span] = [*(b for b in ranges.buffers if not b.given), *ranges.copies]
    most = _peak(ranges, timeline, spans)
    results = {id(v): v.aval.local_nbytes for v in program.outvars}
    peak = max(most.nbytes, held_throughout(program, donated)
               + block_of_temporaries(spans, len(ranges.live)))
    return Memory(peak, sum(v.aval.local_nbytes for v in program.invars),
                  sum(results.values()), most.location, tuple(most.held), tuple(timeline))


def held_throughout(program: Program, donated: Sequence[bool] = ()) -> int:
    """The bytes of arguments and of results with memory of their own, which no peak is below."""
    results = {id(v): v.aval.local_nbytes for v in program.outvars}
    given = zip(program.invars, donated, strict=False)
    own = Counter(results.values()) - Counter([v.aval.local_nbytes for v, free in given if free])
    return sum([v.aval.local_nbytes for v in (*program.invars, *program.constvars)]) + sum(
        [n * count for n, count in own.items()])


@dataclass
class _Peak:
    nbytes: int
    location: Location
    held: list[Held]


_NOTHING = _Peak(0, UNKNOWN, [])


def _peak(ranges: LiveRanges, timeline: list[Moment] | None = None,
          spans: list[Span] | None = None) -> _Peak:
    """The most that is held at once. timeline: gets a moment for each equation. spans: gets what
    their programs hold.
    """
    best, at = _Peak(sum([b.nbytes for b in ranges.buffers if b.given]), UNKNOWN, []), GIVEN
    for i, eqn in enumerate(ranges.program.eqns):
        inside = _inside(eqn) if eqn.op.subprograms else _NOTHING
        first = INSTANTS * i
        live = ranges.live[first:first + INSTANTS]
        most = max(live) + inside.nbytes
        if timeline is not None:
            timeline.append(Moment(eqn.op.name, eqn.location, most))
        if spans is not None:
            left = inside.nbytes
            for size in (*[h.nbytes for h in inside.held], left):
                nbytes = min(size, left)
                left -= nbytes
                spans += [Span(nbytes, first + ENTRY, first + EXIT)] if nbytes else []
        if most > best.nbytes:
            best, at = _Peak(most, eqn.location, inside.held), first + live.index(max(live))
    own = [Held(_label(v, eqn), v.aval.str_short(True), v.aval.local_nbytes,
                eqn.location if eqn else UNKNOWN) for v, eqn in ranges.held_at(at)]
    best.held = sorted((*own, *best.held), key=lambda h: -h.nbytes)
    return best


def _label(v: Var, eqn: Equation | None) -> str:
    """A reader's name for a value: its own, its text, or that of the equation that makes it."""
    if v.name or eqn is None:
        return v.name or "a parameter"
    return eqn.location.text() or f"a result of `{eqn.op.name}`"


def _made_in_place(eqn: Equation, branch: Program) -> set[Var]:
    """The results of a branch that it makes in the buffers of the equation's results: where another
    branch hands an operand through, the buffer holds a copy of that until then.
    """
    handed = {k for body in bodies(eqn) for k, a in enumerate(body.outvars) if a in body.invars}
    return {v for k, v in enumerate(branch.outvars) if isinstance(v, Var) and k not in handed}


def _read_in_kernels(body: Program) -> set[Var]:
    """The parameters of a loop's body that only elementwise operations and reductions read."""
    held = buffers(body, WRITTEN)
    written = {held.of(a) for a in body.outvars}
    for eqn, kind in zip(body.eqns, held.kinds, strict=True):
        if not (kind.elementwise or kind.reduction or kind.bitcast):
            written.update([held.of(a) for a in eqn.invars])
    return {*body.invars} - written


def _inside(eqn: Equation) -> _Peak:
    """The most that the programs of an equation hold beyond its operands."""
    best = _Peak(0, UNKNOWN, [])
    slots = eqn.op.region(eqn).slots if eqn.op.region is not None else None
    for p, body in enumerate(bodies(eqn)):
        given, carried = set(body.invars), set[Var]()
        if slots is not None:
            # each step overwrites the carry; slices that a scan hands to its body are buffers of
            # their own, but where kernels take them out of the stack
            computed = _read_in_kernels(body)
            given = {body.invars[i] for s in slots for q, i in s.inputs
                     if q == p and (not s.stacked or body.invars[i] in computed)}
            carried = {body.invars[i] for s in slots for q, i in s.inputs
                       if q == p and p in [r for r, _ in s.outputs]}
        found = _peak(LiveRanges(body, carried))
        own = sum(v.aval.local_nbytes for v in given)
        if BRANCHES in eqn.op.facts:
            own += sum(v.aval.local_nbytes for v in _made_in_place(eqn, body) - given)
        peak = max(0, found.nbytes - own)
        if peak > best.nbytes:
            names = {v.name for v in given if v.name}
            best = _Peak(peak, found.location, [h for h in found.held if h.name not in names])
    return best
