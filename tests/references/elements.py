"""What ops of one element at a time mean, in plain numpy; see ops.py."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

Array = np.ndarray
Reference = Callable[..., Any]


def wide(x: Array) -> Array:
    """Floats in float64, complex numbers in complex128, the rest as it is."""
    if x.dtype.kind in "iub":
        return x
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def in_double(function: Reference) -> Reference:
    return lambda *xs, **params: function(*map(wide, xs))


def by_kind(of_floats: Reference, of_integers: Reference) -> Reference:
    """Floats in double; integers in their own dtype, where they wrap around."""
    return lambda *xs, **params: (of_integers(*xs) if xs[0].dtype.kind in "iub"
                                  else of_floats(*map(wide, xs)))


def bits_of(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind != "b" else x.astype(np.uint8)


def each(function: Reference) -> Reference:
    """A function of Python numbers, of arrays; the result has the dtype of the first."""
    def elementwise(*xs: Array, **params: Any) -> Array:
        xs = np.broadcast_arrays(*xs)
        out = [function(*(x.item() for x in items), xs[0].dtype)
               for items in zip(*(x.ravel() for x in xs), strict=True)]
        return np.array(out, object).reshape(xs[0].shape)
    return elementwise


def wrapped(number: int, dtype: np.dtype) -> int:
    """The integer of this dtype that has the same lowest bits."""
    bits = 8 * dtype.itemsize
    number &= (1 << bits) - 1
    return number - (1 << bits) if dtype.kind == "i" and number >> (bits - 1) else number


def truncated(x: int, y: int, dtype: np.dtype) -> int:
    if y == 0:
        return wrapped(-1, dtype)
    return wrapped(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), dtype)


def remainder(x: int, y: int, dtype: np.dtype) -> int:
    return x if y == 0 else abs(x) % abs(y) * (-1 if x < 0 else 1)


def shifted(x: int, by: int, dtype: np.dtype, kind: str) -> int:
    bits = 8 * dtype.itemsize
    by &= (1 << bits) - 1                           # negative counts are large ones
    if kind == "left":
        return wrapped(x << by, dtype) if by < bits else 0
    if kind == "logical":
        return wrapped((x & ((1 << bits) - 1)) >> by, dtype) if by < bits else 0
    signed = x - (1 << bits) if x >> (bits - 1) & 1 and x > 0 else x
    return wrapped(signed >> min(by, bits - 1), dtype)


def sign(x: Array, **params: Any) -> Array:
    if x.dtype.kind == "c":
        z = wide(x)
        return np.where(z == 0, z, z / np.abs(z))
    return np.where(np.isnan(x) | (x == 0), x, np.where(x > 0, 1, -1)) if x.dtype.kind == "f" else (
        np.sign(x))


def logistic(x: Array) -> Array:
    return quotient(np.ones_like(x), 1 + np.exp(-x))


def quotient(x: Array, y: Array) -> Array:
    """Complex numbers are divided as in annex G of the C standard."""
    found = np.divide(x, y)
    if x.dtype.kind != "c":
        return found

    def unit(v: Any) -> float:
        return math.copysign(1.0 if math.isinf(v) else 0.0, v)

    out = np.array(found)
    for at, q in np.ndenumerate(found):
        p, r = complex(np.broadcast_to(x, found.shape)[at]), complex(
            np.broadcast_to(y, found.shape)[at])
        if r == 0 and not (math.isnan(p.real) and math.isnan(p.imag)):
            edge = np.float64(math.copysign(math.inf, r.real))
            out[at] = complex(edge * p.real, edge * p.imag)
        elif not (np.isnan(q.real) and np.isnan(q.imag)):
            continue
        elif (math.isinf(p.real) or math.isinf(p.imag)) and np.isfinite(r):
            w = complex(unit(p.real), unit(p.imag)) * r.conjugate()
            out[at] = complex(np.float64(math.inf) * w.real, np.float64(math.inf) * w.imag)
        elif (math.isinf(r.real) or math.isinf(r.imag)) and np.isfinite(p):
            out[at] = 0
    return out


def power(x: Array, y: Array) -> Array:
    """An integer exponent of a float becomes a float32. That of 1/2 is no root at -inf and -0.
    A complex power of 0 that is not real is no number."""
    if x.dtype.kind in "iu":
        return each(lambda x, y, dtype: wrapped(x ** y, dtype) if y >= 0 else 0)(x, y)
    whole = y.dtype.kind in "iu" and x.dtype.kind != "c"
    out = np.power(wide(x), wide(y.astype(np.float32) if whole else y))
    if x.dtype.kind == "c":
        return np.where((x == 0) & (y.imag != 0), np.nan + 1j * np.nan, out)
    return np.where((y == 0.5) & ((x == 0) | np.isneginf(x)), np.abs(wide(x)), out)


def cube_root(x: Array) -> Array:
    return np.copysign(np.abs(x) ** (1 / 3), x)


def angle(y: Array, x: Array) -> Array:
    if x.dtype.kind == "c":
        return -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y))
    return np.arctan2(y, x)


def integer_power(x: Array, *, y: int) -> Array:
    out = np.ones_like(wide(x))
    for _ in range(abs(y)):
        out = out * wide(x)
    return 1 / out if y < 0 else out


def rounded(x: Array, *, rounding_method: int) -> Array:
    away = np.copysign(np.floor(np.abs(wide(x)) + 0.5), x)
    return np.where(np.isnan(x), x, np.rint(x) if int(rounding_method) else away)


def next_float(x: Array, y: Array) -> Array:
    return np.where(x == y, y, np.nextafter(x, y))


def extreme(larger: bool) -> Reference:
    """The larger (smaller) of two; of zeros the positive (negative) one; complex by real, imag."""
    def choose(x: Array, y: Array) -> Array:
        x, y = np.broadcast_arrays(x, y)
        if x.dtype.kind == "c":
            first = (x.real > y.real) if larger else (x.real < y.real)
            ties = (x.imag >= y.imag) if larger else (x.imag <= y.imag)
            return np.where(np.isnan(x) | ~np.isnan(y) & (
                first | (x.real == y.real) & ties), x, y)
        if x.dtype.kind in "iub":
            return np.where((x > y) if larger else (x < y), x, y)
        negative = np.signbit(x)
        before = (x > y) if larger else (x < y)
        before |= (x == y) & (~negative if larger else negative)
        return np.where(np.isnan(x), x, np.where(np.isnan(y), y, np.where(before, x, y)))
    return choose


MAXIMUM, MINIMUM = extreme(True), extreme(False)


def ordered(x: Array) -> Array:
    """Integers in the total order of floats: by sign, then magnitude."""
    if x.dtype.kind != "f":
        return x
    bits = np.asarray(x).view(f"i{x.dtype.itemsize}")
    top = 1 << (8 * x.dtype.itemsize - 1)
    return np.array([b if b >= 0 else -(b + top) - 1 for b in bits.ravel().tolist()],
                    object).reshape(x.shape)


def compared(relation: Reference, total: bool = False) -> Reference:
    def compare(x: Array, y: Array) -> Array:
        if total:
            x, y = ordered(x), ordered(y)
        return np.asarray(relation(x, y)).astype(bool)
    return compare


def converted(x: Array, *, new_dtype: np.dtype, **params: Any) -> Array:
    """Floats to integers: truncated, NaN gives 0, what is too large the nearest integer."""
    dtype = np.dtype(new_dtype)
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = x.real
    if dtype.kind in "iu" and x.dtype.kind == "f":
        bounds = np.iinfo(dtype)
        numbers = [0 if math.isnan(v) else max(bounds.min, min(bounds.max, v if math.isinf(v)
                                                               else int(v)))
                   for v in x.ravel().tolist()]
        return np.array(numbers, object).reshape(x.shape).astype(dtype)
    return x.astype(dtype)


def bitcast(x: Array, *, new_dtype: np.dtype) -> Array:
    dtype = np.dtype(new_dtype)
    raw, small, large = x.tobytes(), x.dtype.itemsize, dtype.itemsize
    shape = (x.shape if small == large else (*x.shape, small // large) if small > large
             else x.shape[:-1])
    return np.frombuffer(raw, dtype).reshape(shape)


def less_precise(x: Array, *, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round half to even at the mantissa's last bit; too large is infinity, too small is 0."""
    def one(v: float, dtype: np.dtype) -> float:
        if v == 0 or math.isinf(v) or math.isnan(v):
            return v
        exponent = math.frexp(v)[1]                 # v = mantissa * 2**exponent, 1/2 <= it < 1
        if exponent_bits == 8:
            exponent = max(exponent, -125)          # denormals of float32 stay
        scaled = math.ldexp(v, mantissa_bits + 1 - exponent)
        out = math.ldexp(float(round(scaled)), exponent - mantissa_bits - 1)
        bias = (1 << (exponent_bits - 1)) - 1
        if abs(out) >= 2.0 ** (bias + 1):
            return math.copysign(math.inf, v)
        return math.copysign(0.0, v) if exponent_bits < 8 and abs(out) < (
            2.0 ** (1 - bias)) else out
    return each(one)(x).astype(x.dtype)


