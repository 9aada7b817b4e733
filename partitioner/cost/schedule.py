"""Seconds of one step: computation in program order, collectives overlapped where they can be.

One stream computes, in program order. Every physical link direction of the topology (a torus
dimension, the switch, the network) is a stream of its own; a collective starts when its operands
are ready and its links are free, and runs while the device computes. Readers of its result wait. A
loop is simulated until its iterations take the same time, so that prefetching (of slices of its
inputs) overlaps with the iteration before. A conditional collective counts as run; of the branches
of a `cond` the most expensive counts.
"""
from __future__ import annotations

import math
from typing import Protocol

from ...ir.facts import BRANCHES
from ...ir.ops.communication.collective_kinds import collective_of
from ...ir.ops.control.trips import trips
from ...ir.program import Atom, Equation, Literal, Program
from ...ir.support.caches import in_memo
from ...ir.support.immutable import immutable
from ...ir.support.named_tuple import NamedTuple
from ..regions import has_region, region_of
from .kernels import kernels
from .links import collective_seconds
from .topology import NETWORK, Topology
from .work import bodies, equation_seconds

COMPUTATION = "computation"
_WARM_UP = 3        # steps of a loop that are simulated one by one


@immutable
class Times:
    """Seconds of one run: `step` with overlap; `compute` and `communication` each on their own."""
    step: float
    compute: float
    communication: float

    @property
    def exposed(self) -> float:
        """Seconds in which a device waits for communication."""
        return max(0.0, self.step - self.compute)

    @property
    def mean(self) -> float:
        """By which programs are compared: the geometric mean of the step with overlap and without.
        """
        return math.sqrt(self.step * (self.compute + self.communication))


class Exchange(Protocol):
    """What is needed of a collective: a `Use`, or the record of one."""
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
    """Seconds of one run of a collective. Where parts of blocks go to several devices, one kernel
    packs them and another puts them in place.
    """
    eqn = exchange.equation
    collective = eqn.op.collective
    packing = 2 if collective is not None and collective.sent is not None else 0
    return packing * topology.hardware.kernel + collective_seconds(
        topology, exchange.kind, exchange.mesh_axes, exchange.group_size, exchange.operand_bytes,
        exchange.received_bytes, eqn.params.get("perm"))


@in_memo
def times(program: Program, topology: Topology) -> Times:
    """The times of a LOCAL program on a topology, which it remembers."""
    return Times(Run(topology).program_seconds(program), *totals(program, topology))


def mean_beside(program: Program, other: Program, topology: Topology) -> float:
    """The `Times.mean` of a LOCAL program that differs from another one in its exchanges alone: its
    computation takes as long as there, so that kernels are found once for several such programs.
    """
    if program is other:
        return times(program, topology).mean
    known, costs = _costs(other, topology), _Costs([], {})
    number = {id(eqn): n for n, eqn in enumerate(other.eqns)}
    for n, eqn in enumerate(program.eqns):
        at = number.get(id(eqn), -1)
        if at < 0 and (exchange := collective_of(eqn)) is not None:
            _add_exchange(costs, n, exchange, topology)
            continue
        costs.seconds.append(known.seconds[at])
        if at in known.links:
            costs.links[n] = known.links[at]
    one_by_one = sum(totals(other, topology)) + sum(costs.seconds) - sum(known.seconds)
    return math.sqrt(Run(topology).program_seconds(program, costs) * one_by_one)


@in_memo
def totals(program: Program, topology: Topology) -> tuple[float, float]:
    """Seconds of all computation and of all collectives of a LOCAL program, without overlap."""
    computation = communication = 0.0
    costs = _costs(program, topology)
    for n, (eqn, seconds) in enumerate(zip(program.eqns, costs.seconds, strict=True)):
        if eqn.op.subprograms and (nested := bodies(eqn)):
            each = list(zip(*[totals(p, topology) for p in nested], strict=True))
            a, b = map(max, each) if BRANCHES in eqn.op.facts else (
                sum(one) * trips(eqn) for one in each)
            computation, communication = computation + a, communication + b
        elif n in costs.links:
            communication += seconds
        else:
            computation += seconds
    return computation, communication


class _Costs(NamedTuple):
    """seconds: of each equation of a program. links: for each collective, by its number, the links
    that it uses.
    """
    seconds: list[float]
    links: dict[int, list[str]]


