"""More distributions of real numbers, as in `jax.scipy.stats`; see distributions.py."""
from __future__ import annotations

import math

import numpy as np

from ... import jnp, lax
from ...jnp.indexing.searching import choose_where as where
from ...operands.dtype_promotion import promote_args_inexact, strong_array
from ..special import error_functions
from ..special import functions as special
from .distributions import LOG_2PI, LocationScale, Shaped, exp_of, log_of, within_support


class _Gumbel(LocationScale):
    """Both Gumbel distributions; NaN where the scale is not positive."""

    @classmethod
    def _standard(cls, name, x, loc, scale):
        z, scale = super()._standard(name, x, loc, scale)
        return where(scale > 0, z, np.nan), scale


class gumbel_r(_Gumbel):
    """The Gumbel distribution of maxima, around loc, with scale: of the greatest of many values."""

    @staticmethod
    def _log_density(z):
        return -(z + lax.exp(-z))

    @staticmethod
    def _probability(z):
        return lax.exp(-lax.exp(-z))

    @staticmethod
    def _quantile(q):
        return -lax.log(-lax.log(q))

    @classmethod
    def logcdf(cls, x, loc=0, scale=1):
        """The logarithm of `cdf`."""
        return -lax.exp(-cls._standard("logcdf", x, loc, scale)[0])

    @classmethod
    def sf(cls, x, loc=0, scale=1):
        """The probability of a value above x."""
        return -jnp.expm1(cls.logcdf(x, loc, scale))

    logsf = log_of(sf)


class gumbel_l(_Gumbel):
    """The Gumbel distribution of minima, around loc, with scale: of the least of many values."""

    @staticmethod
    def _log_density(z):
        return z - lax.exp(z)

    @staticmethod
    def _probability(z):
        return -jnp.expm1(-lax.exp(z))

    @staticmethod
    def _quantile(q):
        return lax.log(-lax.log1p(-q))

    @classmethod
    def logsf(cls, x, loc=0, scale=1):
        """The logarithm of `sf`."""
        return -lax.exp(cls._standard("logsf", x, loc, scale)[0])

    sf = exp_of(logsf)


class pareto(Shaped):
    """The Pareto distribution with exponent b, from loc + scale on."""

    @classmethod
    def logpdf(cls, x, b, loc=0, scale=1):
        """The logarithm of the density."""
        (b,), z, scale = cls._split("logpdf", x, b, loc, scale)
        return strong_array(within_support(z >= 1, lax.log(b) - (b + 1) * lax.log(z)
                                           - lax.log(scale)))

    pdf = exp_of(logpdf)

    @classmethod
    def logsf(cls, x, b, loc=0, scale=1):
        """The logarithm of `sf`."""
        (b,), z, _ = cls._split("logsf", x, b, loc, scale)
        return strong_array(where(z < 1, 0.0, -b * lax.log(where(z < 1, 1.0, z))))

    sf = exp_of(logsf)

    @classmethod
    def cdf(cls, x, b, loc=0, scale=1):
        """The probability of a value of at most x."""
        return -jnp.expm1(cls.logsf(x, b, loc, scale))

    logcdf = log_of(cdf)

    @classmethod
    def ppf(cls, q, b, loc=0, scale=1):
        """The value with `cdf` q."""
        q, b, loc, scale = promote_args_inexact("pareto.ppf", q, b, loc, scale)
        inside = (q >= 0) & (q <= 1)
        return strong_array(where(inside, loc + scale * lax.exp(-lax.log1p(-q) / b), np.nan))


class gennorm:
    """The generalised normal distribution: density like exp(-abs(x)**beta)."""

    @staticmethod
    def logpdf(x, beta):
        """The logarithm of the density."""
        x, beta = promote_args_inexact("gennorm.logpdf", x, beta)
        return lax.log(0.5 * beta) - lax.lgamma(1 / beta) - lax.pow(lax.abs(x), beta)

    pdf = exp_of(logpdf)

    @staticmethod
    def cdf(x, beta):
        """The probability of a value of at most x."""
        x, beta = promote_args_inexact("gennorm.cdf", x, beta)
        return 0.5 * (1 + lax.sign(x) * special.gammainc(1 / beta, lax.pow(lax.abs(x), beta)))


class vonmises:
    """The von Mises distribution of an angle, with concentration kappa."""

    @staticmethod
    def logpdf(x, kappa):
        """The logarithm of the density."""
        x, kappa = promote_args_inexact("vonmises.logpdf", x, kappa)
        return where(kappa < 0, np.nan, kappa * (lax.cos(x) - 1) - LOG_2PI
                     - lax.log(special.i0e(where(kappa < 0, 0.0, kappa))))

    pdf = exp_of(logpdf)


class wrapcauchy:
    """The Cauchy distribution wrapped around a circle, for angles from 0 to 2 pi; 0 < c < 1."""

    @staticmethod
    def logpdf(x, c):
        """The logarithm of the density."""
        x, c = promote_args_inexact("wrapcauchy.logpdf", x, c)
        density = (lax.log1p(-c * c) - LOG_2PI
                   - lax.log1p(c * c - 2 * c * lax.cos(x)))
        inside = (x >= 0) & (x < 2 * math.pi)
        return where((c > 0) & (c < 1), within_support(inside, density), np.nan)

    pdf = exp_of(logpdf)


def _log_normal_mass(a, b):
    """log of the probability that a normal variable is between a and b, exact in both tails."""
    flip = a > 0
    low, high = where(flip, -b, a), where(flip, -a, b)      # not both above zero
    left = error_functions.log_ndtr(high) + jnp.log1p(-jnp.exp(jnp.minimum(
        error_functions.log_ndtr(low) - error_functions.log_ndtr(high), 0)))
    middle = jnp.log1p(-error_functions.ndtr(low) - error_functions.ndtr(-high))
    return where(high <= 0, left, middle)


class truncnorm(Shaped):
    """The normal distribution between a and b standard deviations from loc, with scale."""

    @classmethod
    def _split(cls, name, x, *rest):
        """All of one shape."""
        (a, b), z, scale = super()._split(name, x, *rest)
        a, b, z, scale = jnp.broadcast_arrays(a, b, z, scale)
        return (a, b), z, scale

    @classmethod
    def logpdf(cls, x, a, b, loc=0, scale=1):
        """The logarithm of the density."""
        (a, b), z, scale = cls._split("logpdf", x, a, b, loc, scale)
        inside = -0.5 * (z * z + LOG_2PI) - _log_normal_mass(a, b) - jnp.log(scale)
        return where(a < b, within_support((z >= a) & (z <= b), inside), np.nan)

    pdf = exp_of(logpdf)

    @classmethod
    def logcdf(cls, x, a, b, loc=0, scale=1):
        """The logarithm of `cdf`."""
        (a, b), z, _ = cls._split("logcdf", x, a, b, loc, scale)
        inside = _log_normal_mass(a, jnp.clip(z, a, b)) - _log_normal_mass(a, b)
        found = where(z >= b, 0.0, where(z <= a, -np.inf, jnp.minimum(inside, 0)))
        return where(a < b, found, np.nan)

    cdf = exp_of(logcdf)

    @classmethod
    def logsf(cls, x, a, b, loc=0, scale=1):
        """The logarithm of `sf`."""
        (a, b), z, _ = cls._split("logsf", x, a, b, loc, scale)
        return cls.logcdf(-z, -b, -a)

    sf = exp_of(logsf)
