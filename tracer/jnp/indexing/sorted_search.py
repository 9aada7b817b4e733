"""Searching in sorted arrays: searchsorted, digitize."""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.diagnostics.diagnostic import fail
from ....ir.dtypes import issubdtype
from ....ir.ops.elementwise.arithmetic import add_p
from ....ir.ops.movement.creation import iota_p
from ....ir.ops.reductions.reduction import reduce_sum_p
from ....ir.ops.reductions.sorting import sort_p
from ....ir.ops.rules import resized_entries
from ....ir.values.array import Array
from ... import lax
from ...lax.control.bodies import vary
from ...lax.creation import filled_as
from ...operands.dtype_promotion import check_arraylike, convert, promote_dtypes
from ...operands.rank_promotion import shape_of
from ...staging.constants import as_array
from ..elementwise.logic import isnan
from .searching import choose_where, take_rows

__all__ = ["digitize", "searchsorted"]


def searchsorted(a, v, side="left", sorter=None, *, method="scan"):
    """The positions in the sorted vector `a` at which the elements of `v` keep it sorted.

    side: "left" means before equal elements, "right" after them. sorter: the order that sorts
    `a`, if it is not sorted. method: "scan" and "scan_unrolled" search by halves, "compare_all"
    compares with every element, "sort" sorts both together.

    Sharding
      Auto: each device looks up its block of `v` in the whole of `a`.
      Explicit: both must be whole; with "compare_all" `v` may be split, and the result is too.
      Manual: looks up each device's block of `v` in its block of `a`.

    >>> jnp.searchsorted(jnp.array([1, 3, 5]), jnp.array([0, 3, 9]))
    Array([0, 1, 3], dtype=int32)
    """
    check_arraylike("searchsorted", a, v)
    if side not in ("left", "right"):
        raise ValueError(f"invalid argument side={side!r}, expected 'left' or 'right'")
    if method not in ("scan", "scan_unrolled", "sort", "compare_all"):
        raise ValueError(f"invalid argument method={method!r}, expected one of ['compare_all', "
                         "'scan', 'scan_unrolled', 'sort']")
    if len(shape_of(a)) != 1:
        raise ValueError("a should be 1-dimensional")
    a, v = (as_array(x) for x in promote_dtypes(a, v))
    if sorter is not None:
        a = take_rows(a, as_array(sorter), 0)
    index = np.dtype("int32")
    if not a.size:
        return filled_as(v.shape, convert(0, index))
    if method in ("scan", "scan_unrolled"):
        _check_whole(a, v)
    if any(v.aval.entries) or method == "compare_all":
        return _compare_all(a, v, side, index)
    if method == "sort":
        return _by_sorting(a, v, side, index)
    return _by_halves(a, v, side, index, method == "scan_unrolled")


def _check_whole(a: Array, v: Array) -> None:
    """Raise where Explicit typing refuses to search by halves: for operands that are split."""
    for axes in reversed(v.aval.entries):
        if set(axes) & set(a.aval.entries[0]):
            fail(ValueError, "Unmapped values passed to vmap cannot be sharded along the mesh axis "
                 f"you are vmapping over. Got type: {a.aval.str_short(True)}, in_axes: None and "
                 f"vmapped mesh axis: {axes}", code="sharded-search",
                 help="gather the sorted array first, with `reshard`")
    resized_entries("dynamic_slice", a.aval, (1,))
    for axes in reversed(v.aval.entries):
        if axes and v.aval.mesh.explicit_axes:
            fail(ValueError, f"Resource axis: {axes[0]} of {v.aval.spec} is not found in mesh: ().",
                 code="sharded-search", label=f"the values are {v.aval.str_short(True)}",
                 notes=("the bounds of the search are whole, and a loop cannot split them",),
                 help="gather the values first, or take the method 'compare_all', which compares "
                      "each with the whole array")


