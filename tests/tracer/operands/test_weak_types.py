"""Results and gradients are weakly typed where JAX's are: every function, recorded from JAX.

Again: ORACLE -m tests.record.weak_types.
"""
from __future__ import annotations

import pytest

import shardtrace.numpy as jnp
from shardtrace.tracer.operands.dtype_promotion import convert

from . import weak_types


@pytest.fixture(scope="module")
def library():
    return weak_types.Library.of(
        "shardtrace", lambda x: convert(jnp.asarray(x), jnp.asarray(x).dtype, True))


def _differing(library, wanted, traced=True):
    """The functions whose dtypes, and those of which only the weakness, are not as recorded."""
    dtypes, weakness = [], set()
    for expression, use, want in wanted:
        found = weak_types.answer(library, expression, use, traced)
        if found.replace("~", "") != want.replace("~", ""):
            dtypes.append((expression, use, want, found))
        elif found != want:
            weakness.add(expression.split("(")[0])
    return dtypes, weakness


def _uses(derived, every=1):
    rows = list(weak_types.read().items())[::every]
    return [(expression, use, want) for expression, uses in rows for use, want in uses.items()
            if use.endswith("d") == derived]


# Of these the weakness differs; docs/differences.md says so.
RESULTS = set("""
    jax.nn.log_sigmoid jax.nn.mish jax.nn.softplus jax.scipy.stats.bernoulli.ppf jnp.argpartition
    lax.linalg.qdwh lax.random_gamma_grad
""".split())
GRADIENTS = set("""
    jax.random.multivariate_normal jax.scipy.linalg.block_diag jax.scipy.linalg.cho_factor
    jax.scipy.linalg.cholesky jax.scipy.linalg.solve jax.scipy.linalg.svd
    jax.scipy.linalg.toeplitz jax.scipy.special.log_ndtr jax.scipy.special.logit
    jax.scipy.special.ndtr jax.scipy.stats.bernoulli.logpmf jax.scipy.stats.bernoulli.pmf
    jax.scipy.stats.beta.cdf jax.scipy.stats.beta.logcdf jax.scipy.stats.beta.logsf
    jax.scipy.stats.beta.sf jax.scipy.stats.cauchy.logpdf jax.scipy.stats.cauchy.pdf
    jax.scipy.stats.chi2.cdf jax.scipy.stats.chi2.logcdf jax.scipy.stats.chi2.logpdf
    jax.scipy.stats.chi2.logsf jax.scipy.stats.chi2.pdf jax.scipy.stats.chi2.sf
    jax.scipy.stats.dirichlet.logpdf jax.scipy.stats.dirichlet.pdf jax.scipy.stats.gamma.cdf
    jax.scipy.stats.gamma.logcdf jax.scipy.stats.laplace.cdf jax.scipy.stats.laplace.logpdf
    jax.scipy.stats.laplace.pdf jax.scipy.stats.logistic.isf jax.scipy.stats.logistic.logpdf
    jax.scipy.stats.logistic.pdf jax.scipy.stats.logistic.ppf
    jax.scipy.stats.multivariate_normal.logpdf jax.scipy.stats.multivariate_normal.pdf
    jax.scipy.stats.norm.cdf jax.scipy.stats.norm.isf jax.scipy.stats.norm.logcdf
    jax.scipy.stats.norm.logpdf jax.scipy.stats.norm.logsf jax.scipy.stats.norm.pdf
    jax.scipy.stats.norm.sf jax.scipy.stats.t.logpdf jax.scipy.stats.t.pdf jnp.diagflat
    jnp.histogram2d jnp.linalg.cholesky jnp.linalg.lstsq jnp.linalg.qr jnp.linalg.slogdet
    jnp.linalg.solve jnp.linalg.svd jnp.linalg.tensorsolve jnp.logaddexp2
    jnp.sinc jnp.sort_complex lax.linalg.cholesky lax.linalg.qr
    lax.linalg.svd
""".split())


def test_results_are_weak_where_they_are_in_jax(library):
    assert _differing(library, _uses(derived=False)) == ([], RESULTS)


def test_gradients_are_weak_where_they_are_in_jax(library):
    assert _differing(library, _uses(derived=True)) == ([], GRADIENTS)


def test_values_computed_at_once_are_weak_as_those_of_jitted_functions(library):
    dtypes, weakness = _differing(library, _uses(derived=False, every=12), traced=False)
    assert not dtypes and weakness <= RESULTS
