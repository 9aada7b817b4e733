"""Threefry-2x32 in numpy: the hash that all random numbers here are made of.

A hash of (key, counter) gives two words; element i of an array takes the hash of counter i (64
bits), so any block of any array can be computed alone, from its position. Arrays are made of such
blocks that stay in cache: about a hundred passes of integer arithmetic each.

Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011; counters
as in JAX with `jax_threefry_partitionable` on (the default), or off (`original_bits`).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...support.buffer_pool import empty
from ...support.threads import in_parallel, share_count
from ..compiled import NUMBER, Loop, Value
from ..key_data import join_words, split_words

Shape = tuple[int, ...]
Words = tuple[np.ndarray, np.ndarray]

_U32, _U64 = np.dtype(np.uint32), np.dtype(np.uint64)
_PARITY = np.uint32(0x1BD11BDA)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_SHIFTS = [[(np.array(32 - r, _U32), np.array(r, _U32)) for r in group] for group in _ROTATIONS]
_PIECE = 1 << 15                   # elements at a time: three buffers of 128 KiB,
_SHARED = 3 << 13                  # or of 96 KiB for each of several threads


def threefry2x32(key1: np.ndarray, key2: np.ndarray, count1: np.ndarray, count2: np.ndarray
                 ) -> Words:
    """The two words of the hash of each counter under each key; all uint32, broadcast together."""
    operands = [np.asarray(x, _U32) for x in (key1, key2, count1, count2)]
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    size = math.prod(shape)
    out1, out2 = empty((size,), _U32), empty((size,), _U32)
    whole = [x.reshape(1) if x.size == 1 else np.broadcast_to(x, shape).reshape(-1)
             for x in operands]
    buffer = empty((min(size, _PIECE),), _U32)
    for start in range(0, size, _PIECE):
        piece = slice(start, min(start + _PIECE, size))
        k1, k2, c1, c2 = (x if x.size == 1 else x[piece] for x in whole)
        x1, x2 = out1[piece], out2[piece]
        np.add(c2, k2, out=x2)
        _hash(k1, k2, c1 + k1, x1, x2, buffer[:x1.size])
    return out1.reshape(shape), out2.reshape(shape)


def _hash(key1: np.ndarray, key2: np.ndarray, first: np.ndarray, x1: np.ndarray, x2: np.ndarray,
          buffer: np.ndarray) -> None:
    """Write the hash of counters into x1 and x2; `first` and x2 hold the counters, plus their keys.

    What x2 was is read a last time right after its shift, while it is in the nearest cache.
    """
    few = key1.size == key2.size == first.size == 1
    loop = _WITH_ONE_KEY if few else _WITH_KEYS
    if loop.pays(x1.size):
        given = (key1, key2, first) if few else [
            np.ascontiguousarray(np.broadcast_to(x, x1.shape)) for x in (key1, key2, first)]
        loop(*given, x2, x1, x2)
        return
    keys = (key1, key2, key1 ^ key2 ^ _PARITY)
    for group in range(5):
        for down, up in _SHIFTS[group % 2]:
            np.right_shift(x2, down, out=buffer)
            np.add(first, x2, out=x1)
            np.left_shift(x2, up, out=x2)
            np.bitwise_xor(buffer, x1, out=buffer)
            np.bitwise_xor(x2, buffer, out=x2)
            first = x1
        np.add(x1, keys[(group + 1) % 3], out=x1)
        np.add(x2, keys[(group + 2) % 3] + np.uint32(group + 1), out=x2)


def _hash_of(key1: Value, key2: Value, x1: Value, x2: Value) -> tuple[Value, Value]:
    """Both words of the hash, for the elements of a compiled loop."""
    keys = (key1, key2, key1 ^ key2 ^ _PARITY)
    for group in range(5):
        for count in _ROTATIONS[group % 2]:
            x1 = x1 + x2
            x2 = x2.call("fshl", x2, count) ^ x1
        x1 = x1 + keys[(group + 1) % 3]
        x2 = x2 + keys[(group + 2) % 3] + (group + 1)
    return x1, x2


_WITH_ONE_KEY, _WITH_KEYS = (Loop(_hash_of, "i32 i32 i32 i32", "i32 i32", [NUMBER] * n)
                             for n in (3, 0))


def counters(shape: Shape, whole: Shape | None = None, starts: Sequence[np.ndarray | int] = ()
             ) -> Words:
    """High and low words of the row-major positions of a block in an array of shape `whole`.

    starts: where the block begins in each dimension: integers, or arrays of equal rank (device
    dimensions, which then come first in the result). Without them the block is the whole.
    """
    strides = _strides(shape if whole is None else whole)
    first = _first(starts, strides)
    return _halves(_positions(shape, strides) + first.reshape(first.shape + (1,) * len(shape)))


def _strides(whole: Shape) -> np.ndarray:
    """By how much each dimension's index changes positions: uint32 if all high words are 0."""
    dtype = _U32 if math.prod(whole) <= 1 << 32 else _U64
    most = 1 << 8 * dtype.itemsize
    return np.array([math.prod(whole[d + 1:]) % most for d in range(len(whole))], dtype)


