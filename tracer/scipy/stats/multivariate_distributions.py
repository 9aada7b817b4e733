"""Densities of distributions of vectors, as in `jax.scipy.stats`; see distributions.py."""
from __future__ import annotations

import numpy as np

from ... import jnp, lax
from ...operands.dtype_promotion import dtype_name, promote_dtypes_inexact
from ...staging.constants import as_array
from ..special import functions as special
from .distributions import LOG_2PI, exp_of, norm, within_support


class dirichlet:
    """The Dirichlet distribution on a simplex; dimension 0 of x holds the coordinates."""

    @staticmethod
    def logpdf(x, alpha):
        """The logarithm of the density; x may leave out the last coordinate."""
        x, alpha = map(as_array, promote_dtypes_inexact(x, alpha))
        if alpha.ndim != 1:
            raise ValueError("`alpha` must be one-dimensional; got alpha.shape="
                             f"{alpha.shape}")
        if x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
            raise ValueError("`x` must have either the same number of entries as `alpha` or one "
                             f"entry fewer; got x.shape={x.shape}, alpha.shape={alpha.shape}")
        if x.shape[0] != alpha.shape[0]:
            x = jnp.concatenate([x, 1 - x.sum(0, keepdims=True)])
        wide = alpha.reshape(-1, *[1] * (x.ndim - 1))
        inside = (jnp.sum(special.xlogy(wide - 1, x), axis=0) + lax.lgamma(jnp.sum(alpha))
                  - jnp.sum(lax.lgamma(alpha)))
        tolerance = 10 * np.finfo(dtype_name(x)).eps
        on_simplex = jnp.all(x > 0, axis=0) & (jnp.abs(x.sum(axis=0) - 1) < tolerance)
        return within_support(on_simplex, inside)

    pdf = exp_of(logpdf)


class multivariate_normal:
    """The normal distribution of vectors, which are dimension -1 of x, with mean and cov."""

    @staticmethod
    def logpdf(x, mean, cov, allow_singular=None):
        """The logarithm of the density; cov is a matrix, perhaps one of a batch, or a number."""
        if allow_singular is not None:
            raise NotImplementedError("allow_singular argument of multivariate_normal.logpdf")
        x, mean, cov = map(as_array, promote_dtypes_inexact(x, mean, cov))
        if mean.ndim == 0:
            z, scale = (x - mean) / jnp.sqrt(cov), jnp.sqrt(cov)
            return norm._log_density(z) - lax.log(scale)
        n = mean.shape[-1]
        if cov.ndim == 0:
            y = (x - mean) / jnp.sqrt(cov)
            return -0.5 * (jnp.sum(y * y, axis=-1) + n * (LOG_2PI + lax.log(cov)))
        if cov.ndim < 2 or cov.shape[-2:] != (n, n):
            raise ValueError("multivariate_normal.logpdf got incompatible shapes")
        factor = lax.linalg.cholesky(cov)
        away = x - mean
        batch = jnp.broadcast_shapes(away.shape[:-1], cov.shape[:-2])
        y = lax.linalg.triangular_solve(
            jnp.broadcast_to(factor, (*batch, n, n)),
            jnp.broadcast_to(away, (*batch, n))[..., None], left_side=True, lower=True)[..., 0]
        spread = jnp.sum(lax.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
        return -0.5 * (jnp.sum(y * y, axis=-1) + n * LOG_2PI) - spread

    pdf = exp_of(logpdf)
