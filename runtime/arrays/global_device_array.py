"""GlobalDeviceArray: an array under the interface that it had before there was one array type.

It *is* an array (`Array`), so every function takes it, made from a mesh and the axes of each
dimension instead of a sharding, and with the older names of its parts. Behaviour is that of JAX's
class of this name (0.3 and 0.4.1), but that `==` compares elements, as for every array.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.device import Device
from ...ir.meshes.mesh import Mesh
from ...ir.shardings.sharding import NamedSharding
from ...ir.spec import PartitionSpec
from ..storage import holders
from .array import ArrayImpl
from .assembly import make_array_from_single_device_arrays
from .blocks import Shard
from .transfer import put

Shape = tuple[int, ...]
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
    >>> mesh = st.make_mesh((4, 2), ("x", "y"))
    >>> rows = [np.full((2, 2), d.id) for d in mesh.local_devices]
    >>> buffers = [st.device_put(b, d) for b, d in zip(rows, mesh.local_devices)]
    >>> gda = GlobalDeviceArray((8, 4), mesh, P("x", "y"), buffers)
    >>> gda
    GlobalDeviceArray(shape=(8, 4), dtype=int32, global_mesh_shape={'x': 4, 'y': 2}, mesh_axes=P('x', 'y'))
    >>> gda.local_shards[3].index, isinstance(gda, st.Array)
    ((slice(2, 4, None), slice(2, 4, None)), True)
    """  # noqa: E501

    __slots__ = ()

    def __init__(self, global_shape: Shape, global_mesh: Mesh, mesh_axes: MeshAxes,
                 device_buffers: Sequence[ArrayImpl]) -> None:
        wanted = list(global_mesh.local_devices)
        given = [b.sharding.device_assignment[0] if isinstance(b, ArrayImpl) else None
                 for b in device_buffers]
        if sorted(map(str, given)) == sorted(map(str, wanted)) and given != wanted:
            fail(ValueError,
                 "The `global_mesh.local_devices` and `device_buffers` device order doesn't match. "
                 "Please use `global_mesh.local_devices` to put arrays on devices instead of "
                 "`jax.local_devices()`", code="buffer-order",
                 notes=(f"the mesh has devices {[d.id for d in wanted]}, the buffers are on "
                        f"{[d.id for d in given if d is not None]}",),
                 help="make_array_from_single_device_arrays takes the arrays in any order")
        x = make_array_from_single_device_arrays(
            tuple(global_shape), _sharding(global_mesh, mesh_axes), list(device_buffers))
        super().__init__(x.aval, x.sharding, x.storage, True)

    @classmethod
    def of(cls, x: ArrayImpl) -> GlobalDeviceArray:
        """The same array under this interface. Raises TypeError if it is not on a mesh.

        >>> from shardtrace.experimental.global_device_array import GlobalDeviceArray
        >>> x = st.device_put(np.arange(8), st.NamedSharding(st.make_mesh((8,), "x"), P("x")))
        >>> GlobalDeviceArray.of(x).local_data(5)
        Array([5], dtype=int32)
        """
        if not isinstance(x.sharding, NamedSharding):
            raise TypeError(f"A GlobalDeviceArray is on a mesh; this array has {x.sharding}. Move "
                            "it to a `NamedSharding` first, with `device_put`.")
        made = object.__new__(cls)
        ArrayImpl.__init__(made, x.aval, x.sharding, x.storage, x.committed)
        return made

    # -- making one ----------------------------------------------------------------------------
    @classmethod
    def from_callback(cls, global_shape: Shape, global_mesh: Mesh, mesh_axes: MeshAxes,
                      data_callback: Callable[[Index], Any]) -> GlobalDeviceArray:
        """Of each local device of the mesh, `data_callback(its slices of the global array)`.

        >>> from shardtrace.experimental.global_device_array import GlobalDeviceArray
        >>> data, mesh = np.arange(16).reshape(8, 2), st.make_mesh((4, 2), ("x", "y"))
        >>> gda = GlobalDeviceArray.from_callback(data.shape, mesh, P("x", "y"), lambda i: data[i])
        >>> gda.local_data(2)
        Array([[4],
               [6]], dtype=int32)
        """
        return cls.from_batched_callback(
            global_shape, global_mesh, mesh_axes,
            lambda indices: [data_callback(index) for index in indices])

    @classmethod
    def from_batched_callback(cls, global_shape: Shape, global_mesh: Mesh, mesh_axes: MeshAxes,
                              data_callback: Callable[[Sequence[Index]], Sequence[Any]]
                              ) -> GlobalDeviceArray:
        """As `from_callback`, with one call: the slices of all local devices, to a block of each.

        Raises ValueError for another number of blocks than slices.

        >>> from shardtrace.experimental.global_device_array import GlobalDeviceArray
        >>> data, mesh = np.arange(16).reshape(8, 2), st.make_mesh((4, 2), ("x", "y"))
        >>> gda = GlobalDeviceArray.from_batched_callback(
        ...     data.shape, mesh, P("x"), lambda indices: [data[i] for i in indices])
        >>> gda.local_data(0).shape
        (2, 2)
        """
        index = _sharding(global_mesh, mesh_axes).devices_indices_map(tuple(global_shape))
        devices = list(global_mesh.local_devices)
        blocks = list(data_callback([index[d] for d in devices]))
        if len(blocks) != len(devices):
            raise ValueError(f"data_callback got the slices of {len(devices)} local devices, and "
                             f"returned {len(blocks)} arrays; it must return one for each.")
        buffers = [put(block, device) for block, device in zip(blocks, devices, strict=True)]
        return cls(global_shape, global_mesh, mesh_axes, buffers)

    @classmethod
    def from_batched_callback_with_devices(
            cls, global_shape: Shape, global_mesh: Mesh, mesh_axes: MeshAxes,
            data_callback: Callable[[Sequence[tuple[Index, tuple[Device, ...]]]],
                                    Sequence[ArrayImpl]]) -> GlobalDeviceArray:
        """From one-device arrays that `data_callback` itself puts on the devices.

        data_callback: gets each block once, as (slices, devices that hold it); returns an array
          for each local device, in any order.

        >>> from shardtrace.experimental.global_device_array import GlobalDeviceArray
        >>> data, mesh = np.arange(16).reshape(8, 2), st.make_mesh((4, 2), ("x", "y"))
        >>> def put_blocks(blocks):
        ...     return [st.device_put(data[i], d) for i, devices in blocks for d in devices]
        >>> gda = GlobalDeviceArray.from_batched_callback_with_devices(
        ...     data.shape, mesh, P("x"), put_blocks)
        >>> [s.replica_id for s in gda.local_shards]
        [0, 1, 0, 1, 0, 1, 0, 1]
        """
        index = _sharding(global_mesh, mesh_axes).devices_indices_map(tuple(global_shape))
        devices = list(global_mesh.local_devices)
        held = holders({d: index[d] for d in devices}, tuple(global_shape)).values()
        buffers = data_callback([(index[of[0]], tuple(of)) for of in held])
        by_device = {b.sharding.device_assignment[0]: b for b in buffers}
        if len(by_device) == len(buffers) and set(by_device) == set(devices):
            buffers = [by_device[d] for d in devices]
        return cls(global_shape, global_mesh, mesh_axes, buffers)

    # -- the older names -----------------------------------------------------------------------
    @property
    def mesh(self) -> Mesh:
        """The mesh; now `x.sharding.mesh`."""
        return self.sharding.mesh  # type: ignore[attr-defined]

    @property
    def mesh_axes(self) -> PartitionSpec:
        """The axes that split each dimension; now `x.sharding.spec`."""
        return self.sharding.spec  # type: ignore[attr-defined]

    @property
    def local_shards(self) -> Sequence[Shard]:
        """The blocks of the devices that this process owns; now `addressable_shards`."""
        return self.addressable_shards

    def local_data(self, index: int) -> ArrayImpl:
        """The index-th block of this process; now `addressable_data(index)`."""
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
