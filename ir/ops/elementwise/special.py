"""Special functions: error functions, gamma and beta functions and their kin, Bessel functions.

Evaluated by `scipy.special`, which is loaded when the first of them runs. Names and conventions are
those of `jax.lax`; where JAX has no derivative for an argument, asking for it raises JAX's error.
"""
from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from ...diagnostics.diagnostic import fail
from ...dtypes import finfo
from ...facts import MAY_BE_NAN, TRANSCENDENTAL
from ...kernels.elementwise import float32_forms
from ...kernels.elementwise.float32_forms import in_float32
from ...kernels.elementwise.float32_functions import erf_inv as erf_inv_single
from ...op import Sample
from ...support.lazy import lazy_import
from ..derivatives import (
    abs_,
    add,
    const,
    div,
    exp,
    full_like,
    gt,
    log,
    log1p,
    mul,
    neg,
    scalar_like,
    select_n,
    sign,
    square,
    strong,
    sub,
)
from .declaration import FLOAT, nary, sampled, unary, values

scipy_special = lazy_import("scipy.special")


def _gaussian(x: Any, scale: float) -> Any:
    return mul(const(scale, x), exp(neg(square(x))))


# -- error functions ------------------------------------------------------------------------------

erf_p = unary(
    "erf", "The error function.", FLOAT,
    jvp=(lambda g, out, x: mul(g, _gaussian(x, 2 / math.sqrt(math.pi))),),
    function=in_float32(float32_forms.erf, lambda x: scipy_special.erf(x)),
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=sampled(1, -2, 2))
erfc_p = unary(
    "erfc", "1 - erf(x), accurate for large x.", FLOAT,
    jvp=(lambda g, out, x: mul(g, _gaussian(x, -2 / math.sqrt(math.pi))),),
    function=in_float32(float32_forms.erfc, lambda x: scipy_special.erfc(x)),
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=sampled(1, -2, 2))


def _erf_inv(x: np.ndarray) -> np.ndarray:
    # In float32 random normal numbers come from it, which are to be those of JAX.
    return erf_inv_single(x) if x.dtype == np.float32 else scipy_special.erfinv(x)


erf_inv_p = unary(
    "erf_inv", "The inverse of the error function.", FLOAT,
    jvp=(lambda g, out, x: mul(g, mul(const(math.sqrt(math.pi) / 2, x), exp(square(out)))),),
    function=_erf_inv,
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=sampled(1, -0.95, 0.95))


# -- gamma functions ------------------------------------------------------------------------------

def _digamma(x: np.ndarray) -> np.ndarray:
    # Poles, where scipy has one-sided limits.
    pole = np.logical_or(np.equal(x, 0), np.equal(x, -np.inf))
    return np.where(pole, np.asarray(np.nan, x.dtype), scipy_special.psi(x))


def _lgamma(x: np.ndarray) -> np.ndarray:
    return np.where(np.equal(x, -np.inf), np.asarray(np.inf, x.dtype), scipy_special.gammaln(x))


def _zeta(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """At a pole infinite from both sides, or not a number, as in XLA."""
    pole = np.less_equal(q, 0) & np.equal(q, np.floor(q)) & np.not_equal(x, 1)
    there = np.where(np.equal(np.remainder(x, 2), 0), np.inf, np.nan)
    found = scipy_special.zeta(x, q)
    return np.where(pole, there, found).astype(found.dtype)


def _no_derivative(message: str) -> Any:
    def partial(*args: Any) -> NoReturn:
        fail(ValueError, message, code="not-differentiable",
             help="cut the derivative with `jax.lax.stop_gradient`")
    return partial


def _polygamma(m: np.ndarray, x: np.ndarray) -> np.ndarray:
    m, wide = np.asarray(m, np.float64), np.asarray(x, np.float64)
    m = np.where((m >= 0) & np.equal(m, np.floor(m)), m, np.nan)
    sign_of_order = np.where(np.remainder(m, 2) == 0, -1.0, 1.0)
    general = sign_of_order * scipy_special.gamma(m + 1) * _zeta(m + 1, wide)
    return np.where(m == 0, _digamma(wide), general).astype(x.dtype)


lgamma_p = unary(
    "lgamma", "The logarithm of |gamma(x)|.", FLOAT,
    jvp=(lambda g, out, x: mul(g, digamma_p.bind(x)),),
    function=_lgamma,
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=sampled(1, 0.2, 5))
digamma_p = unary(
    "digamma", "The derivative of lgamma.", FLOAT,
    jvp=(lambda g, out, x: mul(g, polygamma_p.bind(const(1, x), x)),),
    function=_digamma,
    facts=(TRANSCENDENTAL, MAY_BE_NAN),
    samples=sampled(1, 0.2, 5))
polygamma_p = nary(
    "polygamma", "The m-th derivative of digamma at x.", (FLOAT, FLOAT),
    jvp=(_no_derivative("polygamma gradient with respect to m is not supported"),
         lambda g, out, m, x: mul(strong(g), polygamma_p.bind(add(m, const(1, m)), x))),
    function=_polygamma,
    samples=lambda: [Sample((np.arange(24, dtype=np.float32).reshape(4, 6) % 4,
                             values((4, 6), np.float32, 0.3, 4)))])

_HEAD = 9                                                                    # terms summed singly
_TAIL = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
         1 / 74724249600)                                                    # B_2j / (2j)!


