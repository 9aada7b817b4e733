"""Statistics of samples, as in `jax.scipy.stats`: modes, ranks, standard errors."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....ir.support.named_tuple import NamedTuple
from ... import jnp, lax
from ...jnp.indexing.searching import choose_where as where
from ...jnp.indexing.sorting import flattened
from ...operands.dtype_promotion import check_arraylike, promote_args_inexact


class ModeResult(NamedTuple):
    """The most frequent values, and how often they occur."""

    mode: Any
    count: Any


def _only_propagate(name: str, nan_policy: str) -> None:
    if nan_policy not in ("propagate", "omit", "raise"):
        raise ValueError(f"Illegal nan_policy value {nan_policy!r}; expected one of "
                         "{'propagate', 'omit', 'raise'}")
    if nan_policy == "raise" or nan_policy == "omit" and name != "sem":
        raise NotImplementedError(f"Logic for `nan_policy` of {nan_policy} is not implemented")


def mode(a, axis=0, nan_policy="propagate", keepdims=False):
    """The most frequent value along a dimension (None: of all), the least of several; and its
    count.

    >>> from shardtrace.scipy.stats import mode
    >>> print(*mode(jnp.array([2, 4, 1, 1, 3, 4, 4, 2, 3])))
    4 3
    """
    check_arraylike("mode", a)
    _only_propagate("mode", nan_policy)
    x, dim = flattened(jnp.atleast_1d(a), axis)
    if not x.size:
        shape = (*x.shape[:dim], *((1,) if keepdims else ()), *x.shape[dim + 1:])
        return ModeResult(jnp.full(shape, np.nan), jnp.zeros(shape))
    rows = jnp.moveaxis(jnp.sort(x, dim), dim, -1)
    n = rows.shape[-1]
    differs = rows[..., 1:] != rows[..., :-1]
    if jnp.issubdtype(x.dtype, np.inexact):
        differs = differs & ~(jnp.isnan(rows[..., 1:]) & jnp.isnan(rows[..., :-1]))
    new = jnp.concatenate([jnp.ones((*rows.shape[:-1], 1), bool), differs], -1)
    place = jnp.arange(n)
    first = where(new, place, 0)
    run = place - lax.cummax(first, axis=first.ndim - 1) + 1      # length of the run so far
    last = jnp.argmax(run, -1)
    found = jnp.take_along_axis(rows, last[..., None], -1)
    count = jnp.max(run, -1, keepdims=True)
    whole = [jnp.moveaxis(v, -1, dim) for v in (found, count)]
    if axis is None and keepdims:
        whole = [v.reshape((1,) * np.ndim(a)) for v in whole]
    elif not keepdims:
        whole = [v.squeeze(dim) for v in whole]
    return ModeResult(*whole)


def rankdata(a, method="average", *, axis=None, nan_policy="propagate"):
    """The ranks of the elements, from 1 on, of all or along a dimension.

    method: of elements that are equal: "average", "min", "max", "dense" or "ordinal".
    """
    check_arraylike("rankdata", a)
    _only_propagate("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"unknown method '{method}'")
    if axis is not None:
        return jnp.apply_along_axis(_ranks, axis, a, method)
    return _ranks(jnp.ravel(a), method)


def _ranks(x, method):
    """The ranks of a vector in the default float dtype; NaN where one of its elements is."""
    ranks = _counted(x, method).astype(float)
    return where(jnp.isnan(x).any(), np.nan, ranks)


def _counted(x, method):
    """Ranks of a vector, from 1; `method` says which rank equal elements share."""
    n = x.shape[0]
    order = jnp.argsort(x)
    inverse = jnp.zeros(n, int).at[order].set(jnp.arange(n))
    if method == "ordinal":
        return inverse + 1
    ordered = x[order]
    new = jnp.concatenate([jnp.ones(min(n, 1), bool), ordered[1:] != ordered[:-1]])
    dense = jnp.cumsum(new)[inverse]
    if method == "dense":
        return dense
    starts = jnp.concatenate([jnp.nonzero(new, size=n)[0], jnp.array([n])])
    ends = where(jnp.arange(n + 1) < jnp.sum(new), starts, n)
    if method == "max":
        return ends[dense]
    if method == "min":
        return ends[dense - 1] + 1
    return 0.5 * (ends[dense] + ends[dense - 1] + 1)


def sem(a, axis=0, ddof=1, nan_policy="propagate", *, keepdims=False):
    """The standard error of the mean: the deviation over the root of how many there are.

    nan_policy: "omit" leaves NaN out.
    """
    (x,) = promote_args_inexact("sem", a)
    _only_propagate("sem", nan_policy)
    x = jnp.asarray(x)
    if nan_policy == "omit":
        count = jnp.sum(~jnp.isnan(x), axis=axis, keepdims=keepdims)
        spread = jnp.nanstd(x, axis=axis, ddof=ddof, keepdims=keepdims)
        return spread / jnp.sqrt(count.astype(spread.dtype))
    n = x.size if axis is None else x.shape[axis]
    return jnp.std(x, axis=axis, ddof=ddof, keepdims=keepdims) / math.sqrt(n)
