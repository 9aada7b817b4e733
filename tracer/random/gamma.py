"""Distributions made of gamma numbers: gamma, beta, dirichlet, chi-square, t, F, and balls.

The gamma numbers themselves are one op, `random_gamma`. Computations are those of `jax.random`
(0.10.2); `shape`, `dtype` and `out_sharding` as in continuous.py.
"""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.ops.random.gamma import random_gamma_p
from ...ir.values.array import Array
from ...ir.values.typeof import typeof
from .. import jnp, lax
from ..operands.dtype_promotion import convert
from ..operands.rank_promotion import shape_of
from ..operands.shape_arguments import static_shape
from ..shardings.out_sharding import canonicalize_sharding
from .continuous import sample_exponential, sample_normal
from .drawing import Shape, check_shape, draw, draw_numbers, sampled_dtype, sampled_sharding
from .keys import checked_key, split_off
from .uniform import sample_rademacher
from .user_generators import own_impl


def check_varying(name: str, key: Array, parameter: Any) -> None:
    """Raise TypeError where devices would draw with one key for parameters that differ."""
    key_type, own = typeof(key), typeof(parameter)
    if own.varying - key_type.varying:
        fail(TypeError, f"{name} requires all arguments to have matching type. Got key type: "
             f"{key_type} vs arg type: {own}. Use jax.lax.pcast(..., to='varying') to make them "
             "match. If your key is less varying than arg, watch out for key-reuse problems.",
             code="varying-mismatch",
             help="give each device a key of its own, with `random.fold_in` and `lax.axis_index`")


def sample_gamma(key: Array, a: Any, *, shape: Shape | None, dtype: np.dtype,
                 log_space: bool = False) -> Array:
    """Gamma numbers of shape parameter a, or with `log_space` their logarithms."""
    if shape is None:
        shape = tuple(shape_of(a))
    else:
        check_shape("gamma", shape, shape_of(a))
    a = jnp.broadcast_to(convert(a, dtype), shape)
    check_varying("gamma", key, a)
    if own_impl(key.aval.dtype) is not None:
        fail(NotImplementedError, "gamma numbers are drawn with generators of this library alone; "
             f"this key is {key.aval.str_short()}", code="own-generator",
             help="make a key of the library's for them, with impl=\"threefry2x32\", of bits that "
                  "this one draws")
    return random_gamma_p.bind(key, a, log_space=log_space)


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
          ) -> Array:
    """Samples from the gamma distribution of shape parameter `a`, with mean and variance a.

    a: a number, or an array, whose shape is the default of `shape`. It has derivatives by `a`.

    >>> bool((st.random.gamma(st.random.key(0), 2.0, (100,)) > 0).all())
    True
    """
    key, _ = checked_key("gamma", key)
    dtype = sampled_dtype("gamma", dtype)
    shape = None if shape is None else static_shape(shape)
    sharding = sampled_sharding("gamma", out_sharding, shape)
    return draw(sample_gamma, sharding, key, a, shape=shape, dtype=dtype)


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
             ) -> Array:
    """Logarithms of gamma samples; accurate where the samples underflow (small `a`)."""
    key, _ = checked_key("loggamma", key)
    dtype = sampled_dtype("loggamma", dtype)
    shape = None if shape is None else static_shape(shape)
    sharding = canonicalize_sharding(out_sharding, "loggamma")
    return draw(sample_gamma, sharding, key, a, shape=shape, dtype=dtype, log_space=True)


def sample_beta(key: Array, a: Any, b: Any, *, shape: Shape, dtype: np.dtype) -> Array:
    for parameter in (a, b):
        check_varying("jax.random.beta", key, parameter)
    key_a, key_b = split_off(key)
    log_a = sample_gamma(key_a, a, shape=shape, dtype=dtype, log_space=True)
    log_b = sample_gamma(key_b, b, shape=shape, dtype=dtype, log_space=True)
    largest = lax.max(log_a, log_b)
    gamma_a, gamma_b = lax.exp(log_a - largest), lax.exp(log_b - largest)
    return gamma_a / (gamma_a + gamma_b)


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None, *,
         out_sharding: Any = None) -> Array:
    """Samples from the beta distribution: x / (x + y) for gamma samples x, y of parameters a, b."""
    return draw_numbers("beta", sample_beta, key, shape, dtype, out_sharding, a, b)


