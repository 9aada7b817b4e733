"""Matrix decompositions of lax.linalg; leading dimensions are batches."""
from __future__ import annotations

import enum
from typing import Any

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.ops.arithmetic import add_p, div_p
from ...ir.ops.comparison import ge_p
from ...ir.ops.creation import iota_p
from ...ir.ops.linalg import (
    cholesky_p,
    eig_p,
    eigh_p,
    householder_product_p,
    lu_p,
    lu_pivots_to_permutation_p,
    qr_p,
    schur_p,
    svd_p,
)
from ...ir.ops.select import select_n_p
from ...ir.ops.shape import broadcast_in_dim_p, squeeze_p
from ...ir.ops.triangular import triangular_solve_p
from ...ir.ops.tridiagonal import tridiagonal_solve_p
from ..broadcasting import to_type
from ..dtype_promotion import convert, dtype_name, promote_dtypes_inexact, shape_of
from .creation import full_like
from .elementwise import conj
from .shape import transpose


class EighImplementation(enum.Enum):
    """Which algorithm finds eigenvalues of symmetric matrices; here all are LAPACK's."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class EigImplementation(enum.Enum):
    """Which library finds eigenvalues of general matrices; here all are LAPACK."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class SvdAlgorithm(enum.Enum):
    """Which algorithm finds singular values; here all are LAPACK's."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"


def _adjoint(x: Any) -> Any:
    n = len(shape_of(x))
    x = transpose(x, (*range(n - 2), n - 1, n - 2))
    return conj(x) if issubdtype(dtype_name(x), np.complexfloating) else x


def _symmetrized(x: Any) -> Any:
    return div_p.bind(add_p.bind(x, _adjoint(x)), convert(2, dtype_name(x)))


def _lower_triangle(x: Any) -> Any:
    """x with zeros above the diagonals."""
    shape = shape_of(x)
    index = np.dtype("int32")
    rows = iota_p.bind(dtype=index, shape=shape[-2:], dimension=0, sharding=None)
    columns = iota_p.bind(dtype=index, shape=shape[-2:], dimension=1, sharding=None)
    sharding = x.aval.sharding if any(x.aval.entries) else None
    mask = to_type(ge_p.bind(rows, columns), shape, sharding)
    return select_n_p.bind(mask, full_like(x, 0), x)


def cholesky(x, *, symmetrize_input=True):
    """The lower triangular L with x = L L^H; NaN where x is not positive definite."""
    if symmetrize_input:
        x = _symmetrized(x)
    return _lower_triangle(cholesky_p.bind(x))


def eigh(x, *, lower=True, symmetrize_input=True, sort_eigenvalues=True, subset_by_index=None,
         implementation=None):
    """Eigenvectors and eigenvalues of symmetric (Hermitian) matrices, as `(vectors, values)`."""
    if symmetrize_input:
        x = _symmetrized(x)
    vectors, values = eigh_p.bind(x, lower=bool(lower), sort_eigenvalues=bool(sort_eigenvalues),
                                  subset_by_index=subset_by_index, algorithm=implementation)
    return vectors, values


def eig(x, *, compute_left_eigenvectors=True, compute_right_eigenvectors=True,
        enable_eigvec_derivs=False, implementation=None, use_magma=None):
    """Eigenvalues of general matrices, then left and right eigenvectors as asked for."""
    return list(eig_p.bind(x, compute_left_eigenvectors=bool(compute_left_eigenvectors),
                           compute_right_eigenvectors=bool(compute_right_eigenvectors),
                           enable_eigvec_derivs=bool(enable_eigvec_derivs),
                           implementation=implementation))


def lu(x):
    """L and U in one matrix, the row exchanges, and the permutation that they make."""
    both, pivots, permutation = lu_p.bind(x)
    return both, pivots, permutation


def lu_pivots_to_permutation(pivots, permutation_size):
    """The permutation of rows that a list of row exchanges makes."""
    return lu_pivots_to_permutation_p.bind(pivots, permutation_size=int(permutation_size))


def qr(x, *, pivoting=False, full_matrices=True, use_magma=None):
    """Q and R with x = Q R; with pivoting also the order of columns."""
    return tuple(qr_p.bind(x, pivoting=bool(pivoting), full_matrices=bool(full_matrices),
                           use_magma=use_magma))


def householder_product(a, taus):
    """The product of the elementary reflections that `geqrf` stores."""
    return householder_product_p.bind(a, taus)


def schur(x, *, compute_schur_vectors=True, sort_eig_vals=False, select_callable=None):
    """T and Z with x = Z T Z^H, T triangular (or with 2 by 2 blocks)."""
    return tuple(schur_p.bind(x, compute_schur_vectors=bool(compute_schur_vectors),
                              sort_eig_vals=bool(sort_eig_vals), select_callable=select_callable))


def svd(x, *, full_matrices=True, compute_uv=True, subset_by_index=None, algorithm=None):
    """Singular value decomposition x = U diag(S) V^H, as `(U, S, V^H)`, or S alone."""
    out = svd_p.bind(x, full_matrices=bool(full_matrices), compute_uv=bool(compute_uv),
                     subset_by_index=subset_by_index, algorithm=algorithm)
    return (out[1], out[0], out[2]) if compute_uv else out[0]


def triangular_solve(a, b, *, left_side=False, lower=False, transpose_a=False, conjugate_a=False,
                     unit_diagonal=False):
    """x with a x = b (left_side) or x a = b, for a triangular matrix a, perhaps transposed."""
    a, b = promote_dtypes_inexact(a, b)
    conjugate_a = bool(conjugate_a) and issubdtype(dtype_name(a), np.complexfloating)
    vector = len(shape_of(b)) == len(shape_of(a)) - 1
    if vector:
        shape = shape_of(b)
        wide = (*shape, 1) if left_side else (*shape[:-1], 1, shape[-1])
        dims = tuple(range(len(shape))) if left_side else (
            *range(len(shape) - 1), len(shape))
        b = broadcast_in_dim_p.bind(b, shape=wide, broadcast_dimensions=dims, sharding=None)
    out = triangular_solve_p.bind(a, b, left_side=bool(left_side), lower=bool(lower),
                                  transpose_a=bool(transpose_a), conjugate_a=conjugate_a,
                                  unit_diagonal=bool(unit_diagonal))
    if vector:
        out = squeeze_p.bind(out, dimensions=(len(shape_of(out)) - (1 if left_side else 2),))
    return out


def tridiagonal_solve(dl, d, du, b, *, perturb_singular=False):
    """x with A x = b for a tridiagonal matrix given by its three diagonals."""
    return tridiagonal_solve_p.bind(dl, d, du, b, perturb_singular=bool(perturb_singular))
