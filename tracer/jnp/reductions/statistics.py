"""Covariances and correlations of variables."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ....ir.ops.elementwise.arithmetic import div_p, mul_p, sub_p
from ....ir.ops.elementwise.complex_parts import complex_p
from ....ir.values.array import Array
from ... import lax
from ...operands.broadcasting import to_type
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    narrowed,
    promote_dtypes_inexact,
    strong,
    user_dtype,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import LEVEL, float_default
from ...staging.constants import as_array
from ..elementwise.arithmetic import absolute, sqrt
from ..elementwise.clipping import clip
from ..elementwise.complex_numbers import conjugate, imag, real
from ..manipulation.diagonals import diag
from ..manipulation.joining import concatenate
from ..matrices.contraction import dot
from . import moments
from . import reduce as reductions

__all__ = ["corrcoef", "cov"]

# -- covariance ------------------------------------------------------------------------------------


def cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, dtype=None):
    """Covariances of variables (rows, or columns if not rowvar) over observations."""
    check_arraylike("cov", m, *(() if y is None else (y,)))
    operands = [m] if y is None else [m, y]
    operands = promote_dtypes_inexact(*map(narrowed, operands))
    if dtype is not None:
        operands = [convert(x, user_dtype(dtype, "cov")) for x in operands]
    if any(len(shape_of(x)) > 2 for x in operands):
        raise ValueError("m has more than 2 dimensions")
    rows = [_as_rows(as_array(x), rowvar, i > 0) for i, x in enumerate(operands)]
    if rows[0].shape[0] == 0:
        return lax.full((0, 0), 0, float_default())
    x = rows[0] if y is None else concatenate(rows, 0)
    if x.shape[1] == 0:
        return lax.full((x.shape[0],) * 2 if x.shape[0] > 1 else (), np.nan, x.dtype)
    if ddof is None:
        ddof = 0 if bias else 1
    if fweights is not None:
        fweights = _weights(fweights, "fweights", x)
    if aweights is not None:
        aweights = _weights(aweights, "aweights", x)
    given = [w for w in (fweights, aweights) if w is not None]
    weights = functools.reduce(mul_p.bind, given) if given else None
    average, total = moments.average(x, axis=1, weights=weights, returned=True)
    if weights is not None:
        total = lax.index_in_dim(total, 0, 0, keepdims=False)
    x = sub_p.bind(strong(x), to_type(lax.expand_dims(average, (1,)), x.shape))
    factor: Any
    if weights is None:
        factor = convert(x.shape[1] - ddof, x.dtype)
    elif ddof == 0:
        factor = total
    elif aweights is None:
        factor = sub_p.bind(total, convert(ddof, x.dtype))
    else:
        square = reductions.sum(mul_p.bind(weights, convert(aweights, x.dtype)))
        factor = sub_p.bind(total, div_p.bind(mul_p.bind(convert(ddof, x.dtype), square), total))
    right = x if weights is None else mul_p.bind(
        x, to_type(lax.expand_dims(as_array(weights), (0,)), x.shape))
    out = div_p.bind(dot(x, conjugate(lax.transpose(right, (1, 0)))), factor)
    return lax.reshape(out, ()) if out.shape == (1, 1) else out


def _as_rows(x: Array, rowvar: bool, is_second: bool) -> Array:
    """Variables as the rows of a matrix; those of the second operand may be one row already."""
    is_row = x.ndim < 2 or (is_second and x.shape[0] == 1)
    x = lax.expand_dims(x, tuple(range(2 - x.ndim))) if x.ndim < 2 else x
    return x if rowvar or is_row else lax.transpose(x, (1, 0))


def _weights(w: Any, name: str, x: Array) -> Array:
    """One weight for each observation of x. Raises what numpy does where they do not fit."""
    check_arraylike("cov", w)
    if len(shape_of(w)) > 1:
        raise RuntimeError(f"cannot handle multidimensional {name}")
    if shape_of(w)[0] != x.shape[1]:
        raise RuntimeError(f"incompatible numbers of samples and {name}")
    if name == "fweights" and LEVEL[dtype_name(w)] > 1:
        raise TypeError("fweights must be integer.")
    return absolute(as_array(convert(w, x.dtype)))


def corrcoef(x, y=None, rowvar=True, dtype=None):
    """Correlations of variables: covariances divided by the standard deviations."""
    check_arraylike("corrcoef", x, *(() if y is None else (y,)))
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return div_p.bind(c, c)
    deviations = sqrt(real(diag(c)))
    c = div_p.bind(c, convert(lax.broadcast_in_dim(deviations, c.shape, (0,)), c.dtype))
    c = div_p.bind(c, convert(lax.broadcast_in_dim(deviations, c.shape, (1,)), c.dtype))
    if LEVEL[c.dtype] == 3:
        return complex_p.bind(clip(real(c), -1, 1), clip(imag(c), -1, 1))
    return clip(c, -1, 1)
