"""The array that users hold: one logical value, sharded over devices.

It is immutable. Type, sharding and data are kept apart: `aval` is the sharded type, `sharding` says
on which devices the blocks are, and the storage (arrays/storage.py) is one numpy array for all of
them, so blocks and the whole are views of it. Operators and methods (`x + y`, `x.sum()`, `x.at`)
are those of the base class. Attributes, texts and errors are those of `jax.Array` (0.10.2).
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..ir.api_boundary import bound_methods, process_exception
from ..ir.diagnostics.errors import DeletedArrayError, JaxRuntimeError
from ..ir.dtypes import canonicalize_dtype
from ..ir.meshes.device import Device, process_index
from ..ir.meshes.process import ProcessIdentity, process_identity
from ..ir.settings.context import x64_enabled
from ..ir.shardings.formats import Format, Layout, default_layout, reported_layout
from ..ir.shardings.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ..ir.spec import PartitionSpec
from ..ir.trees.pytree import PLAIN_LEAVES
from ..ir.types import ArrayType
from .blocks import (
    Shard,
    check_owners,
    is_readable,
    single_devices,
    stored_blocks,
    whole_value,
)
from .devices import default_device
from .host import aval_for
from .host_view import HostView, export_buffers
from .keys import ArrayKey, array_key
from .live import remember
from .storage import LocalBlocks, Storage, Stored, block_of, frozen


@bound_methods
class ArrayImpl(HostView):
    """A concrete array: an immutable value on one device or sharded over many.

    Functions make arrays (`device_put`, `numpy`, jitted functions, `make_array_from_callback`);
    `isinstance(x, Array)` is True, and so it is for traced arrays.

    aval: sharded type. sharding: concrete. storage: the data (`Stored`, or `LocalBlocks` where
      other processes own some of the devices), or a list of one-device arrays, one for each
      device of this process. committed: whether operations must stay on its devices.
    Raises ValueError where a list of arrays does not fit type and sharding.

    >>> mesh = st.make_mesh((4, 2), ("x", "y"))
    >>> x = st.device_put(np.arange(16.).reshape(8, 2), st.NamedSharding(mesh, P("x")))
    >>> x.shape, x.dtype, x.sharding.spec, x.is_fully_replicated
    ((8, 2), dtype('float32'), P('x',), False)
    >>> x.addressable_shards[2].index, x.addressable_shards[2].data
    ((slice(2, 4, None), slice(None, None, None)), Array([[4., 5.],
           [6., 7.]], dtype=float32))
    >>> (x @ x.T).sharding.spec, jnp.sin(x).sharding.spec
    (P('x',), P('x',))
    """

    # Unset where they do not apply: `_key` until it is asked for, `_whole` where the data is not
    # one array without leading dimensions (it is in `_other` then, or was given up).
    __slots__ = ("_committed", "_key", "_layout", "_npy_value", "_other", "_shards", "_sharding",
                 "_whole", "aval")

    def __init__(self, aval: ArrayType, sharding: Sharding,
                 storage: Storage | list[ArrayImpl], committed: bool) -> None:
        if type(storage) is list:
            owners = single_devices(storage)
            check_owners(owners, sharding)
            storage = stored_blocks(aval, sharding, {
                d: (a.value, a.dtype) for d, a in zip(owners, storage, strict=True)})
        self.aval = aval
        self._sharding = sharding
        if type(storage) is Stored and not storage.lead:
            self._whole: np.ndarray = storage.data
        else:
            self._other: Storage | None = storage  # type: ignore[assignment]
        self._committed = committed
        self._layout: Layout | None = None     # None: row-major
        self._npy_value: np.ndarray | None = None
        self._shards: tuple[ProcessIdentity, list[Shard]] | None = None    # as that process sees it
        self._key: ArrayKey
        remember((self,))

    @property
    def key(self) -> ArrayKey:
        """What a cached executable depends on of this array."""
        try:
            return self._key
        except AttributeError:
            self._key = key = array_key(
                self.aval, self._sharding if self._committed else None, self._layout)
            return key

    # -- placement -----------------------------------------------------------------------------
    @property
    def sharding(self) -> Sharding:
        """On which devices the blocks are, exactly as it was given."""
        return self._sharding

    @property
    def committed(self) -> bool:
        """Whether the user chose the devices, so that operations must run on them."""
        return self._committed

    @property
    def storage(self) -> Storage:
        """The data. Raises RuntimeError if the array was deleted."""
        if hasattr(self, "_whole"):
            return Stored(self._whole)
        self._check_if_deleted()
        return self._other  # type: ignore[return-value]

    def devices(self) -> set[Device]:
        """All devices that hold a part. Raises RuntimeError if deleted."""
        self._check_if_deleted()
        return self._sharding.device_set

    @property
    def device(self) -> Device | Sharding:
        """The device, or the sharding if there are several."""
        self._check_if_deleted()
        devices = self._sharding.device_assignment
        return devices[0] if len(devices) == 1 else self._sharding

    def platform(self) -> str:
        """The platform of the devices: `cpu`."""
        return self._sharding.device_assignment[0].platform

    @property
    def format(self) -> Format:
        """The order of elements in memory, with the sharding."""
        if self.is_deleted():
            return Format(None, self._sharding)
        return Format(self._layout or default_layout(self.aval.ndim), self._sharding)

    def with_layout(self, layout: Layout) -> ArrayImpl:
        """This array in another memory layout. Raises ValueError for a layout of another rank."""
        try:
            layout.check_compatible_aval(self.aval.shape)
        except ValueError as e:
            raise ValueError("One of jit outputs with pytree key path result is incompatible with "
                             f"its layout annotation {layout}: {e}") from None
        reported = reported_layout(layout)
        if reported == self.format.layout:
            return self
        out = ArrayImpl(self.aval, self._sharding, self.storage, self._committed)
        out._layout = None if reported == default_layout(self.aval.ndim) else reported
        return out

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole value."""
        return self._sharding.is_fully_replicated

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process owns all the devices."""
        return self._sharding.is_fully_addressable

    # -- blocks --------------------------------------------------------------------------------
    @property
    def addressable_shards(self) -> Sequence[Shard]:
        """The blocks of the devices that this process owns, in the order of the sharding."""
        mine = process_index()
        return [s for s in self._all_shards() if s.device.process_index == mine]

    def _all_shards(self) -> list[Shard]:
        self._check_if_deleted()
        me = process_identity()
        if self._shards is not None and self._shards[0] is me:
            return self._shards[1]
        mine, shape, sharding = me.index, self.aval.shape, self._sharding
        shards = [Shard(d, sharding, shape, self._block(d) if d.process_index == mine else None)
                  for d in sharding.device_assignment]
        if len(shards) > 1:      # the block of a single device is this array: no cycle
            self._shards = me, shards
        return shards

    @property
    def global_shards(self) -> Sequence[Shard]:
        """All blocks, in the order of the sharding; those of other processes have `data=None`."""
        return list(self._all_shards())

    def addressable_data(self, index: int) -> ArrayImpl:
        """The index-th block of this process; always the first if fully replicated.

        Raises IndexError if there are fewer blocks.
        """
        self._check_if_deleted()
        mine = process_index()
        local = [d for d in self._sharding.device_assignment if d.process_index == mine]
        return self._block(local[0 if self.is_fully_replicated else index])

    def _block(self, device: Device) -> ArrayImpl:
        sharding = SingleDeviceSharding(device, memory_kind=self._sharding.memory_kind)
        if sharding is self._sharding:
            return self
        data, t = self._block_data(device), self.aval
        block = array_of(data.shape[:t.ndim], t.dtype, t.weak_type, sharding, Stored(frozen(data)))
        block._layout = self._layout
        return block

    def _block_data(self, device: Device) -> np.ndarray:
        return block_of(self.storage, self._sharding, self.aval.shape, device)

    # -- the whole value -----------------------------------------------------------------------
    @property
    def value(self) -> np.ndarray:
        """The global value as a read-only numpy array (words of random keys included).

        Raises RuntimeError if deleted or if other processes hold a part of it, and
        NotImplementedError for a partial sum.
        """
        self._check_if_deleted()
        host = self._npy_value
        if host is None:
            whole = getattr(self, "_whole", None)
            if whole is not None and self.is_readable:
                return whole
            host = self._npy_value = whole_value(self.storage, self._sharding, self.aval)
        return host

    _value = value       # under which name programs for JAX find it

    @property
    def is_readable(self) -> bool:
        """Does this process hold the whole value, in one array or in blocks?"""
        return is_readable(self._sharding, self.aval.shape)

    def on_device_size_in_bytes(self) -> int:
        """Bytes of all blocks on all devices, other processes' included."""
        if self.is_deleted():
            raise JaxRuntimeError(
                "INVALID_ARGUMENT: GetOnDeviceSizeInBytes() called on deleted or donated buffer")
        sharding = self._sharding
        block = sharding.shard_shape(self.aval.shape)
        return int(np.prod(block, dtype=int)) * self.aval.dtype.itemsize * sharding.num_devices

    # -- life ----------------------------------------------------------------------------------
    def delete(self) -> None:
        """Release the data; everything that needs it raises from now on."""
        self._other = self._npy_value = self._shards = None
        if hasattr(self, "_whole"):
            del self._whole

    def is_deleted(self) -> bool:
        """Whether the data was released, by `delete` or by donation."""
        return not hasattr(self, "_whole") and self._other is None

    def is_ready(self) -> bool:
        """True: values are there when an operation returns. Raises RuntimeError if deleted."""
        self._check_if_deleted()
        return True

    def block_until_ready(self) -> ArrayImpl:
        """Itself: values are there when an operation returns."""
        if self.is_deleted():
            raise JaxRuntimeError(
                "INVALID_ARGUMENT: BlockHostUntilReady() called on deleted or donated buffer")
        return self

    def copy_to_host_async(self) -> None:
        """Nothing: the host has the value. Raises RuntimeError if deleted."""
        self._check_if_deleted()

    def _check_if_deleted(self) -> None:
        if not hasattr(self, "_whole") and self._other is None:
            raise DeletedArrayError(f"Array has been deleted with shape={self.aval.str_short()}.")

    def clone(self) -> ArrayImpl:
        """A copy in memory of its own, with the same placement."""
        storage = self.storage
        if isinstance(storage, LocalBlocks):
            storage = LocalBlocks({d: frozen(b.copy()) for d, b in storage.blocks.items()})
        else:
            storage = Stored(frozen(storage.data.copy()), storage.lead)
        out = ArrayImpl(self.aval, self._sharding, storage, self._committed)
        out._layout = self._layout
        return out

    def __copy__(self) -> ArrayImpl:
        out, sharding = self.clone(), self._sharding
        if isinstance(sharding, NamedSharding) and self.aval.has_explicit_mesh():
            spec = sharding.spec.padded(self.aval.ndim)      # as results of operations have it
            out._sharding = sharding.update(spec=spec)
        return out

    def __deepcopy__(self, memo: Any) -> ArrayImpl:
        return self.__copy__()

    def __reduce__(self) -> tuple:
        return _unpickle, (np.array(self.value), self.aval.dtype, self.aval.weak_type)

    # -- rows --------------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> Any:
        try:
            self._check_if_deleted()
            return super().__getitem__(index)
        except Exception as error:
            process_exception(error, ArrayImpl.__getitem__, (self, index))
            raise

    def __iter__(self) -> Iterator[ArrayImpl]:
        """The rows; they stay on the array's devices if every device has all of them."""
        if not self.aval.shape:
            raise TypeError("iteration over a 0-d array")
        assert self.is_fully_replicated or self.is_fully_addressable
        return self._rows()

    def _rows(self) -> Iterator[ArrayImpl]:
        value, dtype, weak = self.value, self.aval.dtype, self.aval.weak_type
        sharding, committed = self._sharding, self._committed
        if not self.is_fully_replicated:
            sharding, committed = SingleDeviceSharding(default_device()), False
        elif isinstance(sharding, NamedSharding):
            explicit = self.aval.has_explicit_mesh()
            spec = PartitionSpec(*(None,) * (self.aval.ndim - 1 if explicit else 0))
            sharding = sharding.update(spec=spec)
        aval = aval_for(self.aval.shape[1:], dtype, weak, sharding)
        for row in value:
            yield ArrayImpl(aval, sharding, Stored(frozen(row)), committed)


