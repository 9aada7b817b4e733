"""Numbers that come straight from bits: bits, uniform, randint, bernoulli, rademacher.

Each is the computation of `jax.random` (0.10.2) step by step, which is what makes the numbers equal
to the last bit. The functions `sample_...` are the samplers proper, for typed keys.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.dtypes import default_dtype, finfo, iinfo, issubdtype
from ...ir.ops.random.primitives import random_bits_p, random_unwrap_p
from ...ir.settings.context import x64_enabled
from ...ir.values.array import Array
from .. import jnp, lax, sharding_notes
from ..jnp.indexing.searching import choose_where
from ..operands.dtype_promotion import convert, dtype_name, user_dtype
from ..operands.rank_promotion import shape_of
from ..operands.scalars import float_default, int_default
from ..operands.shape_arguments import static_shape
from ..shardings.out_sharding import canonicalize_sharding
from ..staging.memoized import memoized
from .drawing import Shape, check_shape, draw, sampled_sharding
from .keys import checked_key, hashing, split_off
from .user_generators import own_impl


def raw_bits(key: Array, bit_width: int, shape: Shape) -> Array:
    """Random bits of a typed key as unsigned integers of this width."""
    own = own_impl(key.aval.dtype)
    if own is not None:
        return own.random_bits(random_unwrap_p.bind(key), bit_width, shape)
    return random_bits_p.bind(key, bit_width=bit_width, shape=shape, **hashing(key))


def sample_bits(key: Array, *, shape: Shape, dtype: np.dtype) -> Array:
    return raw_bits(key, 8 * dtype.itemsize, shape)


@sharding_notes.drawn
@memoized
def bits(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Random bits: unsigned integers of `dtype` (default uint32), all values equally likely."""
    key, _ = checked_key("bits", key)
    dtype = default_dtype("u", x64_enabled()) if dtype is None else user_dtype(dtype, "bits")
    if not issubdtype(dtype, np.unsignedinteger):
        raise ValueError(f"dtype argument to `bits` must be an unsigned int dtype, got {dtype}")
    shape = static_shape(shape)
    return draw(sample_bits, sampled_sharding("bits", out_sharding, shape), key, shape=shape,
                dtype=dtype)


# -- floats ----------------------------------------------------------------------------------------

def sample_uniform(key: Array, minval: Any, maxval: Any, *, shape: Shape, dtype: np.dtype) -> Array:
    low = lax.broadcast_to_rank(convert(minval, dtype), len(shape))
    high = lax.broadcast_to_rank(convert(maxval, dtype), len(shape))
    fraction = _unit_fraction(key, shape, dtype)
    return lax.max(low, lax.reshape(fraction * (high - low) + low, shape))


def _unit_fraction(key: Array, shape: Shape, dtype: np.dtype) -> Array:
    """Numbers in [0, 1): random bits as mantissas of numbers in [1, 2), minus 1."""
    info = finfo(dtype)
    if info.bits not in (8, 16, 32, 64):
        raise TypeError(f"uniform only accepts 8-, 16-, 32-, or 64-bit dtypes, got {dtype}.")
    width = info.bits if info.nmant >= 8 else 8
    unsigned = np.dtype(f"uint{info.bits}")
    drawn = convert(raw_bits(key, width, shape), unsigned)
    mantissa = lax.shift_right_logical(drawn, unsigned.type(width - info.nmant))
    one = np.ones((), dtype).view(unsigned)[()]
    return lax.bitcast_convert_type(lax.bitwise_or(mantissa, one), dtype) - dtype.type(1)


@sharding_notes.drawn
@memoized
def uniform(key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0, *,
            out_sharding: Any = None) -> Array:
    """Samples from the uniform distribution over [minval, maxval).

    key: a random key, used once. shape: of the result. dtype: a float dtype, float32 by default.
    minval, maxval: numbers, or arrays that broadcast to the shape. out_sharding: a PartitionSpec
    over Explicit axes. Raises ValueError for other dtypes.

    >>> x = st.random.uniform(st.random.key(0), (1000,), minval=-1, maxval=1)
    >>> bool((x >= -1).all() & (x < 1).all())
    True
    >>> mesh = st.make_mesh((8,), ("x",), axis_types=(st.sharding.AxisType.Explicit,))
    >>> with st.set_mesh(mesh):
    ...     st.typeof(st.random.uniform(st.random.key(0), (16, 4), out_sharding=P("x")))
    ShapedArray(float32[16@x,4])
    """
    key, _ = checked_key("uniform", key)
    dtype = float_default() if dtype is None else user_dtype(dtype, "uniform")
    shape = static_shape(shape)
    sharding = sampled_sharding("uniform", out_sharding, shape)
    if not issubdtype(dtype, np.floating):
        raise ValueError(f"dtype argument to `uniform` must be a float dtype, got {dtype}")
    return draw(sample_uniform, sharding, key, minval, maxval, shape=shape, dtype=dtype)


def plain_uniform(key: Array, shape: Shape, dtype: np.dtype, minval: Any = 0.0,
                  maxval: Any = 1.0) -> Array:
    """`uniform` inside another sampler."""
    return sample_uniform(key, minval, maxval, shape=shape, dtype=dtype)


# -- integers --------------------------------------------------------------------------------------

def _clipped(x: Any, dtype: np.dtype) -> Any:
    """The integers `x` cut to the range of `dtype`, in that dtype."""
    own = dtype_name(x)
    low = max(int(iinfo(dtype).min), int(iinfo(own).min))
    high = min(int(iinfo(dtype).max), int(iinfo(own).max))
    return convert(lax.min(own.type(high), lax.max(x, own.type(low))), dtype)


