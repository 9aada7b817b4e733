"""Tracers: the stand-ins for arrays while a function is traced.

A tracer is a variable of the program under construction, with the operators and methods of an
array (installed on the common base, ir/values/array.py). It knows its type and nothing else: asking
it for a value (`bool(x)`, `np.asarray(x)`) is an error that says where and what to do instead.
"""
from __future__ import annotations

from typing import Any

from ...ir.api_boundary import bound_methods
from ...ir.diagnostics.diagnostic import Remedy, fail
from ...ir.diagnostics.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from ...ir.program import Var
from ...ir.support.interning import Uncopied
from ...ir.trees.pytree import PLAIN_LEAVES
from ...ir.types import ArrayType
from ...ir.values.array import Array
from ...ir.values.conversions import check_bool, check_index, check_scalar


class Tracer(Uncopied, Array):
    """A traced array: it stands for a value of the program being recorded, and has a type only."""

    __slots__ = ("aval", "builder", "variable")
    aval: ArrayType

    def __init__(self, builder: Any, var: Var) -> None:
        self.builder = builder           # the interpreter that records the trace (staging.py)
        self.variable = var
        self.aval = var.aval

    # -- what a traced array does not have ---------------------------------------------------
    @property
    def sharding(self) -> Any:
        fail(AttributeError,
             "The 'sharding' attribute is not available on traced array with shape "
             f"{self.aval.str_short()}. To query sharding information on tracers, use "
             "`jax.typeof(x)`.", code="traced-value",
             help="ask for that of its `typeof`, or do this outside of the traced function")

    @property
    def mat(self) -> Any:
        """Over which Manual axes it varies, is unreduced or reduced: that of its type."""
        return self.aval.mat

    def _no_value(self, what: str, happened: str = "was called") -> Any:
        shape = self.aval.str_short()
        fail(ConcretizationTypeError,
             "Abstract tracer value encountered where concrete value is expected: traced array "
             f"with shape {shape}\nThe {what} {happened} on traced array with shape {shape}.",
             code="traced-value", label="this value is only known when the program runs",
             notes=(self._origin(),),
             help="do this with the result of the jitted function, outside of it")

    @property
    def addressable_shards(self) -> Any:
        return self._no_value("'addressable_shards' attribute", "is not available")

    @property
    def global_shards(self) -> Any:
        return self._no_value("global_shards property")

    @property
    def committed(self) -> Any:
        return self._no_value("'committed' attribute", "is not available")

    @property
    def is_fully_addressable(self) -> Any:
        return self._no_value("is_fully_addressable property")

    @property
    def is_fully_replicated(self) -> Any:
        return self._no_value("is_fully_replicated property")

    def addressable_data(self, index: int) -> Any:
        return self._no_value("addressable_data() method")

    def devices(self) -> Any:
        return self._no_value("devices() method")

    def delete(self) -> Any:
        return self._no_value("delete() method")

    def is_deleted(self) -> Any:
        return self._no_value("is_deleted() method")

    def on_device_size_in_bytes(self) -> Any:
        return self._no_value("on_device_size_in_bytes() method")

    def unsafe_buffer_pointer(self) -> Any:
        return self._no_value("unsafe_buffer_pointer() method")

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._no_value("__dlpack__() method")

    def __dlpack_device__(self) -> Any:
        return self._no_value("__dlpack_device__() method")

    def item(self, *args: Any) -> Any:
        value = self._known()
        return self._no_value("item() method") if value is None else value.item(*args)

    def tolist(self) -> Any:
        return self._no_value("tolist() method")

    def tobytes(self, order: Any = "C") -> Any:
        return self._no_value("tobytes() method")

    @property
    def block_until_ready(self) -> Any:
        """What only arrays with a value have; the functions of that name pass by traced ones."""
        return self._no_method("block_until_ready")

    @property
    def copy_to_host_async(self) -> Any:
        """As `block_until_ready`."""
        return self._no_method("copy_to_host_async")

    def _no_method(self, name: str) -> Any:
        fail(AttributeError,
             f"The '{name}' method is not available on traced array with shape "
             f"{self.aval.str_short()}.", code="traced-value", notes=(self._origin(),),
             help="do this with the result of the jitted function, outside of it")

    def _known(self) -> Any:
        """The concrete value, where a transformation outside of jit keeps it; else None."""
        return self.builder.value(self.variable)

    def __bool__(self) -> bool:
        check_bool(self.aval)
        value = self._known()
        if value is not None:
            return bool(value)
        return fail(
            TracerBoolConversionError,
            f"Attempted boolean conversion of traced array with shape {self.aval.str_short()}.",
            code="traced-bool",
            label="a Python branch needs a value, but this one is known only when the program runs",
            notes=(self._origin(),),
            help="use `jnp.where` or `lax.cond`, or mark the argument static with `static_argnums`")

    def _index_error(self) -> Any:
        fail(TracerIntegerConversionError,
             "The __index__() method was called on traced array with shape "
             f"{self.aval.str_short()}",
             code="traced-integer", label="a Python integer is needed here",
             notes=(self._origin(),),
             help="shapes, ranges and Python indices must be static: mark the argument static "
                  "with `static_argnums`, or use `lax.dynamic_slice`, `lax.fori_loop`")

    def __index__(self) -> int:
        check_index(self.aval)
        value = self._known()
        return self._index_error() if value is None else value.__index__()

    def concrete_index(self) -> int:
        """As `__index__`, for an argument that has to be concrete; the error says that."""
        check_index(self.aval)
        value = self._known()
        return self._no_value("__index__() method") if value is None else value.__index__()

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
        """Refuse to be a Python number: it is known only when the program runs."""
        if kind in ("int", "float", "complex"):
            check_scalar(self.aval)
        fail(ConcretizationTypeError,
             "Abstract tracer value encountered where concrete value is expected: traced array "
             f"with shape {self.aval.str_short()}\nThe problem arose with the `{kind}` function. "
             f"If trying to convert the data type of a value, try using `x.astype({kind})` or "
             f"`jnp.array(x, {kind})` instead.", code="traced-value", notes=(self._origin(),),
             help="convert with `astype`, or compute this outside of the traced function"
                  if kind in ("int", "float", "complex") else
                  "how many elements come out must be known while tracing: pass `size`, or "
                  "compute this outside of the traced function")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        fail(TracerArrayConversionError,
             "The numpy.ndarray conversion method __array__() was called on traced array with "
             f"shape {self.aval.str_short()}", code="traced-array",
             label="numpy functions need values",
             notes=(self._origin(),),
             help=Remedy("use the function of the same name in `shardtrace.numpy`", "numpy"))

    def __hash__(self) -> int:
        raise TypeError(f"unhashable type: {type(self).__name__!r}")

    def __reduce__(self) -> Any:
        return self._no_value("error occurred in the __reduce__ method, which may indicate an "
                              "attempt to serialize/pickle a traced value. It", "was called")

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


bound_methods(Tracer)
PLAIN_LEAVES.add(Tracer)
