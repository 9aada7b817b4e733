"""Philox-4x32 in numpy: the generator behind `rng_bit_generator`, with XLA's layout of its state.

The state is four words: a 64-bit key, then a 64-bit counter. Vector i of four words is the hash,
under the key, of a 128-bit number whose low half is counter + i and whose high half is the key
again. Element n of an array is word n % 4 of vector n // 4, so any block can be made alone.

Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
"""
from __future__ import annotations

import numpy as np

_U32, _U64 = np.dtype(np.uint32), np.dtype(np.uint64)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_ROUNDS = 10

Words = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def philox4x32(counter: Words, key: tuple[np.ndarray, np.ndarray]) -> Words:
    """The four words of the hash of each counter (least significant word first); uint32."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    with np.errstate(over="ignore"):
        for _ in range(_ROUNDS):
            p0, p1 = c0.astype(_U64) * _M0, c2.astype(_U64) * _M1
            c0, c1, c2, c3 = ((p1 >> _HALF).astype(_U32) ^ c1 ^ k0, (p1 & _LOW).astype(_U32),
                              (p0 >> _HALF).astype(_U32) ^ c3 ^ k1, (p0 & _LOW).astype(_U32))
            k0, k1 = k0 + _W0, k1 + _W1
    return c0, c1, c2, c3


def vectors(state: np.ndarray, numbers: np.ndarray) -> Words:
    """Vectors of these numbers: state uint32 [..., 4], numbers uint64 [..., n] -> uint32 [..., n].

    The leading dimensions of both broadcast.
    """
    words = [state[..., i, None] for i in range(4)]
    high = words[0].astype(_U64) | words[1].astype(_U64) << _HALF
    start = words[2].astype(_U64) | words[3].astype(_U64) << _HALF
    with np.errstate(over="ignore"):
        low = start + numbers
        high = high + (low < start)
    counter = tuple(half(x) for x in (low, high) for half in (_low_word, _high_word))
    key = np.broadcast_arrays(words[0], words[1], low)[:2]
    return philox4x32(counter, (key[0], key[1]))      # type: ignore[arg-type]


def _low_word(x: np.ndarray) -> np.ndarray:
    return (x & _LOW).astype(_U32)


def _high_word(x: np.ndarray) -> np.ndarray:
    return (x >> _HALF).astype(_U32)


def elements(state: np.ndarray, positions: np.ndarray, per_vector: int) -> np.ndarray:
    """The numbers at these row-major positions, uint64: words (4 per vector), or pairs (2)."""
    per = np.uint64(per_vector)
    out = vectors(state, positions // per)
    lane = positions % per
    if per_vector == 2:
        pairs = [out[i].astype(_U64) | out[i + 1].astype(_U64) << _HALF for i in (0, 2)]
        return np.where(lane == 0, pairs[0], pairs[1])
    return np.choose(lane.astype(np.intp), [x.astype(_U64) for x in out])


def leading(state: np.ndarray, count: int, per_vector: int) -> np.ndarray:
    """The first `count` numbers, as `elements` gives them, every vector made once."""
    out = vectors(state, np.arange(-(-count // per_vector), dtype=_U64))
    if per_vector == 2:
        flat = np.stack([out[i].astype(_U64) | out[i + 1].astype(_U64) << _HALF for i in (0, 2)],
                        -1)
    else:
        flat = np.stack(out, -1)
    return flat.reshape(*flat.shape[:-2], -1)[..., :count]


def advanced(state: np.ndarray, steps: int) -> np.ndarray:
    """The state after so many vectors: the counter goes on, the key stays."""
    counter = state[..., 2].astype(_U64) | state[..., 3].astype(_U64) << _HALF
    with np.errstate(over="ignore"):
        counter = counter + np.uint64(steps)
    return np.stack([state[..., 0], state[..., 1], _low_word(counter), _high_word(counter)], -1)
