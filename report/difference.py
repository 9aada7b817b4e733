"""Compares two explanations: what changed in collectives, bytes, memory and time."""
from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from ..ir.ops.communication.sharding import reshard_p
from ..ir.source.wording import duration
from ..ir.support.html import code, escaped
from . import render
from .equal_collectives import grouped, places
from .explained_collective import ExplainedCollective
from .explanation import Explanation
from .reasons.causes import where
from .reasons.value_paths import equations
from .words import changed_by

SHOWN = 12         # types that are printed


@dataclass(frozen=True)
class Difference:
    """before, after: explanations. text: what was changed. removed, added: collectives in only one
    of them (told apart by kind, axes, bytes and expression).
    """
    before: Explanation
    after: Explanation
    text: str = ""

    @property
    def removed(self) -> list[ExplainedCollective]:
        return _missing(self.before, self.after)

    @property
    def added(self) -> list[ExplainedCollective]:
        return _missing(self.after, self.before)

    @property
    def types(self) -> list[tuple[str, str, str]]:
        """(name, type before, type after) of arguments, results and named values whose layout
        changed.
        """
        a, b = self.before.partitioned.local, self.after.partitioned.local
        names = [v.name or f"argument {i}" for i, v in enumerate(a.invars)]
        named = list(zip(names, a.global_in, b.global_in, strict=False))
        named += [(f"result {i}", x, y) for i, (x, y) in enumerate(zip(
            a.global_out, b.global_out, strict=False))]
        found = [(n, x.str_short(True), y.str_short(True)) for n, x, y in named]
        inner = _values(self.before)
        for key, after in _values(self.after).items():
            if len(before := inner.get(key, [])) == len(after):
                left, right = Counter(before), Counter(after)
                found += [(name, x, y) for (_, x), (name, y) in zip(
                    (left - right).elements(), (right - left).elements(), strict=True)]
        return list(dict.fromkeys(f for f in found if f[1] != f[2]))

    @property
    def rows(self) -> list[tuple[str, float, float]]:
        """(name, before, after) of the totals."""
        a, b = self.before, self.after
        return [("collectives", len(a.collectives), len(b.collectives)),
                ("received_bytes", a.received_bytes, b.received_bytes), ("time", a.time, b.time),
                ("peak_bytes", a.peak_bytes, b.peak_bytes), ("flops", a.flops, b.flops)]

    def __bool__(self) -> bool:
        """Is there any difference?"""
        return bool(self.removed or self.added or self.types
                    or any(x != y for _, x, y in self.rows))

    def to_dict(self) -> dict[str, Any]:
        return {"change": self.text,
                "totals": {n: {"before": x, "after": y} for n, x, y in self.rows},
                "types": [{"name": n, "before": x, "after": y} for n, x, y in self.types],
                "removed": [c.to_dict(suggestions=False) for c in self.removed],
                "added": [c.to_dict(suggestions=False) for c in self.added]}

    def _repr_html_(self) -> str:
        return code([escaped(line) for line in str(self).split("\n")])

    def __str__(self) -> str:
        lines = [self.text] if self.text else []
        if not self:
            return "\n".join([*lines, "  no difference"])
        types = self.types
        lines += [f"  {name}: {x} -> {y}" for name, x, y in types[:SHOWN]]
        if len(types) > SHOWN:
            lines.append(f"  and {len(types) - SHOWN} more values are of other types")
        for mark, found in (("-", self.removed), ("+", self.added)):
            lines += [f"  {mark} {render.heading(group[0])}{places(group)}, {group[0].source}"
                      for group in grouped(found)]
        for name, x, y in self.rows:
            show = {"time": duration, "collectives": lambda n: f"{n:.0f}",
                    "flops": lambda n: render.quantity(n, "FLOP")}.get(
                        name, lambda n: render.quantity(n, "B"))
            change = f" ({part})" if (part := changed_by(y, x)) else ""
            lines.append(f"  {name.replace('_', ' ')}: {show(x)}"
                         + (f" -> {show(y)}{change}" if x != y else ", as before"))
        return "\n".join(lines)


def _values(found: Explanation) -> dict[tuple, list[tuple[str, str]]]:
    """The values at the user's lines, (name, type) each: by place and op."""
    values: dict[tuple, list[tuple[str, str]]] = defaultdict(list)
    for eqn in equations(found.partitioned.resolved):
        at = where(eqn.location)
        if eqn.op is reshard_p or not eqn.location.line or at[-1]:
            continue                                 # derivatives repeat the user's lines
        for k, v in enumerate(eqn.outvars):
            text = f"`{v.name}`" if v.name else f"`{eqn.op.name}`"
            values[*at, eqn.op.name, k].append(
                (f"{text} line {eqn.location.line}", v.aval.str_short(True)))
    return values


def _missing(a: Explanation, b: Explanation) -> list[ExplainedCollective]:
    """The collectives of a that b lacks."""
    left = Counter(_key(c) for c in b.collectives)
    out = []
    for c in a.collectives:
        if left[_key(c)]:
            left[_key(c)] -= 1
        else:
            out.append(c)
    return out


def _key(c: ExplainedCollective) -> tuple:
    # the expressions: line numbers move when lines above are edited
    sources = [part.source for part in c.parts] or [c.source]
    places = sorted([(at.short_file, at.text() or at.source_line().strip() or str(at.line))
                     for at in sources])
    return c.kind, c.mesh_axes, c.received_bytes, c.count, *places
