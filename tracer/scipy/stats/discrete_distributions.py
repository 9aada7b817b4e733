"""Probabilities of discrete distributions, as in `jax.scipy.stats`; see distributions.py."""
from __future__ import annotations

import math

import numpy as np

from ....ir.dtypes import issubdtype
from ... import jnp, lax
from ...jnp.indexing.searching import choose_where as where
from ...operands.dtype_promotion import promote_args_inexact, strong_array
from ..special import functions as special
from .distributions import exp_of, within_support


class bernoulli:
    """The Bernoulli distribution: 1 with probability p, else 0. Functions take (k, p, loc)."""

    @staticmethod
    def logpmf(k, p, loc=0):
        """The logarithm of the probability of k."""
        k, p, loc = promote_args_inexact("bernoulli.logpmf", k, p, loc)
        x = k - loc
        return strong_array(
            within_support((x >= 0) & (x <= 1), special.xlogy(x, p) + special.xlog1py(1 - x, -p)))

    pmf = exp_of(logpmf)

    @staticmethod
    def cdf(k, p):
        """The probability of at most k."""
        k, p = promote_args_inexact("bernoulli.cdf", k, p)
        return strong_array(where(k < 0, 0.0, where(k < 1, 1 - p, 1.0)))

    @staticmethod
    def ppf(q, p):
        """The least value with `cdf` of at least q."""
        q, p = promote_args_inexact("bernoulli.ppf", q, p)
        valid = (q >= 0) & (q <= 1) & (p >= 0) & (p <= 1)
        return strong_array(where(valid, where(q <= 1 - p, 0.0, 1.0), np.nan))


class binom:
    """The binomial distribution: how many of n trials succeed, each with probability p."""

    @staticmethod
    def logpmf(k, n, p, loc=0):
        """The logarithm of the probability of k."""
        k, n, p, loc = promote_args_inexact("binom.logpmf", k, n, p, loc)
        x = k - loc
        ways = lax.lgamma(n + 1) - lax.lgamma(x + 1) - lax.lgamma(n - x + 1)
        return within_support((x >= 0) & (x <= n),
                              ways + special.xlogy(x, p) + special.xlog1py(n - x, -p))

    pmf = exp_of(logpmf)


class poisson:
    """The Poisson distribution: how many events happen where mu are expected."""

    @staticmethod
    def logpmf(k, mu, loc=0):
        """The logarithm of the probability of k."""
        k, mu, loc = promote_args_inexact("poisson.logpmf", k, mu, loc)
        x = k - loc
        return within_support((x >= 0) & (jnp.round(k) == k),
                              special.xlogy(x, mu) - lax.lgamma(x + 1) - mu)

    pmf = exp_of(logpmf)

    @staticmethod
    def cdf(k, mu, loc=0):
        """The probability of at most k."""
        k, mu, loc = promote_args_inexact("poisson.cdf", k, mu, loc)
        x = k - loc
        at_most = special.gammaincc(jnp.floor(1 + jnp.maximum(x, 0)), mu)
        return strong_array(where(x >= 0, at_most, 0.0))

    @staticmethod
    def entropy(mu, loc=0):
        """The entropy, in nats; nan for a negative mu.

        Of less than 100 expected events by its sum, of more by its expansion in powers of 1 / mu
        (R. Evans and others, "The entropy of a Poisson distribution", SIAM Review 30, 1988).
        """
        mu, loc = jnp.broadcast_arrays(*promote_args_inexact("poisson.entropy", mu, loc))
        few = jnp.expand_dims(where(mu < 100, mu, 1.0), -1)
        k = jnp.arange(220, dtype=few.dtype)
        logarithm = special.xlogy(k, few) - lax.lgamma(k + 1) - few
        summed = jnp.sum(where(few == 0, 0.0, -lax.exp(logarithm) * logarithm), axis=-1)
        many = 1 / where(mu < 100, 100.0, mu)
        expanded = 0.5 * (math.log(2 * math.pi * math.e) - lax.log(many)) - many * (
            1 / 12 + many * (1 / 24 + many * 19 / 360))
        return strong_array(where(mu < 0, np.nan, where(mu < 100, summed, expanded)))


class geom:
    """The geometric distribution: the number of trials up to the first success, each with
    probability p.
    """

    @staticmethod
    def logpmf(k, p, loc=0):
        """The logarithm of the probability of k."""
        k, p, loc = promote_args_inexact("geom.logpmf", k, p, loc)
        x = k - loc
        return within_support(x > 0, special.xlog1py(x - 1, -p) + lax.log(p))

    pmf = exp_of(logpmf)


class nbinom:
    """The negative binomial distribution: failures before n successes, each with probability p."""

    @staticmethod
    def logpmf(k, n, p, loc=0):
        """The logarithm of the probability of k."""
        k, n, p, loc = promote_args_inexact("nbinom.logpmf", k, n, p, loc)
        x = k - loc
        ways = lax.lgamma(x + n) - lax.lgamma(n) - lax.lgamma(x + 1)
        return within_support(x >= 0, ways + special.xlogy(n, p) + special.xlog1py(x, -p))

    pmf = exp_of(logpmf)


class betabinom:
    """The beta-binomial distribution: successes in n trials whose probability is beta(a, b)."""

    @staticmethod
    def logpmf(k, n, a, b, loc=0):
        """The logarithm of the probability of k."""
        k, n, a, b, loc = promote_args_inexact("betabinom.logpmf", k, n, a, b, loc)
        x = jnp.floor(k) - loc
        ways = -lax.log(n + 1) - special.betaln(n - x + 1, x + 1)
        found = ways + special.betaln(x + a, n - x + b) - special.betaln(a, b)
        valid = (n >= 0) & (a > 0) & (b > 0)
        return strong_array(where(valid, within_support((x >= 0) & (x <= n), found), np.nan))

    pmf = exp_of(logpmf)


class multinomial:
    """The multinomial distribution: how often each of several outcomes occurs in n trials."""

    @staticmethod
    def logpmf(x, n, p):
        """The logarithm of the probability of the counts in the last dimension of x."""
        (p,) = promote_args_inexact("multinomial.logpmf", p)
        x, n = jnp.asarray(x), jnp.asarray(n)
        if not issubdtype(jnp.result_type(x, n), np.integer):
            raise ValueError(f"x and n must be of integer type; got x.dtype={x.dtype}, "
                             f"n.dtype={n.dtype}")
        found = (special.gammaln(n + 1.0)
                 + jnp.sum(special.xlogy(x, p) - special.gammaln(x + 1.0), axis=-1))
        return within_support(jnp.equal(jnp.sum(x), n), found).astype(p.dtype)

    pmf = exp_of(logpmf)
