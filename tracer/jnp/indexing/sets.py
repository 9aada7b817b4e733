"""Sets of numbers: unique, isin, union, intersection, difference.

Results whose size depends on values need `size=` while tracing: they are cut, or filled up.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.dtypes import is_extended
from ....ir.ops.elementwise.arithmetic import sub_p
from ....ir.ops.elementwise.comparison import lt_p
from ....ir.ops.movement.creation import iota_p
from ....ir.ops.reductions.sorting import sort_p
from ....ir.support.named_tuple import NamedTuple
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...lax.creation import filled_as
from ...operands.broadcasting import select_of
from ...operands.dtype_promotion import check_arraylike, convert, promote_dtypes
from ...operands.scalars import LEVEL, int_default
from ...operands.shape_arguments import canonical_axis, static_int
from ...staging.constants import as_array, concrete_value
from ..elementwise.logic import isnan, logical_not
from ..manipulation.joining import concatenate
from ..manipulation.shaping import broadcast_to, moveaxis, ravel
from ..reductions import reduce as reductions
from ..reductions.cumulative import cumsum
from .searching import nonzero, take_rows, true_positions
from .sorted_search import searchsorted
from .sorting import argsort
from .take import take

__all__ = [
    "intersect1d", "isin", "setdiff1d", "setxor1d", "union1d", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values",
]
_MOST_PAIRS = 1 << 20       # of elements that are compared rather than searched for


class UniqueAllResult(NamedTuple):
    """Unique values, positions of their first occurrences, the inverse, and counts."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCountsResult(NamedTuple):
    """Unique values and how often each occurs."""

    values: Array
    counts: Array


class UniqueInverseResult(NamedTuple):
    """Unique values and, for each element, its position among them."""

    values: Array
    inverse_indices: Array


def _sorted_columns(rows: Any, places: Any) -> tuple[Any, Any]:
    """The columns of rows sorted by these, and the numbers of the rows in that order."""
    columns = [lax.index_in_dim(rows, j, 1, keepdims=False) for j in range(rows.shape[1])]
    if not rows.shape[0] or not columns:
        return columns, places
    *ordered, order = sort_p.bind(*columns, places, dimension=0, is_stable=True,
                                  num_keys=len(columns))
    return ordered, order


@sharding_notes.ordered
def unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None, *,
           equal_nan=True, size=None, fill_value=None, sorted=True):
    """The different elements of `ar`, or the different slices along `axis`, in ascending order.

    return_index: also where each occurs first. return_inverse: also, for each element, its position
    in the result. return_counts: also how often each occurs. size: the number of results, needed
    under `jit`; fill_value fills up (by default the least element).
    Raises ConcretizationTypeError under `jit` without `size`.

    >>> jnp.unique(jnp.array([3, 1, 3]), return_counts=True)
    (Array([1, 3], dtype=int32), Array([1, 2], dtype=int32))
    """
    check_arraylike("unique", ar)
    x = as_array(ar)
    flat = axis is None
    if LEVEL[x.dtype] == 3:      # one NaN for all, which is the last
        x = select_of(isnan(x), x, convert(np.nan, x.dtype))
    rows = lax.reshape(x, (x.size, 1)) if flat else _rows(x, axis)
    _concrete_or_sized("unique", size, x)
    n = rows.shape[0]
    places = iota_p.bind(dtype=int_default(), shape=(n,), dimension=0, sharding=None)
    ordered, order = _sorted_columns(rows, places)
    new = _starts(ordered, n, equal_nan)
    count = n
    if size is None:
        known = np.flatnonzero(np.asarray(new)) if n else np.zeros(0, int)
        count = len(known)
        starts: Any = as_array(np.append(known, n).astype(np.int32))
    else:
        count = static_int(size)
        starts = true_positions(new, count + 1) if n else filled_as((count + 1,), np.int32(0))
    first = lax.slice_in_dim(starts, 0, count)      # and where the one after them would begin
    found = lt_p.bind(first, np.int32(n))
    safe = lax.min(first, np.int32(max(n - 1, 0)))
    sources = take_rows(order, safe, 0) if n else filled_as((count,), convert(0, int_default()))
    values = take_rows(rows, sources, 0) if n else filled_as(
        (count, rows.shape[1]), convert(0, rows.dtype))
    if size is not None:
        values = _filled(values, found, fill_value, rows,
                         () if flat else moveaxis(x, axis, 0).shape[1:])
    out = [_from_rows(values, x, axis, flat)]
    if return_index:
        fill = lax.index_in_dim(sources, 0, 0, keepdims=False) if count else np.int32(0)
        out.append(select_of(found, fill, sources) if size is not None and count else sources)
    if return_inverse:
        inverse = _inverse(new, order) if n else places
        out.append(lax.reshape(inverse, x.shape) if flat else inverse)
    if return_counts:
        ends = lax.slice_in_dim(starts, 1, None)
        out.append(convert(sub_p.bind(lax.min(ends, np.int32(n)), lax.min(first, np.int32(n))),
                           int_default()))
    return out[0] if len(out) == 1 else tuple(out)


