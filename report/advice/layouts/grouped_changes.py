"""Changes of groups of values: a row of a table of specs, a tree, the results of an equation."""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ....ir.program import Atom, Equation, Var
from ....ir.spec import PartitionSpec, spec_from_entries
from ....ir.types import Entries
from ....partitioner.pipeline import Partitioned
from ...reasons.explain_collective import Reasons
from ..changes import Argument, Change, Constrain, Result, row_of, tree_of
from .other_layouts import is_layout, merged
from .placed_results import PlacedResults
from .placed_values import line_of


class GroupedChanges(PlacedResults):
    """The values of one partitioned program, and changes made to groups of them."""

    def __init__(self, partitioned: Partitioned, reasons: Reasons) -> None:
        super().__init__(partitioned, reasons)
        self.made_to: dict[tuple, tuple[Change, ...]] = {}     # of changes of groups, what they are

    def argument(self, index: int, entries: Entries) -> Argument:
        """Another layout of an argument."""
        t = self.graph_tensor(self.inlined.invars[index])
        before = spec_from_entries(merged(self.entries[t], self.mesh))
        return Argument(index, self.partitioned.traced.arg_names[index],
                        spec_from_entries(entries), before)

    def constrained(self, var: Var, maker: Equation, spec: PartitionSpec) -> Constrain:
        places = self.by_line[line_of(maker, self.place[var].index)]
        names = dict.fromkeys([self.name(self.var_at[p], maker) for p in places])
        return Constrain(tuple(places), ", ".join(names), spec, maker.location, self.explicit,
                         self.is_expression(var, maker), self.mesh.axis_names)

    def whole_row(self, change: Change) -> tuple[Change, ...]:
        """A change of an argument or result, made to its whole row in a table of specs: elements
        of one list, or entries of one name in all layers of a tree, of one shape and layout. A
        constraint on one of several results of an equation, such as those of a split, is made on
        all of them.
        """
        if isinstance(change, Constrain):
            return self.all_results(change)
        if not isinstance(change, Argument | Result):
            return (change,)
        group = self.groups[isinstance(change, Result)].get(change.index, {change.index: ""})
        return self.all_of(change, group) if len(group) > 1 else (change,)

    def all_of(self, change: Argument | Result, group: dict[int, str]) -> tuple[Change, ...]:
        """A change of an argument or result, made to all of a group."""
        key = id(group), type(change), change.spec, change.was
        found = self.made_to.get(key)
        if found is None:
            found = self.made_to[key] = tuple([change.of(i, name) for i, name in group.items()])
        return found

    def siblings(self, change: Change) -> tuple[Change, ...]:
        """A change of an argument, made to all arguments of its tree in the same layout, whatever
        their names and shapes: whoever wrote the table of specs wrote that layout in several rows.
        """
        if not isinstance(change, Argument):
            return self.whole_row(change)
        group = self.trees[tree_of(change.name), self.partitioned.in_specs[change.index]]
        for shape in {self.inlined.invars[i].aval.shape for i in group}:
            if len(change.spec) > len(shape) or not is_layout(
                    self.mesh, shape, change.spec.padded(len(shape)).entries):
                return self.whole_row(change)
        return self.all_of(change, group)

    @functools.cached_property
    def trees(self) -> dict[tuple[str, PartitionSpec], dict[int, str]]:
        """By tree and layout, the names of the arguments that are in it."""
        found: dict[tuple[str, PartitionSpec], dict[int, str]] = {}
        for i, (name, spec) in enumerate(zip(
                self.partitioned.traced.arg_names, self.partitioned.in_specs, strict=False)):
            found.setdefault((tree_of(name), spec), {})[i] = name
        return found

    def all_results(self, change: Constrain) -> tuple[Change, ...]:
        """A constraint, put on all results of its equation that have the type of its value."""
        var = self.var_at[change.places[0]]
        maker = self.maker[var]
        if maker is None or maker.op.subprograms:
            return (change,)
        same = [v for v in maker.outvars if v.aval == var.aval and self.is_of_user(v, maker)]
        return tuple([self.constrained(v, maker, change.spec) for v in same])

    @functools.cached_property
    def groups(self) -> tuple[dict[int, dict[int, str]], dict[int, dict[int, str]]]:
        """For each argument, and each result, the names of its row (`whole_row`)."""
        layouts = [self.entries.get(self.graph_tensor(v)) for v in self.inlined.invars]
        return (_groups(self.inlined.invars, self.partitioned.traced.arg_names, layouts),
                _groups(self.inlined.outvars, [self.result_name(i) for i in range(
                    len(self.inlined.outvars))], self.partitioned.out_specs))


def _groups(atoms: Sequence[Atom], names: Sequence[str], layouts: Sequence[Any]
            ) -> dict[int, dict[int, str]]:
    """By position, the names of the values of one row, type and layout."""
    found: dict[tuple, dict[int, str]] = {}
    for i, (atom, name, layout) in enumerate(zip(atoms, names, layouts, strict=False)):
        t = atom.aval
        found.setdefault((row_of(name), t.shape, t.dtype, layout), {})[i] = name
    return {i: group for group in found.values() for i in group}
