"""Candidate changes that might avoid a collective: other specs of nearby values, likeliest first.

The values near a collective are the one that it moves, its producer and readers, and everything on
the paths of its axes back to their annotations. For each, the candidates are other specs: that of
most arguments of its shape, with the axes left out, on another dimension, replaced by others, or as
the other side wants it. A value is changed where it is decided: an argument in its sharding, a
constraint in its spec, a result in out_shardings, any other value by a constraint after its
equation. Values behind collectives that take long come first (layouts/charges.py), and the first
candidate of a value counts more than its second.
Before all these come changes after which arguments agree along dimensions that can only be split
together (layouts/freedoms.py). Whether a candidate helps is not judged here.
"""
from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...ir.facts import CHEAP, VIEW
from ...ir.op import OPS
from ...ir.program import Var
from ...ir.spec import spec_from_entries
from ...ir.types import Entries
from ...partitioner.collectives import CollectiveRecord
from ...partitioner.pipeline import Partitioned
from ..reasons.causes import Cause, where, whole_axes
from ..reasons.explain_collective import Reasons
from .changes import (
    Argument,
    Change,
    Respec,
    Result,
    forms_of,
    pattern_of,
    rows,
    unlike_siblings,
)
from .code.changes import Rewritten, Site, sites
from .code.left_axes import left_axes
from .code.shard_map_bodies import Ungather, body_changes
from .interleaving.change import Interleave
from .interleaving.seeds import Seed, seeds
from .layouts.charges import Charges
from .layouts.freedoms import Freedoms
from .layouts.other_layouts import is_layout, merged, without
from .layouts.value_changes import ValueChanges

_NEAR, _CONSTRAINTS, _ARGUMENTS = 6, 12, 24        # most that are looked at
_LATER = 3          # values further on that are looked at in place of a constrained one
_DOUBT = 0.5        # of the largest charge, what a constraint is charged at least
_UNSPLIT = 2        # freedoms that nothing splits which are tried over an idle axis
_ASKED = 2          # changes of what asked for an exchange that are tried before those of code
_SMALL = 0.02       # of the bytes of all arguments, up to which one is whole for nothing