export_buffers(ArrayImpl)

ARRAYS = frozenset((ArrayImpl,))        # classes of values that are arrays already


def array_of(shape: tuple[int, ...], dtype: Any, weak_type: bool, sharding: Sharding,
             storage: Storage) -> ArrayImpl:
    """A committed array of this global shape."""
    return ArrayImpl(aval_for(shape, dtype, weak_type, sharding), sharding, storage, True)


def place(data: np.ndarray, sharding: Sharding | None = None, *, weak_type: bool = False,
          dtype: Any = None) -> ArrayImpl:
    """An array of this global value; without a sharding it is uncommitted, on one device.

    dtype: if it is not that of the data (random keys). The data must not change any more.
    """
    committed = sharding is not None
    if sharding is None:
        sharding = SingleDeviceSharding(default_device())
    dtype = data.dtype if dtype is None else dtype
    aval = aval_for(data.shape, dtype, weak_type, sharding)
    return ArrayImpl(aval, sharding, Stored(frozen(data)), committed)


def _unpickle(data: np.ndarray, dtype: Any, weak_type: bool) -> ArrayImpl:
    if data.dtype == dtype:
        dtype = canonicalize_dtype(dtype, x64_enabled())
        data = data.astype(dtype, copy=False)
    return place(data, weak_type=weak_type, dtype=dtype)


PLAIN_LEAVES.add(ArrayImpl)