def _zeta_partial_x(g: Any, out: Any, x: Any, q: Any) -> Any:
    """The derivative by x: of the first terms, and of the Euler-Maclaurin formula for the others,
    from a = q + 9 on:
    a^-x (a / (x - 1) + 1/2 + sum over j of B_2j / (2j)! x (x + 1) ... (x + 2j - 2) / a^(2j - 1)).
    """
    def power(v: Any) -> tuple[Any, Any]:
        logarithm = log(v)
        return exp(neg(mul(x, logarithm))), logarithm

    total = full_like(x, 0)
    for k in range(_HEAD):
        here, logarithm = power(add(q, const(k, q)))
        total = sub(total, mul(here, logarithm))
    a = add(q, const(_HEAD, q))
    here, logarithm = power(a)
    inverse, pole = div(full_like(a, 1), a), sub(x, const(1, x))
    value = add(div(a, pole), const(0.5, x))
    slope = neg(div(a, square(pole)))
    product, slopes = mul(x, inverse), inverse   # x ... (x + 2j - 2) / a^(2j - 1), its slope
    for j, c in enumerate(_TAIL):
        for i in (2 * j - 1, 2 * j) if j else ():
            factor = mul(add(x, const(i, x)), inverse)
            product, slopes = mul(product, factor), add(mul(slopes, factor), mul(product, inverse))
        value, slope = add(value, mul(const(c, x), product)), add(slope, mul(const(c, x), slopes))
    return mul(g, add(total, mul(here, sub(slope, mul(logarithm, value)))))


zeta_p = nary(
    "zeta", "The Hurwitz zeta function: the sum of (k + q) ** -x over k >= 0.", (FLOAT, FLOAT),
    jvp=(_zeta_partial_x,
         lambda g, out, x, q: mul(g, neg(mul(x, zeta_p.bind(add(x, const(1, x)), q))))),
    function=_zeta,
    samples=sampled(2, 1.2, 4))


def _igamma_partial_x(a: Any, x: Any) -> Any:
    return exp(sub(sub(mul(sub(a, const(1, a)), log(x)), x), lgamma_p.bind(a)))


igamma_p = nary(
    "igamma", "The regularized lower incomplete gamma function P(a, x).", (FLOAT, FLOAT),
    jvp=(lambda g, out, a, x: mul(g, igamma_grad_a_p.bind(a, x)),
         lambda g, out, a, x: mul(g, _igamma_partial_x(a, x))),
    function=lambda a, x: scipy_special.gammainc(a, x),
    facts=(MAY_BE_NAN,),
    samples=sampled(2, 0.3, 4))
igammac_p = nary(
    "igammac", "The regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x).",
    (FLOAT, FLOAT),
    jvp=(lambda g, out, a, x: mul(g, neg(igamma_grad_a_p.bind(a, x))),
         lambda g, out, a, x: mul(g, neg(_igamma_partial_x(a, x)))),
    function=lambda a, x: scipy_special.gammaincc(a, x),
    facts=(MAY_BE_NAN,),
    samples=sampled(2, 0.3, 4))


