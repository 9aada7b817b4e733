"""The record of one warning, and the walks over programs that the searches for waste share."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...ir.ops.control.trips import trips
from ...ir.program import Equation, Program, Var
from ...ir.source.location import Location
from ...partitioner.cost.work import bodies
from ..advice.suggestion import Suggestion

LEAST = 0.01          # share of the program's bytes or operations below which there is no warning


@dataclass(frozen=True)
class Waste:
    """One warning. wasted_bytes, wasted_flops: of one device in one run; `what` says which bytes
    ("held", "received"). fix: what to do. suggestion: the same with what it saves, where that was
    tried.
    """
    kind: str
    text: str
    source: Location
    wasted_bytes: int = 0
    wasted_flops: float = 0.0
    what: str = "held"
    fix: str = ""
    suggestion: Suggestion | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "wasted_bytes": self.wasted_bytes,
                "wasted_flops": self.wasted_flops, "what": self.what, "fix": self.fix,
                "source": self.source.to_dict(),
                "suggestion": self.suggestion.to_dict() if self.suggestion else None}

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source.line else ""
        return f"{self.kind}: {self.text}{where}" + (f"\n   fix: {self.fix}" if self.fix else "")


def programs(program: Program, count: int = 1) -> Iterator[tuple[Program, int]]:
    """The program and nested ones, each with the number of its runs."""
    yield program, count
    for eqn in program.eqns:
        for inner in bodies(eqn):
            yield from programs(inner, count * trips(eqn))


def equations(program: Program) -> Iterator[tuple[Equation, int]]:
    """The equations of the program and of nested ones, each with the number of its runs."""
    for inner, count in programs(program):
        for eqn in inner.eqns:
            yield eqn, count


def values(program: Program) -> Iterator[tuple[Var, Equation | None, int]]:
    """Parameters and results of equations, each with its equation and the number of its runs."""
    for inner, count in programs(program):
        for v in inner.invars:
            yield v, None, count
        for eqn in inner.eqns:
            for v in eqn.outvars:
                yield v, eqn, count


def base_axis(axis: Any) -> str:
    """The mesh axis that an axis or sub-axis is (part of)."""
    return str(axis).partition(":")[0]
