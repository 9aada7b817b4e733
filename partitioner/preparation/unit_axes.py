"""Leaves out mesh axes of one device, which split nothing.

A mesh of 8 x 1 has the layouts of one of 8: `f32[64@(data,model),16]` is `f32[64@data,16]` there.
Without the second axis no exchange over it is planned, and no layout is kept for it:

    y = sharding_constraint[sharding=P('data', 'model')] x
    y = sharding_constraint[sharding=P('data', None)] x

The bodies of `shard_map` keep what they exchange over such axes, as XLA does.
"""
from __future__ import annotations

from typing import Any

from ...ir.meshes.mesh import AbstractMesh, Mesh
from ...ir.program import Equation, Program
from ...ir.rewriting.retyped import Retyped
from ...ir.shardings.sharding import NamedSharding, named_sharding_abstract
from ...ir.spec import UNCONSTRAINED, PartitionSpec, spec_from_entries
from ...ir.types import ArrayType


def without_unit_axes(spec: PartitionSpec, mesh: Mesh | AbstractMesh) -> PartitionSpec:
    """The spec without the axes of `mesh` that have one device."""
    unit = {a for a, n in mesh.shape_tuple if n == 1}
    if unit.isdisjoint((*spec.axes(), *spec.unreduced, *spec.reduced)):
        return spec
    return spec_from_entries([axes if axes is UNCONSTRAINED else
                              tuple([a for a in axes if a not in unit]) for axes in spec.entries],
                             spec.unreduced - unit, spec.reduced - unit)


def drop_unit_axes(program: Program) -> Program:
    """A program, and those that it holds, with no layout over axes of one device."""
    return _WithoutUnitAxes().program(program)


class _WithoutUnitAxes(Retyped):
    """Programs whose types and shardings in params name no axes of one device."""
    def type(self, aval: ArrayType) -> ArrayType:
        sharding = self.sharding(aval.sharding)
        return aval if sharding is aval.sharding else aval.update(sharding=sharding)

    def params(self, eqn: Equation) -> dict[str, Any]:
        """The params without these axes. Where types follow from operands alone, a sharding is
        added that keeps the result's type.
        """
        mesh = eqn.params.get("mesh")
        params = {name: self.sharding(x) if isinstance(x, NamedSharding) else
                  tuple([without_unit_axes(s, mesh) if isinstance(s, PartitionSpec) else s
                         for s in x]) if isinstance(mesh, AbstractMesh) and isinstance(x, tuple)
                  else x for name, x in eqn.params.items()}
        said, result = eqn.op.sharding_param, eqn.outvars[0].aval if eqn.outvars else None
        if said and result is not None and params[said] is None and result.mesh.explicit_axes:
            # its rule may refuse operands without axes that it put into the result
            params[said] = self._of(result).sharding
        return {**params, **{name: self.nested(params[name]) for name in eqn.op.subprograms}}

    def sharding(self, sharding: NamedSharding) -> NamedSharding:
        mesh, spec = sharding.mesh, without_unit_axes(sharding.spec, sharding.mesh)
        if spec is sharding.spec:
            return sharding
        return (named_sharding_abstract(mesh, spec) if isinstance(mesh, AbstractMesh) else
                sharding.update(spec=spec))
