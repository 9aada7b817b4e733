"""Arrays put together from what single devices, callbacks or processes provide.

Behaviour and messages are those of JAX's functions of the same names (0.10.2).
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.diagnostics.errors import UnexpectedTracerError
from ..ir.dtypes import canonicalize_dtype
from ..ir.meshes.device import Device, process_index
from ..ir.settings.context import x64_enabled
from ..ir.shardings.formats import AutoLayout, Format
from ..ir.shardings.sharding import NamedSharding, Sharding
from ..ir.spec import PartitionSpec
from ..ir.trees.pytree import flatten, unflatten
from ..ir.trees.tree_prefix import broadcast_prefix
from ..ir.types import Shape
from ..ir.values.array import Array
from .array import ArrayImpl
from .blocks import Block, stored_blocks
from .devices import process_count
from .host import aval_for, host_array
from .storage import on_mesh
from .transfer import concrete_sharding, put


def make_array_from_single_device_arrays(
        shape: Shape, sharding: Sharding, arrays: Sequence[Array], *,
        dtype: Any = None) -> ArrayImpl:
    """The array of this global shape whose blocks are the given one-device arrays.

    shape: of the whole. arrays: a list or tuple, one array for each device that this process owns,
      in any order, each of the sharding's block shape; arrays on devices that should hold the same
      block are not compared. dtype: needed only where this process owns none of the devices.
    Raises ValueError if number, devices, shapes or dtypes do not fit, TypeError for other inputs.

    >>> mesh = st.make_mesh((8,), ("i",))
    >>> parts = st.device_put(np.split(np.arange(16.), 8), mesh.local_devices)
    >>> x = st.make_array_from_single_device_arrays((16,), st.NamedSharding(mesh, P("i")), parts)
    >>> x.shape, x.addressable_shards[3].data
    ((16,), Array([6., 7.], dtype=float32))
    """
    name = "make_array_from_single_device_arrays"
    _check_sharding(sharding)
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"jax.{name} `arrays` argument must be a list or tuple, but got "
                        f"{type(arrays)}.")
    given: list[ArrayImpl] = []
    for a in arrays:
        if isinstance(a, ArrayImpl):
            given.append(a)
        elif isinstance(a, Array):
            raise ValueError(f"jax.{name} requires a list of concrete arrays as input, but got "
                             f"types {set(map(type, arrays))}")
        else:
            raise TypeError(f"Unsupported type for elements in `arrays`: {type(a)}")
    dtype = _check_dtype([a.dtype for a in given], dtype, name)
    aval = aval_for(tuple(shape), dtype, False, sharding)
    return ArrayImpl(aval, sharding, given, True)


def make_array_from_callback(
        shape: Shape, sharding: Sharding | Format,
        data_callback: Callable[[tuple[slice, ...]], Any], dtype: Any = None) -> ArrayImpl:
    """The array whose blocks `data_callback(slices of the global array)` gives.

    It is called for each device that this process owns; once, if every device has everything. What
    it returns (a number or an array of the block's shape) must not change any more afterwards,
    unless it is a numpy array, which is copied.
    Raises ValueError where a block has another shape or dtype than the first, and TypeError for
    what is no array or no sharding.

    Over Auto and Explicit axes alike it is laid out as asked (a type shows Explicit axes only);
    Manual axes hold no arrays: call it outside `shard_map`.

    >>> table = np.arange(32.).reshape(8, 4)            # or a file that is read in pieces
    >>> mesh = st.make_mesh((4, 2), ("x", "y"))
    >>> sharding = st.NamedSharding(mesh, P("x", "y"))
    >>> x = st.make_array_from_callback((8, 4), sharding, lambda index: table[index])
    >>> x.addressable_shards[1].data
    Array([[2., 3.],
           [6., 7.]], dtype=float32)
    """
    name = "make_array_from_callback"
    if isinstance(sharding, Format):
        if isinstance(sharding.layout, AutoLayout):
            raise TypeError("`Layout.AUTO` cannot be used in place of a device-local layout when "
                            f"calling `jax.make_array_from_callback`. Got {sharding}")
        placement: Any = sharding.sharding
        out = make_array_from_callback(shape, placement, data_callback, dtype)
        return out if sharding.layout is None else out.with_layout(sharding.layout)
    _check_sharding(sharding)
    shape = tuple(shape)
    index = sharding.addressable_devices_indices_map(shape)
    if sharding.is_fully_replicated:
        blocks = dict.fromkeys(index, _block(data_callback((slice(None),) * len(shape)), name))
    else:
        blocks = {device: _block(data_callback(where), name) for device, where in index.items()}
    dtype = _check_dtype([kind for _, kind in blocks.values()], dtype, name)
    return of_blocks(shape, dtype, sharding, blocks)


def _block(value: Any, name: str) -> Block:
    """The data and dtype of what a callback returned."""
    if isinstance(value, ArrayImpl):
        return value.value, value.dtype
    if isinstance(value, Array):
        raise UnexpectedTracerError(f"jax.{name} cannot be called within a traced context.")
    data, _ = host_array(value)
    return data, data.dtype


def of_blocks(shape: Shape, dtype: Any, sharding: Sharding, blocks: Mapping[Device, Block],
              weak_type: bool = False) -> ArrayImpl:
    """The array of this global shape, from the blocks of this process's devices."""
    aval = aval_for(shape, dtype, weak_type, sharding)
    return ArrayImpl(aval, sharding, stored_blocks(aval, sharding, blocks), True)


def _check_dtype(kinds: Sequence[Any], dtype: Any, name: str) -> Any:
    """The dtype of the whole: that of the first part, with which `dtype` must agree."""
    if dtype is None:
        if not kinds:
            raise ValueError("If the Array has no addressable shards, `dtype` must be provided via "
                             f"the `dtype` argument to `jax.{name}`.")
        return kinds[0]
    dtype = canonicalize_dtype(dtype, x64_enabled())
    if kinds and kinds[0] != dtype:
        raise ValueError(f"If `dtype` is provided to `jax.{name}`, it must match the dtype of the "
                         f"addressable shards. Got dtype={dtype} and shard dtype={kinds[0]}`.")
    return dtype


def _check_sharding(sharding: Any) -> None:
    if not isinstance(sharding, Sharding):
        raise TypeError("sharding should be an instance of `jax.sharding`. Got "
                        f"{sharding} of type {type(sharding)}")


# -- what each process has -------------------------------------------------------------------------

def make_array_from_process_local_data(sharding: Any, local_data: Any,
                                       global_shape: Any = None) -> Any:
    """A pytree of arrays of which each process provides its part.

    sharding: a Sharding, Device or PartitionSpec (on the context mesh), or a tree prefix of these.
    local_data: numpy arrays; in each dimension either what the devices of this process hold
      together, or the whole. global_shape: the shape of the whole, or a tree prefix of shapes; by
      default every dimension over which the processes differ is multiplied by their number.
    Raises ValueError where data and shape do not fit.

    Over Auto and Explicit axes alike it is laid out as asked (a type shows Explicit axes only);
    Manual axes hold no arrays: call it outside `shard_map`.

    >>> mesh = st.make_mesh((8,), ("batch",))
    >>> batch = {"x": np.ones((16, 4)), "y": np.zeros(16)}     # of this process
    >>> out = st.make_array_from_process_local_data(st.NamedSharding(mesh, P("batch")), batch)
    >>> out["x"].shape, out["x"].addressable_shards[0].data.shape
    ((16, 4), (2, 4))
    """
    leaves, treedef = flatten(local_data)
    where = "broadcast_prefix prefix_tree"
    shardings = broadcast_prefix(sharding, local_data, _is_placement, where)
    shapes = broadcast_prefix(global_shape, local_data, _is_shape, where)
    return unflatten(treedef, [
        _from_process(concrete_sharding(s) if s is not None else None, leaf, shape)
        for s, leaf, shape in zip(shardings, leaves, shapes, strict=True)])


def _is_placement(x: Any) -> bool:
    return isinstance(x, (Device, Sharding, PartitionSpec))


def _is_shape(x: Any) -> bool:
    return isinstance(x, (tuple, list)) and all(n is None or isinstance(n, int) for n in x)


def _from_process(sharding: Any, local: Any, global_shape: Any) -> ArrayImpl:
    """The array of which each process gives its part. local: that of this process; global_shape:
    None in dimensions that follow from it.
    """
    if process_count() == 1 or sharding is None:
        given = np.shape(local)
        if global_shape is not None and tuple(global_shape) != given:
            raise ValueError(
                "When calling `make_array_from_process_local_data` on a single process, "
                "global_shape should be None or equal to local_data.shape.Got "
                f"global_shape={tuple(global_shape)} and local_data.shape={given}.")
        return put(local, sharding)
    data, dtype = _block(local, "make_array_from_process_local_data")
    shape, held = _whole_shape(sharding, data.shape, global_shape)
    blocks = {}
    block = sharding.shard_shape(shape)
    for device, where in sharding.addressable_devices_indices_map(shape).items():
        cut = []
        for s, tiles_held, size in zip(where, held, block, strict=True):
            if tiles_held is None or s.start is None:
                cut.append(s)
            else:
                at = tiles_held.index(s.start // size) * size
                cut.append(slice(at, at + size))
        blocks[device] = data[tuple(cut)], dtype
    return of_blocks(shape, dtype, sharding, blocks)


def _whole_shape(sharding: Sharding, local: Shape, global_shape: Any
                 ) -> tuple[Shape, list[list[int] | None]]:
    """The shape of the whole of which this process has data of shape `local`, and for each
    dimension the tiles that the data has, None where it has all.
    """
    shape: list[int] = []
    held: list[list[int] | None] = []
    parts = _tiles_of_processes(sharding, len(local))
    for dim, (n, (tiles, per_process)) in enumerate(zip(local, parts, strict=True)):
        groups = sorted({tuple(t) for t in per_process.values()})
        uniform = len({len(g) for g in groups}) == 1 and len(groups) * len(groups[0]) == tiles
        given = None if global_shape is None else global_shape[dim]
        if given is None:
            if not uniform:
                raise ValueError("Unable to compute global_shape due to non-uniform sharding. "
                                 "Specify global shape directly.")
            given = n * len(groups)
        shape.append(given)
        own = per_process.get(process_index(), [])
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
    return tuple(shape), held


def _tiles_of_processes(sharding: Sharding, ndim: int
                        ) -> list[tuple[int, dict[int, list[int]]]]:
    """For each dimension: the number of tiles, and which of them each process holds."""
    named = on_mesh(sharding)
    factors = named.dim_factors(ndim) if isinstance(named, NamedSharding) else (1,) * ndim
    index = sharding.devices_indices_map(factors)     # a shape with one element a tile
    out = []
    for dim, tiles in enumerate(factors):
        held: dict[int, set[int]] = {}
        for device, where in index.items():
            s = where[dim]
            first = 0 if s.start is None else s.start
            held.setdefault(device.process_index, set()).add(first)
        out.append((tiles, {p: sorted(t) for p, t in held.items()}))
    return out
