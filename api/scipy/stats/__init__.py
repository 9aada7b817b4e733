"""Probability distributions and statistics, as in `jax.scipy.stats`.

A distribution is a class; `import shardtrace.scipy.stats.norm` finds it too.
"""
import sys as _sys

from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.scipy.stats.discrete_distributions import (
    bernoulli,
    betabinom,
    binom,
    geom,
    multinomial,
    nbinom,
    poisson,
)
from shardtrace.tracer.scipy.stats.distributions import (
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
from shardtrace.tracer.scipy.stats.kernel_density import gaussian_kde
from shardtrace.tracer.scipy.stats.multivariate_distributions import dirichlet, multivariate_normal
from shardtrace.tracer.scipy.stats.ranks import mode, rankdata, sem
from shardtrace.tracer.scipy.stats.shaped_distributions import (
    gennorm,
    gumbel_l,
    gumbel_r,
    pareto,
    truncnorm,
    vonmises,
    wrapcauchy,
)

__all__ = [
    "bernoulli",
    "beta",
    "betabinom",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "expon",
    "gamma",
    "gaussian_kde",
    "gennorm",
    "geom",
    "gumbel_l",
    "gumbel_r",
    "laplace",
    "logistic",
    "mode",
    "multinomial",
    "multivariate_normal",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "rankdata",
    "sem",
    "t",
    "truncnorm",
    "uniform",
    "vonmises",
    "wrapcauchy",
]
_bound_names(globals())
_sys.modules.update({f"{__name__}.{_name}": globals()[_name] for _name in __all__
                     if isinstance(globals()[_name], type)})
