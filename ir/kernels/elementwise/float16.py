"""Converts float16 to float32 and back, with few numpy calls on whole arrays.

numpy converts element by element, which takes ten times as long as an addition. Here float16 is the
upper bits of a float32 that is 2^112 times as small, so that their exponents agree, including those
of subnormal numbers. Rounding to float16 adds a number whose last bit is worth the last bit of the
result, and subtracts it again.

Rounds to nearest, ties to even, with infinities, NaNs and signs of zeros as in IEEE 754.
"""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy._core.umath import clip as _clip  # type: ignore  # the ufunc of numpy.clip

F32, F16 = np.dtype(np.float32), np.dtype(np.float16)
FEWEST = 1 << 10                # elements from which numpy's conversion takes longer
_I32, _f32 = np.int32, np.float32
_SIGN, _EXPONENT = _I32(-1 << 31), _I32(0x7F800000)
_LEAST, _MOST = _f32(2.0 ** -14), _f32(2.0 ** 15)   # exponents of float16
_LAST_BIT = _f32(1.5 * 2.0 ** 13)
_UP, _DOWN = _f32(2.0 ** 112), _f32(2.0 ** -112)


def rounded(x: Any) -> Any:
    """float32 rounded to numbers that float16 has."""
    last = np.multiply(_clip(np.bitwise_and(x.view(_I32), _EXPONENT).view(F32), _LEAST, _MOST),
                       _LAST_BIT)
    found = np.subtract(np.add(x, last), last)
    found = np.multiply(np.multiply(found, _UP), _DOWN)     # from 65520 on: infinite
    # Zeros have lost their sign.
    return np.bitwise_or(found.view(_I32), np.bitwise_and(x.view(_I32), _SIGN)).view(F32)


def packed(x: Any) -> Any:
    """float16 of float32, rounded."""
    bits = np.multiply(rounded(x), _DOWN).view(_I32)
    sign = np.bitwise_and(np.right_shift(bits, _I32(16)), _I32(0x8000))
    bits = np.bitwise_and(np.right_shift(bits, _I32(13)), _I32(0x7FFF))
    return np.bitwise_or(bits, sign).astype(np.uint16).view(F16)


def to_half(x: np.ndarray) -> np.ndarray:
    """float32 to float16."""
    return packed(x) if x.size >= FEWEST else x.astype(F16)


def to_single(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """float16 to float32."""
    if out is None:
        out = np.empty(x.shape, F32)
    bits, wide = x.view(np.int16), out.view(_I32)
    if x.size < FEWEST or ((bits & 0x7C00) == 0x7C00).any():        # infinities, NaNs
        np.copyto(out, x)
        return out
    np.copyto(wide, bits)
    wide <<= 13
    wide &= _I32(-0x70002000)
    out *= _UP
    return out
