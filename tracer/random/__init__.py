"""Random numbers that depend on a key alone: `jax.random` (0.10.2), the same numbers bit for bit.

keys.py makes and splits keys; drawing.py is what all samplers share; uniform.py draws straight from
bits, continuous.py, gamma.py, discrete.py, counts.py and matrices.py build on it.
"""
from __future__ import annotations

from .continuous import (
    cauchy,
    double_sided_maxwell,
    exponential,
    gumbel,
    laplace,
    logistic,
    lognormal,
    maxwell,
    normal,
    pareto,
    rayleigh,
    triangular,
    truncated_normal,
    wald,
    weibull_min,
)
from .counts import binomial, multinomial, poisson
from .discrete import categorical, choice, geometric, permutation
from .gamma import (
    ball,
    beta,
    chisquare,
    dirichlet,
    f,
    gamma,
    generalized_normal,
    loggamma,
    t,
)
from .keys import (
    PRNGKey,
    clone,
    fold_in,
    key,
    key_data,
    key_dtype,
    key_impl,
    split,
    wrap_key_data,
)
from .matrices import multivariate_normal, orthogonal
from .uniform import bernoulli, bits, rademacher, randint, uniform

__all__ = [
    "PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy",
    "chisquare", "choice", "clone", "dirichlet", "double_sided_maxwell", "exponential", "f",
    "fold_in", "gamma", "generalized_normal", "geometric", "gumbel", "key", "key_data", "key_dtype",
    "key_impl", "laplace", "loggamma", "logistic", "lognormal", "maxwell", "multinomial",
    "multivariate_normal", "normal", "orthogonal", "pareto", "permutation", "poisson", "rademacher",
    "randint", "rayleigh", "split", "t", "triangular", "truncated_normal", "uniform", "wald",
    "weibull_min", "wrap_key_data",
]
