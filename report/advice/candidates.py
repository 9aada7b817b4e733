"""Candidate changes that might avoid a collective: specs of values near it, the likeliest first.

The values around a collective are the one that it moves, what reads and makes that, and everything
on the paths of its axes back to their annotations. For each, the candidates are other specs: the
axes left out, on another dimension, others in their place, or as the other side wants it. A value
is changed where it is decided: an argument in its sharding, a constraint in its spec, a result in
out_shardings, any other value by a constraint after its equation. Those come first whose value is
behind collectives that take long (charges.py); a first candidate of a value counts more than its
second. Whether a candidate helps is not judged here.
"""
from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.sharding import reshard_p, sharding_constraint_p
from ...ir.program import Atom, Equation, Program, Var
from ...ir.shardings.sharding import NamedSharding
from ...ir.source.location import Location
from ...ir.spec import UNCONSTRAINED, PartitionSpec, spec_from_entries
from ...ir.types import Entries
from ...partitioner.collectives import CollectiveRecord
from ...partitioner.pipeline import Partitioned
from ..reasons.causes import Cause, sharding_key, where
from ..reasons.explain_collective import Reasons
from ..reasons.value_paths import Place, places
from ..words import spec_text
from .body_changes import Ungather, body_changes
from .changes import Argument, Change, Constrain, Respec, Result, row_of
from .charges import Charges
from .code_changes import Rewritten, Site, sites
from .freedoms import Agreements, Given
from .other_layouts import layouts_over_others, merged, other_layouts

_NO_PLACE = frozenset(("shard_map",))
_AS_WRITTEN = ("", "jvp")       # equations with the values, of the shapes, that the user's code has
_NEAR, _CONSTRAINTS, _ARGUMENTS, _RESULTS = 6, 12, 24, 8    # most that are looked at


_NUMBERED = re.compile(r"(\w+?)_\d+")


