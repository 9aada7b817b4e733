"""Converts arrays to `jax.Array` and back.

A fetched array is remembered while it is alive, so that passing it back needs no copy.
"""
from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.axes import MeshAtoms
from ...arrays.storage import DeviceBlocks, Stored, frozen
from ...ir.diagnostics.diagnostic import fail
from ...ir.dtypes import is_extended
from ...ir.kernels.key_data import key_words, pack_keys
from ...ir.support.lazy import lazy_import
from ...ir.types import ArrayType
from .ops import generator

jax = lazy_import("jax")
multihost_utils = lazy_import("jax.experimental.multihost_utils")

_KNOWN: dict[int, tuple[weakref.ref, Any]] = {}       # id of a host array: it, JAX's array


def _remember(data: np.ndarray, array: Any) -> None:
    number = id(data)
    _KNOWN[number] = weakref.ref(data, lambda _: _KNOWN.pop(number, None)), array


def _known(data: np.ndarray, sharding: Any) -> Any:
    held = _KNOWN.get(id(data))
    if held is None or held[0]() is not data or held[1].is_deleted():
        return None
    array = held[1]
    same = array.sharding == sharding or array.sharding.is_equivalent_to(sharding, array.ndim)
    return array if same else None


def to_jax(stored: Stored, t: ArrayType, local: ArrayType, sharding: Any, blocks: DeviceBlocks
           ) -> Any:
    """An array of JAX's with this sharding. t, local: types of the whole value and of a block."""
    data, lead = stored
    plain = not lead and padded_shape(t, local, blocks) == t.shape
    if plain:
        found = _known(data, sharding)
        if found is not None:
            return found
    pieces = [data] if plain else blocks.scatter(stored, t, local)
    if is_extended(t.dtype):
        pieces = [key_words(x) for x in pieces]
    if plain:
        array = jax.device_put(pieces[0], _of_words(sharding, t))
    else:
        words = pieces[0].shape[local.ndim:]
        process = jax.process_index()
        placed = [jax.device_put(x, d) for x, d in zip(pieces, devices_of(sharding), strict=True)
                  if d.process_index == process]
        array = jax.make_array_from_single_device_arrays(
            padded_shape(t, local, blocks) + words, _of_words(sharding, t), placed)
    if is_extended(t.dtype):
        array = jax.random.wrap_key_data(array, impl=generator(t.dtype))
    return array


def _of_words(sharding: Any, t: ArrayType) -> Any:
    """The sharding of the words of keys, which are a last dimension."""
    if not is_extended(t.dtype) or not hasattr(sharding, "spec"):
        return sharding
    entries = tuple(sharding.spec)
    spec = jax.sharding.PartitionSpec(*entries, *(None,) * (t.ndim + 1 - len(entries)))
    return jax.sharding.NamedSharding(sharding.mesh, spec)


def devices_of(sharding: Any) -> Sequence[Any]:
    """JAX's devices, in the order of the mesh."""
    mesh = getattr(sharding, "mesh", None)
    return list(sharding.device_set) if mesh is None else list(mesh.devices.flat)


def dtype_in_jax(t: ArrayType) -> Any:
    """The dtype of values of this type; keys have one of JAX's."""
    return jax.random.key(0).dtype if is_extended(t.dtype) else t.dtype


def padded_shape(t: ArrayType, local: ArrayType, blocks: DeviceBlocks) -> tuple[int, ...]:
    """The shape of the whole value where all blocks have one size."""
    atoms = MeshAtoms(blocks.mesh, t.sharding.spec.axes())
    return tuple([n * atoms.count(atoms.of_all(axes))
                  for n, axes in zip(local.shape, t.entries, strict=True)])


def from_jax(array: Any, t: ArrayType, local: ArrayType, blocks: DeviceBlocks,
             trust: bool = True) -> Stored:
    """The value as it is stored here. Where devices may hold something else than a block of one
    whole value, what they hold is compared. trust: that this is where its type varies."""
    dtype: Any = t.dtype
    words = is_extended(dtype)
    if words:
        array = jax.random.key_data(array)
    spec = t.sharding.spec
    atoms = MeshAtoms(blocks.mesh, (*spec.axes(), *sorted(spec.unreduced), *local.varying))
    apart = set(atoms.of_all(local.varying)) - set(atoms.of_all(spec.axes()))
    if not array.is_fully_addressable:             # other processes have the rest
        if apart or spec.unreduced:
            fail(ValueError, f"a result that differs between devices beyond its spec, {t}, cannot "
                 "be fetched by one of several processes", code="engine-processes",
                 help="use `compiled.as_jax()`, whose results stay where they are")
        data = np.asarray(multihost_utils.process_allgather(array, tiled=True))
        data = pack_keys(data, dtype.impl) if words else data
        return Stored(frozen(data[tuple(slice(0, n) for n in t.shape)]))
    if apart or spec.unreduced or not trust:
        held = {s.device: s.data for s in array.addressable_shards}
        pieces = [np.asarray(held[d]) for d in devices_of(array.sharding)]
        if words:
            pieces = [pack_keys(x, dtype.impl) for x in pieces]
        return blocks.assemble(pieces, spec.padded(t.ndim), t.shape)
    shard = array.addressable_shards[0].data
    data = np.asarray(shard if shard.shape == array.shape else array)
    if words:
        data = pack_keys(data, dtype.impl)
    if data.shape != t.shape:
        data = data[tuple(slice(0, n) for n in t.shape)]
        return Stored(frozen(data))
    data = frozen(data)
    if not words:
        _remember(data, array)
    return Stored(data)