class Candidates(ValueChanges):
    """Enumerates changes for the collectives of one partitioned program. explained: these, with
    their causes and seconds; freedoms: of its arguments.
    """

    def __init__(self, partitioned: Partitioned, reasons: Reasons,
                 explained: Sequence[tuple[CollectiveRecord, Cause, float]],
                 freedoms: Freedoms | None) -> None:
        super().__init__(partitioned, reasons)
        self.charges, self.freedoms = Charges(explained, self.constraint_at), freedoms

    # -- what to look at -------------------------------------------------------------------------

    def of(self, record: CollectiveRecord, cause: Cause, others: bool = False
           ) -> list[tuple[Change, ...]]:
        """Changes that might avoid the collective, the likeliest first, none twice; some go
        together. others: those that give values other axes of the mesh instead of its axes.
        """
        axes = tuple(dict.fromkeys(str(a).partition(":")[0] for a in record.mesh_axes))
        near = [(t, self.changes(t, axes, None if others else wanted, others))
                for t, wanted in self.seeds(cause)]
        near += [] if others else self.results(axes, cause)
        rounds: list[tuple[float, int, tuple[Change, ...]]] = []
        single: list[tuple[Change, ...]] = []        # of arguments that have others like them
        for t, changes in near:
            for turn, c in enumerate(changes):
                group = self.whole_row(c)
                if not group:            # a value of a derivative alone, which no user line makes
                    continue
                others_too = self.taken_out(c) if isinstance(c, Respec) and c.spec is None else (
                    self.siblings(c))
                for changed in dict.fromkeys((others_too, group)):
                    rounds.append((self.charge(t, changed, axes) / (turn + 1), turn, changed))
                single += [(c,)] if len(group) > 1 else []
        if not others and self.freedoms is not None:
            rounds += [(self.charge(-1, group, axes), 0, group) for axis in axes
                       for group in self.of_table(self.freedoms.along(axis))
                       if len(rows(group)) > 1]
        if others and self.freedoms is not None:
            rounds += [(self.charge(-1, group, axes), 0, group) for axis in self.freedoms.idle
                       for group in self.of_table(self.freedoms.instead(axis, axes))
                       if len(rows(group)) > 1]
        # what is written may be wrong, also where no path leads to it
        least = max([charge for charge, *_ in rounds], default=0.0) * _DOUBT
        rounds = [(max(charge, least) if _takes_out(group) else charge, turn, group)
                  for charge, turn, group in rounds]
        rounds.sort(key=lambda r: (-r[0], r[1]))
        changed = [group for _, _, group in rounds]
        if others:
            unsplit = [self.of_table(itertools.islice(self.freedoms.unsplit(axis), _UNSPLIT))
                       for axis in self.freedoms.idle] if self.freedoms is not None else []
            return list(dict.fromkeys([*itertools.chain.from_iterable(unsplit), *changed]))
        agreed = () if self.freedoms is None else itertools.chain(
            self.of_table(itertools.chain(self.freedoms.consensus(), self.freedoms.lacking(),
                                          self.freedoms.alone())),
            self.of_table(self.freedoms.consensus(moved=True)))
        return list(dict.fromkeys([*agreed, *_asked(cause, changed)[:_ASKED],
                                   *self.small_roots(cause, axes),
                                   *self.of_code(record, cause),
                                   *self.of_parts(record, cause), *self.in_body(record, cause),
                                   *self.asked_later(cause),
                                   *filter(None, [self.all_as_made.get(cause.move)]),
                                   *changed, *single]))

    def charge(self, tensor: int, group: tuple[Change, ...], axes: tuple[str, ...]) -> float:
        """Seconds of the collectives over these axes that the values of a change are behind."""
        own = [self.graph_tensor(self.inlined.invars[c.index]) for c in group
               if isinstance(c, Argument)]
        return self.charges.of(own or [tensor], axes)

    def of_table(self, layouts: Iterable[Mapping[int, Entries]]) -> Iterator[tuple[Change, ...]]:
        """Other layouts of several arguments and results, of all that are like them, too; none
        twice.
        """
        seen: set[tuple[int, Entries]] = set()
        for found in layouts:
            group: dict[Change, None] = {}
            for i, entries in found.items():
                if (i, entries) not in seen:
                    own = self.whole_row(self.argument(i, entries) if i >= 0 else self.result(
                        ~i, entries))
                    seen.update([(c.index if isinstance(c, Argument) else ~c.index, entries)
                                 for c in own if isinstance(c, Argument | Result)])
                    group.update(dict.fromkeys(own))
            if group:
                yield tuple(group)

    def taken_out(self, change: Respec) -> tuple[Change, ...]:
        """The removal of a constraint, and of all equal ones on values of its shape."""
        asked = self.var_at[change.places[0]]
        found = [next(iter(self.changes(self.graph_tensor(v), (), None)), None)
                 for v in self.laid_out if v.aval.shape == asked.aval.shape]
        return (change, *dict.fromkeys([
            c for c in found if isinstance(c, Respec) and c.spec is None and c != change
            and (c.word, c.was) == (change.word, change.was)]))

    @functools.cached_property
    def as_siblings(self) -> tuple[Change, ...]:
        """The arguments that are laid out unlike most of their row, as these are."""
        given = self.inlined.invars
        return tuple([
            self.argument(i, merged(self.entries[self.graph_tensor(given[like])], self.mesh))
            for i, like in unlike_siblings(forms_of(self.partitioned)).items()
            if {self.graph_tensor(given[n]) for n in (i, like)} <= self.entries.keys()])

    def small_roots(self, cause: Cause, axes: tuple[str, ...]) -> Iterator[tuple[Change, ...]]:
        """The arguments from which the axes of a collective come, without a product, whole, where
        that takes next to no memory: such as scales and positions, along which a layer's values are
        split for nothing.
        """
        given = self.inlined.invars
        most = _SMALL * sum(v.aval.nbytes for v in given)
        for i in dict.fromkeys([path.argument for path in cause.paths if not any(
                name in OPS and OPS[name].region is None and not OPS[name].facts & {CHEAP, VIEW}
                for name, _ in path.steps)]):
            entries = self.entries.get(self.graph_tensor(given[i])) if i >= 0 else None
            if entries is not None and given[i].aval.nbytes <= most:
                whole = without(merged(entries, self.mesh), axes)
                if whole != entries:
                    yield self.whole_row(self.argument(i, whole))

    def of_code(self, record: CollectiveRecord, cause: Cause) -> Iterator[tuple[Change, ...]]:
        """Changes of the code that a collective serves or comes from, one by one, each with what it
        does to the derivatives of its line, all together, since several places may read what one
        collective gathers, without those of the collective itself, too, and with the same change
        wherever it applies.
        """
        near = self.near(record, cause)
        of_line: dict[tuple[str, tuple], list[Site]] = {}
        for site in self.sites:
            of_line.setdefault((site.change.rewrite.name, where(site.location)), []).append(site)
        every = {Rewritten(name, at, sites[0].change, sites[0].location, tuple(sites)): sites[0]
                 for (name, at), sites in of_line.items()}
        found = [c for c, site in every.items() if near & site.near]
        lines: dict[tuple, dict[tuple, Change]] = {}        # by line and words, then by derivative
        for c in found:
            lines.setdefault((c.at[:-1], c.change.words), {})[c.at[-1]] = c
        wholes = [tuple(of.values()) for of in lines.values() if len(of) > 1]
        parts = set(itertools.chain.from_iterable(wholes))
        yield from wholes
        yield from [(c,) for c in found if c not in parts]
        readers = [c for c in found if not every[c].exchanges]
        for together in dict.fromkeys((tuple(readers), tuple(found))):
            if len(together) > 1:
                yield together
        words = {c.change.words for c in found}
        alike = tuple([c for c in every if c.change.words in words])
        if len(alike) > len(found):
            yield alike

    def near(self, record: CollectiveRecord, cause: Cause) -> set[tuple]:
        """The places of the user's code that a collective serves or comes from."""
        near = {where(at.location) for at in (cause.move, cause.equation) if at is not None}
        near.add(where(record.source))
        near |= {where(at) for path in cause.paths for _, at in path.steps}
        return near | {where(e.location) for e in self.reasons.following(cause.move)}

    def of_parts(self, record: CollectiveRecord, cause: Cause) -> Iterator[tuple[Change, ...]]:
        """Interleaves the parts of a split value, one of which is read by itself, alone and with
        others: those that are near, and all that are cut into as many parts.
        """
        near = self.near(record, cause)
        every = [(self.interleave(seed), seed) for seed in self.seeds_of_parts
                 if not (self.explicit and seed.maker is None)]
        found = dict.fromkeys([c for c, seed in every if near & seed.near])
        yield from [(c,) for c in found]
        for arguments in (False, True):
            own = [c for c in found if bool(c.arguments) == arguments]
            counts = {c.counts for c in own}
            alike = dict.fromkeys([c for c, _ in every if bool(c.arguments) == arguments
                                   and c.counts in counts])
            yield from dict.fromkeys([tuple(these) for these in (own, alike) if len(these) > 1])

    def interleave(self, seed: Seed) -> Interleave:
        """The change of the value that a line concatenates, or of an argument and its row."""
        if seed.maker is not None:
            return Interleave(where(seed.maker.location), (), seed.dim, seed.group, seed.counts,
                              "", seed.maker.location, self.inlined)
        i = self.place[seed.value].index
        row = self.groups[0].get(i, {i: self.partitioned.traced.arg_names[i]})
        name = f"`{pattern_of([*row.values()])}`"
        return Interleave((), tuple(row), seed.dim, seed.group, seed.counts,
                          name if len(row) == 1 else f"all {len(row)} {name}", seed.cut,
                          self.inlined)

    @functools.cached_property
    def seeds_of_parts(self) -> list[Seed]:
        """Values made of parts along a dimension that is split. Of several arguments of which the
        same equations read parts, such as a weight and its bias, the largest.
        """
        found: dict[Any, Seed] = {}
        for seed in sorted(seeds(self.inlined), key=lambda s: -s.value.aval.nbytes):
            operands = seed.maker.invars if seed.maker is not None else ()
            entries = [self.entries.get(self.graph_tensor(v)) for v in (seed.value, *operands)
                       if isinstance(v, Var)]
            if any(e is None or e[seed.dim] for e in entries):
                found.setdefault(seed.near if seed.maker is None else seed.value, seed)
        return list(found.values())

    @functools.cached_property
    def sites(self) -> list[Site]:
        """Where a change of code applies."""
        return list(sites(self.inlined))

    def asked_later(self, cause: Cause) -> Iterator[tuple[Change, ...]]:
        """What asked for a layout taken out, and asked for further on, where there are fewer bytes:
        of a value that follows from it, as that is laid out now.
        """
        at = [cause.asked_by.location] if cause.asked_by is not None else []
        at += [said.root_location for said in (*cause.holds, *cause.paths)]
        for asked in dict.fromkeys([self.asked_at.get(where(a)) for a in at if a.line]):
            t = -1 if asked is None else self.graph_tensor(asked)
            taken = next(iter(self.changes(t, (), None)), None)
            if asked is None or not isinstance(taken, Respec) or taken.spec is not None:
                continue
            yield self.taken_out(taken)
            for v in self.smaller(asked)[:_LATER]:
                maker, entries = self.maker[v], self.entries.get(self.graph_tensor(v))
                found = None if entries is None else merged(entries, self.mesh)
                if maker is not None and found and is_layout(self.mesh, v.aval.shape, found):
                    yield taken, self.constrained(v, maker, spec_from_entries(found))

    def in_body(self, record: CollectiveRecord, cause: Cause) -> Iterator[tuple[Change, ...]]:
        """Changes of the `shard_map` that the collective was written in, or that values are moved
        for.
        """
        near = {at[:2] for at in self.near(record, cause)} if self.maps else set()
        axes = sorted(whole_axes(record.mesh_axes))
        yield from [(change,) for change in left_axes(self.maps, self.readers, near, axes)]
        if cause.move is not None:
            return
        operand = record.equation.invars[0].aval
        equal = not {str(a) for a in record.mesh_axes} & {str(a) for a in operand.manual.varying}
        for place, eqn in self.maps:
            for change in body_changes(place, eqn, record.source, equal):
                yield (change,)
                given = eqn.invars[change.number] if isinstance(change, Ungather) else None
                if isinstance(change, Ungather) and isinstance(given, Var):
                    t = self.graph_tensor(given)
                    wanted = change.spec.padded(given.aval.ndim).entries
                    yield from ((change, other) for other in itertools.islice(
                        self.changes(t, (), wanted), 1))

    def seeds(self, cause: Cause) -> Iterator[tuple[int, Entries | None]]:
        """Tensors to change, with the layout that is wanted where there is one."""
        seen: set[tuple[int, Entries | None]] = set()

        def fresh(t: int, wanted: Entries | None) -> Iterator[tuple[int, Entries | None]]:
            if t >= 0 and (t, wanted) not in seen:
                seen.add((t, wanted))
                yield t, wanted

        for hold in cause.holds:
            yield from fresh(self.constraint_at(hold.root_location, hold.tensor), None)
        for path in cause.paths:
            if path.tensors:
                yield from fresh(self.constraint_at(path.root_location, path.tensors[-1]), None)
        move, eqn = cause.move, cause.equation
        if move is not None and isinstance(move.invars[0], Var):
            source, target = move.invars[0].aval, move.outvars[0].aval
            yield from fresh(self.constraint_at(move.location, -1), None)
            if not source.sharding.spec.unreduced:
                yield from fresh(self.tensor(move.invars[0]), target.entries)
            yield from fresh(self.tensor(move.outvars[0]), source.entries)
        if eqn is not None:
            for v in (*eqn.invars, *eqn.outvars):
                if isinstance(v, Var):
                    yield from fresh(self.tensor(v), None)
        for path in cause.paths:
            for t in path.tensors[:_NEAR]:
                yield from fresh(t, None)
        for v in (*self.laid_out[:_CONSTRAINTS], *self.inlined.invars[:_ARGUMENTS]):
            yield from fresh(self.graph_tensor(v), None)

    # -- results ---------------------------------------------------------------------------------

    def unchanged_results(self, results: Sequence[int], before: Partitioned, moved: Partitioned
                          ) -> tuple[Result, ...]:
        """What asks for the results as they were, where a change has laid them out otherwise.

        before, moved: this program, or a part of it, without and with the change; results: the
        numbers that its results have here.
        """
        if self.explicit or len(moved.out_specs) != len(before.out_specs):
            return ()
        seen, found = set(results), {}
        for i, was, now in zip(results, before.out_specs, moved.out_specs, strict=True):
            if was != now and not was.unreduced:
                kept = Result(i, self.result_name(i), was, was)
                found.update([(c.index, c) for c in self.whole_row(kept)
                              if isinstance(c, Result) and (c == kept or c.index not in seen)])
        return tuple(found.values())


def _takes_out(group: Sequence[Change]) -> bool:
    """Does it only take out constraints?"""
    return all(isinstance(c, Respec) and c.spec is None for c in group)


def _asked(cause: Cause, groups: Sequence[tuple[Change, ...]]) -> list[tuple[Change, ...]]:
    """The changes, of these, of the line alone that asked for an exchange."""
    asked = cause.asked_by
    return [] if asked is None else list(dict.fromkeys([
        group for group in groups if isinstance(group[0], Respec)
        and where(group[0].location) == where(asked.location)]))
