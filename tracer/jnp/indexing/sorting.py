"""Order along a dimension, which must be unsharded: sort, argsort, lexsort, partition."""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.ops.elementwise.arithmetic import neg_p
from ....ir.ops.elementwise.complex_parts import complex_p
from ....ir.ops.movement.creation import iota_p
from ....ir.ops.reductions.sorting import sort_p, top_k_p
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    strong,
    to_inexact,
    user_dtype,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import LEVEL, int_default
from ...operands.shape_arguments import canonical_axis
from ...staging.constants import as_array
from ...staging.memoized import memoized
from ..elementwise.complex_numbers import imag, real

__all__ = ["argpartition", "argsort", "lexsort", "partition", "sort", "sort_complex"]


def _no_kind(name: str, kind: Any, order: Any) -> None:
    if kind is not None:
        raise TypeError(f"'kind' argument to {name} is not supported. Use stable=True or "
                        "stable=False to specify sort stability.")
    if order is not None:
        raise TypeError(f"'order' argument to {name} is not supported.")


def flattened(a: Any, axis: Any) -> tuple[Array, int]:
    """The array and its dimension `axis`; flattened, and that one, where axis is None."""
    x = as_array(a)
    if axis is None:
        return lax.reshape(x, (x.size,)), 0
    return x, canonical_axis(axis, x.ndim)


@sharding_notes.ordered
@memoized
def sort(a, axis=-1, *, kind=None, order=None, stable=True, descending=False):
    """`a` sorted along the dimension `axis`; NaN comes last.

    axis: None sorts the flattened array. descending: from the greatest down. stable: equal elements
    keep their order. kind and order have no effect.

    >>> jnp.sort(jnp.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    check_arraylike("sort", a)
    _no_kind("sort", kind, order)
    x, dim = flattened(a, axis)
    out = sort_p.bind(x, dimension=dim, is_stable=bool(stable), num_keys=1)[0]
    return lax.rev(out, (dim,)) if descending else out


@sharding_notes.ordered
@memoized
def argsort(a, axis=-1, *, kind=None, order=None, stable=True, descending=False, dtype=None):
    """The positions of the elements of `a` in the order in which `sort` puts them.

    axis: None means positions in the flattened array. The arguments are those of `sort`.

    >>> jnp.argsort(jnp.array([30, 10, 20]))
    Array([1, 2, 0], dtype=int32)
    """
    check_arraylike("argsort", a)
    _no_kind("argsort", kind, order)
    x, dim = flattened(a, axis)
    index = int_default() if dtype is None else user_dtype(dtype, "argsort")
    places = iota_p.bind(dtype=index, shape=x.shape, dimension=dim,
                         sharding=None if not any(x.aval.entries) else x.aval.sharding)
    if descending and stable:
        x, places = lax.rev(x, (dim,)), lax.rev(places, (dim,))
    out = sort_p.bind(x, places, dimension=dim, is_stable=bool(stable), num_keys=1)[1]
    return lax.rev(out, (dim,)) if descending else out


def lexsort(keys, axis=-1):
    """The positions in ascending order by the last key, ties by the one before it, and so on."""
    keys = tuple(as_array(k) for k in keys)
    if not keys:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    if any(k.shape != keys[0].shape for k in keys):
        raise ValueError("all keys need to be the same shape")
    if not keys[0].ndim:
        return as_array(np.int32(0))
    dim = canonical_axis(axis, keys[0].ndim)
    places = iota_p.bind(dtype=int_default(), shape=keys[0].shape, dimension=dim, sharding=None)
    return sort_p.bind(*keys[::-1], places, dimension=dim, is_stable=True, num_keys=len(keys))[-1]


def sort_complex(a):
    """`a` as complex numbers, sorted by real part, and by imaginary part where those are equal.

    >>> jnp.sort_complex(jnp.array([2, 1]))
    Array([1.+0.j, 2.+0.j], dtype=complex64)
    """
    check_arraylike("sort_complex", a)
    x = strong(as_array(a))
    if LEVEL[dtype_name(x)] < 3:
        real_type = to_inexact(dtype_name(x))
        wide = np.dtype("complex128" if real_type.itemsize == 8 else "complex64")
        x = convert(x, wide)
    if not x.ndim:
        return x
    dim = x.ndim - 1
    parts = sort_p.bind(real(x), imag(x), dimension=dim, is_stable=True, num_keys=2)
    return complex_p.bind(*parts)


def _unsigned_order(a: Array) -> Any:
    """Numbers whose descending order is the ascending order of a."""
    if np.issubdtype(a.dtype, np.unsignedinteger) or a.dtype == np.dtype(bool):
        return lax.bitwise_not(a)
    if np.issubdtype(a.dtype, np.integer):
        return lax.bitwise_not(a)
    return neg_p.bind(a)


def _to_last(a: Any, axis: int) -> Array:
    x = as_array(a)
    dim = canonical_axis(axis, x.ndim)
    return lax.transpose(x, [*(d for d in range(x.ndim) if d != dim), dim])


def _from_last(x: Any, axis: int) -> Array:
    dim = canonical_axis(axis, x.ndim)
    order = list(range(x.ndim - 1))
    order.insert(dim, x.ndim - 1)
    return lax.transpose(x, order)


def _checked_kth(name: str, a: Any, kth: Any, axis: int) -> int:
    if LEVEL[dtype_name(a)] == 3:
        raise NotImplementedError(f"jnp.{name} for complex dtype is not implemented.")
    n = shape_of(a)[canonical_axis(axis, len(shape_of(a)))]
    return canonical_axis(kth, n, "kth")


@sharding_notes.ordered
def partition(a, kth, axis=-1):
    """a with the element that sorting puts at kth in place, smaller ones before it."""
    check_arraylike("partition", a)
    k = _checked_kth("partition", a, kth, axis)
    x = _to_last(a, axis)
    n = x.shape[-1]
    low = _unsigned_order(top_k_p.bind(_unsigned_order(x), k=k + 1, axis=x.ndim - 1)[0])
    high = top_k_p.bind(x, k=n - k - 1, axis=x.ndim - 1)[0]
    return _from_last(lax.concatenate([low, high], x.ndim - 1), axis)


@sharding_notes.ordered
def argpartition(a, kth, axis=-1):
    """The positions of the elements of `a` in the order in which `partition` puts them."""
    check_arraylike("argpartition", a)
    k = _checked_kth("argpartition", a, kth, axis)
    x = _to_last(a, axis)
    n = x.shape[-1]
    order = argsort(x, axis=-1, stable=True)
    low = lax.slice_in_dim(order, 0, k + 1, axis=-1)
    high = lax.sort(lax.slice_in_dim(order, k + 1, n, axis=-1))
    return _from_last(lax.concatenate([low, high], x.ndim - 1), axis)
