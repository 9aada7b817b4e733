"""float16 to float32 and back, as few numpy calls on whole arrays.

numpy converts one element after the other, which takes ten times as long as to add it. Here float16
is the upper bits of a float32 that is 2^112 times as small: so their exponents agree, those of
numbers too small for float16's usual form, too. To round to float16 is to add a number whose last
bit is worth what the last bit of the result is, and to subtract it again.

To nearest, ties to even, with infinities, NaNs and signs of zeros as IEEE 754 has them.
"""
from __future__ import annotations

import numpy as np

F32, F16 = np.dtype(np.float32), np.dtype(np.float16)
FEWEST = 1 << 10                # elements from which numpy's conversion takes longer
_I32, _f32 = np.int32, np.float32
_SIGN, _EXPONENT = _I32(-1 << 31), _I32(0x7F800000)
_LEAST, _MOST = _f32(2.0 ** -14), _f32(2.0 ** 15)   # exponents of float16
_LAST_BIT = _f32(1.5 * 2.0 ** 13)
_UP, _DOWN = _f32(2.0 ** 112), _f32(2.0 ** -112)


def rounded(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """float32 rounded to numbers that float16 has. out: may be `x`."""
    last = np.empty_like(x)
    np.bitwise_and(x.view(_I32), _EXPONENT, out=last.view(_I32))
    np.clip(last, _LEAST, _MOST, out=last)
    last *= _LAST_BIT
    found = np.add(x, last)
    found -= last
    found *= _UP                # from 65520 on: infinite
    found *= _DOWN
    # Zeros have lost their sign.
    sign = np.bitwise_and(x.view(_I32), _SIGN, out=last.view(_I32))
    return np.bitwise_or(found.view(_I32), sign, out=None if out is None else out.view(_I32)
                         ).view(F32)


def packed(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """float16 of float32, rounded."""
    bits = np.multiply(rounded(x), _DOWN).view(_I32)
    sign = bits >> 16
    sign &= _I32(0x8000)
    bits >>= 13
    bits &= _I32(0x7FFF)
    bits |= sign
    if out is None:
        return bits.astype(np.uint16).view(F16)
    np.copyto(out.view(np.int16), bits, casting="same_kind")
    return out


def to_half(x: np.ndarray) -> np.ndarray:
    """float32 to float16."""
    return packed(x) if x.size >= FEWEST else x.astype(F16)


def to_single(x: np.ndarray) -> np.ndarray:
    """float16 to float32."""
    bits = x.view(np.int16)
    if x.size < FEWEST or ((bits & 0x7C00) == 0x7C00).any():        # infinities, NaNs
        return x.astype(F32)
    wide = bits.astype(_I32)
    wide <<= 13
    wide &= _I32(-0x70002000)
    found = wide.view(F32)
    found *= _UP
    return found
