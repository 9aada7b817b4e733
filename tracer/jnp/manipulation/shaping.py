"""Shapes: reshape, transpose, squeeze, broadcast_to and their like."""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.ops.communication.sharding import reshard_p
from ....ir.ops.elementwise.identity import copy_p
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...operands.broadcasting import broadcast_together, to_type
from ...operands.dtype_promotion import check_arraylike
from ...operands.rank_promotion import shape_of
from ...operands.shape_arguments import (
    as_sequence,
    canonical_axes,
    canonical_axis,
    integers,
    static_shape,
)
from ...shardings.out_sharding import output_sharding
from ...staging.constants import as_array
from ...staging.memoized import memoized

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes",
    "broadcast_to", "expand_dims", "matrix_transpose", "moveaxis", "ndim", "permute_dims", "ravel",
    "reshape", "rollaxis", "shape", "size", "squeeze", "swapaxes", "transpose",
]


def ndim(a):
    """The number of dimensions of an array, of a number (0) or of a nested sequence."""
    return len(shape(a))


def shape(a):
    """The sizes of the dimensions of an array, of a number (none) or of a nested sequence."""
    if hasattr(a, "__jax_array__"):
        a = as_array(a)
    return tuple(a.shape) if hasattr(a, "shape") else np.shape(a)


def size(a, axis=None):
    """The number of elements of an array, or of positions along a dimension or several.

    >>> jnp.size(jnp.ones((2, 3))), jnp.size(jnp.ones((2, 3)), axis=1)
    (6, 3)
    """
    sizes = shape(a)
    if axis is None:
        return math.prod(sizes)
    return math.prod(sizes[d] for d in canonical_axes(axis, len(sizes)))


# -- reshape ---------------------------------------------------------------------------------------

def resolved_shape(a: Any, newshape: Any) -> tuple[int, ...]:
    """The shape argument of reshape with -1 replaced by what is left. Raises TypeError as JAX."""
    have = shape_of(a)
    total = math.prod(have)
    if type(newshape) not in (int, tuple, list, str) and getattr(newshape, "ndim", 1) and any(
            hasattr(newshape, name) for name in ("__iter__", "__getitem__")):
        newshape = tuple(newshape)
    sizes = list(integers(newshape))
    unknown = [d for d, n in enumerate(sizes) if n == -1]
    if len(unknown) > 1:
        raise TypeError("can only specify one unknown axis size with a `-1` value, got "
                        f"{tuple(sizes)}")
    if unknown:
        known = math.prod(n for n in sizes if n != -1)
        if known == 0 or total % known:
            raise TypeError(f"cannot reshape array of shape {have} (size {total}) into shape "
                            f"{tuple(sizes)} because the product of specified axis sizes ({known}) "
                            f"does not evenly divide {total}")
        sizes[unknown[0]] = total // known
    elif math.prod(sizes) != total:
        raise TypeError(f"cannot reshape array of shape {have} (size {total}) into shape "
                        f"{tuple(sizes)} (size {math.prod(sizes)})")
    return tuple(sizes)


@sharding_notes.reshaped
@memoized
def reshape(a, shape, order="C", *, copy=None, out_sharding=None):
    """The elements of `a` in another shape.

    shape: an int or a sequence of ints with as many elements; one of them may be -1 and is
    computed.
    order: "C" reads and writes row by row, "F" column by column. copy: True for a copy in any
    case.
    out_sharding: the PartitionSpec of the result, needed over Explicit axes where the sharding
    cannot be derived. Raises TypeError for a shape with another number of elements.

    >>> jnp.arange(6).reshape(2, -1)
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    >>> mesh = st.make_mesh((8,), ("x",), axis_types=(st.sharding.AxisType.Explicit,))
    >>> with st.set_mesh(mesh):
    ...     a = st.device_put(np.ones((8, 6)), P("x"))
    ...     st.typeof(jnp.reshape(a, (6, 8), out_sharding=P(None, "x")))
    ShapedArray(float32[6,8@x])
    """
    check_arraylike("reshape", a)
    sizes = resolved_shape(a, shape)
    if copy:
        a = copy_p.bind(a)
    if order == "C":
        return lax.reshape(a, sizes, None, out_sharding=out_sharding)
    if order == "F":
        dims = tuple(range(len(shape_of(a))))[::-1]
        out = lax.reshape(a, sizes[::-1], dims if len(dims) > 1 else None)
        out = lax.transpose(out, tuple(range(len(sizes)))[::-1])
        sharding = output_sharding(out_sharding, "reshape", len(sizes))
        return out if sharding is None else reshard_p.bind(out, dst_sharding=sharding)
    if order == "A":
        raise NotImplementedError("np.reshape order=A is not implemented.")
    raise ValueError(f"Unexpected value for 'order' argument: {order}.")


