"""Arrays put together from what single devices, callbacks or processes provide.

Behaviour and messages are those of JAX's functions of the same names (0.10.2).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.context import x64_enabled
from ..ir.device import Device, process_index
from ..ir.dtypes import canonicalize_dtype
from ..ir.pytree import flatten, unflatten
from ..ir.sharding import NamedSharding, Sharding
from ..ir.spec import PartitionSpec
from .array import ArrayImpl
from .devices import process_count
from .host import aval_for, host_array
from .storage import LocalBlocks, Storage, assemble, frozen
from .transfer import concrete_sharding, put

Shape = tuple[int, ...]


def make_array_from_single_device_arrays(
        shape: Shape, sharding: Sharding, arrays: Sequence[ArrayImpl], *,
        dtype: Any = None) -> ArrayImpl:
    """The array of this global shape whose blocks are the given one-device arrays.

    arrays: one for each device that this process owns, in any order. Arrays on devices that should
      hold the same block are not compared.
    Raises ValueError if number, devices, shapes or dtypes do not fit, TypeError for other inputs.
    """
    name = "make_array_from_single_device_arrays"
    _check_sharding(sharding)
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"jax.{name} `arrays` argument must be a list or tuple, but got "
                        f"{type(arrays)}.")
    for a in arrays:
        if not isinstance(a, ArrayImpl):
            raise TypeError(f"Unsupported type for elements in `arrays`: {type(a)}")
    dtype = _check_dtype(arrays, dtype, name)
    for a in arrays:
        if a.sharding.num_devices != 1:
            raise ValueError(
                "When making an array from single-device arrays the input arrays must have one "
                f"shard each. An argument array had {a.sharding.num_devices} shard(s).")
    owners = [a.sharding.device_assignment[0] for a in arrays]
    wanted = sharding.addressable_devices
    if len(arrays) != len(wanted):
        raise ValueError(f"Expected {len(wanted)} per-device arrays (this is how many devices are "
                         f"addressable by the sharding), but got {len(arrays)}")
    if len(set(owners)) != len(owners):
        raise ValueError(
            "When making an array from single-device arrays, the input arrays must be from "
            f"distinct devices, but got device IDs {[d.id for d in owners]}")
    if set(owners) != wanted:
        lacking, extra = wanted - set(owners), set(owners) - wanted
        raise ValueError(
            "Addressable devices and per-device arrays devices do not match."
            + (f" Sharding contains devices {_ids(lacking)} that are not present in per-device "
               "arrays." if lacking else "")
            + (f" Per-device arrays contain devices {_ids(extra)} that are not present in the "
               "sharding." if extra else ""))
    weak = bool(arrays) and all(a.aval.weak_type for a in arrays)
    blocks = {d: a.value for d, a in zip(owners, arrays, strict=True)}
    shapes = {d: a.shape for d, a in zip(owners, arrays, strict=True)}
    dtypes = {d: a.dtype for d, a in zip(owners, arrays, strict=True)}
    return _assembled(tuple(shape), dtype, weak, sharding, blocks, shapes, dtypes)


def make_array_from_callback(
        shape: Shape, sharding: Sharding,
        data_callback: Callable[[tuple[slice, ...]], Any], dtype: Any = None) -> ArrayImpl:
    """The array whose blocks `data_callback(slices of the global array)` gives.

    It is called for each device that this process owns; once, if every device has everything.
    """
    name = "make_array_from_callback"
    _check_sharding(sharding)
    shape = tuple(shape)
    index = sharding.addressable_devices_indices_map(shape)
    if sharding.is_fully_replicated:
        whole = data_callback((slice(None),) * len(shape))
        given = dict.fromkeys(index, whole)
    else:
        given = {device: data_callback(where) for device, where in index.items()}
    made: dict[int, tuple[np.ndarray, bool]] = {}
    blocks = {}
    for device, value in given.items():
        if id(value) not in made:
            made[id(value)] = host_array(value)
        blocks[device] = made[id(value)][0]
    dtype = _check_dtype(list(blocks.values()), dtype, name)
    weak = bool(made) and all(w for _, w in made.values())
    return _assembled(shape, dtype, weak, sharding, blocks,
                      {d: b.shape for d, b in blocks.items()},
                      {d: b.dtype for d, b in blocks.items()})


def _assembled(shape: Shape, dtype: Any, weak: bool, sharding: Sharding,
               blocks: Mapping[Device, np.ndarray], shapes: Mapping[Device, Shape],
               dtypes: Mapping[Device, Any]) -> ArrayImpl:
    aval = aval_for(shape, dtype, weak, sharding)
    wanted = sharding.shard_shape(shape)
    for device, block in blocks.items():
        if dtypes[device] != dtype:
            raise ValueError("Input buffers to `Array` must have matching dtypes. Got "
                             f"{dtypes[device]}, expected {dtype} for buffer: {block}")
        if shapes[device] != wanted:
            raise ValueError(f"Expected shard shape {wanted} doesn't match the single device array "
                             f"shape {shapes[device]}. Shape of Array is {aval.str_short()} with "
                             f"sharding {sharding}")
    storage: Storage
    if sharding.is_fully_addressable:
        storage = assemble(blocks, sharding, shape, dtype)
    else:
        storage = LocalBlocks({d: frozen(b) for d, b in blocks.items()})
    return ArrayImpl(aval, sharding, storage, True)


def _check_dtype(arrays: Sequence[Any], dtype: Any, name: str) -> Any:
    if dtype is None:
        if not arrays:
            raise ValueError("If the Array has no addressable shards, `dtype` must be provided via "
                             f"the `dtype` argument to `jax.{name}`.")
        return arrays[0].dtype
    dtype = canonicalize_dtype(dtype, x64_enabled())
    if arrays and arrays[0].dtype != dtype:
        raise ValueError(f"If `dtype` is provided to `jax.{name}`, it must match the dtype of the "
                         f"addressable shards. Got dtype={dtype} and shard dtype="
                         f"{arrays[0].dtype}`.")
    return dtype


def _check_sharding(sharding: Any) -> None:
    if not isinstance(sharding, Sharding):
        raise TypeError("sharding should be an instance of `jax.sharding`. Got "
                        f"{sharding} of type {type(sharding)}")


def _ids(devices: set[Device]) -> set[int]:
    return {d.id for d in sorted(devices)}


# -- what each process has -------------------------------------------------------------------------

def make_array_from_process_local_data(sharding: Sharding | PartitionSpec, local_data: Any,
                                       global_shape: Any = None) -> Any:
    """A pytree of arrays of which each process provides its part.

    local_data: numpy arrays; in each dimension either what the devices of this process hold
      together, or the whole. global_shape: the shape of the whole, or a pytree of shapes; by
      default every dimension over which the processes differ is multiplied by their number.
    Raises ValueError where data and shape do not fit.
    """
    leaves, treedef = flatten(local_data)
    if global_shape is None or _is_shape(global_shape):
        shapes = [global_shape] * len(leaves)
    else:
        shapes = treedef.flatten_up_to(global_shape)
    if isinstance(sharding, PartitionSpec):
        sharding = concrete_sharding(sharding)
    return unflatten(treedef, [
        _from_process(sharding, leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)])


def _is_shape(x: Any) -> bool:
    return isinstance(x, (tuple, list)) and all(n is None or isinstance(n, int) for n in x)


def _from_process(sharding: Any, local: Any, global_shape: Any) -> ArrayImpl:
    if process_count() == 1 or not isinstance(sharding, NamedSharding):
        given = np.shape(local)
        if global_shape is not None and tuple(global_shape) != given:
            raise ValueError(
                "When calling `make_array_from_process_local_data` on a single process, "
                "global_shape should be None or equal to local_data.shape. Got "
                f"global_shape={tuple(global_shape)} and local_data.shape={given}.")
        return put(local, sharding)
    data, weak = host_array(local)
    parts = _tiles_of_processes(sharding, data.ndim)
    mine = process_index()
    shape: list[int] = []
    held: list[list[int] | None] = []     # tiles that the data has; None: all of the dimension
    for dim, n in enumerate(data.shape):
        tiles, per_process = parts[dim]
        groups = sorted({tuple(t) for t in per_process.values()})
        uniform = len({len(g) for g in groups}) == 1 and len(groups) * len(groups[0]) == tiles
        given = None if global_shape is None else global_shape[dim]
        if given is None:
            if not uniform:
                raise ValueError("Unable to compute global_shape due to non-uniform sharding. "
                                 "Specify global shape directly.")
            given = n * len(groups)
        shape.append(given)
        own = sorted(per_process[mine])
        if n == given:
            held.append(None)
        elif n * tiles == given * len(own):
            held.append(own)
        else:
            wanted = None if global_shape is None else tuple(global_shape)
            raise ValueError(
                "Invalid host data, each dimension should match either global or process shape. "
                f"In dimension {dim}, the process data has {n} elements. Process addresses "
                f"{given * len(own) // tiles} elements and global_shape={wanted}.")
    blocks = {}
    block = sharding.shard_shape(tuple(shape))
    for device, where in sharding.addressable_devices_indices_map(tuple(shape)).items():
        cut = []
        for s, tiles_held, size in zip(where, held, block, strict=True):
            if tiles_held is None or s.start is None:
                cut.append(s)
            else:
                at = tiles_held.index(s.start // size) * size
                cut.append(slice(at, at + size))
        blocks[device] = data[tuple(cut)]
    sizes, kinds = {d: b.shape for d, b in blocks.items()}, dict.fromkeys(blocks, data.dtype)
    return _assembled(tuple(shape), data.dtype, weak, sharding, blocks, sizes, kinds)


def _tiles_of_processes(sharding: NamedSharding, ndim: int
                        ) -> list[tuple[int, dict[int, list[int]]]]:
    """For each dimension: the number of tiles, and which of them each process holds."""
    factors = sharding.dim_factors(ndim)
    index = sharding.devices_indices_map(factors)     # a shape with one element a tile
    out = []
    for dim, tiles in enumerate(factors):
        held: dict[int, set[int]] = {}
        for device, where in index.items():
            s = where[dim]
            first = 0 if s.start is None else s.start
            held.setdefault(device.process_index, set()).add(first)
        out.append((tiles, {p: sorted(t) for p, t in held.items()}))
    assert math.prod(factors) >= 1
    return out