def _inverse(new: Any, order: Any) -> Any:
    """For each row the number of its group. new: whether a sorted row begins a group. order: the
    number of each sorted row.
    """
    group = sub_p.bind(cumsum(convert(new, int_default())), convert(1, int_default()))
    return sort_p.bind(order, group, dimension=0, is_stable=True, num_keys=1)[1]


def _rows(x: Array, axis: int) -> Array:
    """x as a matrix whose rows are its slices along a dimension."""
    axis = canonical_axis(axis, x.ndim)
    moved = moveaxis(x, axis, 0)
    n = moved.shape[0]
    return lax.reshape(moved, (n, moved.size // n if n else 0))


def _from_rows(values: Any, x: Array, axis: Any, flat: bool) -> Array:
    if flat:
        return lax.reshape(values, (values.shape[0],))
    axis = canonical_axis(axis, x.ndim)
    rest = tuple(n for d, n in enumerate(x.shape) if d != axis)
    return moveaxis(lax.reshape(values, (values.shape[0], *rest)), 0, axis)


def _starts(ordered: list[Any], n: int, equal_nan: bool) -> Any:
    """Whether each sorted row differs from the one before it."""
    if not n:
        return filled_as((0,), np.bool_(True))
    differ: Any = None
    for c in ordered:
        low, high = lax.slice_in_dim(c, 0, n - 1), lax.slice_in_dim(c, 1, n)
        d = lax.ne(low, high)
        if equal_nan and LEVEL[c.dtype] >= 2:
            d = lax.bitwise_and(d, lax.bitwise_not(lax.bitwise_and(isnan(low), isnan(high))))
        differ = d if differ is None else lax.bitwise_or(differ, d)
    first = filled_as((1,), np.bool_(True))
    if differ is None:              # rows without elements are equal
        differ = filled_as((n - 1,), np.bool_(False))
    return lax.concatenate([first, differ], 0)


def _filled(values: Any, found: Any, fill_value: Any, rows: Array, row: tuple[int, ...]) -> Any:
    """Rows of `values`, those that were not found replaced by `fill_value`, or by the first row."""
    if not values.shape[0]:
        return values
    if fill_value is None:
        fill = lax.index_in_dim(values, 0, 0, keepdims=True)
    else:
        fill = lax.reshape(broadcast_to(convert(as_array(fill_value), rows.dtype), row),
                           (1, values.shape[1]))
    mask = lax.broadcast_in_dim(found, values.shape, (0,))
    return lax.select_n(mask, lax.broadcast_in_dim(fill, values.shape, (0, 1)), values)


def unique_values(x, /, *, size=None, fill_value=None):
    """The different elements, flattened and sorted; `size` and `fill_value` as in `unique`."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


def unique_counts(x, /, *, size=None, fill_value=None):
    """The different elements, sorted, and how often each occurs; `size` as in `unique`."""
    return UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False, size=size,
                                      fill_value=fill_value))


def unique_inverse(x, /, *, size=None, fill_value=None):
    """The different elements, and for each element its position among them."""
    return UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False, size=size,
                                       fill_value=fill_value))


def unique_all(x, /, *, size=None, fill_value=None):
    """The different elements, positions of first occurrences, the inverse, and counts."""
    return UniqueAllResult(*unique(x, return_index=True, return_inverse=True, return_counts=True,
                                   equal_nan=False, size=size, fill_value=fill_value))


# -- two sets --------------------------------------------------------------------------------------

def isin(element, test_elements, assume_unique=False, invert=False, *, method="auto"):
    """Whether each element of the first array occurs in the second: bool, of the first one's shape.

    method: "compare_all" compares all pairs, the others search in the sorted second array; "auto"
    takes whichever is less work. Complex numbers and arrays split over Explicit axes are compared.
    """
    check_arraylike("isin", element, test_elements)
    if method not in ("auto", "compare_all", "binary_search", "sort"):
        raise ValueError(f"method={method!r} not in ['auto', 'compare_all', 'binary_search', "
                         "'sort']")
    x, others = (as_array(v) for v in promote_dtypes(element, test_elements))
    others = ravel(others)
    if not others.size:
        found = lax.full_like(x, False, np.dtype(bool))
    elif method == "compare_all" or (method == "auto" and _are_few(x, others)) or not (
            _searchable(x, others)):
        found = reductions.any(_equal_pairs(x, others), axis=-1)
    else:
        found, _ = _searched(x, others)
    return logical_not(found) if invert else found


def _are_few(x: Array, others: Array) -> bool:
    return x.size * others.size <= _MOST_PAIRS


def _searchable(x: Array, others: Array) -> bool:
    return x.dtype.kind != "c" and not is_extended(x.dtype) and not any(
        (*x.aval.entries, *others.aval.entries))


def _equal_pairs(x: Array, others: Array) -> Array:
    wide = lax.broadcast_in_dim(x, (*x.shape, others.size), tuple(range(x.ndim)))
    return lax.eq(wide, lax.broadcast_in_dim(others, wide.shape, (x.ndim,)))


def _searched(x: Array, others: Array) -> tuple[Array, Array]:
    """For each element whether it occurs among others, and where it does first."""
    order = argsort(others)
    ordered = take(others, order)
    at = lax.min(searchsorted(ordered, x), np.int32(others.size - 1))
    return lax.eq(take(ordered, at), x), take(order, at)


def _concrete_or_sized(name: str, size: Any, *arrays: Array) -> None:
    if size is None:
        for a in arrays:
            concrete_value(a, f"jnp.{name}; pass size=")


def union1d(ar1, ar2, *, size=None, fill_value=None):
    """The different elements of two arrays together, flattened and sorted; `size` as in `unique`.
    """
    check_arraylike("union1d", ar1, ar2)
    a, b = promote_dtypes(ravel(ar1), ravel(ar2))
    return unique(concatenate([a, b]), size=size, fill_value=fill_value)


def _selected(values: Array, mask: Any, size: Any, fill_value: Any, default: Any) -> Array:
    """The elements where a mask holds: as many as there are, or `size` of them."""
    if size is None:
        (places,) = nonzero(mask)
        return take(values, places)
    places = true_positions(mask, size) if values.size else filled_as((size,), np.int32(0))
    found = lt_p.bind(places, np.int32(values.size))
    picked = take_rows(values, lax.min(places, np.int32(max(values.size - 1, 0))), 0) \
        if values.size else filled_as((size,), convert(0, values.dtype))
    fill = default if fill_value is None else fill_value
    return select_of(found, convert(as_array(fill), values.dtype), picked)


def setdiff1d(ar1, ar2, assume_unique=False, *, size=None, fill_value=None):
    """The different elements of the first array that are not in the second."""
    check_arraylike("setdiff1d", ar1, ar2)
    a: Any = ravel(ar1)
    _concrete_or_sized("setdiff1d", size, a, as_array(ar2))
    fill = 0 if fill_value is None else fill_value
    if assume_unique:
        return _selected(a, isin(a, ar2, invert=True), size, fill, 0)
    if size is None:
        a = unique(a)
        return _selected(a, isin(a, ar2, invert=True), None, fill, 0)
    values, first = unique(a, return_index=True, size=a.size)
    fresh = _fresh(values, first, a.size)
    return _selected(values, lax.bitwise_and(fresh, isin(values, ar2, invert=True)), size, fill, 0)


def _fresh(values: Array, first: Array, n: int) -> Any:
    """Which results of a sized `unique` are no filling: each first position occurs once."""
    places = iota_p.bind(dtype=np.dtype("int32"), shape=(n,), dimension=0, sharding=None)
    if not n:
        return filled_as((0,), np.bool_(True))
    head = lax.index_in_dim(first, 0, 0, keepdims=False)
    return lax.bitwise_or(lax.ne(first, lax.broadcast_in_dim(head, (n,), ())),
                          lax.eq(places, lax.full_like(places, 0)))


def intersect1d(ar1, ar2, assume_unique=False, return_indices=False, *, size=None,
                fill_value=None):
    """The different elements that occur in both arrays, sorted.

    return_indices: also the positions of their first occurrences in each.
    """
    check_arraylike("intersect1d", ar1, ar2)
    a, b = (ravel(v) for v in promote_dtypes(ar1, ar2))
    _concrete_or_sized("intersect1d", size, a, b)
    n = a.size if size is not None else None
    if n == 0 or not a.size or not b.size:
        empty = filled_as((size or 0,), convert(fill_value or 0, a.dtype))
        index = filled_as((size or 0,), convert(0, int_default()))
        return (empty, index, index) if return_indices else empty
    values, first = unique(a, return_index=True, size=n)
    mask = isin(values, b)
    if n is not None:
        mask = lax.bitwise_and(mask, _fresh(values, first, n))
    # The least common value fills up, or zero where there is none.
    least = select_of(reductions.any(mask), convert(0, values.dtype),
                      take(values, reductions.argmax(mask)))
    out = _selected(values, mask, size, fill_value, least)
    if not return_indices:
        return out
    from_a = _selected(first, mask, size, None, a.size)
    from_b = reductions.argmax(_equal_pairs(out, b), axis=1) if _are_few(out, b) or not (
        _searchable(out, b)) else _searched(out, b)[1]
    if size is not None:
        ok = lt_p.bind(from_a, convert(a.size, from_a.dtype))
        from_b = select_of(ok, convert(b.size, from_b.dtype), from_b)
    return out, from_a, from_b


def setxor1d(ar1, ar2, assume_unique=False, *, size=None, fill_value=None):
    """The different elements that occur in exactly one of two arrays, sorted. NaN equals nothing.

    assume_unique: neither array has an element twice. fill_value: what fills up to `size`; by
    default the least of the result.
    """
    check_arraylike("setxor1d", ar1, ar2)
    parts: list[Any] = [ravel(v) for v in promote_dtypes(ar1, ar2)]
    _concrete_or_sized("setxor1d", size, *parts)
    none = [filled_as(p.shape, np.bool_(False)) for p in parts]     # of the filling of `unique`
    if not assume_unique and size is None:
        parts = [unique(p) for p in parts]
        none = [filled_as(p.shape, np.bool_(False)) for p in parts]
    elif not assume_unique:
        found = [unique(p, return_index=True, size=p.size) for p in parts]
        parts = [values for values, _ in found]
        none = [logical_not(_fresh(values, first, values.size)) for values, first in found]
    values = concatenate(parts)
    n = values.size
    if not n:
        return values if size is None else filled_as(
            (size,), convert(fill_value or 0, values.dtype))
    left_out, values = lax.sort([concatenate(none), values], num_keys=2)
    differs = lax.bitwise_or(lax.ne(values[1:], values[:-1]), left_out[1:])
    end = filled_as((1,), np.bool_(True))
    alone = lax.bitwise_and(concatenate([end, differs]), concatenate([differs, end]))
    mask = lax.bitwise_and(alone, logical_not(left_out))
    if size is None or fill_value is not None:
        return _selected(values, mask, size, fill_value, 0)
    picked = _selected(values, mask, size, None, 0)
    if not size:
        return picked
    places = iota_p.bind(dtype=int_default(), shape=(size,), dimension=0, sharding=None)
    found = places < reductions.sum(mask)
    return select_of(found, reductions.min(select_of(found, picked[:1], picked)), picked)
