"""numpy's functions as instructions of a compiled loop, equal to numpy's to the last bit.

Functions that numpy approximates (exp, tanh, sin) are not among them: numpy's own, which are
vectorised, take as long as four additions, and give different numbers on different processors.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes.table import BF16
from ..compiled import Value
from . import bfloat16, float16
from .extremes import clip  # type: ignore
from .float16 import F16, F32

BOOL, _F64 = np.dtype(np.bool_), np.dtype(np.float64)
KINDS = {BOOL: "i1", F16: "half", F32: "float", _F64: "double", BF16: "i16",
         **{np.dtype(f"{letter}{n}"): f"i{8 * n}" for letter in "iu" for n in (1, 2, 4, 8)}}
"""LLVM's types of the elements of arrays."""
_WIDE = (F32, _F64)

Element = Callable[..., Value]


def _max(x: Value, y: Any) -> Value:
    """What has no number wins; of zeros the second."""
    if x.is_integer:
        return x.call("smax", y)
    return x.choose("uno", x, x, x.choose("ogt", y, x, y))


def _min(x: Value, y: Any) -> Value:
    if x.is_integer:
        return x.call("smin", y)
    return x.choose("uno", x, x, x.choose("olt", y, x, y))


_FLOATS: dict[Any, Element] = {
    np.add: lambda x, y: x + y, np.subtract: lambda x, y: x - y, np.multiply: lambda x, y: x * y,
    np.divide: lambda x, y: x / y, np.negative: lambda x: -x, np.square: lambda x: x * x,
    np.absolute: lambda x: x.call("fabs"), np.sqrt: lambda x: x.call("sqrt"),
    np.reciprocal: lambda x: x.number(1, x.kind) / x,
    np.maximum: _max, np.minimum: _min, clip: lambda x, y, z: _min(_max(x, y), z),
    np.floor: lambda x: x.call("floor"), np.ceil: lambda x: x.call("ceil"),
    np.trunc: lambda x: x.call("trunc"), np.rint: lambda x: x.call("rint"),
    np.sign: lambda x: x.compared("ogt", 0).select(x.number(1, x.kind), x.compared("olt", 0).select(
        x.number(-1, x.kind), x + 0.0)),
    np.copysign: lambda x, y: x.call("copysign", y)}
_INTEGERS: dict[Any, Element] = {
    **{f: _FLOATS[f] for f in (np.add, np.subtract, np.multiply, np.negative, np.square)},
    np.bitwise_and: lambda x, y: x & y, np.bitwise_or: lambda x, y: x | y,
    np.bitwise_xor: lambda x, y: x ^ y, np.invert: lambda x: x ^ -1}
_SIGNED: dict[Any, Element] = {
    np.maximum: _max, np.minimum: _min, clip: _FLOATS[clip],
    np.absolute: lambda x: x.choose("slt", 0, -x, x)}
_BOOLS: dict[Any, Element] = {
    f: _INTEGERS[g] for f, g in (
        (np.logical_and, np.bitwise_and), (np.bitwise_and, np.bitwise_and),
        (np.logical_or, np.bitwise_or), (np.bitwise_or, np.bitwise_or),
        (np.logical_xor, np.bitwise_xor), (np.bitwise_xor, np.bitwise_xor),
        (np.logical_not, np.invert), (np.invert, np.invert))}
_COMPARED = {np.equal: ("oeq", "eq", "eq"), np.not_equal: ("une", "ne", "ne"),
             np.less: ("olt", "slt", "ult"), np.less_equal: ("ole", "sle", "ule"),
             np.greater: ("ogt", "sgt", "ugt"), np.greater_equal: ("oge", "sge", "uge")}
"""LLVM's names of comparisons: of floats, signed and unsigned integers."""


def _rounded_bfloat16(x: Value) -> Value:
    bits = x.to("i32", "bitcast")
    last = bits.made(f"lshr {bits.type} {bits.name}, {bits.operand(16)}") & 1
    return ((bits + (last + 0x7FFF)) & -0x10000).to("float", "bitcast")


def _renewed_bfloat16(x: Value) -> Value:
    quiet = (x.to("i32", "bitcast") & -0x10000 | 0x400000).to("float", "bitcast")
    return x.choose("uno", x, quiet, _rounded_bfloat16(x))


ROUNDED: dict[Any, Element] = {
    float16.rounded: lambda x: x.to("half", "fptrunc").to("float", "fpext"),
    bfloat16.rounded: _rounded_bfloat16, bfloat16.renewed: _renewed_bfloat16}
"""Functions of float32 that are not numpy's."""


def element_of(function: Any, dtypes: Sequence[np.dtype | None], result: np.dtype
               ) -> Element | None:
    """A call of numpy on elements; None where it has no such form. dtypes: of its operands, None of
    constants.
    """
    kinds = {t for t in dtypes if t is not None}
    if len(kinds) != 1:
        return None
    (dtype,) = kinds
    if function in _COMPARED and dtype in KINDS and dtype not in (F16, BF16):
        test = _COMPARED[function][0 if dtype.kind == "f" else 1 if dtype.kind == "i" else 2]
        return lambda x, y: x.compared(test, y)
    if result != dtype:
        return None
    if dtype in _WIDE:
        return _FLOATS.get(function) or (ROUNDED.get(function) if dtype == F32 else None)
    if dtype == BOOL:
        return _BOOLS.get(function)
    return _INTEGERS.get(function) or (_SIGNED.get(function) if dtype.kind == "i" else None) if (
        dtype.kind in "iu") else None


def cast_of(given: np.dtype, result: np.dtype) -> Element | None:
    """A conversion; None where its result depends on the processor, or it has no such form."""
    if given == BF16 or result == BF16:
        if given == F32:
            return lambda x: _upper(_renewed_bfloat16(x).to("i32", "bitcast"))
        if result == F32:
            return lambda x: (x.to("i32", "zext") << 16).to("float", "bitcast")
        return None
    kind, to = KINDS.get(given), KINDS.get(result)
    if kind is None or to is None or F16 in (given, result) and F32 not in (given, result):
        return None
    bits, wide = 8 * given.itemsize, 8 * result.itemsize
    if given == result:
        return lambda x: x
    if given.kind == "f":
        if result.kind != "f":
            return (lambda x: x.compared("une", 0)) if result == BOOL else None
        instruction = "fpext" if wide > bits else "fptrunc"
    elif result.kind == "f":
        instruction = "sitofp" if given.kind == "i" else "uitofp"
    elif result == BOOL:
        return lambda x: x.compared("ne", 0)
    elif wide == bits and given != BOOL:
        return lambda x: x
    else:
        instruction = ("trunc" if wide < bits else "sext" if given.kind == "i" else "zext")
    return lambda x: x.to(to, instruction)


def _upper(bits: Value) -> Value:
    return bits.made(f"lshr {bits.type} {bits.name}, {bits.operand(16)}").to("i16", "trunc")


def bits_of(given: np.dtype, result: np.dtype) -> Element | None:
    """A look at the bits of numbers as those of another dtype."""
    kind, to = KINDS.get(given), KINDS.get(result)
    if kind is None or to is None or BOOL in (given, result):
        return None
    return lambda x: x if kind == to else x.to(to, "bitcast")
