"""Counts drawn in loops: poisson, binomial, multinomial.

Each round draws for the whole array and keeps what was accepted, until every element is done; so
the numbers depend on the shape of the array, as in `jax.random` (0.10.2), whose rounds these are.

Sources: Knuth, The Art of Computer Programming 2, 3.4.1 (products of uniform numbers); Hörmann,
"The Transformed Rejection Method for Generating Poisson Random Variables" and "The Generation of
Binomial Random Variates", 1993.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.dtypes import finfo, iinfo
from ...ir.values.array import Array
from .. import jnp, lax
from ..jnp.indexing.searching import choose_where
from ..operands.dtype_promotion import check_arraylike, convert, promote_dtypes_inexact, user_dtype
from ..operands.rank_promotion import broadcast_shapes, shape_of
from ..operands.scalars import int_default
from ..operands.shape_arguments import static_shape
from .drawing import Shape, check_shape, draw, sampled_dtype, sampled_sharding
from .keys import checked_key, split_keys, split_off
from .uniform import plain_uniform

_F32 = np.dtype(np.float32)
_START = np.int32(0)


def _by_rejection(key: Array, like: Array, dtype: np.dtype, rounds: Any,
                  propose: Callable[[Array, Array, Array], tuple[Array, Array]]) -> Array:
    """Hörmann's transformed rejection, in the shape and dtype of `like`, then as `dtype`.

    propose(u, us, v): numbers, and which of them are accepted, for u uniform in [-1/2, 1/2), us its
    distance from the nearer end, and v uniform in [0, 1).
    """
    def more(carry: Any) -> Any:
        i, _, accepted, _ = carry
        return jnp.any(~accepted) & (i < rounds)

    def body(carry: Any) -> Any:
        i, out, accepted, key = carry
        key, u_key, v_key = split_off(key, 3)
        u = plain_uniform(u_key, like.shape, like.dtype) - 0.5
        v = plain_uniform(v_key, like.shape, like.dtype)
        k, accept = propose(u, 0.5 - lax.abs(u), v)
        return i + 1, lax.select(accept, k, out), accepted | accept, key

    carry = (_START, lax.full_like(like, -1), lax.full_like(like, False, np.dtype(bool)), key)
    return convert(lax.while_loop(more, body, carry)[1], dtype)


# -- poisson ---------------------------------------------------------------------------------------

def _poisson_by_products(key: Array, rate: Array, dtype: np.dtype, rounds: Any) -> Array:
    """For small rates: how many uniform numbers multiply to less than exp(-rate)."""
    def more(carry: Any) -> Any:
        i, _, _, log_product = carry
        return jnp.any(log_product > -rate) & (i < rounds)

    def body(carry: Any) -> Any:
        i, k, key, log_product = carry
        key, subkey = split_off(key)
        k = lax.select(log_product > -rate, k + 1, k)
        u = plain_uniform(subkey, rate.shape, _F32)
        return i + 1, k, key, log_product + lax.log(u)

    carry = (_START, lax.full_like(rate, 0, dtype), key, lax.full_like(rate, 0, _F32))
    return convert(lax.while_loop(more, body, carry)[1] - 1, dtype)


def _poisson_by_rejection(key: Array, rate: Array, dtype: np.dtype, rounds: Any) -> Array:
    """For large rates: Hörmann's algorithm PTRS."""
    log_rate = lax.log(rate)
    b = 0.931 + 2.53 * lax.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def propose(u: Array, us: Array, v: Array) -> tuple[Array, Array]:
        k = lax.floor((2 * a / us + b) * u + rate + 0.43)
        s = lax.log(v * inverse_alpha / (a / (us * us) + b))
        t = -rate + k * log_rate - lax.lgamma(k + 1)
        quick = (us >= 0.07) & (v <= v_r)
        reject = (k < 0) | ((us < 0.013) & (v > us))
        return k, quick | (~reject & (s <= t))

    return _by_rejection(key, rate, dtype, rounds, propose)


