"""Batching of manual regions: the blocks of a shard_map get the mapped dimension too.

The dimension is whole in in_specs and out_specs (mesh axes that split it outside are not changed),
or split over `spmd_axis_name`. Then each device holds some of the mapped indices, and the body must
not communicate over those axes, since it would mix indices.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.control.manual import entering_type, manual_mesh, shard_map_p
from ...ir.program import Program
from ...ir.settings.context import STATE
from ...ir.shardings.sharding import named_sharding_abstract
from ...ir.spec import PartitionSpec, spec_from_entries
from ...ir.support.immutable import replace
from ...ir.support.scopes import override
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from .programs import batch_program
from .rules import Batched, Dims, MappedAxis, program_axis_names, rule


@rule("shard_map")
def _batch_shard_map(axis: MappedAxis, operands: Sequence[Any], dims: Dims,
                     types: Sequence[ArrayType], *, jaxpr: Program, mesh: AbstractMesh,
                     manual_axes: frozenset[str], in_specs: tuple[PartitionSpec, ...],
                     out_specs: tuple[PartitionSpec, ...], check_vma: bool, **params: Any
                     ) -> Batched:
    """The batch dimension becomes one more dimension of the blocks, split over those of the mapped
    axis's `spmd_axis_name` that are manual here.
    """
    cut = tuple(a for a in axis.spmd if a in manual_axes)
    _check_specs(axis, cut, in_specs, manual_axes, "in_specs")
    if cut and program_axis_names(jaxpr) & set(cut):
        fail(ValueError, f"vmap spmd_axis_name {axis.spmd} cannot be named by a collective in a "
             "shard_map under that vmap: its devices hold different mapped indices",
             code="spmd-axis", help="use another mesh axis for spmd_axis_name")
    specs = [s if d is None else _with_dim(s, d, typeof(x).ndim - 1, cut)
             for s, d, x in zip(in_specs, dims, operands, strict=True)]
    inner_mesh = manual_mesh(mesh, manual_axes)
    local = [entering_type(typeof(x), s, mesh, manual_axes, check_vma)
             for x, s in zip(operands, specs, strict=True)]
    inner = replace(axis, size=axis.size // math.prod(mesh.axis_size(a) for a in cut),
                    mesh=inner_mesh if axis.entry else axis.mesh)
    if axis.name in manual_axes:
        inner = replace(inner, name=None)       # inside, the name means the mesh axis
    elif cut and axis.name is not None and axis.name in program_axis_names(jaxpr):
        fail(NotImplementedError, "a collective in a shard_map is over the vmapped axis "
             f"{axis.name!r}, which spmd_axis_name={axis.spmd} splits over the mesh",
             code="spmd-axis",
             help="leave spmd_axis_name out, or use the collective outside of the shard_map")
    with override(STATE, check_vma=check_vma):
        body, captured, out = batch_program(inner, jaxpr, local, dims, mesh=inner_mesh,
                                            capture_type=functools.partial(_inside, inner_mesh))
    _check_specs(axis, cut, out_specs, manual_axes, "out_specs")
    wider = [s if d is None else _with_dim(s, d, t.ndim, cut)
             for s, d, t in zip(out_specs, out, types, strict=True)]
    results = shard_map_p.bind(
        *captured, *operands, jaxpr=body, mesh=mesh, manual_axes=manual_axes,
        in_specs=(PartitionSpec(),) * len(captured) + tuple(specs), out_specs=tuple(wider),
        check_vma=check_vma, **params)
    return results, out


def _check_specs(axis: MappedAxis, cut: tuple[str, ...], specs: Iterable[PartitionSpec],
                 manual_axes: frozenset[str], what: str) -> None:
    """Refuse specs that name an axis over which the mapped dimension is split."""
    used = {a for s in specs for a in s.axes()}
    if set(cut) & used:
        fail(ValueError, f"vmap spmd_axis_name cannot appear in shard_map {what}",
             code="spmd-axis", label=f"spmd_axis_name is {axis.spmd}",
             help="leave `spmd_axis_name` out of this vmap, or give it an axis that the "
                  "shard_map leaves alone")
    if set(axis.entry) & (used | manual_axes):
        fail(ValueError, f"vmapped away explicit mesh axis cannot appear in shard_map {what}",
             code="mapped-mesh-axis", label=f"the vmap maps over {axis.entry}",
             help="leave it out of the specs and of axis_names: here shard_map is about the other "
                  "axes")


def _with_dim(spec: PartitionSpec, dim: int, ndim: int, axes: tuple[str, ...]) -> PartitionSpec:
    entries = list(spec.entries[:ndim])
    entries += [()] * (dim - len(entries))
    entries.insert(dim, axes)
    return spec_from_entries(entries, spec.unreduced, spec.reduced)


def _inside(mesh: AbstractMesh, t: ArrayType) -> ArrayType:
    return t.update(sharding=named_sharding_abstract(mesh, spec_from_entries(((),) * t.ndim)))
