"""Counting: bincount, and histograms of one or several variables."""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.diagnostics.diagnostic import fail
from ....ir.diagnostics.errors import ShardingTypeError
from ....ir.ops.elementwise.arithmetic import add_p, div_p, sub_p
from ....ir.ops.elementwise.comparison import eq_p
from ....ir.values.typeof import typeof
from ... import lax
from ...lax.creation import filled_as
from ...operands.broadcasting import select_of
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    narrowed,
    promote_dtypes,
    promote_dtypes_inexact,
    to_inexact,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import LEVEL, int_default
from ...operands.shape_arguments import static_int
from ...shardings.auto_mode import in_auto_mode
from ...shardings.out_sharding import canonicalize_sharding
from ...staging.constants import as_array, concrete_value
from ..creation.ranges import linspace
from ..indexing.indexed_update import IndexUpdateRef
from ..indexing.sorted_search import searchsorted
from ..manipulation.shaping import ravel
from . import reduce as reductions
from .cumulative import diff

__all__ = ["bincount", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd"]


def bincount(x, weights=None, minlength=0, *, length=None, out_sharding=None):
    """How often each number from 0 occurs, or the sums of weights.

    length: the size of the result, needed while tracing; larger numbers are left out.
    """
    check_arraylike("bincount", x)
    if weights is not None:
        check_arraylike("bincount", weights)
    x = as_array(x)
    if x.dtype != np.dtype(bool) and LEVEL[x.dtype] != 1:
        raise TypeError(f"x argument to bincount must have an integer type; got {x.dtype}")
    if x.ndim != 1:
        raise ValueError("only 1-dimensional input supported.")
    if length is None:
        value = concrete_value(x, "bincount; pass length=")
        length = max(int(value.max()) + 1 if value.size else 0, int(minlength))
    else:
        length = static_int(length)
    if weights is None:
        weights = np.array(1, dtype=int_default())
    elif not _one_type(x, weights):
        raise ValueError("type of weights must match type of x. Got "
                         f"typeof(x)={typeof(x).str_short(True)} and "
                         f"typeof(weights)={typeof(weights).str_short(True)}")
    sharding = canonicalize_sharding(out_sharding, "jnp.bincount")
    if sharding is not None and (any(sharding.spec.entries) or len(sharding.spec.unreduced) not in (
            0, len(sharding.mesh.axis_names))):
        fail(ShardingTypeError,
             "out_sharding passed to `bincount` can only be fully replicated or fully unreduced "
             f"along all mesh axes. Got {sharding}", code="sharded-counts",
             label=f"x is {typeof(x).str_short(True)}",
             help="leave `out_sharding` out, and `reshard` the counts")

    def run(x: Any, weights: Any) -> Any:
        counts = filled_as((length,), convert(0, dtype_name(weights)))
        places = lax.max(convert(x, int_default()), convert(0, int_default()))
        return IndexUpdateRef(counts, places).add(weights, mode="drop")

    return in_auto_mode(run, sharding, x, weights)


def _one_type(x: Any, weights: Any) -> bool:
    """Whether the weights have the shape of x, and its sharding where both have one."""
    a, b = typeof(x), typeof(weights)
    return a.shape == b.shape and (
        not a.mesh.axis_names or not b.mesh.axis_names or a.sharding is b.sharding)


def histogram_bin_edges(a, bins: Any = 10, range=None, weights=None):
    """The edges of bins of equal width from the least to the greatest element, or over a range."""
    check_arraylike("histogram_bin_edges", a, bins)
    x = as_array(narrowed(a))
    dtype = to_inexact(x.dtype)
    if isinstance(bins, str):
        raise NotImplementedError("string values for `bins` not implemented.")
    if shape_of(bins):
        return convert(as_array(bins), dtype)
    bins = static_int(bins)
    if range is None:
        values = convert(x, dtype)
        low, high = (reductions.min(values), reductions.max(values)) if values.size else (
            as_array(convert(0, dtype)), as_array(convert(1, dtype)))
    else:
        low, high = (convert(as_array(r), dtype) for r in range)
    flat_range = eq_p.bind(sub_p.bind(high, low), convert(0, dtype))
    half = convert(0.5, dtype)
    low, high = (select_of(flat_range, low, sub_p.bind(low, half)),
                 select_of(flat_range, high, add_p.bind(high, half)))
    return linspace(low, high, bins + 1, dtype=dtype)


def histogram(a, bins=10, range=None, weights=None, density=None):
    """How many elements lie in each bin (or the sums of their weights), and the edges of the bins.

    density: divided by the number of elements and the widths.
    """
    if weights is None:
        check_arraylike("histogram", a, bins)
        a, _ = promote_dtypes_inexact(*[narrowed(a)] * 2)
        weights = lax.full_like(as_array(a), 1)
    else:
        check_arraylike("histogram", a, bins, weights)
        if shape_of(a) != shape_of(weights):
            raise ValueError("weights should have the same shape as a.")
        a, weights = promote_dtypes_inexact(narrowed(a), narrowed(weights))
    edges = histogram_bin_edges(a, bins, range, weights)
    flat = ravel(a)
    n = edges.shape[0]
    places = searchsorted(edges, flat, side="right")
    last = lax.index_in_dim(edges, -1, 0, keepdims=False)
    places = select_of(eq_p.bind(flat, last), places, np.int32(n - 1))
    counts = IndexUpdateRef(filled_as((n,), convert(0, dtype_name(weights))), places).add(
        ravel(weights), mode="drop")
    counts = lax.slice_in_dim(counts, 1, None)
    if density:
        widths = diff(edges)
        counts = div_p.bind(div_p.bind(counts, convert(widths, counts.dtype)),
                            reductions.sum(counts))
    return counts, edges


def histogramdd(sample, bins: Any = 10, range=None, weights=None, density=None):
    """How many points (rows of sample) lie in each cell of a grid, and the edges per side."""
    if weights is None:
        check_arraylike("histogramdd", sample)
        (sample,) = promote_dtypes_inexact(sample)
    else:
        check_arraylike("histogramdd", sample, weights)
        if shape_of(weights) != shape_of(sample)[:1]:
            raise ValueError("should have one weight for each sample.")
        sample, weights = promote_dtypes_inexact(sample, weights)
    x = as_array(narrowed(sample))
    points, sides = x.shape
    if range is not None and (len(range) != sides or any(
            r is not None and len(r) != 2 for r in range)):
        raise ValueError(f"For sample.shape={x.shape}, range must be a sequence of {sides} pairs "
                         f"or Nones; got range={range!r}")
    per_side = list(bins) if isinstance(bins, (tuple, list)) else (
        [bins] * sides if not shape_of(bins) else [bins[i] for i in np.arange(sides)])
    if len(per_side) != sides:
        raise ValueError("should be a bin for each dimension.")
    edges, cells = [], []
    for i, b in enumerate(per_side):
        column = lax.index_in_dim(x, i, 1, keepdims=False)
        e = histogram_bin_edges(column, b, None if range is None else range[i])
        place = searchsorted(e, column, side="right")
        top = lax.index_in_dim(e, -1, 0, keepdims=False)
        place = select_of(eq_p.bind(column, top), place, np.int32(e.shape[0] - 1))
        edges.append(e)
        cells.append(place)
    sizes = tuple(e.shape[0] + 1 for e in edges)
    plain = weights is None and not density
    dtype = int_default() if plain else x.dtype if weights is None else dtype_name(weights)
    ones = filled_as((points,), convert(1, dtype)) if weights is None else as_array(weights)
    grid = IndexUpdateRef(filled_as(sizes, convert(0, dtype)), tuple(cells)).add(ones)
    counts = lax.slice(grid, (1,) * sides, tuple(n - 1 for n in sizes))
    if density:
        total = reductions.sum(counts)
        for d, e in enumerate(edges):
            widths = lax.broadcast_in_dim(convert(diff(e), dtype), counts.shape, (d,))
            counts = div_p.bind(counts, widths)
        counts = div_p.bind(counts, total)
    return counts, edges


def histogram2d(x, y, bins: Any = 10, range=None, weights=None, density=None):
    """How many points (x, y) lie in each cell of a grid, and the edges along both sides."""
    check_arraylike("histogram2d", x, y)
    if not isinstance(bins, (tuple, list)) and len(shape_of(bins)) == 1:
        bins = [bins, bins]
    x, y = promote_dtypes(x, y)
    sample = lax.stack([as_array(narrowed(x)), as_array(narrowed(y))], 1)
    counts, edges = histogramdd(sample, bins, range, weights, density)
    return counts, edges[0], edges[1]
