"""Reductions that leave NaN out: nansum, nanmean, nanmax, ..."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.ops.elementwise.arithmetic import div_p, mul_p, sub_p
from ....ir.ops.elementwise.comparison import le_p
from ....ir.ops.elementwise.complex_parts import real_p
from ....ir.ops.elementwise.powers import sqrt_p, square_p
from ....ir.support.named_tuple import NamedTuple
from ... import lax, sharding_notes
from ...operands.broadcasting import select_of, to_type
from ...operands.dtype_promotion import convert, dtype_name, narrowed, strong
from ...operands.rank_promotion import shape_of
from ...operands.scalars import LEVEL, int_default
from ...staging.constants import as_array
from ..elementwise.arithmetic import real_dtype
from ..elementwise.logic import isnan
from . import moments
from . import reduce as reductions
from .moments import var_dtypes
from .reduce import check_arguments

__all__ = [
    "nanargmax", "nanargmin", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum",
    "nanvar",
]


def _without_nan(x: Any, value: Any) -> Any:
    return select_of(isnan(x), strong(x), convert(value, dtype_name(x)))


def _is_float(a: Any) -> bool:
    return LEVEL[dtype_name(a)] >= 2


class _Filled(NamedTuple):
    """A reduction in which NaN counts as `fill`."""
    name: str
    reduce: Callable[..., Any]
    fill: float


def _extreme(how: _Filled, a: Any, axis: Any, out: Any, keepdims: bool, initial: Any, where: Any
             ) -> Any:
    """The extreme of what is no NaN; NaN if there is nothing else, and no initial value."""
    name, reduce, fill = how
    check_arguments(name, a, out, where)
    if where is not None and initial is None:
        raise ValueError(f"reduction operation {name} does not have an identity, so to use a where "
                         "mask one has to specify 'initial'")
    if not _is_float(a):
        return reduce(a, axis=axis, keepdims=keepdims, initial=initial, where=where)
    a = as_array(narrowed(a))
    result = reduce(_without_nan(a, fill), axis=axis, keepdims=keepdims, initial=initial,
                    where=where)
    if initial is not None:
        return result
    empty = reductions.all(isnan(a), axis=axis, keepdims=keepdims)
    return select_of(empty, result, convert(np.nan, dtype_name(a)))


@sharding_notes.reduction
def nanmax(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """Maximum over dimensions, NaN left out; NaN where there is nothing else."""
    return _extreme(_Filled("nanmax", reductions.max, -np.inf), a, axis, out, keepdims, initial,
                    where)


@sharding_notes.reduction
def nanmin(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    """Minimum over dimensions, NaN left out; NaN where there is nothing else."""
    return _extreme(_Filled("nanmin", reductions.min, np.inf), a, axis, out, keepdims, initial,
                    where)


def _filled(how: _Filled, a: Any, axis: Any, dtype: Any, out: Any, keepdims: bool, initial: Any,
            where: Any) -> Any:
    name, reduce, fill = how
    check_arguments(name, a, out, where)
    x = _without_nan(as_array(a), fill) if _is_float(a) else a
    return reduce(x, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)


@sharding_notes.reduction
def nansum(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
    """The sum over all dimensions or those in `axis`, with NaN counting as 0."""
    return _filled(_Filled("nansum", reductions.sum, 0), a, axis, dtype, out, keepdims, initial,
                   where)


@sharding_notes.reduction
def nanprod(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
    """The product over all dimensions or those in `axis`, with NaN counting as 1."""
    return _filled(_Filled("nanprod", reductions.prod, 1), a, axis, dtype, out, keepdims, initial,
                   where)


@sharding_notes.reduction
def nanmean(a, axis=None, dtype=None, out=None, keepdims=False, where=None):
    """The mean over all dimensions or those in `axis`, NaN left out; NaN where all are."""
    check_arguments("nanmean", a, out, where)
    if not _is_float(a):
        return moments.mean(a, axis=axis, dtype=dtype, keepdims=keepdims, where=where)
    a = as_array(a)
    target = dtype_name(a) if dtype is None else np.dtype(dtype)
    mask = lax.bitwise_not(isnan(a))
    count = reductions.sum(convert(convert(mask, int_default()), target), axis=axis, dtype=target,
                           keepdims=keepdims, where=where)
    total = nansum(a, axis=axis, dtype=dtype, keepdims=keepdims, where=where)
    return div_p.bind(total, count)


@sharding_notes.reduction
def nanvar(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, where=None, mean=None):
    """The variance over all dimensions or those in `axis`, with NaN left out."""
    check_arguments("nanvar", a, out, where)
    compute, result = var_dtypes("nanvar", a, dtype)
    x = convert(as_array(a), compute)
    if mean is None:
        mean = nanmean(x, axis=axis, dtype=compute, keepdims=True, where=where)
    missing = isnan(x)
    centered = select_of(missing, sub_p.bind(x, to_type(mean, shape_of(x))),
                         convert(0, compute))
    if LEVEL[compute] == 3:
        centered = real_p.bind(mul_p.bind(centered, lax.conj(centered)))
    else:
        centered = square_p.bind(centered)
    count = reductions.sum(lax.bitwise_not(missing), axis=axis, keepdims=keepdims, where=where)
    kind = real_dtype(compute)
    count = sub_p.bind(convert(count, kind), convert(ddof, kind))
    zero = convert(0, dtype_name(count))
    bad = le_p.bind(count, zero)
    total = reductions.sum(centered, axis=axis, keepdims=keepdims, where=where)
    total = select_of(bad, total, convert(np.nan, dtype_name(total)))
    count = select_of(bad, count, convert(1, dtype_name(count)))
    return convert(div_p.bind(total, convert(count, dtype_name(total))), result)


@sharding_notes.reduction
def nanstd(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, where=None, mean=None):
    """The standard deviation over all dimensions or those in `axis`, with NaN left out."""
    check_arguments("nanstd", a, out, where)
    return sqrt_p.bind(nanvar(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims, where=where,
                              mean=mean))


def _nan_arg(name: str, arg: Callable[..., Any], fill: float, a: Any, axis: Any, out: Any,
             keepdims: bool | None) -> Any:
    """The position of the extreme of what is no NaN; -1 if there is nothing else."""
    check_arguments(name, a, out)
    if not _is_float(a):
        return arg(a, axis=axis, keepdims=keepdims)
    a = as_array(a)
    missing = isnan(a)
    found = arg(select_of(missing, a, convert(fill, dtype_name(a))), axis=axis, keepdims=keepdims)
    nothing = reductions.all(missing, axis=axis, keepdims=bool(keepdims))
    return select_of(nothing, found, convert(-1, dtype_name(found)))


@sharding_notes.reduction
def nanargmax(a, axis=None, out=None, keepdims=None):
    """Position of the first maximum, NaN left out; -1 where there is nothing else."""
    return _nan_arg("nanargmax", reductions.argmax, -np.inf, a, axis, out, keepdims)


@sharding_notes.reduction
def nanargmin(a, axis=None, out=None, keepdims=None):
    """Position of the first minimum, NaN left out; -1 where there is nothing else."""
    return _nan_arg("nanargmin", reductions.argmin, np.inf, a, axis, out, keepdims)