def _as_integers(x: Any) -> Array:
    x = jnp.asarray(x)
    return x if issubdtype(x.dtype, np.integer) else x.astype(int_default())


def sample_randint(key: Array, minval: Any, maxval: Any, *, shape: Shape, dtype: np.dtype) -> Array:
    """Integers in [minval, maxval), from two draws of bits modulo the span."""
    check_shape("randint", shape, shape_of(minval), shape_of(maxval))
    low, high = _as_integers(minval), _as_integers(maxval)
    beyond = lax.gt(high, _clipped(jnp.asarray(dtype.type(iinfo(dtype).max)), high.dtype))
    low = lax.broadcast_to_rank(_clipped(low, dtype), len(shape))
    high = lax.broadcast_to_rank(_clipped(high, dtype), len(shape))
    width = int(iinfo(dtype).bits)
    unsigned = np.dtype(f"uint{width}")
    # Two draws, because one modulo a span that does not divide 2**width is visibly uneven.
    upper, lower = (raw_bits(k, width, shape) for k in split_off(key))
    span = convert(high - low, unsigned)
    span = choose_where(high <= low, unsigned.type(1), span)
    span = choose_where(beyond & (high > low), lax.add(span, unsigned.type(1)), span)
    factor = lax.rem(unsigned.type(2 ** (width // 2)), span)
    factor = lax.rem(lax.mul(factor, factor), span)
    offset = lax.add(lax.mul(lax.rem(upper, span), factor), lax.rem(lower, span))
    return lax.add(low, convert(lax.rem(offset, span), dtype))


@sharding_notes.drawn
@memoized
def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None, *,
            out_sharding: Any = None) -> Array:
    """Integers from `minval` to `maxval`, which is not included, all about equally likely.

    key: a random key, used once. shape: of the result. dtype: int32 by default. Where the range is
    empty the result is minval. Raises TypeError for dtypes that are not of integers.

    >>> x = st.random.randint(st.random.key(0), (100,), 0, 10)
    >>> x.dtype, bool((x >= 0).all() & (x < 10).all())
    (dtype('int32'), True)
    """
    key, _ = checked_key("randint", key)
    dtype = int_default() if dtype is None else user_dtype(dtype, "randint")
    shape = static_shape(shape)
    sharding = sampled_sharding("randint", out_sharding, shape)
    if not issubdtype(dtype, np.integer):
        raise TypeError(f"randint only accepts integer dtypes, got {dtype}")
    info, drawn = iinfo(dtype), dtype
    if info.bits < 32:
        drawn = np.dtype(np.int32)
        minval = jnp.clip(jnp.asarray(minval).astype(drawn), int(info.min), int(info.max))
        maxval = jnp.clip(jnp.asarray(maxval).astype(drawn), int(info.min), int(info.max) + 1)
    out = draw(sample_randint, sharding, key, minval, maxval, shape=shape, dtype=drawn)
    return convert(out, dtype)


# -- two values ------------------------------------------------------------------------------------

def sample_bernoulli(key: Array, p: Any, *, shape: Shape | None, mode: str) -> Array:
    """Whether a uniform number is below p, of twice as many bits unless `mode` is "low"."""
    if shape is None:
        shape = tuple(shape_of(p))
    else:
        check_shape("bernoulli", shape, shape_of(p))
    dtype = dtype_name(p)
    if mode == "low":
        return plain_uniform(key, shape, dtype) < p
    both = plain_uniform(key, (2, *shape), dtype)
    first, second = (lax.index_in_dim(both, i, keepdims=False) for i in (0, 1))
    return second * 2 ** (-finfo(dtype).nmant) < p - first


@sharding_notes.drawn
@memoized
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *,
              out_sharding: Any = None) -> Array:
    """Booleans that are True with probability `p`.

    p: a number, or an array, whose shape is the default of `shape`; then the result is split as p
    is.
    mode: "high" also gets probabilities below 1e-7 right.

    >>> st.random.bernoulli(st.random.key(0), jnp.array([0.0, 1.0]))
    Array([False,  True], dtype=bool)
    """
    if shape is not None:
        shape = static_shape(shape)
    if mode not in ("high", "low"):
        raise ValueError(f"got mode={mode!r}, expected 'high' or 'low'")
    key, _ = checked_key("bernoulli", key)
    sharding = canonicalize_sharding(out_sharding, "bernoulli")
    dtype = dtype_name(p)
    if not issubdtype(dtype, np.floating):
        raise TypeError("bernoulli probability `p` must have a floating dtype, got "
                        f"{dtype}.")
    return draw(sample_bernoulli, sharding, key, convert(p, dtype), shape=shape, mode=mode)


def sample_rademacher(key: Array, *, shape: Shape, dtype: np.dtype) -> Array:
    heads = sample_bernoulli(key, float_default().type(0.5), shape=shape, mode="low")
    return convert(2 * convert(heads, dtype) - 1, dtype)


@sharding_notes.drawn
@memoized
def rademacher(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """The numbers -1 and 1, equally likely, of `dtype` (int32 by default)."""
    key, _ = checked_key("rademacher", key)
    dtype = int_default() if dtype is None else user_dtype(dtype, "rademacher")
    shape = static_shape(shape)
    sharding = sampled_sharding("rademacher", out_sharding, shape)
    return draw(sample_rademacher, sharding, key, shape=shape, dtype=dtype)