def _first(starts: Sequence[np.ndarray | int], strides: np.ndarray) -> np.ndarray:
    """The position of a block's first element, for each device."""
    parts = [np.asarray(x).astype(strides.dtype) * n for x, n in zip(starts, strides, strict=False)]
    return np.asarray(sum(parts, strides.dtype.type(0)))


def _positions(shape: Shape, strides: np.ndarray) -> np.ndarray:
    """Positions of a block's elements in the whole array, the first being 0."""
    out = np.zeros((), strides.dtype)
    for n, stride in zip(shape[::-1], strides[::-1], strict=True):
        index = np.arange(n, dtype=strides.dtype)
        index *= stride
        out = np.add.outer(index, out) if out.ndim else index
    return out


def _halves(positions: np.ndarray) -> Words:
    if positions.dtype == _U32:
        return np.zeros((), _U32), positions
    low, high = split_words(positions)
    return high, low


def random_bits(keys: np.ndarray, bit_width: int, shape: Shape, whole: Shape | None = None,
                starts: Sequence[np.ndarray | int] = ()) -> np.ndarray:
    """Random bits, `shape` for each key: uint64 [...] -> uint<bit_width> [..., *shape].

    With `whole` and `starts` they are the block at `starts` of the bits of an array of that shape.
    """
    dtype = np.dtype(f"uint{bit_width}")
    if bit_width == 64:
        return _drawn(keys, shape, whole, starts, dtype,
                      lambda first, second, out: np.copyto(out, join_words(second, first)))
    return _drawn(keys, shape, whole, starts, dtype, lambda first, second, out: np.bitwise_xor(
        first, second, out=out, casting="same_kind"))


def split(keys: np.ndarray, shape: Shape, whole: Shape | None = None,
          starts: Sequence[np.ndarray | int] = ()) -> np.ndarray:
    """New keys, `shape` for each key: uint64 [...] -> uint64 [..., *shape]; blocks as above."""
    return _drawn(keys, shape, whole, starts, _U64,
                  lambda first, second, out: np.copyto(out, join_words(first, second)))


