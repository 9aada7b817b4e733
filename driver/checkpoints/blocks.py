"""Reads and writes the parts of arrays that checkpoint files hold.

Files are safetensors: a header of names, dtypes and shapes, then the data. Each distinct block of
an array is written once, by the process of the first device that holds it; a reader takes of the
stored blocks only what overlaps with what it needs.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from ...arrays.array import ArrayImpl
from ...arrays.host import aval_for
from ...arrays.storage import LocalBlocks, Place, Storage, Stored, frozen, holders
from ...ir.diagnostics.diagnostic import clipped, fail
from ...ir.dtypes import is_extended
from ...ir.dtypes.table import float0, parse_long
from ...ir.kernels.key_data import key_words, pack_keys, storage_dtype
from ...ir.meshes.device import Device, process_index
from ...ir.shardings.sharding import Sharding
from ...ir.support.lazy import lazy_import
from .record import BlockRecord, LeafRecord, block_file

safetensors = lazy_import("safetensors")

# dtypes of the format; others are stored as bytes, and their dtype in the index alone
_NAMED = frozenset(map(np.dtype, (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64"))) | {parse_long("bfloat16")}
_PARTS = {np.dtype("complex64"): np.dtype("float32"), np.dtype("complex128"): np.dtype("float64")}
"""Numbers of two parts, which are written as a last dimension of size 2 (keys: of their words)."""


# -- how a block looks in a file -------------------------------------------------------------------

def encoded(block: np.ndarray, dtype: Any) -> np.ndarray:
    """A contiguous numpy array that stores a block of an array of this dtype."""
    if is_extended(dtype):
        return np.asarray(key_words(block), order="C")
    if dtype.kind == "c":
        block = np.ascontiguousarray(block).reshape((*block.shape, 1))
        return block.view(_PARTS[block.dtype])
    block = np.asarray(block, order="C")
    return block if dtype in _NAMED else block.view(np.uint8)


def decoded(raw: np.ndarray, dtype: Any) -> np.ndarray:
    """The block stored in `raw`; the inverse of `encoded`."""
    if is_extended(dtype):
        return np.asarray(pack_keys(raw, dtype.impl))
    if dtype.kind == "c":
        return np.ascontiguousarray(raw).view(dtype)[..., 0]
    return raw.view(dtype)


# -- writing ---------------------------------------------------------------------------------------

def own_blocks(x: ArrayImpl, path: str, encode: dict[str, np.ndarray]) -> list[BlockRecord]:
    """Records of the blocks of `x` that this process writes; adds their data to `encode`.

    An uncommitted array is every process's own; the first process writes it.
    """
    shape, dtype, mine = x.aval.shape, x.aval.dtype, process_index()
    if dtype == float0 or x.aval.size == 0:
        return []
    if not x.committed:
        return host_block(x.value, dtype, path, encode) if mine == 0 else []
    records = []
    for place, (first, *_) in holders(x.sharding.devices_indices_map(shape), shape).items():
        if first.process_index == mine:
            records.append(_record(path, place, encoded(x._block_data(first), dtype), shape,
                                   encode))
    return records


def host_block(value: np.ndarray, dtype: Any, path: str, encode: dict[str, np.ndarray]
               ) -> list[BlockRecord]:
    """The record of a value that is held whole."""
    if value.size == 0 or dtype == float0:
        return []
    whole = tuple([(0, n) for n in value.shape])
    return [_record(path, whole, encoded(value, dtype), value.shape, encode)]


def _record(path: str, place: Place, data: np.ndarray, shape: tuple[int, ...],
            encode: dict[str, np.ndarray]) -> BlockRecord:
    start, size = _bounds(place)
    name = path or "value"
    if size != shape:
        name += "@" + ",".join(map(str, start))
    if name in encode:
        raise ValueError(f"two leaves have the key path {path}; give them keys that differ")
    encode[name] = data
    return BlockRecord(block_file(process_index()), name, start, size)


def _bounds(place: Place) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(start, shape) of a block."""
    return tuple([a for a, _ in place]), tuple([max(0, b - a) for a, b in place])