def sample_poisson(key: Array, rate: Array, *, dtype: np.dtype) -> Array:
    small = lax.ne(rate, rate) | (rate < 10)
    rounds = dtype.type(iinfo(dtype).max)
    # Where the other method is used, a rate at which this one ends soon.
    products = _poisson_by_products(key, choose_where(small, rate, 0.0), dtype, rounds)
    rejection = _poisson_by_rejection(key, choose_where(small, 1e5, rate), dtype, rounds)
    return choose_where(rate == 0, 0, lax.select(small, products, rejection))


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
            ) -> Array:
    """Samples from the Poisson distribution of rate `lam`, as integers.

    lam: a number, or an array, whose shape is the default of `shape`. dtype: int32 by default.

    >>> bool((st.random.poisson(st.random.key(0), 3.0, (100,)) >= 0).all())
    True
    """
    key, _ = checked_key("poisson", key)
    dtype = int_default() if dtype is None else user_dtype(dtype, "poisson")
    shape = tuple(shape_of(lam)) if shape is None else static_shape(shape)
    sharding = sampled_sharding("poisson", out_sharding, shape)
    rate = convert(jnp.broadcast_to(lam, shape), _F32)
    return draw(sample_poisson, sharding, key, rate, dtype=dtype)


# -- binomial --------------------------------------------------------------------------------------

# log k! minus Stirling's approximation of it, for k = 0 ... 9.
_STIRLING_TAIL = (0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
                  0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.010411265261972,
                  0.00925546218271273, 0.00833056343336287)


def _stirling_tail(k: Array) -> Array:
    clamped = lax.clamp(k.dtype.type(0), k, k.dtype.type(9))
    square = (clamped + 1) * (clamped + 1)
    approximate = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (clamped + 1)
    exact = lax.select_n(convert(lax.floor(clamped), np.dtype(np.int32)),
                         *(lax.full_like(k, value) for value in _STIRLING_TAIL))
    return lax.select(k <= 9, exact, approximate)


def _binomial_by_gaps(key: Array, count: Array, p: Array, dtype: np.dtype, rounds: Any) -> Array:
    """For few expected successes: geometric gaps between them until `count` trials are over."""
    log_failure = lax.log1p(-p)

    def more(carry: Any) -> Any:
        i, _, trials, _ = carry
        return jnp.any(trials <= count) & (i < rounds)

    def body(carry: Any) -> Any:
        i, successes, trials, key = carry
        subkey, key = split_off(key)
        successes = lax.select(trials <= count, successes + 1, successes)
        gap = lax.ceil(lax.log(plain_uniform(subkey, p.shape, p.dtype)) / log_failure)
        return i + 1, successes, trials + gap, key

    carry = (_START, lax.full_like(p, 0), lax.full_like(p, 0), key)
    return convert(lax.while_loop(more, body, carry)[1] - 1, dtype)


def _binomial_by_rejection(key: Array, count: Array, p: Array, dtype: np.dtype, rounds: Any
                           ) -> Array:
    """For many expected successes: Hörmann's algorithm BTRS."""
    deviation = lax.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = count * p + 0.5
    v_r = 0.92 - 4.2 / b
    odds = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    m = lax.floor((count + 1) * p)

    def propose(u: Array, us: Array, v: Array) -> tuple[Array, Array]:
        quick = (us >= 0.07) & (v <= v_r)
        k = lax.floor((2 * a / us + b) * u + c)
        reject = (k < 0) | (k > count)
        v = lax.log(v * alpha / (a / (us * us) + b))
        bound = ((m + 0.5) * lax.log((m + 1) / (odds * (count - m + 1)))
                 + (count + 1) * lax.log((count - m + 1) / (count - k + 1))
                 + (k + 0.5) * lax.log(odds * (count - k + 1) / (k + 1))
                 + _stirling_tail(m) + _stirling_tail(count - m)
                 - _stirling_tail(k) - _stirling_tail(count - k))
        return k, quick | (~reject & (v <= bound))

    return _by_rejection(key, p, dtype, rounds, propose)


