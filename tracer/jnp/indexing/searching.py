"""Selecting and finding: where, select, nonzero, searchsorted, digitize, piecewise.

Results whose size depends on values need `size=` while tracing.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....ir.diagnostics.diagnostic import fail
from ....ir.diagnostics.errors import ConcretizationTypeError
from ....ir.ops.elementwise.arithmetic import add_p
from ....ir.ops.elementwise.comparison import lt_p, ne_p
from ....ir.ops.elementwise.select import select_n_p
from ....ir.ops.movement.creation import iota_p
from ....ir.ops.reductions.positions import argmax_p
from ....ir.ops.reductions.sorting import sort_p
from ....ir.values.array import Array
from ....ir.values.typeof import typeof
from ... import lax, sharding_notes
from ...operands.broadcasting import broadcast_together, select_of, to_type
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    literal_like,
    promote_dtypes,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import BOOL, LEVEL, int_default
from ...operands.shape_arguments import canonical_axis, static_int
from ...shardings.eager_mesh import whole_beside
from ...staging.constants import as_array
from ...staging.memoized import memoized
from ...staging.tracer import Tracer
from ..elementwise.logic import truth
from ..manipulation.joining import concatenate
from ..manipulation.shaping import ravel

__all__ = [
    "argwhere", "choose", "compress", "extract", "flatnonzero", "nonzero", "piecewise", "select",
    "where",
]


@sharding_notes.equal
@memoized
def where(condition, x=None, y=None, /, *, size=None, fill_value=None) -> Any:
    """`x` where the condition is true, else `y`, elementwise; the three broadcast to one shape.

    With the condition alone: the positions where it is true, as `nonzero` gives them. size,
    fill_value: for that case only. Raises TypeError if only one of `x` and `y` is given.

    >>> x = jnp.array([-1.0, 2.0])
    >>> jnp.where(x > 0, x, 0.0)
    Array([0., 2.], dtype=float32)
    """
    if isinstance(x, Array) and isinstance(y, Array) and isinstance(condition, Array):
        c, a, b = condition.aval, x.aval, y.aval
        if (c.dtype == BOOL and a.dtype is b.dtype and a.weak_type is b.weak_type
                and c.shape == a.shape == b.shape and size is None and fill_value is None):
            return select_n_p.bind(condition, y, x)
    if x is None and y is None:
        check_arraylike("where", condition)
        return nonzero(condition, size=size, fill_value=fill_value)
    check_arraylike("where", condition, x, y)
    if size is not None or fill_value is not None:
        raise ValueError("size and fill_value arguments cannot be used in three-term where "
                         "function.")
    return choose_where(condition, x, y)


def choose_where(condition: Any, x: Any, y: Any) -> Array:
    """The three-operand `where`."""
    if dtype_name(condition) != BOOL:
        condition = ne_p.bind(condition, literal_like(0, as_array(condition)))
    x, y = promote_dtypes(x, y)
    return select_of(condition, y, x)


def select(condlist, choicelist, default=0):
    """For each element the choice whose condition is the first that is true, else the default."""
    if len(condlist) != len(choicelist):
        raise ValueError("condlist must have length equal to choicelist "
                         f"({len(condlist)} vs {len(choicelist)})")
    if not len(condlist):
        raise ValueError("condlist must be non-empty")
    check_arraylike("select", *condlist, *choicelist, default)
    conditions = [as_array(c) for c in condlist]
    if any(c.dtype != BOOL for c in conditions):
        raise TypeError("jnp.select: conditions must be boolean arrays")
    choices = promote_dtypes(default, *choicelist)
    n = len(conditions)
    together = broadcast_together(*conditions, *choices)
    conditions, choices = [as_array(c) for c in together[:n]], together[n:]
    none = lax.full_like(conditions[0], False)
    first = argmax_p.bind(lax.stack([none, *conditions], 0), axes=(0,), index_dtype=int_default())
    if len(choices) == 2:
        return select_n_p.bind(conditions[0], *choices)
    return select_n_p.bind(first, *choices)


def piecewise(x, condlist, funclist, *args, **kw):
    """Values of a function defined by cases: each of funclist where its condition holds, the last
    (or zero) elsewhere. Functions are called on the whole of x."""
    check_arraylike("piecewise", x)
    if isinstance(condlist, (Array, np.ndarray)) and condlist.ndim > len(shape_of(x)):
        conditions = [as_array(condlist)[i] for i in range(len(condlist))]
    elif isinstance(condlist, (Array, np.ndarray)) or (
            condlist and not np.ndim(condlist[0]) and shape_of(x)):
        conditions = [as_array(condlist)]
    else:
        conditions = [as_array(c) for c in condlist]
    functions = list(funclist)
    if len(functions) == len(conditions):
        functions.append(0)
    elif len(functions) != len(conditions) + 1:
        raise ValueError(f"with {len(conditions)} condition(s), either {len(conditions)} or "
                         f"{len(conditions) + 1} functions are expected; got {len(funclist)}")
    dtype = dtype_name(x)
    x = as_array(x)
    values = [convert(f(x, *args, **kw) if callable(f) else f, dtype) for f in functions]
    out = to_type(values[-1], x.shape)
    # numpy: where several conditions hold, the last one wins.
    for condition, value in zip(conditions, values[:-1], strict=True):
        out = choose_where(condition, value, out)
    return out


def choose(a, choices, out=None, mode="raise"):
    """For each element of a the array among choices that it numbers."""
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.choose is not supported.")
    check_arraylike("choose", a, *choices)
    index = as_array(a)
    if not np.issubdtype(index.dtype, np.integer):
        raise ValueError("`a` array must be integer typed")
    n = len(choices)
    if mode == "raise":
        if isinstance(index, Tracer):
            fail(ConcretizationTypeError,
                 "Abstract tracer value encountered where concrete value is expected: traced array "
                 f"with shape {index.aval.str_short()}\nThe error occurred because jnp.choose was "
                 "jit-compiled with mode='raise'. Use mode='wrap' or mode='clip' instead.",
                 code="traced-value")
        value = np.asarray(index)
        if value.size and (value.min() < 0 or value.max() >= n):
            raise ValueError("invalid entry in choice array")
    elif mode == "wrap":
        index = lax.rem(index, convert(n, index.dtype))
        index = choose_where(lt_p.bind(index, convert(0, index.dtype)),
                             add_p.bind(index, convert(n, index.dtype)), index)
    elif mode == "clip":
        index = lax.clamp(convert(0, index.dtype), index, convert(n - 1, index.dtype))
    else:
        raise ValueError(f"mode={mode!r} not understood. Must be 'raise', 'wrap', or 'clip'")
    index, *cases = broadcast_together(index, *promote_dtypes(*choices))
    if n == 1:
        return as_array(cases[0])
    if any(any(x.aval.entries) for x in (index, *cases) if isinstance(x, Array)):
        # As in JAX, where this is an indexed read of the choices put together.
        shape = shape_of(index)
        places = [lax.expand_dims(lax.iota(np.int32, size),
                                  tuple(i for i in range(len(shape)) if i != d))
                  for d, size in enumerate(shape)]
        together = concatenate([lax.expand_dims(as_array(c), (0,)) for c in cases])
        return together[(as_array(index), *places)]
    which = convert(index, np.dtype("int32")) if n > 2 else convert(index, BOOL)
    return select_n_p.bind(which, *cases)


# -- positions -------------------------------------------------------------------------------------

def _need_size(name: str, x: Any) -> None:
    fail(ConcretizationTypeError,
         "Abstract tracer value encountered where concrete value is expected: traced array with "
         f"shape {typeof(x).str_short()}\nThe size argument of jnp.{name} must be statically "
         f"specified to use jnp.{name} within JAX transformations.", code="traced-value",
         help=f"give `jnp.{name}` the `size` of its result")


@sharding_notes.ordered
def nonzero(a, *, size=None, fill_value=None):
    """The positions of the elements that are not zero: one vector of indices for each dimension.

    size: the length of the vectors, needed under `jit`, where the number of such elements is not
    known; surplus positions are left out, missing ones get `fill_value` (0, or one a dimension).
    Raises ConcretizationTypeError under `jit` without `size`.

    >>> jnp.nonzero(jnp.array([0, 3, 0, 4]))
    (Array([1, 3], dtype=int32),)
    >>> st.jit(lambda x: jnp.nonzero(x, size=3, fill_value=-1))(jnp.array([0, 3, 0, 4]))
    (Array([ 1,  3, -1], dtype=int32),)
    """
    check_arraylike("nonzero", a)
    x = as_array(a)
    if not x.ndim:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use "
                         "jnp.atleast_1d(scalar).nonzero() instead.")
    if size is None:
        if isinstance(x, Tracer):
            _need_size("nonzero", x)
        return tuple(whole_beside(p.astype(int_default()), x) for p in np.nonzero(np.asarray(x)))
    size = static_int(size)
    fills = fill_value if isinstance(fill_value, tuple) else (
        0 if fill_value is None else fill_value,) * x.ndim
    if len(fills) != x.ndim:
        raise ValueError(f"fill_value={fill_value} must have length {x.ndim}")
    # Indices are integers, and floats where what fills up is a float.
    fills = tuple(f if LEVEL[dtype_name(f)] > 1 else convert(f, int_default()) for f in fills)
    if not x.size or not size:
        return tuple(to_type(as_array(f), (size,)) for f in fills)
    flat = true_positions(lax.reshape(truth(x), (x.size,)), size)
    found = lt_p.bind(flat, np.int32(x.size))
    out = []
    for d, n in enumerate(x.shape):
        stride = math.prod(x.shape[d + 1:])
        place = lax.div(flat, np.int32(stride)) if stride != 1 else flat
        place = lax.rem(place, np.int32(n))
        place = convert(place, int_default())
        out.append(choose_where(found, *promote_dtypes(place, fills[d])))
    return tuple(out)


def true_positions(mask: Array, size: int) -> Array:
    """The first `size` positions where a vector is true, its length if there are not as many."""
    n = mask.shape[0]
    places = iota_p.bind(dtype=np.dtype("int32"), shape=(n,), dimension=0, sharding=None)
    places = choose_where(mask, places, np.int32(n))
    places = sort_p.bind(places, dimension=0, is_stable=True, num_keys=1)[0]
    if size <= n:
        return lax.slice_in_dim(places, 0, size)
    return lax.pad(places, np.int32(n), [(0, size - n, 0)])


def flatnonzero(a, *, size=None, fill_value=None):
    """The positions in the flattened array of elements that differ from zero."""
    return nonzero(ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a, *, size=None, fill_value=None):
    """The positions of the elements that are not zero, one row each; under `jit` `size` is needed.
    """
    check_arraylike("argwhere", a)
    x = as_array(a)
    if not x.ndim:
        if size is None and isinstance(x, Tracer):
            _need_size("argwhere", x)
        return as_array(np.zeros((size if size is not None else int(bool(np.asarray(x))), 0),
                                 np.int32))
    return lax.transpose(lax.stack(nonzero(x, size=size, fill_value=fill_value), 0), (1, 0))


def extract(condition, arr, *, size=None, fill_value=0):
    """The elements of `arr`, flattened, where the condition is true; under `jit` `size` is needed.
    """
    return compress(ravel(condition), ravel(arr), size=size, fill_value=fill_value)


def compress(condition, a, axis=None, *, size=None, fill_value=0, out=None):
    """The slices of an array along `axis` where the condition (a vector of bool) is true."""
    check_arraylike("compress", condition, a, fill_value)
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.compress is not supported.")
    mask = as_array(condition)
    if mask.ndim != 1:
        raise ValueError("condition must be a 1D array")
    x = ravel(a) if axis is None else as_array(a)
    axis = canonical_axis(0 if axis is None else axis, x.ndim)
    n = min(mask.shape[0], x.shape[axis])
    if size is None:
        if isinstance(mask, Tracer):
            rows = lax.slice_in_dim(x, 0, n, axis=axis)     # raises where that cuts into blocks
            bool(lax.reduce_or(lax.slice_in_dim(truth(mask), n, None), (0,)))  # not known: raises
            return rows
        (places,) = np.nonzero(np.asarray(mask))
        if len(places) and places[-1] >= x.shape[axis]:
            raise ValueError("condition contains entries that are out of bounds")
        return take_rows(x, as_array(places.astype(np.int32)), axis)
    mask = lax.slice_in_dim(truth(mask), 0, n)
    places = true_positions(mask, size)
    rows = take_rows(x, lax.min(places, np.int32(max(x.shape[axis] - 1, 0))), axis)
    found = lt_p.bind(places, np.int32(n))
    found = lax.broadcast_in_dim(found, rows.shape, (axis,))
    return choose_where(found, rows, convert(fill_value, rows.dtype))


def take_rows(x: Any, places: Any, axis: int) -> Array:
    """Slices of x at places, which are in range, along a dimension."""
    x = as_array(x)
    sizes = list(x.shape)
    sizes[axis] = 1
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(d for d in range(x.ndim) if d != axis), collapsed_slice_dims=(axis,),
        start_index_map=(axis,))
    return lax.gather(x, lax.expand_dims(as_array(places), (1,)), numbers, sizes)