@in_memo
def _costs(program: Program, topology: Topology) -> _Costs:
    """The seconds of each equation, and the links of each collective."""
    device = topology.hardware
    grouped = kernels(program, device.keeps_rows)
    found = _Costs([], {})
    for n, eqn in enumerate(program.eqns):
        exchange = None if eqn.op.collective is None else collective_of(eqn)
        if exchange is None:
            found.seconds.append(equation_seconds(eqn, grouped, device))
            continue
        _add_exchange(found, n, exchange, topology)
    return found


def _add_exchange(costs: _Costs, n: int, exchange: Exchange, topology: Topology) -> None:
    """Add equation n, an exchange."""
    costs.seconds.append(exchange_seconds(topology, exchange))
    spans = topology.spans(exchange.mesh_axes)
    costs.links[n] = ["network" if s.dim == NETWORK else f"links {s.dim}"
                      for s in spans] or ["links 0"]


class State:
    """When each stream is free again. clock: the latest end so far."""

    __slots__ = ("clock", "compute", "links", "ready")

    def __init__(self) -> None:
        self.compute = self.clock = 0.0
        self.links: dict[str, float] = {}
        self.ready: list[float] = []


class Run:
    """One run of programs, equation by equation."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.bodies: dict[int, float] = {}

    def note(self, eqn: Equation, stream: str, start: float, end: float) -> None:
        """Called with the start and end of an equation; see timeline.py."""

    def program(self, program: Program, given: list[float], state: State,
                costs: _Costs | None = None) -> State:
        """Run a program whose parameters are ready at the times `given`; `ready` of the state has
        those of its results. costs: those of its equations, if they are known.
        """
        ready: dict[Atom, float] = dict(zip(program.invars, given, strict=True))
        costs = costs or _costs(program, self.topology)
        for n, (eqn, seconds) in enumerate(zip(program.eqns, costs.seconds, strict=True)):
            end = 0.0
            for a in eqn.invars:
                if a in ready and ready[a] > end:
                    end = ready[a]
            if n in costs.links:
                start = max([end, *(state.links.get(name, 0.0) for name in costs.links[n])])
                end = start + seconds
                for name in costs.links[n]:
                    state.links[name] = end
                    self.note(eqn, name, start, end)
            elif seconds:
                state.compute = end = max(end, state.compute) + seconds
                self.note(eqn, COMPUTATION, end - seconds, end)
            elif eqn.op.subprograms and bodies(eqn):
                end = self.nested(eqn, end, state)
            if end > state.clock:
                state.clock = end
            for v in eqn.outvars:
                ready[v] = end
        state.ready = [0.0 if isinstance(a, Literal) else ready.get(a, 0.0)
                       for a in program.outvars]
        return state

    def nested(self, eqn: Equation, at: float, state: State) -> float:
        """Run a loop or branch, which starts when all that it reads is ready and every stream is
        free. Returns its end.
        """
        start = max([at, state.compute, *state.links.values()])
        found = self.bodies.get(id(eqn))
        if found is None:
            found = self.bodies[id(eqn)] = self.loop(eqn)
        end = start + found
        state.compute = end
        for name in state.links:
            state.links[name] = end
        return end

    def loop(self, eqn: Equation) -> float:
        """The seconds of a loop, call or conditional. A loop is run for a few iterations, until the
        overlap between them is steady; the remaining ones take as long as the last of these.
        """
        nested = bodies(eqn)
        if BRANCHES in eqn.op.facts:
            return max(self.program_seconds(p) for p in nested)
        if not has_region(eqn) or len(nested) > 1:
            return sum(self.program_seconds(p) for p in nested) * trips(eqn)
        body, length = nested[0], trips(eqn)
        carries = [(slot.inputs[0][1], slot.outputs[0][1]) for slot in region_of(eqn).slots
                   if slot.inputs and slot.outputs]
        state, ends, given = State(), [], [0.0] * len(body.invars)
        for _ in range(min(length, _WARM_UP)):
            state = self.program(body, given, state)
            for entry, result in carries:
                given[entry] = state.ready[result]
            ends.append(max([state.clock, state.compute, *state.links.values()]))
        if length <= len(ends):
            return ends[-1] if ends else 0.0
        return ends[-1] + (ends[-1] - ends[-2]) * (length - len(ends))

    def program_seconds(self, program: Program, costs: _Costs | None = None) -> float:
        end = self.program(program, [0.0] * len(program.invars), State(), costs)
        return max([end.clock, end.compute, *end.links.values()])
