"""Shardings: which part of an array each device holds.

`NamedSharding` is a mesh and a spec; `SingleDeviceSharding` a device. Both are interned, and what
is computed for a shape (shard shape, index map) is kept on them. The arithmetic is in `tiling`.
Methods, messages and printed forms are those of `jax.sharding` (0.10.2).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..diagnostics.diagnostic import fail
from ..meshes.device import MEMORY_KINDS, Device, check_memory_kind
from ..meshes.mesh import AbstractMesh, Mesh
from ..spec import UNCONSTRAINED, PartitionSpec, parse_axis
from ..support.caches import tables
from ..support.interning import InternTable
from ..support.lazy import lazy_import
from .base_sharding import Index, Shape, Sharding, common_devices_indices_map, indivisible
from .tiling import canonical_tiling, check_spec, dim_factors, tile_index

_placement_html = lazy_import("..meshes.placement_html", __package__)

__all__ = [
    "NamedSharding", "Sharding", "SingleDeviceSharding", "check_spec",
    "common_devices_indices_map", "dim_factors",
    "make_single_device_sharding", "named_sharding_abstract", "tile_index",
]

_SHAPES = tables("ir.shardings.sharding.NamedSharding.shard_shape", "shapes of blocks",
                 1024)


_NAMED: InternTable[Any] = InternTable()
_SINGLE: InternTable[Any] = InternTable()
_known = _NAMED.data.get


class NamedSharding(Sharding):
    """A mesh, and a spec that says which of its axes split which dimension.

    `memory_kind`: memory of the devices to use; None is the default one (`device`), and stays
    None on an abstract mesh.

    Raises what `check_spec` raises, and ValueError for a memory kind that the devices lack.
    Interned: equal mesh, spec and memory kind give the same object.

    In the types of values (`typeof`), Auto axes of the spec are not shown, Explicit ones are, and
    Manual ones cannot be: inside `shard_map` a dimension is that of a block.

    >>> from shardtrace.sharding import NamedSharding
    >>> mesh = st.make_mesh((4, 2), ("x", "y"))
    >>> s = NamedSharding(mesh, P("x", None))
    >>> s.shard_shape((8, 6)), s.is_fully_replicated, s.num_devices
    ((2, 6), False, 8)
    >>> s.devices_indices_map((8, 6))[st.devices()[3]]
    (slice(2, 4, None), slice(None, None, None))
    >>> s.is_equivalent_to(NamedSharding(st.make_mesh((4, 2), ("a", "b")), P("a")), 2)
    True
    """

    mesh: Mesh | AbstractMesh
    spec: PartitionSpec
    normal_rank: int
    """The rank of the values whose types hold it as it is (see `normalized_sharding`); -1 where
    that has to be looked into."""

    def __new__(
        cls, mesh: Mesh | AbstractMesh, spec: PartitionSpec, *, memory_kind: str | None = None
    ) -> NamedSharding:
        key = (mesh, spec, memory_kind)
        sharding = _NAMED.get(key)
        return sharding if sharding is not None else _make_named(mesh, spec, memory_kind)

    def __reduce__(self) -> tuple:
        return _make_named, (self.mesh, self.spec, self.memory_kind)

    def __repr__(self) -> str:
        memory = "" if self.memory_kind is None else f", memory_kind={self.memory_kind}"
        return f"NamedSharding(mesh={self.mesh!s}, spec={self.spec}{memory})"

    def _repr_html_(self) -> str:
        return _placement_html.sharding_html(self)

    def update(self, **kwargs: Any) -> NamedSharding:
        """This sharding with another `mesh`, `spec` or `memory_kind`."""
        mesh = kwargs.pop("mesh", self.mesh)
        spec = kwargs.pop("spec", self.spec)
        memory_kind = kwargs.pop("memory_kind", self.memory_kind)
        if kwargs:
            raise TypeError(f"NamedSharding.update() has no argument {sorted(kwargs)[0]!r}")
        if not isinstance(spec, PartitionSpec):
            spec = PartitionSpec(*spec)
        return NamedSharding(mesh, spec, memory_kind=memory_kind)

    def with_memory_kind(self, kind: str) -> NamedSharding:
        """This sharding in another memory of the devices. Raises ValueError for one they lack."""
        return self.update(memory_kind=kind)

    # -- devices

    @property
    def is_concrete(self) -> bool:
        """Whether devices are known: not so on an abstract mesh."""
        return isinstance(self.mesh, Mesh)

    def _concrete_mesh(self, attribute: str) -> Mesh:
        if isinstance(self.mesh, Mesh):
            return self.mesh
        raise ValueError(f"{attribute} is not implemented for `jax.sharding.AbstractMesh`.")

    @property
    def num_devices(self) -> int:
        """Number of devices of the mesh."""
        return self.mesh.size

    @property
    def device_assignment(self) -> tuple[Device, ...]:
        """All devices in mesh order. Raises ValueError on an abstract mesh, as the next ones do."""
        return self._concrete_mesh("_device_assignment").device_tuple

    @property
    def device_set(self) -> set[Device]:
        """All devices of the mesh."""
        return set(self._concrete_mesh("device_set").device_set)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether the calling process owns all devices."""
        mesh = self._concrete_mesh("is_fully_addressable")
        return not mesh.empty and not mesh.is_multi_process

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices that the calling process owns."""
        return set(self._concrete_mesh("addressable_devices").local_devices)

    # -- the layout

    @functools.cached_property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array; a partial sum (unreduced) never does."""
        if self.mesh.size == 1:
            return True
        if self.spec.unreduced:
            return False
        return math.prod(dim_factors(self.mesh.shape, self.spec.entries)) == 1

    @functools.cached_property
    def replicated_axes(self) -> frozenset:
        """Mesh axes that the spec does not mention at all."""
        mentioned = {*self.spec.axes(), *self.spec.unreduced, *self.spec.reduced}
        bases = {name if name in self.mesh.shape else parse_axis(name)[0] for name in mentioned}
        return frozenset(self.mesh.axis_names) - bases

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Raise ValueError for an array of fewer dimensions than the spec has entries."""
        if len(aval_shape) < len(self.spec):
            hint = " For scalars the PartitionSpec should be P()" if not aval_shape else ""
            fail(ValueError,
                 f"Sharding {self} is only valid for values of rank at least {len(self.spec)}, but "
                 f"was applied to a value of rank {len(aval_shape)}.{hint}",
                 code="spec-too-long",
                 label=f"the value has shape {aval_shape}, the spec {len(self.spec)} entries",
                 help="give the spec one entry per dimension at most")

    def dim_factors(self, ndim: int) -> tuple[int, ...]:
        """Number of tiles along each of `ndim` dimensions.

        Raises IndexError if the spec splits a dimension beyond `ndim`.
        """
        factors = dim_factors(self.mesh.shape, self.spec.entries)
        if len(factors) <= ndim:
            return factors + (1,) * (ndim - len(factors))
        if any(factor > 1 for factor in factors[ndim:]):
            raise IndexError(
                f"list index out of range: {self.spec} splits a dimension that a value of rank "
                f"{ndim} does not have"
            )
        return factors[:ndim]

    @functools.cached_property
    def _shard_shapes(self) -> dict[Shape, Shape]:
        return _SHAPES()

    def shard_shape(self, global_shape: Shape) -> Shape:
        """Shape of the part that each device holds; unreduced axes do not divide.

        Raises `IndivisibleError` if a dimension is not a multiple of its number of tiles,
        IndexError if the spec splits more dimensions than there are.
        """
        global_shape = tuple(global_shape)
        cached = self._shard_shapes.get(global_shape)
        if cached is not None:
            return cached
        factors = self.dim_factors(len(global_shape))
        for dim, (size, factor) in enumerate(zip(global_shape, factors, strict=True)):
            if size % factor:
                indivisible(self, dim, global_shape, factors)
        shape = tuple(s // f for s, f in zip(global_shape, factors, strict=True))
        self._shard_shapes[global_shape] = shape
        return shape

    def _index_map(self, global_shape: Shape) -> dict[Device, Index]:
        """The part of the array that each device holds, from its coordinates on the mesh."""
        shard = self.shard_shape(global_shape)
        if self.spec.unreduced:
            raise NotImplementedError(
                "device_indices_map doesn't work with unreduced. Each device holds a partial sum "
                "of the whole value; reshard it to a spec without unreduced axes first."
            )
        mesh = self._concrete_mesh("_device_assignment")
        factors = self.dim_factors(len(global_shape))
        coordinates = np.indices(mesh.axis_sizes, sparse=True)
        tiles = tile_index(mesh.shape, self.spec.entries[:len(global_shape)], coordinates)
        columns: list[list[slice]] = []
        for dim, factor in enumerate(factors):
            if factor == 1:
                columns.append([slice(None)] * mesh.size)
                continue
            parts = [slice(i * shard[dim], (i + 1) * shard[dim]) for i in range(factor)]
            index = np.broadcast_to(tiles[dim], mesh.axis_sizes)
            columns.append([parts[i] for i in index.flat])
        rows = zip(*columns, strict=True) if columns else [()] * mesh.size
        return dict(zip(mesh.device_tuple, rows, strict=True))

    def tiling(self, ndim: int) -> tuple:
        """The canonical form of `Sharding.tiling`."""
        self.dim_factors(ndim)  # raises if the spec splits more dimensions than there are
        return canonical_tiling(self.mesh, self.spec)


def _make_named(
    mesh: Mesh | AbstractMesh, spec: PartitionSpec, memory_kind: str | None
) -> NamedSharding:
    """A sharding that does not exist yet, checked and entered into the table."""
    if not isinstance(mesh, (Mesh, AbstractMesh)) or not isinstance(spec, PartitionSpec):
        raise TypeError(
            "NamedSharding needs a Mesh (or AbstractMesh) and a PartitionSpec, got "
            f"{type(mesh).__name__} and {type(spec).__name__}. Write NamedSharding(mesh, P(...))."
        )
    given = memory_kind
    if isinstance(mesh, Mesh) and not mesh.empty:
        device = mesh.device_tuple[0]
        if memory_kind is None:
            memory_kind = getattr(device, "memory_kinds", (None,))[0]     # of a stand-in: none
        else:
            check_memory_kind(device, memory_kind)
    elif memory_kind is not None and memory_kind not in MEMORY_KINDS:
        raise ValueError(f"Got invalid memory kind: {memory_kind}. Valid memory kinds are: "
                         f"{', '.join(MEMORY_KINDS)}")
    key = (mesh, spec, memory_kind)
    sharding = _NAMED.get(key)
    if sharding is None:
        check_spec(mesh, spec)
        sharding = object.__new__(NamedSharding)
        put = object.__setattr__
        put(sharding, "mesh", mesh)
        put(sharding, "spec", spec)
        put(sharding, "memory_kind", memory_kind)
        put(sharding, "normal_rank", -1)
        if memory_kind is None and type(mesh) is AbstractMesh:
            entries = spec.entries
            used = spec.axes()
            if UNCONSTRAINED not in entries and (
                    not used or set(mesh.explicit_axes).issuperset(used)):
                put(sharding, "normal_rank", len(entries))
        sharding = _NAMED.add(key, sharding)
    if given is not memory_kind:
        # The same object under the key that leaves the memory kind to the default.
        _NAMED.add((mesh, spec, given), sharding)
    return sharding


def named_sharding_abstract(mesh: AbstractMesh, spec: PartitionSpec) -> NamedSharding:
    """The sharding of a type: over an abstract mesh, spec of full rank, no memory kind. Quick."""
    entry = _known((mesh, spec, None))
    if entry is not None:
        sharding = entry()
        if sharding is not None:
            return sharding
    return _make_named(mesh, spec, None)


class SingleDeviceSharding(Sharding):
    """The whole array on one device. `memory_kind` None is the device's default memory.

    >>> from shardtrace.sharding import SingleDeviceSharding
    >>> SingleDeviceSharding(st.devices()[1])
    SingleDeviceSharding(device=CpuDevice(id=1), memory_kind=device)
    """

    device: Device

    def __new__(cls, device: Device, *, memory_kind: str | None = None) -> SingleDeviceSharding:
        return _make_single(device, memory_kind)

    def __reduce__(self) -> tuple:
        return _make_single, (self.device, self.memory_kind)

    def __repr__(self) -> str:
        memory = "" if self.memory_kind is None else f", memory_kind={self.memory_kind}"
        return f"SingleDeviceSharding(device={self.device!r}{memory})"

    def with_memory_kind(self, kind: str) -> SingleDeviceSharding:
        """This sharding in another memory of the device."""
        return SingleDeviceSharding(self.device, memory_kind=kind)

    @property
    def device_assignment(self) -> tuple[Device, ...]:
        """The device, alone."""
        return (self.device,)

    @property
    def is_fully_replicated(self) -> bool:
        """True."""
        return True

    def shard_shape(self, global_shape: Shape) -> Shape:
        """The shape itself."""
        return tuple(global_shape)

    def _index_map(self, global_shape: Shape) -> Mapping[Device, Index]:
        return {self.device: (slice(None),) * len(global_shape)}

    def tiling(self, ndim: int) -> tuple:
        """(): nothing is cut."""
        return ()


def _make_single(device: Device, memory_kind: str | None) -> SingleDeviceSharding:
    """The interned sharding of one device and memory. memory_kind: None for its default memory."""
    if not isinstance(device, Device):
        raise TypeError(f"SingleDeviceSharding needs a device, got {type(device).__name__}")
    if memory_kind is None:
        memory_kind = device.memory_kinds[0]
    else:
        check_memory_kind(device, memory_kind)
    key = (device, memory_kind)
    sharding = _SINGLE.get(key)
    if sharding is None:
        sharding = object.__new__(SingleDeviceSharding)
        object.__setattr__(sharding, "device", device)
        object.__setattr__(sharding, "memory_kind", memory_kind)
        sharding = _SINGLE.add(key, sharding)
    return sharding


def make_single_device_sharding(
    device: Device, *, memory_kind: str | None = None
) -> SingleDeviceSharding:
    """The sharding that puts an array on `device`.

    >>> from shardtrace.sharding import make_single_device_sharding
    >>> st.device_put(1.0, make_single_device_sharding(st.devices()[2])).devices()
    {CpuDevice(id=2)}
    """
    return SingleDeviceSharding(device, memory_kind=memory_kind)