@sharding_notes.reshaped
@memoized
def ravel(a, order="C", *, out_sharding=None):
    """The elements of `a` as a vector, read row by row (order "C") or column by column ("F").

    >>> jnp.ravel(jnp.array([[1, 2], [3, 4]]))
    Array([1, 2, 3, 4], dtype=int32)
    """
    check_arraylike("ravel", a)
    if order == "K":
        raise NotImplementedError("Ravel not implemented for order='K'.")
    return reshape(a, (math.prod(shape_of(a)),), order, out_sharding=out_sharding)


# -- order of dimensions ---------------------------------------------------------------------------

@sharding_notes.rearranged
def transpose(a, axes=None):
    """`a` with its dimensions in another order; also written `a.T`.

    axes: dimension i of the result is dimension axes[i] of `a`; None reverses them.
    Raises TypeError unless `axes` is a permutation of the dimensions.

    >>> jnp.transpose(jnp.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    check_arraylike("transpose", a)
    n = len(shape_of(a))
    order = tuple(range(n))[::-1] if axes is None else tuple(
        canonical_axis(d, n) for d in axes)
    return lax.transpose(a, order)


def permute_dims(a, /, axes):
    """`a` with its dimensions in the order `axes`; `transpose` under the array API's name."""
    if axes is None:
        raise TypeError("permute_dims needs the order of all dimensions, got axes=None; "
                        "jnp.transpose(a) reverses them")
    return transpose(a, axes)


def matrix_transpose(x, /):
    """`x` with its last two dimensions swapped: [..., m, n] gives [..., n, m]. See `transpose`."""
    check_arraylike("matrix_transpose", x)
    n = len(shape_of(x))
    if n < 2:
        raise ValueError(f"x must be at least two-dimensional for matrix_transpose; got ndim={n}")
    return lax.transpose(x, (*range(n - 2), n - 1, n - 2))


