"""When each equation of a step runs by the cost model, and on which stream.

The simulation of schedule.py as a list: computation on one stream, collectives on the links that
they use. Of a loop the first iterations are shown, inside one slice for the whole loop.
"""
from __future__ import annotations

from dataclasses import dataclass

from ...ir.facts import BRANCHES
from ...ir.program import Equation, Program
from .schedule import COMPUTATION, Run, State
from .topology import Topology


@dataclass(frozen=True)
class Event:
    """One run of an equation: its stream ("computation", "links 0", "network"), and when, in
    seconds from the beginning of the step.
    """
    stream: str
    equation: Equation
    start: float
    seconds: float


def timeline(program: Program, topology: Topology) -> tuple[Event, ...]:
    """The events of one run of a LOCAL program, by when they start."""
    run = _Written(topology)
    run.program(program, [0.0] * len(program.invars), State())
    return tuple(sorted(run.events, key=lambda e: (e.start, -e.seconds)))


class _Written(Run):
    """A run that records its events. offset: when the innermost body began. muted: inside how many
    branches it is, whose events are left out.
    """
    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self.events: list[Event] = []
        self.offset = 0.0
        self.muted = 0

    def note(self, eqn: Equation, stream: str, start: float, end: float) -> None:
        if not self.muted:
            self.events.append(Event(stream, eqn, self.offset + start, end - start))

    def nested(self, eqn: Equation, at: float, state: State) -> float:
        """As for `Run`; the loop or branch is an event, and so are those of its first iterations.
        """
        start = max([at, state.compute, *state.links.values()])
        branches = BRANCHES in eqn.op.facts
        self.offset += start
        self.muted += branches
        end = super().nested(eqn, at, state)
        self.muted -= branches
        self.offset -= start
        self.note(eqn, COMPUTATION, start, end)
        return end
