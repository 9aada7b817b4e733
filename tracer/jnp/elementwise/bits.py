"""Bits and representations: shifts, bit operations, packing, and the parts of a float."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.dtypes import finfo, float0, issubdtype
from ....ir.ops.elementwise.arithmetic import (
    abs_p,
    add_p,
    ceil_p,
    floor_p,
    mul_p,
    neg_p,
    nextafter_p,
    sub_p,
)
from ....ir.ops.elementwise.bitwise import (
    and_p,
    not_p,
    or_p,
    population_count_p,
    shift_left_p,
    shift_right_arithmetic_p,
    shift_right_logical_p,
    xor_p,
)
from ....ir.ops.elementwise.comparison import eq_p, ge_p, gt_p, lt_p, ne_p
from ....ir.ops.elementwise.convert import bitcast_convert_type_p
from ....ir.ops.elementwise.powers import pow_p
from ....ir.ops.elementwise.select import select_n_p
from ....ir.ops.elementwise.transcendental import exp2_p
from ....ir.ops.reductions.reduction import reduce_sum_p
from ... import lax, sharding_notes
from ...autodiff.custom.custom_jvp import custom_jvp
from ...operands.broadcasting import select_of
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    literal_like,
    promote_args,
    promote_args_inexact,
    promote_args_numeric,
    promote_dtypes,
    strong,
    to_inexact,
)
from ...operands.rank_promotion import promote_shapes, shape_of
from ...operands.scalars import LEVEL
from ...operands.shape_arguments import canonical_axis
from ...staging.constants import as_array
from .logic import isinf, isnan
from .two_operands import binary

__all__ = [
    "bitwise_count", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_right_shift",
    "copysign", "frexp", "invert", "ldexp", "left_shift", "modf", "packbits", "right_shift",
    "signbit", "spacing", "unpackbits",
]
bitwise_and_function = binary(
    "bitwise_and", and_p,
    "The bits set in both x and y, elementwise; `and` for bool.")
bitwise_or_function = binary(
    "bitwise_or", or_p,
    "The bits set in x or y, elementwise; `or` for bool.")
bitwise_xor_function = binary(
    "bitwise_xor", xor_p,
    "The bits set in exactly one of x and y, elementwise; `xor` for bool.")


@sharding_notes.elementwise
def bitwise_not(x, /):
    """The bits that are not set in x, elementwise (`~x`); logical not for bool."""
    (x,) = promote_args("bitwise_not", x)
    return not_p.bind(x)


@sharding_notes.elementwise
def bitwise_invert(x, /):
    """The bits that are not set in x, elementwise (`~x`); logical not for bool."""
    return bitwise_not(x)


@sharding_notes.elementwise
def invert(x, /):
    """The bits that are not set in x, elementwise (`~x`); logical not for bool."""
    return bitwise_not(x)


@sharding_notes.elementwise
def left_shift(x, y, /):
    """The bits of x moved y places to the left, elementwise (`x << y`); zeros come in."""
    return shift_left_p.bind(*promote_args_numeric("left_shift", x, y))


@sharding_notes.elementwise
def bitwise_left_shift(x, y, /):
    """The bits of x moved y places to the left, elementwise (`x << y`); zeros come in."""
    return left_shift(x, y)


@sharding_notes.elementwise
def right_shift(x1, x2, /):
    """Bits of x1 shifted to the right by x2 places, the sign filling in."""
    x1, x2 = promote_args_numeric("right_shift", x1, x2)
    if issubdtype(dtype_name(x1), np.unsignedinteger):
        return shift_right_logical_p.bind(x1, x2)
    return shift_right_arithmetic_p.bind(x1, x2)


@sharding_notes.elementwise
def bitwise_right_shift(x1, x2, /):
    """Bits of x1 shifted to the right by x2 places, the sign filling in."""
    return right_shift(x1, x2)


@sharding_notes.elementwise
def bitwise_count(x, /):
    """The number of bits set in the absolute value of x, elementwise, as uint8."""
    (x,) = promote_args_numeric("bitwise_count", x)
    if not issubdtype(dtype_name(x), np.unsignedinteger):
        x = abs_p.bind(x)
    return convert(population_count_p.bind(x), np.dtype("uint8"))


def packbits(a, axis=None, bitorder="big"):
    """Elements of a (zero or not) as bits of uint8, eight along a dimension in each."""
    check_arraylike("packbits", a)
    if not (dtype_name(a) == np.dtype(bool) or issubdtype(dtype_name(a), np.integer)):
        raise TypeError("Expected an input array of integer or boolean data type")
    if bitorder not in ("little", "big"):
        raise ValueError("'order' must be either 'little' or 'big'")
    zero = literal_like(0, as_array(a))
    bits = convert(ne_p.bind(a, zero) if dtype_name(a) != np.dtype(bool) else as_array(a),
                   np.dtype("uint8"))
    if axis is None:
        bits, axis = lax.reshape(bits, (np.size(np.empty(shape_of(bits))),)), 0
    axis = canonical_axis(axis, len(shape_of(bits)))
    n = shape_of(bits)[axis]
    order = [*(d for d in range(len(shape_of(bits))) if d != axis), axis]
    bits = lax.transpose(bits, order)
    missing = -n % 8
    if missing:
        config = [(0, 0, 0)] * (len(order) - 1) + [(0, missing, 0)]
        bits = lax.pad(bits, np.uint8(0), config)
    shape = shape_of(bits)
    bits = lax.reshape(bits, (*shape[:-1], shape[-1] // 8, 8))
    places = np.arange(8, dtype=np.uint8)
    if bitorder == "big":
        places = places[::-1].copy()
    places = lax.broadcast_to_rank(as_array(places), len(shape) + 1)
    shifted = shift_left_p.bind(bits, lax.broadcast_in_dim(places, shape_of(bits), range(
        len(shape) + 1)))
    packed = reduce_sum_p.bind(shifted, axes=(len(shape),), out_sharding=None)
    return lax.transpose(packed, np.argsort(order))


def unpackbits(a, axis=None, count=None, bitorder="big"):
    """The bits of uint8 elements as elements of their own, 0 or 1, along a dimension."""
    check_arraylike("unpackbits", a)
    if dtype_name(a) != np.dtype("uint8"):
        raise TypeError("Expected an input array of unsigned byte data type")
    if bitorder not in ("little", "big"):
        raise ValueError("'order' must be either 'little' or 'big'")
    a = as_array(a)
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)), 0
    axis = canonical_axis(axis, a.ndim)
    order = [*(d for d in range(a.ndim) if d != axis), axis]
    a = lax.transpose(a, order)
    places = np.arange(8, dtype=np.uint8)
    if bitorder == "big":
        places = places[::-1].copy()
    wide = lax.broadcast_in_dim(a, (*shape_of(a), 8), range(len(order)))
    shifts = lax.broadcast_in_dim(as_array(places), shape_of(wide), (len(order),))
    bits = and_p.bind(shift_right_logical_p.bind(wide, shifts), np.uint8(1))
    shape = shape_of(bits)
    bits = lax.reshape(bits, (*shape[:-2], shape[-2] * 8))
    if count is not None:
        n = shape_of(bits)[-1]
        if count > n:
            config = [(0, 0, 0)] * (len(order) - 1) + [(0, count - n, 0)]
            bits = lax.pad(bits, np.uint8(0), config)
        else:
            bits = lax.slice_in_dim(bits, 0, count, axis=-1)
    return lax.transpose(bits, np.argsort(order))


# -- the parts of a float --------------------------------------------------------------------------

_INTEGERS = {2: np.dtype("int16"), 4: np.dtype("int32"), 8: np.dtype("int64"),
             1: np.dtype("int8")}


def _int_of(dtype: Any) -> np.dtype:
    return _INTEGERS[np.dtype(dtype).itemsize]


@sharding_notes.elementwise
def signbit(x, /):
    """Whether the sign bit is set: negative numbers, -0.0 and NaN with a sign."""
    (x,) = promote_args("signbit", x)
    dtype = dtype_name(x)
    if issubdtype(dtype, np.signedinteger):
        return strong(lt_p.bind(x, literal_like(0, x)))
    if LEVEL[dtype] < 2:
        return lax.full_like(x, False, np.dtype(bool))
    if LEVEL[dtype] == 3:
        raise ValueError(f"jax.numpy.signbit is not well defined for {dtype}")
    ints = _int_of(dtype)
    bits = bitcast_convert_type_p.bind(x, new_dtype=ints)
    top = shift_right_arithmetic_p.bind(bits, ints.type(ints.itemsize * 8 - 1))
    return convert(top, np.dtype(bool))


@sharding_notes.equal
def copysign(x1, x2, /):
    """The absolute value of x1 with the sign of x2, elementwise; also of zeros and NaN."""
    x1, x2 = promote_args_inexact("copysign", x1, x2)
    if LEVEL[dtype_name(x1)] == 3:
        raise TypeError("copysign does not support complex-valued inputs")
    sign = signbit(x2)
    negative = neg_p.bind(abs_p.bind(x1))
    return select_of(sign, abs_p.bind(x1), negative)


def modf(x, /, out=None):
    """The fractional and the integral part, both with the sign of x."""
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.modf is not supported.")
    (x,) = promote_args_inexact("modf", x)
    positive, down = ge_p.bind(x, literal_like(0, x)), floor_p.bind(x)
    whole = select_n_p.bind(positive, ceil_p.bind(x), down)
    return sub_p.bind(x, whole), whole


def frexp(x, /):
    """Mantissa (between 0.5 and 1) and exponent: x = mantissa * 2 ** exponent."""
    check_arraylike("frexp", x)
    if LEVEL[dtype_name(x)] == 3:
        raise TypeError("frexp does not support complex-valued inputs")
    (x,) = promote_args_inexact("frexp", x)
    return _frexp(as_array(x))


@custom_jvp
def _frexp(x: Any) -> tuple[Any, Any]:
    """`frexp` of real numbers; its bits know no derivative, the mantissa has one."""
    dtype = dtype_name(x)
    info, ints = finfo(dtype), _int_of(dtype)
    bias = 2 ** (info.nexp - 1) - 1
    mask = 2 ** info.nexp - 1
    subnormal = lt_p.bind(abs_p.bind(x), convert(info.tiny, dtype))
    scaled = select_of(subnormal, x, mul_p.bind(x, convert(2.0 ** info.nmant, dtype)))
    offset = select_of(subnormal, lax.full_like(x, 0, ints), ints.type(-info.nmant))
    bits = bitcast_convert_type_p.bind(scaled, new_dtype=ints)
    exponent = sub_p.bind(and_p.bind(shift_right_arithmetic_p.bind(bits, ints.type(info.nmant)),
                                     ints.type(mask)), ints.type(bias))
    exponent = add_p.bind(offset, add_p.bind(exponent, ints.type(1)))
    keep = ~(mask << info.nmant)
    half = (bias - 1) << info.nmant
    mantissa = or_p.bind(and_p.bind(bits, ints.type(keep)), ints.type(half))
    mantissa = bitcast_convert_type_p.bind(mantissa, new_dtype=dtype)
    special = or_p.bind(or_p.bind(isinf(x), isnan(x)), eq_p.bind(x, literal_like(0, x)))
    exponent = select_of(special, exponent, ints.type(0))
    return select_of(special, mantissa, x), convert(exponent, np.dtype("int32"))


@_frexp.defjvp
def _frexp_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (mantissa, exponent), (t,) = _frexp(*primals), tangents
    slope = exp2_p.bind(neg_p.bind(convert(exponent, mantissa.dtype)))
    return (mantissa, exponent), (mul_p.bind(strong(t), slope), np.zeros(exponent.shape, float0))


def ldexp(x1, x2, /):
    """x1 times 2 to the power of the integer x2, elementwise: the inverse of `frexp`."""
    check_arraylike("ldexp", x1, x2)
    d1, d2 = dtype_name(x1), dtype_name(x2)
    if LEVEL[d1] == 3 or not (issubdtype(d2, np.integer) or d2 == np.dtype(bool)):
        raise ValueError(f"ldexp not supported for input types {(d1, d2)}")
    target = to_inexact(d1)
    x1, x2 = convert(x1, target), convert(x2, target)
    x1, x2 = promote_shapes("ldexp", x1, x2)
    mantissa, exponent = frexp(x1)
    exponent = add_p.bind(*promote_shapes("ldexp", convert(exponent, target), x2))
    zero, one, two = (convert(v, target) for v in (0, 1, 2))
    positive = gt_p.bind(exponent, zero)
    mantissa = select_of(positive, mantissa, mul_p.bind(mantissa, two))
    exponent = select_of(positive, exponent, sub_p.bind(exponent, one))
    out = mul_p.bind(mantissa, pow_p.bind(two, exponent))
    special = or_p.bind(isinf(x1), eq_p.bind(x1, zero))
    return select_of(special, out, x1)


def spacing(x, /):
    """The distance from x to the next number away from zero, with the sign of x; in float16, to the
    next greater number.
    """
    check_arraylike("spacing", x)
    if LEVEL[dtype_name(x)] == 3:
        raise ValueError("jnp.spacing is not defined for complex inputs.")
    (x,) = promote_args_inexact("spacing", x)
    x = as_array(x)
    dtype = x.dtype
    if dtype == np.float16:
        return sub_p.bind(nextafter_p.bind(x, convert(np.inf, dtype)), x)
    gap = sub_p.bind(nextafter_p.bind(x, copysign(convert(np.inf, dtype), x)), x)
    least = copysign(convert(finfo(dtype).smallest_subnormal, dtype), x)
    return select_of(eq_p.bind(gap, convert(0, dtype)), gap, least)


def fmax_or_fmin(op: Callable[..., Any], x1: Any, x2: Any) -> Any:
    """The operand that `op` prefers, or the one that is not NaN."""
    prefer = or_p.bind(*promote_shapes("bitwise_or", op(x1, x2), isnan(x2)))
    a, b = promote_dtypes(x1, x2)
    a, b = promote_shapes("where", a, b)
    return select_of(prefer, b, a)
