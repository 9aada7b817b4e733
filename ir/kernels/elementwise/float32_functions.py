"""log, log1p and erf_inv in float32, bit for bit as XLA computes them on CPUs with FMA.

Normal and gamma samples go through these functions, and a program ported from JAX should draw the
same numbers. numpy's functions differ by an ulp or two, so the polynomials are evaluated here, with
each fused multiply-add as one float64 operation. (The product of two float32 is exact in float64;
the second rounding, to float32, shows once in about 2^29.)

Sources: log, log1p: Moshier, Cephes Mathematical Library, `logf` and `log1p`; erf_inv: Giles,
"Approximating the erfinv function", GPU Computing Gems 2, 2011 (single precision).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...support.buffer_pool import empty
from ..compiled import Loop, Value

_F32, _F64 = np.float32, np.dtype(np.float64)
_PIECE = 1 << 14                   # elements at a time, so that temporaries stay in cache


def _f32(*values: float) -> tuple[np.ndarray, ...]:
    """Numbers of float32 as float64 arrays, to which numpy need not convert them at each call."""
    return tuple(np.array(_F32(v), _F64) for v in values)


_SQRT_HALF = _F32(0.707106781186547524)
_LOG2_HIGH, _LOG2_LOW = _F32(0.693359375), _F32(-2.12194440e-4)
_LOG = (_f32(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1),
        _f32(-1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1),
        _f32(2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1))
_LOG1P_TOP = _f32(4.5270000862445199635215e-5, 4.9854102823193375972212e-1,
                  6.5787325942061044846969, 2.9911919328553073277375e1,
                  6.0949667980987787057556e1, 5.7112963590585538103336e1,
                  2.0039553499201281259648e1)
_LOG1P_BOTTOM = _f32(1.0, 1.5062909083469192043167e1, 8.3047565967967209469434e1,
                     2.2176239823732856465394e2, 3.0909872225312059774938e2,
                     2.1642788614495947685003e2, 6.0118660497603843919306e1)
_LOG1P_NEAR = _F32(0.41421356237309504880)
_ERFINV_CENTRE = _f32(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06,
                      0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
_ERFINV_TAIL = _f32(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844,
                    0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)


def fma(a: np.ndarray, b: np.ndarray | np.float32, c: np.ndarray | np.float32) -> np.ndarray:
    """a * b + c, rounded once."""
    wide = np.multiply(a, b, out=empty(a.shape, _F64), dtype=np.float64)
    wide += c
    return wide.astype(_F32)


def _widened(x: np.ndarray) -> np.ndarray:
    wide = empty(x.shape, _F64)
    np.copyto(wide, x)
    return wide


def _horner(x: np.ndarray, coefficients: Sequence[np.ndarray]) -> np.ndarray:
    """The polynomial of x in float64, highest power first, each sum rounded to float32."""
    first, *others, last = coefficients
    total, rounded = (empty(x.shape, t) for t in (_F64, np.dtype(_F32)))
    np.multiply(x, first, out=total)
    for c in others:                            # as `fma`, in memory that is there
        total += c
        rounded[...] = total
        total[...] = rounded
        total *= x
    total += last
    rounded[...] = total
    return rounded


def _in_chunks(function: Callable[[np.ndarray], np.ndarray], loop: Loop | None = None
               ) -> Callable[..., Any]:
    """Apply a function of a flat float32 array piece by piece; as ufuncs are, it is called with
    `out`, and handed to what stands for an array. loop: gives the same, where that pays."""
    def whole(x: Any, out: np.ndarray | None = None) -> Any:
        if not isinstance(x, (np.ndarray, np.generic)):
            return x.__array_function__(whole, (type(x),), (x,), {})
        flat = np.ascontiguousarray(x, _F32).reshape(-1)
        made = out if out is not None and out.flags.c_contiguous else np.empty(x.shape, _F32)
        pieces = made.reshape(-1)
        if loop is not None and loop.pays(flat.size):
            loop(flat, pieces)
            flat = flat[:0]
        with np.errstate(all="ignore"):
            for start in range(0, flat.size, _PIECE):
                piece = slice(start, start + _PIECE)
                pieces[piece] = function(flat[piece])
        if out is None or made is out:
            return made
        out[...] = made
        return out

    whole.elementwise = True        # type: ignore[attr-defined]
    whole.__doc__, whole.__name__ = function.__doc__, function.__name__.lstrip("_")
    return whole


def _parted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """t and e of x = (1 + t) * 2 ** e, 1 + t from the square root of 0.5 to that of 2."""
    bits = np.maximum(x, np.finfo(_F32).tiny).view(np.int32)
    bits -= _SQRT_HALF.view(np.int32)
    e = (bits >> 23).astype(_F32)
    bits &= 0x7FFFFF
    bits += _SQRT_HALF.view(np.int32)
    t = bits.view(_F32)
    t -= _F32(1)
    return t, e


def _log(x: np.ndarray) -> np.ndarray:
    """Natural logarithm of float32."""
    t, e = _parted(x)
    square = t * t
    wide = _widened(t)
    a, b, c = (_horner(wide, p) for p in _LOG)
    np.multiply(square, t, out=wide, dtype=_F32)
    tail = _horner(wide, (a, b, c, e * _LOG2_LOW))
    square *= _F32(-0.5)                        # exact, as is the product of e
    t += square
    t += tail
    e *= _LOG2_HIGH
    t += e
    odd = ~((x >= np.finfo(_F32).tiny) & (x < np.inf))
    if odd.any():
        t[odd] = np.log(x[odd])
    return t


def _log1p(x: np.ndarray) -> np.ndarray:
    """log(1 + x) of float32."""
    is_near = np.abs(x) < _LOG1P_NEAR
    y = np.empty_like(x)
    for chosen, function in ((is_near, _log1p_near), (~is_near, lambda s: _log(_F32(1) + s))):
        at = np.flatnonzero(chosen)                                     # faster than masks
        y[at] = function(x.take(at))
    return y


def _log1p_near(x: np.ndarray) -> np.ndarray:
    """log1p near zero, by a rational function."""
    wide = _widened(x)
    ratio = _horner(wide, _LOG1P_TOP)
    ratio /= _horner(wide, _LOG1P_BOTTOM)
    square = x * x
    ratio *= x * square
    square *= _F32(-0.5)                        # exact
    ratio += square
    ratio += x
    return ratio


def _erf_inv(x: np.ndarray) -> np.ndarray:
    """Inverse error function of float32."""
    w = _log1p(x * -x)
    np.negative(w, out=w)
    y = _horner(_widened(w - _F32(2.5)), _ERFINV_CENTRE)
    y *= x
    at = np.flatnonzero(~(w < 5))
    if at.size:                                 # few, one and what is no number among them
        wide = _widened(np.sqrt(w.take(at)) - _F32(3))
        x = x.take(at)
        y[at] = x * np.where(np.abs(x) == 1, _F32(np.inf), _horner(wide, _ERFINV_TAIL))
    return y


# -- the same for the elements of a compiled loop --------------------------------------------------
# Both sides of a choice are computed. What `_log` is given is 1 + x, which is never infinite.

def _wide(x: Any) -> Any:
    return x.to("double", "fpext") if isinstance(x, Value) else x


def _horner_of(x: Value, coefficients: Sequence[Any]) -> Value:
    wide = _wide(x)
    first, second, *others = map(_wide, coefficients)
    total = (wide * first + second).to("float", "fptrunc")
    for c in others:
        total = (_wide(total) * wide + c).to("float", "fptrunc")
    return total


def _log_of(x: Value) -> Value:
    """The instructions of `log` for one element, in the order of the function on arrays."""
    low, tiny = int(_SQRT_HALF.view(np.int32)), np.finfo(_F32).tiny
    bits = x.choose("oge", tiny, x, tiny).to("i32", "bitcast") - low
    e = (bits >> 23).to("float", "sitofp")
    t = ((bits & 0x7FFFFF) + low).to("float", "bitcast") - 1
    square = t * t
    powers = [_horner_of(t, p) for p in _LOG]
    tail = _horner_of(square * t, (*powers, e * _LOG2_LOW))
    found = t + square * -0.5 + tail + e * _LOG2_HIGH
    return x.choose("oge", tiny, found, x.choose("oeq", 0, x - np.inf, x * np.nan))


def _log1p_of(x: Value) -> Value:
    square = x * x
    ratio = _horner_of(x, _LOG1P_TOP) / _horner_of(x, _LOG1P_BOTTOM)
    near = ratio * (x * square) + square * -0.5 + x
    return x.call("fabs").choose("olt", _LOG1P_NEAR, near, _log_of(x + 1))


def _erf_inv_of(x: Value) -> tuple[Value]:
    w = -_log1p_of(x * -x)
    centre = _horner_of(w - 2.5, _ERFINV_CENTRE) * x
    tail = _horner_of(w.call("sqrt") - 3, _ERFINV_TAIL)
    tail = x.call("fabs").choose("oeq", 1, x * np.inf, x * tail)
    return (w.choose("olt", 5, centre, tail),)


log = _in_chunks(_log)
log1p = _in_chunks(_log1p)
erf_inv = _in_chunks(_erf_inv, Loop(_erf_inv_of, "float", "float"))
