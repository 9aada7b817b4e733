"""Scaled dot-product attention with grouped heads, masks, causal and local windows.

Two products and a softmax in float32 between them. Query heads that share a key head form groups.
Source: Vaswani et al., "Attention is all you need" (2017); Ainslie et al., "GQA" (2023).
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.dtypes import finfo, promote_types
from ...ir.values.array import Array
from .. import lax
from ..jnp.creation.filled import tril
from ..jnp.elementwise.log_sums import logsumexp
from ..jnp.elementwise.two_operands import add_function, multiply_function
from ..jnp.indexing.searching import choose_where
from ..jnp.manipulation.shaping import expand_dims, reshape
from ..jnp.matrices.einsum import einsum
from ..operands.dtype_promotion import convert
from ..staging.constants import as_array
from ..staging.memoized import memoized
from .normalization import softmax

_F32 = np.dtype("float32")


def _lengths(name: str, x: Any, batch: int) -> Any:
    """Lengths of sequences, one for each of a batch; None if there are none."""
    if x is None:
        return None
    x = convert(as_array(x), np.dtype("int32"))
    if x.shape != (batch,):
        raise ValueError(f"{name} must have shape {(batch,)}, got {x.shape}")
    return x


@memoized
def dot_product_attention(query, key, value, bias=None, mask=None, *, scale=None, is_causal=False,
                          query_seq_lengths=None, key_value_seq_lengths=None,
                          local_window_size=None, implementation=None, return_residual=False):
    """softmax(query @ key^T * scale + bias) @ value, with the softmax over the keys.

    query: (batch, T, heads, size); key, value: (batch, S, key heads, size), where key heads
    divide heads; batch may be left out. The result has the shape of query. bias, mask: broadcast
    to (batch, heads, T, S); leading dimensions may be left out. scale: 1 / sqrt(size) by default.
    is_causal: position t sees keys up to t.
    query_seq_lengths, key_value_seq_lengths: (batch,), positions beyond are padding.
    local_window_size: how many keys to the left and right are seen. return_residual: also the
    logsumexp of the scores, (batch, T, heads). Raises ValueError where shapes do not fit.

    Sharding
      Auto: over batch and heads nothing is communicated; split positions are gathered or summed
        over.
      Explicit: batch and heads stay split. Positions that are split in query and key alike raise
        ShardingTypeError; `reshard` key and value first.
      Manual: attends within each device's block.

    >>> q = jnp.ones((2, 4, 8, 16))                    # batch, positions, heads, size
    >>> st.nn.dot_product_attention(q, q, q, is_causal=True).shape
    (2, 4, 8, 16)
    """
    if implementation not in (None, "xla"):
        raise ValueError(f"Unsupported implementation option: {implementation}; only 'xla' exists "
                         "here")
    query, key, value = as_array(query), as_array(key), as_array(value)
    out_shape = query.shape
    query, key, value = (_four_dims(x) for x in (query, key, value))
    _check(query, key, value)
    batch, t, heads, size = query.shape
    s, groups_of = key.shape[1], key.shape[2]
    bias, mask = (None if x is None else _four_dims(as_array(x)) for x in (bias, mask))
    for name, x in (("bias", bias), ("mask", mask)):
        if x is not None and x.ndim != 4:
            raise ValueError(f"{name} ndim should be 4, but got {x.ndim}")
    if mask is not None and mask.dtype != np.dtype(bool):
        raise ValueError(f"Mask must be boolean dtype, but got {mask.dtype}.")
    lengths = [_lengths(name, x, batch) for name, x in (
        ("query_seq_lengths", query_seq_lengths),
        ("key_value_seq_lengths", key_value_seq_lengths))]
    window = local_window_size
    if isinstance(window, int):
        window = (window, window)
    scale = 1.0 / math.sqrt(size) if scale is None else scale
    group = heads // groups_of
    grouped = reshape(query, (batch, t, groups_of, group, size))
    dtype = promote_types(query.dtype, _F32)
    # The query first, as the order of operands decides what is split.
    scores = lax.dot_general(grouped, key, (((4,), (3,)), ((0, 2), (0, 2))),
                             preferred_element_type=dtype)
    scores = lax.transpose(scores, (0, 1, 3, 2, 4))
    scores = multiply_function(scores, convert(scale, scores.dtype))
    if bias is not None:
        scores = convert(add_function(scores, _grouped(bias, groups_of, group)), scores.dtype)
    scores = _masked(scores, None if mask is None else _grouped(mask, groups_of, group), is_causal,
                     lengths, window, t, s)
    scores = convert(scores, _F32)
    weights = convert(softmax(scores, axis=-1), key.dtype)
    out = einsum("bkgts,bskh->btkgh", weights, value)
    if lengths[0] is not None:
        out = multiply_function(out, convert(_inside(lengths[0], t, out.ndim), out.dtype))
    out = reshape(convert(out, query.dtype), (batch, t, heads, value.shape[-1]))
    out = reshape(out, (*out_shape[:-1], value.shape[-1]))
    if not return_residual:
        return out
    residual = convert(logsumexp(scores, axis=-1), key.dtype)         # batch, k, g, t
    residual = lax.stop_gradient(lax.transpose(residual, (0, 3, 1, 2)))
    return out, reshape(residual, out_shape[:-1])


def _check(query: Array, key: Array, value: Array) -> None:
    """Refuse shapes and dtypes that do not fit together."""
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise ValueError("dot_product_attention: query, key and value have at most 4 dimensions, "
                         f"got shapes {query.shape}, {key.shape} and {value.shape}")
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError("query, key and value must have one dtype, got "
                         f"{query.dtype}, {key.dtype} and {value.dtype}")
    batch, _, heads, size = query.shape
    if key.shape[:3] != value.shape[:3] or key.shape[0] != batch or key.shape[3] != size:
        raise ValueError("dot_product_attention: shapes must be (B, T, N, H), (B, S, K, H) and "
                         f"(B, S, K, H), got {query.shape}, {key.shape} and {value.shape}")
    if not (heads and key.shape[2] and size):
        raise ValueError("dot_product_attention: there must be heads, and elements in each, got "
                         f"{query.shape} and {key.shape}")
    if heads % key.shape[2]:
        raise ValueError("The number of query heads must be a multiple of key/value heads, but "
                         f"got {heads} vs {key.shape[2]}")


def _four_dims(x: Array) -> Array:
    """x with leading dimensions of size 1, where it has fewer than four."""
    return expand_dims(x, tuple(range(4 - x.ndim))) if x.ndim < 4 else x


def _grouped(x: Array, heads: int, group: int) -> Array:
    """(batch, heads, T, S) as (batch, key heads, group, T, S)."""
    if x.shape[1] == 1:
        return lax.expand_dims(x, (2,))
    return reshape(x, (x.shape[0], heads, group, *x.shape[2:]))


def _masked(scores: Array, mask: Array | None, causal: bool, lengths: list[Any], window: Any,
            t: int, s: int) -> Array:
    """Scores with a large negative number where a key may not be seen."""
    if mask is None and not causal and window is None and all(x is None for x in lengths):
        return scores
    masks = [] if mask is None else [mask]
    if causal:
        masks.append(tril(lax.full((t, s), True)))
    if window is not None:
        rows, columns = lax.broadcasted_iota(np.int32, (t, s), 0), lax.broadcasted_iota(
            np.int32, (t, s), 1)
        left, right = (np.int32(w) for w in window)
        masks.append(lax.bitwise_and(lax.le(columns, lax.add(rows, right)),
                                     lax.ge(columns, lax.sub(rows, left))))
    for x, n, d in ((lengths[0], t, 3), (lengths[1], s, 4)):
        if x is not None:
            places = lax.broadcasted_iota(np.int32, (1, 1, 1, *((n, 1) if d == 3 else (1, n))), d)
            limit = lax.broadcast_in_dim(x, (x.shape[0], 1, 1, 1, 1), (0,))
            masks.append(lax.lt(places, limit))
    low = convert(-0.7 * float(finfo(scores.dtype).max), scores.dtype)
    for m in masks:
        scores = choose_where(m, scores, low)
    return scores


def _inside(lengths: Any, t: int, ndim: int) -> Array:
    """Which query positions are not padding, as (batch, T, 1, ...)."""
    places = lax.broadcasted_iota(np.int32, (1, t, *[1] * (ndim - 2)), 1)
    limit = lax.broadcast_in_dim(lengths, (lengths.shape[0], *[1] * (ndim - 1)), (0,))
    return lax.lt(places, limit)
