"""Functions of lax that change the dtype, or how derivatives or compilers see a value."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.dtypes import ExtendedDType, canonicalize_dtype, dtype_of, issubdtype
from ...ir.ops.elementwise.convert import (
    bitcast_convert_type_p,
    convert_element_type_p,
    reduce_precision_p,
)
from ...ir.ops.elementwise.identity import optimization_barrier_p, stop_gradient_p
from ...ir.settings.context import x64_enabled
from ...ir.source.wording import warn
from ...ir.values.array import Array
from .. import sharding_notes
from ..operands.dtype_promotion import (
    ComplexWarning,
    convert,
    dtype_and_weak,
    dtype_name,
    user_dtype,
)
from ..operands.rank_promotion import shape_of
from ..shardings.out_sharding import output_sharding
from ..staging.constants import as_array
from ..trees import tree

__all__ = [
    "bitcast_convert_type", "convert_element_type", "dtype", "optimization_barrier",
    "reduce_precision", "stop_gradient",
]


@sharding_notes.elementwise
def convert_element_type(operand, new_dtype):
    """The elements of `operand` as another dtype.

    Floats are cut to integers towards zero; bool means "not zero"; complex numbers lose their
    imaginary part. 64-bit dtypes become 32-bit ones unless x64 is enabled.

    >>> st.lax.convert_element_type(jnp.array([1.7, -1.7]), jnp.int32)
    Array([ 1, -1], dtype=int32)
    """
    if isinstance(new_dtype, ExtendedDType):
        return convert(operand, new_dtype)
    dtype, old = user_dtype(new_dtype, "convert_element_type"), dtype_name(operand)
    if issubdtype(old, np.complexfloating) and not issubdtype(dtype, np.complexfloating):
        warn("Casting complex values to real discards the imaginary part",
             ComplexWarning)
    return convert_quietly(operand, dtype)


def convert_quietly(operand: Any, dtype: np.dtype) -> Array:
    """`convert_element_type` without its warning."""
    old = dtype_name(operand)
    if not isinstance(operand, Array):
        if type(operand) is int and issubdtype(dtype, np.inexact):
            operand = float(operand)                    # it need be no integer of a program
        return as_array(convert(operand, dtype))
    if old == dtype and not operand.aval.weak_type:
        return operand
    return convert_element_type_p.bind(operand, new_dtype=dtype, weak_type=False, sharding=None)


def converted(operand: Any, new_dtype: Any = None, weak_type: bool = False,
              sharding: Any = None, warn_on_complex_to_real_cast: bool = True) -> Array:
    """As `convert_element_type`; new_dtype None keeps the dtype, and weakness and sharding of the
    result may be asked for."""
    old, old_weak = dtype_and_weak(operand)
    dtype = old if new_dtype is None else user_dtype(new_dtype, "convert_element_type")
    if new_dtype is None:
        weak_type = weak_type or old_weak
    if sharding is None and old == dtype and old_weak == weak_type:
        return as_array(operand)
    target = output_sharding(sharding, "convert_element_type", len(shape_of(operand)))
    return convert_element_type_p.bind(operand, new_dtype=dtype, weak_type=bool(weak_type),
                                       sharding=target)


def bitcast_convert_type(operand, new_dtype):
    """The bits of `operand` as another dtype; a narrower one adds a last dimension, a wider one
    removes it."""
    dtype = canonicalize_dtype(np.dtype(new_dtype), x64_enabled())
    return bitcast_convert_type_p.bind(operand, new_dtype=dtype)


def reduce_precision(operand, exponent_bits, mantissa_bits):
    """operand rounded to a float format of these bits, in its own dtype."""
    return reduce_precision_p.bind(operand, exponent_bits=int(exponent_bits),
                                   mantissa_bits=int(mantissa_bits))


@sharding_notes.elementwise
def stop_gradient(x):
    """`x`, a pytree of arrays, as a constant to differentiation: no derivative passes through it.

    >>> st.grad(lambda x: x * st.lax.stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """
    return tree.map(stop_gradient_p.bind, x)


def optimization_barrier(operand, /):
    """operand (any pytree): a compiler must not move work across this point."""
    leaves, treedef = tree.flatten(operand)
    return tree.unflatten(treedef, optimization_barrier_p.bind(*leaves))


def dtype(x):
    """The dtype that a value has, or would have, as an array of a program."""
    return dtype_of(x, x64_enabled())[0]
