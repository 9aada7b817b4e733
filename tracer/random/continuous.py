"""Continuous distributions made of uniform and normal numbers by a formula.

Computations are those of `jax.random` (0.10.2), operation by operation. In the signatures `shape`
is that of the result, or None for the shape to which the parameters broadcast; `dtype` a float
dtype; `out_sharding` the spec of the result.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.dtypes import finfo, issubdtype
from ...ir.settings.context import config
from ...ir.values.array import Array
from .. import jnp, lax, sharding_notes
from ..jnp.indexing.searching import choose_where
from ..operands.dtype_promotion import convert
from ..operands.rank_promotion import broadcast_shapes, shape_of
from ..operands.shape_arguments import static_shape
from ..shardings.out_sharding import canonicalize_sharding
from ..staging.memoized import memoized
from .drawing import (
    Shape,
    check_castable,
    check_shape,
    draw,
    draw_numbers,
    sampled_dtype,
    sampled_shape,
    sampled_sharding,
)
from .keys import checked_key, split_off
from .uniform import plain_uniform, raw_bits, sample_rademacher

_ONE = np.float32(1)


# -- normal numbers --------------------------------------------------------------------------------

def sample_normal(key: Array, *, shape: Shape, dtype: np.dtype) -> Array:
    if not issubdtype(dtype, np.complexfloating):
        return _real_normal(key, shape, dtype)
    real_dtype = np.dtype(f"float{4 * dtype.itemsize}")
    re, im = (convert(_real_normal(k, shape, real_dtype), dtype) for k in split_off(key))
    return (re + 1j * im) / dtype.type(np.sqrt(2))


def _real_normal(key: Array, shape: Shape, dtype: np.dtype) -> Array:
    low = np.nextafter(np.array(-1, dtype), np.array(0, dtype), dtype=dtype)[()]
    u = plain_uniform(key, shape, dtype, low, dtype.type(1))
    return lax.mul(dtype.type(np.sqrt(2)), lax.erf_inv(u))


@sharding_notes.drawn
@memoized
def normal(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Samples from the standard normal distribution: mean 0, variance 1.

    key: a random key, used once. shape: of the result. dtype: a float or complex dtype, float32 by
    default. out_sharding: a PartitionSpec over Explicit axes. Raises ValueError for other dtypes.

    >>> x = st.random.normal(st.random.key(0), (1000,))
    >>> x.shape, bool(abs(x.mean()) < 0.1)
    ((1000,), True)
    """
    return draw_numbers("normal", sample_normal, key, shape, dtype, out_sharding,
                        kind="float or complex")


def sample_truncated_normal(key: Array, lower: Any, upper: Any, *, shape: Shape | None,
                            dtype: np.dtype) -> Array:
    """Normal numbers between bounds, by the inverse of the distribution function."""
    if shape is None:
        shape = broadcast_shapes(shape_of(lower), shape_of(upper))
    else:
        check_shape("truncated_normal", shape, shape_of(lower), shape_of(upper))
    sqrt2 = dtype.type(np.sqrt(2))
    lower, upper = (jnp.asarray(convert(x, dtype)) for x in (lower, upper))
    u = plain_uniform(key, shape, dtype, lax.erf(lower / sqrt2), lax.erf(upper / sqrt2))
    inside = (lax.nextafter(lax.stop_gradient(lower), dtype.type(np.inf)),
              lax.nextafter(lax.stop_gradient(upper), dtype.type(-np.inf)))
    return jnp.clip(sqrt2 * lax.erf_inv(u), *inside)


@sharding_notes.drawn
@memoized
def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None, *,
                     out_sharding: Any = None) -> Array:
    """Samples from the standard normal distribution, truncated to `lower` and `upper`.

    lower, upper: numbers, or arrays that broadcast to `shape`. key, dtype, out_sharding: as in
    `normal`.

    >>> x = st.random.truncated_normal(st.random.key(0), -2, 2, (1000,))
    >>> bool((abs(x) < 2).all())
    True
    """
    key, _ = checked_key("truncated_normal", key)
    shape = None if shape is None else static_shape(shape)
    sharding = canonicalize_sharding(out_sharding, "truncated_normal")
    dtype = sampled_dtype("truncated_normal", dtype)
    return draw(sample_truncated_normal, sharding, key, lower, upper, shape=shape, dtype=dtype)


