"""Seconds of one step: computation in program order, collectives overlapped where they can be.

One stream computes, in program order. Every physical link direction of the topology (a torus
dimension, the switch, the network) is a stream of its own; a collective starts when its operands
are ready and its links are free, and runs while the device computes. Readers of its result wait. A
loop is simulated until its iterations take the same time, so that prefetching (of slices of its
inputs) overlaps with the iteration before. A conditional collective counts as run; of the branches
of a `cond` the most expensive counts.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...ir.ops.communication.collective_kinds import Use, each_collective
from ...ir.program import Atom, Equation, Literal, Program
from .buffers import Buffers, buffers
from .links import collective_seconds
from .topology import NETWORK, Topology
from .work import bodies, equation_seconds, trips

COMPUTATION = "computation"
_WARM_UP = 3        # steps of a loop that are simulated one by one


@dataclass(frozen=True)
class Times:
    """Seconds of one run: `step` with overlap; `compute` and `communication` each by itself."""
    step: float
    compute: float
    communication: float

    @property
    def exposed(self) -> float:
        """Seconds in which a device waits for communication."""
        return max(0.0, self.step - self.compute)


class Exchange(Protocol):
    """What is known of a collective: a `Use`, or the record of one."""
    @property
    def equation(self) -> Equation: ...
    @property
    def kind(self) -> str: ...
    @property
    def mesh_axes(self) -> tuple[str, ...]: ...
    @property
    def group_size(self) -> int: ...
    @property
    def operand_bytes(self) -> int: ...
    @property
    def received_bytes(self) -> int: ...


def exchange_seconds(topology: Topology, exchange: Exchange) -> float:
    """Seconds of one run of a collective."""
    eqn = exchange.equation
    pairs = eqn.params.get("perm") if eqn.op.name == "ppermute" else None
    return collective_seconds(topology, exchange.kind, exchange.mesh_axes, exchange.group_size,
                              exchange.operand_bytes, exchange.received_bytes, pairs)


def times(program: Program, topology: Topology) -> Times:
    """The times of a LOCAL program on a topology, which it remembers."""
    key = ("times", topology)
    found = program.memo.get(key)
    if found is None:
        found = program.memo[key] = _times(program, topology)
    return found


def _times(program: Program, topology: Topology) -> Times:
    uses = {id(exchange.equation): exchange for exchange in each_collective(program)}
    run = _Run(topology, uses)
    end = run.program(program, [0.0] * len(program.invars), _State())
    return Times(max([end.clock, end.compute, *end.links.values()]), *run.total(program))


class _State:
    """When each stream is free again. clock: the latest end so far."""

    __slots__ = ("clock", "compute", "links", "ready")

    def __init__(self) -> None:
        self.compute = self.clock = 0.0
        self.links: dict[str, float] = {}
        self.ready: list[float] = []


class _Run:
    def __init__(self, topology: Topology, uses: dict[int, Use]) -> None:
        self.topology, self.uses = topology, uses
        self.seconds: dict[int, float] = {}
        self.totals: dict[int, tuple[float, float]] = {}
        self.bodies: dict[int, tuple[float, float]] = {}

    def cost(self, eqn: Equation, held: Buffers) -> float:
        found = self.seconds.get(id(eqn))
        if found is None:
            exchange = self.uses.get(id(eqn))
            found = self.seconds[id(eqn)] = (
                equation_seconds(eqn, held, self.topology.hardware) if exchange is None
                else exchange_seconds(self.topology, exchange))
        return found

    def note(self, eqn: Equation, stream: str, start: float, end: float) -> None:
        """Called with when an equation runs; see timeline.py."""

    def links(self, exchange: Use) -> list[str]:
        spans = self.topology.spans(exchange.mesh_axes)
        return ["network" if s.dim == NETWORK else f"links {s.dim}" for s in spans] or ["links 0"]

    def program(self, program: Program, given: list[float], state: _State) -> _State:
        """Run a program whose parameters are there at `given`; `ready` are its results."""
        ready: dict[Atom, float] = dict(zip(program.invars, given, strict=True))
        held = buffers(program)
        for eqn in program.eqns:
            at = max([ready.get(a, 0.0) for a in eqn.invars], default=0.0)
            exchange = self.uses.get(id(eqn)) if eqn.op.collective is not None else None
            if exchange is not None:
                names = self.links(exchange)
                start = max([at, *(state.links.get(n, 0.0) for n in names)])
                end = start + self.cost(eqn, held)
                for n in names:
                    state.links[n] = end
                    self.note(eqn, n, start, end)
            elif eqn.op.subprograms and bodies(eqn):
                end = self.nested(eqn, at, state)
            else:
                seconds, end = self.cost(eqn, held), at
                if seconds:
                    state.compute = end = max(at, state.compute) + seconds
                    self.note(eqn, COMPUTATION, end - seconds, end)
            if end > state.clock:
                state.clock = end
            for v in eqn.outvars:
                ready[v] = end
        state.ready = [0.0 if isinstance(a, Literal) else ready.get(a, 0.0)
                       for a in program.outvars]
        return state

    def nested(self, eqn: Equation, at: float, state: _State) -> float:
        """A loop or branch starts when all that it reads is there and every stream is free."""
        start = max([at, state.compute, *state.links.values()])
        found = self.bodies.get(id(eqn))
        if found is None:
            found = self.bodies[id(eqn)] = self.loop(eqn)
        end = start + found[0]
        state.compute = end
        for name in state.links:
            state.links[name] = end
        return end

    def loop(self, eqn: Equation) -> tuple[float, float]:
        nested = bodies(eqn)
        if eqn.op.name == "cond":
            return max(self.program_seconds(p) for p in nested), 0.0
        if eqn.op.name != "scan":
            return sum(self.program_seconds(p) for p in nested) * trips(eqn), 0.0
        body, length = nested[0], trips(eqn)
        first, carried = eqn.params["num_consts"], eqn.params["num_carry"]
        state, ends = _State(), []
        carry = [0.0] * carried
        for _ in range(min(length, _WARM_UP)):
            given = [0.0] * len(body.invars)
            given[first:first + carried] = carry
            state = self.program(body, given, state)
            carry = state.ready[:carried]
            ends.append(max([state.clock, state.compute, *state.links.values()]))
        if length <= len(ends):
            return ends[-1] if ends else 0.0, 0.0
        period = ends[-1] - ends[-2]
        return ends[-1] + period * (length - len(ends)), period

    def program_seconds(self, program: Program) -> float:
        end = self.program(program, [0.0] * len(program.invars), _State())
        return max([end.clock, end.compute, *end.links.values()])

    def total(self, program: Program) -> tuple[float, float]:
        """Seconds of all computation, and of all collectives, one after the other."""
        found = self.totals.get(id(program))
        if found is None:
            computation = communication = 0.0
            held = buffers(program)
            for eqn in program.eqns:
                if eqn.op.subprograms and (nested := bodies(eqn)):
                    each = list(zip(*map(self.total, nested), strict=True))
                    a, b = map(max, each) if eqn.op.name == "cond" else (
                        sum(seconds) * trips(eqn) for seconds in each)
                    computation, communication = computation + a, communication + b
                elif eqn.op.collective is not None:
                    communication += self.cost(eqn, held)
                else:
                    computation += self.cost(eqn, held)
            found = self.totals[id(program)] = computation, communication
        return found
