"""Users' strict settings are about what users write: functions of ours may promote within."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import image, nn, random
from shardtrace.scipy import fft, linalg, ndimage, signal, special, stats

from ...rows import rows

A = np.random.RandomState(0).randn(4, 4).astype(np.float32)
S = A @ A.T + 4 * np.eye(4, dtype=np.float32)
V, I = np.arange(1.0, 5.0, dtype=np.float32), np.arange(1, 5)       # noqa: E741
LONG = np.tile(A, (1, 80))

COMPOSED = {
    "resize": lambda: image.resize(A, (8, 2), "cubic"),
    "scale_and_translate": lambda: image.scale_and_translate(
        A, (8, 8), (0, 1), jnp.ones(2), jnp.ones(2), "linear"),
    "lu": lambda: linalg.lu(S), "expm": lambda: linalg.expm(S), "polar": lambda: linalg.polar(S),
    "sqrtm": lambda: linalg.sqrtm(S), "solve_sylvester": lambda: linalg.solve_sylvester(S, S, S),
    "eigh_tridiagonal": lambda: linalg.eigh_tridiagonal(V, V[1:], eigvals_only=True),
    "pinv": lambda: jnp.linalg.pinv(S), "cond": lambda: jnp.linalg.cond(S),
    "lstsq": lambda: jnp.linalg.lstsq(S, V),
    "binomial": lambda: random.binomial(random.key(0), 10, 0.5),
    "multinomial": lambda: random.multinomial(random.key(0), 5.0, V / 10),
    "poisson": lambda: random.poisson(random.key(0), 3.0),
    "dirichlet": lambda: random.dirichlet(random.key(0), V),
    "multivariate_normal": lambda: random.multivariate_normal(random.key(0), V, S),
    "dctn": lambda: fft.dctn(A), "idctn": lambda: fft.idctn(A, norm="ortho"),
    "welch": lambda: signal.welch(LONG), "istft": lambda: signal.istft(LONG + 0j),
    "multigammaln": lambda: special.multigammaln(V + 5, 2),
    "map_coordinates": lambda: ndimage.map_coordinates(A, [V / 2, V / 2], 1),
    "stats_multinomial": lambda: stats.multinomial.logpmf(I, 10, V / 10),
    "rankdata": lambda: stats.rankdata(V),
    "gaussian_kde": lambda: stats.gaussian_kde(V)(V),
    "quantile": lambda: jnp.quantile(V.astype(np.float16), 0.5),
    "cov": lambda: jnp.cov(A), "corrcoef": lambda: jnp.corrcoef(A),
    "log_softmax": lambda: nn.log_softmax(A), "standardize": lambda: nn.standardize(A),
    "attention": lambda: nn.dot_product_attention(*[A[None, :, None]] * 3, is_causal=True),
}


@rows("name", COMPOSED)
def test_compositions_compute_the_same_under_strict_settings(name):
    f = COMPOSED[name]
    usual = st.tree.leaves(f())
    with st.numpy_rank_promotion("raise"), st.numpy_dtype_promotion("strict"):
        strict = st.tree.leaves(f())
    for a, b in zip(strict, usual, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("f", [
    lambda: jnp.asarray(A) + jnp.asarray(V), lambda: jnp.add(A, V), lambda: jnp.hypot(A, V),
    lambda: jnp.isclose(A, V), lambda: jnp.logaddexp(A, V)])
def test_users_operands_of_different_ranks_are_refused(f):
    with st.numpy_rank_promotion("raise"), pytest.raises(ValueError):
        f()


@pytest.mark.parametrize("f", [
    lambda: jnp.asarray(V) + jnp.asarray(I), lambda: jnp.minimum(V, I),
    lambda: jnp.where(True, V, I), lambda: jnp.isclose(V, I), lambda: jnp.matmul(V, I),
    lambda: jnp.concatenate([V, I]), lambda: 2.0 ** jnp.asarray(I),
    lambda: jnp.asarray(V).at[0].set(jnp.asarray(I)[0]),
    lambda: jnp.einsum("i,i", V, I), lambda: st.jit(lambda x, y: x * y)(V, I)])
def test_users_operands_of_different_dtypes_are_refused(f):
    with st.numpy_dtype_promotion("strict"), pytest.raises(st.errors.TypePromotionError):
        f()
