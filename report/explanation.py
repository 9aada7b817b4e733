"""An explanation: every collective of a partitioned program with its line, reason, cost and remedy.

It is data first (`collectives`, totals); `table()`, `str()`, `to_dict()` and `_repr_html_` render
the same for people and programs. Suggestions are searched on first use.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..ir.diagnostics.location import Location
from ..partitioner.choice.comparisons import Alternative
from ..partitioner.collectives import CollectiveRecord, collectives
from ..partitioner.cost.figures import Figures, figures
from ..partitioner.cost.memory import Memory
from ..partitioner.cost.schedule import Times, use_seconds
from ..partitioner.cost.timeline import Event, timeline
from ..partitioner.cost.topology import Topology
from ..partitioner.pipeline import Partitioned
from . import render
from .advice.candidates import Candidates
from .advice.suggestions import Found, Search, Subject, Suggestion
from .advice.warnings import Waste, warnings_of
from .bounds import reshard_bound
from .gaps import Gap, gaps
from .reasons.causes import Asked, Cause, Path
from .reasons.explain_collective import Reasons


class ExplainedCollective:
    """One collective of an explanation.

    kind, mesh_axes, group_size, received_bytes (of the busiest device, in one run), count (runs,
    loops multiplied), source (the user's line, with `.file` and `.line`) as of `CollectiveRecord`.
    time: seconds of one run on the chosen hardware. reason: why it is there, with names and lines;
    paths: the ways of its axes from the annotations, as data. lower_bound: the least bytes that
    this change of layout moves in one run.
    """

    __slots__ = ("_explanation", "_suggestions", "_vetoes", "cause", "lower_bound", "paths",
                 "reason", "record", "time")

    def __init__(self, explanation: Explanation, record: CollectiveRecord, cause: Cause,
                 seconds: float, bound: int) -> None:
        self._explanation, self.record, self.cause = explanation, record, cause
        self.time, self.lower_bound = seconds, bound
        self.reason, self.paths = str(cause), cause.paths
        self._suggestions: tuple[Suggestion, ...] | None = None
        self._vetoes: tuple[str, ...] | None = None

    @property
    def kind(self) -> str:
        return self.record.kind

    @property
    def reason_kind(self) -> str:
        """"asked", "needed" or "chosen", as of `CollectiveRecord`."""
        return self.record.reason_kind

    @property
    def alternative(self) -> Alternative | None:
        """Of one that was chosen: the best plan without it, and its price in bytes."""
        return self.cause.alternative

    @property
    def asked_by(self) -> Asked | None:
        """Of one that was asked for: the user's expression and its place."""
        return self.cause.asked_by

    @property
    def verdict(self) -> str:
        """The kind in a sentence: who asked for it, by which rule it is needed, or than what it is
        cheaper, and by how much.
        """
        return self.cause.verdict

    @property
    def mesh_axes(self) -> tuple[str, ...]:
        return self.record.mesh_axes

    @property
    def group_size(self) -> int:
        return self.record.group_size

    @property
    def operand_bytes(self) -> int:
        return self.record.operand_bytes

    @property
    def received_bytes(self) -> int:
        return self.record.received_bytes

    @property
    def count(self) -> int:
        return self.record.count

    @property
    def source(self) -> Location:
        return self.cause.asked or self.record.source

    @property
    def total_bytes(self) -> int:
        """Bytes received over all runs."""
        return self.record.total

    @property
    def total_time(self) -> float:
        """Seconds over all runs, as if alone."""
        return self.time * self.count

    @property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """What would avoid it, best first; each was partitioned and costed as a whole."""
        if self._suggestions is None:
            self._suggestions = self._explanation._search(self).suggestions
        return self._suggestions

    @property
    def search(self) -> Found:
        """The suggestions, with how many candidates there were and how many of them were tried."""
        return self._explanation._search(self)

    @property
    def vetoes(self) -> tuple[str, ...]:
        """Layouts that would have needed no exchange, each with what forbade it."""
        if self._vetoes is None:
            self._vetoes = self._explanation.reasons.vetoes(self.cause)
        return self._vetoes

    def excerpt(self) -> str:
        """The user's line with a caret under the expression."""
        return render.excerpt(self.source)

    def to_dict(self, suggestions: bool = True) -> dict[str, Any]:
        """Everything as plain data."""
        found: dict[str, Any] = {
            "kind": self.kind, "mesh_axes": list(map(str, self.mesh_axes)),
            "group_size": self.group_size, "received_bytes": self.received_bytes,
            "count": self.count, "time": self.time, "lower_bound": self.lower_bound,
            "source": {"file": self.source.file, "line": self.source.line,
                       "column": self.source.column + 1, "text": self.source.source_line().strip()},
            "reason": self.reason, "reason_kind": self.reason_kind, "verdict": self.verdict,
            "alternative": None if self.alternative is None else self.alternative.to_dict(),
            "asked_by": None if self.asked_by is None else {
                "text": self.asked_by.text, "file": self.asked_by.location.file,
                "line": self.asked_by.location.line},
            "paths": [_path(p) for p in self.paths],
            "vetoes": list(self.vetoes)}
        if suggestions:
            found["suggestions"] = [s.to_dict() for s in self.suggestions]
        return found

    def __repr__(self) -> str:
        return (f"<{self.kind} over {', '.join(map(str, self.mesh_axes))}: "
                f"{self.received_bytes:,} B x {self.count}, {self.source}>")


def _path(path: Path) -> dict[str, Any]:
    return {"axis": path.axis, "dimension": path.dim, "value": path.value, "from": path.root,
            "line": path.root_location.line,
            "through": [{"op": name, "line": at.line} for name, at in path.steps]}


class Explanation:
    """What a partitioned program exchanges, why, what it costs, and what would avoid it.

    collectives: in program order. topology: the hardware and where the mesh lies on it. figures:
    the totals. lower_bound: bytes that the program's changes of layout move at least; gap: received
    bytes over that (1.0: nothing to gain without other layouts).
    """

    def __init__(self, subject: Subject, topology: Topology, name: str = "",
                 trials: int | None = None) -> None:
        self.subject, self.topology, self.trials = subject, topology, trials
        self.partitioned: Partitioned = subject.partitioned
        local = self.partitioned.local
        self.name = name or local.name
        self.figures: Figures = figures(local, topology, subject.donated)
        self.reasons = Reasons(self.partitioned)
        self.collectives: tuple[ExplainedCollective, ...] = tuple(
            self._explained(r) for r in collectives(local))
        self._found: Search | None = None
        self._warnings: tuple[Waste, ...] | None = None

    def _explained(self, record: CollectiveRecord) -> ExplainedCollective:
        cause = self.reasons.cause(record)
        bound = record.received_bytes
        if cause.move is not None:
            before, after = cause.move.invars[0].aval, cause.move.outvars[0].aval
            bound = min(bound, reshard_bound(before, after))
        return ExplainedCollective(self, record, cause, use_seconds(self.topology, record),
                                   bound)

    def _search(self, c: ExplainedCollective) -> Found:
        if self._found is None:
            self._found = Search(self.subject, self.topology, self.figures,
                                 Candidates(self.partitioned, self.reasons), self.trials)
        return self._found.suggestions(c.record, c.cause)

    # -- totals ----------------------------------------------------------------------------------

    @property
    def received_bytes(self) -> int:
        """Bytes that the busiest device receives in one run."""
        return self.figures.received_bytes

    @property
    def times(self) -> Times:
        return self.figures.times

    @property
    def time(self) -> float:
        """Seconds of one run on the chosen hardware, communication overlapped."""
        return self.figures.time

    @property
    def memory(self) -> Memory:
        return self.figures.memory

    @property
    def peak_bytes(self) -> int:
        """Most bytes that one device holds."""
        return self.figures.peak_bytes

    @property
    def flops(self) -> float:
        """Operations of one device."""
        return self.figures.flops

    @property
    def arithmetic_intensity(self) -> float:
        """Operations for each byte through memory."""
        bytes_ = self.figures.work.hbm_bytes
        return self.flops / bytes_ if bytes_ else 0.0

    @property
    def lower_bound(self) -> int:
        """Bytes that the layouts of this program make a device receive, whatever the algorithm.

        For each change of layout the elements that the worst-off device lacks are counted; a
        change that takes several collectives counts once.
        """
        moves: dict[int, int] = {}
        total = 0
        for c in self.collectives:
            if c.cause.move is None:
                total += c.lower_bound * c.count
            else:
                key = id(c.cause.move)
                moves[key] = max(moves.get(key, 0), c.lower_bound * c.count)
        return total + sum(moves.values())

    @property
    def gap(self) -> float:
        """Received bytes over the lower bound."""
        bound = self.lower_bound
        return self.received_bytes / bound if bound else 1.0

    @property
    def warnings(self) -> tuple[Waste, ...]:
        """Waste in the program: number, line and fix of each kind (report/advice/warnings.py)."""
        if self._warnings is None:
            self._warnings = warnings_of(self)
        return self._warnings

    def gaps(self) -> list[Gap]:
        """Beside each operation that communicates the least that would do; the furthest first.

        >>> mesh = st.make_mesh((8,), ("x",))
        >>> a = st.ShapeDtypeStruct((64, 4096), np.float32,
        ...                         sharding=st.NamedSharding(mesh, P(None, "x")))
        >>> gap = st.explain(lambda a: jnp.cumsum(a, 1))(a).gaps()[0]
        >>> gap.op, gap.lower_bound
        ('cumsum', 256)
        """
        return gaps(self.collectives)

    def utilisation(self) -> float:
        """Part of the device's peak rate (for bfloat16) that a step reaches."""
        peak = self.topology.hardware.peak_of("bfloat16")
        return self.flops / (self.time * peak) if self.time else 0.0

    def timeline(self) -> tuple[Event, ...]:
        """When each equation of a step runs, and on which stream; for pictures of a step."""
        return timeline(self.partitioned.local, self.topology)

    # -- forms -----------------------------------------------------------------------------------

    def at(self, line: int, file: str = "") -> Sequence[ExplainedCollective]:
        """The collectives that a line of the user's causes."""
        return [c for c in self.collectives
                if c.source.line == line and (not file or c.source.file.endswith(file))]

    def to_dict(self, suggestions: bool = True) -> dict[str, Any]:
        """Everything as plain data, for JSON."""
        return render.as_dict(self, suggestions)

    def summary(self, count: int | None = None) -> str:
        """Totals and one line for each of the `count` dearest collectives (None: of all)."""
        return render.summary(self, count)

    def table(self, suggestions: int = 3) -> Any:
        """A rich renderable: totals, collectives, reasons, advice for the dearest `suggestions`."""
        return render.table(self, suggestions)

    def text(self, suggestions: int = 3, width: int = 100) -> str:
        """All of it as text, with advice for the dearest `suggestions` collectives."""
        return render.text(self, suggestions, width)

    def blocks(self, suggestions: int = 3, width: int = 100) -> Iterator[str]:
        """`text`, block by block, each as soon as it is known; a line ends each block."""
        return render.blocks(self, suggestions, width)

    def __str__(self) -> str:
        return render.text(self)

    def __repr__(self) -> str:
        n = len(self.collectives)
        return (f"<explanation of {self.name} on {self.topology}: {n} "
                f"collective{'' if n == 1 else 's'}, {self.received_bytes:,} B received, "
                f"{render.seconds(self.time)}>")

    def _repr_html_(self) -> str:
        return render.html(self)
