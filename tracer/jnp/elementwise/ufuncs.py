"""The functions of jnp that are ufunc objects, with methods such as `jnp.add.reduce`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import sharding_notes
from ...operands.dtype_promotion import convert, promote_dtypes_inexact
from ..indexing.indexed_update import IndexUpdateRef
from ..reductions import reduce as reductions
from ..reductions.cumulative import cumprod, cumsum
from .arithmetic import negative_function
from .bits import (
    bitwise_and_function,
    bitwise_or_function,
    bitwise_xor_function,
    fmax_or_fmin,
)
from .log_sums import logsumexp
from .logic import (
    greater,
    less,
    logical_and_function,
    logical_or_function,
    logical_xor_function,
)
from .powers import logaddexp2_function, logaddexp_function
from .two_operands import (
    add_function,
    divide,
    maximum_function,
    minimum_function,
    multiply_function,
    subtract_function,
)
from .ufunc import ufunc

__all__ = [
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "fmax", "fmin", "logaddexp", "logaddexp2",
    "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative",
    "subtract",
]


def _at(method: str) -> Callable[[Any, Any, Any], Any]:
    def at(a: Any, indices: Any, b: Any) -> Any:
        return getattr(IndexUpdateRef(a, indices), method)(b)

    return at


def _reduce_logs(scale: float, function: Callable[..., Any]) -> Callable[..., Any]:
    """Sums of numbers given by their logarithms; scale: the natural logarithm of the base."""
    def reduce(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False,
               initial: Any = None, where: Any = None) -> Any:
        (a,) = promote_dtypes_inexact(a if dtype is None else convert(a, np.dtype(dtype)))
        scaled = a if scale == 1 else multiply_function(a, scale)
        out = logsumexp(scaled, axis=axis, keepdims=keepdims, where=where)
        out = out if scale == 1 else divide(out, scale)
        return out if initial is None else function(initial, out)

    return reduce


add = ufunc(add_function, 2, 1, name="add", identity=0, reduce=reductions.sum, accumulate=cumsum,
            at=_at("add"))
subtract = ufunc(subtract_function, 2, 1, name="subtract", at=_at("subtract"))
multiply = ufunc(multiply_function, 2, 1, name="multiply", identity=1, reduce=reductions.prod,
                 accumulate=cumprod, at=_at("multiply"))
negative = ufunc(negative_function, 1, 1, name="negative")
maximum = ufunc(maximum_function, 2, 1, name="maximum", reduce=reductions.max, at=_at("max"))
minimum = ufunc(minimum_function, 2, 1, name="minimum", reduce=reductions.min, at=_at("min"))
logaddexp = ufunc(logaddexp_function, 2, 1, name="logaddexp", identity=-np.inf,
                  reduce=_reduce_logs(1.0, logaddexp_function))
logaddexp2 = ufunc(logaddexp2_function, 2, 1, name="logaddexp2", identity=-np.inf,
                   reduce=_reduce_logs(np.log(2), logaddexp2_function))
bitwise_and = ufunc(bitwise_and_function, 2, 1, name="bitwise_and", identity=-1,
                    reduce=reductions.reduce_bitwise_and)
bitwise_or = ufunc(bitwise_or_function, 2, 1, name="bitwise_or", identity=0,
                   reduce=reductions.reduce_bitwise_or)
bitwise_xor = ufunc(bitwise_xor_function, 2, 1, name="bitwise_xor", identity=0,
                    reduce=reductions.reduce_bitwise_xor)
logical_and = ufunc(logical_and_function, 2, 1, name="logical_and", identity=True,
                    reduce=reductions.all)
logical_or = ufunc(logical_or_function, 2, 1, name="logical_or", identity=False,
                   reduce=reductions.any)
logical_xor = ufunc(logical_xor_function, 2, 1, name="logical_xor", identity=False)


@sharding_notes.equal
def fmax(x1, x2):
    """The greater of x1 and x2, elementwise; where one of them is NaN, the other one."""
    return fmax_or_fmin(greater, x1, x2)


@sharding_notes.equal
def fmin(x1, x2):
    """The lesser of x1 and x2, elementwise; where one of them is NaN, the other one."""
    return fmax_or_fmin(less, x1, x2)
