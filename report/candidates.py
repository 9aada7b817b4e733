"""What might avoid a collective: changes of a spec near it, the likeliest first.

The values around a collective are the moved one, what reads and makes it, and everything on the
ways of its axes back to their annotations. For each the candidates are other specs of the same
axes: left out, moved to another dimension, or as the other side wants it. A value is changed where
it is decided: an argument in its sharding, a constraint in its spec, a result in out_shardings, any
other value by a constraint behind its equation. Nothing here knows whether a candidate helps.
"""
from __future__ import annotations

import math
from collections.abc import Iterator

from ..ir.location import Location
from ..ir.mesh import AbstractMesh
from ..ir.ops.sharding import reshard_p, sharding_constraint_p
from ..ir.program import Equation, Program, Var
from ..ir.sharding import NamedSharding
from ..ir.spec import UNCONSTRAINED, spec_from_entries
from ..ir.types import Entries
from ..partitioner.collectives import CollectiveRecord
from ..partitioner.pipeline import Partitioned
from .changes import Argument, Change, Constrain, Respec, Result, spec_text
from .places import Place, places
from .reasons import Cause, Reasons, where

_NO_PLACE = frozenset(("shard_map",))


class Candidates:
    """Enumerates changes for the collectives of one partitioned program."""

    def __init__(self, partitioned: Partitioned, reasons: Reasons) -> None:
        self.partitioned, self.reasons = partitioned, reasons
        self.mesh: AbstractMesh = partitioned.mesh
        self.inlined: Program = partitioned.stages["inlined"]
        self.explicit = bool(partitioned.traced.mesh.explicit_axes) or any(
            v.aval.mesh.explicit_axes for v in partitioned.traced.invars)
        self.place: dict[Var, Place] = {}
        self.maker: dict[Var, Equation | None] = {}
        for place, var, eqn in places(self.inlined):
            if any(self._is_manual(step, self.inlined) for step in [place.path]):
                continue
            self.place[var], self.maker[var] = place, eqn
        origins = reasons.origins
        self.value: dict[int, Var] = {}          # tensor of propagation -> value of the program
        if origins is not None:
            for var, t in origins.solution.graph.index.items():
                self.value.setdefault(t, var)
        self.entries: dict[int, Entries] = {}
        if origins is not None:
            for var, t in origins.tensors.items():
                self.entries.setdefault(t, var.aval.entries)

    @staticmethod
    def _is_manual(path, program: Program) -> bool:
        for n, name, j in path:
            eqn = program.eqns[n]
            if eqn.op.name in _NO_PLACE:
                return True
            held = eqn.params[name]
            program = held if j < 0 else held[j]
        return False

    # -- what to look at -------------------------------------------------------------------------

    def of(self, record: CollectiveRecord, cause: Cause) -> list[Change]:
        """Changes that might avoid the collective, the likeliest first, none twice."""
        axes = tuple(dict.fromkeys(str(a).partition(":")[0] for a in record.mesh_axes))
        found: dict[Change, None] = {}
        for t, wanted in self.seeds(cause):
            for change in self.changes(t, axes, wanted):
                found.setdefault(change)
        for change in self.results(axes):
            found.setdefault(change)
        return list(found)

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
            if not source.sharding.spec.unreduced:
                yield from fresh(self.tensor(move.invars[0]), target.entries)
            yield from fresh(self.tensor(move.outvars[0]), source.entries)
        if eqn is not None:
            for v in (*eqn.invars, *eqn.outvars):
                if isinstance(v, Var):
                    yield from fresh(self.tensor(v), None)
        for path in cause.paths:
            for t in path.tensors[:6]:
                yield from fresh(t, None)
        constraints = [v for v, maker in self.maker.items() if maker is not None
                       and maker.op in (sharding_constraint_p, reshard_p)]
        for v in (*constraints[:12], *self.inlined.invars[:24]):
            yield from fresh(self.graph_tensor(v), None)

    def constraint_at(self, location: Location, tensor: int) -> int:
        """The tensor that the constraint written at a place gives, rather than what it reads."""
        for var, maker in self.maker.items():
            if (maker is not None and location.line and where(maker.location) == where(location)
                    and maker.op in (sharding_constraint_p, reshard_p)):
                return self.graph_tensor(var)
        return tensor

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

    def changes(self, t: int, axes: tuple[str, ...], wanted: Entries | None) -> Iterator[Change]:
        var = self.value.get(t)
        if var is None or var not in self.place or not var.aval.shape:
            return
        place, maker = self.place[var], self.maker[var]
        if maker is not None and maker.op in (sharding_constraint_p, reshard_p):
            word = "reshard" if maker.op is reshard_p else "with_sharding_constraint"
            key = "dst_sharding" if maker.op is reshard_p else "sharding"
            sharding: NamedSharding = maker.params[key]
            if sharding.spec.unreduced or sharding.spec.reduced:
                return
            was = spec_text(sharding.spec)
            yield Respec(place, None, word, maker.location, was)
            own = tuple(() if e is UNCONSTRAINED else e
                        for e in sharding.spec.padded(var.aval.ndim).entries)
            for new in self.specs(var.aval.shape, own, axes, wanted):
                if new != own:
                    yield Respec(place, spec_from_entries(new), word, maker.location, was)
            return
        entries = self.entries.get(t)
        if entries is None:
            return
        for new in self.specs(var.aval.shape, entries, axes, wanted):
            spec = spec_from_entries(new)
            if place.is_argument:
                if new != entries:
                    name = self.partitioned.traced.arg_names[place.index]
                    yield Argument(place.index, name, spec, spec_text(spec_from_entries(entries)))
            elif maker is not None:
                yield Constrain(place, self.name(var, maker), spec, maker.location, self.explicit)

    def name(self, var: Var, maker: Equation) -> str:
        text = maker.location.assigned_name() if len(maker.outvars) == 1 else None
        if text or var.name:
            return text or var.name or ""
        text = maker.location.text()
        return text if text and len(text) <= 40 else f"the result of {maker.op.name}"

    def specs(self, shape: tuple[int, ...], entries: Entries, axes: tuple[str, ...],
              wanted: Entries | None) -> Iterator[Entries]:
        """Other layouts of the same value that differ in these axes alone."""
        seen: set[Entries] = set()
        if wanted is not None and len(wanted) == len(entries) and not any(
                ":" in str(a) for e in wanted for a in e):
            seen.add(wanted)
            yield wanted
        if any(":" in str(a) for e in entries for a in e):
            return                                   # parts of axes are not for users to write
        bare = tuple(tuple(a for a in e if a not in axes) for e in entries)
        for d in range(len(shape)):
            new = (*bare[:d], (*bare[d], *axes), *bare[d + 1:])
            parts = math.prod(map(self.mesh.axis_size, new[d]))
            if new not in seen and shape[d] % parts == 0 and shape[d] >= parts:
                seen.add(new)
                yield new
        if bare not in seen:
            yield bare
        if entries not in seen and any(entries) and entries != bare:
            yield entries                # pinned as it is, against what propagates through

    def results(self, axes: tuple[str, ...]) -> Iterator[Change]:
        """Other specs of the results, in out_shardings."""
        if self.explicit or not self.partitioned.out_specs:
            return
        names = self.partitioned.traced.result_names
        for i, (v, spec) in enumerate(zip(self.inlined.outvars, self.partitioned.out_specs,
                                          strict=True)):
            if i >= 8 or not v.aval.shape:
                continue
            entries = spec.padded(v.aval.ndim).entries
            name = names[i] if i < len(names) and names[i] else (
                f"[{i}]" if len(self.inlined.outvars) > 1 else "")
            for new in self.specs(v.aval.shape, entries, axes, None):
                if new != entries:
                    yield Result(i, name, spec_from_entries(new),
                                 spec_text(spec_from_entries(entries)))
