"""The shardings of results for which none was requested, and the types that these give."""
from __future__ import annotations

from typing import Any

from ...arrays.array import ArrayImpl
from ...ir.meshes.axes import AxisName, axis_size
from ...ir.meshes.memory import MemorySpace, space_of_kind
from ...ir.meshes.mesh import AbstractMesh, AxisType, Mesh
from ...ir.shardings.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ...ir.spec import PartitionSpec, spec_from_entries
from ...ir.support.caches import cached
from ...ir.types import ArrayType, array_type
from .placement import Placement


def sharding_as_result(x: ArrayImpl) -> Sharding:
    """The sharding of an argument that is a result; over Explicit axes spelled as results are."""
    sharding = x.sharding
    if isinstance(sharding, NamedSharding) and x.aval.has_explicit_mesh():
        explicit = set(x.aval.mesh.explicit_axes)
        return sharding.update(spec=_spelled(sharding.spec, x.aval.ndim, sharding.mesh, explicit))
    return sharding


def _spelled(spec: PartitionSpec, ndim: int, mesh: Mesh | AbstractMesh, explicit: set[AxisName],
             ) -> PartitionSpec:
    """The spec without Auto axes of size 1, which lay out nothing; in full where the type says all
    of it, else without empty last entries.
    """
    entries = tuple([tuple([a for a in axes if a in explicit or axis_size(a, mesh.shape) > 1])
                     for axes in spec.entries])
    if explicit and explicit.issuperset([a for axes in entries for a in axes]):
        entries += ((),) * (ndim - len(entries))
    else:
        while entries and not entries[-1]:
            entries = entries[:-1]
    return spec_from_entries(entries, spec.unreduced, spec.reduced)


@cached(4096)
def found_sharding(placement: Placement, aval: ArrayType, spec: PartitionSpec,
                   like: NamedSharding | None) -> Any:
    """The sharding of a result for which none was asked.

    like: that of the first argument on a mesh; a result that is laid out alike says it alike, if
    its type then is the same: axes of size 1 lay out nothing.
    """
    kind = "pinned_host" if aval.memory_space is MemorySpace.Host else None
    if not placement.abstract_mesh.axis_names:
        if placement.mesh is not None:                       # of one device, without axes
            return placement.sharding(PartitionSpec(), aval.ndim, memory_kind=kind)
        device = placement.device
        return SingleDeviceSharding(device, memory_kind=kind) if device else None
    mesh = placement.mesh or placement.abstract_mesh
    types = mesh.axis_types
    if placement.mesh is not None and aval.mesh.shape_tuple == mesh.shape_tuple:
        types = aval.mesh.axis_types     # others than the mesh has after an op of auto_axes
    explicit = set(aval.mesh.explicit_axes) if AxisType.Explicit in types else set()
    if explicit and 1 in mesh.axis_sizes and aval.mesh.shape_tuple == mesh.shape_tuple:
        # its type has axes of one device, too, which plans leave out
        found = zip(aval.entries, spec.padded(aval.ndim).entries, strict=True)
        spec = spec_from_entries([own + tuple([a for a in axes if a not in own])
                                  for own, axes in found], spec.unreduced, spec.reduced)
    spec = _spelled(spec, aval.ndim, mesh, explicit)
    found = placement.sharding(spec, aval.ndim, types, kind)
    if (not explicit and like is not None and kind is None and like.mesh is found.mesh  # type: ignore[union-attr]
            and like.is_equivalent_to(found, aval.ndim)
            and array_aval(aval, like) is array_aval(aval, found)):
        return like
    return found


@cached(4096)
def array_aval(aval: ArrayType, sharding: Any) -> ArrayType:
    """The type of an array that a value of type `aval` became, under its concrete sharding."""
    space = aval.memory_space if sharding is None else space_of_kind(sharding.memory_kind)
    if isinstance(sharding, NamedSharding):
        abstract = sharding.mesh.abstract_mesh
        sharding = NamedSharding(abstract, sharding.spec)
        return array_type(aval.shape, aval.dtype, aval.weak_type, sharding, memory_space=space)
    return array_type(aval.shape, aval.dtype, aval.weak_type, memory_space=space)
