"""Gamma-distributed numbers from keys, each by rejection, all elements of an array at once.

Accepted elements leave the arrays, so a round costs only what remains. The steps and their order
are those of `jax.random.gamma`, for the same numbers from the same keys.

Source: Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", ACM TOMS 26 (2000).
"""
from __future__ import annotations

import ml_dtypes
import numpy as np

from ...support.lazy import lazy_import
from ..elementwise import float32_functions as single
from . import rbg, threefry

scipy_special = lazy_import("scipy.special")

_SQUEEZE = 0.0331


def uniform_numbers(keys: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A number in [0, 1) for each key, as `jax.random.uniform(key, (), dtype)`."""
    info = ml_dtypes.finfo(dtype)
    width = info.bits if info.nmant >= 8 else 8
    bits = rbg.each_bits(keys, width) if keys.dtype.names else threefry.random_bits(keys, width, ())
    unsigned = np.dtype(f"uint{info.bits}")
    one = np.ones((), dtype).view(unsigned)
    shift = 8 * bits.itemsize - info.nmant
    mantissa = bits.astype(unsigned) >> unsigned.type(shift)
    return (mantissa | one).view(dtype) - dtype.type(1)


def normal_numbers(keys: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A standard normal number for each key, as `jax.random.normal(key, (), dtype)`."""
    one = dtype.type(1)
    low = np.nextafter(-one, np.zeros((), dtype))
    u = np.maximum(uniform_numbers(keys, dtype) * (one - low) + low, low)
    if dtype.itemsize > 4:
        x = scipy_special.erfinv(u)
    else:
        x = single.erf_inv(u.astype(np.float32)).astype(dtype)
    return dtype.type(np.sqrt(2)) * x


def _log(x: np.ndarray) -> np.ndarray:
    return single.log(x) if x.dtype == np.float32 else np.log(x)


def gamma_numbers(keys: np.ndarray, a: np.ndarray, log_space: bool) -> np.ndarray:
    """A gamma number with shape parameter `a` for each key, or its logarithm.

    keys: as held (key_data.py), broadcast with `a`, whose (float) dtype the result has.
    """
    shape = np.broadcast_shapes(keys.shape, a.shape)
    keys, alpha = (np.broadcast_to(x, shape).reshape(-1) for x in (keys, a))
    dtype = a.dtype
    one, third = dtype.type(1), dtype.type(1 / 3)
    with np.errstate(all="ignore"):
        large = alpha >= one
        d = np.where(large, alpha, alpha + one) - third
        loop_keys, boost_keys = _split(keys, 2)
        v = _accepted(loop_keys, d)
        inverse = one / alpha
        u = uniform_numbers(boost_keys, dtype)
        if log_space:
            boost = np.log1p(-u) if dtype != np.float32 else single.log1p(-u)
            boost = np.where(large | (boost == 0), dtype.type(0), boost * inverse)
            out = (_log(d) + _log(v)) + boost
        else:
            out = (d * v) * np.where(large, one, np.power(one - u, inverse))
    return out.astype(dtype, copy=False).reshape(shape)


def _split(keys: np.ndarray, count: int) -> list[np.ndarray]:
    new = rbg.each_split(keys, count) if keys.dtype.names else threefry.split(keys, (count,))
    return list(np.moveaxis(new, -1, 0))


def _accepted(keys: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The cubes v that the rejection method accepts for parameters d."""
    dtype = d.dtype
    one, half, squeeze = dtype.type(1), dtype.type(0.5), dtype.type(_SQUEEZE)
    c = dtype.type(1 / 3) * (one / np.sqrt(d))
    out = np.empty_like(d)
    open_ = np.arange(d.size)
    while open_.size:
        keys, normal_keys, uniform_keys = _split(keys, 3)
        x, v = _positive_cube_root(normal_keys, c[open_])
        square, cube = x * x, (v * v) * v
        u = uniform_numbers(uniform_keys, dtype)
        limit = square * half + d[open_] * ((one - cube) + _log(cube))
        again = (u >= one - squeeze * (square * square)) & (_log(u) >= limit)
        out[open_] = cube
        open_, keys = open_[again], keys[again]
    return out


def _positive_cube_root(keys: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normal numbers x, drawn until v = 1 + c x is positive, and v."""
    dtype = c.dtype
    x, v = np.empty_like(c), np.empty_like(c)
    open_ = np.arange(c.size)
    while open_.size:
        keys, draw = _split(keys, 2)
        x[open_] = normal_numbers(draw, dtype)
        v[open_] = single.fma(x[open_], c[open_], dtype.type(1))
        again = v[open_] <= 0
        open_, keys = open_[again], keys[again]
    return x, v
