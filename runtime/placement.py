"""On which devices a computation runs, and where each argument lies on them.

Committed arguments, the shardings given to jit, the meshes named inside the function and the
context mesh must agree on one list of devices, in one order; uncommitted arguments follow. One of
these meshes becomes the mesh of the computation, and every other sharding is restated on it.
"""
from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ir.device import Device
from ..ir.diagnostic import fail
from ..ir.mesh import AbstractMesh, Mesh, empty_abstract_mesh
from ..ir.sharding import NamedSharding, Sharding
from ..ir.spec import PartitionSpec, spec_from_entries
from ..ir.types import ArrayType


@dataclass(frozen=True)
class Placed:
    """An argument or result with the sharding that was asked for it (None: not committed)."""
    name: str
    aval: ArrayType
    sharding: Sharding | None


@dataclass(frozen=True)
class Placement:
    """Where a computation runs.

    mesh: its concrete mesh, or None for one device or an abstract mesh. device: the single device.
    abstract_mesh: the mesh that the partitioner sees (empty for one device).
    """
    mesh: Mesh | None
    abstract_mesh: AbstractMesh
    device: Device | None


def device_ids(sharding: Sharding) -> list[int]:
    return [d.id for d in sharding.device_assignment]


def resolve(function: str, args: Sequence[Placed], meshes: Iterable[Mesh],
            others: Iterable[Sharding], context: Mesh, default: Device) -> Placement:
    """The placement of a computation.

    args: its arguments. meshes: concrete meshes named inside the function. others: shardings that
    jit was given. context: the context mesh (empty where none is set). default: the device to use
    if nothing is committed.
    Raises ValueError, naming arguments and device ids, where they disagree.
    """
    abstract = _abstract_only([*args], others)
    if abstract is not None:
        return Placement(None, abstract, None)
    wanted: Mesh | None = context if context.axis_names else None
    devices = tuple(wanted.device_tuple) if wanted is not None else None
    first = "jit's context mesh"
    first_named = None
    for a in args:
        if a.sharding is None:
            continue
        assigned = tuple(a.sharding.device_assignment)
        if devices is None:
            devices, first_named = assigned, a
        elif assigned != devices:
            if _is_whole_on_one(a.sharding) and len(devices) == 1 and assigned == devices:
                continue
            _incompatible(function, a, first_named, devices, first)
        if wanted is None and isinstance(a.sharding, NamedSharding):
            wanted = a.sharding.mesh  # type: ignore[assignment]
    candidates = [*meshes, *(s.mesh for s in others if isinstance(s, NamedSharding))]
    for mesh in candidates:
        if devices is None or (first_named is None and wanted is None):
            devices, wanted = tuple(mesh.device_tuple), mesh
        elif tuple(mesh.device_tuple) != devices:
            what = f"{function}'s mesh with device ids {[d.id for d in mesh.device_tuple]}"
            if first_named is not None:
                _raise_incompatible(f"{_argument(function, first_named)} and {what}")
            _raise_incompatible(f"{what} and {first} with device ids {[d.id for d in devices]}")
        wanted = wanted or mesh
    if wanted is not None:
        return Placement(wanted, wanted.abstract_mesh, None)
    for s in others:
        if devices is None:
            devices = tuple(s.device_assignment)
    return Placement(None, empty_abstract_mesh, devices[0] if devices else default)


def _abstract_only(args: Sequence[Placed], others: Iterable[Sharding]) -> AbstractMesh | None:
    """The abstract mesh of a computation that is lowered without devices."""
    for s in [*(a.sharding for a in args), *others]:
        if isinstance(s, NamedSharding) and isinstance(s.mesh, AbstractMesh) and s.mesh.axis_names:
            return s.mesh
    return None


def _is_whole_on_one(sharding: Sharding) -> bool:
    return len(sharding.device_assignment) == 1


def _argument(function: str, a: Placed) -> str:
    ids = device_ids(a.sharding) if a.sharding is not None else []
    shape = a.aval.update(sharding=None).str_short()
    return (f"argument {a.name} of {function} with shape {shape} and with device ids {ids} on "
            "platform CPU")


def _incompatible(function: str, a: Placed, first: Placed | None, devices: tuple[Device, ...],
                  context: str) -> None:
    if first is not None:
        _raise_incompatible(f"{_argument(function, first)} and {_argument(function, a)}")
    _raise_incompatible(f"{_argument(function, a)} and {context} with device ids "
                        f"{[d.id for d in devices]} on platform CPU")


def _raise_incompatible(what: str) -> None:
    fail(ValueError, "Received incompatible devices for jitted computation. Got " + what,
         code="incompatible-devices",
         notes=("all committed arguments of a computation live on the same devices, in one order",),
         help="move one of them with `device_put(x, sharding)`")


@functools.lru_cache(maxsize=4096)
def spec_on(mesh: Mesh, sharding: Sharding, ndim: int) -> PartitionSpec:
    """The spec on `mesh` that lays a value of `ndim` dimensions out as `sharding` does.

    Raises ValueError if no spec on that mesh does.
    """
    if isinstance(sharding, NamedSharding):
        spec = sharding.spec
        if sharding.mesh is mesh or (
                sharding.mesh.axis_names == mesh.axis_names
                and sharding.mesh.axis_sizes == mesh.axis_sizes):
            return spec
        if not (spec.unreduced or spec.reduced):
            found = _equivalent_spec(mesh, sharding, ndim)
            if found is not None:
                return found
    elif len(sharding.device_assignment) == 1 and mesh.size == 1:
        return PartitionSpec()
    fail(ValueError, f"No PartitionSpec on mesh {mesh} describes the sharding {sharding}",
         code="no-spec", help="move the array to the mesh of the others with `device_put`")


def _equivalent_spec(mesh: Mesh, sharding: NamedSharding, ndim: int) -> PartitionSpec | None:
    factors = sharding.dim_factors(ndim)
    names = mesh.axis_names

    def place(d: int, free: tuple[str, ...]):
        if d == ndim:
            yield ()
            return
        for r in range(len(free) + 1):
            for chosen in itertools.permutations(free, r):
                parts = 1
                for a in chosen:
                    parts *= mesh.axis_size(a)
                if parts == factors[d]:
                    rest = tuple(a for a in free if a not in chosen)
                    for tail in place(d + 1, rest):
                        yield (chosen, *tail)

    for entries in place(0, tuple(a for a in names if mesh.axis_size(a) > 1)):
        spec = spec_from_entries(entries)
        if NamedSharding(mesh, spec).is_equivalent_to(sharding, ndim):
            return spec
    return None