def sample_lognormal(key: Array, sigma: Any, *, shape: Shape, dtype: np.dtype) -> Array:
    return lax.exp(sample_normal(key, shape=shape, dtype=dtype) * convert(sigma, dtype))


@memoized
def lognormal(key: Any, sigma: Any = _ONE, shape: Any = None, dtype: Any = None, *,
              out_sharding: Any = None) -> Array:
    """Samples from the log-normal distribution: exp(sigma * z) for normal z."""
    key, _ = checked_key("lognormal", key)
    dtype = sampled_dtype("lognormal", dtype, "float or complex")
    shape = sampled_shape("lognormal", shape, sigma)
    check_castable("lognormal", dtype, sigma)
    sharding = canonicalize_sharding(out_sharding, "lognormal")
    return draw(sample_lognormal, sharding, key, sigma, shape=shape, dtype=dtype)


def sample_maxwell(key: Array, *, shape: Shape, dtype: np.dtype) -> Array:
    z = sample_normal(key, shape=(*shape, 3), dtype=dtype)
    return lax.sqrt(lax.reduce_sum(z * z, (len(shape),)))


@sharding_notes.drawn
def maxwell(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Samples from the Maxwell distribution: lengths of vectors of three normal samples."""
    return draw_numbers("maxwell", sample_maxwell, key, shape, dtype, out_sharding)


def sample_double_sided_maxwell(key: Array, loc: Any, scale: Any, *, shape: Shape,
                                dtype: np.dtype) -> Array:
    parameters = broadcast_shapes(shape_of(loc), shape_of(scale))
    shape = (shape or parameters) + parameters
    size_key, sign_key = split_off(key)
    size = sample_maxwell(size_key, shape=shape, dtype=dtype)
    return sample_rademacher(sign_key, shape=shape, dtype=dtype) * size * scale + loc


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None
                         ) -> Array:
    """Samples from the Maxwell distribution with random sign, times scale, plus loc.

    The result's shape is `shape` (or that of the parameters), then that of the parameters.
    """
    key, _ = checked_key("double_sided_maxwell", key)
    dtype = sampled_dtype("double_sided_maxwell", dtype)
    return draw(sample_double_sided_maxwell, None, key, loc, scale, shape=static_shape(shape),
                dtype=dtype)


def sample_rayleigh(key: Array, scale: Any, *, shape: Shape, dtype: np.dtype) -> Array:
    u = plain_uniform(key, shape, dtype)
    scale = jnp.broadcast_to(convert(scale, dtype), shape)
    return lax.mul(scale, lax.sqrt(lax.mul(lax.log(u), dtype.type(-2))))


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None, *,
             out_sharding: Any = None) -> Array:
    """Samples from the Rayleigh distribution: scale * sqrt(-2 * log(u)) for uniform u."""
    return draw_numbers("rayleigh", sample_rayleigh, key, shape, dtype, out_sharding, scale)


def sample_wald(key: Array, mean: Any, *, shape: Shape, dtype: np.dtype) -> Array:
    """Wald (inverse Gaussian) numbers of scale 1: one of the two roots that a squared normal number
    has.
    """
    normal_key, uniform_key = split_off(key)
    mean = jnp.broadcast_to(convert(mean, dtype), shape)
    v = sample_normal(normal_key, shape=shape, dtype=dtype)
    z = plain_uniform(uniform_key, shape, dtype)
    y = lax.integer_pow(v, 2)
    square = lax.integer_pow(mean, 2)
    root = lax.sqrt(4 * mean * y + square * lax.integer_pow(y, 2))
    x = mean + square * y / 2 - mean / 2 * root
    return lax.select(lax.le(z, mean / (mean + x)), x, square / x)


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None, *,
         out_sharding: Any = None) -> Array:
    """Samples from the inverse Gaussian of this mean and scale 1 (Michael, Schucany, Haas 1976)."""
    key, _ = checked_key("wald", key)
    dtype = sampled_dtype("wald", dtype)
    shape = sampled_shape("wald", shape, mean)
    check_castable("wald", dtype, mean)
    sharding = canonicalize_sharding(out_sharding, "wald")
    return draw(sample_wald, sharding, key, mean, shape=shape, dtype=dtype)


# -- logarithms of uniform numbers -----------------------------------------------------------------

def sample_exponential(key: Array, *, shape: Shape, dtype: np.dtype) -> Array:
    return lax.neg(lax.log1p(lax.neg(plain_uniform(key, shape, dtype))))


@sharding_notes.drawn
@memoized
def exponential(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None
                ) -> Array:
    """Samples from the exponential distribution of rate 1."""
    return draw_numbers("exponential", sample_exponential, key, shape, dtype, out_sharding)


def sample_laplace(key: Array, *, shape: Shape, dtype: np.dtype) -> Array:
    low = dtype.type(-1.0 + float(finfo(dtype).epsneg))
    u = plain_uniform(key, shape, dtype, low, dtype.type(1))
    return lax.mul(lax.sign(u), lax.log1p(lax.neg(lax.abs(u))))


@sharding_notes.drawn
@memoized
def laplace(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Samples from the Laplace distribution of scale 1: exponential on both sides of 0."""
    return draw_numbers("laplace", sample_laplace, key, shape, dtype, out_sharding)


def sample_logistic(key: Array, *, shape: Shape, dtype: np.dtype) -> Array:
    u = plain_uniform(key, shape, dtype, dtype.type(finfo(dtype).tiny), dtype.type(1))
    return lax.sub(lax.log(u), lax.log1p(lax.neg(u)))


@sharding_notes.drawn
@memoized
def logistic(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Samples from the logistic distribution: log(u / (1 - u)) for uniform u."""
    return draw_numbers("logistic", sample_logistic, key, shape, dtype, out_sharding)


def sample_cauchy(key: Array, *, shape: Shape, dtype: np.dtype) -> Array:
    u = plain_uniform(key, shape, dtype, dtype.type(finfo(dtype).eps), dtype.type(1))
    return lax.tan(lax.mul(dtype.type(np.pi), lax.sub(u, dtype.type(0.5))))


@sharding_notes.drawn
@memoized
def cauchy(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Samples from the Cauchy distribution: tan(pi * (u - 1/2)) for uniform u."""
    return draw_numbers("cauchy", sample_cauchy, key, shape, dtype, out_sharding)


def sample_pareto(key: Array, b: Any, *, shape: Shape, dtype: np.dtype) -> Array:
    return lax.exp(sample_exponential(key, shape=shape, dtype=dtype) / convert(b, dtype))


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None, *,
           out_sharding: Any = None) -> Array:
    """Samples from the Pareto distribution of shape parameter b; all are at least 1."""
    return draw_numbers("pareto", sample_pareto, key, shape, dtype, out_sharding, b)


def sample_weibull_min(key: Array, scale: Any, concentration: Any, *, shape: Shape,
                       dtype: np.dtype) -> Array:
    u = plain_uniform(key, shape, dtype)
    return jnp.power(-lax.log1p(-u), jnp.divide(1.0, concentration)) * scale


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None
                ) -> Array:
    """Samples from the Weibull distribution: scale * (-log(1 - u)) ** (1 / concentration)."""
    key, _ = checked_key("weibull_min", key)
    dtype = sampled_dtype("weibull_min", dtype)
    return draw(sample_weibull_min, None, key, scale, concentration, shape=static_shape(shape),
                dtype=dtype)


