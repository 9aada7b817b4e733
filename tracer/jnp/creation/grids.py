"""Index expressions (`mgrid`, `ogrid`, `r_`, `c_`, `s_`) and functions applied along dimensions."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.settings.context import config
from ....ir.values.array import Array
from ... import lax
from ...batching.vmap import vmap
from ...operands.dtype_promotion import check_arraylike, promote_dtypes
from ...operands.shape_arguments import canonical_axis
from ...staging.constants import as_array
from ..elementwise.ufunc import ufunc
from ..indexing.take import meshgrid
from ..manipulation.joining import concatenate
from ..manipulation.shaping import atleast_1d
from ..vectorize import vectorize
from .ranges import arange, linspace

__all__ = [
    "apply_along_axis", "apply_over_axes", "c_", "frompyfunc", "index_exp", "mgrid", "ogrid", "r_",
    "s_",
]
index_exp = np.index_exp
s_ = np.s_


def _range(s: slice) -> Array:
    start, stop, step = s.start or 0, s.stop, 1 if s.step is None else s.step
    if isinstance(step, complex):
        return linspace(start, stop, int(abs(step)))
    return arange(start, stop, step)


class _Grid:
    """`mgrid[0:3, 0:2:5j]`: positions along each dimension of a grid, full or open."""

    def __init__(self, sparse: bool) -> None:
        self.sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _range(key)
        with config.override(jax_numpy_dtype_promotion="standard"):   # ranges have no other dtype
            rows = promote_dtypes(*(_range(k) for k in key))
        out = meshgrid(*rows, indexing="ij", sparse=self.sparse)
        if self.sparse:
            return out
        return lax.stack(out, 0) if out else as_array(np.zeros((0,)))


mgrid = _Grid(sparse=False)
ogrid = _Grid(sparse=True)


class _Joiner:
    """`r_[a, 0, 1:5]`: arrays, numbers and ranges joined; a text in front gives axis, ndmin and
    the place of trailing dimensions, as numpy's."""

    def __init__(self, axis: int, ndmin: int, trans1d: int) -> None:
        self.axis, self.ndmin, self.trans1d = axis, ndmin, trans1d

    def __getitem__(self, key: Any) -> Any:
        items = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, trans1d = self.axis, self.ndmin, self.trans1d
        if items and isinstance(items[0], str):
            text = items.pop(0)
            if text in ("r", "c"):
                raise NotImplementedError("matrix output is not supported")
            numbers = [int(n) for n in text.split(",")]
            axis = numbers[0]
            ndmin = numbers[1] if len(numbers) > 1 else ndmin
            trans1d = numbers[2] if len(numbers) > 2 else trans1d
        parts = []
        for item in items:
            x = _range(item) if isinstance(item, slice) else item
            x = atleast_1d(np.asarray(x) if isinstance(x, list) else x)
            if x.ndim < ndmin:
                missing = ndmin - x.ndim
                at = trans1d if trans1d >= 0 else trans1d + missing + 1
                x = lax.expand_dims(x, tuple(d for d in range(ndmin)
                                             if not at <= d < at + x.ndim))
            parts.append(x)
        return concatenate(parts, axis=axis)


r_ = _Joiner(0, 1, -1)
c_ = _Joiner(-1, 2, 0)


# -- functions along dimensions --------------------------------------------------------------------

def apply_along_axis(func1d, axis, arr, *args, **kwargs):
    """func1d of each vector along a dimension, its result in place of the vector."""
    check_arraylike("apply_along_axis", arr)
    x = as_array(arr)
    axis = canonical_axis(axis, x.ndim)

    def f(vector: Any) -> Any:
        return func1d(vector, *args, **kwargs)

    for d in range(1, x.ndim - axis):
        f = vmap(f, in_axes=d, out_axes=-1)
    for _ in range(axis):
        f = vmap(f)
    return f(x)


def apply_over_axes(func, a, axes):
    """func(a, axis) over several dimensions one after the other, the number of dimensions kept."""
    check_arraylike("apply_over_axes", a)
    out = as_array(a)
    for axis in axes:
        axis = canonical_axis(axis, out.ndim)
        result = as_array(func(out, axis))
        if result.ndim == out.ndim - 1:
            result = lax.expand_dims(result, (axis,))
        elif result.ndim != out.ndim:
            raise ValueError("function is not returning an array of the correct shape")
        out = result
    return out


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> Any:
    """A ufunc of a function of scalars that works on arrays as it is written."""
    return ufunc(func, nin, nout, identity=identity, call=vectorize(func))

