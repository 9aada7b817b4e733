"""Values whose shardings differ between two programs, for the types in a diff.

Equations are matched like lines of text, by op, shape and the user's expression, so that values
which exist in only one program do not hide changes to the others.
"""
from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..ir.program import Equation, Program
from ..ir.source.location import Location
from .reasons.value_paths import inner_programs


@dataclass(frozen=True)
class TypeChange:
    """A value that two programs have with different shardings. name: the user's; source: in the
    second program.
    """
    name: str
    before: str
    after: str
    source: Location

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "before": self.before, "after": self.after,
                "source": {"file": self.source.file, "line": self.source.line}}

    def __str__(self) -> str:
        where = f", {self.source}" if self.source.line else ""
        return f"{self.name}: {self.before} -> {self.after}{where}"


def type_changes(before: Program, after: Program) -> list[TypeChange]:
    """The values that differ in sharding between two programs of one level, in program order."""
    first, second = list(_equations(before)), list(_equations(after))
    matcher = difflib.SequenceMatcher(None, [_key(e) for e in first], [_key(e) for e in second],
                                      autojunk=False)
    found: list[TypeChange] = []
    seen: set[tuple] = set()
    for block in matcher.get_matching_blocks():
        for k in range(block.size):
            a, b = first[block.a + k], second[block.b + k]
            for x, y in zip(a.outvars, b.outvars, strict=True):
                was, now = x.aval.str_short(True), y.aval.str_short(True)
                name = y.name or b.location.text() or (
                    f"the result of {b.op.name}")
                change = TypeChange(name, was, now, b.location)
                key = (name, was, now, b.location.line)
                if was != now and key not in seen:
                    seen.add(key)
                    found.append(change)
    return found


def _equations(program: Program) -> Iterator[Equation]:
    for n, eqn in enumerate(program.eqns):
        yield eqn
        for _, inner in inner_programs(eqn, n):
            yield from _equations(inner)


def _key(eqn: Equation) -> tuple:
    return (eqn.op.name, tuple(v.aval.shape for v in eqn.outvars), eqn.location.text(),
            eqn.location.transform)