def _drawn(keys: np.ndarray, shape: Shape, whole: Shape | None, starts: Sequence[np.ndarray | int],
           dtype: np.dtype, write: Callable[[np.ndarray, np.ndarray, np.ndarray], Any]
           ) -> np.ndarray:
    """What `write` makes of the two words at each position of a block, one cache-sized block of it
    after the other, on several threads if there are many."""
    strides = _strides(shape if whole is None else whole)
    first = _first(starts, strides)         # of dimensions of devices, then come those of the keys
    first = first.reshape(first.shape + (1,) * (keys.ndim - first.ndim + len(shape)))
    key1, key2 = (w.reshape(w.shape + (1,) * len(shape)) for w in split_words(keys))
    full = np.broadcast_shapes(key1.shape, first.shape)[:keys.ndim] + shape
    out = empty(full, dtype)
    own = dtype == _U32                     # the first words are where the results are to be
    threads = share_count(out.size)
    most = _PIECE if threads == 1 else min(_SHARED, -(-out.size // threads))
    blocks = iter(list(_blocks(full, most)))        # threads cannot share a generator

    def work() -> None:
        memory = empty((2 if own else 3, min(out.size, most)), _U32)
        positions = _positions((0,) * len(shape), strides)
        for block in blocks:
            piece = out[(*block, ...)]
            n, inner = piece.size, piece.shape[keys.ndim:]
            if positions.shape != inner:
                positions = _positions(inner, strides)
            place = _part(first, block) + _first([b.start for b in block[keys.ndim:]], strides)
            k1, k2 = _part(key1, block), _part(key2, block)
            x2, buffer, x1 = (*memory[:2, :n], piece.reshape(-1) if own else memory[2, :n])
            np.add(positions, place + k2, out=x2.reshape(piece.shape), casting="same_kind")
            high = k1
            if strides.dtype != _U32:
                high = np.right_shift(positions + place, np.uint64(32)).astype(_U32) + k1
            k1, k2, high = (x.reshape(1) if x.size == 1 else
                            np.broadcast_to(x, piece.shape).reshape(-1) for x in (k1, k2, high))
            _hash(k1, k2, high, x1, x2, buffer)
            write(x1, x2, piece.reshape(-1))
    in_parallel([work] * threads)
    return out


def _blocks(shape: Shape, most: int) -> Iterator[tuple[slice, ...]]:
    """The blocks, of at most so many elements, that an array consists of one after the other."""
    d, inner = len(shape), 1
    while d and inner * shape[d - 1] <= most:
        d -= 1
        inner *= shape[d]
    rest = [slice(0, n) for n in shape[d:]]
    if not d:
        yield tuple(rest)
        return
    n = shape[d - 1]
    step = math.ceil(n / math.ceil(n / (most // inner)))       # blocks as long as each other
    for outer in np.ndindex(shape[:d - 1]):
        for start in range(0, n, step):
            yield (*[slice(i, i + 1) for i in outer], slice(start, min(start + step, n)), *rest)


def _part(x: np.ndarray, block: Sequence[slice]) -> np.ndarray:
    """The block of an array that is broadcast."""
    return x[tuple([slice(None) if n == 1 else b for n, b in zip(x.shape, block, strict=False)])]


def fold_in(keys: np.ndarray, data: np.ndarray) -> np.ndarray:
    """A new key for each key and uint32 number."""
    return join_words(*threefry2x32(*split_words(keys), np.zeros((), _U32), data))


def seed(seeds: np.ndarray) -> np.ndarray:
    """Keys of integer seeds: the high and low half of 64 bits; shorter ones have 0 for the high."""
    if seeds.dtype.itemsize == 8:
        bits = seeds.view(np.uint64)
        return (bits >> np.uint64(32)) | (bits << np.uint64(32))
    return seeds.astype(_U32).astype(np.uint64) << np.uint64(32)


# -- the older way of counting ---------------------------------------------------------------------
# One hash gives an element of the first half and one of the second half of an array, which ties
# every block to all others. Kept for programs that turn `jax_threefry_partitionable` off.

def original_bits(keys: np.ndarray, bit_width: int, shape: Shape) -> np.ndarray:
    """As `random_bits`."""
    size = math.prod(shape)
    words = -(-bit_width * size // 32)
    bits = _hash_halves(keys, words)
    if bit_width == 64:
        bits = join_words(bits[..., words // 2:], bits[..., :words // 2])
    elif bit_width < 32:
        per_word = 32 // bit_width
        shifts = np.arange(per_word, dtype=_U32) * np.uint32(bit_width)
        bits = (bits[..., None] >> shifts).astype(f"uint{bit_width}")
        bits = bits.reshape((*keys.shape, words * per_word))[..., :size]
    return bits.reshape(keys.shape + shape)


def original_split(keys: np.ndarray, shape: Shape) -> np.ndarray:
    """As `split`."""
    words = _hash_halves(keys, 2 * math.prod(shape)).reshape(keys.shape + shape + (2,))
    return join_words(words[..., 0], words[..., 1])


def _hash_halves(keys: np.ndarray, count: int) -> np.ndarray:
    half = -(-count // 2)
    numbers = np.arange(2 * half, dtype=_U32)
    numbers[count:] = 0
    key1, key2 = (w[..., None] for w in split_words(keys))
    both = threefry2x32(key1, key2, numbers[:half], numbers[half:])
    return np.concatenate(both, axis=-1)[..., :count]