def sample_binomial(key: Array, count: Any, p: Any, *, shape: Shape | None, dtype: np.dtype
                    ) -> Array:
    """Binomial counts: where few successes are expected, by the gaps between them, elsewhere by
    rejection. Of p and 1 - p the smaller is drawn with.
    """
    if shape is None:
        shape = broadcast_shapes(shape_of(count), shape_of(p))
    else:
        check_shape("binomial", shape, shape_of(count), shape_of(p))
    p, = promote_dtypes_inexact(jnp.asarray(p))
    count = jnp.broadcast_to(convert(count, p.dtype), shape)
    p = jnp.broadcast_to(p, shape)
    below_half = p < 0.5
    q = lax.select(below_half, p, 1.0 - p)       # successes or failures, whichever are fewer
    no_count = lax.ne(count, count) | (count < 0.0)
    infinite = lax.eq(count, count.dtype.type(np.inf))
    no_p, negative = lax.ne(q, q), q < 0.0
    q = choose_where(no_p | negative, 0.01, q)
    few = no_count | (count * q <= 10.0)
    count = lax.floor(count)
    rounds = dtype.type(finfo(dtype).max)
    by_gaps = _binomial_by_gaps(key, choose_where(few, count, 0.0), q, dtype, rounds)
    by_rejection = _binomial_by_rejection(key, choose_where(few, 1e4, count),
                                          choose_where(few, 0.5, q), dtype, rounds)
    out = lax.select(few, by_gaps, by_rejection)
    invalid = negative | no_p | no_count
    out = choose_where(invalid, dtype.type(np.nan), out)
    out = choose_where(infinite & ~invalid, dtype.type(np.inf), out)
    return lax.select(below_half | no_count | no_p | infinite, out, convert(count, dtype) - out)


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Samples from the binomial distribution: successes in n trials of probability p, as floats."""
    key, _ = checked_key("binomial", key)
    check_arraylike("binomial", n, p)
    dtype = sampled_dtype("binomial", dtype)
    shape = None if shape is None else static_shape(shape)
    return draw(sample_binomial, None, key, n, p, shape=shape, dtype=dtype)


def sample_multinomial(key: Array, n: Any, p: Any, *, shape: Shape, dtype: np.dtype | None,
                       unroll: Any) -> Array:
    """Counts of categories, one after the other: binomial in what is left, with the category's
    share of the remaining probability.
    """
    n, p = promote_dtypes_inexact(n, p)
    n, p = jnp.broadcast_to(n, shape[:-1]), jnp.broadcast_to(p, shape)

    def one(left: Any, category: Any) -> Any:
        ratio, key = category
        count = sample_binomial(key, left, jnp.clip(ratio, 0, 1), shape=None, dtype=left.dtype)
        return left - count, count

    p = jnp.moveaxis(p, -1, 0)
    remaining = lax.cumsum(p, 0, reverse=True)
    ratios = p / choose_where(remaining == 0, 1, remaining)
    keys = split_keys(key, ratios.shape[0])
    counts = jnp.moveaxis(lax.scan(one, n, (ratios, keys), unroll=unroll)[1], 0, -1)
    return counts if dtype is None else convert(counts, dtype)


def multinomial(key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None,
                unroll: int | bool = 1) -> Array:
    """How often each category comes up in n draws. p: [..., k] probabilities; n: [...]."""
    key, _ = checked_key("multinomial", key)
    check_arraylike("multinomial", n, p)
    shape = tuple(shape_of(p)) if shape is None else static_shape(shape)
    dtype = None if dtype is None else user_dtype(dtype, "multinomial")
    return draw(sample_multinomial, None, key, n, p, shape=shape, dtype=dtype, unroll=unroll)