def sample_triangular(key: Array, left: Any, mode: Any, right: Any, *, shape: Shape,
                      dtype: np.dtype) -> Array:
    left, mode, right = (jnp.broadcast_to(convert(x, dtype), shape) for x in (left, mode, right))
    split_at = (mode - left) / (right - left)
    u = plain_uniform(key, shape, dtype)
    rising = left + lax.sqrt(u * (right - left) * (mode - left))
    falling = right - lax.sqrt((1 - u) * (right - left) * (right - mode))
    return lax.select(u < split_at, rising, falling)


def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None, *,
               out_sharding: Any = None) -> Array:
    """Samples in [left, right] whose density rises linearly to `mode` and falls from there."""
    return draw_numbers("triangular", sample_triangular, key, shape, dtype, out_sharding,
                        left, mode, right)


# -- Gumbel numbers --------------------------------------------------------------------------------

def sample_gumbel(key: Array, *, shape: Shape, dtype: np.dtype, mode: str) -> Array:
    """-log(-log(u)), with more bits of u near 1 as `mode` says."""
    tiny = dtype.type(finfo(dtype).tiny)
    if mode == "low":
        return -lax.log(-lax.log(plain_uniform(key, shape, dtype, tiny, dtype.type(1))))
    if mode == "highest" and dtype == np.float32:
        return _finest_gumbel(key, shape)
    both = plain_uniform(key, (2, *shape), dtype)
    high, low = (lax.index_in_dim(both, i, keepdims=False) for i in (0, 1))
    x = choose_where(high >= 0.5, high, high + 2 ** (-finfo(dtype).nmant) * low + tiny)
    return -lax.log(-lax.log1p(-x))


