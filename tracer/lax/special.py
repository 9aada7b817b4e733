"""Special functions of several operands: gamma, beta and zeta families."""
from __future__ import annotations

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.ops.random_gamma import random_gamma_grad_p
from ...ir.ops.special import (
    igamma_grad_a_p,
    igamma_p,
    igammac_p,
    polygamma_p,
    regularized_incomplete_beta_p,
    zeta_p,
)
from ..operands.dtype_promotion import dtype_name, promote_dtypes


def betainc(a, b, x):
    """Regularized incomplete beta integral."""
    if not issubdtype(dtype_name(b), np.integer) and not issubdtype(dtype_name(b), np.bool_):
        a, b, x = promote_dtypes(a, b, x)
    return regularized_incomplete_beta_p.bind(a, b, x)


def igamma(a, x):
    """Regularized lower incomplete gamma function."""
    return igamma_p.bind(a, x)


def igamma_grad_a(a, x):
    """Derivative of `igamma` with respect to a."""
    return igamma_grad_a_p.bind(a, x)


def igammac(a, x):
    """Regularized upper incomplete gamma function."""
    return igammac_p.bind(a, x)


def polygamma(m, x):
    """Polygamma function of order m."""
    return polygamma_p.bind(m, x)


def zeta(x, q):
    """Hurwitz zeta function."""
    return zeta_p.bind(x, q)


def random_gamma_grad(*args):
    """Derivative of samples x of the gamma distribution with respect to its parameter a: (a, x)."""
    a, x = args
    return random_gamma_grad_p.bind(a, x)
