"""Joining and cutting: concatenate, stack, split and their like."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...operands.dtype_promotion import check_arraylike, convert, promote_dtypes, user_dtype
from ...operands.rank_promotion import shape_of
from ...operands.shape_arguments import canonical_axis
from ...staging.constants import as_array
from ...staging.memoized import memoized
from ...staging.tracer import Tracer
from .shaping import atleast_1d, atleast_2d, atleast_3d, ravel, reshape

__all__ = [
    "append", "array_split", "block", "column_stack", "concat", "concatenate", "dsplit", "dstack",
    "hsplit", "hstack", "split", "stack", "unstack", "vsplit", "vstack",
]


def _converted(name: str, arrays: Sequence[Any], dtype: Any) -> list[Any]:
    if dtype is None:
        return promote_dtypes(*arrays)
    dtype = user_dtype(dtype, name)
    return [convert(x, dtype) for x in arrays]


def _is_array(x: Any) -> bool:
    return isinstance(x, (Array, np.ndarray))


@sharding_notes.joined
@memoized
def concatenate(arrays, axis=0, dtype=None):
    """The arrays joined along the dimension `axis`; their other dimensions must be equal.

    arrays: a sequence of arrays, or an array whose rows are joined. axis: None flattens them first.
    dtype: of the result; by default the one to which the arrays promote.
    Raises ValueError for no arrays and TypeError for shapes that do not fit.

    >>> jnp.concatenate([jnp.ones((2, 3)), jnp.zeros((1, 3))]).shape
    (3, 3)
    """
    if _is_array(arrays):
        return _concatenate_rows(arrays, axis, dtype)
    arrays = list(arrays)
    check_arraylike("concatenate", *arrays)
    if not arrays:
        raise ValueError("Need at least one array to concatenate.")
    if axis is None:
        return concatenate([ravel(a) for a in arrays], 0, dtype)
    if not shape_of(arrays[0]):
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    axis = canonical_axis(axis, len(shape_of(arrays[0])))
    return lax.concatenate([as_array(a) for a in _converted("concatenate", arrays, dtype)], axis)


def _concatenate_rows(arrays: Any, axis: Any, dtype: Any) -> Array:
    """The rows of one array joined: a reshape."""
    check_arraylike("concatenate", arrays)
    a = as_array(arrays)
    if a.ndim < 2:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    if dtype is not None:
        a = convert(a, user_dtype(dtype, "concatenate"))
    if axis is None:
        return ravel(a)
    axis = canonical_axis(axis, a.ndim - 1)
    order = [*range(1, axis + 1), 0, *range(axis + 1, a.ndim)]
    sizes = [a.shape[d] for d in order]
    merged = [*sizes[:axis], sizes[axis] * sizes[axis + 1], *sizes[axis + 2:]]
    return reshape(lax.transpose(a, order), tuple(merged))


def concat(arrays, /, *, axis=0):
    """`concatenate` under the array API's name: the arrays joined along the dimension `axis`."""
    return concatenate(arrays, axis=axis)


@sharding_notes.joined
@memoized
def stack(arrays, axis=0, out=None, dtype=None):
    """The arrays, all of one shape, joined along a new dimension at `axis`.

    The new dimension is whole. Raises ValueError for no arrays or arrays of different shapes.

    >>> jnp.stack([jnp.array([1, 2]), jnp.array([3, 4])], axis=1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.stack is not supported.")
    if _is_array(arrays):
        a = as_array(arrays)
        check_arraylike("stack", a)
        axis = canonical_axis(axis, a.ndim)
        order = [*range(1, axis + 1), 0, *range(axis + 1, a.ndim)]
        out = lax.transpose(a, order)
        return out if dtype is None else convert(out, user_dtype(dtype, "stack"))
    arrays = list(arrays)
    if not arrays:
        raise ValueError("Need at least one array to stack.")
    check_arraylike("stack", *arrays)
    axis = canonical_axis(axis, len(shape_of(arrays[0])) + 1)
    return lax.stack(_converted("stack", arrays, dtype), axis)


def unstack(x, /, *, axis=0):
    """The slices of `x` along the dimension `axis`, as a tuple; they lack that dimension."""
    check_arraylike("unstack", x)
    if not shape_of(x):
        raise ValueError("Unstack requires arrays with rank > 0, however a scalar array was "
                         "passed.")
    return lax.unstack(x, axis)


def _each(tup: Any, f: Any) -> list[Any]:
    out = f(*tup)
    return out if isinstance(out, list) else [out]


@sharding_notes.joined
@memoized
def vstack(tup, dtype=None):
    """The arrays joined along the first dimension; vectors count as rows.

    >>> jnp.vstack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    if not _is_array(tup):
        check_arraylike("vstack", *tup)
    return concatenate(_each(tup, atleast_2d), axis=0, dtype=dtype)


@sharding_notes.joined
@memoized
def hstack(tup, dtype=None):
    """The arrays joined along the second dimension; vectors are joined end to end.

    >>> jnp.hstack([jnp.array([1, 2]), jnp.array([3])])
    Array([1, 2, 3], dtype=int32)
    """
    if not _is_array(tup):
        check_arraylike("hstack", *tup)
    arrays = _each(tup, atleast_1d)
    return concatenate(arrays, axis=0 if arrays[0].ndim == 1 else 1, dtype=dtype)


@memoized
def dstack(tup, dtype=None):
    """The arrays joined along the third dimension; vectors and matrices get it, with size 1."""
    if not _is_array(tup):
        check_arraylike("dstack", *tup)
    return concatenate(_each(tup, atleast_3d), axis=2, dtype=dtype)


