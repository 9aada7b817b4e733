"""What all samplers share: checks of arguments, and how they are run.

A sampler is a function of (key, *parameters) with static `shape` and `dtype`, written with ops.
With `out_sharding` it is traced with the Explicit axes switched to Auto and its result resharded:
the same numbers, each device making its own block. Outside of a trace it runs as one program,
cached on the types of its arguments.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.diagnostics.errors import TypePromotionError
from ...ir.dtypes import issubdtype, safe_to_cast
from ...ir.op import OPS
from ...ir.program import Program
from ...ir.settings.context import STATE, trace_settings, x64_enabled
from ...ir.shardings.sharding import NamedSharding, named_sharding_abstract
from ...ir.spec import spec_from_entries
from ...ir.support.caches import cached
from ...ir.types import ArrayType, Shape
from ...ir.values.array import Array
from ...ir.values.typeof import typeof
from ..operands.dtype_promotion import dtype_name, user_dtype
from ..operands.rank_promotion import broadcast_shapes, shape_of
from ..operands.scalars import float_default, int_default
from ..operands.shape_arguments import static_shape
from ..shardings.auto_mode import in_auto_mode
from ..shardings.out_sharding import canonicalize_sharding
from ..staging.staging import trace_to_program
from .keys import checked_key

Sampler = Callable[..., Array]

_KINDS = {"float": ((np.floating,), float_default), "integer": ((np.integer,), int_default),
          "float or complex": ((np.inexact,), float_default)}


# -- arguments -------------------------------------------------------------------------------------

def sampled_dtype(name: str, dtype: Any, kind: str = "float") -> np.dtype:
    """The dtype of the numbers; the default of its kind for None. Raises ValueError for others."""
    accepted, default = _KINDS[kind]
    found = default() if dtype is None else user_dtype(dtype, name)
    if not any(issubdtype(found, k) for k in accepted):
        wanted = "an int" if kind == "integer" else f"a {kind}"
        raise ValueError(f"dtype argument to `{name}` must be {wanted} dtype, got {found}")
    return found


def check_shape(name: str, shape: Shape, *parameters: Shape) -> None:
    """Raise ValueError unless parameters of these shapes broadcast to `shape`."""
    if parameters and broadcast_shapes(shape, *parameters) != shape:
        raise ValueError(
            f"{name} parameter shapes must be broadcast-compatible with shape argument, and the "
            "result of broadcasting the shapes must equal the shape argument, but got result "
            f"{broadcast_shapes(shape, *parameters)} for shape argument {shape}.")


def sampled_shape(name: str, shape: Any, *parameters: Any) -> Shape:
    """The shape asked for, or for None that to which the parameters broadcast."""
    shapes = [tuple(shape_of(p)) for p in parameters]
    if shape is None:
        return broadcast_shapes(*shapes)
    shape = static_shape(shape)
    check_shape(name, shape, *shapes)
    return shape


def check_castable(name: str, dtype: np.dtype, *parameters: Any) -> None:
    """Raise TypePromotionError if a parameter is of a wider dtype than the result."""
    for p in parameters:
        if not safe_to_cast(p, dtype, x64_enabled()):
            raise TypePromotionError(f"In arguments to {name}, cannot safely cast argument of type "
                                     f"{dtype_name(p)} to {dtype}")


def sampled_sharding(name: str, out_sharding: Any, shape: Shape | None) -> NamedSharding | None:
    """The `out_sharding` argument as ops take it. Scalars are whole where all axes are Explicit."""
    sharding = canonicalize_sharding(out_sharding, name)
    mesh = STATE.abstract_mesh
    if sharding is None and not shape and mesh.axis_names and mesh.are_all_axes_explicit:
        return named_sharding_abstract(mesh, spec_from_entries(()))
    return sharding


# -- running ---------------------------------------------------------------------------------------

def draw(sampler: Sampler, sharding: NamedSharding | None, *operands: Any, **static: Any) -> Array:
    """`sampler(*operands, **static)`, its result resharded to `sharding` if that is given."""
    if STATE.interpreter is not None:
        return _placed(sampler, sharding, static, operands)
    types = tuple(typeof(x) for x in operands)
    program = _program(sampler, tuple(static.items()), sharding, types, STATE.abstract_mesh,
                       trace_settings())
    return OPS["jit"].bind(*operands, name=program.name, jaxpr=program, inline=True)[0]


@cached(4096)
def _program(sampler: Sampler, static: tuple, sharding: NamedSharding | None,
             types: tuple[ArrayType, ...], *context: Any) -> Program:
    """The program of a sampler. context: all else that tracing depends on."""
    def flat(*operands: Any) -> list[Any]:
        return [_placed(sampler, sharding, dict(static), operands)]

    return trace_to_program(flat, types, name=sampler.__name__.removeprefix("sample_"))[0]


def _placed(sampler: Sampler, sharding: NamedSharding | None, static: dict[str, Any],
            operands: tuple[Any, ...]) -> Array:
    return in_auto_mode(functools.partial(sampler, **static), sharding, *operands)


def draw_numbers(name: str, sampler: Sampler, key: Any, shape: Any, dtype: Any, out_sharding: Any,
                 *parameters: Any, kind: str = "float") -> Array:
    """The whole of a sampler whose result has the shape to which its parameters broadcast."""
    key, _ = checked_key(name, key)
    dtype = sampled_dtype(name, dtype, kind)
    shape = sampled_shape(name, shape, *parameters)
    if kind != "integer":
        check_castable(name, dtype, *parameters)
    sharding = sampled_sharding(name, out_sharding, shape)
    return draw(sampler, sharding, key, *parameters, shape=shape, dtype=dtype)