def _igamma_grad_a(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The derivative of igamma by a: by a power series below a + 1, by a continued fraction above.
    """
    dtype = x.dtype
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    out = np.where((a > 0) & (x >= 0), 0.0, np.nan)     # constant in a at x = 0 and x = inf
    by_series = inside & (x <= a + 1)
    by_fraction = inside & ~by_series
    out[by_series] = _grad_a_series(a[by_series], x[by_series])
    out[by_fraction] = _grad_a_fraction(a[by_fraction], x[by_fraction])
    return out.astype(dtype)


_TERMS = 5_000     # about the square root of a is enough, near x = a


def _grad_a_series(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """d/da of P(a, x) = sum over n of x^(a + n) e^-x / gamma(a + n + 1)."""
    term = np.exp(a * np.log(x) - x - scipy_special.gammaln(a + 1))
    slope = np.log(x) - scipy_special.psi(a + 1)
    total = term * slope
    for n in range(1, _TERMS):
        term = term * x / (a + n)
        slope = slope - 1 / (a + n)
        total = total + term * slope
        if np.all(term * (1 + np.abs(slope)) <= 1e-17 * np.abs(total) + 1e-300):
            break
    return total


def _grad_a_fraction(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """-d/da of Q(a, x) = x^a e^-x / gamma(a) * f, f being Legendre's continued fraction.

    Convergents p / q of f and their derivatives come from the three-term recurrence.
    """
    ones, zeros = np.ones_like(a), np.zeros_like(a)
    p, q, dp, dq = ones, x + 1 - a, zeros, -ones
    p_old, q_old, dp_old, dq_old = zeros, ones, zeros, zeros
    f = df = zeros
    for n in range(1, _TERMS):
        factor, shift = n * (a - n), x + 2 * n + 1 - a
        p, p_old, dp, dp_old = (shift * p + factor * p_old, p,
                                shift * dp - p + factor * dp_old + n * p_old, dp)
        q, q_old, dq, dq_old = (shift * q + factor * q_old, q,
                                shift * dq - q + factor * dq_old + n * q_old, dq)
        size = np.abs(q)
        p, q, dp, dq, p_old, q_old, dp_old, dq_old = (
            v / size for v in (p, q, dp, dq, p_old, q_old, dp_old, dq_old))
        f_new, df_new = p / q, dp / q - p * dq / q**2
        done = np.all((np.abs(f_new - f) <= 1e-15 * np.abs(f_new))
                      & (np.abs(df_new - df) <= 1e-14 * np.abs(df_new) + 1e-300))
        f, df = f_new, df_new
        if done:
            break
    scale = np.exp(a * np.log(x) - x - scipy_special.gammaln(a))
    return -scale * (f * (np.log(x) - scipy_special.psi(a)) + df)


igamma_grad_a_p = nary(
    "igamma_grad_a", "The derivative of igamma(a, x) by a.", (FLOAT, FLOAT),
    function=_igamma_grad_a,
    facts=(MAY_BE_NAN,),
    samples=sampled(2, 0.3, 4))


# -- the beta function ----------------------------------------------------------------------------

def _betainc_partial_x(g: Any, out: Any, a: Any, b: Any, x: Any) -> Any:
    log_beta = sub(add(lgamma_p.bind(a), lgamma_p.bind(b)), lgamma_p.bind(add(a, b)))
    density = add(mul(sub(b, const(1, b)), log1p(neg(x))), mul(sub(a, const(1, a)), log(x)))
    return mul(g, exp(sub(density, log_beta)))


_NO_BETA = _no_derivative("Betainc gradient with respect to a and b not supported.")

regularized_incomplete_beta_p = nary(
    "regularized_incomplete_beta", "The regularized incomplete beta function I_x(a, b).",
    (FLOAT, FLOAT, FLOAT),
    jvp=(_NO_BETA, _NO_BETA, _betainc_partial_x),
    function=lambda a, b, x: scipy_special.betainc(a, b, x),
    facts=(MAY_BE_NAN,),
    jax="lax.betainc",
    samples=sampled(3, 0.1, 0.9))


# -- Bessel functions -----------------------------------------------------------------------------

def _i1e_partial(g: Any, out: Any, x: Any) -> Any:
    # out / x is 0 / 0 at x = 0, where the derivative is 1/2.
    epsilon = finfo(x.dtype).eps
    large = gt(abs_(x), const(epsilon, x))
    safe = select_n(large, full_like(x, epsilon), x)
    slope = sub(bessel_i0e_p.bind(safe), mul(out, add(sign(safe), div(scalar_like(1, x), safe))))
    return mul(g, select_n(large, full_like(x, 0.5), slope))


bessel_i0e_p = unary(
    "bessel_i0e", "exp(-|x|) times the modified Bessel function of order 0.", FLOAT,
    jvp=(lambda g, out, x: mul(g, sub(bessel_i1e_p.bind(x), mul(sign(x), out))),),
    function=lambda x: scipy_special.i0e(x),
    facts=(MAY_BE_NAN,),
    samples=sampled(1, -4, 4))
bessel_i1e_p = unary(
    "bessel_i1e", "exp(-|x|) times the modified Bessel function of order 1.", FLOAT,
    jvp=(_i1e_partial,),
    function=lambda x: scipy_special.i1e(x),
    facts=(MAY_BE_NAN,),
    samples=sampled(1, -4, 4))
