"""Tracers: the stand-ins for arrays while a function is traced.

A tracer is a variable of the program under construction, with the operators and methods of an array
(installed on the common base, ir/array.py). It knows its type and nothing else: asking it for a
value (`bool(x)`, `np.asarray(x)`) is an error that says where and what to do instead.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.array import Array
from ..ir.context import x64_enabled
from ..ir.diagnostic import fail
from ..ir.dtypes import canonicalize_dtype, dtype_of
from ..ir.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from ..ir.program import Var
from ..ir.types import ArrayType, array_type

if TYPE_CHECKING:
    from .staging import Builder


class Tracer(Array):
    """A traced array: a variable of `builder`'s program."""

    __slots__ = ("aval", "builder", "variable")
    aval: ArrayType

    def __init__(self, builder: Builder, var: Var) -> None:
        self.builder = builder
        self.variable = var
        self.aval = var.aval

    # -- what a traced array does not have ---------------------------------------------------
    @property
    def sharding(self) -> Any:
        fail(AttributeError,
             "The 'sharding' attribute is not available on traced array with shape "
             f"{self.aval.str_short()}. To query sharding information on tracers, use "
             "`jax.typeof(x)`.", code="traced-value",
             help="use `typeof(x).sharding`, or call this outside of the traced function")

    def _no_value(self, what: str) -> Any:
        fail(ConcretizationTypeError,
             f"The {what} is not available on traced array with shape {self.aval.str_short()}.",
             code="traced-value", label="this value is only known when the program runs",
             help=f"use {what} on the result of the jitted function, outside of it")

    @property
    def addressable_shards(self) -> Any:
        return self._no_value("addressable_shards attribute")

    @property
    def global_shards(self) -> Any:
        return self._no_value("global_shards attribute")

    def addressable_data(self, index: int) -> Any:
        return self._no_value("addressable_data method")

    def devices(self) -> Any:
        return self._no_value("devices method")

    def item(self, *args: Any) -> Any:
        value = self._known()
        return self._no_value("item method") if value is None else value.item(*args)

    def tolist(self) -> Any:
        return self._no_value("tolist method")

    def block_until_ready(self) -> Tracer:
        return self

    def copy_to_host_async(self) -> None:
        """Nothing to do: there is no value yet."""

    def _known(self) -> Any:
        """The concrete value, where a transformation outside of jit keeps it; else None."""
        return self.builder.value(self.variable)

    def __bool__(self) -> bool:
        value = self._known()
        if value is not None:
            return bool(value)
        return fail(
            TracerBoolConversionError,
            f"Attempted boolean conversion of traced array with shape {self.aval.str_short()}.",
            code="traced-bool",
            label="a Python branch needs a value, but this one is known only when the program runs",
            notes=(self._origin(),),
            help="use `jnp.where(cond, a, b)` or `lax.cond(cond, f, g, *args)`, or mark the "
                 "argument static with `jit(f, static_argnums=...)`")

    def _index_error(self, how: str) -> Any:
        fail(TracerIntegerConversionError,
             f"The {how} method was called on traced array with shape {self.aval.str_short()}",
             code="traced-integer", label="a Python integer is needed here",
             notes=(self._origin(),),
             help="shapes, ranges and Python indices must be static: mark the argument static "
                  "with `static_argnums`, or use `lax.dynamic_slice`, `lax.fori_loop`")

    def __index__(self) -> int:
        value = self._known()
        return self._index_error("__index__()") if value is None else value.__index__()

    def __int__(self) -> int:
        value = self._known()
        return self._concrete("int") if value is None else int(value)

    def __float__(self) -> float:
        value = self._known()
        return self._concrete("float") if value is None else float(value)

    def __complex__(self) -> complex:
        value = self._known()
        return self._concrete("complex") if value is None else complex(value)

    def _concrete(self, kind: str) -> Any:
        fail(ConcretizationTypeError,
             "Abstract tracer value encountered where concrete value is expected: traced array "
             f"with shape {self.aval.str_short()}\nThe problem arose with the `{kind}` function. "
             f"If trying to convert the data type of a value, try using `x.astype({kind})` or "
             f"`jnp.array(x, {kind})` instead.", code="traced-value", notes=(self._origin(),),
             help=f"use `x.astype({kind})`, or compute this outside of the traced function")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        fail(TracerArrayConversionError,
             "The numpy.ndarray conversion method __array__() was called on traced array with "
             f"shape {self.aval.str_short()}", code="traced-array",
             label="numpy functions need values",
             notes=(self._origin(),),
             help="use the function of the same name in `shardtrace.numpy`")

    def __hash__(self) -> int:
        raise TypeError(f"unhashable type: {type(self)}")

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self

    def __reduce__(self) -> Any:
        return self._no_value("pickle protocol")

    def _origin(self) -> str:
        """Where the value comes from: an argument, or an expression of the user's."""
        return f"the value is {self.builder.describe(self.variable)}"

    def __repr__(self) -> str:
        return self.builder.shown(self)

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        value = self._known()
        return self._no_value("format protocol") if value is None else format(value, spec)


def typeof(x: Any) -> ArrayType:
    """The sharded type of an array, tracer, numpy array or Python scalar.

    `str(typeof(x))` is `float32[8@X,4]`. Raises TypeError for what is not a valid JAX type.
    """
    if isinstance(x, Array):
        return x.aval
    aval = getattr(x, "aval", None)
    if isinstance(aval, ArrayType):
        return aval
    return type_of_constant(x)


_SCALARS: dict[Any, ArrayType] = {}


def type_of_constant(x: Any) -> ArrayType:
    """The type of a numpy array or scalar, or a Python scalar (weak): whole, on no mesh."""
    kind = type(x)
    if kind in (bool, int, float, complex):
        key = (kind, x64_enabled())
        found = _SCALARS.get(key)
        if found is None:
            dtype, weak = dtype_of(x, key[1])
            found = array_type((), canonicalize_dtype(dtype, key[1]), weak)
            _SCALARS[key] = found
        if kind is int:
            check_int_fits(x, found.dtype)
        return found
    if isinstance(x, (np.ndarray, np.generic)):
        return array_type(x.shape, canonicalize_dtype(x.dtype, x64_enabled()))
    if isinstance(x, (bool, int, float, complex)):
        return type_of_constant(kind.__mro__[1](x) if kind.__mro__[1] is not object else x)
    convert = getattr(x, "__jax_array__", None)
    if convert is not None:
        return typeof(convert())
    raise TypeError(f"Argument '{x}' of type {type(x)} is not a valid JAX type")


def check_int_fits(x: int, dtype: np.dtype) -> None:
    """Raise OverflowError where a Python int does not fit the dtype it would get."""
    if not -(2 ** (dtype.itemsize * 8 - 1)) <= x < 2 ** (dtype.itemsize * 8 - 1):
        raise OverflowError(f"An overflow was encountered while parsing an argument to a jitted "
                            f"computation, whose value is {x}: it does not fit {dtype.name}")
