"""`shard_map`: a region in which some mesh axes are Manual.

The body is a program over the blocks that each device holds: entering divides every dimension by
the axes of its `in_specs`, leaving multiplies by those of `out_specs`. Axes that stay Auto or
Explicit keep their meaning inside. The functions here are the type rules of the border, in both
directions; the user's side is in tracer/shard_map/shard_map.py.
"""
from __future__ import annotations

from typing import Any

from ...facts import PER_DEVICE
from ...meshes.manual_state import NOT_MANUAL, ManualState
from ...meshes.mesh import AbstractMesh, AxisType
from ...op import Op, defop
from ...shardings.sharding import named_sharding_abstract
from ...spec import PartitionSpec, spec_from_entries
from ...support.caches import cached, in_memo
from ...types import ArrayType, Shape, array_type
from ..rules import no_rule


@cached(256)
def manual_mesh(mesh: AbstractMesh, axes: frozenset[str]) -> AbstractMesh:
    """`mesh` with these axes Manual, as the body of a shard_map sees it."""
    types = [AxisType.Manual if a in axes else kind
             for a, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)]
    return AbstractMesh(mesh.axis_sizes, mesh.axis_names, tuple(types),
                        abstract_device=mesh.abstract_device)


@in_memo
def entering_type(t: ArrayType, spec: PartitionSpec, mesh: AbstractMesh, axes: frozenset[str],
                  check_vma: bool) -> ArrayType:
    """The type of one block inside: `mesh` is the outer mesh, `axes` the Manual axes.

    The local shape is the whole one over the spec's axes; the value varies over those axes.
    """
    named, outer = spec.axes(), t.sharding.spec
    shape = _times(t.shape, spec, mesh, whole=False) if named else t.shape
    rest = t.entries
    if outer.axes():
        rest = tuple([tuple([a for a in dim if a not in axes]) for dim in rest])
    sharding = named_sharding_abstract(manual_mesh(mesh, axes), spec_from_entries(
        rest, outer.unreduced - axes, outer.reduced - axes))
    state, m = NOT_MANUAL, t.manual
    if check_vma:
        state = ManualState(m.varying.union(named) - spec.unreduced - spec.reduced,
                            m.unreduced | spec.unreduced, m.reduced | spec.reduced)
    return array_type(shape, t.dtype, t.weak_type, sharding, state, t.memory_space)


def _times(shape: Shape, spec: PartitionSpec, mesh: AbstractMesh, whole: bool) -> Shape:
    """The shape of the whole value that blocks of this shape make up; else that of the blocks."""
    sizes = list(shape)
    for d, dim in enumerate(spec.entries):
        for a in dim:
            n = mesh.axis_size(a)
            sizes[d] = sizes[d] * n if whole else sizes[d] // n
    return tuple(sizes)


@in_memo
def leaving_type(t: ArrayType, spec: PartitionSpec, mesh: AbstractMesh, axes: frozenset[str]
                 ) -> ArrayType:
    """The type of the whole value outside, from the block's: out_specs' axes are major."""
    outer = t.sharding.spec
    shape, joined = _times(t.shape, spec, mesh, whole=True), t.entries
    if spec.axes():
        entries = spec.entries + ((),) * (len(shape) - len(spec.entries))
        joined = tuple([a + b for a, b in zip(entries, joined, strict=True)])
    sharding = named_sharding_abstract(mesh, spec_from_entries(
        joined, outer.unreduced | spec.unreduced, outer.reduced | spec.reduced))
    m = t.manual
    state = ManualState(m.varying - axes, m.unreduced - axes, m.reduced - axes)
    return array_type(shape, t.dtype, t.weak_type, sharding, state, t.memory_space)


def _infer(*types: ArrayType, jaxpr: Any, in_specs: tuple[PartitionSpec, ...],
           out_specs: tuple[PartitionSpec, ...], mesh: AbstractMesh, manual_axes: frozenset[str],
           **params: Any) -> list[ArrayType]:
    for t, v, s in zip(types, jaxpr.invars, in_specs, strict=True):
        if len(t.shape) != len(v.aval.shape):
            raise TypeError(f"its body takes {v.aval.str_short(True)}, not {t.str_short(True)}")
        for a in s.axes():
            mesh.axis_size(a)                # a KeyError where it has no such axis
    return [leaving_type(v.aval, s, mesh, manual_axes)
            for v, s in zip(jaxpr.outvars, out_specs, strict=True)]


def _manual(op: Op, types: Any, params: dict[str, Any]) -> list[ManualState]:
    axes = params["manual_axes"]
    return [ManualState(t.varying - axes, t.manual.unreduced - axes, t.manual.reduced - axes)
            for t in params["jaxpr"].out_avals]


shard_map_p = defop(
    "shard_map",
    doc="Run `jaxpr` on every device's blocks: in_specs say how operands are cut over the "
        "`manual_axes` of `mesh`, out_specs how results are put together.",
    infer=_infer, multiple_results=True, subprograms=("jaxpr",),
    rule=no_rule("a manual region has no factor rule: its body is lowered in place"),
    manual=_manual, facts=(PER_DEVICE,))