@memoized
def column_stack(tup):
    """The vectors as the columns of a matrix; matrices among them are set side by side."""
    if not _is_array(tup):
        check_arraylike("column_stack", *tup)
    arrays = [lax.transpose(atleast_2d(a), (1, 0)) if len(shape_of(a)) < 2 else as_array(a)
              for a in tup]
    return concatenate(arrays, axis=1)


def append(arr, values, axis=None):
    """`values` appended to `arr` along `axis`; both are flattened where `axis` is None."""
    check_arraylike("append", arr, values)
    if axis is None:
        return concatenate([ravel(arr), ravel(values)], 0)
    return concatenate([arr, values], axis=axis)


def block(arrays):
    """An array of nested lists of blocks: the innermost joined along the last dimension."""
    def rank(x: Any) -> int:
        return max((rank(v) for v in x), default=0) if isinstance(x, list) else len(shape_of(x))

    def depth(x: Any) -> int:
        if not isinstance(x, list):
            return 0
        if not x:
            raise ValueError("jnp.block: empty lists are not allowed")
        depths = {depth(v) for v in x}
        if len(depths) > 1:
            raise ValueError("jnp.block: lists are nested to different depths")
        return 1 + depths.pop()

    def leaves_ok(x: Any) -> None:
        if isinstance(x, tuple):
            raise TypeError("jnp.block does not allow tuples, got one; use lists")
        if isinstance(x, list):
            for v in x:
                leaves_ok(v)
        else:
            check_arraylike("block", x)

    leaves_ok(arrays)
    levels = depth(arrays)
    ndim = max(rank(arrays), levels)

    def join(x: Any, level: int) -> Array:
        if not isinstance(x, list):
            a = as_array(x)
            return lax.expand_dims(a, tuple(range(ndim - a.ndim))) if a.ndim < ndim else a
        parts = [join(v, level + 1) for v in x]
        return concatenate(parts, axis=level - levels) if len(parts) > 1 else parts[0]

    return join(arrays, 0)


# -- cutting ---------------------------------------------------------------------------------------

def _sizes(name: str, n: int, sections: Any, *, uneven: bool) -> list[int]:
    """Sizes of the parts of a dimension of size n, from positions or a number of parts."""
    if isinstance(sections, Tracer):
        sections._concrete(f"in jnp.{name} argument 1")
    if isinstance(sections, (tuple, list)) or np.ndim(sections) == 1:
        points = [int(p) for p in np.asarray(sections).tolist()]
        edges = [0, *(min(max(p + n if p < 0 else p, 0), n) for p in points), n]
        return [max(b - a, 0) for a, b in zip(edges[:-1], edges[1:], strict=True)]
    count = int(sections)
    if count <= 0:
        raise ValueError("number sections must be larger than 0.")
    part, rest = divmod(n, count)
    if rest and not uneven:
        raise ValueError(f"array split does not result in an equal division: rest is {rest}")
    return [part + 1] * rest + [part] * (count - rest)


def _split(name: str, ary: Any, sections: Any, axis: int, uneven: bool = False) -> list[Array]:
    """Parts of an array along an axis. sections: their number, or the positions between them.
    uneven: sizes may differ by one.
    """
    check_arraylike(name, ary)
    ary = as_array(ary)
    axis = canonical_axis(axis, ary.ndim)
    n = ary.shape[axis]
    sizes = _sizes(name, n, sections, uneven=uneven)
    if sum(sizes) != n:
        # Positions out of order: parts overlap, so each is a slice.
        points = [0, *(int(p) for p in np.asarray(sections)), n]
        return [lax.slice_in_dim(ary, min(a, n), max(min(a, n), min(b, n)), axis=axis)
                for a, b in zip(points[:-1], points[1:], strict=True)]
    return lax.split(ary, sizes, axis)


@sharding_notes.cut
def split(ary, indices_or_sections, axis=0):
    """`ary` cut along the dimension `axis`, as a list of arrays.

    indices_or_sections: a number of equal parts, or the positions at which to cut.
    Raises ValueError where the size is not divisible by the number (`array_split` allows that).

    >>> jnp.split(jnp.arange(6), 3)
    [Array([0, 1], dtype=int32), Array([2, 3], dtype=int32), Array([4, 5], dtype=int32)]
    >>> [part.shape for part in jnp.split(jnp.ones((2, 6)), [1, 4], axis=1)]
    [(2, 1), (2, 3), (2, 2)]
    """
    return _split("split", ary, indices_or_sections, axis)


@sharding_notes.cut
def array_split(ary, indices_or_sections, axis=0):
    """`ary` cut along the dimension `axis` into nearly equal parts, or at positions; see `split`.

    >>> [part.shape for part in jnp.array_split(jnp.arange(7), 3)]
    [(3,), (2,), (2,)]
    """
    return _split("array_split", ary, indices_or_sections, axis, uneven=True)


def vsplit(ary, indices_or_sections):
    """`ary` cut along its first dimension into equal parts, or at positions; see `split`."""
    return _split("vsplit", ary, indices_or_sections, 0)


def hsplit(ary, indices_or_sections):
    """`ary` cut along its second dimension (vectors along the first), as a list; see `split`.

    >>> [part.shape for part in jnp.hsplit(jnp.ones((2, 6)), 3)]
    [(2, 2), (2, 2), (2, 2)]
    """
    check_arraylike("hsplit", ary)
    return _split("hsplit", ary, indices_or_sections, 0 if len(shape_of(ary)) == 1 else 1)


def dsplit(ary, indices_or_sections):
    """`ary` cut along its third dimension into equal parts, or at positions; see `split`."""
    return _split("dsplit", ary, indices_or_sections, 2)

