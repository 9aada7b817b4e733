"""Changes of dtype: by value, by bits, and rounding to fewer bits within a dtype.

Floats that an integer dtype cannot hold become its nearest bound and NaN becomes 0, as XLA does;
integers that are too large wrap around.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...dtypes import (
    compute_dtype,
    is_extended,
    is_narrow_float,
    issubdtype,
    itemsize_bits,
    long_name,
)
from ...facts import CHEAP, EXACT, DeviceCost, Types
from ...inference import pending
from ...op import Sample, defop
from ...shardings.sharding import named_sharding_abstract
from ...spec import spec_from_entries
from ...support.caches import cached
from ...types import ArrayType, Shape
from ..derivatives import cotangent_type, explicit_sharding, has_tangent
from .declaration import FLOAT, check_accepted, values

F32, I32 = np.float32, np.int32


# -- convert_element_type -------------------------------------------------------------------------

def _convert_infer(x: ArrayType, *, new_dtype: Any, weak_type: bool, sharding: Any
                   ) -> tuple[Shape, Any, bool]:
    if is_extended(x.dtype) is not is_extended(new_dtype):
        fail(ValueError, f"Cannot convert_element_type from {long_name(x.dtype)} to "
             f"{long_name(new_dtype)}", code="dtype-not-accepted",
             help="`random.key_data` and `random.wrap_key_data` convert keys")
    if x.dtype != new_dtype and is_extended(new_dtype):
        fail(ValueError, f"cannot directly convert between extended dtypes: from {x.dtype} to "
             f"{new_dtype}. Instead, convert to and from their representation dtypes",
             code="dtype-not-accepted",
             help="`random.key_data` and `random.wrap_key_data` convert keys")
    return x.shape, new_dtype, weak_type


def _convert_explicit(op: Any, types: Sequence[ArrayType], shapes: Sequence[Shape],
                      params: dict[str, Any]) -> list[Any]:
    (x,), wanted = types, params["sharding"]
    if wanted is None:
        return [x.entries]
    unreduced = wanted.spec.unreduced or x.sharding.spec.unreduced
    reduced = wanted.spec.reduced or x.sharding.spec.reduced
    entries = wanted.spec.padded(x.ndim).entries
    return [named_sharding_abstract(wanted.mesh, spec_from_entries(entries, unreduced, reduced))]


def _convert_linear(count: int, types: Sequence[ArrayType], params: Any) -> tuple:
    """Between floats. Rounding to integers is not linear, and integers may have wrapped."""
    floats = types and has_tangent(types[0].dtype) and has_tangent(params["new_dtype"])
    return ((0,),) if floats else ()


def _convert_jvp(operands: Sequence[Any], tangents: Sequence[Any], **params: Any
                 ) -> tuple[Any, Any]:
    out = convert_element_type_p.bind(*operands, **params)
    if tangents[0] is None or not has_tangent(params["new_dtype"]):
        return out, None
    return out, convert_element_type_p.bind(*tangents, **params)


def _convert_transpose(ct: Any, x: Any, *, new_dtype: Any, weak_type: bool, sharding: Any
                       ) -> list[Any]:
    if not has_tangent(x.aval.dtype):
        return [None]
    return [convert_element_type_p.bind(
        ct, new_dtype=x.aval.dtype, weak_type=x.aval.weak_type,
        sharding=explicit_sharding(cotangent_type(x.aval)))]


def cast(x: np.ndarray, dtype: Any) -> np.ndarray:
    """x in another dtype by value, out-of-range floats as the module says."""
    if x.dtype == dtype:
        return x
    if x.dtype.kind == "c" and not issubdtype(dtype, np.complexfloating):
        x = np.real(x)
    if not issubdtype(dtype, np.integer) or x.dtype.kind in "iub":
        return x.astype(dtype)
    if not issubdtype(x.dtype, np.floating):     # integers narrower than a byte
        return x.astype(np.int64).astype(dtype)
    if is_narrow_float(x.dtype):
        x = x.astype(compute_dtype(x.dtype))
    # Of an array alone: of what only records what is done to it, the processor says nothing.
    if type(x) is np.ndarray and dtype.kind == "i" and dtype.itemsize >= 4 and (
            _flags_overflow(x.dtype, dtype)):
        try:
            with np.errstate(invalid="raise"):
                return x.astype(dtype)
        except FloatingPointError:
            pass                                # some are out of range
    low, high = _bounds(dtype)
    if x.size:
        # Comparisons with NaN are false; Python's compare the float and the integer exactly.
        least, most = float(x.min()), float(x.max())
        if dtype.isbuiltin and least < low and most <= high:
            x, least = np.maximum(x, np.asarray(low, x.dtype)), low
        if dtype.isbuiltin and low <= least and most > high and float(x.dtype.type(high)) == high:
            x, most = np.minimum(x, np.asarray(high, x.dtype)), high
        if low <= least and most <= high and (dtype.itemsize > 1 or dtype.isbuiltin):
            return x.astype(dtype)
    out = np.where(np.isnan(x), np.zeros((), x.dtype), x)
    out = np.clip(np.trunc(out), np.asarray(low, x.dtype), np.asarray(high, x.dtype))
    if float(np.asarray(high, x.dtype)) > high:   # high itself is not a float: 2**31 - 1 in float32
        top = np.asarray(high + 1, x.dtype)
        below = np.nextafter(top, np.zeros((), x.dtype))
        return np.where(out >= top, np.asarray(high, dtype), np.minimum(out, below).astype(dtype))
    if dtype.itemsize == 1:
        return out.astype(np.int16).astype(dtype)   # ml_dtypes cast integers, not all floats
    return out.astype(dtype)


@cached(1024)
def _flags_overflow(source: np.dtype, target: np.dtype) -> bool:
    """Does the processor flag floats that such an integer cannot hold? Looking for them takes
    longer than converting them.
    """
    beyond = -2.0 * np.iinfo(target).min
    for bad in (np.nan, np.inf, -np.inf, beyond, -beyond):
        for at in (0, 30, 34):                  # alone, and where many are converted at once
            x = np.zeros(35, source)
            x[at] = bad
            try:
                with np.errstate(invalid="raise"):
                    x.astype(target)
                return False
            except FloatingPointError:
                pass
    return True


def _bounds(dtype: Any) -> tuple[int, int]:
    bits = itemsize_bits(dtype)
    if issubdtype(dtype, np.unsignedinteger):
        return 0, 2**bits - 1
    return -2 ** (bits - 1), 2 ** (bits - 1) - 1


def _convert(lead: int, x: np.ndarray, *, new_dtype: Any, weak_type: bool, sharding: Any
             ) -> np.ndarray:
    return x if is_extended(new_dtype) else cast(x, new_dtype)


def _convert_flops(operands: Types, results: Types, params: dict[str, Any]) -> float:
    (x,), (out,) = operands, results
    return float(out.size if x.dtype != out.dtype else 0)


def _conversion(source: Any, target: Any, low: float, high: float) -> Sample:
    return Sample((values((4, 6), source, low, high),),
                  {"new_dtype": np.dtype(target), "weak_type": False, "sharding": None},
                  grad=np.dtype(source).kind in "fc" and np.dtype(target).kind in "fc")


convert_element_type_p = defop(
    "convert_element_type",
    doc="x in `new_dtype`, weak if `weak_type`; sharded by `sharding` unless that is None.",
    infer=_convert_infer, rule="... -> ...", explicit=_convert_explicit, pending="keep",
    sharding_param="sharding",
    linear=_convert_linear, jvp=_convert_jvp, transpose=_convert_transpose,
    evaluate=_convert, arithmetic=False, facts=(CHEAP, EXACT), cost=DeviceCost(_convert_flops),
    samples=lambda: [
        _conversion(F32, I32, -9, 9),
        _conversion(I32, F32, -9, 9),
        _conversion(F32, np.float64, -9, 9),
        _conversion(I32, np.uint8, -300, 300),
        _conversion(F32, bool, -1, 1),
        _conversion(F32, np.complex64, -9, 9)])


# -- bitcast_convert_type -------------------------------------------------------------------------

def _bitcast_infer(x: ArrayType, *, new_dtype: Any) -> tuple[Shape, Any, bool]:
    """Between dtypes of different sizes a last dimension appears, or disappears, that lists the
    narrower elements of a wider one.
    """
    old_bits, new_bits = itemsize_bits(x.dtype), itemsize_bits(new_dtype)
    last = x.shape[-1] if x.shape else 1
    if old_bits < new_bits and last * old_bits != new_bits:
        fail(ValueError,
             f"Attempting to convert array of shape {x.shape} from {long_name(x.dtype)} of size "
             f"{old_bits} bits to {long_name(new_dtype)} of size {new_bits}, bits but "
             f"{last} * {old_bits} != {new_bits}", code="shape-mismatch",
             help=f"reshape it so that its last dimension has {new_bits // old_bits} elements")
    if x.dtype != new_dtype and (has_no_bits(x.dtype) or has_no_bits(new_dtype)):
        fail(TypeError, "lax.bitcast_convert_type does not support bool or complex values "
             "unless the operand and destination types match. "
             f"Got operand dtype={x.dtype}, new_dtype={new_dtype!r}. "
             "Consider using the arr.view() method instead.", code="dtype-not-accepted",
             help="`astype` converts the values")
    if old_bits == new_bits:
        return x.shape, new_dtype, False
    if old_bits > new_bits:
        return (*x.shape, old_bits // new_bits), new_dtype, False
    return x.shape[:-1], new_dtype, False


def has_no_bits(dtype: Any) -> bool:
    """Can its elements be no others by their bits?"""
    return (is_extended(dtype) or issubdtype(dtype, np.bool_)
            or issubdtype(dtype, np.complexfloating))


def _bitcast_rule(operand_shapes: tuple[Shape, ...], result_shapes: tuple[Shape, ...], *,
                  new_dtype: Any) -> str:
    (x,), (out,) = operand_shapes, result_shapes
    if len(x) == len(out):
        return "... -> ..."
    # The parts of one element lie on one device.
    return "... -> ... k | k:replicate" if len(x) < len(out) else "... k -> ... | k:replicate"


def _bitcast_explicit(op: Any, types: Sequence[ArrayType], shapes: Sequence[Shape],
                      params: dict[str, Any]) -> list[tuple]:
    entries, rank = types[0].entries, len(shapes[0])
    return [(*entries, *((),) * (rank - len(entries)))[:rank]]


def _bitcast(lead: int, x: np.ndarray, *, new_dtype: Any) -> np.ndarray:
    """The bytes of x as another dtype; elements below a byte are unpacked and packed again."""
    old_bits, new_bits = itemsize_bits(x.dtype), itemsize_bits(new_dtype)
    if min(old_bits, new_bits) < 8 and old_bits != new_bits:
        return _recast_parts(x, old_bits, new_dtype, new_bits)
    if old_bits == new_bits:
        return x.view(new_dtype)
    x = np.asarray(x, order="C")
    if old_bits > new_bits:
        return x[..., None].view(new_dtype)
    return x.view(new_dtype)[..., 0]


def _recast_parts(x: np.ndarray, old_bits: int, new_dtype: Any, new_bits: int) -> np.ndarray:
    """Bitcast where one side has several elements in a byte; they lie from the low bits up."""
    container = f"u{max(old_bits, new_bits) // 8}"
    if old_bits > new_bits:
        shifts = np.arange(old_bits // new_bits, dtype=container) * new_bits
        parts = x.view(container)[..., None] >> shifts & np.asarray(2**new_bits - 1, container)
        return parts.astype(np.uint8).astype(new_dtype)
    shifts = np.arange(new_bits // old_bits, dtype=container) * old_bits
    parts = x.astype(np.int8).astype(container) & np.asarray(2**old_bits - 1, container)
    return np.bitwise_or.reduce(parts << shifts, axis=-1).view(new_dtype)


bitcast_convert_type_p = defop(
    "bitcast_convert_type",
    doc="The bits of x as `new_dtype`; a last dimension holds the parts where widths differ.",
    infer=_bitcast_infer, rule=_bitcast_rule, explicit=_bitcast_explicit, pending=pending.refuse,
    jvp="zero",
    evaluate=_bitcast, arithmetic=False, facts=(EXACT,),
    samples=lambda: [
        Sample((values((4, 6), F32, -3, 3),), {"new_dtype": np.dtype(I32)}, grad=False),
        Sample((values((4, 6), F32, -3, 3),), {"new_dtype": np.dtype(np.uint8)}, grad=False),
        Sample((values((4, 2), np.uint16, 0, 9999),), {"new_dtype": np.dtype(F32)}, grad=False)])


# -- reduce_precision -----------------------------------------------------------------------------

def _precision_infer(x: ArrayType, *, exponent_bits: int, mantissa_bits: int) -> tuple[Shape, Any]:
    if exponent_bits < 1:
        fail(ValueError, f"reduce_precision: exponent_bits must be positive; got {exponent_bits}",
             help="float32 has 8, float16 has 5")
    if mantissa_bits < 0:
        fail(ValueError,
             f"reduce_precision: mantissa_bits must be non-negative; got {mantissa_bits}",
             help="float32 has 23, float16 has 10")
    check_accepted("reduce_precision", x, FLOAT)
    return x.shape, x.dtype


def _reduce_precision(lead: int, x: np.ndarray, *, exponent_bits: int, mantissa_bits: int
                      ) -> np.ndarray:
    """Round floats to a format of fewer bits, on their bit patterns: to the nearest, ties to even;
    what is too small becomes zero, what is too large infinite.
    """
    info = np.finfo(x.dtype)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    bits = x.view(unsigned)
    drop = info.nmant - mantissa_bits
    if drop > 0:
        # To the nearest, ties to even: half a unit less one, and one more where the last is odd.
        one = np.asarray(1, unsigned)
        odd = np.bitwise_and(np.right_shift(bits, np.asarray(drop, unsigned)), one)
        bits = np.add(np.add(bits, np.asarray((1 << (drop - 1)) - 1, unsigned)), odd)
        bits = np.bitwise_and(bits, np.asarray((1 << 8 * x.dtype.itemsize) - (1 << drop), unsigned))
    rounded = bits.view(x.dtype)
    if exponent_bits < info.nexp:
        # The exponents of the narrower format, without its subnormal numbers.
        bias = 2 ** (exponent_bits - 1) - 1
        smallest, beyond = np.ldexp(1.0, 1 - bias), np.ldexp(1.0, bias + 1)
        size = np.abs(rounded)
        rounded = np.where(size < smallest, np.copysign(np.zeros((), x.dtype), x), rounded)
        rounded = np.where(size >= beyond, np.copysign(np.asarray(np.inf, x.dtype), x), rounded)
    return np.where(np.isfinite(x), rounded, x)


reduce_precision_p = defop(
    "reduce_precision",
    doc="x rounded to a float format of `exponent_bits` and `mantissa_bits`, in its own dtype.",
    infer=_precision_infer, rule="... -> ...", pending="keep",
    jvp=(lambda g, out, x, **params: reduce_precision_p.bind(g, **params),),
    transpose=lambda ct, x, **params: [reduce_precision_p.bind(ct, **params)],
    evaluate=_reduce_precision,
    samples=lambda: [
        Sample((values((4, 6), F32, -3, 3),), {"exponent_bits": 8, "mantissa_bits": 7},
               grad=False),
        Sample((values((4, 6), F32, -3, 3),), {"exponent_bits": 5, "mantissa_bits": 10},
               grad=False)])
