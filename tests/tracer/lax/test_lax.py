"""lax functions that are more than an op: windows, convolutions, ragged products, factors."""
from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.signal

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

from ...rows import rows

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def near(got, want, tolerance=1e-4):
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


# -- reductions ------------------------------------------------------------------------------------

@pytest.mark.parametrize(("function", "init", "op"), [
    (lax.add, 0.0, "reduce_sum"), (lax.mul, 1.0, "reduce_prod"), (lax.max, -np.inf, "reduce_max"),
    (lax.min, np.inf, "reduce_min"), (lambda a, b: a + b, 0.0, "reduce"), (lax.add, 1.0, "reduce"),
    (lambda a, b: jnp.hypot(a, b), 0.0, "reduce"),
])
def test_reductions_that_an_op_does_become_that_op(function, init, op):
    x = normal(3, 4)
    ops = [e.op.name for e in st.make_jaxpr(
        lambda x: lax.reduce(x, np.float32(init), function, (1,)))(x).jaxpr.eqns]
    assert ops[-1] == op
    want = np.full(3, init, np.float32)
    for column in x.T:
        want = np.asarray(function(jnp.asarray(want), jnp.asarray(column)))
    near(lax.reduce(x, np.float32(init), function, (1,)), want)


def test_reduction_of_several_operands_at_once():
    x = normal(3, 5)
    places = np.broadcast_to(np.arange(5, dtype=np.int32), x.shape)

    def later(a, b):
        take = (b[0] > a[0])
        return jnp.where(take, b[0], a[0]), jnp.where(take, b[1], a[1])

    values, found = lax.reduce((x, places), (np.float32(-np.inf), np.int32(-1)), later, (1,))
    near(values, x.max(1))
    np.testing.assert_array_equal(found, x.argmax(1))


@pytest.mark.parametrize("padding", ["VALID", "SAME", [(1, 0), (0, 2)]])
@pytest.mark.parametrize(("function", "init", "combine"), [
    (lax.add, 0.0, np.sum), (lax.max, -np.inf, np.max), (lax.min, np.inf, np.min),
    (lambda a, b: a * b, 1.0, np.prod)])
def test_reduce_window_combines_each_padded_window(function, init, combine, padding):
    x = normal(5, 6)
    got = lax.reduce_window(x, np.float32(init), function, (2, 3), (2, 1), padding)
    pads = padding if isinstance(padding, list) else lax.padtype_to_pads(
        x.shape, (2, 3), (2, 1), padding)
    wide = np.pad(x, pads, constant_values=init)
    want = [[combine(wide[i:i + 2, j:j + 3]) for j in range(wide.shape[1] - 2)]
            for i in range(0, wide.shape[0] - 1, 2)]
    near(got, want)


@pytest.mark.parametrize(("function", "init", "x", "pushed", "pulled"), [
    # What JAX 0.10.2 gives for windows of two, padded by one on both sides.
    (lax.max, -np.inf, [1, 2, np.nan], [1, 2, 3, 3], [1, 2, 3]),
    (lax.max, -np.inf, [np.nan, 1], [1, 2, 2], [1, 5]),
    (lax.min, np.inf, [1, np.nan, 2, np.nan, np.nan], [1, 2, 3, 4, 5, 5], [1, 2, 3, 4, 5]),
    (lax.max, -np.inf, [-np.inf, -np.inf, np.inf, np.inf], [0, 0, 3, 3, 4], [2, 0, 7, 5]),
    (lax.min, np.inf, [3, 1, 1], [1, 2, 2, 3], [1, 5, 4])])
def test_slopes_of_window_extremes_of_nan_and_infinities(function, init, x, pushed, pulled):
    x = np.array(x, np.float32)

    def pooled(v):
        return lax.reduce_window(v, init, function, (2,), (1,), [(1, 1)])

    _, tangents = st.jvp(pooled, (x,), (np.arange(1, x.size + 1, dtype=np.float32),))
    np.testing.assert_array_equal(tangents, pushed)
    _, back = st.vjp(pooled, x)
    np.testing.assert_array_equal(back(np.arange(1, x.size + 2, dtype=np.float32))[0], pulled)


# -- convolutions ----------------------------------------------------------------------------------

def test_convolutions_equal_correlations_of_scipy():
    x, w = normal(2, 3, 6, 5), normal(4, 3, 3, 2)
    want = np.stack([[sum(scipy.signal.correlate(x[b, c], w[o, c], "valid") for c in range(3))
                      for o in range(4)] for b in range(2)])
    near(lax.conv(x, w, (1, 1), "VALID"), want)
    near(lax.conv(x, w, (2, 2), "VALID"), want[:, :, ::2, ::2])
    last = lax.conv_general_dilated(
        x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), (1, 1), "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"))
    near(last, want.transpose(0, 2, 3, 1))