def _before(a: Any, v: Any, side: str) -> Any:
    """Whether an element of a belongs in front of one of v; NaN is greater than all.

    Complex numbers are ordered by their real parts, equal ones by their imaginary parts.
    """
    if issubdtype(a.dtype, np.complexfloating):
        real_a, real_v = lax.real(a), lax.real(v)
        equal = lax.bitwise_not(_before(real_v, real_a, "left"))
        return lax.bitwise_or(_before(real_a, real_v, "left"),
                              lax.bitwise_and(equal, _before(lax.imag(a), lax.imag(v), side)))
    before = lax.lt(a, v) if side == "left" else lax.le(a, v)
    if not issubdtype(a.dtype, np.inexact):
        return before
    last = isnan(v) if side == "right" else lax.bitwise_and(isnan(v), lax.bitwise_not(isnan(a)))
    return lax.bitwise_or(before, last)


def _compare_all(a: Array, v: Array, side: str, index: np.dtype) -> Array:
    wide = lax.broadcast_in_dim(v, (*v.shape, a.size), tuple(range(v.ndim)))
    row = lax.expand_dims(a, tuple(range(v.ndim))) if v.ndim else a
    counts = convert(_before(row, wide, side), index)
    return reduce_sum_p.bind(counts, axes=(v.ndim,), out_sharding=None)


def _by_sorting(a: Array, v: Array, side: str, index: np.dtype) -> Array:
    """Positions of v in a: the rank among both, less the rank among v."""
    flat = lax.reshape(v, (v.size,))
    both = lax.concatenate([flat, a] if side == "left" else [a, flat], 0)
    places = iota_p.bind(dtype=index, shape=both.shape, dimension=0, sharding=None)
    order = sort_p.bind(both, places, dimension=0, is_stable=True, num_keys=1)[1]
    rank = sort_p.bind(order, places, dimension=0, is_stable=True, num_keys=1)[1]
    own = lax.slice_in_dim(rank, 0, v.size) if side == "left" else lax.slice_in_dim(
        rank, a.size, None)
    # Less the elements of v that come before it.
    order_v = sort_p.bind(flat, lax.slice_in_dim(places, 0, v.size), dimension=0, is_stable=True,
                          num_keys=1)[1]
    rank_v = sort_p.bind(order_v, lax.slice_in_dim(places, 0, v.size), dimension=0,
                         is_stable=True, num_keys=1)[1]
    return lax.reshape(lax.sub(own, rank_v), v.shape)


def _by_halves(a: Array, v: Array, side: str, index: np.dtype, unrolled: bool) -> Array:
    """Positions between `low` and `high`, halved by each iteration until one is left."""
    axes = a.aval.varying | v.aval.varying
    low = vary(lax.full_like(v, 0, dtype=index), axes)
    high = vary(lax.full_like(v, a.size, dtype=index), axes)
    two, one, top = convert(2, index), convert(1, index), convert(a.size - 1, index)

    def halve(bounds: tuple[Any, Any], _: Any) -> tuple[tuple[Any, Any], None]:
        low, high = bounds
        middle = lax.div(add_p.bind(low, high), two)
        value = take_rows(a, lax.reshape(lax.min(middle, top), (v.size,)), 0)
        up = lax.bitwise_and(_before(lax.reshape(value, v.shape), v, side), lax.lt(low, high))
        return (lax.select(up, add_p.bind(middle, one), low), lax.select(up, high, middle)), None

    steps = int(a.size).bit_length()
    (low, _), _ = lax.scan(halve, (low, high), None, steps, unroll=steps if unrolled else 1)
    return low


def digitize(x, bins, right=False, *, method=None):
    """For each element of x the number of the bin that it lies in; bins ascend or descend."""
    check_arraylike("digitize", x, bins)
    edges = as_array(bins)
    if edges.ndim != 1:
        raise ValueError("digitize: bins must be a 1-dimensional array; got "
                         f"{shape_of(bins)}")
    side = "right" if not right else "left"
    opposite = "left" if not right else "right"
    how = {} if method is None else {"method": method}
    if not edges.size:
        return lax.full_like(x, 0, dtype=np.int32)
    first = lax.index_in_dim(edges, 0, 0, keepdims=False)
    last = lax.index_in_dim(edges, -1, 0, keepdims=False)
    up = searchsorted(edges, x, side, **how)
    down = lax.sub(np.int32(edges.size), searchsorted(lax.rev(edges, (0,)), x, opposite, **how))
    return choose_where(lax.ge(last, first), up, down)

