"""Random vectors and matrices: multivariate_normal, orthogonal.

Computations are those of `jax.random` (0.10.2), on the decompositions of `jnp.linalg`.
"""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ...ir.values.array import Array
from .. import jnp, lax
from ..operands.dtype_promotion import promote_dtypes_inexact
from ..operands.rank_promotion import broadcast_shapes, shape_of
from ..operands.shape_arguments import static_shape
from .continuous import sample_normal
from .drawing import Shape, check_shape, draw, sampled_dtype, sampled_sharding
from .keys import checked_key

_METHODS = ("svd", "eigh", "cholesky")


def sample_multivariate_normal(key: Array, mean: Array, cov: Array, *, shape: Shape | None,
                               dtype: np.dtype, method: str) -> Array:
    """mean + F z, with z standard normal and F F^T = cov by the decomposition `method`."""
    n = mean.shape[-1]
    if shape is None:
        shape = broadcast_shapes(mean.shape[:-1], cov.shape[:-2])
    else:
        check_shape("normal", shape, mean.shape[:-1], cov.shape[:-2])
    if method == "cholesky":
        factor = jnp.linalg.cholesky(cov)
    else:
        if method == "svd":
            vectors, variances, _ = jnp.linalg.svd(cov)
        else:
            variances, vectors = jnp.linalg.eigh(cov)
        factor = vectors * lax.expand_dims(lax.sqrt(variances), (variances.ndim - 1,))
    z = sample_normal(key, shape=(*shape, n), dtype=dtype)
    return mean + jnp.einsum("...ij,...j->...i", factor, z)


def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = None,
                        method: str = "cholesky", *, out_sharding: Any = None) -> Array:
    """Samples from the normal distribution of vectors, mean [..., n], covariance [..., n, n].

    shape: of the result without its last dimension n. method: "cholesky", "eigh" or "svd", how the
    covariance is factored; the last two also take singular ones.
    """
    key, _ = checked_key("multivariate_normal", key)
    mean, cov = map(jnp.asarray, promote_dtypes_inexact(mean, cov))
    if method not in _METHODS:
        raise ValueError("method must be one of {'svd', 'eigh', 'cholesky'}")
    dtype = mean.dtype if dtype is None else sampled_dtype("multivariate_normal", dtype)
    shape = None if shape is None else static_shape(shape)
    if mean.ndim < 1:
        raise ValueError("multivariate_normal requires mean.ndim >= 1, got mean.ndim == "
                         f"{mean.ndim}")
    if cov.ndim < 2:
        raise ValueError(f"multivariate_normal requires cov.ndim >= 2, got cov.ndim == {cov.ndim}")
    n = mean.shape[-1]
    if cov.shape[-2:] != (n, n):
        raise ValueError(f"multivariate_normal requires cov.shape == (..., n, n) for n={n}, but "
                         f"got cov.shape == {shape_of(cov)}.")
    sharding = sampled_sharding("multivariate_normal", out_sharding, shape)
    return draw(sample_multivariate_normal, sharding, key, mean, cov, shape=shape, dtype=dtype,
                method=method)


def sample_orthogonal(key: Array, *, n: int, m: int, shape: Shape, dtype: np.dtype) -> Array:
    z = sample_normal(key, shape=(*shape, max(n, m), min(n, m)), dtype=dtype)
    q, r = jnp.linalg.qr(z)
    diagonal = jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1))
    x = q * lax.expand_dims(diagonal, (diagonal.ndim - 1,))    # makes the distribution even
    return jnp.swapaxes(x, -1, -2) if n < m else x


def orthogonal(key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None, *,
               out_sharding: Any = None) -> Array:
    """Matrices [*shape, n, m] (m = n by default) with orthonormal columns, or rows if n < m, all
    orientations equally likely; of a float or complex dtype."""
    shape = static_shape(shape)
    key, _ = checked_key("orthogonal", key)
    dtype = sampled_dtype("orthogonal", dtype, "float or complex")
    sharding = sampled_sharding("orthogonal", out_sharding, shape)
    n = operator.index(n)
    return draw(sample_orthogonal, sharding, key, n=n, m=n if m is None else operator.index(m),
                shape=shape, dtype=dtype)