def _finest_gumbel(key: Array, shape: Shape) -> Array:
    """From 64 bits an element: both tails are as fine as float32 goes."""
    u32 = np.uint32
    words = raw_bits(key, 32, (2, *shape))
    high, low = (lax.index_in_dim(words, i, keepdims=False) for i in (0, 1))
    below_half = high < u32(1 << 31)
    # The two's complement of the 64 bits: 1 - x of a number above one half.
    negated_low = lax.bitwise_not(low)
    negated_high = lax.bitwise_not(high) + convert(lax.eq(negated_low, u32(0xFFFFFFFF)), u32)
    x = _fraction_of_words(choose_where(below_half, high, negated_high),
                           choose_where(below_half, low, negated_low + u32(1)))
    return choose_where(below_half, -lax.log(-lax.log1p(-x)), -lax.log(-lax.log(x)))


def _fraction_of_words(high: Array, low: Array) -> Array:
    """The float32 number (high * 2**32 + low) / 2**64, cut off rather than rounded."""
    u32, info = np.uint32, finfo(np.float32)
    high_zeros, low_zeros = lax.clz(high), lax.clz(low)
    no_high = lax.eq(high_zeros, u32(32))
    carried = choose_where(no_high, lax.shift_left(low, low_zeros),
                           lax.shift_right_logical(low, u32(32) - high_zeros))
    mantissa = lax.shift_right_logical(lax.bitwise_or(lax.shift_left(high, high_zeros), carried),
                                       u32(32 - info.nmant - 1))
    mantissa = lax.bitwise_and(mantissa, u32((1 << info.nmant) - 1))
    zeros = choose_where(no_high, u32(32) + low_zeros, high_zeros)
    exponent = lax.shift_left(u32(-info.minexp) - zeros, u32(info.nmant))
    exponent = lax.bitwise_and(exponent, u32((1 << 30) - (1 << (info.nmant - 1))))
    return lax.bitcast_convert_type(lax.bitwise_or(exponent, mantissa), np.float32)


@sharding_notes.drawn
@memoized
def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None, *,
           out_sharding: Any = None) -> Array:
    """Samples from the Gumbel distribution: -log(-log u) for uniform u.

    mode: "low" (default), "high" or "highest", how fine u is near 1, where large ones come from.
    """
    key, _ = checked_key("gumbel", key)
    dtype = sampled_dtype("gumbel", dtype)
    shape = static_shape(shape)
    mode = gumbel_mode(mode)
    sharding = sampled_sharding("gumbel", out_sharding, shape)
    return draw(sample_gumbel, sharding, key, shape=shape, dtype=dtype, mode=mode)


def gumbel_mode(mode: str | None) -> str:
    """The mode asked for, that of the setting for None. Raises ValueError for unknown ones."""
    if mode is None:
        return "high" if config.read("jax_high_dynamic_range_gumbel") else "low"
    if mode not in ("highest", "high", "low"):
        raise ValueError(f"Must provide valid mode for gumbel got: {mode}")
    return mode