@sharding_notes.rearranged
@memoized
def swapaxes(a, axis1, axis2):
    """`a` with the dimensions `axis1` and `axis2` swapped.

    >>> jnp.swapaxes(jnp.ones((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    check_arraylike("swapaxes", a)
    n = len(shape_of(a))
    order = list(range(n))
    i, j = canonical_axis(axis1, n), canonical_axis(axis2, n)
    order[i], order[j] = order[j], order[i]
    return lax.transpose(a, order)


@sharding_notes.rearranged
@memoized
def moveaxis(a, source, destination):
    """`a` with the dimensions `source` moved to the places `destination`.

    source, destination: ints, or sequences of equal length. The other dimensions keep their order.

    >>> jnp.moveaxis(jnp.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    check_arraylike("moveaxis", a)
    n = len(shape_of(a))
    src, dst = canonical_axes(source, n), canonical_axes(destination, n)
    if len(src) != len(dst):
        raise ValueError("Inconsistent number of elements: "
                         f"{len(src)} vs {len(dst)}")
    order = [d for d in range(n) if d not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return lax.transpose(a, order)


def rollaxis(a, axis, start=0):
    """`a` with the dimension `axis` moved in front of the one that is at `start`; see `moveaxis`.

    >>> jnp.rollaxis(jnp.ones((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    check_arraylike("rollaxis", a)
    n = len(shape_of(a))
    start = operator.index(start)
    axis = canonical_axis(axis, n)
    if not -n <= start <= n:
        raise ValueError(f"start={start} must satisfy {-n}<=start<={n}")
    if start < 0:
        start += n
    return moveaxis(a, axis, start - 1 if start > axis else start)


# -- dimensions of size 1 --------------------------------------------------------------------------

@sharding_notes.rearranged
@memoized
def squeeze(a, axis=None):
    """`a` without its dimensions of size 1: all of them, or those in `axis`.

    Raises ValueError for a dimension in `axis` whose size is not 1.

    >>> jnp.squeeze(jnp.ones((1, 3, 1))).shape, jnp.squeeze(jnp.ones((1, 3, 1)), axis=0).shape
    ((3,), (3, 1))
    """
    check_arraylike("squeeze", a)
    sizes = shape_of(a)
    if axis is None:
        axis = tuple(d for d, n in enumerate(sizes) if n == 1)
    return lax.squeeze(as_array(a), canonical_axes(axis, len(sizes)))


@sharding_notes.rearranged
def expand_dims(a, axis):
    """`a` with dimensions of size 1 inserted; `axis` says where they are in the result.

    axis: an int or a sequence of ints. Raises ValueError for a place out of bounds.

    >>> jnp.expand_dims(jnp.ones((3, 4)), (0, -1)).shape
    (1, 3, 4, 1)
    """
    check_arraylike("expand_dims", a)
    axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    return lax.expand_dims(a, axes)


def _atleast(name: str, arys: tuple[Any, ...], f: Any) -> Any:
    check_arraylike(name, *arys)
    out = [f(as_array(x)) for x in arys]
    return out[0] if len(out) == 1 else out


def atleast_1d(*arys):
    """The arrays with at least one dimension: numbers become vectors of size 1.

    One array gives an array, several give a list.

    >>> jnp.atleast_1d(3.0).shape
    (1,)
    """
    return _atleast("atleast_1d", arys,
                    lambda x: x if x.ndim >= 1 else lax.expand_dims(x, (0,)))


def atleast_2d(*arys):
    """The arrays with at least two dimensions: new ones, of size 1, come first."""
    def f(x: Array) -> Array:
        return x if x.ndim >= 2 else lax.expand_dims(x, tuple(range(2 - x.ndim)))

    return _atleast("atleast_2d", arys, f)


def atleast_3d(*arys):
    """Arrays with at least three dimensions: (1, n, 1) of vectors, (m, n, 1) of matrices."""
    def f(x: Array) -> Array:
        new = {0: (0, 1, 2), 1: (0, 2), 2: (2,)}.get(x.ndim, ())
        return lax.expand_dims(x, new) if new else x

    return _atleast("atleast_3d", arys, f)


# -- broadcasting ----------------------------------------------------------------------------------

def broadcast_shapes(*shapes):
    """The shape to which shapes (tuples of ints, or ints) broadcast.

    Raises ValueError if there is none.
    """
    return lax.broadcast_shapes(*shapes)


@sharding_notes.rearranged
def broadcast_to(array, shape, *, out_sharding=None):
    """`array` repeated along new dimensions and along those of size 1, to this shape.

    Dimensions are aligned at the end. out_sharding: the spec of the result over Explicit axes.
    Raises ValueError where the shape does not fit, or where the array's own sharding differs from
    `out_sharding`.

    >>> jnp.broadcast_to(jnp.array([1, 2]), (3, 2))
    Array([[1, 2],
           [1, 2],
           [1, 2]], dtype=int32)
    """
    check_arraylike("broadcast_to", array)
    target = static_shape(as_sequence(shape))
    have = shape_of(array)
    if len(target) < len(have):
        raise ValueError("Cannot broadcast to shape with fewer dimensions: "
                         f"arr_shape={have} shape={target}")
    sharding = output_sharding(out_sharding, "broadcast_to", len(target))
    return to_type(array, target, sharding)


def broadcast_arrays(*args):
    """The arrays broadcast to one common shape, as a list. Raises ValueError if there is none."""
    check_arraylike("broadcast_arrays", *args)
    return [as_array(x) for x in broadcast_together(*args)]
