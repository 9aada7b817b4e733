"""Threefry-2x32 in numpy: the hash that all random numbers here are made of.

A hash of (key, counter) gives two words; element i of an array takes the hash of counter i (64
bits), so any block of any array can be computed alone, from its position. Arrays are processed in
place, in chunks that stay in cache: about a hundred passes of integer arithmetic each.

Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011; counters
as in JAX with `jax_threefry_partitionable` on (the default), or off (`original_bits`).
"""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...support.buffer_pool import empty
from ..key_data import join_words, split_words

Shape = tuple[int, ...]
Words = tuple[np.ndarray, np.ndarray]

_U32, _U64 = np.dtype(np.uint32), np.dtype(np.uint64)
_PARITY = np.uint32(0x1BD11BDA)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PIECE = 1 << 16                   # elements at a time: three buffers of 256 KiB


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
        x1[...], x2[...] = c1, c2
        _hash(k1, k2, x1, x2, buffer[:x1.size])
    return out1.reshape(shape), out2.reshape(shape)


def _hash(key1: np.ndarray, key2: np.ndarray, x1: np.ndarray, x2: np.ndarray,
          buffer: np.ndarray) -> None:
    """Replace the counters x1, x2 by their hash."""
    keys = (key1, key2, key1 ^ key2 ^ _PARITY)
    x1 += keys[0]
    x2 += keys[1]
    for group in range(5):
        for r in _ROTATIONS[group % 2]:
            x1 += x2
            np.right_shift(x2, np.uint32(32 - r), out=buffer)
            np.left_shift(x2, np.uint32(r), out=x2)
            x2 |= buffer
            x2 ^= x1
        x1 += keys[(group + 1) % 3]
        x2 += keys[(group + 2) % 3] + np.uint32(group + 1)


def counters(shape: Shape, whole: Shape | None = None, starts: Sequence[np.ndarray | int] = ()
             ) -> Words:
    """High and low words of the row-major positions of a block in an array of shape `whole`.

    starts: where the block begins in each dimension: integers, or arrays of equal rank (device
    dimensions, which then come first in the result). Without them the block is the whole.
    """
    whole = shape if whole is None else whole
    starts = starts or (0,) * len(shape)
    stride = math.prod(whole)
    few = stride <= 1 << 32                     # so that the high words are 0
    dtype = _U32 if few else _U64
    position = np.zeros((1,) * len(shape), dtype)
    for d, (n, size, start) in enumerate(zip(shape, whole, starts, strict=True)):
        stride = stride // size if size else 0
        index = np.arange(n, dtype=dtype).reshape((-1,) + (1,) * (len(shape) - d - 1))
        first = np.asarray(start).astype(dtype)
        first = first.reshape(first.shape + (1,) * len(shape)) if first.shape else first
        position = position + (first + index) * dtype.type(stride % (1 << 8 * dtype.itemsize))
    if few:
        return np.zeros((), _U32), position
    low, high = split_words(position)
    return high, low


def random_bits(keys: np.ndarray, bit_width: int, shape: Shape, whole: Shape | None = None,
                starts: Sequence[np.ndarray | int] = ()) -> np.ndarray:
    """Random bits, `shape` for each key: uint64 [...] -> uint<bit_width> [..., *shape].

    With `whole` and `starts` they are the block at `starts` of the bits of an array of that shape.
    """
    first, second = _hash_positions(keys, shape, whole, starts)
    if bit_width == 64:
        return join_words(second, first)
    first ^= second
    return first.astype(f"uint{bit_width}", copy=False)


def split(keys: np.ndarray, shape: Shape, whole: Shape | None = None,
          starts: Sequence[np.ndarray | int] = ()) -> np.ndarray:
    """New keys, `shape` for each key: uint64 [...] -> uint64 [..., *shape]; blocks as above."""
    return join_words(*_hash_positions(keys, shape, whole, starts))


def _hash_positions(keys: np.ndarray, shape: Shape, whole: Shape | None,
                    starts: Sequence[np.ndarray | int]) -> Words:
    high, low = counters(shape, whole, starts)
    lead = low.ndim - len(shape)
    if lead:                                   # device dimensions; the keys' own dims come after
        inner = (1,) * (keys.ndim - lead)
        low = low.reshape(low.shape[:lead] + inner + low.shape[lead:])
        high = high if high.size == 1 else high.reshape(low.shape)
    key1, key2 = (w.reshape(w.shape + (1,) * len(shape)) for w in split_words(keys))
    out1, out2 = threefry2x32(key1, key2, high, low)
    full = np.broadcast_shapes(out1.shape[:out1.ndim - len(shape)], keys.shape) + shape
    return (out1, out2) if out1.shape == full else (out1.reshape(full), out2.reshape(full))


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
