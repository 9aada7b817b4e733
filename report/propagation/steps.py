"""The steps of propagation: what each decided, from where, and what disagreed in the end.

Propagation starts from annotations and gives axes to open dimensions, equation by equation. Each
step records the equation, the value that got axes, and the dimension of the other value from which
they came. If two values of an equation still disagree at the end, that is a conflict: one wanted an
axis that something kept from the other. Each conflict is priced as the bytes that a device receives
to run the equation in the layout that won, or in the other one; the lesser of the two is its cost.
"""
from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from ...ir.meshes.mesh_axes import group_size
from ...ir.program import Atom
from ...ir.source.location import UNKNOWN, Location
from ...ir.spec import spec_from_entries
from ...ir.support.immutable import immutable
from ...ir.types import ArrayType, Entries
from ...partitioner.pipeline import Partitioned
from ...partitioner.propagation.origins import vetoes
from ...partitioner.propagation.resolved_types import typed
from ..bounds import reshard_bound
from ..reasons.axis_paths import AxisPaths
from ..words import quantity

_RESULT = "the result"
SHOWN = 10              # conflicts in the text


@immutable
class Annotation:
    """Where axes begin. text: "argument `x`", "`with_sharding_constraint`", ...; value, type: as
    annotated."""
    text: str
    value: str
    type: str
    location: Location = UNKNOWN

    def __str__(self) -> str:
        at = f" at line {self.location.line}" if self.location.line else ""
        return f"{self.text}{at}: {self.value} is {self.type}"


@immutable
class Step:
    """One step. op, rule, location: of the equation. value: the value that got axes, with its new
    type. gained: (dimension, axis, the value it came from, that value's dimension).
    """
    number: int
    op: str
    rule: str
    value: str
    before: str
    type: str
    gained: tuple[tuple[int, str, str, int], ...]
    location: Location = UNKNOWN

    def __str__(self) -> str:
        line = self.location.source_line().strip()
        at = f" at {self.location.short_file}:{self.location.line}" if self.location.line else ""
        if self.op == _RESULT:
            head = f"{self.number}. where the program ends"
        else:
            head = f"{self.number}. `{self.op}` ({self.rule or 'the border of its body'}){at}"
        gained = "; ".join([f"{axis} on dimension {d}, as dimension {k} of {source}"
                            for d, axis, source, k in self.gained])
        return "\n".join([head + (f": {line}" if line else ""),
                          f"   {self.value}: {self.before} -> {self.type}", f"   {gained}"])

    def to_dict(self) -> dict[str, Any]:
        return {"step": self.number, "op": self.op, "rule": self.rule, "value": self.value,
                "before": self.before, "type": self.type,
                "gained": [{"dimension": d, "axis": a, "from": v, "from_dimension": k}
                           for d, a, v, k in self.gained],
                "file": self.location.file, "line": self.location.line}


@immutable
class Conflict:
    """Two values of an equation that disagree in the end.

    loser has `axis` on dimension `loser_dim`; winner does not have it on `winner_dim`, because of
    `held`. winning_bytes: what a device receives if the loser is brought to the winner's layout.
    losing_bytes: the other way round. cost: the lesser of both.
    """
    op: str
    axis: str
    winner: str
    winner_dim: int
    loser: str
    loser_dim: int
    held: str
    winning_bytes: int
    losing_bytes: int
    location: Location = UNKNOWN

    @property
    def cost(self) -> int:
        return min(self.winning_bytes, self.losing_bytes)

    def __str__(self) -> str:
        line = self.location.source_line().strip()
        at = f" at {self.location.short_file}:{self.location.line}" if self.location.line else ""
        return "\n".join([
            f"`{self.op}`{at}" + (f": {line}" if line else ""),
            f"   {self.loser} has {self.axis} on dimension {self.loser_dim}, dimension "
            f"{self.winner_dim} of {self.winner} did not take it: {self.held}",
            f"   {self.loser} without it: {quantity(self.winning_bytes, 'B')} received; "
            f"{self.winner} with it: {quantity(self.losing_bytes, 'B')}"])

    def to_dict(self) -> dict[str, Any]:
        return {"op": self.op, "axis": self.axis, "winner": self.winner,
                "winner_dimension": self.winner_dim, "loser": self.loser,
                "loser_dimension": self.loser_dim, "held": self.held,
                "winning_bytes": self.winning_bytes, "losing_bytes": self.losing_bytes,
                "cost": self.cost, "file": self.location.file, "line": self.location.line}