def select(which: Array, *cases: Array) -> Array:
    """The case that `which` numbers; others mean the nearest."""
    out = np.array(cases[0])
    for i, case in enumerate(cases[1:], 1):
        out = np.where(which >= i, case, out)
    return out


def threefry(k0: Array, k1: Array, c0: Array, c1: Array) -> list[Array]:
    """Threefry-2x32 with 20 rounds, as published (Salmon and others, 2011)."""
    def rotated(x: Array, by: int) -> Array:
        return (x << np.uint32(by)) | (x >> np.uint32(32 - by))
    keys = [k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA)]
    x, y = c0 + keys[0], c1 + keys[1]
    for block in range(5):
        for by in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            x = x + y
            y = rotated(y, by) ^ x
        x = x + keys[(block + 1) % 3]
        y = y + keys[(block + 2) % 3] + np.uint32(block + 1)
    return [x, y]


def zeta(x: Array, q: Array) -> Array:
    """The sum comes from both sides to the same infinity at poles of even powers only."""
    poles = (q <= 0) & (np.floor(q) == q) & (x != 1)
    return np.where(poles, np.where(x % 2 == 0, np.inf, np.nan), special.zeta(x, q))


def polygamma(m: Array, x: Array) -> Array:
    order = np.where((m >= 0) & (np.floor(m) == m), m, np.nan)
    high = (-1.0) ** (order + 1) * special.gamma(order + 1) * zeta(order + 1, x)
    return np.where(order == 0, np.where((x == 0) | (x == -np.inf), np.nan, special.psi(x)), high)


