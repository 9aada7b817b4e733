"""Probability distributions: those of `jax.scipy.stats` that are here."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.scipy.discrete_distributions import bernoulli, binom, poisson
from shardtrace.tracer.scipy.distributions import (
    beta,
    cauchy,
    chi2,
    expon,
    gamma,
    laplace,
    logistic,
    norm,
    t,
    uniform,
)
from shardtrace.tracer.scipy.kernel_density import gaussian_kde
from shardtrace.tracer.scipy.multivariate_distributions import dirichlet, multivariate_normal

__all__ = [
    "bernoulli",
    "beta",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "expon",
    "gamma",
    "gaussian_kde",
    "laplace",
    "logistic",
    "multivariate_normal",
    "norm",
    "poisson",
    "t",
    "uniform",
]
_bound_names(globals())