class Candidates:
    """Enumerates changes for the collectives of one partitioned program. explained: these, with
    their causes and seconds.
    """

    def __init__(self, partitioned: Partitioned, reasons: Reasons,
                 explained: Sequence[tuple[CollectiveRecord, Cause, float]]) -> None:
        self.partitioned, self.reasons = partitioned, reasons
        self.mesh: AbstractMesh = partitioned.mesh
        self.inlined: Program = partitioned.stages["inlined"]
        self.explicit = bool(partitioned.traced.mesh.explicit_axes) or any(
            v.aval.mesh.explicit_axes for v in partitioned.traced.invars)
        self.place: dict[Var, Place] = {}
        self.maker: dict[Var, Equation | None] = {}
        self.var_at: dict[Place, Var] = {}
        self.maps: list[tuple[Place, Equation]] = []       # the program's `shard_map`s
        self.by_line: dict[tuple, list[Place]] = {}          # the places of one line
        for place, var, eqn in places(self.inlined):
            if self._is_manual(place.path):
                continue
            self.place[var], self.maker[var] = place, eqn
            self.var_at[place] = var
            if eqn is not None:
                self.by_line.setdefault(_line(eqn, place.index), []).append(place)
                if eqn.op.name in _NO_PLACE and place.index == 0:
                    self.maps.append((place, eqn))
        origins = reasons.origins
        self.value: dict[int, Var] = {}          # tensor of propagation -> value of the program
        self.entries: dict[int, Entries] = {}
        if origins is not None:
            for var, t in origins.solution.graph.index.items():
                self.value.setdefault(t, var)
            for var, t in origins.tensors.items():
                self.entries.setdefault(t, var.aval.entries)
        self.laid_out = [v for v, maker in self.maker.items()
                         if maker is not None and sharding_key(maker)]
        self.charges = Charges(explained, self.constraint_at)
        # The expressions that read a value: one that its own expression alone reads is inside of
        # a function of ours.
        self.read_at: dict[Var, set[tuple]] = {}
        for _, _, eqn in places(self.inlined):
            if eqn is None:
                continue
            for a in eqn.invars:
                if isinstance(a, Var):
                    found = self.read_at.setdefault(a, set())
                    if eqn.location.transform in _AS_WRITTEN:
                        found.add(where(eqn.location)[:-1])

    def _is_manual(self, path) -> bool:
        program = self.inlined
        for n, name, j in path:
            eqn = program.eqns[n]
            if eqn.op.name in _NO_PLACE:
                return True
            held = eqn.params[name]
            program = held if j < 0 else held[j]
        return False

    # -- what to look at -------------------------------------------------------------------------

    def of(self, record: CollectiveRecord, cause: Cause, others: bool = False
           ) -> list[tuple[Change, ...]]:
        """Changes that might avoid the collective, the likeliest first, none twice; some go
        together. others: those that give values other axes of the mesh instead of its axes.
        """
        axes = tuple(dict.fromkeys(str(a).partition(":")[0] for a in record.mesh_axes))
        near = [(t, self.changes(t, axes, None if others else wanted, others))
                for t, wanted in self.seeds(cause)]
        near += [(-1, changes) for changes in self.results(axes, cause) if not others]
        rounds: list[tuple[float, int, tuple[Change, ...]]] = []
        single: list[tuple[Change, ...]] = []        # of arguments that have others like them
        for t, changes in near:
            for turn, c in enumerate(changes):
                group = self.alike(c)
                if not group:            # a value of a derivative alone, which no line of his makes
                    continue
                rounds.append((self.charge(t, group, axes) / (turn + 1), turn, group))
                single += [(c,)] if len(group) > 1 else []
        if not others and self.agreements is not None:
            rounds += [(self.charge(-1, group, axes), 0, group)
                       for group in self.agreements.of(axes)]
        rounds.sort(key=lambda r: (-r[0], r[1]))
        changed = [group for _, _, group in rounds]
        if others:
            return list(dict.fromkeys(changed))
        return list(dict.fromkeys([*self.of_code(record, cause), *self.in_body(record, cause),
                                   *changed, *single]))

    def charge(self, tensor: int, group: tuple[Change, ...], axes: tuple[str, ...]) -> float:
        """Seconds of the collectives over these axes that the values of a change are behind."""
        own = [self.graph_tensor(self.inlined.invars[c.index]) for c in group
               if isinstance(c, Argument)]
        return self.charges.of(own or [tensor], axes)

    @functools.cached_property
    def agreements(self) -> Agreements | None:
        """Changes of several arguments at once."""
        origins, invars = self.reasons.origins, self.inlined.invars
        return None if origins is None else Agreements(origins.solution.graph, self.mesh, {
            i: Given(t, v.aval.shape, merged(self.entries[t], self.mesh))
            for i, v in enumerate(invars) if (t := self.graph_tensor(v)) in self.entries},
            lambda i, new: self.alike(self.argument(i, new)))

    def argument(self, index: int, entries: Entries) -> Argument:
        """Another layout of an argument."""
        t = self.graph_tensor(self.inlined.invars[index])
        was = spec_text(spec_from_entries(merged(self.entries[t], self.mesh)))
        return Argument(index, self.partitioned.traced.arg_names[index],
                        spec_from_entries(entries), was)

    def alike(self, change: Change) -> tuple[Change, ...]:
        """A change of an argument or result, made to all that are like it: elements of one list,
        parts of the same name of a tree's layers, of one shape and in one layout. A table of specs
        says what such are in one row. Of a value that is one of several of an equation, such as
        the parts of a split, it is made to all of these.
        """
        if isinstance(change, Constrain):
            return self.beside(change)
        if not isinstance(change, Argument | Result):
            return (change,)
        group = self.groups[isinstance(change, Result)].get(change.index, {change.index: ""})
        return tuple([change.of(i, name) for i, name in group.items()]) if len(group) > 1 else (
            change,)

    def beside(self, change: Constrain) -> tuple[Change, ...]:
        """The same constraint on all results of its equation that are of one type with its value.
        """
        var = self.var_at[change.places[0]]
        maker = self.maker[var]
        if maker is None or maker.op.subprograms:
            return (change,)
        same = [v for v in maker.outvars if v.aval == var.aval and self.is_of_user(v, maker)]
        return tuple([self.constrained(v, maker, change.spec) for v in same])

    @functools.cached_property
    def groups(self) -> tuple[dict[int, dict[int, str]], dict[int, dict[int, str]]]:
        """By argument, and by result, the names of those that are like it, it included."""
        layouts = [self.entries.get(self.graph_tensor(v)) for v in self.inlined.invars]
        return (_groups(self.inlined.invars, self.partitioned.traced.arg_names, layouts),
                _groups(self.inlined.outvars, [self.result_name(i) for i in range(
                    len(self.inlined.outvars))], self.partitioned.out_specs))

    def of_code(self, record: CollectiveRecord, cause: Cause) -> Iterator[tuple[Change, ...]]:
        """Changes of the code that a collective is for, or that it comes from; all of them, too:
        several places may read what one collective gathers.
        """
        near = {where(at.location) for at in (cause.move, cause.equation) if at is not None}
        near.add(where(record.source))
        found = [Rewritten(site.change.rewrite.name, where(site.location), site.change,
                           site.location, site.code) for site in self.sites if near & site.near]
        yield from [(c,) for c in found]
        if len(found) > 1:
            yield tuple(found)

    @functools.cached_property
    def sites(self) -> list[Site]:
        """Where a change of code applies."""
        return list(sites(self.inlined))

    def in_body(self, record: CollectiveRecord, cause: Cause) -> Iterator[tuple[Change, ...]]:
        """Changes of the `shard_map` in which the user wrote the collective, if he did."""
        if cause.move is not None:
            return
        operand = record.equation.invars[0].aval
        equal = not {str(a) for a in record.mesh_axes} & {str(a) for a in operand.manual.varying}
        for place, eqn in self.maps:
            for change in body_changes(place, eqn, record.source, equal):
                yield (change,)
                given = eqn.invars[change.operand] if isinstance(change, Ungather) else None
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

    def constraint_at(self, location: Location, tensor: int) -> int:
        """The tensor that the constraint written at a place gives, rather than what it reads."""
        var = self.asked_at.get(where(location)) if location.line else None
        return tensor if var is None else self.graph_tensor(var)

    @functools.cached_property
    def asked_at(self) -> dict[tuple, Var]:
        """By place the first value that is given its layout there."""
        return {where(maker.location): v for v in reversed(self.laid_out)
                if (maker := self.maker[v]) is not None}

    def tensor(self, var: Var) -> int:
        t = self.reasons.tensor(var)
        if t < 0:                                    # a partial sum: what it becomes
            for reader in self.reasons.readers.get(var, ()):
                if reader.op is reshard_p:
                    return self.reasons.tensor(reader.outvars[0])
        return t

    def graph_tensor(self, var: Var) -> int:
        origins = self.reasons.origins
        return origins.solution.graph.index.get(var, -1) if origins is not None else -1

    # -- changes of one value --------------------------------------------------------------------

    def changes(self, t: int, axes: tuple[str, ...], wanted: Entries | None, others: bool = False
                ) -> Iterator[Change]:
        var = self.value.get(t)
        if var is None or var not in self.place or not var.aval.shape:
            return
        place, maker = self.place[var], self.maker[var]
        key = sharding_key(maker) if maker is not None else ""
        if maker is not None and key:
            yield from self.of_annotation(maker, place, key, axes, wanted, others)
            return
        entries = self.entries.get(t)
        if entries is None:
            return
        entries = merged(entries, self.mesh)
        for new in self.layouts(var.aval.shape, entries, axes, wanted, others, place.is_argument):
            spec = spec_from_entries(new)
            if place.is_argument:
                if new != entries:
                    yield self.argument(place.index, new)
            elif maker is not None and self.is_of_user(var, maker):
                yield self.constrained(var, maker, spec)

    def constrained(self, var: Var, maker: Equation, spec: PartitionSpec) -> Constrain:
        places = self.by_line[_line(maker, self.place[var].index)]
        return Constrain(tuple(places), self.name(var, maker), spec, maker.location, self.explicit)

    def of_annotation(self, maker: Equation, place: Place, key: str, axes: tuple[str, ...],
                      wanted: Entries | None, others: bool) -> Iterator[Change]:
        """Other specs of a constraint, a `reshard` or an `out_sharding=`, or none."""
        word = {sharding_constraint_p: "with_sharding_constraint", reshard_p: "reshard"}.get(
            maker.op, "out_sharding")
        sharding: NamedSharding = maker.params[key]
        if sharding.spec.unreduced or sharding.spec.reduced:
            return
        aval = maker.outvars[place.index].aval
        same = tuple(self.by_line[_line(maker, place.index)])
        was = spec_text(sharding.spec)
        if not others:
            yield Respec(same, None, word, maker.location, was)
        own = tuple(() if e is UNCONSTRAINED else e
                    for e in sharding.spec.padded(aval.ndim).entries)
        for new in self.layouts(aval.shape, own, axes, wanted, others, True):
            if new != own:
                yield Respec(same, spec_from_entries(new), word, maker.location, was)

    def layouts(self, shape: tuple[int, ...], entries: Entries, axes: tuple[str, ...],
                wanted: Entries | None, others: bool, annotated: bool) -> Iterator[Entries]:
        """Other layouts of a value, in these axes or in others; annotated: the user chose it."""
        if others:
            return layouts_over_others(self.mesh, shape, entries, axes, annotated)
        return other_layouts(self.mesh, shape, entries, axes, wanted)

    def is_of_user(self, var: Var, maker: Equation) -> bool:
        """Is it, with these dimensions, a value of the user's code: named, or of an expression?"""
        if maker.location.transform not in _AS_WRITTEN:
            return False
        readers = self.read_at.get(var)
        return bool(var.name) or readers is None or bool(
            readers - {where(maker.location)[:-1]})

    def name(self, var: Var, maker: Equation) -> str:
        if var.name:
            base = _NUMBERED.fullmatch(var.name)        # `x_1` is the second value called `x`
            lines = maker.location.source_line()
            return base[1] if base and base[1] in lines and var.name not in lines else var.name
        text = maker.location.text()
        if len(text) > 40 and text.endswith(")"):
            text = f"{text.partition('(')[0]}(...)"
        return text if text and len(text) <= 40 else f"the result of {maker.op.name}"

    # -- results ---------------------------------------------------------------------------------

    def results(self, axes: tuple[str, ...], cause: Cause) -> list[Iterator[Change]]:
        """Other specs of each result, in out_shardings."""
        if self.explicit or not self.partitioned.out_specs:
            return []
        return [self.of_result(i, axes, self.as_made(i, cause))
                for i, v in enumerate(self.inlined.outvars[:_RESULTS]) if v.aval.shape]

    def as_made(self, i: int, cause: Cause) -> Entries | None:
        """The layout in which a result is before it is moved, where that is what a cause is of."""
        move, outvars = cause.move, self.reasons.resharded.outvars
        if move is None or outvars[i] is not move.outvars[0]:
            return None
        return move.invars[0].aval.entries

    def of_result(self, i: int, axes: tuple[str, ...], wanted: Entries | None
                  ) -> Iterator[Change]:
        v, spec = self.inlined.outvars[i], self.partitioned.out_specs[i]
        entries = spec.padded(v.aval.ndim).entries
        for new in other_layouts(self.mesh, v.aval.shape, entries, axes, wanted):
            if new != entries:
                yield Result(i, self.result_name(i), spec_from_entries(new),
                             spec_text(spec_from_entries(entries)))

    def result_name(self, i: int) -> str:
        names = self.partitioned.traced.result_names
        if i < len(names) and names[i]:
            return names[i]
        return f"[{i}]" if len(self.inlined.outvars) > 1 else ""

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
                kept = Result(i, self.result_name(i), was, spec_text(was))
                found.update([(c.index, c) for c in self.alike(kept)
                              if isinstance(c, Result) and (c == kept or c.index not in seen)])
        return tuple(found.values())


def _groups(atoms: Sequence[Atom], names: Sequence[str], layouts: Sequence[Any]
            ) -> dict[int, dict[int, str]]:
    """By position, the names of the values of one row, type and layout."""
    found: dict[tuple, dict[int, str]] = {}
    for i, (atom, name, layout) in enumerate(zip(atoms, names, layouts, strict=False)):
        t = atom.aval
        found.setdefault((row_of(name), t.shape, t.dtype, layout), {})[i] = name
    return {i: group for group in found.values() for i in group}


def _line(eqn: Equation, index: int) -> tuple:
    """What the equations have in common that a change of their line changes."""
    key = sharding_key(eqn)
    at = where(eqn.location)
    # derivatives of a layout repeat it, those of other values are others
    return (at[:-1] if key else at, eqn.op.name, index, eqn.outvars[index].aval.shape,
            eqn.params[key].spec if key else None, 0 if eqn.location.line else id(eqn))
