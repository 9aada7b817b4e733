"""Densities of probability distributions, as in `jax.scipy.stats`.

Each distribution is a class that is never instantiated: `norm.logpdf(x, loc, scale)`. Arguments
broadcast against each other and are promoted as numpy does; outside of its support a density is 0
and its logarithm -inf. Source of the formulas: Johnson, Kotz and Balakrishnan, "Continuous
Univariate Distributions"; Johnson, Kemp and Kotz, "Univariate Discrete Distributions".
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import jnp, lax
from ...jnp.indexing.searching import choose_where as where
from ...operands.dtype_promotion import promote_args_inexact, strong, strong_array
from ...staging.constants import as_array
from ..special import error_functions
from ..special import functions as special

LOG_2PI = math.log(2 * math.pi)


def within_support(condition: Any, logarithm: Any) -> Any:
    """The logarithm of a density where the condition holds, -inf elsewhere."""
    return where(condition, logarithm, -np.inf)


_DOCS = {"pdf": "The density.", "pmf": "The probability of the counts.",
         "cdf": "The probability of a value of at most x.",
         "sf": "The probability of a value above x."}


def exp_of(logarithm: Any) -> Any:
    """The class method `pdf` from `logpdf`, and so on."""
    return _derived(jnp.exp, logarithm, logarithm.__func__.__name__.removeprefix("log"))


def log_of(method: Any) -> Any:
    """The class method `logcdf` from `cdf`, and so on."""
    return _derived(jnp.log, method, f"log{method.__func__.__name__}")


def _derived(function: Callable[[Any], Any], source: Any, name: str) -> Any:
    """The method `name`: `function` of what the method `source` gives, with the same parameters."""
    source_name = source.__func__.__name__

    def method(cls, *args, **kwargs):
        return function(getattr(cls, source_name)(*args, **kwargs))

    functools.update_wrapper(method, source.__func__)       # the parameters are the same
    method.__name__ = name
    method.__qualname__ = f"{method.__qualname__.removesuffix(source_name)}{name}"
    method.__doc__ = _DOCS.get(name, f"The logarithm of `{source_name}`.")
    return classmethod(method)


class LocationScale:
    """What follows from the standard form: `_log_density`, `_probability` and `_quantile` of z."""

    _log_density: Any
    _probability: Any
    _quantile: Any

    @classmethod
    def _standard(cls, name, x, loc, scale):
        x, loc, scale = promote_args_inexact(f"{cls.__name__}.{name}", x, loc, scale)
        return (as_array(x) - loc) / scale, scale

    @classmethod
    def logpdf(cls, x: Any, loc: Any = 0, scale: Any = 1) -> Any:
        """The logarithm of the density."""
        z, scale = cls._standard("logpdf", x, loc, scale)
        return cls._log_density(z) - lax.log(scale)

    pdf = exp_of(logpdf)

    @classmethod
    def cdf(cls, x, loc=0, scale=1):
        """The probability of a value of at most x."""
        return cls._probability(cls._standard("cdf", x, loc, scale)[0])

    logcdf = log_of(cdf)

    @classmethod
    def sf(cls, x, loc=0, scale=1):
        """The probability of a value above x."""
        return 1 - cls.cdf(x, loc, scale)

    logsf = log_of(sf)

    @classmethod
    def ppf(cls, q, loc=0, scale=1):
        """The value with `cdf` q."""
        q, loc, scale = promote_args_inexact(f"{cls.__name__}.ppf", q, loc, scale)
        return loc + scale * cls._quantile(q)

    @classmethod
    def isf(cls, q, loc=0, scale=1):
        """The value with `sf` q."""
        return cls.ppf(1 - jnp.asarray(q), loc, scale)


class _Symmetric(LocationScale):
    """Symmetric about loc, so that tails on both sides are equally exact."""

    @classmethod
    def sf(cls, x, loc=0, scale=1):
        """The probability of a value above x."""
        return cls._probability(-cls._standard("sf", x, loc, scale)[0])

    @classmethod
    def logpdf(cls, x, loc=0, scale=1):
        """The logarithm of the density."""
        return strong_array(super().logpdf(x, loc, scale))

    @classmethod
    def isf(cls, q, loc=0, scale=1):
        """The value with `sf` q."""
        q, loc, scale = promote_args_inexact(f"{cls.__name__}.isf", q, loc, scale)
        return loc - scale * cls._quantile(q)


class norm(_Symmetric):
    """The normal distribution.

    >>> from shardtrace.scipy.stats import norm
    >>> print(norm.cdf(0.0), norm.logpdf(0.0))
    0.5 -0.9189385
    """

    @staticmethod
    def _log_density(z):
        return -0.5 * (z * z + LOG_2PI)

    _probability = staticmethod(error_functions.ndtr)
    _quantile = staticmethod(error_functions.ndtri)

    @classmethod
    def logcdf(cls, x, loc=0, scale=1):
        """The logarithm of `cdf`, exact far out too."""
        return error_functions.log_ndtr(cls._standard("logcdf", x, loc, scale)[0])

    @classmethod
    def logsf(cls, x, loc=0, scale=1):
        """The logarithm of `sf`, exact far out too."""
        return error_functions.log_ndtr(-cls._standard("logsf", x, loc, scale)[0])


class laplace(_Symmetric):
    """The Laplace distribution around loc: exponential on both sides, with scale."""

    @staticmethod
    def _log_density(z):
        return -lax.abs(z) - math.log(2)

    @staticmethod
    def _probability(z):
        tail = 0.5 * lax.exp(-lax.abs(z))
        return strong_array(where(z < 0, tail, 1 - tail))

    @staticmethod
    def _quantile(q):
        return where(q < 0.5, lax.log(2 * q), -lax.log(2 - 2 * q))


class logistic(_Symmetric):
    """The logistic distribution around loc, with scale; its cumulative function is `expit`."""

    @staticmethod
    def _log_density(z):
        return -lax.abs(z) - 2 * lax.log1p(lax.exp(-lax.abs(z)))

    _probability = staticmethod(special.expit)
    _quantile = staticmethod(special.logit)


class cauchy(_Symmetric):
    """The Cauchy distribution around loc: tails so heavy that it has no mean."""

    @staticmethod
    def _log_density(z):
        return -math.log(math.pi) - lax.log1p(z * z)

    @staticmethod
    def _probability(z):
        return strong_array(0.5 + lax.atan(z) / math.pi)

    @staticmethod
    def _quantile(q):
        tail = 1 / lax.tan(math.pi * jnp.minimum(q, 1 - q))
        return strong_array(where(q < 0.5, -tail, tail))


class expon(LocationScale):
    """The exponential distribution from loc on, with mean loc + scale."""

    @classmethod
    def logpdf(cls, x, loc=0, scale=1):
        """The logarithm of the density."""
        x, loc, scale = promote_args_inexact("expon.logpdf", x, loc, scale)
        return within_support(x >= loc, (loc - x) / scale - lax.log(as_array(scale)))

    @classmethod
    def logsf(cls, x, loc=0, scale=1):
        """The logarithm of `sf`."""
        x, loc, scale = promote_args_inexact("expon.logsf", x, loc, scale)
        return where(x < loc, 0.0, (loc - x) / scale)

    sf = exp_of(logsf)

    @classmethod
    def cdf(cls, x, loc=0, scale=1):
        """The probability of a value of at most x."""
        return -jnp.expm1(cls.logsf(x, loc, scale))

    @staticmethod
    def _quantile(q):
        return where((q >= 0) & (q <= 1), -lax.log1p(-q), np.nan)


class uniform(LocationScale):
    """The uniform distribution: equal density between loc and loc + scale."""

    @classmethod
    def logpdf(cls, x: Any, loc: Any = 0, scale: Any = 1) -> Any:
        """The logarithm of the density."""
        x, loc, scale = promote_args_inexact("uniform.logpdf", x, loc, scale)
        return where((x < loc) | (x > loc + scale), -np.inf, -lax.log(as_array(scale)))

    @staticmethod
    def _probability(z):
        return strong(jnp.clip(z, 0, 1))

    @staticmethod
    def _quantile(q):
        return where((q >= 0) & (q <= 1), q, np.nan)


class Shaped:
    """Location-scale families with further parameters, given before loc and scale."""

    @classmethod
    def _split(cls, name, x, *rest):
        """The further parameters, (x - loc) / scale, and the scale."""
        x, *rest = promote_args_inexact(f"{cls.__name__}.{name}", x, *rest)
        *shape, loc, scale = rest
        return shape, (as_array(x) - loc) / scale, scale


class gamma(Shaped):
    """The gamma distribution with shape parameter a, from loc on, scaled by scale."""

    @classmethod
    def logpdf(cls, x, a, loc=0, scale=1):
        """The logarithm of the density."""
        x, a, loc, scale = promote_args_inexact("gamma.logpdf", x, a, loc, scale)
        inside = x >= loc
        z = where(inside, (x - loc) / scale, 1)
        found = special.xlogy(a - 1, z) - z - lax.lgamma(a) - lax.log(as_array(scale))
        return strong_array(within_support(inside, found))

    pdf = exp_of(logpdf)

    @classmethod
    def cdf(cls, x, a, loc=0, scale=1):
        """The probability of a value of at most x."""
        (a,), z, _ = cls._split("cdf", x, a, loc, scale)
        return strong_array(special.gammainc(a, jnp.clip(z, 0)))

    @classmethod
    def sf(cls, x, a, loc=0, scale=1):
        """The probability of a value above x."""
        (a,), z, _ = cls._split("sf", x, a, loc, scale)
        return special.gammaincc(a, jnp.clip(z, 0))

    logcdf = log_of(cdf)
    logsf = log_of(sf)


class chi2:
    """The chi-squared distribution with df degrees of freedom: gamma of df / 2, scaled by 2."""


def _of_gamma(name):
    def method(x, df, loc=0, scale=1):
        return strong_array(
            getattr(gamma, name)(x, jnp.asarray(df) / 2, loc, 2 * jnp.asarray(scale)))
    method.__name__, method.__doc__ = name, getattr(gamma, name).__doc__
    return staticmethod(method)


for _name in ("logpdf", "pdf", "cdf", "logcdf", "sf", "logsf"):
    setattr(chi2, _name, _of_gamma(_name))


class beta(Shaped):
    """The beta distribution on [loc, loc + scale], with parameters a and b."""

    @classmethod
    def logpdf(cls, x, a, b, loc=0, scale=1):
        """The logarithm of the density."""
        (a, b), z, scale = cls._split("logpdf", x, a, b, loc, scale)
        inside = (special.xlogy(a - 1, z) + special.xlog1py(b - 1, -z) - special.betaln(a, b)
                  - lax.log(scale))
        valid = (a > 0) & (b > 0) & (scale > 0)
        return strong_array(where(valid, within_support((z >= 0) & (z <= 1), inside), np.nan))

    pdf = exp_of(logpdf)

    @classmethod
    def cdf(cls, x, a, b, loc=0, scale=1):
        """The probability of a value of at most x."""
        (a, b), z, _ = cls._split("cdf", x, a, b, loc, scale)
        return strong_array(special.betainc(a, b, jnp.clip(z, 0, 1)))

    @classmethod
    def sf(cls, x, a, b, loc=0, scale=1):
        """The probability of a value above x."""
        (a, b), z, _ = cls._split("sf", x, a, b, loc, scale)
        return strong_array(special.betainc(b, a, 1 - jnp.clip(z, 0, 1)))

    logcdf = log_of(cdf)
    logsf = log_of(sf)


class t(Shaped):
    """Student's t distribution with df degrees of freedom, around loc, scaled by scale."""

    @classmethod
    def logpdf(cls, x, df, loc=0, scale=1):
        """The logarithm of the density."""
        (df,), z, scale = cls._split("logpdf", x, df, loc, scale)
        return strong_array(
            lax.lgamma((df + 1) / 2) - lax.lgamma(df / 2) - 0.5 * lax.log(df * math.pi)
            - lax.log(scale) - (df + 1) / 2 * lax.log1p(z * z / df))

    pdf = exp_of(logpdf)
