"""Values that become arrays: Python scalars, numpy arrays, nested lists.

`as_array(x)` gives an `Array` for anything array-like, without an equation: a named constant or a
literal of the program that is being traced, or, outside of tracing, an array of the runtime. The
tracer does not know the runtime; the current interpreter makes the array (`constant(x)`).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.meshes.mesh import Mesh
from ...ir.op import DEFAULT_INTERPRETER, OPS
from ...ir.settings.context import STATE
from ...ir.values.array import Array
from .builder import Builder
from .tracer import Tracer

PYTHON_SCALARS = (bool, int, float, complex)

DEVICE_PUT: list[Callable[[Any, Any], Any]] = []
"""Set by the driver: `(array, device or sharding) -> array`, what `device=` arguments need."""


NEW_ARRAY: list[Callable[..., Any]] = []
"""Set by the driver: `make_array_from_callback`."""


def as_array(x: Any) -> Array:
    """`x` as an `Array` of the same dtype (64-bit narrowed unless x64 is on); arrays as they are.

    Python scalars keep their weak type. Raises TypeError for what is not array-like.
    """
    if isinstance(x, Array):
        return x
    x = unwrapped(x)
    if isinstance(x, Array):
        return x
    interpreter = STATE.interpreter
    if interpreter is None:
        interpreter = DEFAULT_INTERPRETER[0]
    make = getattr(interpreter, "constant", None)
    if make is not None:
        return make(x)
    if isinstance(interpreter, Builder):
        return Tracer(interpreter, interpreter.atom(x))  # type: ignore[arg-type]
    return OPS["copy"].bind(x)


def unwrapped(x: Any) -> Any:
    """The result of `__jax_array__`, if `x` has that protocol and is not an array itself."""
    if isinstance(x, (Array, np.ndarray, np.generic)):
        return x
    convert = getattr(x, "__jax_array__", None)
    return x if convert is None else convert()


def is_array_like(x: Any) -> bool:
    """Whether jnp functions take `x` as an operand: arrays and scalars, not lists."""
    return isinstance(x, (Array, np.ndarray, np.generic, bool, int, float, complex)) or hasattr(
        x, "__jax_array__")


def is_concrete(x: Any) -> bool:
    """Whether the value of `x` is known: anything but a tracer."""
    return not isinstance(x, Tracer)


def put_on_device(x: Any, device: Any) -> Any:
    """`x` placed on `device` (a Device or Sharding); `x` itself for None."""
    return x if device is None else DEVICE_PUT[0](x, device)


def placed_new(x: Any, device: Any) -> Any:
    """As `put_on_device`, of an array that was made just now. As in JAX, its spec may go on for
    more dimensions than it has, if these are whole."""
    spec = getattr(device, "spec", None)
    if spec is None or len(spec) <= x.ndim or isinstance(x, Tracer):
        return put_on_device(x, device)
    return NEW_ARRAY[0](x.shape, device, lambda index: x[index])


def concrete_value(x: Any, what: str) -> np.ndarray:
    """The value of `x` as numpy; raises the tracer's conversion error if it is traced.

    what: the reason a value is needed, for the message.
    """
    if isinstance(x, Tracer):
        return x._concrete(what)
    return np.asarray(x)


def note_mesh(builder: Builder, x: Any) -> None:
    """Keep the concrete mesh of an argument: constants made beside it live there too."""
    if isinstance(x, Array) and not isinstance(x, Tracer):
        mesh = getattr(getattr(x, "sharding", None), "mesh", None)
        if isinstance(mesh, Mesh) and mesh.axis_names and mesh not in builder.meshes:
            builder.meshes.append(mesh)
