"""Converts float16 to float32 and back, with few numpy calls on whole arrays.

numpy converts element by element, which takes ten times as long as an addition, and far longer if
there are subnormal numbers, as does any arithmetic on those. So no float32 here is subnormal. A
number is rounded by adding a power of two that is so much larger that the lowest bits of the sum
are the significand of float16, also for subnormal ones; these are read as the difference of two
normal numbers. Values that float16 does not have (infinities, NaNs, too large ones) are left to
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
SAMPLED = 251                   # one of so many elements is looked at for subnormal numbers
_I32, _f32, _u16 = np.int32, np.float32, np.uint16
_SIGN, _EXPONENT = _I32(-1 << 31), _I32(0x7F800000)
_LEAST, _MOST = _f32(2.0 ** -14), _f32(2.0 ** 15)   # exponents of float16
_LAST_BIT = _f32(1.5 * 2.0 ** 13)
_UP, _DOWN = _f32(2.0 ** 112), _f32(2.0 ** -112)
_LEAST_BITS, _LARGEST, _BEYOND = (_I32(n) for n in (113 << 23, 0x7FFFFFFF, 143 << 23))
# 2^13 times as much; the rest makes up for what exponents of the sum have in excess of float16's.
_SUMMAND = _I32((13 << 23) + (1 << 11))


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
    summand, total, other = empty((3, count), F32)
    for i in range(0, x.size, PIECE):
        n = min(PIECE, x.size - i)
        _pack(wide[i:i + n], narrow[i:i + n], summand[:n], total[:n], other.view(_U16)[:n])
    return out


def _pack(x: np.ndarray, out: np.ndarray, summand: np.ndarray, total: np.ndarray,
          other: np.ndarray) -> None:
    """Write a piece of float32 to out as float16. summand, total, other: memory to compute in."""
    bits, narrow = summand.view(_I32), out.view(_U16)
    np.bitwise_and(x.view(_I32), _EXPONENT, out=bits)
    if bits.max() >= _BEYOND:
        np.copyto(out, x, "unsafe")
        return
    _clip(bits, _LEAST_BITS, _LARGEST, out=bits)
    bits += _SUMMAND
    np.add(np.absolute(x, out=total), summand, out=total)
    np.copyto(narrow, total.view(_I32), "unsafe")           # the significand
    np.right_shift(bits, _I32(13), out=bits)
    np.copyto(other, bits, "unsafe")                        # the exponent
    narrow += other
    np.copyto(other, np.signbit(x, out=total.view(np.bool_)[:x.size]))
    other *= _u16(0x8000)
    narrow |= other


def to_single(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """float16 to float32."""
    if x.size < FEWEST and out is None:
        return x.astype(F32)
    if out is None:
        out = np.empty(x.shape, F32)
    bits, wide = x.view(np.int16), out.view(_I32)
    if x.size < FEWEST or bits.max() >= 0x7C00 or x.view(_U16).max() >= 0xFC00:
        np.copyto(out, x)                       # few, or infinities and NaNs among them
        return out
    np.copyto(wide, bits)
    wide <<= 13
    wide &= _I32(-0x70002000)
    some = np.bitwise_and(bits.reshape(-1)[::SAMPLED], np.int16(0x7FFF))
    if not np.any((some > 0) & (some < 0x400)):
        out *= _UP
        return out
    wide += _I32(112 << 23)                     # subnormal numbers: half of them, and 2^-15 more
    near, sign = (empty(x.shape, t) for t in (F32, np.dtype(_I32)))
    _clip(out, -_LEAST, _LEAST, out=near)
    np.bitwise_or(np.bitwise_and(wide, _SIGN, out=sign), _LEAST_BITS, out=sign)
    near -= sign.view(F32)                      # what numbers lack; of normal ones zero
    out += near
    wide |= np.bitwise_and(sign, _SIGN, out=sign)
    return out
