"""Making arrays: zeros, ones, full, arange, linspace, eye and what is like another array.

`out_sharding=` names the sharding over Explicit axes; without it a new array is whole.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.array import Array
from ...ir.diagnostic import fail
from ...ir.dtypes import issubdtype
from ...ir.errors import ConcretizationTypeError
from ...ir.ops.arithmetic import add_p, div_p, floor_p, mul_p, sign_p, sub_p
from ...ir.ops.comparison import eq_p, ge_p
from ...ir.ops.creation import iota_p
from ...ir.ops.powers import pow_p
from ...ir.ops.reshape import reshape_p
from ...ir.ops.select import select_n_p
from ...ir.ops.transcendental import log_p
from .. import lax
from ..broadcasting import to_type
from ..constants import as_array, put_on_device
from ..dtype_promotion import (
    BOOL,
    INEXACT,
    canonical_axis,
    check_arraylike,
    convert,
    dtype_name,
    float_default,
    int_default,
    promote_args_inexact,
    result_dtype,
    shape_of,
    static_shape,
    to_inexact,
    user_dtype,
)
from ..lax.creation import element, filled, filled_as, like
from ..out_sharding import placement
from ..tracer import Tracer
from .elementwise import _literal, multiply_function, power
from .reductions import to_shape

_INT32 = np.dtype("int32")


def _shape(shape: Any) -> tuple[int, ...]:
    return static_shape(shape)


def zeros(shape, dtype=None, *, device=None, out_sharding=None):
    """An array of zeros, float32 by default."""
    return _constant("jnp.zeros", 0, shape, dtype, device, out_sharding)


def ones(shape, dtype=None, *, device=None, out_sharding=None):
    """An array of ones, float32 by default."""
    return _constant("jnp.ones", 1, shape, dtype, device, out_sharding)


def empty(shape, dtype=None, *, device=None, out_sharding=None):
    """An array whose values mean nothing (here: zeros)."""
    return _constant("jnp.empty", 0, shape, dtype, device, out_sharding)


def _constant(name: str, value: int, shape: Any, dtype: Any, device: Any, out_sharding: Any
              ) -> Array:
    if isinstance(shape, Array) and not isinstance(shape, Tracer):
        shape = np.asarray(shape).tolist()
    shape = _shape(shape)
    dtype = float_default() if dtype is None else user_dtype(dtype, name.removeprefix("jnp."))
    device, sharding = placement(device, out_sharding, name, len(shape))
    return put_on_device(filled_as(shape, element(value, dtype), sharding), device)


def full(shape, fill_value, dtype=None, *, device=None, out_sharding=None):
    """An array filled with a value, which may be an array that is broadcast."""
    check_arraylike("full", fill_value)
    shape = _shape(shape)
    device, sharding = placement(device, out_sharding, "jnp.full", len(shape))
    if not shape_of(fill_value):
        return put_on_device(filled(shape, fill_value, _maybe(dtype, "full"), sharding), device)
    value = as_array(fill_value)
    if dtype is not None:
        value = convert(value, user_dtype(dtype, "full"))
    return put_on_device(to_type(value, shape, sharding), device)


def _maybe(dtype: Any, name: str) -> Any:
    return None if dtype is None else user_dtype(dtype, name)


def _is_like(x: Any) -> bool:
    return hasattr(x, "dtype") and hasattr(x, "shape")


def _like(name: str, a: Any, value: Any, dtype: Any, shape: Any, device: Any, out_sharding: Any
          ) -> Array:
    if not _is_like(a):
        check_arraylike(name, a)
    ndim = len(a.shape if _is_like(a) else shape_of(a)) if shape is None else len(_shape(shape))
    device, sharding = placement(device, out_sharding, f"jnp.{name}", ndim)
    result = like(a, value, _maybe(dtype, name), None if shape is None else _shape(shape),
                  sharding, device is not None)
    return put_on_device(result, device)


def zeros_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Zeros of the shape, dtype and sharding of another array."""
    return _like("zeros_like", a, 0, dtype, shape, device, out_sharding)