special = scipy.special
DOUBLE = {name: in_double(f) for name, f in {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atan2": angle, "atanh": np.arctanh, "bessel_i0e": special.i0e,
    "bessel_i1e": special.i1e, "cbrt": cube_root, "cos": np.cos, "cosh": np.cosh,
    "digamma": lambda x: np.where(x == 0, np.nan, special.digamma(x)), "erf": special.erf,
    "erf_inv": lambda x: np.copysign(special.erfinv(x), x),
    "erfc": special.erfc, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "igamma": special.gammainc, "igammac": special.gammaincc,
    "lgamma": lambda x: np.where(np.isinf(x), np.inf, special.gammaln(x)),
    "log": np.log, "log1p": np.log1p, "logistic": logistic, "polygamma": polygamma,
    "regularized_incomplete_beta": special.betainc, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh,
    "zeta": zeta, "ceil": np.ceil, "floor": np.floor, "trunc": np.trunc,
    "is_finite": np.isfinite}.items()}
ELEMENTS: dict[str, Reference] = {
    **DOUBLE,
    "abs": by_kind(np.abs, np.abs), "add": by_kind(np.add, np.add),
    "add_any": by_kind(np.add, np.add), "sub": by_kind(np.subtract, np.subtract),
    "mul": lambda x, y, out_dtype=None: by_kind(np.multiply, np.multiply)(
        x.astype(out_dtype or x.dtype), y.astype(out_dtype or y.dtype)),
    "div": by_kind(quotient, each(truncated)), "rem": by_kind(np.fmod, each(remainder)),
    "floor_div": lambda x, y: np.floor_divide(x, y), "neg": by_kind(np.negative, np.negative),
    "square": by_kind(lambda x: x * x, lambda x: x * x),
    "pow": power,
    "integer_pow": integer_power, "sign": sign, "round": rounded, "nextafter": next_float,
    "mulhi": each(lambda x, y, dtype: x * y >> 8 * dtype.itemsize),
    "max": MAXIMUM, "min": MINIMUM,
    "clamp": lambda low, x, high: MINIMUM(MAXIMUM(low, x), high),
    "eq": compared(np.equal), "ne": compared(np.not_equal), "lt": compared(np.less),
    "le": compared(np.less_equal), "gt": compared(np.greater), "ge": compared(np.greater_equal),
    "eq_to": compared(np.equal, True), "lt_to": compared(np.less, True),
    "le_to": compared(np.less_equal, True),
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    **{f"shift_{k}": each(lambda x, y, dtype, kind=kind: shifted(x, y, dtype, kind))
       for k, kind in (("left", "left"), ("right_logical", "logical"),
                       ("right_arithmetic", "arithmetic"))},
    "population_count": each(lambda x, t: (x & ((1 << 8 * t.itemsize) - 1)).bit_count()),
    "clz": each(lambda x, t: 8 * t.itemsize - (x & ((1 << 8 * t.itemsize) - 1)).bit_length()),
    "complex": lambda x, y: np.stack(np.broadcast_arrays(x, y), -1).view(
        np.complex64 if x.dtype == np.float32 else np.complex128)[..., 0],
    "real": np.real, "imag": np.imag, "conj": lambda x, **params: np.conj(x),
    "convert_element_type": converted, "bitcast_convert_type": bitcast,
    "reduce_precision": less_precise, "select_n": select, "threefry2x32": threefry}

SAME = ("copy", "device_put", "name", "stage", "stop_gradient")     # x itself
