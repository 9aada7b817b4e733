"""The freedom map: which dimensions can be split together, who decided them, what each is worth.

Dimensions that share a factor in some equation are one *freedom*: the batch, the hidden dimension,
the vocabulary. Splitting one of them over a mesh axis splits all; so the freedoms of a program and
the mesh axes span the space of its parallelisms. For each dimension of each value the map says who
decided: the user, by an argument, a constraint or a type; propagation; or nobody. What a freedom is
worth over an axis is found by trial: its arguments are split so, and the whole program is
partitioned and costed again.
"""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ...ir.source.wording import duration
from ...ir.spec import PartitionSpec, spec_from_entries
from ...ir.support.immutable import immutable
from ...partitioner.propagation.graph import Graph
from ..advice.changes import Argument, Change, Result, text_of
from ..advice.layouts.freedoms import together
from ..advice.trials import Trials
from ..reasons.axis_paths import AxisPaths
from ..words import changed_by, quantity

YOU, PROPAGATION, NOBODY = "you", "propagation", "nobody"
NEARLY = 1.05       # times a figure: as good
_MANY = 4           # times as many ways are looked at as are tried
_NAMED = 4           # members of a freedom that are named


@immutable
class Member:
    """A dimension of a value. by: who decided it, "you", "propagation" or "nobody". axes: that
    split it.
    """
    value: str
    dim: int
    by: str
    axes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.value}.{self.dim}"


@immutable
class Worth:
    """The effect of splitting a freedom over one more axis. changes: of the arguments. time,
    received_bytes, peak_bytes, flops: of the whole program then.
    """
    axis: str
    changes: tuple[Change, ...]
    time: float
    received_bytes: int
    peak_bytes: int
    flops: float

    @property
    def text(self) -> str:
        return text_of(self.changes)