# -- reading ---------------------------------------------------------------------------------------

class BlockReader:
    """Reads parts of the arrays in the files of a folder; a context manager."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files: dict[str, Any] = {}

    def __enter__(self) -> BlockReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        for file in self._files.values():
            file.__exit__(kind, error, trace)
        self._files.clear()

    def array(self, leaf: LeafRecord, sharding: Sharding, committed: bool) -> ArrayImpl:
        """The array laid out by `sharding`, reading only what devices of this process hold."""
        shape, dtype = leaf.shape, parse_long(leaf.dtype)
        aval = aval_for(shape, dtype, leaf.weak_type, sharding)
        storage: Storage
        if sharding.is_fully_addressable:
            storage = Stored(frozen(self.part(leaf, (0,) * len(shape), shape)))
        else:
            mine = process_index()
            blocks: dict[Device, np.ndarray] = {}
            for place, devices in holders(sharding.devices_indices_map(shape), shape).items():
                own = [d for d in devices if d.process_index == mine]
                if own:
                    blocks.update(dict.fromkeys(own, frozen(self.part(leaf, *_bounds(place)))))
            storage = LocalBlocks(blocks)
        return ArrayImpl(aval, sharding, storage, committed)

    def part(self, leaf: LeafRecord, start: tuple[int, ...], shape: tuple[int, ...]
             ) -> np.ndarray:
        """The elements from `start` on, in the dtype that holds them in memory."""
        for block in leaf.blocks:
            if block.start == start and block.shape == shape:
                return self._slice(leaf, block, tuple([slice(0, n) for n in shape]))
        dtype = parse_long(leaf.dtype)
        data = np.zeros(shape, dtype) if dtype == float0 else np.empty(shape, storage_dtype(dtype))
        for block, inside, here in overlaps(leaf.blocks, start, shape):
            data[here] = self._slice(leaf, block, inside)
        return data

    def _slice(self, leaf: LeafRecord, block: BlockRecord, inside: tuple[slice, ...]) -> np.ndarray:
        """The part of a block as numbers of the leaf. Raises ValueError for a damaged file."""
        name, dtype = os.path.join(self._folder, block.file), parse_long(leaf.dtype)
        try:
            file = self._files.get(block.file)
            if file is None:
                file = safetensors.safe_open(name, framework="np")
                self._files[block.file] = file.__enter__()
            # A tensor without dimensions cannot be sliced.
            raw = file.get_slice(block.name)[inside] if inside else file.get_tensor(block.name)
            found = decoded(raw, dtype)
            if found.shape != tuple(s.stop - s.start for s in inside):
                raise ValueError(f"{block.name} has shape {list(found.shape)} there")
            return found
        except (safetensors.SafetensorError, ValueError, TypeError, IndexError, OSError) as problem:
            fail(ValueError, f"{name} is damaged, and {leaf.path or 'the value'} cannot be read: "
                 f"{clipped(str(problem), 500)}", code="checkpoint-damaged",
                 help="copy the whole folder again from where it came from, or restore an earlier "
                      "checkpoint")


def overlaps(blocks: tuple[BlockRecord, ...], start: tuple[int, ...], shape: tuple[int, ...]
             ) -> Iterator[tuple[BlockRecord, tuple[slice, ...], tuple[slice, ...]]]:
    """The blocks that overlap with a part: (block, slices of it, slices of the part)."""
    if not shape:
        for block in blocks:
            yield block, (), ()
        return
    starts = np.array([b.start for b in blocks], np.int64).reshape(-1, len(shape))
    stops = starts + np.array([b.shape for b in blocks], np.int64).reshape(-1, len(shape))
    first = np.maximum(starts, start)
    last = np.minimum(stops, np.add(start, shape))
    for i in np.flatnonzero((first < last).all(axis=1)):
        lows, highs = first[i].tolist(), last[i].tolist()
        yield (blocks[i], _between(lows, highs, blocks[i].start), _between(lows, highs, start))


def _between(lows: list[int], highs: list[int], origin: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(a - o, b - o) for a, b, o in zip(lows, highs, origin, strict=True))
