"""The changes of the layout of one value, where it is decided: an argument in its sharding, a
constraint in its spec, any other value by a constraint after its equation.
"""
from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator

from ....ir.ops.communication.sharding import reshard_p, sharding_constraint_p
from ....ir.program import Equation
from ....ir.shardings.sharding import NamedSharding
from ....ir.spec import UNCONSTRAINED, spec_from_entries
from ....ir.types import Entries
from ...reasons.causes import sharding_key
from ...reasons.value_paths import Place
from ...words import spec_text
from ..changes import Change, Respec
from ..code.lines.statements import call_of
from .grouped_changes import GroupedChanges
from .other_layouts import layouts_over_others, merged, other_layouts
from .placed_values import line_of

_USUAL = 2          # layouts of other arguments of its shape that are tried for one


class ValueChanges(GroupedChanges):
    """Enumerates the changes of the values of one partitioned program, one by one."""

    def changes(self, t: int, axes: tuple[str, ...], wanted: Entries | None, others: bool = False
                ) -> Iterator[Change]:
        """The changes of the layout of one tensor that may avoid an exchange over these axes.
        wanted: what its reader would have; others: over other axes of the mesh, too.
        """
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
        usual = (self.usual_layouts.get(var.aval.shape, ())
                 if place.is_argument and not others else ())
        for new in itertools.chain(usual, self.layouts(var.aval.shape, entries, axes, wanted,
                                                       others, place.is_argument)):
            spec = spec_from_entries(new)
            if place.is_argument:
                if new != entries:
                    yield self.argument(place.index, new)
            elif maker is not None and self.is_of_user(var, maker):
                yield self.constrained(var, maker, spec)

    @functools.cached_property
    def usual_layouts(self) -> dict[tuple[int, ...], list[Entries]]:
        """By shape the layouts that most arguments of it have, such as the parameters of a slot."""
        counts: dict[tuple[int, ...], Counter[Entries]] = {}
        for v in self.inlined.invars:
            entries = self.entries.get(self.graph_tensor(v))
            if entries is not None and v.aval.shape:
                counts.setdefault(v.aval.shape, Counter())[merged(entries, self.mesh)] += 1
        return {shape: [new for new, _ in found.most_common(_USUAL)]
                for shape, found in counts.items() if len(found) > 1}

    def of_annotation(self, maker: Equation, place: Place, key: str, axes: tuple[str, ...],
                      wanted: Entries | None, others: bool) -> Iterator[Change]:
        """Other specs of a constraint, a `reshard` or an `out_sharding=`, or none."""
        word = {sharding_constraint_p: "with_sharding_constraint", reshard_p: "reshard"}.get(
            maker.op, "out_sharding")
        call = call_of(maker.location.text())
        if word == "reshard" and call is not None and any(
                k.arg == "out_sharding" for k in call.keywords):
            word = "out_sharding"               # of a function that reshards what it makes
        sharding: NamedSharding = maker.params[key]
        if sharding.spec.unreduced or sharding.spec.reduced:
            return
        aval = maker.outvars[place.index].aval
        if word != "with_sharding_constraint" and "transpose" in maker.location.transform:
            return                            # a cotangent is laid out as the user's value was
        same = tuple(self.by_line[line_of(maker, place.index)])
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
