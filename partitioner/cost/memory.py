"""Peak memory of one device: a sweep over the program with the live range of every buffer.

What is held while each equation runs is what is live then; the peak is what is allocated for the
whole run, in which results have memory of their own from the start (assignment.py). Arguments and
constants are live throughout, unless donated; results from where they are made. A fused value has
no buffer, an elementwise one takes the buffer of an operand that ends there, and a collective holds
operand and result at once, an all-to-all its blocks packed besides. A loop holds what its body
holds besides its operands and results; of branches the largest counts. Rematerialisation is counted
as it stands in the program: values computed twice have two short live ranges.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir.facts import BRANCHES
from ...ir.program import Equation, Literal, Program, Var
from ...ir.source.location import UNKNOWN, Location
from .assignment import Span, block_of_temporaries
from .buffers import WRITTEN, Buffers, buffers, in_place, is_copied, operand_bytes
from .work import bodies


@dataclass(frozen=True)
class Held:
    """One buffer at the peak: its name, type, bytes, and where it was made."""
    name: str
    type: str
    nbytes: int
    location: Location = UNKNOWN


@dataclass(frozen=True)
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

    @property
    def temporary_bytes(self) -> int:
        return max(0, self.peak_bytes - self.argument_bytes)


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
    given = dict(zip(program.invars, donated, strict=False))
    timeline: list[Moment] = []
    spans: list[Span] = []
    sweep = _sweep(program, {v for v, d in given.items() if d}, timeline, spans)
    results = {id(v): v.aval.local_nbytes for v in program.outvars}
    donations = Counter([v.aval.local_nbytes for v, d in given.items() if d])
    own = Counter(results.values()) - donations          # results with memory of their own
    allocated = sum([v.aval.local_nbytes for v in (*program.invars, *program.constvars)])
    allocated += sum([n * count for n, count in own.items()])
    peak = max(sweep.peak, allocated + block_of_temporaries(spans, len(program.eqns)))
    return Memory(peak, sum(v.aval.local_nbytes for v in program.invars),
                  sum(results.values()), sweep.location, tuple(sweep.held), tuple(timeline))


@dataclass
class _Sweep:
    peak: int
    location: Location
    held: list[Held]


def _sweep(program: Program, free: set[Var], timeline: list[Moment] | None = None,
           spans: list[Span] | None = None) -> _Sweep:
    """The peak of a program. free: parameters whose buffers end with their last use. timeline: gets
    a moment for each equation. spans: gets the buffers that are not parameters.
    """
    held = buffers(program, WRITTEN)
    last, moved = _last_uses(program, held)
    alive: dict[Var, tuple[int, Equation | None]] = {}        # bytes, and what made it
    span_of: dict[Var, Span | None] = {}
    for v in (*program.invars, *program.constvars):
        alive[v] = (v.aval.local_nbytes, None)
    pinned = {v for v in alive if v not in free}
    live = sum(n for n, _ in alive.values())
    best = _Sweep(live, UNKNOWN, [])
    at_peak = dict(alive)
    ends: dict[int, list[Var]] = {}
    for v, i in last.items():
        ends.setdefault(i, []).append(v)
    for v in free:
        if v not in last:
            ends.setdefault(0, []).append(v)
    for i, eqn in enumerate(program.eqns):
        ending = [v for v in ends.get(i, ()) if v in alive and v not in pinned]
        made = [v for v in eqn.outvars if v not in held.fused and v not in held.root]
        inside = _inside(eqn)
        copied = [held.of(a) for n, a in enumerate(eqn.invars) if is_copied(eqn, n)]
        copies = sum(v.aval.local_nbytes for v in copied if v in alive and v not in ending)
        if eqn.op.cost.scratch is not None:
            copies += eqn.op.cost.scratch(*operand_bytes(eqn), eqn.types[0], eqn.params)
        if eqn.op.subprograms or in_place(eqn, held.kinds[i].elementwise):
            # a loop writes its carry in place
            for v in made:
                taken = next((u for u in ending if alive[u][0] == v.aval.local_nbytes
                              and (u, i) not in moved), None)
                if taken is not None:
                    live -= alive.pop(taken)[0]
                    ending.remove(taken)
                    span_of[v] = span_of.pop(taken, None)         # None: a parameter's buffer
        for v in made:
            alive[v] = (v.aval.local_nbytes, eqn)
            live += v.aval.local_nbytes
            if spans is not None and v not in span_of:
                spans.append(span := Span(v.aval.local_nbytes, i, len(program.eqns)))
                span_of[v] = span
        if spans is not None and copies + inside.peak:
            spans.append(Span(copies + inside.peak, i, i))
        most = live + copies + inside.peak
        if timeline is not None:
            timeline.append(Moment(eqn.op.name, eqn.location, most))
        if most > best.peak:
            best = _Sweep(most, eqn.location, inside.held)
            at_peak = dict(alive)
        for v in (*ending, *(v for v in made if v not in last)):
            if v in alive:
                live -= alive.pop(v)[0]
                ended = span_of.pop(v, None)
                if ended is not None:
                    ended.end = i
    for a in program.outvars:
        made_for = span_of.get(held.of(a))           # type: ignore[arg-type]
        if made_for is not None:
            made_for.result = True
    own = [Held(_label(v, eqn), v.aval.str_short(True), n, eqn.location if eqn else UNKNOWN)
           for v, (n, eqn) in at_peak.items()]
    best.held = sorted((*own, *best.held), key=lambda h: -h.nbytes)
    return best


def _last_uses(program: Program, held: Buffers) -> tuple[dict[Var, int], set[tuple[Var, int]]]:
    """(last equation that reads each buffer, directly or in a fusion; the pairs (buffer, equation)
    in which elements go to other positions).
    """
    end, root, fused = len(program.eqns), held.root, held.fused
    last: dict[Var, int] = {}
    moved: set[tuple[Var, int]] = set()
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
        for a in eqn.invars:
            if type(a) is Literal:
                continue
            source = root.get(a, a)          # type: ignore[call-overload]
            if moves:
                moved.add((source, at))
            if last.get(source, -1) < at:
                last[source] = at
    return last, moved


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


def _inside(eqn) -> _Sweep:
    """The sweep of what the programs of an equation hold beyond its operands."""
    best = _Sweep(0, UNKNOWN, [])
    slots = eqn.op.region(eqn).slots if eqn.op.region is not None else None
    for p, body in enumerate(bodies(eqn)):
        given, carried = set(body.invars), set[Var]()
        if slots is not None:
            # each step overwrites the carry; slices that a scan hands to its body are buffers of
            # their own
            given = {body.invars[i] for s in slots if not s.stacked for q, i in s.inputs if q == p}
            carried = {body.invars[i] for s in slots for q, i in s.inputs
                       if q == p and p in [r for r, _ in s.outputs]}
        found = _sweep(body, carried)
        own = sum(v.aval.local_nbytes for v in given)
        if BRANCHES in eqn.op.facts:
            own += sum(v.aval.local_nbytes for v in _made_in_place(eqn, body) - given)
        peak = max(0, found.peak - own)
        if peak > best.peak:
            names = {v.name for v in given if v.name}
            best = _Sweep(peak, found.location, [h for h in found.held if h.name not in names])
    return best
