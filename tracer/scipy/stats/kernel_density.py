"""Kernel density estimation: the density behind samples, as a sum of normal densities.

All is computed from the Cholesky factor of the covariance: where it is solved for, the samples and
the points have unit covariance, and densities depend on their distances alone.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ... import jnp, lax, random
from ...nn import logsumexp
from ...operands.dtype_promotion import promote_dtypes_inexact
from ...trees.tree import register_pytree_node_class
from ..dense import solve_triangular
from ..special.error_functions import ndtr

Bandwidth = str | float | Callable[[Any], Any] | None


@register_pytree_node_class
class gaussian_kde:
    """A density estimated from samples `dataset` [n] or [d, n], as in `jax.scipy.stats`.

    bw_method: how wide the normal densities are, as a factor of the deviation of the samples:
    "scott" (the default), "silverman", a number, or a function of this object. weights: of the
    samples [n], equal unless given. `neff` is how many samples of equal weight they amount to.

    >>> from shardtrace.scipy.stats import gaussian_kde
    >>> density = gaussian_kde(jnp.array([0., 1., 2.]))
    >>> density(jnp.array([1., 2.])).round(3)
    Array([0.318, 0.249], dtype=float32)
    """

    def __init__(self, dataset: Any, bw_method: Bandwidth = None, weights: Any = None) -> None:
        dataset = jnp.atleast_2d(dataset)
        if jnp.iscomplexobj(dataset):
            raise NotImplementedError("gaussian_kde does not support complex data")
        if not dataset.size > 1:
            raise ValueError("`dataset` input should have multiple elements.")
        if weights is None:
            (self.dataset,) = promote_dtypes_inexact(dataset)
            self.weights = jnp.full(self.n, 1.0 / self.n, self.dataset.dtype)
        else:
            self.dataset, weights = promote_dtypes_inexact(dataset, jnp.atleast_1d(weights))
            if weights.ndim != 1:
                raise ValueError("`weights` input should be one-dimensional.")
            if len(weights) != self.n:
                raise ValueError("`weights` input should be of length n")
            self.weights = weights / jnp.sum(weights)
        self.neff = 1 / jnp.sum(self.weights ** 2)
        factor = self._factor("scott" if bw_method is None else bw_method)
        self.covariance = factor ** 2 * jnp.atleast_2d(
            jnp.cov(self.dataset, rowvar=True, bias=False, aweights=self.weights))
        self.inv_cov = jnp.linalg.inv(self.covariance)

    def _factor(self, method: Any) -> Any:
        if isinstance(method, str) and method in ("scott", "silverman"):
            samples = self.neff if method == "scott" else self.neff * (self.d + 2) / 4.0
            return samples ** (-1.0 / (self.d + 4))
        if callable(method):
            return method(self)
        if isinstance(method, str) or jnp.ndim(method) != 0:
            raise ValueError("`bw_method` should be 'scott', 'silverman', a scalar, or a callable.")
        return method

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """The estimate's arrays, as pytrees need them."""
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: tuple[Any, ...]) -> gaussian_kde:
        """The object of these arrays."""
        made = cls.__new__(cls)
        made.neff, made.dataset, made.weights, made.covariance, made.inv_cov = children
        return made

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.dataset.shape[1]

    def evaluate(self, points: Any) -> Any:
        """The density at points [m] or [d, m]."""
        return lax.exp(self.logpdf(points))

    __call__ = pdf = evaluate

    def logpdf(self, x: Any) -> Any:
        """The logarithm of the density at points [m] or [d, m]."""
        return self._log_density(self.covariance, self._points(x))

    def _log_density(self, covariance: Any, points: Any) -> Any:
        """The logarithm of a sum of normal densities around the samples, at points [d, m]."""
        factor = jnp.linalg.cholesky(covariance)
        centres, places = (solve_triangular(factor, x, lower=True) for x in (self.dataset, points))
        squares = jnp.sum((places[:, :, None] - centres[:, None, :]) ** 2, axis=0)
        scale = 0.5 * self.d * math.log(2 * math.pi) + jnp.sum(jnp.log(jnp.diagonal(factor)))
        return logsumexp(-0.5 * squares, axis=1, b=self.weights) - scale

    def integrate_gaussian(self, mean: Any, cov: Any) -> Any:
        """The integral of the density times a normal density."""
        mean, cov = jnp.atleast_1d(jnp.squeeze(mean)), jnp.atleast_2d(cov)
        if mean.shape != (self.d,):
            raise ValueError(f"mean does not have dimension {self.d}")
        if cov.shape != (self.d, self.d):
            raise ValueError(f"covariance does not have dimension {self.d}")
        return lax.exp(self._log_density(self.covariance + cov, mean[:, None])[0])

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        """The integral of a density of one dimension between two numbers."""
        if self.d != 1:
            raise ValueError("integrate_box_1d() only handles 1D pdfs")
        if jnp.ndim(low) != 0 or jnp.ndim(high) != 0:
            raise ValueError("the limits of integration in integrate_box_1d must be scalars")
        deviation, samples = jnp.sqrt(self.covariance[0, 0]), self.dataset[0]
        return jnp.sum(self.weights * (ndtr((high - samples) / deviation)
                                       - ndtr((low - samples) / deviation)))

    def integrate_kde(self, other: gaussian_kde) -> Any:
        """The integral of the product with another estimated density."""
        if other.d != self.d:
            raise ValueError("KDEs are not the same dimensionality")
        density = lax.exp(self._log_density(self.covariance + other.covariance, other.dataset))
        return jnp.sum(density * other.weights)

    def resample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        """Samples [d, *shape] of the density."""
        which, noise = random.split(key)
        chosen = random.choice(which, self.n, shape=shape, p=self.weights)
        moved = random.multivariate_normal(
            noise, jnp.zeros(self.d, self.covariance.dtype), self.covariance, shape=shape,
            dtype=self.dataset.dtype)
        return self.dataset[:, chosen] + moved.T

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Any:
        """Not there, as in JAX."""
        raise NotImplementedError(
            "only 1D box integrations are supported; use `integrate_box_1d`")

    def set_bandwidth(self, bw_method: Bandwidth = None) -> None:
        """Not there, as in JAX: the object does not change."""
        raise NotImplementedError("dynamically changing the bandwidth method is not supported")

    def _points(self, points: Any) -> Any:
        """Points as [d, m]."""
        if jnp.iscomplexobj(points):
            raise NotImplementedError("gaussian_kde does not support complex coordinates")
        points = jnp.atleast_2d(points)
        d, m = points.shape
        if d != self.d:
            if d == 1 and m == self.d:
                return jnp.reshape(points, (self.d, 1))
            raise ValueError(f"points have dimension {d}, dataset has dimension {self.d}")
        return points