def sample_dirichlet(key: Array, alpha: Any, *, shape: Shape | None, dtype: np.dtype) -> Array:
    """Gamma numbers divided by their sum, computed from logarithms so that small ones do not
    vanish.
    """
    sizes = tuple(shape_of(alpha))
    if not sizes:
        raise ValueError("dirichlet requires alpha.ndim >= 1, got alpha.ndim == 0")
    if shape is None:
        shape = sizes[:-1]
    else:
        check_shape("dirichlet", shape, sizes[:-1])
    logs = sample_gamma(key, alpha, shape=shape + sizes[-1:], dtype=dtype, log_space=True)
    unscaled = lax.exp(logs - lax.stop_gradient(jnp.max(logs, axis=-1, keepdims=True)))
    return unscaled / jnp.sum(unscaled, axis=-1, keepdims=True)


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None, *,
              out_sharding: Any = None) -> Array:
    """Samples from the Dirichlet distribution.

    alpha: [..., n]; shape: of the result without its last dimension n.
    """
    key, _ = checked_key("dirichlet", key)
    dtype = sampled_dtype("dirichlet", dtype)
    shape = None if shape is None else static_shape(shape)
    sharding = sampled_sharding("dirichlet", out_sharding, shape)
    return draw(sample_dirichlet, sharding, key, alpha, shape=shape, dtype=dtype)


# -- tests of statistics ---------------------------------------------------------------------------

def sample_chisquare(key: Array, df: Any, *, shape: Shape, dtype: np.dtype) -> Array:
    half = convert(df, dtype) / dtype.type(2)
    logs = sample_gamma(key, half, shape=shape, dtype=dtype, log_space=True)
    return lax.mul(lax.exp(logs), dtype.type(2))


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None, *,
              out_sharding: Any = None) -> Array:
    """Samples from the chi-square distribution with `df` degrees of freedom."""
    return draw_numbers("chisquare", sample_chisquare, key, shape, dtype, out_sharding, df)


def sample_t(key: Array, df: Any, *, shape: Shape, dtype: np.dtype) -> Array:
    normal_key, gamma_key = split_off(key)
    z = sample_normal(normal_key, shape=shape, dtype=dtype)
    half = convert(df, dtype) / dtype.type(2)
    return z * lax.sqrt(half / sample_gamma(gamma_key, half, shape=shape, dtype=dtype))


def t(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
      ) -> Array:
    """Samples from Student's t distribution with `df` degrees of freedom."""
    return draw_numbers("t", sample_t, key, shape, dtype, out_sharding, df)


def sample_f(key: Array, dfnum: Any, dfden: Any, *, shape: Shape, dtype: np.dtype) -> Array:
    dfnum, dfden = convert(dfnum, dtype), convert(dfden, dtype)
    key_den, key_num = split_off(key)
    num = sample_chisquare(key_num, dfnum, shape=shape, dtype=dtype) / dfnum
    den = sample_chisquare(key_den, dfden, shape=shape, dtype=dtype) / dfden
    return lax.div(num, den)


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None, *,
      out_sharding: Any = None) -> Array:
    """Samples from the F distribution: ratios of chi-square samples over degrees of freedom."""
    return draw_numbers("f", sample_f, key, shape, dtype, out_sharding, dfnum, dfden)


# -- generalized normal numbers --------------------------------------------------------------------

def sample_generalized_normal(key: Array, p: Any, *, shape: Shape, dtype: np.dtype) -> Array:
    gamma_key, sign_key = split_off(key)
    size = sample_gamma(gamma_key, 1 / p, shape=shape, dtype=dtype)
    return sample_rademacher(sign_key, shape=shape, dtype=dtype) * size ** (1 / p)


def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = None, *,
                       out_sharding: Any = None) -> Array:
    """Samples x whose density is proportional to exp(-abs(x) ** p)."""
    shape = static_shape(shape)
    key, _ = checked_key("generalized_normal", key)
    dtype = sampled_dtype("generalized_normal", dtype)
    sharding = sampled_sharding("generalized_normal", out_sharding, shape)
    return draw(sample_generalized_normal, sharding, key, p, shape=shape, dtype=dtype)


def sample_ball(key: Array, p: Any, *, d: int, shape: Shape, dtype: np.dtype) -> Array:
    direction_key, radius_key = split_off(key)
    g = sample_generalized_normal(direction_key, p, shape=(*shape, d), dtype=dtype)
    e = sample_exponential(radius_key, shape=shape, dtype=dtype)
    norm = (jnp.sum(lax.abs(g) ** p, axis=-1) + e) ** (1 / p)
    return g / lax.expand_dims(norm, (len(shape),))


def ball(key: Any, d: int, p: Any = 2, shape: Any = (), dtype: Any = None, *,
         out_sharding: Any = None) -> Array:
    """Samples from the unit ball of the p-norm in `d` dimensions; the result is [*shape, d]."""
    shape = static_shape(shape)
    key, _ = checked_key("ball", key)
    dtype = sampled_dtype("ball", dtype)
    sharding = canonicalize_sharding(out_sharding, "ball")
    return draw(sample_ball, sharding, key, p, d=operator.index(d), shape=shape, dtype=dtype)