def test_groups_of_features_are_convolved_apart():
    x, w = normal(2, 4, 6), normal(6, 2, 3)
    got = lax.conv_general_dilated(x, w, (1,), "VALID", feature_group_count=2)
    halves = [lax.conv(a, b, (1,), "VALID") for a, b in (
        (x[:, :2], w[:3]), (x[:, 2:], w[3:]))]
    near(got, np.concatenate(halves, axis=1))


def test_transposed_convolution_is_the_gradient_of_a_convolution():
    x, w = normal(1, 7, 2), normal(3, 2, 5)
    y, back = st.vjp(lambda x: lax.conv_general_dilated(
        x, w, (2,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")), x)
    near(lax.conv_transpose(np.asarray(y), w, (2,), "VALID", transpose_kernel=True), back(y)[0])


def test_local_convolution_has_a_kernel_for_each_place():
    x, w = normal(2, 3, 4, 4), normal(5, 12, 3, 3)
    got = lax.conv_general_dilated_local(x, w, (1, 1), "VALID", (2, 2))
    want = np.zeros((2, 5, 3, 3), np.float32)
    for i in range(3):
        for j in range(3):
            patch = x[:, :, i:i + 2, j:j + 2].reshape(2, 12)
            want[:, :, i, j] = patch @ w[:, :, i, j].T
    near(got, want)


# -- products --------------------------------------------------------------------------------------

def test_ragged_product_gives_each_group_its_matrix():
    x, w, sizes = normal(6, 3), normal(3, 3, 4), np.array([1, 3, 0], np.int32)
    want = np.concatenate([x[:1] @ w[0], x[1:4] @ w[1], np.zeros((2, 4))])
    near(lax.ragged_dot(x, w, sizes), want)
    near(st.jit(lax.ragged_dot)(x, w, sizes), want)


@pytest.mark.parametrize("precision", [
    None, "highest", lax.Precision.HIGH, ("default", "high"), "BF16_BF16_F32",
    lax.DotAlgorithmPreset.F32_F32_F32,
    lax.DotAlgorithm(jnp.float32, jnp.float32, jnp.float32)])
def test_every_form_of_precision_is_accepted(precision):
    x = normal(3, 3)
    near(jnp.dot(x, x, precision=precision), x @ x)


@pytest.mark.parametrize("precision", ["exact", ("high", lax.Precision.HIGH), 3])
def test_other_precisions_are_refused(precision):
    with pytest.raises(ValueError, match="Precision argument must be one of:"):
        jnp.dot(np.ones((2, 2)), np.ones((2, 2)), precision=precision)


# -- gather and scatter ----------------------------------------------------------------------------

def test_scatter_apply_applies_as_often_as_an_element_is_named():
    x = np.arange(4, dtype=np.float32)
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))

    def twice(x, i):
        return lax.scatter_apply(x, i, lambda v: v * 2 + 1, numbers, update_shape=(3,))

    index = np.array([[0], [0], [2]])
    got = twice(x, index)
    np.testing.assert_array_equal(got, [3, 1, 5, 3])
    np.testing.assert_array_equal(st.jit(twice)(x, index), got)


def test_gather_promises_or_fills():
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    rows = np.array([[2], [9]])
    filled = lax.gather(jnp.asarray(x), rows, numbers, (1, 2), mode="fill", fill_value=-1)
    np.testing.assert_array_equal(filled, [[4, 5], [-1, -1]])
    near(lax.gather(jnp.asarray(x), rows, numbers, (1, 2), mode="clip"), x[[2, 2]])


# -- linear algebra --------------------------------------------------------------------------------

A = normal(4, 4)
SYMMETRIC = A @ A.T + 4 * np.eye(4, dtype=np.float32)


def test_decompositions_multiply_to_the_matrix():
    near(lax.linalg.cholesky(SYMMETRIC), np.linalg.cholesky(SYMMETRIC))
    q, r = lax.linalg.qr(A, full_matrices=False)
    near(q @ r, A)
    vectors, values = lax.linalg.eigh(SYMMETRIC)
    near(vectors @ np.diag(values) @ np.asarray(vectors).T, SYMMETRIC)
    both, _, permutation = lax.linalg.lu(A)
    lower, upper = np.tril(both, -1) + np.eye(4), np.triu(both)
    near(lower @ upper, A[permutation])
    near(lax.linalg.svd(A, compute_uv=False), np.linalg.svd(A, compute_uv=False))
    t, z = lax.linalg.schur(A)
    near(z @ t @ np.asarray(z).T, A)


def test_functions_composed_of_decompositions():
    u, h, _, found = lax.linalg.qdwh(A)
    want_u, want_h = scipy.linalg.polar(A)
    near(u, want_u)
    near(h, want_h)
    assert found
    w = normal(4)
    upper = np.linalg.cholesky(SYMMETRIC).T.astype(np.float32)
    near(lax.linalg.cholesky_update(upper, w),
         np.linalg.cholesky(SYMMETRIC + np.outer(w, w)).T)
    near(lax.linalg.symmetric_product(A, SYMMETRIC, alpha=2.0, beta=0.5),
         2 * A @ A.T + 0.5 * SYMMETRIC)
    near(lax.linalg.triangular_solve(upper, A, left_side=True), np.linalg.solve(upper, A))


def test_ormqr_multiplies_by_the_whole_orthogonal_matrix():
    (raw, tau), _ = scipy.linalg.qr(A[:, :2], mode="raw")
    q = scipy.linalg.qr(A[:, :2])[0]
    near(lax.linalg.ormqr(np.array(raw), tau, A), q @ A)
    near(lax.linalg.ormqr(np.array(raw), tau, A, left=False, transpose=True), A @ q.T)


def test_tridiagonal_solve_equals_the_dense_solution():
    n = 5
    dl, d, du, b = normal(n), normal(n) + 4, normal(n), normal(n, 2)
    matrix = np.diag(d) + np.diag(dl[1:], -1) + np.diag(du[:-1], 1)
    near(lax.linalg.tridiagonal_solve(dl, d, du, b), np.linalg.solve(matrix, b))


def test_top_k_gives_the_greatest_and_where_they_are():
    x = normal(3, 8)
    values, places = lax.top_k(x, 3)
    near(values, -np.sort(-x, axis=1)[:, :3])
    np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(places), 1), values)
    near(lax.approx_max_k(x, 3)[0], values)
    near(lax.approx_min_k(x, 2)[0], np.sort(x, axis=1)[:, :2])


