"""Ranges of numbers: arange, linspace, logspace, geomspace."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....ir.diagnostics.diagnostic import fail
from ....ir.diagnostics.errors import ConcretizationTypeError
from ....ir.dtypes import issubdtype, promote_types
from ....ir.ops.elementwise.arithmetic import add_p, div_p, floor_p, mul_p, sign_p, sub_p
from ....ir.ops.elementwise.powers import pow_p
from ....ir.ops.elementwise.transcendental import log_p
from ....ir.ops.movement.creation import iota_p
from ....ir.ops.movement.reshape import reshape_p
from ....ir.settings.context import x64_enabled
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...lax.creation import filled_as
from ...operands.broadcasting import to_type
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    promote_args_inexact,
    result_dtype,
    to_inexact,
    user_dtype,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import BOOL, INEXACT, INT32, float_default, int_default
from ...operands.shape_arguments import canonical_axis, static_int
from ...shardings.out_sharding import placement
from ...staging.constants import as_array, put_on_device
from ...staging.memoized import memoized
from ...staging.tracer import Tracer
from ..elementwise.two_operands import multiply_function

__all__ = ["arange", "geomspace", "linspace", "logspace"]


def _concrete(x: Any, which: str) -> Any:
    if isinstance(x, Tracer):
        fail(ConcretizationTypeError,
             "Abstract tracer value encountered where concrete value is expected: traced array "
             f"with shape {x.aval.str_short()}\nIt arose in the jnp.arange argument '{which}'",
             code="traced-value", help="the length of an array must be static: mark the argument "
             "static with `static_argnums`")
    return np.asarray(x)[()] if isinstance(x, Array) else x


@sharding_notes.created
@memoized
def arange(start, stop=None, step=None, dtype=None, *, device=None, out_sharding=None):
    """The numbers from `start` to `stop`, which is not included, in steps of `step`.

    arange(stop) begins at 0. dtype: by default that of the bounds, int32 or float32. device,
    out_sharding: as in `zeros`. Raises ConcretizationTypeError for traced bounds: the length must
    be known.

    >>> jnp.arange(3), jnp.arange(1.0, 2.0, 0.25)
    (Array([0, 1, 2], dtype=int32), Array([1.  , 1.25, 1.5 , 1.75], dtype=float32))
    """
    device, sharding = placement(device, out_sharding, "jnp.arange", 1)
    return put_on_device(_arange(start, stop, step, dtype, sharding), device)


def _arange(start: Any, stop: Any, step: Any, dtype: Any, sharding: Any) -> Array:
    """`arange`, as start + step * iota, computed on the device."""
    if any(isinstance(x, complex) or getattr(getattr(x, "dtype", None), "kind", "") == "c"
           for x in (start, stop, step)):
        raise ValueError("Passing complex start/stop/step to jnp.arange is no longer supported "
                         "starting in JAX v0.10.0.")
    if dtype is not None:
        dtype = user_dtype(dtype, "arange")
        if dtype == np.dtype(bool):
            raise TypeError("iota does not accept dtype bool. Accepted dtypes are subtypes of "
                            "integer, floating, complexfloating. Convert the result of arange with "
                            ".astype(bool).")
    if stop is None and step is None:
        start = _concrete(start, "stop")
        if np.ndim(start):
            raise ValueError(f"jnp.arange: arguments must be scalars; got start={start!r}")
        if not hasattr(start, "__ceil__") and not isinstance(start, (np.number, np.bool_)):
            dtype_name(start)           # raises for what is no number
        if dtype is None:
            dtype = _range_dtype(start)
        n = max(0, math.ceil(start))
        return iota_p.bind(dtype=_countable(dtype), shape=(n,), dimension=0, sharding=sharding)
    start = _concrete(start, "start")
    stop = None if stop is None else _concrete(stop, "stop")
    step = None if step is None else _concrete(step, "step")
    for name, x in (("start", start), ("stop", stop), ("step", step)):
        if x is not None and np.ndim(x):
            raise ValueError(f"jnp.arange: arguments must be scalars; got {name}={x!r}")
    if step is not None and step == 0:
        raise ZeroDivisionError("division by zero: jnp.arange with step=0")
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        dtype = _range_dtype(start, stop, *(() if step is None else (step,)))
    width = 1 if step is None else step
    n = max(0, math.ceil((stop - start) / width))
    out = iota_p.bind(dtype=_countable(dtype), shape=(n,), dimension=0, sharding=sharding)
    if step is not None:
        out = mul_p.bind(convert(step, dtype), out)
    return add_p.bind(convert(start, dtype), out)


def _range_dtype(*values: Any) -> Any:
    dtype, weak = result_dtype(*values)
    if weak:
        return int_default() if issubdtype(dtype, np.integer) else (
            float_default() if issubdtype(dtype, np.floating) else dtype)
    return dtype


def _countable(dtype: Any) -> Any:
    return INT32 if dtype == BOOL else dtype


@sharding_notes.made
@memoized
def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0, *,
             device=None) -> Any:
    """`num` numbers at equal distances from `start` to `stop`, along a new dimension `axis`.

    start, stop: numbers, or arrays that broadcast. endpoint: whether `stop` is included.
    retstep: give the distance as well.

    >>> jnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    num = static_int(num)
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    check_arraylike("linspace", start, stop)
    start, stop = as_array(start), as_array(stop)
    if dtype is None:
        dtype = to_inexact(result_dtype(start, stop)[0])
    else:
        dtype = user_dtype(dtype, "linspace")
    compute = to_inexact(result_dtype(start, stop)[0])
    if dtype in INEXACT:
        compute = result_dtype_of(compute, dtype)
    start, stop = convert(start, compute), convert(stop, compute)
    shape = lax.broadcast_shapes(shape_of(start), shape_of(stop))
    axis = canonical_axis(axis, len(shape) + 1)
    first, last = to_type(start, shape), to_type(stop, shape)
    steps = num - 1 if endpoint else num
    real = np.zeros(0, compute).real.dtype
    if num > 1:
        step = div_p.bind(sub_p.bind(last, first), convert(steps, compute))
        column = (-1, *[1] * len(shape))
        places = iota_p.bind(dtype=real, shape=(steps,), dimension=0, sharding=None)
        places = reshape_to(places, tuple(steps if n == -1 else n for n in column))
        places = div_p.bind(places, convert(steps, real))
        places = convert(places, compute)
        one = convert(1, compute)
        row = (1, *shape)
        out = add_p.bind(mul_p.bind(reshape_to(first, row), sub_p.bind(one, places)),
                         mul_p.bind(reshape_to(last, row), places))
        if endpoint:
            out = lax.concatenate([out, lax.expand_dims(last, (0,))], 0)
    elif num == 1:
        step = as_array(convert(np.nan, compute)) if endpoint else sub_p.bind(last, first)
        out = reshape_to(first, (1, *shape))
    else:
        step = as_array(convert(np.nan, compute))
        out = filled_as((0, *shape), convert(0, compute))
    if axis:
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)]
        out = lax.transpose(out, order)
    if issubdtype(dtype, np.integer) and not issubdtype(compute, np.integer):
        out = floor_p.bind(out)
    out = put_on_device(convert(out, dtype), device)
    return (out, step) if retstep else out


