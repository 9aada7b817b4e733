"""Functions of lax that make arrays: full, iota, and what is like another array."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.dtypes import ExtendedDType, canonicalize_dtype
from ...ir.op import OPS
from ...ir.ops.movement.creation import empty_p, iota_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.settings.context import STATE, x64_enabled
from ...ir.shardings.normalized import normalized_sharding
from ...ir.shardings.sharding import NamedSharding
from ...ir.values.array import Array
from .. import sharding_notes
from ..operands.dtype_promotion import convert, dtype_and_weak, user_dtype
from ..operands.rank_promotion import shape_of
from ..operands.scalars import LEVEL
from ..operands.shape_arguments import static_shape
from ..shardings.eager_mesh import mesh_of_operands
from ..shardings.out_sharding import output_sharding, placement
from ..staging.constants import as_array, is_concrete, placed_new, put_on_device

__all__ = ["broadcasted_iota", "empty", "full", "full_like", "iota"]


def full(shape, fill_value, dtype=None, *, sharding=None):
    """An array of this shape, each element `fill_value` (a scalar).

    sharding: of the result; without dtype, that of fill_value is taken, weak as it is.
    """
    shape = static_shape(shape)
    have = shape_of(fill_value)
    if have:
        raise TypeError(
            f"full must be called with scalar fill_value, got fill_value.shape {have}.")
    device, out = placement(sharding, None, "full", len(shape))
    return placed_new(filled(shape, fill_value, dtype, out), device)


def filled(shape: tuple[int, ...], fill_value: Any, dtype: Any = None,
           sharding: NamedSharding | None = None) -> Array:
    """`full` with a sharding that an op takes; dtype None keeps a weak fill_value weak."""
    own, weak = dtype_and_weak(fill_value)
    if type(fill_value) is int and dtype is not None and LEVEL.get(dtype, 0) > 1:
        fill_value = float(fill_value)                  # it need be no integer of a program
    if dtype is None:
        dtype = own
    else:
        weak = False
        dtype = dtype if isinstance(dtype, (np.dtype, ExtendedDType)) else user_dtype(dtype, "full")
        if isinstance(dtype, np.dtype):
            dtype = canonicalize_dtype(dtype, x64_enabled())
    return filled_as(shape, element(fill_value, dtype, weak), sharding)


def element(value: Any, dtype: Any, weak: bool = False) -> Any:
    """The scalar that fills an array. A number for random keys is the value of their words."""
    if isinstance(dtype, ExtendedDType) and dtype_and_weak(value)[0] is not dtype:
        words = filled_as(dtype.key_shape, np.uint32(value))  # type: ignore[attr-defined]
        return OPS["random_wrap"].bind(words, impl=dtype.impl)  # type: ignore[attr-defined]
    return convert(value, dtype, weak)


def filled_as(shape: tuple[int, ...], value: Any, sharding: NamedSharding | None = None) -> Array:
    """A scalar, of the dtype that it has, broadcast to a shape."""
    if not shape and sharding is None:
        return as_array(value)
    return broadcast_in_dim_p.bind(value, shape=shape, broadcast_dimensions=(), sharding=sharding)


def full_like(x, fill_value, dtype=None, shape=None, sharding=None):
    """An array like x: its shape, dtype and sharding unless given otherwise, filled with a scalar.

    Inside shard_map the result varies over the axes over which x does.
    """
    device, out = placement(sharding, None, "full_like", _ndim(x) if shape is None else len(shape))
    return placed_new(like(x, fill_value, dtype, shape, out, device is not None), device)


def _ndim(x: Any) -> int:
    return len(x.shape) if hasattr(x, "shape") else np.ndim(x)


def like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None,
         sharding: NamedSharding | None = None, placed: bool = False) -> Array:
    """`full_like` with a sharding that an op takes. placed: the caller places the result."""
    if hasattr(x, "dtype") and hasattr(x, "shape"):
        own_shape = tuple(x.shape)
        own_dtype = x.dtype
        weak = bool(getattr(x, "weak_type", False))
        if isinstance(own_dtype, np.dtype) and not isinstance(x, Array):
            own_dtype = canonicalize_dtype(own_dtype, x64_enabled())
    else:
        own_shape = shape_of(x)
        own_dtype, weak = dtype_and_weak(x)
    new_shape = own_shape if shape is None else static_shape(shape)
    if dtype is not None:
        weak = False
        own_dtype = dtype if isinstance(dtype, ExtendedDType) else user_dtype(dtype, "full_like")
    value = element(fill_value, own_dtype, weak)
    requested = getattr(x, "sharding", None) if not isinstance(x, Array) else None
    if requested is not None and sharding is None and not placed and new_shape == own_shape:
        return _varying_like(_of_sharding(new_shape, value, requested), x)
    if sharding is not None or placed or shape is not None or not isinstance(x, Array):
        result = _varying_like(filled_as(new_shape, value, sharding), x)
        elsewhere = sharding is not None or placed or not isinstance(x, Array)
        if elsewhere or not getattr(getattr(x, "sharding", None), "is_fully_replicated", False):
            return result
        return _placed_like(result, x)
    aval = x.aval
    if aval.sharding.mesh.explicit_axes and _on_context(aval.sharding.mesh):
        with mesh_of_operands(x):
            result = _varying_like(filled_as(new_shape, value, aval.sharding), x)
        return _placed_like(result, x)
    return _placed_like(_varying_like(filled_as(new_shape, value), x), x)


def _of_sharding(shape: tuple[int, ...], value: Any, sharding: Any) -> Array:
    """A filled array where a ShapeDtypeStruct says that it is to be."""
    if isinstance(sharding, NamedSharding) and sharding.mesh.explicit_axes and (
            not sharding.is_concrete or STATE.interpreter is not None):
        return filled_as(shape, value, normalized_sharding(sharding, len(shape)))
    result = filled_as(shape, value)
    return put_on_device(result, sharding) if sharding.is_concrete else result


def _placed_like(result: Array, x: Array) -> Array:
    """result where x is, if x is committed; it can be moved outside of a trace only."""
    if is_concrete(x) and STATE.interpreter is None and getattr(x, "committed", False):
        own = x.sharding  # type: ignore[attr-defined]
        if own.is_concrete and (result.ndim == x.ndim or own.is_fully_replicated):
            return put_on_device(result, own)
    return result


def _on_context(mesh: Any) -> bool:
    context = STATE.abstract_mesh
    return not context.axis_names or mesh is context


def _varying_like(result: Array, x: Any) -> Array:
    varying = getattr(getattr(x, "aval", None), "varying", ())      # a struct may have one too
    if not varying:
        return result
    order = result.aval.mesh.axis_names or STATE.abstract_mesh.axis_names
    return OPS["pvary"].bind(result, axes=tuple(a for a in order if a in varying))


def empty(shape, dtype, *, out_sharding=None):
    """An array whose values must not be relied on (here they are zeros), of this shape and dtype.
    """
    shape = static_shape(shape)
    sharding = output_sharding(out_sharding, "empty", len(shape))
    if isinstance(dtype, ExtendedDType):
        return filled_as(shape, element(0, dtype), sharding)
    return empty_p.bind(shape=shape, dtype=user_dtype(dtype, "empty"), out_sharding=sharding)


@sharding_notes.made
def iota(dtype, size):
    """The numbers 0 to size - 1 as a vector of this dtype.

    >>> st.lax.iota(jnp.int32, 4)
    Array([0, 1, 2, 3], dtype=int32)
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype, shape, dimension, *, out_sharding=None):
    """An array of this shape that counts from 0 along a dimension."""
    dtype = user_dtype(dtype, "iota")
    shape = static_shape(shape, "iota")
    return iota_p.bind(dtype=dtype, shape=shape, dimension=int(dimension),
                       sharding=output_sharding(out_sharding, "broadcasted_iota", len(shape)))