def test_results_come_in_lists_where_jaxs_do():
    x = normal(3, 8)
    found = (lax.top_k(x, 3), lax.approx_max_k(x, 3), lax.approx_min_k(x, 3), lax.linalg.lu(A),
             lax.linalg.schur(A), lax.linalg.hessenberg(A), lax.linalg.tridiagonal(SYMMETRIC))
    assert [type(results) for results in found] == [list] * 7


# -- numpy functions that are loops ----------------------------------------------------------------

def test_searches_and_divisors_run_as_loops():
    edges, x = np.sort(normal(9)), normal(3, 4)
    for side in ("left", "right"):
        for method in ("scan", "scan_unrolled", "sort", "compare_all"):
            np.testing.assert_array_equal(
                jnp.searchsorted(edges, x, side=side, method=method),
                np.searchsorted(edges, x, side=side))
    a, b = RNG.integers(-60, 60, (2, 20)).astype(np.int32)
    np.testing.assert_array_equal(jnp.gcd(a, b), np.gcd(a, b))
    np.testing.assert_array_equal(jnp.lcm(a, b), np.lcm(a, b))
    near(jnp.polyval(x[0], x), np.polyval(x[0], x))
    near(jnp.subtract.accumulate(x, axis=1), np.subtract.accumulate(x, axis=1))
    near(jnp.logaddexp.reduce(x, axis=1), np.logaddexp.reduce(x, axis=1))


@rows("method", ["linear", "lower", "higher", "midpoint", "inverted_cdf"])
@rows("axis", [None, 0, 1, (0, 2)])
def test_quantiles_equal_those_of_numpy(method, axis):
    x, q = normal(2, 3, 4), np.array([0, 0.25, 0.9], np.float32)
    near(jnp.quantile(x, q, axis=axis, method=method), np.quantile(x, q, axis=axis, method=method))
    x[0, 1, 2] = np.nan
    near(jnp.nanquantile(x, q, axis=axis, method=method, keepdims=True),
         np.nanquantile(x, q, axis=axis, method=method, keepdims=True))
    near(jnp.nanmedian(x, axis=axis), np.nanmedian(x, axis=axis))


def test_quantiles_by_weight():
    x, w = normal(3, 5), RNG.random(5).astype(np.float32)
    near(jnp.quantile(x, 0.4, axis=1, method="inverted_cdf", weights=w),
         np.quantile(x, 0.4, axis=1, method="inverted_cdf", weights=w))
    with pytest.raises(NotImplementedError, match="linear doesn't support weights"):
        jnp.quantile(x, 0.4, axis=1, weights=w)


def test_nothing_is_split_into_nothing():
    x = np.zeros((0, 2), np.int8)
    assert lax.split(x, ()) == []
    assert st.jit(lambda x: (lax.split(x, ()), x + 1))(x)[0] == []


def test_a_platform_without_a_branch():
    with pytest.raises(NotImplementedError, match="translation rule .* not found for platform cpu"):
        lax.platform_dependent(3.0, tpu=lambda x: x + 2.0)
