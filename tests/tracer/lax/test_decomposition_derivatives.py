"""Derivatives of general eigendecompositions and of pivoted QR, beside differences of values."""
from functools import partial

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.test_util import check_grads

RNG = np.random.default_rng(4)


@pytest.mark.parametrize(("left", "right"), [(False, True), (True, False), (True, True)])
def test_derivatives_of_eig_equal_differences(left: bool, right: bool) -> None:
    eig = partial(st.lax.linalg.eig, compute_left_eigenvectors=left,
                  compute_right_eigenvectors=right, enable_eigvec_derivs=True)
    with st.enable_x64(True):
        a = RNG.normal(size=(4, 4)) + 1j * RNG.normal(size=(4, 4))
        check_grads(eig, (a,), order=2, rtol=1e-3, atol=1e-3)
        # LAPACK leaves the sign of real eigenvectors open.
        check_grads(lambda x: [v * v for v in eig(x)], (RNG.normal(size=(2, 4, 4)),), order=1,
                    rtol=1e-3, atol=1e-3)


def test_eigenvalues_alone_and_vectors_that_were_not_asked_for() -> None:
    with st.enable_x64(True):
        a = RNG.normal(size=(3, 4, 4))
        check_grads(jnp.linalg.eigvals, (a,), order=1, rtol=1e-3, atol=1e-3)
        with pytest.raises(NotImplementedError, match="Derivatives of non-symmetric eigenvectors"):
            st.jvp(jnp.linalg.eig, (a,), (a,))


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3)], ids=str)
def test_derivatives_of_pivoted_qr_equal_differences(shape) -> None:
    qr = partial(st.lax.linalg.qr, pivoting=True, full_matrices=False)
    with st.enable_x64(True):
        check_grads(lambda a: qr(a)[:2], (RNG.normal(size=shape),), order=2, rtol=1e-3, atol=1e-3)
