"""Special functions of one number at a time, as in `jax.scipy.special`.

Those with an op of their own (erf, lgamma, igamma and their kin) only gain numpy's promotion here.
The others are compositions, with derivatives of their own where differentiating the formula would
divide zero by zero or cancel (xlogy, log_ndtr, ndtri). Source of the formulas: Abramowitz and
Stegun, "Handbook of Mathematical Functions".
"""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.dtypes import issubdtype
from ... import jnp, lax, nn
from ...autodiff.custom.custom_jvp import custom_jvp
from ...jnp.indexing.searching import choose_where as where
from ...operands.dtype_promotion import dtype_name, promote_args_inexact, strong_array
from ...trees import tree
from .complex_gamma import complex_loggamma, stirling_rest

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def widened(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, of floats of half size in float32: the results have the dtype of the arguments."""
    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        numbers = promote_args_inexact(f.__name__, *args)
        dtype = dtype_name(numbers[0])
        if dtype.itemsize > 2:
            return f(*args, **kwargs)
        found = f(*[lax.convert_element_type(x, np.float32) for x in numbers], **kwargs)
        return tree.map(lambda x: lax.convert_element_type(x, dtype), found)
    return call


def of_reals(function: str, *args: Any) -> list[Any]:
    """The operands as floats of one dtype and rank. Raises ValueError for complex ones."""
    numbers = promote_args_inexact(function, *args)
    if jnp.iscomplexobj(numbers[0]):
        raise ValueError(f"{function} does not support complex-valued inputs.")
    return numbers


# -- gamma and its kin -----------------------------------------------------------------------------

def gammaln(x):
    """log |gamma(x)|.

    >>> from shardtrace.scipy.special import gammaln
    >>> print(gammaln(5.0))                                  # log 24
    3.1780539
    """
    (x,) = promote_args_inexact("gammaln", x)
    return lax.lgamma(x)


def loggamma(x):
    """The principal branch of the logarithm of the gamma function; nan for negative real numbers.

    >>> from shardtrace.scipy.special import loggamma
    >>> print(loggamma(-0.5 + 0j).round(4))
    (1.2655-3.1416j)
    """
    (x,) = promote_args_inexact("loggamma", x)
    if jnp.iscomplexobj(x):
        return complex_loggamma(x)
    return where(x > 0, lax.lgamma(x), np.nan)


def gammasgn(x):
    """The sign of gamma(x): -1 between the poles -1 and 0, 1 between -2 and -1, and so on."""
    (x,) = of_reals("gammasgn", x)
    whole = lax.floor(x)
    at_pole = (x < 0) & (x == whole)
    sign = where((x < 0) & (whole % 2 != 0), -1.0, 1.0)
    minus_zero = (x == 0) & jnp.signbit(x)
    return where(at_pole, np.nan, where(minus_zero, -1.0, sign)).astype(dtype_name(x))


def gamma(x):
    """The gamma function, elementwise; (n - 1)! for positive integers n."""
    (x,) = promote_args_inexact("gamma", x)
    if jnp.iscomplexobj(x):
        return lax.exp(complex_loggamma(x))
    return gammasgn(x) * lax.exp(lax.lgamma(x))


def factorial(n, exact=False):
    """n!, that is gamma(n + 1); 0 for negative n. `exact` is not supported."""
    if exact:
        raise NotImplementedError("factorial with exact=True")
    (n,) = promote_args_inexact("factorial", n)
    return where(n < 0, 0.0, lax.exp(lax.lgamma(n + 1)))


def digamma(x):
    """The digamma function, elementwise: the derivative of the logarithm of gamma."""
    (x,) = promote_args_inexact("digamma", x)
    return lax.digamma(x)


def polygamma(n, x):
    """The n-th derivative of the digamma function at x, elementwise; n: integers."""
    if not issubdtype(dtype_name(n), np.integer):
        raise ValueError(f"Argument `n` to polygamma must be of integer type. Got dtype "
                         f"{dtype_name(n)}.")
    n, x = of_reals("polygamma", n, x)
    return lax.polygamma(n, x)


def zeta(x, q=None):
    """Hurwitz' zeta function, the sum over k of 1 / (k + q)**x; q = 1 is Riemann's."""
    x, q = promote_args_inexact("zeta", x, 1.0 if q is None else q)
    return lax.zeta(x, q)


def gammainc(a, x):
    """The regularized lower incomplete gamma function of a and x, elementwise: from 0 to 1."""
    return lax.igamma(*promote_args_inexact("gammainc", a, x))


def gammaincc(a, x):
    """The regularized upper incomplete gamma function of a and x, elementwise: from 1 to 0."""
    return lax.igammac(*promote_args_inexact("gammaincc", a, x))


def multigammaln(a, d):
    """The logarithm of the gamma function of d dimensions (d an integer), elementwise."""
    d = operator.index(d)
    (a,) = promote_args_inexact("multigammaln", a)
    halves = jnp.arange(d) / 2.0
    terms = lax.lgamma(jnp.expand_dims(a, -1) - halves.astype(dtype_name(a)))
    return jnp.sum(terms, axis=-1) + 0.25 * d * (d - 1) * math.log(math.pi)


def betaln(a, b):
    """The logarithm of the absolute value of the beta function, elementwise."""
    a, b = promote_args_inexact("betaln", a, b)
    a, b = jnp.minimum(a, b), jnp.maximum(a, b)
    small, large = where(b < 8, b, 1.0), where(b < 8, 8.0, b)
    direct = lax.lgamma(small) - lax.lgamma(a + small)
    # Of large b the same difference, by Stirling's series, in which nothing large cancels.
    series = (stirling_rest(large) - stirling_rest(a + large)
              - (a + large - 0.5) * lax.log1p(a / large) - a * (lax.log(large) - 1))
    return lax.lgamma(a) + where(b < 8, direct, series)


def beta(a, b):
    """The beta function, elementwise: gamma(a) * gamma(b) / gamma(a + b)."""
    a, b = of_reals("beta", a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * lax.exp(betaln(a, b))


def betainc(a, b, x):
    """The regularized incomplete beta function of a, b and x, elementwise: from 0 to 1."""
    return lax.betainc(*of_reals("betainc", a, b, x))


def poch(z, m):
    """Pochhammer's rising factorial, elementwise: gamma(z + m) / gamma(z)."""
    z, m = of_reals("poch", z, m)
    ratio = gammasgn(z) * gammasgn(z + m) * lax.exp(lax.lgamma(z + m) - lax.lgamma(z))
    return where(m == 0, 1.0, ratio).astype(dtype_name(z))


def comb(N, k, *, repetition=False):
    """The number of ways to choose k of N things; with repetition, with things chosen again."""
    N, k = promote_args_inexact("comb", N, k)
    none = (k == 0) & (N >= 0)
    if repetition:
        N = N + k - 1
    some = (k >= 0) & (N >= 0) & (k <= N)
    N, k = where(some, N, 0.0), where(some, k, 0.0)
    ways = lax.exp(lax.lgamma(N + 1) - lax.lgamma(k + 1) - lax.lgamma(N - k + 1))
    return where(none, 1.0, where(some, ways, 0.0))


# -- softmax --------------------------------------------------------------------------------------

def softmax(x, /, *, axis: Any = None):
    """exp(x) divided by its sum over `axis`, by default over all elements."""
    return nn.softmax(x, axis=axis)


def log_softmax(x, /, *, axis: Any = None):
    """The logarithm of `softmax` over `axis`, by default over all elements; without underflow."""
    return nn.log_softmax(x, axis=axis)


# -- logarithms ------------------------------------------------------------------------------------

def _safe_log_product(x, y, log):
    return where((x != 0) | jnp.isnan(y), x * log(y), jnp.zeros_like(x))


@custom_jvp
def _xlogy(x, y):
    return _safe_log_product(x, y, lax.log)


@_xlogy.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return _xlogy(x, y), dx * lax.log(y) + dy * (x / y)


@custom_jvp
def _xlog1py(x, y):
    return _safe_log_product(x, y, lax.log1p)


@_xlog1py.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return _xlog1py(x, y), dx * lax.log1p(y) + dy * (x / (1 + y))


def xlogy(x, y):
    """x log(y), elementwise; 0 where x is 0 and y a number.

    >>> from shardtrace.scipy.special import xlogy
    >>> print(xlogy(0.0, 0.0))
    0.0
    """
    return _xlogy(*jnp.broadcast_arrays(*promote_args_inexact("xlogy", x, y)))


def xlog1py(x, y):
    """x log(1 + y), elementwise; 0 where x is 0 and y a number, also where y is -1."""
    return _xlog1py(*jnp.broadcast_arrays(*promote_args_inexact("xlog1py", x, y)))


@custom_jvp
def _xlogx(x):
    return _xlogy(x, x)


@_xlogx.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return _xlogx(x), dx * (lax.log(x) + 1)


def entr(x):
    """The term of an entropy, elementwise: -x * log(x), 0 at 0, -inf for negative x."""
    (x,) = of_reals("entr", x)
    return where(x < 0, jnp.full_like(x, -np.inf), -_xlogx(x))


def rel_entr(p, q):
    """p log(p / q), the term of a relative entropy; inf outside of p >= 0, q >= 0."""
    p, q = jnp.broadcast_arrays(*of_reals("rel_entr", p, q))
    both = (p > 0) & (q > 0)
    safe_p, safe_q = where(both, p, 1.0), where(both, q, 1.0)
    inside = _xlogx(safe_p) - _xlogy(safe_p, safe_q)
    return strong_array(where(both, inside, where((p == 0) & (q >= 0), 0.0, np.inf)))


def kl_div(p, q):
    """The term of a Kullback-Leibler divergence, elementwise: p * log(p / q) - p + q."""
    p, q = of_reals("kl_div", p, q)
    return rel_entr(p, q) - p + q


def expit(x):
    """The logistic function, elementwise: 1 / (1 + exp(-x)); see `nn.sigmoid`."""
    (x,) = promote_args_inexact("expit", x)
    return lax.logistic(x)


@custom_jvp
def _logit(x):
    return lax.log(x / (1 - x))


@_logit.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return _logit(x), dx / (x * (1 - x))


def logit(x):
    """The logarithm of odds, elementwise: log(x / (1 - x)), the inverse of `expit`."""
    (x,) = promote_args_inexact("logit", x)
    return strong_array(_logit(x))


def boxcox(x, lmbda):
    """Box and Cox's transform, elementwise: (x**lmbda - 1) / lmbda, or log(x) where lmbda is 0."""
    x, lmbda = promote_args_inexact("boxcox", x, lmbda)
    power = where(lmbda == 0, 1.0, lmbda)
    return where(lmbda == 0, lax.log(x), jnp.expm1(power * lax.log(x)) / power)


def boxcox1p(x, lmbda):
    """Box and Cox's transform of 1 + x, elementwise, accurate also for small x."""
    x, lmbda = promote_args_inexact("boxcox1p", x, lmbda)
    power = where(lmbda == 0, 1.0, lmbda)
    return where(lmbda == 0, lax.log1p(x), jnp.expm1(power * lax.log1p(x)) / power)


# -- Bessel functions ------------------------------------------------------------------------------

def i0e(x):
    """The modified Bessel function of order 0 times exp(-|x|), elementwise: without overflow."""
    (x,) = promote_args_inexact("i0e", x)
    return lax.bessel_i0e(x)


def i0(x):
    """The modified Bessel function of the first kind of order 0, elementwise."""
    (x,) = promote_args_inexact("i0", x)
    return lax.exp(lax.abs(x)) * lax.bessel_i0e(x)


def i1e(x):
    """The modified Bessel function of order 1 times exp(-|x|), elementwise: without overflow."""
    (x,) = promote_args_inexact("i1e", x)
    return lax.bessel_i1e(x)


def i1(x):
    """The modified Bessel function of the first kind of order 1, elementwise."""
    (x,) = promote_args_inexact("i1", x)
    return lax.exp(lax.abs(x)) * lax.bessel_i1e(x)


def sph_harm_y(n, m, theta, phi, diff_n=None, n_max=None):
    """Spherical harmonics of degree n and order m at colatitudes theta and longitudes phi.

    n, m: arrays of integers; where |m| > n the result is 0. n_max: the greatest n, which is known
    where n is; greater ones count as n_max. Raises NotImplementedError for diff_n.

    >>> from shardtrace.scipy.special import sph_harm_y
    >>> sph_harm_y(jnp.array([1]), jnp.array([0]), jnp.array([0.0]), jnp.array([0.5])).round(3)
    Array([0.489+0.j], dtype=complex64)
    """
    if diff_n is not None:
        raise NotImplementedError(
            "The 'diff_n' argument to jax.scipy.special.sph_harm_y is not supported.")
    most = operator.index(np.max(np.asarray(n)) if n_max is None else n_max)
    theta, phi = promote_args_inexact("sph_harm_y", theta, phi)
    n, m, theta, phi = jnp.broadcast_arrays(jnp.atleast_1d(n), m, theta, phi)
    n, order = jnp.minimum(n, most), jnp.abs(m).astype(n.dtype)
    x, s = jnp.cos(theta), jnp.abs(jnp.sin(theta))
    wide = order.astype(x.dtype)

    def step(k, both):
        """From degrees k - 2 and k - 1 to k: along the diagonal up to k = order, then the rule of
        three terms, for functions that are normalised already."""
        before, last = both
        k = k.astype(x.dtype)
        on_diagonal = -jnp.sqrt((2 * k + 1) / (2 * k)) * s * last
        below = jnp.where(k > wide, k * k - wide * wide, 1.0)
        scale = jnp.sqrt((4 * k * k - 1) / below)
        less = jnp.maximum(((k - 1) ** 2 - wide * wide) / (4 * (k - 1) ** 2 - 1), 0.0)
        along = scale * (x * last - jnp.sqrt(less) * before)
        new = jnp.where(k <= wide, on_diagonal, along)
        going = k <= n.astype(x.dtype)
        return (jnp.where(going, jnp.where(k <= wide, 0.0, last), before),
                jnp.where(going, new, last))

    start = jnp.full_like(x, math.sqrt(1 / (4 * math.pi)))
    both: Any = lax.fori_loop(1, most + 1, step, (jnp.zeros_like(x), start))
    turn = lax.complex(jnp.cos(wide * phi), jnp.sin(wide * phi))
    found = jnp.where(order > n, 0.0, both[1]) * turn
    sign: Any = jnp.where(order % 2 == 0, 1.0, -1.0)
    return jnp.where(m < 0, sign.astype(x.dtype) * jnp.conj(found), found)