def result_dtype_of(a: Any, b: Any) -> Any:
    """The dtype of an operation on two strong dtypes, whatever promotion users allow."""
    return promote_types(a, b, x64_enabled())


def reshape_to(x: Any, shape: tuple[int, ...]) -> Any:
    """x reshaped by an equation, also where only the rank of a scalar changes."""
    return x if shape_of(x) == shape else reshape_p.bind(
        x, new_sizes=shape, dimensions=None, sharding=None)


def logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None, axis=0):
    """`num` powers of `base`, with exponents at equal distances from `start` to `stop`.

    The arguments are those of `linspace`.

    >>> jnp.logspace(0, 2, 3)
    Array([  1.,  10., 100.], dtype=float32)
    """
    num = static_int(num)
    check_arraylike("logspace", start, stop)
    if dtype is None:
        dtype = to_inexact(result_dtype(start, stop)[0])
    dtype = user_dtype(dtype, "logspace")
    compute = to_inexact(result_dtype_of(to_inexact(result_dtype(start, stop)[0]), dtype)
                         if dtype in INEXACT else result_dtype(start, stop)[0])
    exponents = linspace(convert(start, compute), convert(stop, compute), num, endpoint=endpoint,
                         axis=axis)
    base, exponents = promote_args_inexact("logspace", convert(base, compute), exponents)
    return convert(pow_p.bind(base, exponents), dtype)


def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    """`num` numbers from `start` to `stop`, each the same multiple of the one before."""
    num = static_int(num)
    check_arraylike("geomspace", start, stop)
    if dtype is None:
        dtype = to_inexact(result_dtype(start, stop)[0])
    dtype = user_dtype(dtype, "geomspace")
    compute = to_inexact(dtype)
    start, stop = convert(as_array(start), compute), convert(as_array(stop), compute)
    shape = lax.broadcast_shapes(shape_of(start), shape_of(stop))
    if shape_of(start) and shape_of(stop):
        start, stop = to_type(start, shape), to_type(stop, shape)
    sign = sign_p.bind(start)
    low, high = div_p.bind(start, sign), div_p.bind(stop, sign)
    factor = convert(1 / np.log(10), compute)
    out = logspace(mul_p.bind(log_p.bind(low), factor), mul_p.bind(log_p.bind(high), factor), num,
                   endpoint=endpoint, base=10.0, dtype=compute, axis=0)
    out = multiply_function(sign, out)
    axis = canonical_axis(axis, len(shape) + 1)
    if axis:
        out = lax.transpose(out, [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)])
    return convert(out, dtype)
