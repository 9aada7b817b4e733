"""What every sharding can be asked: which devices hold which part of an array.

Subclasses say which devices, which memory and which tiling; the rest follows from these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from ..diagnostics.diagnostic import error
from ..diagnostics.errors import IndivisibleError
from ..meshes.device import Device, process_index
from ..support.caches import cached
from ..support.interning import Immutable
from ..support.lazy import lazy_import

if TYPE_CHECKING:
    from . import hlo_sharding as _hlo
    from .hlo_sharding import HloSharding
else:
    _hlo = lazy_import(".hlo_sharding", __package__)

__all__ = ["Index", "Shape", "Sharding", "common_devices_indices_map", "indivisible"]

Shape = tuple[int, ...]
Index = tuple[slice, ...]


class Sharding(Immutable):
    """How an array is laid out over devices. Abstract; see `NamedSharding`.

    >>> from shardtrace.sharding import Sharding, SingleDeviceSharding
    >>> isinstance(jnp.ones(3).sharding, Sharding)
    True
    >>> jnp.ones(3).sharding.is_equivalent_to(SingleDeviceSharding(st.devices()[0]), 1)
    True
    """

    # Subclasses set these; they are what the shared methods are computed from.
    memory_kind: str | None

    @property
    def device_assignment(self) -> tuple[Device, ...]:
        """All devices, in the order in which tiles are counted."""
        raise NotImplementedError("Subclasses should implement this method.")

    @property
    def _device_assignment(self) -> tuple[Device, ...]:
        return self.device_assignment

    @property
    def device_set(self) -> set[Device]:
        """All devices that hold a part of the array, other processes' included."""
        return set(self.device_assignment)

    @property
    def num_devices(self) -> int:
        """Number of devices, other processes' included."""
        return len(self.device_assignment)

    @property
    def is_concrete(self) -> bool:
        """Whether devices are known (not so on an abstract mesh)."""
        return True

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        raise NotImplementedError("Subclasses should implement this method.")

    @property
    def is_fully_addressable(self) -> bool:
        """Whether the calling process owns all the devices."""
        process = process_index()
        return all(device.process_index == process for device in self.device_assignment)

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices that the calling process owns."""
        process = process_index()
        return {device for device in self.device_assignment if device.process_index == process}

    @property
    def has_addressable_devices(self) -> bool:
        """Whether the calling process owns some of the devices."""
        return bool(self.addressable_devices)

    def with_memory_kind(self, kind: str) -> Sharding:
        """This sharding in another memory of the devices."""
        raise NotImplementedError("Subclasses should implement this method.")

    def shard_shape(self, global_shape: Shape) -> Shape:
        """Shape of the part that each device holds. Raises `IndivisibleError`."""
        raise NotImplementedError("Subclasses should implement this method.")

    def devices_indices_map(self, global_shape: Shape) -> Mapping[Device, Index]:
        """Device to the slices of the global array that it holds, in order of devices.

        Dimensions that are not split have `slice(None)`. Raises as `shard_shape` does, and
        NotImplementedError for a partial sum, whose devices hold no part of the value.
        """
        return dict(common_devices_indices_map(self, tuple(global_shape)))

    def _index_map(self, global_shape: Shape) -> Mapping[Device, Index]:
        """What `devices_indices_map` gives, computed."""
        raise NotImplementedError("Subclasses should implement this method.")

    def addressable_devices_indices_map(self, global_shape: Shape) -> Mapping[Device, Index]:
        """`devices_indices_map` for the devices that the calling process owns."""
        whole = self.devices_indices_map(global_shape)
        process = process_index()
        return {d: index for d, index in whole.items() if d.process_index == process}

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Raise ValueError unless an array of this shape has enough dimensions."""

    def tiling(self, ndim: int) -> tuple:
        """Which device, by its place in the order, holds which tile: a canonical form.

        `()` where all devices hold everything. Does not depend on names, axis types, axes of
        size 1, or on how a run of axes is cut into axes.
        """
        raise NotImplementedError("Subclasses should implement this method.")

    def to_hlo_sharding(self, ndim: int) -> HloSharding:
        """This sharding of values of `ndim` dimensions as XLA writes it, without mesh and names.

        >>> from shardtrace.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
        >>> NamedSharding(AbstractMesh((4, 2), ("x", "y")), P("y", "x")).to_hlo_sharding(2)
        {devices=[2,4]<=[4,2]T(1,0)}
        """
        return _hlo.HloSharding.from_tiling(self.tiling(ndim), ndim)

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> HloSharding:
        return self.to_hlo_sharding(num_dimensions)

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether both put the same parts of an array of `ndim` dimensions on the same devices.

        True for the same devices in the same order, the same tiling and the same memory kind;
        names, axis types, trailing None and axes of size 1 do not matter. Between two abstract
        meshes only tiling and memory kind are compared.
        """
        if self is other:
            return True
        if self.memory_kind != other.memory_kind or self.tiling(ndim) != other.tiling(ndim):
            return False
        if not self.is_concrete and not other.is_concrete:
            return True
        if self.is_concrete != other.is_concrete:
            return False
        return self.device_assignment == other.device_assignment


@cached(4096)
def common_devices_indices_map(sharding: Sharding, global_shape: Shape) -> Mapping[Device, Index]:
    """`sharding.devices_indices_map(global_shape)`, kept; not to be changed."""
    return sharding._index_map(global_shape)


def indivisible(sharding: Sharding, dim: int, shape: Shape, factors: Sequence[int],
                notes: Sequence[str] = ()) -> NoReturn:
    """Raise `IndivisibleError`: the tiles of dimension `dim` would not be equal."""
    size, factor = shape[dim], factors[dim]
    advice = (f"pad dimension {dim} to {-(-size // factor) * factor} elements, or leave it whole "
              "in the spec")
    problem = error(
        IndivisibleError,
        f"Sharding {sharding} implies that array axis {dim} is partitioned {factor} times, but "
        f"the dimension size is {size} (full shape: {shape}, per-dimension tiling factors: "
        f"{list(factors)} should evenly divide the shape)", code="indivisible",
        label=f"{size} elements cannot be cut into {factor} equal blocks", notes=tuple(notes),
        help=advice)
    assert isinstance(problem, IndivisibleError)
    problem.dimension, problem.size, problem.parts, problem.advice = dim, size, factor, advice
    problem.factors = tuple(factors)
    raise problem
