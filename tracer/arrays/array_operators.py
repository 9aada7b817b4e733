"""Operators of arrays: arithmetic, comparisons, indexing, iteration."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...ir.api_boundary import SIGNS, process_exception
from ...ir.values.array import Array
from ...ir.values.typeof import typeof
from ..indexing.indexing import get_item
from ..jnp.creation import arrays
from ..jnp.elementwise import division, powers, rounding, two_operands
from ..jnp.elementwise.bits import bitwise_and_function as _and
from ..jnp.elementwise.bits import bitwise_or_function as _or
from ..jnp.elementwise.bits import bitwise_xor_function as _xor
from ..jnp.elementwise.bits import left_shift as _left_shift
from ..jnp.elementwise.bits import right_shift as _right_shift
from ..jnp.elementwise.logic import equal, greater, greater_equal, less, less_equal, not_equal
from ..jnp.matrices import contraction
from ..jnp.reductions import reduce as reductions
from ..staging.builder import current_builder
from ..staging.constants import as_array
from ..staging.tracer import Tracer

_ACCEPTED = (Array, int, float, complex, bool, np.ndarray, np.generic)
_USUAL = frozenset({Tracer, int, float})     # of these: what most operands are
_CONTAINERS = (list, tuple, set, dict)
_REFUSED = (*_CONTAINERS, str, type(None))
_PLAIN = ("__rshift__",)            # the name begins with r, and is no reflected operator


def _operator(f: Callable[[Any, Any], Any], name: str) -> Callable[..., Any]:
    """The method `__name__` of an operator: f(self, other), `NotImplemented` for what f does not
    take.
    """
    def op(self, other):
        try:
            if type(other) in _USUAL or isinstance(other, _ACCEPTED) or hasattr(
                    other, "__jax_array__"):
                return f(self, other)
            return _refuse(name, self, other)
        except Exception as error:
            process_exception(error, op, (self, other))
            raise

    op.__name__ = op.__qualname__ = name
    return op


def _reflected(f: Callable[[Any, Any], Any], name: str) -> Callable[..., Any]:
    """The method of a reflected operator, `__radd__`: f(other, self)."""
    def op(self, other):
        try:
            if type(other) in _USUAL or isinstance(other, _ACCEPTED) or hasattr(
                    other, "__jax_array__"):
                return f(other, self)
            return _refuse(name, other, self)
        except Exception as error:
            process_exception(error, op, (other, self))
            raise

    op.__name__ = op.__qualname__ = name
    return op


def _refuse(name: str, left: Any, right: Any) -> Any:
    """Containers of numbers, None and strings are refused; other objects may know what to do with
    an array."""
    refused = _CONTAINERS if name in ("__eq__", "__ne__") else _REFUSED
    if not isinstance(left, refused) and not isinstance(right, refused):
        return NotImplemented
    sign = SIGNS[name.strip("_").removeprefix("r") if name not in _PLAIN else name.strip("_")]
    kinds = f"{type(left).__name__!r} and {type(right).__name__!r}"
    if sign in ("<", "<=", ">", ">="):
        raise TypeError(f"{sign!r} not supported between instances of {kinds}")
    raise TypeError(f"unsupported operand type(s) for {sign}: {kinds}")


def _power(x: Any, y: Any) -> Any:
    return powers.power(x, y)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": two_operands.add_function, "sub": two_operands.subtract_function,
    "mul": two_operands.multiply_function, "truediv": two_operands.divide,
    "floordiv": division.floor_divide, "mod": division.remainder,
    "divmod": division.divmod, "pow": _power, "matmul": contraction.matmul,
    "and": _and, "or": _or, "xor": _xor, "lshift": _left_shift, "rshift": _right_shift,
}


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": equal, "ne": not_equal, "lt": less, "le": less_equal, "gt": greater,
    "ge": greater_equal,
}


def _round(number, ndigits=None):
    out = rounding.round(number, decimals=ndigits or 0)
    return arrays.astype(out, int) if ndigits is None else out


def _iterate(self: Array) -> Iterator[Any]:
    aval = typeof(self)
    if not aval.shape:
        raise TypeError("iteration over a 0-d array")
    if isinstance(self, Tracer) or current_builder() is not None:
        return (get_item(self, i) for i in range(aval.shape[0]))
    rows = np.asarray(self)
    return (as_array(np.array(rows[i])) for i in range(aval.shape[0]))


def _length(self: Array) -> int:
    return len(self.aval)


def _contains(self, other):
    if self.ndim != 1:
        raise ValueError("Array.__contains__: search array must be one-dimensional, got "
                         f"arr.shape={self.shape}.")
    if np.shape(other):
        raise ValueError("Array.__contains__: query value must be a scalar, got "
                         f"query.shape={np.shape(other)}")
    return reductions.any(equal(self, other))


def _get(self, idx, /):
    try:
        return get_item(self, idx)
    except Exception as error:
        process_exception(error, _get, (self, idx))
        raise


def _delete(self, i):
    raise AttributeError("__delitem__")


def _set(self, i, x):
    raise TypeError("JAX arrays are immutable and do not support in-place item assignment. Instead "
                    "of x[idx] = y, use x = x.at[idx].set(y) or another .at[] method: "
                    "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.ndarray.at.html")
