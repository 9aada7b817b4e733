"""The `out_sharding=` argument: from what a user passes to what an op takes.

A user passes a PartitionSpec, meant on the context mesh, or a NamedSharding; an op takes a
NamedSharding over an AbstractMesh. Only Explicit axes may be named: what Auto axes do is the
partitioner's choice, and Manual axes are already in the shape.
"""
from __future__ import annotations

from typing import Any

from ...ir.meshes.mesh import empty_abstract_mesh
from ...ir.ops.communication.sharding import explicit_sharding
from ...ir.settings.context import STATE
from ...ir.shardings.sharding import NamedSharding, named_sharding_abstract
from ...ir.spec import PartitionSpec, spec_from_entries


def canonicalize_sharding(sharding: Any, fn_name: str, check_mesh_consistency: bool = True
                          ) -> NamedSharding | None:
    """What `out_sharding=` of `fn_name` asks for, over an abstract mesh; None for None.

    Raises TypeError for other objects, ValueError for a PartitionSpec without a context mesh, a
    sharding on another mesh than the context's, or an axis that is Auto or Manual.
    """
    if sharding is None:
        return None
    return explicit_sharding(sharding, fn_name, check_mesh_consistency)


def padded(sharding: NamedSharding | None, ndim: int) -> NamedSharding | None:
    """A sharding with its spec extended or cut to exactly `ndim` entries.

    Raises ValueError if the spec splits a dimension beyond `ndim`.
    """
    if sharding is None or len(sharding.spec.entries) == ndim:
        return sharding
    entries = sharding.spec.entries
    if len(entries) > ndim:
        if any(entries[ndim:]):
            sharding.check_compatible_aval((1,) * ndim)
        entries = entries[:ndim]
    else:
        entries = entries + ((),) * (ndim - len(entries))
    spec = spec_from_entries(entries, sharding.spec.unreduced, sharding.spec.reduced)
    return named_sharding_abstract(sharding.mesh, spec)  # type: ignore[arg-type]


def output_sharding(sharding: Any, fn_name: str, ndim: int) -> NamedSharding | None:
    """`canonicalize_sharding`, padded to the rank of the result."""
    if sharding is None:
        return None
    return padded(canonicalize_sharding(sharding, fn_name), ndim)


def placement(device: Any, out_sharding: Any, fn_name: str, ndim: int
              ) -> tuple[Any, NamedSharding | None]:
    """`(device, sharding)` from the two placement arguments of creation functions.

    One of the two may be given. While tracing, a NamedSharding on a mesh of Explicit axes given as
    `device` means what it means as `out_sharding`; any other device is left to `device_put`.
    Raises ValueError if both are given, or the device is none.
    """
    if device is None:
        return None, output_sharding(out_sharding, fn_name, ndim)
    if out_sharding is not None:
        raise ValueError("Only one of `device` or `out_sharding` can be set. Got "
                         f"device={device} and out_sharding={out_sharding}")
    if isinstance(device, PartitionSpec):
        return None, output_sharding(device, fn_name, ndim)
    if isinstance(device, NamedSharding) and STATE.interpreter is not None:
        mesh = device.mesh.abstract_mesh
        if mesh.are_all_axes_explicit and STATE.abstract_mesh in (mesh, empty_abstract_mesh):
            return None, output_sharding(device, fn_name, ndim)
    return device, None
