"""`shard_map`: a region in which some mesh axes are Manual.

The body is a program over the blocks that each device holds: entering divides every dimension by
the axes of its `in_specs`, leaving multiplies by those of `out_specs`. Axes that stay Auto or
Explicit keep their meaning inside. The functions here are the type rules of the border, in both
directions; the user's side is in tracer/shard_map.py.
"""
from __future__ import annotations

import functools
import math
from typing import Any

from ..mesh import AbstractMesh, AxisType
from ..op import Op, defop
from ..rule import FactorRule
from ..sharding import named_sharding_abstract
from ..spec import PartitionSpec, spec_from_entries
from ..types import ArrayType, ManualState, array_type


@functools.lru_cache(maxsize=256)
def manual_mesh(mesh: AbstractMesh, axes: frozenset[str]) -> AbstractMesh:
    """`mesh` with these axes Manual, as the body of a shard_map sees it."""
    return mesh.update_axis_types({a: AxisType.Manual for a in mesh.axis_names if a in axes})


def entering_type(t: ArrayType, spec: PartitionSpec, mesh: AbstractMesh, axes: frozenset[str],
                  check_vma: bool) -> ArrayType:
    """The type of one block inside: `mesh` is the outer mesh, `axes` the Manual axes.

    The local shape is the whole one over the spec's axes; the value varies over those axes.
    """
    key = ("entering", spec, mesh, axes, check_vma)
    found = t.memo.get(key)
    if found is None:
        found = t.memo[key] = _entering_type(t, spec, mesh, axes, check_vma)
    return found


def _entering_type(t: ArrayType, spec: PartitionSpec, mesh: AbstractMesh, axes: frozenset[str],
                   check_vma: bool) -> ArrayType:
    entries = spec.entries + ((),) * (t.ndim - len(spec.entries))
    shape = tuple(n // math.prod(mesh.axis_size(a) for a in dim)
                  for n, dim in zip(t.shape, entries, strict=True))
    inner = manual_mesh(mesh, axes)
    rest = tuple(tuple(a for a in dim if a not in axes) for dim in t.entries)
    sharding = named_sharding_abstract(inner, spec_from_entries(
        rest, t.spec.unreduced - axes, t.spec.reduced - axes))
    state = ManualState()
    if check_vma:
        varying = frozenset(a for dim in entries for a in dim)
        state = ManualState((t.varying | varying) - spec.unreduced - spec.reduced,
                            t.manual.unreduced | spec.unreduced, t.manual.reduced | spec.reduced)
    return array_type(shape, t.dtype, t.weak_type, sharding, state, t.memory_space)


def leaving_type(t: ArrayType, spec: PartitionSpec, mesh: AbstractMesh, axes: frozenset[str]
                 ) -> ArrayType:
    """The type of the whole value outside, from the block's: out_specs' axes are major."""
    key = ("leaving", spec, mesh, axes)
    found = t.memo.get(key)
    if found is None:
        found = t.memo[key] = _leaving_type(t, spec, mesh, axes)
    return found


def _leaving_type(t: ArrayType, spec: PartitionSpec, mesh: AbstractMesh, axes: frozenset[str]
                  ) -> ArrayType:
    entries = spec.entries + ((),) * (t.ndim - len(spec.entries))
    shape = tuple(n * math.prod(mesh.axis_size(a) for a in dim)
                  for n, dim in zip(t.shape, entries, strict=True))
    joined = tuple(a + b for a, b in zip(entries, t.entries, strict=True))
    sharding = named_sharding_abstract(mesh, spec_from_entries(
        joined, t.spec.unreduced | spec.unreduced, t.spec.reduced | spec.reduced))
    m = t.manual
    state = ManualState(m.varying - axes, m.unreduced - axes, m.reduced - axes)
    return array_type(shape, t.dtype, t.weak_type, sharding, state, t.memory_space)


def _infer(*types: ArrayType, jaxpr: Any, out_specs: tuple[PartitionSpec, ...],
           mesh: AbstractMesh, manual_axes: frozenset[str], **params: Any
           ) -> list[ArrayType]:
    return [leaving_type(t, s, mesh, manual_axes)
            for t, s in zip(jaxpr.out_avals, out_specs, strict=True)]


def _rule(operand_shapes: tuple, result_shapes: tuple, **params: Any) -> FactorRule:
    raise TypeError("a manual region has no factor rule: its body is lowered in place")


def _manual(op: Op, types: Any, params: dict[str, Any]) -> list[ManualState]:
    axes = params["manual_axes"]
    return [ManualState(t.varying - axes, t.manual.unreduced - axes, t.manual.reduced - axes)
            for t in params["jaxpr"].out_avals]


shard_map_p = defop(
    "shard_map",
    doc="Run `jaxpr` on every device's blocks: in_specs say how operands are cut over the "
        "`manual_axes` of `mesh`, out_specs how results are put together.",
    infer=_infer, rule=_rule, evaluate=None, multiple_results=True, subprograms=("jaxpr",),
    manual=_manual,
)
