"""One collective of an explanation: its line, reason, cost, and what would avoid it."""
from __future__ import annotations

import functools
from typing import Any

from ..ir.reasons import ASKED, Alternative
from ..ir.source.location import Location
from ..partitioner.collectives import CollectiveRecord, each_part
from .advice.suggestion import Found, Suggestion
from .bounds import reshard_bound
from .explainer import Explainer
from .reasons.causes import Asked, Cause, Path
from .reasons.explain_collective import Reasons
from .words import excerpt


class ExplainedCollective:
    """One collective of an explanation.

    kind, mesh_axes, group_size, received_bytes (of the busiest device, in one run), count (runs,
    loops multiplied), source (the user's line, with `.file` and `.line`) as of `CollectiveRecord`.
    time: seconds of one run on the chosen hardware. reason: why it is there, with names and lines;
    paths: the ways of its axes from the annotations, as data. lower_bound: the least bytes that
    this change of layout moves in one run. parts: of one with several operands, each of these, with
    its own line, reason, bytes, and share of the time; in the rest such a one is as its largest
    part. exchange: the record of what it is a part of.
    """

    def __init__(self, record: CollectiveRecord, seconds: float, explainer: Explainer,
                 exchange: CollectiveRecord | None = None) -> None:
        self.record, self.time, self.exchange = record, seconds, exchange
        self._explainer = explainer
        self.parts: tuple[ExplainedCollective, ...] = tuple([
            ExplainedCollective(part, seconds * share, explainer, record)
            for part, share in each_part([record]) if part is not record])

    @property
    def operands(self) -> int:
        """How many operands the exchange has that it is, or is a part of."""
        return len([*each_part([self.exchange or self.record])])

    @property
    def largest(self) -> ExplainedCollective:
        """The largest part, the first of several; itself if it has none."""
        return max(self.parts, key=lambda part: part.received_bytes, default=self)

    @functools.cached_property
    def cause(self) -> Cause:
        return self._explainer.cause(self.largest.record)

    @property
    def _reasons(self) -> Reasons:
        return self._explainer.reasons.beside(self.source)

    @functools.cached_property
    def value(self) -> str:
        """The name of what is moved, in backquotes; "" where the user wrote the exchange."""
        move = self.cause.move
        return "" if move is None else self._reasons.name(move.invars[0])

    @functools.cached_property
    def reason(self) -> str:
        return "; ".join(dict.fromkeys([part.reason for part in self.parts])) or str(self.cause)

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.cause.paths

    @functools.cached_property
    def lower_bound(self) -> int:
        if self.parts:
            return sum(part.lower_bound for part in self.parts)
        if self.cause.move is None:
            return self.received_bytes
        before, after = self.cause.move.invars[0].aval, self.cause.move.outvars[0].aval
        return min(self.received_bytes, reshard_bound(before, after))

    @property
    def kind(self) -> str:
        return self.record.kind

    @property
    def reason_kind(self) -> str:
        """"asked", "needed" or "chosen"; see `CollectiveRecord`."""
        return self.record.reason_kind

    @property
    def alternative(self) -> Alternative | None:
        """For a chosen one: the best plan without it, and the difference in price."""
        return self.cause.alternative

    @property
    def asked_by(self) -> Asked | None:
        """For one that was asked for: the user's expression, and where it is."""
        return self.cause.asked_by if self.reason_kind == ASKED else None

    @property
    def verdict(self) -> str:
        """The kind in a sentence: who asked for it, which rule needs it, or what it is cheaper than
        and by how much.
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
        return self.cause.asked or self.largest.record.source

    @functools.cached_property
    def calls(self) -> tuple[Location, ...]:
        """Where the helper function was called that this line is in, the nearest call first: the
        calls by which this value differs from others of the line.
        """
        return self._reasons.calls.of(self.source)

    @property
    def place(self) -> str:
        """The line, with the calls that tell it from others of a helper function; how many more
        lines parts of it are of.
        """
        more = len({part.source for part in self.parts} - {self.source})
        return ", called at ".join(map(str, (self.source, *self.calls))) + (
            f" and {more} more line{'s' * (more > 1)}" if more else "")

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
        """Changes that would avoid it, the best first; each was partitioned and costed as a whole.
        """
        return self.search.suggestions

    @property
    def search(self) -> Found:
        """The suggestions, with the number of candidates, and of those tried."""
        return self._explainer.suggestions(self.largest.record, self.cause)

    @functools.cached_property
    def vetoes(self) -> tuple[str, ...]:
        """Layouts that would have needed no exchange, each with what forbade it."""
        cause = self.cause
        return self._reasons.vetoes(cause)

    def excerpt(self) -> str:
        """The user's line with a caret under the expression."""
        return excerpt(self.source)

    def to_dict(self, suggestions: bool = True) -> dict[str, Any]:
        """Everything as plain data."""
        found: dict[str, Any] = {
            "kind": self.kind, "mesh_axes": list(map(str, self.mesh_axes)),
            "group_size": self.group_size, "received_bytes": self.received_bytes,
            "count": self.count, "time": self.time, "lower_bound": self.lower_bound,
            "source": self.source.to_dict(), "calls": [call.to_dict() for call in self.calls],
            "reason": self.reason, "reason_kind": self.reason_kind, "verdict": self.verdict,
            "alternative": None if self.alternative is None else self.alternative.to_dict(),
            "asked_by": None if self.asked_by is None else {
                "text": self.asked_by.text, "file": self.asked_by.location.file,
                "line": self.asked_by.location.line},
            "paths": [_path(p) for p in self.paths],
            "vetoes": list(self.vetoes)}
        if self.parts or self.exchange is not None:
            found["value"] = self.value
        if self.parts:
            found["parts"] = [part.to_dict(False) for part in self.parts]
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
