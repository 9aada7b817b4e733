"""The results of a program as targets of changes: how each is made, and asked for in out_shardings.
"""
from __future__ import annotations

import functools
from collections.abc import Iterator

from ....ir.ops.communication.sharding import reshard_p
from ....ir.program import Atom, Equation, Var
from ....ir.rules.rule import ELEMENTWISE
from ....ir.spec import spec_from_entries
from ....ir.types import Entries
from ...reasons.causes import Cause
from ..changes import Change, Result, row_of
from .other_layouts import is_layout, merged, other_layouts
from .placed_values import PlacedValues

MOST = 8                # results that are looked at


class PlacedResults(PlacedValues):
    """The values and the results of one partitioned program."""

    def results(self, axes: tuple[str, ...], cause: Cause) -> list[tuple[int, Iterator[Change]]]:
        """Other specs of each result in out_shardings, each with its tensor."""
        if self.explicit or not self.partitioned.out_specs:
            return []
        return [(self.graph_tensor(v) if isinstance(v, Var) else -1,
                 self.of_result(i, axes, self.as_made(i, cause)))
                for i, v in enumerate(self.inlined.outvars[:MOST]) if v.aval.shape]

    def as_made(self, i: int, cause: Cause) -> Entries | None:
        """The layout in which a result is computed, if the cause is one of the moves from there to
        its final layout.
        """
        moves, made = self.moves(i)
        return made.aval.entries if cause.move in moves else None

    def moves(self, i: int) -> tuple[list[Equation], Atom]:
        """The moves that bring a result to its layout, each with what it moves: the result, or a
        value from which the result is computed element by element and that nothing else reads.
        """
        moves, made = [], self.reasons.resharded.outvars[i]
        found, shape = made, made.aval.shape
        while isinstance(made, Var) and (eqn := self.reasons.made.get(made)) is not None:
            of = [a for a in eqn.invars if a.aval.shape == shape]
            if eqn.op is not reshard_p and (eqn.op.rule != ELEMENTWISE or len(of) != 1 or moves
                                            or not isinstance(of[0], Var)
                                            or len(self.reasons.readers.get(of[0], ())) != 1):
                break
            made = of[0]
            if eqn.op is reshard_p:
                moves.append(eqn)
                found = made
        return moves, found

    @functools.cached_property
    def all_as_made(self) -> dict[Equation | None, tuple[Change, ...]]:
        """For a move of a result to its layout: this result and all others that are moved to the
        same requested layout, each row in the layout in which its first result is computed. Whoever
        wrote the table of results wrote that layout in several rows.
        """
        groups: dict[tuple, list[Change]] = {}          # by the dimensions that are asked for split
        asked: dict[Equation, tuple] = {}
        of_row: dict[tuple, Entries] = {}
        specs = () if self.explicit else self.partitioned.out_specs
        for i, (v, spec) in enumerate(zip(self.inlined.outvars, specs, strict=False)):
            moves, made = self.moves(i)
            entries = merged(made.aval.entries, self.mesh) if moves else ()
            if entries and is_layout(self.mesh, v.aval.shape, entries):
                name = self.result_name(i)
                entries = of_row.setdefault((row_of(name), v.aval.shape, spec), entries)
                split = tuple([(d, e) for d, e in enumerate(spec.entries) if e])
                groups.setdefault(split, []).append(
                    Result(i, name, spec_from_entries(entries), spec))
                asked.update(dict.fromkeys(moves, split))
        return {move: tuple(groups[split]) for move, split in asked.items()}

    def of_result(self, i: int, axes: tuple[str, ...], wanted: Entries | None
                  ) -> Iterator[Change]:
        v, spec = self.inlined.outvars[i], self.partitioned.out_specs[i]
        entries = spec.padded(v.aval.ndim).entries
        for new in other_layouts(self.mesh, v.aval.shape, entries, axes, wanted):
            if new != entries:
                yield self.result(i, new)

    def result(self, i: int, entries: Entries) -> Result:
        """Another layout of a result."""
        return Result(i, self.result_name(i), spec_from_entries(entries),
                      self.partitioned.out_specs[i])

    def result_name(self, i: int) -> str:
        names = self.partitioned.traced.result_names
        if i < len(names) and names[i]:
            return names[i]
        return f"[{i}]" if len(self.inlined.outvars) > 1 else ""
