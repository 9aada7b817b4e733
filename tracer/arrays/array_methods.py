"""Operators and methods of arrays, installed on the common base of arrays and tracers.

Each is the jnp function of the same name with the array as its first operand. Operators return
`NotImplemented` for operands that they do not know, so that other classes can define theirs.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.api_boundary import api_function
from ...ir.values.array import install_methods
from .. import jnp, lax
from ..jnp.array_api import __array_api_version__
from ..jnp.creation import arrays
from ..jnp.elementwise import arithmetic, complex_numbers, rounding
from ..jnp.elementwise.bits import bitwise_not as _invert
from ..jnp.elementwise.clipping import clip
from ..jnp.indexing import searching, sorted_search, sorting
from ..jnp.indexing import take as jnp_indexing
from ..jnp.indexing.indexed_update import IndexUpdateHelper
from ..jnp.manipulation import diagonals, joining, rearrange, shaping
from ..jnp.matrices import contraction
from ..jnp.reductions import cumulative, moments
from ..jnp.reductions import reduce as reductions
from ..operands.dtype_promotion import user_dtype
from ..staging.constants import put_on_device
from .array_operators import (
    BINARY,
    COMPARISONS,
    _contains,
    _delete,
    _get,
    _iterate,
    _length,
    _operator,
    _reflected,
    _round,
    _set,
)

# -- methods ---------------------------------------------------------------------------------------


def _argsort(self, axis=-1, *, kind=None, order=None, stable=True, descending=False):
    return sorting.argsort(self, axis, kind=kind, order=order, stable=stable,
                           descending=descending)


def _astype(self, dtype, copy=False, device=None):
    return arrays.astype(self, dtype, copy=copy, device=device)


def _byteswap(self):
    """The array with the bytes of each element in reverse order."""
    size = self.dtype.itemsize
    if size == 1:
        return self
    parts = lax.bitcast_convert_type(self, np.uint8)
    parts = lax.rev(parts, (parts.ndim - 1,))
    return lax.bitcast_convert_type(parts, self.dtype)


def _compress(self, condition, axis=None, *, out=None, size=None, fill_value=0):
    return searching.compress(condition, self, axis=axis, out=out, size=size,
                              fill_value=fill_value)


def _copy(self):
    return arrays.array(self, copy=True)


def _dot(self, b, *, precision=None, preferred_element_type=None):
    return contraction.dot(self, b, precision=precision,
                           preferred_element_type=preferred_element_type)


def _flatten(self, order="C", *, out_sharding=None):
    return shaping.ravel(self, order=order, out_sharding=out_sharding)


def _nonzero(self, *, fill_value=None, size=None):
    return searching.nonzero(self, size=size, fill_value=fill_value)


def _reshape(self, *args, order="C", out_sharding=None):
    newshape = args[0] if len(args) == 1 else args
    return shaping.reshape(self, newshape, order=order, out_sharding=out_sharding)


def _std(self, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None,
         correction=None):
    return moments.std(self, axis=axis, dtype=dtype, out=out, ddof=ddof, keepdims=keepdims,
                       where=where, correction=correction)


def _to_device(self, device, *, stream=None):
    return put_on_device(self, device)


def _transpose(self, *args):
    if not args:
        axes = None
    elif len(args) == 1:
        axes = args[0] if args[0] is None or isinstance(args[0], (tuple, list)) else args
    else:
        axes = args
    return shaping.transpose(self, axes)


def _var(self, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None,
         correction=None):
    return moments.var(self, axis=axis, dtype=dtype, out=out, ddof=ddof, keepdims=keepdims,
                       where=where, correction=correction)


def _view(self, dtype=None, type=None):
    """The array's bits as another dtype, with a last dimension of as many elements as fit."""
    if type is not None:
        raise NotImplementedError("`type` argument of array.view() is not supported.")
    if dtype is None:
        return self
    target = user_dtype(dtype, "view")
    own = self.dtype
    if own == target:
        return self
    if not self.ndim and own.itemsize != target.itemsize:
        raise ValueError("view() of a 0d array is only supported if the itemsize is unchanged.")
    bool_ = np.dtype(bool)
    if own == bool_:
        return _view(lax.convert_element_type(self, np.uint8), target)
    if target == bool_:
        return lax.convert_element_type(_view(self, np.uint8), bool_)
    for wide, part in ((np.dtype("complex64"), np.float32), (np.dtype("complex128"), np.float64)):
        if own == wide:
            pairs = lax.stack([lax.real(self), lax.imag(self)], self.ndim)
            if self.ndim:
                pairs = lax.reshape(pairs, (*self.shape[:-1], 2 * self.shape[-1]))
            return _view(pairs, target)
        if target == wide:
            flat = _view(self, part)
            if flat.shape[-1] % 2:
                raise ValueError("When changing to a larger dtype, its size must be a divisor of "
                                 "the total size in bytes of the last axis of the array.")
            pairs = lax.reshape(flat, (*flat.shape[:-1], flat.shape[-1] // 2, 2))
            return lax.complex(lax.index_in_dim(pairs, 0, -1, False),
                               lax.index_in_dim(pairs, 1, -1, False))
    if own.itemsize == target.itemsize:
        return lax.bitcast_convert_type(self, target)
    if not self.ndim:
        raise ValueError("Changing the dtype of a 0d array is only supported if the itemsize is "
                         "unchanged")
    if own.itemsize > target.itemsize:
        out = lax.bitcast_convert_type(self, target)
        return lax.reshape(out, (*self.shape[:-1], self.shape[-1] * out.shape[-1]))
    ratio = target.itemsize // own.itemsize
    if self.shape[-1] % ratio:
        raise ValueError("When changing to a larger dtype, its size must be a divisor of the total "
                         "size in bytes of the last axis of the array.")
    return lax.bitcast_convert_type(
        lax.reshape(self, (*self.shape[:-1], self.shape[-1] // ratio, ratio)), target)


NAMESPACE: list[Any] = [jnp]
"""What `__array_namespace__` gives; the public module of numpy functions puts itself here."""


def _array_namespace(self, *, api_version=None):
    """The module that implements the array API standard for this array."""
    if api_version is not None and api_version != __array_api_version__:
        raise ValueError(f"api_version={api_version!r} is not available; available versions are: "
                         f"{[__array_api_version__]}")
    return NAMESPACE[0]


def _flat(self):
    raise NotImplementedError("JAX Arrays do not implement the arr.flat property: consider "
                              "arr.flatten() instead.")


METHODS: dict[str, Any] = {
    "all": reductions.all, "any": reductions.any, "argmax": reductions.argmax,
    "argmin": reductions.argmin, "argpartition": sorting.argpartition, "argsort": _argsort,
    "astype": _astype, "byteswap": _byteswap, "choose": searching.choose, "clip": clip,
    "compress": _compress, "conj": complex_numbers.conj, "conjugate": complex_numbers.conjugate,
    "copy": _copy, "cumprod": cumulative.cumprod, "cumsum": cumulative.cumsum,
    "diagonal": diagonals.diagonal, "dot": _dot, "flatten": _flatten, "max": reductions.max,
    "mean": moments.mean, "min": reductions.min, "nonzero": _nonzero, "prod": reductions.prod,
    "ptp": reductions.ptp, "ravel": shaping.ravel, "repeat": rearrange.repeat,
    "reshape": _reshape, "round": rounding.round, "searchsorted": sorted_search.searchsorted,
    "sort": sorting.sort, "squeeze": shaping.squeeze, "std": _std, "sum": reductions.sum,
    "swapaxes": shaping.swapaxes, "take": jnp_indexing.take, "to_device": _to_device,
    "trace": diagonals.trace, "transpose": _transpose, "var": _var, "view": _view,
    "T": property(lambda self: shaping.transpose(self)),
    "mT": property(lambda self: shaping.matrix_transpose(self)),
    "real": property(lambda self: complex_numbers.real(self)),
    "imag": property(lambda self: complex_numbers.imag(self)),
    "at": property(IndexUpdateHelper), "flat": property(_flat),
    "__neg__": lambda self: arithmetic.negative_function(self),
    "__pos__": lambda self: arithmetic.positive(self),
    "__abs__": lambda self: arithmetic.absolute(self),
    "__invert__": lambda self: _invert(self), "__round__": _round, "__len__": _length,
    "__iter__": _iterate, "__contains__": _contains, "__getitem__": _get, "__setitem__": _set,
    "__delitem__": _delete,
    "__array_namespace__": _array_namespace,
    "_split": lambda self, *args, **kwargs: joining.split(self, *args, **kwargs),
}
for _name, _function in BINARY.items():
    METHODS[f"__{_name}__"] = _operator(_function, f"__{_name}__")
    METHODS[f"__r{_name}__"] = _reflected(_function, f"__r{_name}__")
for _name, _function in COMPARISONS.items():
    METHODS[f"__{_name}__"] = _operator(_function, f"__{_name}__")


for _name, _method in METHODS.items():
    if not _name.startswith("_") and not getattr(_method, "__doc__", None):
        _method.__doc__ = f"As `numpy.{_name}`, with this array as the first operand."


def _bounded(name: str, method: Any) -> Any:
    if isinstance(method, property):
        return property(api_function(method.fget), doc=method.__doc__) if method.fget else method
    if getattr(method, "__name__", "").startswith(("_", "<")) and not name.startswith("__"):
        method.__name__ = method.__qualname__ = name          # what users call it
    return api_function(method)


install_methods({name: _bounded(name, method) for name, method in METHODS.items()})
