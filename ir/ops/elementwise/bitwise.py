"""Operations on the bits of integers, and logic of booleans.

Shifts by the width or more give 0, or copies of the sign bit for the arithmetic one; so do negative
shifts, which count as large unsigned ones.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import itemsize_bits, loop_dtype
from ...facts import CHEAP, COMMUTES, COUNTS, EXACT
from .declaration import BOOL_OR_INTEGER, INTEGER, nary, sampled, unary

I32, U8 = np.int32, np.uint8


def _unsigned(x: np.ndarray) -> np.ndarray:
    """The bits, as unsigned numbers of 8 bits or more."""
    if loop_dtype(x.dtype) != x.dtype:
        return x.astype(np.int8).view(np.uint8) & np.uint8(2 ** itemsize_bits(x.dtype) - 1)
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x


def _signed(x: np.ndarray) -> np.ndarray:
    """The bits, as signed numbers of 8 bits or more."""
    if loop_dtype(x.dtype) != x.dtype:
        spare = np.int8(8 - itemsize_bits(x.dtype))
        return np.right_shift(np.left_shift(_unsigned(x).view(np.int8), spare), spare)
    return x.view(f"i{x.dtype.itemsize}")


def _with_bits(bits: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The numbers of this dtype that have these bits."""
    return bits.view(dtype) if loop_dtype(dtype) == dtype else bits.astype(dtype)


def _logic(name: str, function: Any, doc: str) -> Any:
    return nary(
        name, doc, (BOOL_OR_INTEGER, BOOL_OR_INTEGER),
        jvp="zero",
        function=function,
        facts=(CHEAP, EXACT, COMMUTES),
        jax=f"lax.bitwise_{name}",
        samples=sampled(2, -99, 99, (I32, bool)))


not_p = unary(
    "not", "All bits inverted; of booleans, negation.", BOOL_OR_INTEGER,
    jvp="zero",
    function=np.invert,
    facts=(CHEAP, EXACT),
    jax="lax.bitwise_not",
    samples=sampled(1, -99, 99, (I32, bool)))
and_p = _logic("and", np.bitwise_and, "Bits set in both operands.")
or_p = _logic("or", np.bitwise_or, "Bits set in one operand or both.")
xor_p = _logic("xor", np.bitwise_xor, "Bits set in exactly one operand.")


# -- shifts ---------------------------------------------------------------------------------------

def _in_range(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, int]:
    """Shift counts cut to the width, as unsigned numbers, and the width."""
    width = itemsize_bits(x.dtype)
    counts = _unsigned(y)
    return np.minimum(counts, np.asarray(width, counts.dtype)), width


def _shift_left(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    counts, width = _in_range(x, y)
    bits = _unsigned(x)
    shifted = np.left_shift(bits, np.minimum(counts, np.asarray(width - 1, counts.dtype)))
    return _with_bits(np.where(counts < width, shifted, np.zeros((), bits.dtype)), x.dtype)


def _shift_right_logical(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    counts, width = _in_range(x, y)
    bits = _unsigned(x)
    shifted = np.right_shift(bits, np.minimum(counts, np.asarray(width - 1, counts.dtype)))
    return _with_bits(np.where(counts < width, shifted, np.zeros((), bits.dtype)), x.dtype)


def _shift_right_arithmetic(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    counts, width = _in_range(x, y)
    signed = _signed(x)
    counts = np.minimum(counts, np.asarray(width - 1, counts.dtype)).astype(signed.dtype)
    return _with_bits(np.right_shift(signed, counts), x.dtype)


def _shift(name: str, function: Any, ufunc: np.ufunc, kind: str, doc: str) -> Any:
    """Declare one: `ufunc` does the same for numpy's own integers of these kinds."""
    def choose(dtype: np.dtype, params: Any) -> np.ufunc | None:
        return ufunc if dtype.isbuiltin == 1 and dtype.kind in kind else None

    def shift(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (choose(x.dtype, {}) or function)(x, y)

    return nary(
        name, doc, (INTEGER, INTEGER),
        jvp="zero",
        function=shift, chosen=choose,
        samples=sampled(2, 1, 7, (I32, U8)))


shift_left_p = _shift("shift_left", _shift_left, np.left_shift, "iu",
                      "x shifted left by y bits.")
shift_right_logical_p = _shift("shift_right_logical",
                               _shift_right_logical, np.right_shift, "u",
                               "x shifted right by y bits, zeros coming in.")
shift_right_arithmetic_p = _shift(
    "shift_right_arithmetic", _shift_right_arithmetic, np.right_shift, "i",
    "x shifted right by y bits, copies of the uppermost bit coming in.")


# -- counts ---------------------------------------------------------------------------------------

def _population_count(x: np.ndarray) -> np.ndarray:
    return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    bits, width = _unsigned(x), itemsize_bits(x.dtype)
    # frexp gives the bit length, exactly for up to 53 bits: so by halves of at most 32.
    low = np.frexp(np.bitwise_and(bits, np.asarray(0xFFFFFFFF % 2**(8 * bits.itemsize), bits.dtype))
                   .astype(np.float64))[1]
    high = np.frexp(np.right_shift(bits, 32).astype(np.float64))[1] if width == 64 else 0
    return np.asarray(width - np.where(high, np.add(high, 32), low)).astype(x.dtype)


population_count_p = unary(
    "population_count", "The number of bits that are set.", INTEGER,
    jvp="zero",
    function=_population_count,
    facts=(COUNTS,),
    samples=sampled(1, -99, 99, (I32,)))
clz_p = unary(
    "clz", "The number of zero bits before the first set one.", INTEGER,
    jvp="zero",
    function=_leading_zeros,
    facts=(COUNTS,),
    samples=sampled(1, -99, 99, (I32,)))
