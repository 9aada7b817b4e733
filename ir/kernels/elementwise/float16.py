"""Converts float16 to float32 and back, with few numpy calls on whole arrays.

numpy converts element by element, which takes ten times as long as an addition. Here float16 is the
upper bits of a float32 that is 2^112 times as small, so that their exponents agree, including those
of subnormal numbers: what is below is rounded in integers of 16 bits, of which numpy computes twice
as many at a time. Numbers that float16 does not have (infinities, NaNs, too large ones) are left to
numpy.

Rounds to nearest, ties to even, with infinities, NaNs and signs of zeros as in IEEE 754.
"""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy._core.umath import clip as _clip  # type: ignore  # the ufunc of numpy.clip

from ...support.buffer_pool import empty

F32, F16, _U16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.uint16)
FEWEST = 1 << 13                # elements from which numpy's conversion takes longer
PIECE = 1 << 16                 # elements at a time, whose memory stays in the cache
_I32, _f32, _u16 = np.int32, np.float32, np.uint16
_SIGN, _EXPONENT = _I32(-1 << 31), _I32(0x7F800000)
_LEAST, _MOST = _f32(2.0 ** -14), _f32(2.0 ** 15)   # exponents of float16
_LAST_BIT = _f32(1.5 * 2.0 ** 13)
_UP, _DOWN = _f32(2.0 ** 112), _f32(2.0 ** -112)
_HALF, _NORMAL, _BEYOND = _u16(0x8000), _u16(0x400), _f32(65520)


def rounded(x: Any) -> Any:
    """float32 rounded to numbers that float16 has."""
    last = np.multiply(_clip(np.bitwise_and(x.view(_I32), _EXPONENT).view(F32), _LEAST, _MOST),
                       _LAST_BIT)
    found = np.subtract(np.add(x, last), last)
    found = np.multiply(np.multiply(found, _UP), _DOWN)     # from 65520 on: infinite
    # Zeros have lost their sign.
    return np.bitwise_or(found.view(_I32), np.bitwise_and(x.view(_I32), _SIGN)).view(F32)


def to_half(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """float32 to float16."""
    if out is None:
        out = empty(x.shape, F16)
    if x.size < FEWEST or not x.flags.c_contiguous or not out.flags.c_contiguous:
        np.copyto(out, x, "unsafe")
        return out
    wide, narrow = x.reshape(-1), out.reshape(-1)
    count = min(PIECE, x.size)
    scaled, low, flags = empty((count,), F32), empty((count,), _U16), np.empty(count, np.bool_)
    for i in range(0, x.size, PIECE):
        piece = wide[i:i + PIECE]
        if piece.max() < _BEYOND and piece.min() > -_BEYOND:         # and no NaN
            n = len(piece)
            _pack(piece, narrow[i:i + n], scaled[:n], low[:n], flags[:n])
        else:
            np.copyto(narrow[i:i + PIECE], piece, "unsafe")
    return out


def _pack(x: np.ndarray, out: np.ndarray, scaled: np.ndarray, low: np.ndarray,
          flags: np.ndarray) -> None:
    """The same of numbers that float16 has. scaled, low, flags: memory to compute in."""
    bits, high = scaled.view(_I32), out.view(_U16)
    np.multiply(x, _DOWN, out=scaled)
    np.copyto(low, bits, "unsafe")
    np.multiply(low, _u16(8), out=low)          # what is cut off: half a last bit is 0x8000
    np.right_shift(bits, _I32(13), out=bits)
    np.copyto(high, bits, "unsafe")
    # A subnormal number was rounded when it was scaled, perhaps to where it seems to be a tie.
    np.equal(low, _HALF, out=flags)
    flags &= np.less(high, _NORMAL)
    twice = np.flatnonzero(flags) if flags.any() else None
    odd = np.bitwise_and(high, _u16(1))
    low += odd
    high += np.greater(low, _HALF, out=flags).view(np.uint8)
    np.copyto(odd, np.signbit(x, out=flags))
    odd *= _HALF
    high |= odd
    if twice is not None:
        out[twice] = x[twice].astype(F16)


def to_single(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """float16 to float32."""
    if out is None:
        out = np.empty(x.shape, F32)
    bits, wide = x.view(np.int16), out.view(_I32)
    if x.size < FEWEST or bits.max() >= 0x7C00 or x.view(_U16).max() >= 0xFC00:
        np.copyto(out, x)                       # few, or infinities and NaNs among them
        return out
    np.copyto(wide, bits)
    wide <<= 13
    wide &= _I32(-0x70002000)
    out *= _UP
    return out
