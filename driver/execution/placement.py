"""Placement: on which devices a computation runs, and where each argument lies on them.

Committed arguments, the shardings given to jit, the meshes named inside the function and the
context mesh must agree on one list of devices, in one order; uncommitted arguments follow. One of
these meshes becomes the mesh of the computation, and every other sharding is restated on it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.device import Device
from ...ir.meshes.mesh import AbstractMesh, AxisType, Mesh, empty_abstract_mesh
from ...ir.shardings.gspmd import (
    GSPMDSharding,
    from_named,
    is_single_device,
    is_unnamed,
    named_on,
)
from ...ir.shardings.restate import spec_for_tiling
from ...ir.shardings.sharding import NamedSharding, Sharding
from ...ir.spec import PartitionSpec
from ...ir.support.caches import cached
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType


class ArgumentPlacement(NamedTuple):
    """An argument or result with the sharding that was asked for it (None: not committed).

    used: whether the computation looks at it; if not, it may lie anywhere.
    """
    name: str
    aval: ArrayType
    sharding: Sharding | None
    used: bool = True


class Placement(NamedTuple):
    """Where a computation runs.

    mesh: its concrete mesh, or None for one device or an abstract mesh. device: the single device.
    abstract_mesh: the mesh that the partitioner sees (empty for one device). unnamed: the devices
    in their order, where no argument names a mesh and `mesh` was made from a tile assignment.
    """
    mesh: Mesh | None
    abstract_mesh: AbstractMesh
    device: Device | None
    unnamed: tuple[Device, ...] = ()

    def sharding(self, spec: PartitionSpec, ndim: int, axis_types: tuple[AxisType, ...] = (),
                 memory_kind: str | None = None) -> NamedSharding | GSPMDSharding:
        """The sharding, as users see it, of a value with `ndim` dimensions and this spec."""
        mesh = self.mesh or self.abstract_mesh
        if axis_types and axis_types != mesh.axis_types:
            mesh = mesh.update(axis_types=axis_types)
        named = NamedSharding(mesh, spec, memory_kind=memory_kind)
        return from_named(named, ndim, self.unnamed) if self.unnamed else named


def resolve(function: str, args: Sequence[ArgumentPlacement], meshes: Iterable[Mesh],
            others: Iterable[Sharding], context: Mesh, default: Callable[[], Device],
            who_named: Callable[[Mesh], str] | None = None,
            abstract_named: Callable[[], AbstractMesh] | None = None) -> Placement:
    """The placement of a computation.

    args: its arguments. meshes: concrete meshes named inside the function. others: shardings that
    jit was given. context: the context mesh (empty where none is set). default: gives the device
    to use if nothing is committed. who_named: the op inside the function that named a mesh, for
    messages. abstract_named: the abstract mesh that is named inside the function (empty where none
    is), on which it is lowered if nothing names devices.
    Raises ValueError, naming arguments and device ids, where they disagree.
    """
    others = tuple(others)
    shardings = [s for s in dict.fromkeys([*[a.sharding for a in args], *others]) if s is not None]
    abstract = _abstract_only(shardings)
    if abstract is not None:
        _check_sizes(abstract, shardings)
        return Placement(None, abstract, None)
    wanted: Mesh | None = None
    devices: tuple[Device, ...] | None = None
    first: Callable[[], str]
    for who, assigned, mesh in _named(function, args, meshes, others, context, who_named):
        if devices is None:
            devices, first = assigned, who
        elif assigned is not devices and assigned != devices:
            fail(ValueError, "Received incompatible devices for jitted computation. Got "
                 f"{_on(first(), devices)} and {_on(who(), assigned)}", code="incompatible-devices",
                 notes=("all committed arguments of a computation live on the same devices, in one "
                        "order",), help="move one of them with `device_put`")
        wanted = wanted or mesh
    if wanted is not None:
        unnamed = wanted.device_tuple if is_unnamed(wanted) else ()
        return Placement(wanted, wanted.abstract_mesh, None, unnamed)
    for s in shardings:
        if devices is None:
            devices = tuple(s.device_assignment)
        if isinstance(s, GSPMDSharding) and len(devices) > 1:
            made = s.named().mesh
            assert isinstance(made, Mesh)
            return Placement(made, made.abstract_mesh, None, s.device_assignment)
    if devices is None and abstract_named is not None and (named := abstract_named()).axis_names:
        return Placement(None, named, None)
    return Placement(None, empty_abstract_mesh, devices[0] if devices else default())


def _abstract_only(shardings: Iterable[Sharding]) -> AbstractMesh | None:
    """The abstract mesh of a computation that is lowered without devices."""
    for s in shardings:
        if isinstance(s, NamedSharding) and isinstance(s.mesh, AbstractMesh) and s.mesh.axis_names:
            return s.mesh
    return None


def _check_sizes(mesh: AbstractMesh, shardings: Iterable[Sharding]) -> None:
    """Raise ValueError for a sharding on another number of devices than the abstract mesh has."""
    for s in shardings:
        if isinstance(s, NamedSharding) and s.is_concrete and s.mesh.size != mesh.size:
            fail(ValueError, f"AbstractMesh size: {mesh.size} does not match the device assignment "
                 f"size: {s.mesh.size}", code="mesh-size",
                 help=f"place the arguments on a mesh of {mesh.size} devices, or use an "
                      f"AbstractMesh of {s.mesh.size}")


def _named(function: str, args: Sequence[ArgumentPlacement], meshes: Iterable[Mesh],
           others: Iterable[Sharding], context: Mesh, who_named: Callable[[Mesh], str] | None
           ) -> Iterator[tuple[Callable[[], str], tuple[Device, ...], Mesh | None]]:
    """All that names devices: (description, the devices in order, their mesh). Only the first of
    the arguments with the same sharding counts.
    """
    if context.axis_names:
        yield (lambda: "jit's context mesh"), tuple(context.device_tuple), context
    by_sharding: dict[Sharding | None, ArgumentPlacement] = {}
    for a in args:
        if a.sharding not in by_sharding and a.used:
            by_sharding[a.sharding] = a
    for s, a in by_sharding.items():
        if s is not None:
            mesh = s.mesh if isinstance(s, NamedSharding) else None
            yield (lambda a=a: _argument(a, function),
                   tuple(s.device_assignment), mesh)    # type: ignore[misc]
    for s in others:
        mesh = s.mesh if isinstance(s, NamedSharding) else None
        yield (lambda: "explicit output sharding"), tuple(s.device_assignment), mesh  # type: ignore
    for mesh in meshes:
        yield (lambda m=mesh: f"{who_named(m) if who_named else 'sharding_constraint'} inside jit",
               tuple(mesh.device_tuple), None if is_single_device(mesh) else mesh)


def _argument(a: ArgumentPlacement, function: str) -> str:
    shape = a.aval.update(sharding=None).str_short()
    return f"argument {a.name} of {function} with shape {shape} and"


def _on(who: str, devices: tuple[Device, ...]) -> str:
    return f"{who} with device ids {[d.id for d in devices]} on platform CPU"


@cached(4096)
def spec_on(mesh: Mesh, sharding: Sharding, ndim: int) -> PartitionSpec:
    """The spec on `mesh` that lays a value of `ndim` dimensions out as `sharding` does.

    Where no spec on the mesh does, the nearest: dimensions whose tiles need a part of an axis are
    whole, and the value is brought there before the computation, or taken from there after it.
    Raises ValueError for a partial sum that no spec on the mesh describes.
    """
    if isinstance(sharding, NamedSharding):
        spec = sharding.spec
        if sharding.mesh is mesh or (
                sharding.mesh.axis_names == mesh.axis_names
                and sharding.mesh.axis_sizes == mesh.axis_sizes):
            return spec
        if not spec.reduced:
            found = spec_for_tiling(mesh, sharding.tiling(ndim), loose=True)
            if found is not None:
                return found
    elif len(sharding.device_assignment) == 1 and mesh.size == 1:
        return PartitionSpec()
    elif isinstance(sharding, GSPMDSharding):
        named = named_on(sharding, mesh)
        if named.mesh is mesh:
            return named.spec
    fail(ValueError, f"No PartitionSpec on mesh {mesh} describes the sharding {sharding}",
         code="no-spec", help="move the array to the mesh of the others with `device_put`")


def argument_specs(args: Sequence[ArgumentPlacement], placement: Placement
                   ) -> tuple[PartitionSpec | None, ...]:
    """The specs of the arguments on the mesh; None for one that is not placed yet."""
    if not placement.abstract_mesh.axis_names:
        return (None,) * len(args)
    return tuple([None if sharding is None else _arg_spec(sharding, aval.ndim, used, placement)
                  for _, aval, sharding, used in args])


def _arg_spec(sharding: Sharding, ndim: int, used: bool, placement: Placement
              ) -> PartitionSpec | None:
    if placement.mesh is None:
        return _abstract_spec(sharding, placement.abstract_mesh, ndim)
    if not used and sharding.device_assignment != placement.mesh.device_tuple:
        return None
    return spec_on(placement.mesh, sharding, ndim)


def _abstract_spec(sharding: Any, mesh: AbstractMesh, ndim: int) -> PartitionSpec | None:
    """The spec on an abstract mesh for a sharding on another mesh of its size."""
    if not isinstance(sharding, NamedSharding):
        return None
    if sharding.mesh.shape_tuple == mesh.shape_tuple:
        return sharding.spec
    if sharding.mesh.size != mesh.size:
        fail(ValueError, "Meshes of one computation have one size. Got "
             f"{sharding.mesh.abstract_mesh} and {mesh}", code="mesh-size",
             help="make both meshes of the same devices")
    return spec_for_tiling(mesh, sharding.tiling(ndim), loose=True)
