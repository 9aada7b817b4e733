"""Our partition of a program next to what XLA made of it: the collectives of each line."""
from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from ...ir.source.wording import duration
from ...report.explanation import Explanation
from ...report.words import quantity
from .report import XlaReport, empty_table, printed


@dataclass
class LineExchange:
    """What is exchanged at a line in one run: collectives, bytes that one device receives, seconds
    on the hardware of the report. kinds: of the collectives, each once."""
    count: int = 0
    received_bytes: int = 0
    seconds: float = 0.0
    kinds: list[str] = field(default_factory=list)

    def add(self, kind: str, times: int, received: int, seconds: float) -> None:
        self.count += times
        self.received_bytes += received * times
        self.seconds += seconds * times
        if kind not in self.kinds:
            self.kinds.append(kind)

    def to_dict(self) -> dict[str, Any]:
        return {"collectives": self.count, "received_bytes": self.received_bytes,
                "seconds": self.seconds, "kinds": self.kinds}


@dataclass(frozen=True)
class PlanComparison:
    """The collectives of both, by line. ours: of `explain`; theirs: of `xla_report`, for the same
    arguments. `print` it.

    Times are of the collectives alone, by the same model of the same hardware; XLA's groups are
    each taken for one axis.
    """
    name: str
    ours: Explanation
    theirs: XlaReport

    @property
    def rows(self) -> list[tuple[str, LineExchange, LineExchange]]:
        """(line, ours, XLA's), the costliest first."""
        found: dict[tuple[str, int], tuple[LineExchange, LineExchange]] = {}
        for c in self.ours.collectives:
            line = _line(c.source.file, c.source.line)
            share = found.setdefault(line, (LineExchange(), LineExchange()))[0]
            share.add(c.kind, c.count, c.received_bytes, c.time)
        for t in self.theirs.collectives:
            line = _line(t.place.file, t.place.line)
            share = found.setdefault(line, (LineExchange(), LineExchange()))[1]
            share.add(t.kind, t.times, t.received_bytes, t.seconds)
        ordered = sorted(found.items(), key=lambda row: -max(s.seconds for s in row[1]))
        return [(f"{os.path.basename(file)}:{line}" if line else "?", *shares)
                for (file, line), shares in ordered]

    @property
    def totals(self) -> tuple[LineExchange, LineExchange]:
        """Totals of our collectives, and of XLA's."""
        out = LineExchange(), LineExchange()
        for _, *shares in self.rows:
            for total, share in zip(out, shares, strict=True):
                total.count += share.count
                total.received_bytes += share.received_bytes
                total.seconds += share.seconds
                total.kinds += [k for k in share.kinds if k not in total.kinds]
        return out

    def __bool__(self) -> bool:
        """Do they differ in the collectives of a line?"""
        return any(_key(a) != _key(b) for _, a, b in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        a, b = self.totals
        return {"function": self.name, "hardware": self.theirs.hardware.name,
                "ours": a.to_dict(), "xla": b.to_dict(),
                "lines": [{"line": line, "ours": x.to_dict(), "xla": y.to_dict()}
                          for line, x, y in self.rows]}

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = 100) -> str:
        """Totals, and a row for each line with the collectives of both."""
        table = empty_table((("line", "left"), ("ours", "left"), ("bytes", "right"),
                             ("time", "right"), ("XLA", "left"), ("bytes", "right"),
                             ("time", "right")))
        for line, *shares in [("all", *self.totals), *self.rows]:
            cells = [line]
            for share in shares:
                kinds = "" if line == "all" else " " + "\n  ".join(share.kinds)
                cells += [f"{share.count:,}{kinds}" if share.count else "none",
                          quantity(share.received_bytes, "B"), duration(share.seconds)]
            table.add_row(*cells)
        return printed(
            f"{self.name}: the partition here beside XLA's, on {self.theirs.devices} devices "
            f"({self.theirs.hardware.name})", table, (), width)


def _line(file: str, line: int) -> tuple[str, int]:
    return (os.path.realpath(file) if file else "", line)


def _key(share: LineExchange) -> tuple[int, int, list[str]]:
    return share.count, share.received_bytes, sorted(share.kinds)