def ones_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Ones of the shape, dtype and sharding of another array."""
    return _like("ones_like", a, 1, dtype, shape, device, out_sharding)


def empty_like(prototype, dtype=None, shape=None, *, device=None):
    """An array like another, whose values mean nothing (here: zeros)."""
    return _like("empty_like", prototype, 0, dtype, shape, device, None)


def full_like(a, fill_value, dtype=None, shape=None, *, device=None, out_sharding=None):
    """An array like another, filled with a value, which may be an array that is broadcast."""
    if not _is_like(a):
        check_arraylike("full_like", a, fill_value)
    if not shape_of(fill_value):
        return _like("full_like", a, fill_value, dtype, shape, device, out_sharding)
    target = _shape(a.shape if _is_like(a) else shape_of(a)) if shape is None else _shape(shape)
    dtype = dtype_name(a) if dtype is None else user_dtype(dtype, "full_like")
    device, sharding = placement(device, out_sharding, "jnp.full_like", len(target))
    return put_on_device(to_type(convert(fill_value, dtype), target, sharding), device)


# -- numbers in a row ------------------------------------------------------------------------------

def _concrete(x: Any, which: str) -> Any:
    if isinstance(x, Tracer):
        fail(ConcretizationTypeError,
             "Abstract tracer value encountered where concrete value is expected: traced array "
             f"with shape {x.aval.str_short()}\nIt arose in the jnp.arange argument '{which}'",
             code="traced-value", help="the length of an array must be static: mark the argument "
             "static with `jit(f, static_argnums=...)`")
    return np.asarray(x)[()] if isinstance(x, Array) else x


def arange(start, stop=None, step=None, dtype=None, *, device=None, out_sharding=None):
    """The numbers from start (0) to stop, not included, in steps of step (1).

    Raises ConcretizationTypeError for traced bounds, since the length must be static.
    """
    device, sharding = placement(device, out_sharding, "jnp.arange", 1)
    return put_on_device(_arange(start, stop, step, dtype, sharding), device)


def _arange(start: Any, stop: Any, step: Any, dtype: Any, sharding: Any) -> Array:
    if dtype is not None:
        dtype = user_dtype(dtype, "arange")
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
        raise ValueError("jnp.arange: step must be non-zero")
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
    return _INT32 if dtype == BOOL else dtype


def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0, *,
             device=None):
    """num numbers at equal distances from start to stop, along a new dimension.

    endpoint: whether stop is included. retstep: give the distance as well.
    """
    num = num.__index__()
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
    first, last = to_shape(start, shape), to_shape(stop, shape)
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
        step = lax.full_like(first, np.nan if endpoint else 0)
        if not endpoint:
            step = sub_p.bind(last, first)
        out = reshape_to(first, (1, *shape))
    else:
        step = lax.full_like(first, np.nan)
        out = filled_as((0, *shape), convert(0, compute))
    if axis:
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)]
        out = lax.transpose(out, order)
    if issubdtype(dtype, np.integer) and not issubdtype(compute, np.integer):
        out = floor_p.bind(out)
    out = put_on_device(convert(out, dtype), device)
    return (out, step) if retstep else out


def result_dtype_of(a: Any, b: Any) -> Any:
    """The dtype of an operation on two strong dtypes."""
    return result_dtype(np.zeros((), a), np.zeros((), b))[0]


def reshape_to(x: Any, shape: tuple[int, ...]) -> Any:
    """x reshaped by an equation, also where only the rank of a scalar changes."""
    return x if shape_of(x) == shape else reshape_p.bind(
        x, new_sizes=shape, dimensions=None, sharding=None)


def logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None, axis=0):
    """Powers of base, exponents at equal distances from start to stop."""
    num = num.__index__()
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
    """num numbers with equal ratios from start to stop."""
    num = num.__index__()
    check_arraylike("geomspace", start, stop)
    if dtype is None:
        dtype = to_inexact(result_dtype(start, stop)[0])
    dtype = user_dtype(dtype, "geomspace")
    compute = to_inexact(dtype)
    start, stop = convert(as_array(start), compute), convert(as_array(stop), compute)
    shape = lax.broadcast_shapes(shape_of(start), shape_of(stop))
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


# -- matrices --------------------------------------------------------------------------------------

def eye(N, M=None, k=0, dtype=None, *, device=None):
    """Ones on the k-th diagonal of an N by M matrix, zeros elsewhere."""
    n = N.__index__()
    m = n if M is None else M.__index__()
    if n < 0 or m < 0:
        raise ValueError(f"negative dimensions are not allowed, got {n} and {m}")
    dtype = float_default() if dtype is None else user_dtype(dtype, "eye")
    return put_on_device(convert(_diagonal_mask(n, m, k), dtype), device)


def _diagonal_mask(n: int, m: int, k: Any) -> Array:
    rows = iota_p.bind(dtype=_INT32, shape=(n, m), dimension=0, sharding=None)
    columns = iota_p.bind(dtype=_INT32, shape=(n, m), dimension=1, sharding=None)
    return eq_p.bind(add_p.bind(rows, convert(k, _INT32)), columns)


def identity(n, dtype=None):
    """The n by n identity matrix."""
    return eye(n, dtype=dtype)


def tri(N, M=None, k=0, dtype=None):
    """Ones at and below the k-th diagonal of an N by M matrix."""
    n = N.__index__()
    m = n if M is None else M.__index__()
    dtype = float_default() if dtype is None else user_dtype(dtype, "tri")
    return convert(triangle_mask((n, m), k), dtype)


def triangle_mask(shape: tuple[int, int], k: Any) -> Array:
    """Whether at or below the k-th diagonal."""
    rows = iota_p.bind(dtype=_INT32, shape=shape, dimension=0, sharding=None)
    rows = add_p.bind(rows, convert(k, _INT32))
    columns = iota_p.bind(dtype=_INT32, shape=shape, dimension=1, sharding=None)
    return ge_p.bind(rows, columns)


def _triangle(name: str, m: Any, k: Any, lower: bool) -> Array:
    check_arraylike(name, m)
    m = as_array(m)
    if m.ndim < 2:
        raise ValueError(f"Argument to jax.numpy.{name} must be at least 2D")
    sharding = m.aval.sharding if any(m.aval.entries) else None
    mask = to_type(triangle_mask(m.shape[-2:], k if lower else k - 1), m.shape, sharding)
    zeros = lax.full_like(m, 0)
    return select_n_p.bind(mask, zeros, m) if lower else select_n_p.bind(mask, m, zeros)


def tril(m, k=0):
    """The lower triangles of matrices, zeros above the k-th diagonal."""
    return _triangle("tril", m, k, True)


def triu(m, k=0):
    """The upper triangles of matrices, zeros below the k-th diagonal."""
    return _triangle("triu", m, k, False)


def vander(x, N=None, increasing=False):
    """The matrix of powers of x: columns x**(N-1), ..., x, 1, or the other way round."""
    check_arraylike("vander", x)
    x = as_array(x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array")
    n = x.shape[0] if N is None else N.__index__()
    if n < 0:
        raise ValueError("N must be nonnegative")
    powers = iota_p.bind(dtype=x.dtype, shape=(n,), dimension=0, sharding=None)
    if not increasing:
        powers = sub_p.bind(_literal(n - 1, x), powers)
    column, row = lax.expand_dims(x, (1,)), lax.expand_dims(powers, (0,))
    if issubdtype(x.dtype, np.integer):
        return power(column, row)
    return pow_p.bind(column, row)