class Propagation:
    """What propagation did in one partition; nothing if types decide every layout."""

    def __init__(self, partitioned: Partitioned, names: AxisPaths | None = None) -> None:
        self.name = partitioned.traced.name
        self.partitioned = partitioned
        self.names = names or AxisPaths(partitioned)
        self.origins = self.names.origins

    @functools.cached_property
    def annotations(self) -> tuple[Annotation, ...]:
        """Where axes begin, those of one value together."""
        if self.origins is None:
            return ()
        found = []
        for t, roots in self.origins.solution.graph.roots.items():
            first = next(iter(roots.values()), None)
            if first is not None and t in self.names.of_tensor and not (
                    first.text.startswith("`out_shardings`")):
                at = first.location
                found.append(Annotation(self.names.root(first.text, first.argument), self.value(t),
                                        self.shown(t, self.initial(t)), at))
        return tuple(found)

    @functools.cached_property
    def steps(self) -> tuple[Step, ...]:
        """All steps in order."""
        if self.origins is None:
            return ()
        graph, now, found = self.origins.solution.graph, {}, []
        for i, extension in self.origins.solution.grown:
            node = graph.node(i)
            t = node.tensors[extension.position]
            eqn = node.equation
            before = now.get(t, self.initial(t))
            now[t] = extension.entries
            gained = tuple([(d, str(a), self.value(node.tensors[s]) if s >= 0 else "a value", k)
                            for d, a, s, k in extension.origins])
            found.append(Step(
                len(found) + 1, eqn.op.name if eqn is not None else _RESULT,
                str(node.info.rule) if node.info is not None else "", self.value(t),
                self.shown(t, before), self.shown(t, extension.entries), gained,
                eqn.location if eqn is not None else UNKNOWN))
        return tuple(found)

    @functools.cached_property
    def conflicts(self) -> tuple[Conflict, ...]:
        """The values that disagree in the end, the most expensive first."""
        found: dict[tuple, Conflict] = {}
        for var, t in (self.origins.tensors if self.origins is not None else {}).items():
            for veto in vetoes(self.partitioned.resolved, var):
                other = self.names.of_tensor.get(veto.source[0])
                if veto.equation is None or other is None:
                    continue
                key = t, *veto.source, veto.dim, veto.axis, id(veto.equation)
                found.setdefault(key, Conflict(
                    veto.equation.op.name, str(veto.axis), self.names.name(var), veto.dim,
                    self.names.name(other), veto.source[1], veto.held,
                    reshard_bound(other.aval, _without(other.aval, veto.axis)),
                    reshard_bound(var.aval, _with(var.aval, veto.dim, veto.axis)),
                    veto.equation.location))
        return tuple(sorted(found.values(), key=lambda c: -c.cost))

    # -- values ------------------------------------------------------------------------------------

    def value(self, t: int) -> str:
        """The name of a value."""
        assert self.origins is not None
        t = self.origins.solution.graph.repeats.get(t, t)
        var = self.names.of_tensor.get(t)
        return self.names.name(var) if var is not None else _RESULT

    def initial(self, t: int) -> Entries:
        """The axes with which a value started."""
        assert self.origins is not None
        graph, notes = self.origins.solution.graph, self.origins.solution.origins
        return tuple([tuple([a for a in axes if (t, d, a) not in notes])
                      for d, axes in enumerate(graph.layouts[t].entries)])

    def shown(self, t: int, entries: Entries) -> str:
        """The type of a value with these entries: `f32[64@data,256]`."""
        assert self.origins is not None
        graph = self.origins.solution.graph
        results = self.origins.solution.results
        value: Atom | None = self.names.of_tensor.get(graph.repeats.get(t, t))
        if value is None and t in results:
            value = self.partitioned.resolved.outvars[results.index(t)]
        if value is None:
            return str(spec_from_entries(entries))
        whole = value.aval.update(shape=graph.layouts[t].shape)
        return typed(whole, whole.mesh, entries).str_short(True)

    def of(self, name: str) -> Iterator[Step]:
        """The steps in which a value got axes, by its name."""
        return (s for s in self.steps if s.value.strip("`") == name)

    def __str__(self) -> str:
        return "\n".join([*self.heading(), *map(str, self.steps), *self.ending()])

    def heading(self) -> list[str]:
        """The annotations, as text."""
        if self.origins is None:
            return [f"{self.name}: types decide every layout, nothing was propagated"]
        count = len(self.annotations)
        return [f"{self.name}: {count} annotation{'' if count == 1 else 's'}, {len(self.steps)} "
                f"step{'' if len(self.steps) == 1 else 's'}", *[f"  {a}" for a in self.annotations]]

    def ending(self, most: int | None = SHOWN, all_of_them: str = "`conflicts` has them"
               ) -> list[str]:
        """The conflicts, as text, so many of the most expensive or all. all_of_them: said of the
        others, how they are seen.
        """
        costly = [c for c in self.conflicts if c.cost]
        free = len(self.conflicts) - len(costly)
        lines = [f"{len(costly)} conflict{'' if len(costly) == 1 else 's'}"
                 + (f", and {free} that cost nothing" if free else "")]
        lines += [f"{i}. {c}" for i, c in enumerate(costly[:most], 1)]
        more = len(costly) - len(lines[1:])
        return [*lines, f"and {more} more; {all_of_them}"] if more else lines

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"name": self.name,
                "annotations": [{"text": a.text, "value": a.value, "type": a.type,
                                 "line": a.location.line} for a in self.annotations],
                "steps": [s.to_dict() for s in self.steps],
                "conflicts": [c.to_dict() for c in self.conflicts]}


def _without(t: ArrayType, axis: str) -> ArrayType:
    return typed(t, t.mesh, tuple([tuple([a for a in axes if a != axis]) for axes in t.entries]),
                 t.sharding.spec.unreduced)


def _with(t: ArrayType, dim: int, axis: str) -> ArrayType:
    """The type with the axis on a dimension, padded where it does not divide it."""
    entries = [tuple([a for a in axes if a != axis]) for axes in t.entries]
    entries[dim] += (axis,)
    blocks = group_size(t.mesh, entries[dim])
    padded = t.update(shape=(*t.shape[:dim], -(-t.shape[dim] // blocks) * blocks,
                             *t.shape[dim + 1:]))
    return typed(padded, t.mesh, tuple(entries), t.sharding.spec.unreduced - {axis})
