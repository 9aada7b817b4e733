"""Special functions of several operands: gamma, beta and zeta families."""
from __future__ import annotations

import numpy as np

from ....ir.dtypes import issubdtype
from ....ir.ops.elementwise.special import (
    igamma_grad_a_p,
    igamma_p,
    igammac_p,
    polygamma_p,
    regularized_incomplete_beta_p,
    zeta_p,
)
from ....ir.ops.random.gamma import random_gamma_grad_p
from ...operands.dtype_promotion import dtype_name, promote_dtypes

__all__ = [
    "betainc", "igamma", "igamma_grad_a", "igammac", "polygamma", "random_gamma_grad", "zeta",
]


def betainc(a, b, x):
    """The regularized incomplete beta function of a, b and x, elementwise."""
    if not issubdtype(dtype_name(b), np.integer) and not issubdtype(dtype_name(b), np.bool_):
        a, b, x = promote_dtypes(a, b, x)
    return regularized_incomplete_beta_p.bind(a, b, x)


def igamma(a, x):
    """The regularized lower incomplete gamma function of a and x, elementwise."""
    return igamma_p.bind(a, x)


def igamma_grad_a(a, x):
    """The derivative of `igamma(a, x)` with respect to a, elementwise."""
    return igamma_grad_a_p.bind(a, x)


def igammac(a, x):
    """The regularized upper incomplete gamma function of a and x, elementwise: 1 - igamma."""
    return igammac_p.bind(a, x)


def polygamma(m, x):
    """The m-th derivative of the digamma function at x, elementwise."""
    return polygamma_p.bind(m, x)


def zeta(x, q):
    """The Hurwitz zeta function of x and q, elementwise: the sum of (q + k) ** -x."""
    return zeta_p.bind(x, q)


def random_gamma_grad(*args):
    """Derivative of samples x of the gamma distribution with respect to its parameter a: (a, x)."""
    a, x = args
    return random_gamma_grad_p.bind(a, x)
