"""The kind of a change, as seen from one collective: what it changes, over which axes, and how
much.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence, Set

from ...ir.meshes.mesh_axes import group_size
from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Equation
from ...ir.spec import PartitionSpec
from ...ir.support.caches import cached
from ...ir.types import Entries
from ...partitioner.pipeline import Partitioned
from ..bounds import missing
from ..reasons.causes import Cause, where
from ..words import spec_text
from .candidates import Candidates
from .changes import Argument, Change, Constrain, Respec, Result, row_of, tree_of


class Kinds:
    """Classifies changes for the collective of a cause, which runs over these axes."""

    def __init__(self, candidates: Candidates, cause: Cause, axes: frozenset[str]) -> None:
        self.candidates, self.axes = candidates, axes
        self.agreeing: dict[int, tuple[Sequence[Change], bool]] = {}     # (`agree_more`), by id
        asked = [cause.move.location] if cause.move is not None else []
        if cause.asked_by is not None:
            asked.append(cause.asked_by.location)
        holds = [h.root_location for h in cause.holds]
        self.askers = {where(at)[:-1] for at in (*asked, *holds) if at.line}
        self.asked = cause.asked_by is not None
        self.wanted = "" if cause.move is None else spec_text(self.brought_to(cause.move))
        self.made = set() if cause.move is None else {
            str(a) for e in cause.move.invars[0].aval.entries for a in e}
        # the axes of the results that asked for it, before they are moved
        self.moved = {i: {str(a) for e in made for a in e}
                      for i in range(len(candidates.inlined.outvars))
                      if self.asked and (made := candidates.as_made(i, cause)) is not None}
        # what asked for it counts, rather than where its axes come from
        written = self.moved or any(made is not None and where(made.location)[:-1] in self.askers
                                    for made in map(candidates.maker.get, candidates.laid_out))
        self.roots = set() if self.asked and written else {
            p.tensors[-1] for p in cause.paths if p.tensors}
        self.askers |= {where(p.root_location)[:-1] for p in cause.paths
                        if p.root_location.line and self.roots}
        named = self.roots | {h.tensor for h in cause.holds}
        given = candidates.freedoms.given if candidates.freedoms is not None else {}
        # the results of which out_shardings brought its axes, or holds its value
        self.held = {~i for i, one in given.items() if i < 0 and one.tensor in named}

    def brought_to(self, move: Equation) -> PartitionSpec:
        """The layout to which a reshard, and those that follow it, bring a value."""
        while True:
            readers = self.candidates.reasons.readers.get(move.outvars[0], ())
            if len(readers) != 1 or readers[0].op is not reshard_p:
                return move.outvars[0].aval.sharding.spec
            (move,) = readers

    def splits_over_new(self, changes: Sequence[Change]) -> bool:
        """Does some change split a value into more parts, over axes that it does not have and the
        collective does not run over? The layout that the collective produces does not count.
        """
        return any(_axes(spec) - self.axes - had and self.tiles(_axes(spec)) > self.tiles(had)
                   for c in changes if (spec := getattr(c, "spec", None))
                   and spec_text(spec) != self.wanted and (had := self.axes_before(c)) is not None)

    def further(self, changes: Sequence[Change]) -> set[str]:
        """The axes that changes give to arguments, which do not split them now."""
        return {a for c in changes if isinstance(c, Argument)
                for a in _axes(c.spec) - self.axes_before(c)}

    def adds_axes(self, changes: Sequence[Change], finer: bool) -> bool:
        """Does some change split a value over axes that do not split it now, or, where results are
        in more parts then (`finer`), over any?
        """
        return any(_axes(c.spec) - (frozenset() if finer and not (
            isinstance(c, Result) and self.is_direct(c)) else self.axes_before(c))
            for c in changes if isinstance(c, Argument | Result | Constrain))

    def gathers(self, changes: Sequence[Change]) -> bool:
        """Does some change take axes from an argument without giving it others?"""
        return any(_axes(c.spec) < self.axes_before(c) for c in changes if isinstance(c, Argument))

    def gathered(self, changes: Sequence[Change]) -> float:
        """Bytes that a device receives of arguments from which changes take axes, for no others."""
        found = 0.0
        for c in changes:
            if isinstance(c, Argument) and self.gathers([c]):
                found += self.candidates.inlined.invars[c.index].aval.nbytes * (
                    1 / self.tiles(_axes(c.spec)) - 1 / self.tiles(self.axes_before(c)))
        return found

    def count_unlike(self, changes: Sequence[Change], least: int = 2) -> int:
        """The rows of arguments and results that changes lay out unlike others of their freedoms,
        of which there are so many at least.
        """
        freedoms = self.candidates.freedoms
        if freedoms is None:
            return 0
        of = {(c.index if isinstance(c, Argument) else ~c.index): c for c in changes
              if isinstance(c, Argument | Result)}
        found = freedoms.unlike_with(self.layouts(changes), least)
        return len({(row_of(of[i].name), of[i].spec, i >= 0) for i in found})

    def joins(self, changes: Sequence[Change]) -> bool:
        """Do arguments only get axes along dimensions that these split in all others?"""
        freedoms = self.candidates.freedoms
        return freedoms is not None and all(
            isinstance(c, Argument) and _axes(c.spec) > self.axes_before(c)
            for c in changes) and freedoms.joins(self.layouts(changes))

    def agree_more(self, changes: Sequence[Change]) -> bool:
        """Do arguments keep their axes, on dimensions along which these axes split others, too?"""
        _, agree = self.agreeing.get(id(changes), (None, None))
        if agree is None:
            freedoms = self.candidates.freedoms
            agree = freedoms is not None and all(
                isinstance(c, Argument) and _axes(c.spec) == self.axes_before(c)
                for c in changes) and freedoms.agree_more(self.layouts(changes))
            self.agreeing[id(changes)] = changes, agree
        return agree

    def disagree_more(self, changes: Sequence[Change]) -> bool:
        """Do arguments, and results that are asked for, cease to be laid out alike?"""
        freedoms = self.candidates.freedoms
        return freedoms is not None and freedoms.disagree_more({
            i: own for i, own in self.layouts(changes).items() if i in freedoms.given})

    def layouts(self, changes: Sequence[Change]) -> dict[int, Entries]:
        """The layouts that changes give arguments, by position, and results, by ~position."""
        program = self.candidates.inlined
        return {c.index if isinstance(c, Argument) else ~c.index: c.spec.padded((
            program.invars if isinstance(c, Argument) else program.outvars)[
                c.index].aval.ndim).entries for c in changes if isinstance(c, Argument | Result)}

    def splits_whole(self, changes: Sequence[Change]) -> bool:
        """Are they arguments that are split along what nothing splits now, all that have it?"""
        freedoms = self.candidates.freedoms
        return freedoms is not None and all(isinstance(c, Argument) for c in changes) and (
            freedoms.splits_whole({c.index: c.spec.padded(
                self.candidates.inlined.invars[c.index].aval.ndim).entries
                for c in changes if isinstance(c, Argument)}))

    def tiles(self, axes: Iterable[str]) -> int:
        return group_size(self.candidates.mesh, axes)

    def axes_before(self, change: Change) -> Set[str]:
        """The axes that split a change's value now; for a change of what asked for the collective,
        also those before it is moved, and those that a result would have from the arguments.
        """
        partitioned, found = self.candidates.partitioned, self.candidates
        if isinstance(change, Argument):
            return _axes(partitioned.in_specs[change.index])
        if isinstance(change, Result):
            before = set(_axes(partitioned.out_specs[change.index]))
            if self.is_direct(change):
                before |= self.moved.get(change.index, set())
                if found.freedoms is not None and ~change.index in found.freedoms.given:
                    before |= found.freedoms.axes_of(~change.index)
            return before
        before = self.made if self.is_direct(change) else set()
        var = found.var_at.get(change.places[0]) if isinstance(change, Constrain | Respec) else None
        entries = found.entries.get(found.graph_tensor(var)) if var is not None else None
        return before | {str(a) for e in entries or () for a in e}

    def finer(self, changes: Sequence[Change], before: Sequence[PartitionSpec],
              after: Sequence[PartitionSpec]) -> bool:
        """Are values of these layouts in more parts than they were before? Axes do not count that
        changes put on another dimension of an argument which the collective comes from.
        """
        specs = self.candidates.partitioned.in_specs
        moved = {a for c in changes if isinstance(c, Argument) and self.is_direct(c)
                 for a in _moved(c.spec, specs[c.index])}
        return any(self.tiles(_axes(now) - moved) > self.tiles(_axes(was) - moved)
                   for was, now in zip(before, after, strict=False))

    def fed_back(self, before: Partitioned, after: Partitioned) -> int:
        """Bytes that a device receives of results to bring them back to the layout of an argument
        of their type, which they had before: whoever passes them on has to, as from step to step.
        Each argument takes one result, first of all one that keeps its layout.
        """
        free: dict[tuple, Counter[PartitionSpec]] = {}     # of arguments in a layout: as they are
        for v, was, now in zip(before.stages["inlined"].invars, before.in_specs, after.in_specs,
                               strict=True):
            free.setdefault((v.aval.shape, v.aval.dtype, was), Counter())[now] += 1
        found, results = 0, [(v.aval, was, now) for v, was, now in zip(
            after.stages["inlined"].outvars, before.out_specs, after.out_specs, strict=False)]
        for t, was, now in sorted(results, key=lambda r: r[1] != r[2]):
            left = +free.get((t.shape, t.dtype, was), Counter())
            taken = now if left[now] else was if left[was] else next(iter(left), None)
            if taken is None:
                continue
            free[t.shape, t.dtype, was][taken] -= 1
            found += missing(self.candidates.mesh, t.shape, now.padded(t.ndim).entries,
                             taken.padded(t.ndim).entries) * t.dtype.itemsize
        return found

    def splits(self, changes: Sequence[Change]) -> bool:
        """Does some change split an argument over axes that did not split it, into more parts?"""
        return any(self.further([c]) and self.tiles(_axes(c.spec)) > self.tiles(self.axes_before(c))
                   for c in changes if isinstance(c, Argument))

    def size(self, changes: Sequence[Change]) -> int:
        """Bytes of the arguments and results whose layouts change."""
        program = self.candidates.inlined
        types = [(program.invars if isinstance(c, Argument) else program.outvars)[c.index].aval
                 for c in changes if isinstance(c, Argument | Result)]
        return sum(math.prod(t.shape) * t.dtype.itemsize for t in types)

    def any_direct(self, changes: Sequence[Change]) -> bool:
        """Does some change concern the origin of the collective, what asked for it, or the code?"""
        return any(map(self.is_direct, changes))

    def unrelated(self, changes: Sequence[Change], others: Iterable[Change]) -> bool:
        """Are the others, of arguments and results, about something else: neither direct, nor of
        arguments that are suspect, nor of a tree of arguments of which these are?
        """
        freedoms = self.candidates.freedoms
        suspect = freedoms.unlike if freedoms is not None else frozenset()
        trees = {tree_of(c.name) for c in changes if isinstance(c, Argument)}
        return all(isinstance(c, Argument | Result) and not self.is_direct(c) and (
            isinstance(c, Result) or c.index not in suspect and tree_of(c.name) not in trees)
            for c in others)

    def is_direct(self, change: Change) -> bool:
        """Does the change concern the origin of the collective, what asked for it, or the code?"""
        if isinstance(change, Argument):
            var = self.candidates.inlined.invars[change.index]
            return self.candidates.graph_tensor(var) in self.roots
        if isinstance(change, Respec):
            return where(change.location)[:-1] in self.askers
        if isinstance(change, Result):
            return change.was != spec_text(change.spec) and (
                change.index in self.moved or change.index in self.held)
        return not isinstance(change, Constrain)


@cached(4096, "the mesh axes of specs")
def _axes(spec: PartitionSpec) -> frozenset[str]:
    return frozenset([str(a) for e in spec.padded(len(spec)).entries for a in e])


def _moved(now: PartitionSpec, was: PartitionSpec) -> set[str]:
    """The mesh axes that split a dimension, as they split another before."""
    rank = max(len(now), len(was))
    before = was.padded(rank).entries
    return {str(a) for e, had in zip(now.padded(rank).entries, before, strict=True)
            if e != had and e in before for a in e}
