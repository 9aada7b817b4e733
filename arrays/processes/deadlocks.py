"""The text of a deadlock error: which processes are blocked, and at which collectives."""
from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence

from ...ir.diagnostics.diagnostic import error
from ...ir.diagnostics.errors import ProcessMismatchError
from ...ir.source.location import Location
from ...ir.source.wording import numbered
from ...ir.support.named_tuple import NamedTuple
from .coordinator import Call, Parts


class State(enum.Enum):
    ABSENT = "never started"
    RUNNING = "is computing"
    WAITING = "waits"
    LEFT = "has left its `with` block"
    ENDED = "has ended"
    FAILED = "raised"


class ProcessStatus(NamedTuple):
    """The state of one process, for messages.

    what, parts, processes: of the call in which it waits, as in `Call`. where: the line of that
    call. error: what it raised.
    """
    state: State
    what: str = ""
    parts: Parts = ()
    processes: tuple[int, ...] = ()
    where: str = ""
    error: str = ""


def waiting(call: Call) -> ProcessStatus:
    """The status of a process that waits in this call."""
    line = call.location.source_line().strip()
    return ProcessStatus(State.WAITING, call.what, call.parts, call.processes,
                    f"{call.location}" + (f": {line}" if line else ""))


def failed(e: BaseException) -> ProcessStatus:
    """The status of a process that raised this."""
    text = str(e).split("\n")[0]
    return ProcessStatus(State.FAILED, error=type(e).__name__ + (f": {text}" if text else ""))


def reason(statuses: Sequence[ProcessStatus]) -> str:
    """Why the waiting processes wait in vain."""
    placed = [(i, s) for i, s in enumerate(statuses) if s.state is State.WAITING]
    groups = {p for _, s in placed for p in s.processes}
    for state in (State.FAILED, State.ENDED, State.LEFT, State.ABSENT):
        gone = [i for i in sorted(groups) if statuses[i].state is state]
        if gone:
            verb = {State.FAILED: "raised an exception", State.ABSENT: "never started"}.get(
                state, "ended")
            return f"{named(gone)} {verb}, and others wait for {_pronoun(gone)}"
    (i, first), rest = placed[0], placed[1:]
    if any(s.what != first.what for _, s in rest):
        return "the processes wait at different calls"
    if any(s.processes != first.processes for _, s in rest):
        return f"{first.what} is called for different processes"
    for j, other in rest:
        for (word, mine), (_, its) in zip(first.parts, other.parts, strict=False):
            if mine != its:
                a, b = _first_difference(mine, its)
                return (f"{first.what} is called with different {word}, {a} by process {i} and "
                        f"{b} by process {j}")
    running = [i for i in sorted(groups) if statuses[i].state is State.RUNNING]
    if running:
        return f"{named(running)} did not come in time, and others wait for {_pronoun(running)}"
    return "the processes wait for each other"


def places(statuses: Sequence[ProcessStatus]) -> tuple[str, ...]:
    """For each process a sentence on where it is."""
    out = []
    for i, s in enumerate(statuses):
        text = s.state.value
        if s.state is State.WAITING:
            text = f"waits in {s.what} at {s.where}"
            if len(s.processes) != len(statuses):
                text += f" (with {named(s.processes)})"
        elif s.state is State.FAILED and s.error:
            text = f"raised {s.error}"
        out.append(f"process {i} {text}")
    return tuple(out)


def mismatch(what: str, location: Location, why: str, notes: tuple[str, ...]) -> Exception:
    """The error for a process that waits in vain in a call."""
    return error(
        ProcessMismatchError, f"{what} waits for other processes in vain: {why}",
        code="process-mismatch", location=location, label="this process waits here", notes=notes,
        help="every process must make the same calls on global arrays, in the same order; what "
             "only one of them does must stay with arrays of its own devices")


def named(numbers: Sequence[int]) -> str:
    return numbered("process", "processes", numbers)


def _pronoun(numbers: Sequence[int]) -> str:
    return "it" if len(numbers) == 1 else "them"


def _first_difference(a: str, b: str) -> tuple[str, str]:
    """The first pair of lines that differ in two texts."""
    for x, y in itertools.zip_longest(a.split("\n"), b.split("\n"), fillvalue=""):
        if x != y:
            return x.strip() or "nothing", y.strip() or "nothing"
    return a, b