@immutable
class Freedom:
    """Dimensions that are split together. sizes: of these dimensions. worth: of further axes, as
    far as they were tried, the best first.
    """
    sizes: tuple[int, ...]
    members: tuple[Member, ...]
    worth: tuple[Worth, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that split some of its dimensions."""
        return tuple(dict.fromkeys([a for m in self.members for a in m.axes]))

    def to_dict(self) -> dict[str, Any]:
        return {"sizes": list(self.sizes), "axes": list(self.axes),
                "members": [{"value": m.value, "dimension": m.dim, "by": m.by,
                             "axes": list(m.axes)} for m in self.members],
                "worth": [{"axis": w.axis, "change": w.text, "time": w.time,
                           "received_bytes": w.received_bytes, "peak_bytes": w.peak_bytes}
                          for w in self.worth]}


class FreedomMap:
    """The freedoms of one partitioned program, those with most values first. untried: how many ways
    of splitting were left out for lack of time.
    """

    def __init__(self, names: AxisPaths, trials: Trials) -> None:
        self.names, self.trials = names, trials
        self.partitioned = trials.partitioned
        self.name = self.partitioned.traced.name
        self.untried = 0

    @functools.cached_property
    def freedoms(self) -> tuple[Freedom, ...]:
        """The freedoms that have values of the program, those with most of them first."""
        return tuple([Freedom(sizes, members, self._worth(dict(places), members))
                      for places, sizes, members in self._groups])

    def best_over(self, axis: Any, most: int) -> Worth | None:
        """The best way to split a freedom over a mesh axis: of the freedoms with most values those
        whose splits change fewest arguments are tried, `most` of them, until one is nearly ideal.
        None if nothing can be split so, or no time is left to try.
        """
        ideal = self.trials.base.time / self.partitioned.mesh.axis_size(axis)
        ways = [self._changes(dict(places), axis) for places, *_ in self._groups[:_MANY * most]]
        best: Worth | None = None
        for changes in sorted(filter(None, ways), key=len)[:most]:
            w = self._worth_of(changes, axis)
            if w is not None and (best is None or w.time * NEARLY < best.time):
                best = w
                if w.time <= NEARLY * ideal:
                    break
        return best

    @functools.cached_property
    def _groups(self) -> list[tuple[Sequence[tuple[int, int]], tuple[int, ...],
                                    tuple[Member, ...]]]:
        """The places of each freedom, its sizes and its members."""
        origins = self.names.origins
        if origins is None:
            return []
        graph = origins.solution.graph
        found = []
        for places in together(graph):
            members = tuple([self._member(graph, t, d) for t, d in places
                             if t in self.names.of_tensor])
            if members:
                sizes = tuple(dict.fromkeys([graph.layouts[t].shape[d] for t, d in places]))
                found.append((places, sizes, members))
        return sorted(found, key=lambda f: -len(f[2]))

    def _member(self, graph: Graph, t: int, d: int) -> Member:
        layout = graph.layouts[t]
        axes = layout.entries[d]
        own = [graph.root(t, d, a) is not None for a in axes]
        said = any(own) or (not axes and not layout.open[d] and t in graph.asked)
        by = YOU if said else PROPAGATION if axes else NOBODY
        return Member(self.names.name(self.names.of_tensor[t]), d, by, tuple(map(str, axes)))

    def _worth(self, dims: dict[int, int], members: Sequence[Member]) -> tuple[Worth, ...]:
        """What splitting a freedom over each mesh axis that it does not have would give, fastest
        first.
        """
        mesh = self.partitioned.mesh
        have = {a for m in members for a in m.axes}
        found = [self._worth_of(self._changes(dims, axis), axis) for axis, n in zip(
            mesh.axis_names, mesh.axis_sizes, strict=True) if n > 1 and str(axis) not in have]
        return tuple(sorted(filter(None, found), key=lambda w: (w.time, w.axis)))

    def _worth_of(self, changes: tuple[Change, ...], axis: Any) -> Worth | None:
        """What the changes that split a freedom over an axis give; None if there are none, or that
        is impossible.
        """
        if not changes:
            return None
        if self.trials.work > self.trials.budget.left and not self.trials.known(changes):
            self.untried += 1
            return None
        tried = self.trials.attempt(changes)
        if tried is None:
            return None
        f = tried.figures
        return Worth(str(axis), changes, f.time, f.received_bytes, f.peak_bytes, f.flops)

    def _changes(self, dims: dict[int, int], axis: Any) -> tuple[Change, ...]:
        """The changes of arguments, and of requested results, that split a freedom over one more
        axis.
        """
        p, changes = self.partitioned, []
        n = p.mesh.axis_size(axis)
        assert self.names.origins is not None
        tensors = self.names.origins.tensors
        solution = self.names.origins.solution
        for i, v in enumerate(p.resolved.invars):
            spec = _split(p.in_specs[i], v.aval.shape, dims.get(tensors.get(v, -1)), axis, n, p)
            if spec is not None:
                changes.append(Argument(i, p.traced.arg_names[i], spec))
        for i, t in enumerate(solution.results):
            if t in solution.graph.asked:
                shape = p.resolved.outvars[i].aval.shape
                spec = _split(p.out_specs[i], shape, dims.get(t), axis, n, p)
                if spec is not None and changes:
                    name = p.traced.result_names[i] if p.traced.result_names else ""
                    changes.append(Result(i, name, spec))
        return tuple(changes)

    # -- as text -----------------------------------------------------------------------------------

    def __str__(self) -> str:
        base, count = self.trials.base, len(self.freedoms)
        lines = [f"{self.name}: {count} freedom{'' if count == 1 else 's'}; "
                 f"{duration(base.time)} a step, {quantity(base.received_bytes, 'B')} received, "
                 f"{quantity(base.peak_bytes, 'B')} held"]
        own = [f for f in self.freedoms if f.worth or any(m.by == YOU or m.axes for m in f.members)]
        for i, f in enumerate(own, 1):
            sizes = " or ".join(map(str, f.sizes[:3])) + (" or ..." if len(f.sizes) > 3 else "")
            split = f"over {', '.join(f.axes)}" if f.axes else "whole"
            lines.append(f"{i}. size {sizes}, {split}")
            for by in (YOU, PROPAGATION, NOBODY):
                members = [m for m in f.members if m.by == by]
                if members:
                    lines.append(f"   by {by}: {_listed(members)}")
            for w in f.worth:
                lines.append(
                    f"   over {w.axis}: {duration(w.time)}{_part(w.time, base.time)}, "
                    f"{quantity(w.received_bytes, 'B')} received"
                    f"{_part(w.received_bytes, base.received_bytes)}, "
                    f"{quantity(w.peak_bytes, 'B')} held{_part(w.peak_bytes, base.peak_bytes)}: "
                    f"{w.text}")
        inner = [f for f in self.freedoms if f not in own]
        if inner:
            lines.append(f"and {len(inner)} of values alone, whole and decided by nobody: "
                         + _listed([f.members[0] for f in inner]))
        if self.untried:
            lines.append(f"{self.untried} ways of splitting were not tried, for want of time")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        freedoms = [f.to_dict() for f in self.freedoms]
        return {"name": self.name, "freedoms": freedoms, "untried": self.untried}


def _split(spec: PartitionSpec | None, shape: tuple[int, ...], dim: int | None, axis: str, n: int,
           p: Any) -> PartitionSpec | None:
    """The spec with dimension `dim` split over one more axis; None if that is impossible."""
    if dim is None or spec is None or spec.unreduced:
        return None
    entries = [tuple([a for a in axes if a != axis]) for axes in spec.padded(len(shape)).entries]
    parts = n
    for a in entries[dim]:
        parts *= p.mesh.axis_size(a)
    if shape[dim] % parts:
        return None
    entries[dim] += (axis,)
    return spec_from_entries(tuple(entries))


def _listed(members: Sequence[Member]) -> str:
    named = sorted(members, key=lambda m: not m.value.startswith("`"))      # what has a name first
    texts = list(dict.fromkeys([
        f"{m} ({', '.join(m.axes)})" if m.axes else str(m) for m in named]))
    shown = texts[:_NAMED]
    more = len(members) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _part(new: float, old: float) -> str:
    change = changed_by(new, old)
    return f" ({change})" if change else ""
