"""Initial values of weights: the functions of `jax.nn.initializers` (0.10.2).

An initializer is a function `(key, shape, dtype, out_sharding) -> array`. Most of them are
`variance_scaling` with the mode and distribution that their paper proposes.

Sources: LeCun, Bottou, Orr, Müller, "Efficient BackProp", 1998; Glorot, Bengio, AISTATS 2010; He,
Zhang, Ren, Sun, ICCV 2015; Saxe, McClelland, Ganguli, ICLR 2014 (orthogonal); Xiao et al., ICML
2018 (delta_orthogonal).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...ir.dtypes import issubdtype, to_complex_dtype
from ...ir.values.array import Array
from .. import jnp, lax, random
from ..operands.dtype_promotion import user_dtype
from ..operands.scalars import float_default
from ..operands.shape_arguments import canonical_axis, static_shape
from ..shardings.out_sharding import canonicalize_sharding

Axis = int | Sequence[int]

_MODES = ("fan_in", "fan_out", "fan_avg", "fan_geo_avg")
# Standard deviation of a normal number cut off at 2: real, and the radius of a complex one.
_CUT_REAL, _CUT_COMPLEX = 0.87962566103423978, 0.95311164380491208


@runtime_checkable
class Initializer(Protocol):
    """A function (key, shape, dtype, out_sharding) that makes the first values of a parameter."""

    def __call__(self, key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None
                 ) -> Array: ...


def _dtype(dtype: Any) -> Any:
    return float_default() if dtype is None else user_dtype(dtype, "initializer")


# -- constants -------------------------------------------------------------------------------------

def zeros(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Array:
    """An initializer that gives zeros of this shape; the key is not used."""
    return jnp.zeros(shape, _dtype(dtype), out_sharding=out_sharding)


def ones(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Array:
    """An initializer that gives ones of this shape; the key is not used."""
    return jnp.ones(shape, _dtype(dtype), out_sharding=out_sharding)


def constant(value: Any, dtype: Any = None) -> Initializer:
    """An initializer that gives `value` (a scalar, or an array that broadcasts) everywhere."""
    def init(key, shape, dtype=dtype, out_sharding=None):
        sharding = canonicalize_sharding(out_sharding, "nn.initializers.constant")
        return jnp.full(shape, value, dtype=_dtype(dtype), out_sharding=sharding)
    return init


# -- one distribution ------------------------------------------------------------------------------

def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer that draws numbers spread evenly over [0, scale)."""
    def init(key, shape, dtype=dtype, out_sharding=None):
        dtype = _dtype(dtype)
        drawn = random.uniform(key, shape, dtype, out_sharding=out_sharding)
        return drawn * jnp.asarray(scale, dtype)
    return init


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer that draws normal numbers of this standard deviation."""
    def init(key, shape, dtype=dtype, out_sharding=None):
        dtype = _dtype(dtype)
        drawn = random.normal(key, shape, dtype, out_sharding=out_sharding)
        return drawn * jnp.asarray(stddev, dtype)
    return init


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0
                     ) -> Initializer:
    """An initializer that draws normal numbers in (lower, upper), times `stddev`."""
    def init(key, shape, dtype=dtype, out_sharding=None):
        dtype = _dtype(dtype)
        drawn = random.truncated_normal(key, lower, upper, shape, dtype,
                                        out_sharding=out_sharding)
        return drawn * jnp.asarray(stddev, dtype)
    return init


# -- scaled by the size of the layer ---------------------------------------------------------------

def _product(shape: Sequence[int], axes: Axis) -> int:
    return shape[axes] if isinstance(axes, int) else math.prod(shape[a] for a in axes)


def compute_fans(shape: Sequence[int], in_axis: Axis = -2, out_axis: Axis = -1,
                 batch_axis: Axis = ()) -> tuple[float, float]:
    """How many numbers go into, and come out of, one unit of a layer with weights of this shape."""
    if in_axis == -2 and len(shape) <= 1:
        raise ValueError(f"Can't compute input and output sizes of a {len(shape)}-dimensional "
                         "weights tensor with default in_axis. Must be at least 2D or specify "
                         "in_axis explicitly.")
    size_in, size_out = _product(shape, in_axis), _product(shape, out_axis)
    field = math.prod(shape) / size_in / size_out / _product(shape, batch_axis)
    return size_in * field, size_out * field


def variance_scaling(scale: Any, mode: str, distribution: str, in_axis: Axis = -2,
                     out_axis: Axis = -1, batch_axis: Axis = (), dtype: Any = None
                     ) -> Initializer:
    """An initializer whose numbers have variance scale / n.

    mode: what n is: "fan_in", "fan_out", their mean "fan_avg" or geometric mean "fan_geo_avg".
    distribution: "truncated_normal", "normal" or "uniform". in_axis, out_axis, batch_axis: the
    dimensions of the shape that are a layer's inputs, outputs, and independent copies of it.
    Raises ValueError for other words.
    """
    def init(key, shape, dtype=dtype, out_sharding=None):
        shape = static_shape(shape)
        dtype = _dtype(dtype)
        fan_in, fan_out = compute_fans(shape, in_axis, out_axis, batch_axis)
        if mode not in _MODES:
            raise ValueError(f"invalid mode for variance scaling initializer: {mode}")
        count = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2,
                 "fan_geo_avg": (fan_in * fan_out) ** 0.5}[mode]
        variance = jnp.asarray(scale / count, dtype)
        real = issubdtype(dtype, np.floating)
        if distribution == "normal":
            drawn = random.normal(key, shape, dtype, out_sharding=out_sharding)
            return drawn * jnp.sqrt(variance)
        if distribution == "truncated_normal":
            deviation = jnp.sqrt(variance) / jnp.asarray(_CUT_REAL if real else _CUT_COMPLEX,
                                                         dtype)
            drawn = (random.truncated_normal(key, -2, 2, shape, dtype, out_sharding=out_sharding)
                     if real else _complex_truncated_normal(key, shape, dtype))
            return drawn * deviation
        if distribution == "uniform":
            if real:
                drawn = random.uniform(key, shape, dtype, -1, out_sharding=out_sharding)
                return drawn * jnp.sqrt(3 * variance)
            return _complex_uniform(key, shape, dtype) * jnp.sqrt(variance)
        raise ValueError(f"invalid distribution for variance scaling initializer: {distribution}")
    return init


def _polar(radius: Array, key: Any, shape: Sequence[int], real: np.dtype) -> Array:
    dtype = to_complex_dtype(real)
    angle = 2 * np.pi * lax.convert_element_type(random.uniform(key, shape, real), dtype)
    return radius * jnp.exp(1j * angle)


def _complex_uniform(key: Any, shape: Sequence[int], dtype: Any) -> Array:
    """Uniform in the unit disk."""
    radius_key, angle_key = random.split(key)
    real = np.zeros((), dtype).real.dtype
    radius = jnp.sqrt(2 * random.uniform(radius_key, shape, real))
    return _polar(lax.convert_element_type(radius, dtype), angle_key, shape, real)


def _complex_truncated_normal(key: Any, shape: Sequence[int], dtype: Any) -> Array:
    """Normal numbers whose absolute value is below 2."""
    radius_key, angle_key = random.split(key)
    real = np.zeros((), dtype).real.dtype
    u = lax.convert_element_type(random.uniform(radius_key, shape, real), dtype)
    cut = (1 - jnp.exp(jnp.asarray(-4, dtype))) * u
    return _polar(jnp.sqrt(-jnp.log(1 - cut)), angle_key, shape, real)


def _scaled(name: str, scale: float, mode: str, distribution: str, remark: str
            ) -> Callable[..., Initializer]:
    def f(in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (),
          dtype: Any = None) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f'variance_scaling({scale:g}, "{mode}", "{distribution}"); {remark}.'
    return f


glorot_uniform = _scaled("glorot_uniform", 1.0, "fan_avg", "uniform", "also called Xavier uniform")
glorot_normal = _scaled("glorot_normal", 1.0, "fan_avg", "truncated_normal",
                        "also called Xavier normal")
lecun_uniform = _scaled("lecun_uniform", 1.0, "fan_in", "uniform", "the variance is 1 / inputs")
lecun_normal = _scaled("lecun_normal", 1.0, "fan_in", "truncated_normal",
                       "the variance is 1 / inputs")
he_uniform = _scaled("he_uniform", 2.0, "fan_in", "uniform", "also called Kaiming uniform")
he_normal = _scaled("he_normal", 2.0, "fan_in", "truncated_normal", "also called Kaiming normal")
xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal


# -- orthogonal ------------------------------------------------------------------------------------

def _not_sharded(out_sharding: Any, name: str) -> None:
    if out_sharding is not None:
        raise NotImplementedError(f"the {name} initializer has no out_sharding: the matrix is made "
                                  "as a whole. Bring its result to a sharding with `reshard`")


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer that gives `scale` times a matrix with orthonormal rows or columns.

    column_axis: the dimension that is the columns; all others together are the rows.
    """
    def init(key, shape, dtype=dtype, out_sharding=None):
        _not_sharded(out_sharding, "orthogonal")
        dtype = _dtype(dtype)
        shape = static_shape(shape)
        if len(shape) < 2:
            raise ValueError("orthogonal initializer requires at least a 2D shape")
        if 0 in shape:
            return jnp.zeros(shape, dtype=dtype)
        axis = canonical_axis(column_axis, len(shape))
        columns = shape[axis]
        q = random.orthogonal(key, math.prod(shape) // columns, (), dtype, columns)
        q = jnp.reshape(q, (*shape[:axis], *shape[axis + 1:], columns))
        return jnp.asarray(scale, dtype) * jnp.moveaxis(q, -1, axis)
    return init


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer of convolutions: an orthogonal matrix in the middle, zeros around it.

    The shape has 1 to 3 spatial dimensions, then inputs and outputs, no more inputs than outputs.
    """
    def init(key, shape, dtype=dtype, out_sharding=None):
        _not_sharded(out_sharding, "delta_orthogonal")
        dtype = _dtype(dtype)
        shape = static_shape(shape)
        if len(shape) not in (3, 4, 5):
            raise ValueError("Delta orthogonal initializer requires a 3D, 4D or 5D shape.")
        if shape[-1] < shape[-2]:
            raise ValueError("`fan_in` must be less or equal than `fan_out`. ")
        matrix = orthogonal(scale, column_axis, dtype)(key, shape[-2:])
        middle = tuple((n - 1) // 2 for n in shape[:-2])
        return jnp.zeros(shape, dtype=dtype).at[middle].set(matrix)
    return init
