"""GlobalDeviceArray: an array under the interface that JAX had before `jax.Array`.

It *is* an `Array`, so every function takes it; it is made from a mesh and the axes of each
dimension instead of a sharding, and its parts have their older names. It behaves like JAX's class
of this name (0.3 and 0.4.1), except that `==` compares elements, as for every array.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.diagnostics.diagnostic import fail
from ..ir.meshes.device import Device
from ..ir.meshes.mesh import Mesh
from ..ir.shardings.sharding import NamedSharding
from ..ir.spec import PartitionSpec
from ..ir.types import Shape
from .array import ArrayImpl
from .assembly import make_array_from_single_device_arrays
from .storage import holders
from .transfer import put

Index = tuple[slice, ...]
MeshAxes = PartitionSpec | Sequence[Any] | None


class GlobalDeviceArray(ArrayImpl):
    """The array of `global_shape` whose dimensions are split over `mesh_axes` of `global_mesh`.

    mesh_axes: for each dimension None, a mesh axis, or a tuple of them; a PartitionSpec or a
      sequence, not longer than the shape.
    device_buffers: one-device arrays, one for each of `global_mesh.local_devices`, in that order.
    Raises ValueError for buffers in another order, or of a shape or dtype that does not fit.
    Write `make_array_from_single_device_arrays` in new programs; docs/migrating.md has the rest.

    >>> from shardtrace.experimental.global_device_array import GlobalDeviceArray
    >>> data, mesh = np.arange(16).reshape(8, 2), st.make_mesh((4, 2), ("x", "y"))
    >>> gda = GlobalDeviceArray.from_callback(data.shape, mesh, P("x", "y"), lambda i: data[i])
    >>> gda
    GlobalDeviceArray(shape=(8, 2), dtype=int32, global_mesh_shape={'x': 4, 'y': 2}, mesh_axes=P('x', 'y'))
    >>> gda.local_shards[3].index, gda.local_data(3), isinstance(gda, st.Array)
    ((slice(2, 4, None), slice(1, 2, None)), Array([[5],
           [7]], dtype=int32), True)
    """  # noqa: E501

    __slots__ = ()

    def __init__(self, global_shape: Shape, global_mesh: Mesh, mesh_axes: MeshAxes,
                 device_buffers: Sequence[ArrayImpl]) -> None:
        wanted, buffers = list(global_mesh.local_devices), list(device_buffers)
        given = [b.sharding.device_assignment[0] for b in buffers if isinstance(b, ArrayImpl)]
        if given != wanted and sorted(given) == sorted(wanted):
            fail(ValueError,
                 "The `global_mesh.local_devices` and `device_buffers` device order doesn't match. "
                 "Please use `global_mesh.local_devices` to put arrays on devices instead of "
                 "`jax.local_devices()`", code="buffer-order",
                 notes=(f"the mesh has devices {[d.id for d in wanted]}, the buffers are on "
                        f"{[d.id for d in given]}",),
                 help="make_array_from_single_device_arrays takes the arrays in any order")
        x = make_array_from_single_device_arrays(
            tuple(global_shape), _sharding(global_mesh, mesh_axes), buffers)
        super().__init__(x.aval, x.sharding, x.storage, True)

    @classmethod
    def of(cls, x: ArrayImpl) -> GlobalDeviceArray:
        """Array `x` under this interface. Raises TypeError if it is not on a mesh."""
        if not isinstance(x.sharding, NamedSharding):
            raise TypeError(f"A GlobalDeviceArray is on a mesh; this array has {x.sharding}. Move "
                            "it to a `NamedSharding` first, with `device_put`.")
        made = object.__new__(cls)
        ArrayImpl.__init__(made, x.aval, x.sharding, x.storage, x.committed)
        return made

    @classmethod
    def from_callback(cls, global_shape: Shape, global_mesh: Mesh, mesh_axes: MeshAxes,
                      data_callback: Callable[[Index], Any]) -> GlobalDeviceArray:
        """An array whose blocks are `data_callback(slices of the global array)`, one a device."""
        return cls.from_batched_callback(global_shape, global_mesh, mesh_axes,
                                         lambda indices: list(map(data_callback, indices)))

    @classmethod
    def from_batched_callback(cls, global_shape: Shape, global_mesh: Mesh, mesh_axes: MeshAxes,
                              data_callback: Callable[[Sequence[Index]], Sequence[Any]]
                              ) -> GlobalDeviceArray:
        """As `from_callback`, with one call: the slices of all local devices, to a block of each.

        Raises ValueError for another number of blocks than slices.
        """
        index = get_shard_indices(global_shape, global_mesh, mesh_axes)
        devices = list(global_mesh.local_devices)
        blocks = list(data_callback([index[d] for d in devices]))
        if len(blocks) != len(devices):
            raise ValueError(f"data_callback got the slices of {len(devices)} local devices, and "
                             f"returned {len(blocks)} arrays; it must return one for each.")
        return cls(global_shape, global_mesh, mesh_axes, list(map(put, blocks, devices)))

    @classmethod
    def from_batched_callback_with_devices(
            cls, global_shape: Shape, global_mesh: Mesh, mesh_axes: MeshAxes,
            data_callback: Callable[[Sequence[tuple[Index, tuple[Device, ...]]]],
                                    Sequence[ArrayImpl]]) -> GlobalDeviceArray:
        """From one-device arrays that `data_callback` itself puts on the devices.

        data_callback: gets each block once, as (slices, devices that hold it); returns an array
          for each local device, in any order.
        """
        index = get_shard_indices(global_shape, global_mesh, mesh_axes)
        held = holders({d: index[d] for d in global_mesh.local_devices}, tuple(global_shape))
        buffers = data_callback([(index[of[0]], tuple(of)) for of in held.values()])
        place = {d: i for i, d in enumerate(global_mesh.local_devices)}
        return cls(global_shape, global_mesh, mesh_axes, sorted(
            buffers, key=lambda b: place.get(b.sharding.device_assignment[0], len(place))))

    # Of the older names these are now `x.sharding.mesh`, `x.sharding.spec`, `addressable_shards`
    # and `addressable_data`.
    mesh = property(lambda self: self.sharding.mesh, doc="The mesh.")
    mesh_axes = property(lambda self: self.sharding.spec, doc="The axes that split dimensions.")
    local_shards = ArrayImpl.addressable_shards

    def local_data(self, index: int) -> ArrayImpl:
        """The index-th block of this process."""
        return self.local_shards[index].data

    def __str__(self) -> str:
        return f"GlobalDeviceArray(shape={self.shape}, dtype={self.dtype})"

    def __repr__(self) -> str:
        return (f"{str(self)[:-1]}, global_mesh_shape={dict(self.mesh.shape)}, "
                f"mesh_axes={self.mesh_axes})")


def _sharding(mesh: Mesh, mesh_axes: MeshAxes) -> NamedSharding:
    if not isinstance(mesh_axes, PartitionSpec):
        mesh_axes = PartitionSpec(*(mesh_axes or ()))
    return NamedSharding(mesh, mesh_axes)


def get_shard_indices(global_shape: Shape, global_mesh: Mesh, mesh_axes: MeshAxes
                      ) -> Mapping[Device, Index]:
    """Device to the slices that it holds; now `NamedSharding.devices_indices_map`.

    >>> from shardtrace.experimental.global_device_array import get_shard_indices
    >>> get_shard_indices((8,), st.make_mesh((2,), "x"), P("x"))
    {CpuDevice(id=0): (slice(0, 4, None),), CpuDevice(id=1): (slice(4, 8, None),)}
    """
    return _sharding(global_mesh, mesh_axes).devices_indices_map(tuple(global_shape))


def get_shard_shape(global_shape: Shape, global_mesh: Mesh, mesh_axes: MeshAxes) -> Shape:
    """Shape of every block; now `NamedSharding.shard_shape`.

    >>> from shardtrace.experimental.global_device_array import get_shard_shape
    >>> get_shard_shape((8, 4), st.make_mesh((2, 4), ("x", "y")), P("x", "y"))
    (4, 1)
    """
    return _sharding(global_mesh, mesh_axes).shard_shape(tuple(global_shape))
