"""Choices and counts: categorical, choice, permutation, geometric.

Computations are those of `jax.random` (0.10.2). Shuffling sorts by random numbers, drawing without
replacement takes the largest of perturbed scores: no data-dependent shapes.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.values.array import Array
from .. import jnp, lax, sharding_notes
from ..jnp.indexing.searching import choose_where
from ..operands.dtype_promotion import check_arraylike, convert, dtype_name, promote_dtypes_inexact
from ..operands.rank_promotion import shape_of
from ..operands.scalars import int_default
from ..operands.shape_arguments import canonical_axis, static_shape
from ..shardings.out_sharding import canonicalize_sharding
from ..staging.memoized import memoized
from .continuous import gumbel, gumbel_mode, sample_gumbel
from .drawing import Shape, check_shape, draw, sampled_dtype, sampled_shape, sampled_sharding
from .keys import checked_key, split_off
from .uniform import plain_uniform, randint, raw_bits, uniform

# -- categorical -----------------------------------------------------------------------------------


def sample_categorical(key: Array, logits: Array, *, shape: Shape, batch_shape: Shape, axis: int,
                       replace: bool, mode: str | None) -> Array:
    """Categories by the Gumbel trick: the argmax of perturbed logits; without replacement, as many
    of the largest as are drawn.
    """
    dtype = logits.dtype
    if not issubdtype(dtype, np.floating):
        raise ValueError(f"dtype argument to `gumbel` must be a float dtype, got {dtype}")
    mode = gumbel_mode(mode)
    front = shape[:len(shape) - len(batch_shape)]
    axis -= logits.ndim                             # counted from the end: front dims may be added
    if replace:
        sizes = list(shape[len(front):])
        sizes.insert(axis % logits.ndim, logits.shape[axis])
        noise = sample_gumbel(key, shape=(*front, *sizes), dtype=dtype, mode=mode)
        return jnp.argmax(noise + lax.expand_dims(logits, tuple(range(len(front)))), axis=axis)
    scores = logits + sample_gumbel(key, shape=logits.shape, dtype=dtype, mode=mode)
    count = math.prod(front)
    if count > logits.shape[axis]:
        raise ValueError(f"Number of samples without replacement ({count}) cannot exceed number of "
                         f"categories ({logits.shape[axis]}).")
    index = lax.top_k(jnp.moveaxis(scores, axis, -1), count)[1]
    return lax.reshape(index, shape, (index.ndim - 1, *range(index.ndim - 1)))


@sharding_notes.drawn
@memoized
def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True,
                mode: str | None = None, *, out_sharding: Any = None) -> Array:
    """Indices of categories, drawn with probabilities proportional to exp(logits) along `axis`.

    logits: not normalized; its other dimensions are the default of `shape`, which must end in them,
    and the result is split as they are. replace: False draws different categories along the leading
    dimensions of shape. mode: how fine the random numbers are, as for `gumbel`.

    >>> st.random.categorical(st.random.key(0), jnp.array([[0.0, -jnp.inf], [-jnp.inf, 0.0]]))
    Array([0, 1], dtype=int32)
    """
    key, _ = checked_key("categorical", key)
    check_arraylike("categorical", logits)
    logits = jnp.asarray(logits)
    axis = canonical_axis(axis, logits.ndim)
    batch_shape = logits.shape[:axis] + logits.shape[axis + 1:]
    if shape is None:
        shape = batch_shape
    else:
        shape = static_shape(shape)
        check_shape("categorical", shape, batch_shape)
    sharding = canonicalize_sharding(out_sharding, "categorical")
    return draw(sample_categorical, sharding, key, logits, shape=shape, batch_shape=batch_shape,
                axis=axis, replace=replace, mode=mode)


# -- order and choice ------------------------------------------------------------------------------

def _shuffle(key: Array, x: Array, axis: int) -> Array:
    # Sorting by 32 random bits leaves ties; enough rounds make them unlikely to matter.
    rounds = math.ceil(3 * np.log(max(1, x.size)) / np.log(np.iinfo(np.uint32).max))
    for _ in range(rounds):
        key, subkey = split_off(key)
        x = lax.sort_key_val(raw_bits(subkey, 32, x.shape), x, axis)[1]
    return x


def sample_permuted_range(key: Array, *, size: int, dtype: np.dtype) -> Array:
    return _shuffle(key, lax.iota(dtype, size), 0)


def sample_permutation(key: Array, x: Array, *, axis: int, independent: bool) -> Array:
    if independent or x.ndim == 1:
        return _shuffle(key, x, axis)
    order = _shuffle(key, lax.iota(int_default(), x.shape[axis]), 0)
    return jnp.take(x, order, axis, unique_indices=True)


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False, *,
                out_sharding: Any = None) -> Array:
    """The slices of `x` along `axis` in random order; or, of an integer, the numbers below it.

    independent: each line along `axis` gets an order of its own.

    Sharding
      Auto: a split `axis` is gathered; the other dimensions stay split.
      Explicit: a split `axis` raises ShardingTypeError; `reshard` first. `out_sharding` places the
        result.
      Manual: reorders each device's block, by the same order if the keys are the same.

    >>> x = st.random.permutation(st.random.key(0), 5)
    >>> jnp.sort(x)
    Array([0, 1, 2, 3, 4], dtype=int32)
    """
    key, _ = checked_key("permutation", key)
    check_arraylike("permutation", x)
    shape = shape_of(x)
    axis = canonical_axis(axis, len(shape) or 1)
    sharding = canonicalize_sharding(out_sharding, "permutation")
    if shape:
        return draw(sample_permutation, sharding, key, jnp.asarray(x), axis=axis,
                    independent=independent)
    if not issubdtype(dtype_name(x), np.integer):
        raise TypeError("x must be an integer or at least 1-dimensional")
    return draw(sample_permuted_range, sharding, key, size=int(x), dtype=int_default())


def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0,
           mode: str | None = None) -> Array:
    """Elements of `a` along `axis`, drawn at random; or numbers below an integer `a`.

    shape: of what is drawn, in place of the dimension. replace: whether one can be drawn twice. p:
    probabilities, one an element; by default all are equal. mode: as for `gumbel`.
    Raises ValueError where more are to be drawn without replacement than there are.

    Sharding
      Auto: the drawn elements are fetched from the devices that hold them.
      Explicit: `a` must be whole along `axis`, else ShardingTypeError; the others stay split.
      Manual: draws from each device's block.

    >>> x = st.random.choice(st.random.key(0), 5, (3,), replace=False)
    >>> x.shape, len(set(x.tolist()))
    ((3,), 3)
    """
    key, _ = checked_key("choice", key)
    if not isinstance(shape, Sequence):
        raise TypeError("shape argument of jax.random.choice must be a sequence, got "
                        f"{shape}")
    check_arraylike("choice", a)
    arr = jnp.asarray(a)
    axis = canonical_axis(axis, arr.ndim) if arr.ndim else axis
    size = arr.shape[axis] if arr.ndim else int(a)
    count = math.prod(shape)
    if count == 0:
        return jnp.zeros(shape, dtype=arr.dtype)
    if size <= 0:
        raise ValueError("a must be greater than 0 unless no samples are taken")
    if not replace and count > size:
        raise ValueError(f"Cannot take a larger sample (size {count}) than population (size "
                         f"{size}) when 'replace=False'")
    if p is None and not replace:
        order = permutation(key, arr if arr.ndim else size, axis)
        result = lax.slice_in_dim(order, 0, count, axis=axis if arr.ndim else 0)
    else:
        index = _choice_index(key, size, tuple(shape), replace, p, mode)
        result = jnp.take(arr, index, axis) if arr.ndim else index
    if not arr.ndim:
        return lax.reshape(result, tuple(shape))
    return lax.reshape(result, arr.shape[:axis] + tuple(shape) + arr.shape[axis + 1:])


def _choice_index(key: Array, size: int, shape: Shape, replace: bool, p: Any, mode: str | None
                  ) -> Array:
    """Positions of `size` elements, uniform or with probabilities p: by search in cumulated ones,
    or, without replacement, the largest of perturbed scores.
    """
    if p is None:
        return randint(key, shape, 0, size)
    check_arraylike("choice", p)
    p = jnp.asarray(promote_dtypes_inexact(p)[0])
    if p.shape != (size,):
        raise ValueError("p must be None or a 1D vector with the same size as a.shape[axis]. p has "
                         f"shape {p.shape} and a.shape[axis] is {size}.")
    if replace:
        edges = jnp.cumsum(p)
        total = lax.index_in_dim(edges, size - 1, keepdims=False)
        at = total * (1 - uniform(key, shape, dtype=edges.dtype))
        return convert(jnp.searchsorted(edges, at), int_default())
    scores = gumbel(key, (size,), dtype=p.dtype, mode=mode) + lax.log(p)
    return convert(lax.top_k(scores, math.prod(shape))[1], int_default())


# -- counts ----------------------------------------------------------------------------------------

def sample_geometric(key: Array, p: Any, *, shape: Shape, dtype: np.dtype) -> Array:
    p, = promote_dtypes_inexact(p)
    p = jnp.asarray(p)
    u = plain_uniform(key, shape, p.dtype)
    u = choose_where(u == 0, 1, u)
    failure = jnp.broadcast_to(lax.log1p(-p), shape)
    return convert(lax.floor(lax.div(lax.log(u), failure)) + 1, dtype)


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None, *,
              out_sharding: Any = None) -> Array:
    """The number of trials up to the first success, of probability p each; integers from 1."""
    key, _ = checked_key("geometric", key)
    dtype = sampled_dtype("geometric", dtype, "integer")
    shape = sampled_shape("geometric", shape, p)
    sharding = sampled_sharding("geometric", out_sharding, shape)
    return draw(sample_geometric, sharding, key, p, shape=shape, dtype=dtype)
