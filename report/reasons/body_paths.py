"""Why devices hold different values inside a `shard_map`: traces them to entries of in_specs.

A collective written in a body works over what varies between devices. Its operand is traced back to
the parameters of the body that are split over its axes, and these, through the operands of the
`shard_map`, to annotations.
"""
from __future__ import annotations

import functools
from collections.abc import Iterator

from ...ir.facts import POSITION
from ...ir.program import Equation, Program, Var
from ...partitioner.collectives import CollectiveRecord
from .axis_paths import AxisPaths
from .causes import Path, reached
from .value_paths import equations, inner_programs


class BodyPaths(AxisPaths):
    """Follows axes out of the bodies of `shard_map`s."""

    @functools.cached_property
    def written(self) -> dict[tuple, tuple[Equation, Equation, tuple[Equation, ...]]]:
        """By place of a collective in a body: the `shard_map`, the equation of its body that is or
        holds the collective, and the equations before that.
        """
        found: dict[tuple, tuple[Equation, Equation, tuple[Equation, ...]]] = {}
        for eqn in equations(self.resolved):
            body = eqn.params.get("jaxpr") if "in_specs" in eqn.params else None
            if not isinstance(body, Program):
                continue
            for n, step in enumerate(body.eqns):
                held = [e for _, p in inner_programs(step, n) for e in equations(p)]
                for inner in (step, *held):
                    if inner.op.collective is not None:
                        found.setdefault(reached(inner.location), (eqn, step, body.eqns[:n]))
        return found

    def body_paths(self, record: CollectiveRecord) -> Iterator[Path]:
        """Where the axes come from over which the operand of a written collective varies."""
        at = self.written.get(reached(record.source))
        if at is None:
            return
        shard_map, step, before = at
        axes = {str(a) for a in record.mesh_axes}
        body: Program = shard_map.params["jaxpr"]
        parameters = {v: i for i, v in enumerate(body.invars)}
        seen = {a for a in step.invars if isinstance(a, Var)}
        for eqn in reversed(before):
            if not seen.isdisjoint(eqn.outvars):
                seen |= {a for a in eqn.invars if isinstance(a, Var)}
                for axis in eqn.axes if POSITION in eqn.op.facts else ():
                    if axis in axes:
                        yield Path(axis, -1, self.operand_name(step), "`axis_index`", eqn.location,
                                   (), calls=self.calls)
        for v, i in parameters.items():
            if v not in seen:
                continue
            spec = shard_map.params["in_specs"][i].padded(v.aval.ndim)
            for dim, own in enumerate(spec.entries):
                for axis in own:
                    if axis in axes:
                        yield self.through(shard_map, i, dim, axis)

    def through(self, shard_map: Equation, i: int, dim: int, axis: str) -> Path:
        """The path of an axis into a body: that of the operand, if it has the axis, else from
        in_specs.
        """
        name = self.name(shard_map.params["jaxpr"].invars[i])
        given = shard_map.invars[i]
        outer = self.path(given, dim, axis) if isinstance(given, Var) else None
        if outer is None:
            return Path(axis, dim, name, f"`in_specs[{i}]` of the `shard_map`", shard_map.location,
                        (), calls=self.calls)
        steps = (*outer.steps, ("shard_map", shard_map.location))
        return Path(axis, dim, name, outer.root, outer.root_location, steps, outer.tensors,
                    calls=self.calls, argument=outer.argument)

    def operand_name(self, eqn: Equation) -> str:
        return self.name(eqn.invars[0]) if eqn.invars else "a value"
