"""Matrix decompositions: what they decompose, their derivatives, and typing of stacks."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from shardtrace.ir.diagnostics.errors import ShardingTypeError
from shardtrace.ir.inference.infer import infer
from shardtrace.ir.kernels.matrices.linalg import apply_pivots
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.ops.contractions.fft import FftType
from shardtrace.ir.ops.derivatives import push_forward
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.text.parse import parse_type

from .by_name import evaluating, inferred

MESH = AbstractMesh((2, 2), ("x", "y"), (AxisType.Explicit,) * 2)
EIGH = {"lower": True, "sort_eigenvalues": True, "subset_by_index": None, "algorithm": None}
SVD = {"full_matrices": False, "compute_uv": True, "subset_by_index": None, "algorithm": None}
QR = {"pivoting": False, "full_matrices": False, "use_magma": None}


def matrices(*shape: int, complex_: bool = False, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=shape)
    return a + 1j * rng.normal(size=shape) if complex_ else a


def adjoint(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2).conj()


def run(name: str, *arrays: np.ndarray, **params: Any) -> Any:
    return OPS[name].evaluate(0, *arrays, **params)


both_kinds = pytest.mark.parametrize("complex_", [False, True])
shapes = pytest.mark.parametrize("shape", [(2, 3, 3), (4, 3), (3, 5)])


@both_kinds
@shapes
def test_factors_multiply_to_the_matrix(shape: Any, complex_: bool) -> None:
    a = matrices(*shape, complex_=complex_)
    s, u, vt = run("svd", a, **SVD)
    np.testing.assert_allclose((u * s[..., None, :]) @ vt, a, atol=1e-12)
    q, r = run("qr", a, **QR)
    np.testing.assert_allclose(q @ r, a, atol=1e-12)
    q, r, p = run("qr", a, **{**QR, "pivoting": True, "full_matrices": True})
    np.testing.assert_allclose(q @ r, np.take_along_axis(a, p[..., None, :].astype(int), -1),
                               atol=1e-12)
    lu, pivots, permutation = run("lu", a)
    k = min(shape[-2:])
    low = np.tril(lu, -1)[..., :k] + np.eye(shape[-2], k)
    np.testing.assert_allclose(
        low @ np.triu(lu)[..., :k, :],
        np.take_along_axis(a, permutation[..., :, None].astype(int), -2), atol=1e-12)
    assert pivots.dtype == permutation.dtype == np.int32
    packed, taus = run("geqrf", a)
    if shape[-2] >= shape[-1]:
        np.testing.assert_allclose(run("householder_product", packed, taus) @ np.triu(packed)[
            ..., :k, :], a, atol=1e-12)


@both_kinds
def test_factors_of_hermitian_matrices_multiply_to_the_matrix(complex_: bool) -> None:
    a = matrices(2, 4, 4, complex_=complex_)
    a = a @ adjoint(a) + np.eye(4)
    v, w = run("eigh", a, **EIGH)
    np.testing.assert_allclose(a @ v, v * w[..., None, :], atol=1e-10)
    assert (np.diff(w) > 0).all()
    low = run("cholesky", a)
    np.testing.assert_allclose(low @ adjoint(low), a, atol=1e-10)
    t, z = run("schur", a, compute_schur_vectors=True, sort_eig_vals=False, select_callable=None)
    np.testing.assert_allclose(z @ t @ adjoint(z), a, atol=1e-10)


def test_one_bad_matrix_of_a_stack_is_nan_alone() -> None:
    a = np.stack([np.eye(2), -np.eye(2), 4 * np.eye(2)])
    out = run("cholesky", a)
    np.testing.assert_array_equal(out[[0, 2]], [np.eye(2), 2 * np.eye(2)])
    assert np.isnan(out[1]).all()


# -- derivatives -----------------------------------------------------------------------------------

def check_tangent(name: str, a: np.ndarray, g: np.ndarray, **params: Any) -> None:
    op = OPS[name]
    with evaluating():
        outs, tangents = push_forward(op, [a], [g], params)
    eps = 1e-6
    ahead, behind = (op.evaluate(0, a + e * g, **params) for e in (eps, -eps))
    if not op.multiple_results:
        ahead, behind = [ahead], [behind]
    assert len(outs) == len(tangents)
    for t, p, m in zip(tangents, ahead, behind, strict=True):
        if t is not None:
            np.testing.assert_allclose(t, (p - m) / (2 * eps), rtol=1e-5, atol=1e-6)


@shapes
def test_tangents_of_real_factors_are_limits_of_differences(shape: Any) -> None:
    a, g = matrices(*shape), matrices(*shape, seed=1)
    check_tangent("lu", a, g)
    check_tangent("qr", a, g, **QR)
    check_tangent("svd", a, g, **SVD)
    check_tangent("svd", a, g, **{**SVD, "compute_uv": False})


@both_kinds
def test_tangents_of_hermitian_factors(complex_: bool) -> None:
    a, g = (matrices(2, 3, 3, complex_=complex_, seed=s) for s in (0, 1))
    a, g = a @ adjoint(a) + np.eye(3), g + adjoint(g)
    check_tangent("cholesky", a, g)
    if not complex_:            # the phase of complex eigenvectors is nobody's to choose
        check_tangent("eigh", a, g, **EIGH)


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 5)])
def test_tangents_of_complex_factors_differentiate_the_product(shape: Any) -> None:
    a, g = matrices(*shape, complex_=True), matrices(*shape, complex_=True, seed=1)
    with evaluating():
        (s, u, vt), (ds, du, dvt) = push_forward(OPS["svd"], [a], [g], SVD)
        (q, r), (dq, dr) = push_forward(OPS["qr"], [a], [g], QR)
    np.testing.assert_allclose((du * s) @ vt + (u * ds) @ vt + (u * s) @ dvt, g, atol=1e-10)
    np.testing.assert_allclose(dq @ r + q @ dr, g, atol=1e-10)
    np.testing.assert_allclose(adjoint(dq) @ q + adjoint(q) @ dq, 0, atol=1e-10)


def test_what_has_no_derivative_says_so() -> None:
    with evaluating():
        for name, shape, params in (("svd", (4, 3), {**SVD, "full_matrices": True}),
                                    ("qr", (4, 3), {**QR, "full_matrices": True}),
                                    ("eigh", (3, 3), {**EIGH, "subset_by_index": (0, 2)})):
            with pytest.raises(NotImplementedError):
                push_forward(OPS[name], [matrices(*shape)], [matrices(*shape)], params)


# -- typing ----------------------------------------------------------------------------------------

typed = functools.partial(inferred, MESH)

TRIANGULAR = {"left_side": True, "lower": True, "transpose_a": False, "conjugate_a": False,
              "unit_diagonal": False}


def test_batch_dimensions_may_be_split() -> None:
    assert typed("svd", "f32[4@x,3,2]", **SVD) == "f32[4@x,2] f32[4@x,3,2] f32[4@x,2,2]"
    assert typed("eigh", "c64[4@(x,y),3,3]", **EIGH) == "c64[4@(x,y),3,3] f32[4@(x,y),3]"
    assert typed("lu", "f32[4@x,3,2]") == "f32[4@x,3,2] i32[4@x,2] i32[4@x,3]"
    assert typed("triangular_solve", "f32[2@x,4,4] f32[2@x,4,6@y]", **TRIANGULAR) \
        == "f32[2@x,4,6@y]"
    assert typed("fft", "c64[4@x,8]", fft_type=FftType.FFT, fft_lengths=(8,)) == "c64[4@x,8]"


@pytest.mark.parametrize("name, operands, params, text", [
    ("eigh", "f32[4@x,4]", EIGH,
     "Input 0 to eigh must be unsharded on non-batch dimensions, but got P('x', None)."),
    ("qr", "f32[2,4,4@x]", QR, "Input 0 to qr must be unsharded on non-batch dimensions"),
    ("householder_product", "f32[2@x,4,4] f32[2,4]", {},
     "All inputs to householder_product must have the same batch sharding"),
    ("triangular_solve", "f32[4,4@x] f32[4,2]", TRIANGULAR, "triangular solve input `a` must be "
     "unsharded on the contracting axis, but got P(None, 'x')"),
    ("triangular_solve", "f32[4,4] f32[4@x,2]", TRIANGULAR, "triangular solve input `b` must be "
     "unsharded on the contracting axis"),
])
def test_matrix_dimensions_may_not(name: str, operands: str, params: Any, text: str) -> None:
    with pytest.raises(ShardingTypeError) as raised:
        typed(name, operands, **params)
    assert str(raised.value).startswith(text) and "= help: " in str(raised.value)


@pytest.mark.parametrize("operand, kind, lengths, text", [
    ("f32[4,8]", FftType.FFT, (8,), "FFT input must be complex64 or complex128, got float32"),
    ("c64[4,8]", FftType.RFFT, (8,), "RFFT input must be float32 or float64, got complex64"),
    ("f32[4,8]", FftType.RFFT, (7,), r"RFFT input shape \(4, 8\) minor dimensions must be equal to "
     r"fft_lengths \(7,\)"),
    ("c64[8]", FftType.FFT, (4, 8), "must have at least as many input dimensions as fft_lengths"),
])
def test_transforms_check_their_operand(operand: str, kind: FftType, lengths: Any, text: str
                                        ) -> None:
    with pytest.raises(ValueError, match=text):
        typed("fft", operand, fft_type=kind, fft_lengths=lengths)


@pytest.mark.parametrize("name, params", [
    ("eigh", {"lower": True, "sort_eigenvalues": True, "subset_by_index": None,
              "algorithm": None}),
    ("svd", {"full_matrices": False, "compute_uv": True, "subset_by_index": None,
             "algorithm": None}),
    ("eig", {"compute_left_eigenvectors": False, "compute_right_eigenvectors": True,
             "enable_eigvec_derivs": False, "implementation": None}),
    ("schur", {"compute_schur_vectors": True, "sort_eig_vals": False, "select_callable": None}),
    ("qr", {"pivoting": True, "full_matrices": False, "use_magma": None})])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_gives_nan_and_does_not_spoil_others(name, params, wrong):
    a = np.stack([np.diag([1, 2, 3]), np.full((3, 3), wrong)]).astype(np.float32)
    for x in OPS[name].evaluate(0, a, **params):
        if x.dtype.kind in "fc":
            assert np.isfinite(x[0]).all() and np.isnan(x[1]).all()


def test_pivots_that_are_no_rows_are_read_as_the_nearest_and_not_written() -> None:
    """What JAX gives."""
    for pivots, want in (([4, 1, 2, 3], [3, 1, 2, 3]), ([9, -1, 2, 3], [3, 3, 2, 1]),
                         ([-1, -2], [3, 2, 1, 0]), ([0, 9, -9], [0, 3, 0, 3])):
        got = apply_pivots(np.array(pivots, np.int32), 4)
        np.testing.assert_array_equal(got, want)


def test_more_pivots_than_rows_are_refused() -> None:
    types = (parse_type("i32[5]"),)
    with pytest.raises(ValueError, match=r"permutation size 4 has to exceed .* pivots size 5"):
        infer(OPS["lu_pivots_to_permutation"], types, {"permutation_size": 4})
    with pytest.raises(TypeError, match="does not accept dtype int8"):
        infer(OPS["lu_pivots_to_permutation"], (parse_type("i8[5]"),), {"permutation_size": 5})
