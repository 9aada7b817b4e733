"""Shardings as types hold them: on the abstract mesh, of full rank, over Explicit axes only."""
from __future__ import annotations

from typing import Any

from ..meshes.mesh import AbstractMesh, empty_abstract_mesh
from ..spec import parse_axis, spec_from_entries
from .sharding import NamedSharding, named_sharding_abstract

_no_sharding: dict[int, NamedSharding] = {}


def unsharded(ndim: int, mesh: AbstractMesh = empty_abstract_mesh) -> NamedSharding:
    """The sharding of a whole value of `ndim` dimensions on `mesh`."""
    if mesh is empty_abstract_mesh:
        sharding = _no_sharding.get(ndim)
        if sharding is None:
            sharding = named_sharding_abstract(mesh, spec_from_entries(((),) * ndim))
            _no_sharding[ndim] = sharding
        return sharding
    return named_sharding_abstract(mesh, spec_from_entries(((),) * ndim))


def normalized_sharding(sharding: NamedSharding, ndim: int) -> NamedSharding:
    """The sharding as types hold it: abstract mesh, full-rank spec, Explicit axes only."""
    mesh = sharding.mesh if isinstance(sharding.mesh, AbstractMesh) else sharding.mesh.abstract_mesh
    spec = sharding.spec
    entries = spec.entries
    if len(entries) > ndim:
        if any(entries[ndim:]):
            raise ValueError(
                f"Sharding {sharding} is only valid for values of rank at least {len(entries)}, "
                f"but was applied to a value of rank {ndim}."
                + (" For scalars the PartitionSpec should be P()" if ndim == 0 else ""))
        entries = entries[:ndim]
    elif len(entries) < ndim:
        entries = entries + ((),) * (ndim - len(entries))
    unreduced, reduced = spec.unreduced, spec.reduced
    if mesh.are_all_axes_explicit:
        remaining = entries
    else:
        explicit = frozenset(mesh.explicit_axes)
        remaining = tuple(tuple(a for a in dim if parse_axis(a)[0] in explicit)
                     if isinstance(dim, tuple) else () for dim in entries)
        unreduced, reduced = unreduced & explicit, reduced & explicit
    if remaining == spec.entries and mesh is sharding.mesh and sharding.memory_kind is None:
        return sharding
    return named_sharding_abstract(mesh, spec_from_entries(remaining, unreduced, reduced))


def insert_dim(sharding: NamedSharding, ndim: int, dim: int, entry: Any) -> NamedSharding:
    """The sharding of a value with one more dimension, at `dim`, split as `entry` says."""
    spec = sharding.spec
    entries = list(spec.padded(ndim).entries)
    entries.insert(dim, entry)
    return NamedSharding(sharding.mesh, spec_from_entries(entries, spec.unreduced, spec.reduced))
