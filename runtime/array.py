"""The array that users hold: one logical value, sharded over devices.

It is immutable. Type, sharding and data are apart: `aval` is the sharded type, `sharding` says on
which devices the blocks are, and the storage (runtime/storage.py) is one numpy array for all of
them, so blocks and the whole are views of it. Operators and methods (`x + y`, `x.sum()`, `x.at`)
are those of the base class. Attributes, texts and errors are those of `jax.Array` (0.10.2).
"""
from __future__ import annotations

import gc
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..ir.array import Array
from ..ir.device import Device, process_index
from ..ir.dtypes import is_extended
from ..ir.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ..ir.spec import PartitionSpec
from ..ir.types import ArrayType
from . import array_text
from .devices import default_device
from .host import PYTHON_NUMBERS, aval_for, python_number
from .shard import Shard
from .storage import (
    LocalBlocks,
    Storage,
    Stored,
    assemble,
    block_index,
    block_of,
    frozen,
)

PENDING_SUM = (
    "device_indices_map doesn't work with unreduced. Each device holds a partial sum of the whole "
    "value; bring it to a spec without unreduced axes first, with `reshard`.")


class ArrayImpl(Array):
    """A concrete array; made by the functions of this package, never by hand.

    aval: sharded type. sharding: concrete. storage: `Stored`, or `LocalBlocks` where other
    processes own some of the devices. committed: whether operations must stay on its devices.
    """

    __slots__ = ("_committed", "_host", "_shards", "_sharding", "_storage", "aval")

    def __init__(self, aval: ArrayType, sharding: Sharding, storage: Storage,
                 committed: bool) -> None:
        self.aval = aval
        self._sharding = sharding
        self._storage: Storage | None = storage
        self._committed = committed
        self._host: np.ndarray | None = None
        self._shards: tuple[int, list[Shard]] | None = None    # for the process of that index

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
        self._check_alive()
        return self._storage  # type: ignore[return-value]

    def devices(self) -> set[Device]:
        self._check_alive()
        return self._sharding.device_set

    @property
    def device(self) -> Device | Sharding:
        """The device, or the sharding if there are several."""
        self._check_alive()
        devices = self._sharding.device_assignment
        return devices[0] if len(devices) == 1 else self._sharding

    def platform(self) -> str:
        return self._sharding.device_assignment[0].platform

    @property
    def is_fully_replicated(self) -> bool:
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
        self._check_alive()
        mine = process_index()
        if self._shards is not None and self._shards[0] == mine:
            return self._shards[1]
        shape, sharding = self.aval.shape, self._sharding
        shards = [Shard(d, sharding, shape, self._block(d) if d.process_index == mine else None)
                  for d in sharding.device_assignment]
        if len(shards) > 1:      # the block of a single device is this array: no cycle
            self._shards = mine, shards
        return shards

    @property
    def global_shards(self) -> Sequence[Shard]:
        """All blocks; those of other processes have `data=None`."""
        return list(self._all_shards())

    def addressable_data(self, index: int) -> ArrayImpl:
        """The index-th block of this process; always the first if fully replicated.

        Raises IndexError if there are fewer blocks.
        """
        self._check_alive()
        mine = process_index()
        owned = [d for d in self._sharding.device_assignment if d.process_index == mine]
        return self._block(owned[0 if self.is_fully_replicated else index])

    def _block(self, device: Device) -> ArrayImpl:
        sharding = SingleDeviceSharding(device, memory_kind=self._sharding.memory_kind)
        if sharding is self._sharding:
            return self
        data = self._block_data(device)
        shape = data.shape[:self.aval.ndim]
        aval = aval_for(shape, self.aval.dtype, self.aval.weak_type, sharding)
        return ArrayImpl(aval, sharding, Stored(frozen(data)), True)

    def _block_data(self, device: Device) -> np.ndarray:
        storage = self.storage
        if isinstance(storage, LocalBlocks):
            return storage.blocks[device]
        return block_of(storage, self._sharding, self.aval.shape, device)

    # -- the whole value -----------------------------------------------------------------------
    @property
    def value(self) -> np.ndarray:
        """The global value as a read-only numpy array (words of random keys included).

        Raises RuntimeError if deleted or if other processes hold a part of it, and
        NotImplementedError for a partial sum.
        """
        self._check_alive()
        host = self._host
        if host is None:
            storage = self._storage
            if isinstance(storage, Stored) and not storage.lead and self._readable():
                return storage.data
            host = self._host = self._gather()
        return host

    def _readable(self) -> bool:
        return (self._sharding.is_fully_addressable
                or (self.is_fully_replicated and bool(self._sharding.addressable_devices))
                or self._owns_every_block())

    def _owns_every_block(self) -> bool:
        mine, index = process_index(), block_index(self._sharding, self.aval.shape)
        keys = {d: tuple((s.start, s.stop) for s in where) for d, where in index.items()}
        return {k for d, k in keys.items() if d.process_index == mine} == set(keys.values())

    def _gather(self) -> np.ndarray:
        sharding, storage = self._sharding, self._storage
        if isinstance(sharding, NamedSharding) and sharding.spec.unreduced:
            raise NotImplementedError(PENDING_SUM)
        if not self._readable():
            raise RuntimeError(
                "Fetching value for `jax.Array` that spans non-addressable (non process local) "
                "devices is not possible. You can use "
                "`jax.experimental.multihost_utils.process_allgather` to print the global array "
                "or use `.addressable_shards` method of jax.Array to inspect the addressable "
                "(process local) shards.")
        if isinstance(storage, LocalBlocks):
            index = block_index(sharding, self.aval.shape)
            owner = {tuple((s.start, s.stop) for s in where): d
                     for d, where in reversed(list(index.items())) if d in storage.blocks}
            blocks = {d: storage.blocks[owner[tuple((s.start, s.stop) for s in where)]]
                      for d, where in index.items()}
            storage = assemble(blocks, sharding, self.aval.shape, self.aval.dtype)
        assert storage is not None
        # Copies that differ: the first device's, as elsewhere where replicas are not compared.
        return frozen(storage.data[(0,) * len(storage.lead)])

    def __array__(self, dtype: Any = None, context: Any = None,
                  copy: bool | None = None) -> np.ndarray:
        if is_extended(self.aval.dtype):
            raise TypeError(
                "JAX array with PRNGKey dtype cannot be converted to a NumPy array. Use "
                "jax.random.key_data(arr) if you wish to extract the underlying integer array.")
        return np.asarray(self.value, dtype=dtype, copy=copy)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: bool | None = None) -> Any:
        count = self._sharding.num_devices
        if count > 1:
            raise BufferError(
                "to_dlpack can only pack a dlpack tensor from an array on a singular device, but "
                f"an array with a Sharding over {count} devices was provided.")
        data = np.asarray(self)
        if max_version is None:   # the old protocol cannot say that the data is read-only
            return data.copy().__dlpack__(stream=stream)
        return data.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device,
                               copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self._sharding.num_devices > 1:
            raise BufferError("__dlpack__ only supported for unsharded arrays.")
        return np.empty(0).__dlpack_device__()

    def unsafe_buffer_pointer(self) -> int:
        """Address of the data. Raises ValueError if there are several devices."""
        if self._sharding.num_devices > 1:
            raise ValueError("unsafe_buffer_pointer() is supported only for unsharded arrays.")
        return self.value.__array_interface__["data"][0]

    def on_device_size_in_bytes(self) -> int:
        """Bytes of all blocks on all devices, other processes' included."""
        self._check_alive()
        sharding = self._sharding
        block = sharding.shard_shape(self.aval.shape)
        return int(np.prod(block, dtype=int)) * self.aval.dtype.itemsize * sharding.num_devices

    # -- life ----------------------------------------------------------------------------------
    def delete(self) -> None:
        """Give the data up; everything that needs it raises from now on."""
        self._storage = self._host = self._shards = None

    def is_deleted(self) -> bool:
        return self._storage is None

    def is_ready(self) -> bool:
        self._check_alive()
        return True

    def block_until_ready(self) -> ArrayImpl:
        """Itself: values are there when an operation returns."""
        if self._storage is None:
            raise RuntimeError("INVALID_ARGUMENT: BlockHostUntilReady() called on deleted or "
                               "donated buffer")
        return self

    def copy_to_host_async(self) -> None:
        self._check_alive()

    def _check_alive(self) -> None:
        if self._storage is None:
            raise RuntimeError(f"Array has been deleted with shape={self.aval.str_short()}.")

    def __copy__(self) -> ArrayImpl:
        return ArrayImpl(self.aval, self._sharding, self.storage, self._committed)

    def __deepcopy__(self, memo: Any) -> ArrayImpl:
        return self.__copy__()

    def __reduce__(self) -> tuple:
        return _unpickle, (np.array(self.value), self.aval.dtype, self.aval.weak_type)

    # -- conversions to Python -----------------------------------------------------------------
    __hash__ = None  # type: ignore[assignment]

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "JAX arrays are immutable and do not support in-place item assignment. Instead of "
            "x[idx] = y, use x = x.at[idx].set(y) or another .at[] method: "
            "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.ndarray.at.html")

    def __len__(self) -> int:
        if not self.aval.shape:
            raise TypeError("len() of unsized object")
        return self.aval.shape[0]

    def __bool__(self) -> bool:
        if is_extended(self.aval.dtype):
            raise TypeError("key array cannot be converted to boolean.")
        if self.aval.size == 0:
            raise ValueError("The truth value of an empty array is ambiguous. Use `array.size > 0`"
                             " to check that an array is not empty.")
        if self.aval.size > 1:
            raise ValueError("The truth value of an array with more than one element is ambiguous."
                             " Use a.any() or a.all()")
        return bool(self.value)

    def _scalar(self) -> np.ndarray:
        if self.aval.shape:
            raise TypeError("Only scalar arrays can be converted to Python scalars; got "
                            f"arr.ndim={self.aval.ndim}")
        return np.asarray(self)

    def __int__(self) -> int:
        return int(self._scalar())

    def __float__(self) -> float:
        return float(self._scalar())

    def __complex__(self) -> complex:
        return complex(self._scalar())

    def __index__(self) -> int:
        if self.aval.shape or self.aval.dtype.kind not in "iu" and not _is_narrow_integer(self):
            raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
        return operator.index(int(self.value))

    def item(self, *where: Any) -> Any:
        """The element at `where` (not needed if there is one) as a Python number."""
        element = np.asarray(self).item(*where)
        return element if isinstance(element, PYTHON_NUMBERS) else python_number(element)

    def tolist(self) -> Any:
        return np.asarray(self).tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        return np.asarray(self).tobytes(order)

    def __iter__(self) -> Iterator[ArrayImpl]:
        """The rows. They stay where the array is if every device has them all."""
        if not self.aval.shape:
            raise TypeError("iteration over a 0-d array")
        return self._rows()

    def _rows(self) -> Iterator[ArrayImpl]:
        value, dtype, weak = self.value, self.aval.dtype, self.aval.weak_type
        sharding, committed = self._sharding, self._committed
        if not self.is_fully_replicated:
            sharding, committed = SingleDeviceSharding(default_device()), False
        elif isinstance(sharding, NamedSharding):
            sharding = sharding.update(spec=PartitionSpec(*(None,) * (self.aval.ndim - 1)))
        aval = aval_for(self.aval.shape[1:], dtype, weak, sharding)
        for row in value:
            yield ArrayImpl(aval, sharding, Stored(frozen(row)), committed)

    # -- text ----------------------------------------------------------------------------------
    def __repr__(self) -> str:
        self._check_alive()
        return array_text.array_repr(self)

    def __str__(self) -> str:
        self._check_alive()
        return array_text.array_str(self)

    def __format__(self, spec: str) -> str:
        self._check_alive()
        return array_text.array_format(self, spec)


# -- making arrays ---------------------------------------------------------------------------------

def place(data: np.ndarray, sharding: Sharding | None = None, *, weak_type: bool = False,
          committed: bool | None = None, dtype: Any = None) -> ArrayImpl:
    """An array of this global value. Without a sharding it lives uncommitted on one device.

    dtype: where it is not that of the data (random keys). The data must not change any more.
    """
    if committed is None:
        committed = sharding is not None
    if sharding is None:
        sharding = SingleDeviceSharding(default_device())
    dtype = data.dtype if dtype is None else dtype
    aval = aval_for(data.shape, dtype, weak_type, sharding)
    return ArrayImpl(aval, sharding, Stored(frozen(data)), committed)


def live_arrays() -> list[ArrayImpl]:
    """All arrays that still have data and that somebody refers to."""
    return [x for x in gc.get_objects() if type(x) is ArrayImpl and x._storage is not None]


def _is_narrow_integer(x: ArrayImpl) -> bool:
    return x.aval.dtype.name in ("int2", "int4", "uint2", "uint4", "int1", "uint1")


def _unpickle(data: np.ndarray, dtype: Any, weak_type: bool) -> ArrayImpl:
    return place(data, weak_type=weak_type, dtype=dtype)
