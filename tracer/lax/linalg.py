"""Matrix decompositions of lax.linalg; leading dimensions are batches."""
from __future__ import annotations

import enum
from typing import Any

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.ops.elementwise.arithmetic import add_p, div_p, mul_p
from ...ir.ops.elementwise.comparison import ge_p
from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.linalg.condensed import hessenberg_p, tridiagonal_p
from ...ir.ops.linalg.decompositions import (
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
from ...ir.ops.linalg.triangular import triangular_solve_p
from ...ir.ops.linalg.tridiagonal import tridiagonal_solve_p
from ...ir.ops.movement.creation import iota_p
from ...ir.ops.movement.padding import pad_p
from ...ir.ops.movement.shape import broadcast_in_dim_p, squeeze_p
from ..operands.broadcasting import to_type
from ..operands.dtype_promotion import (
    convert,
    dtype_name,
    literal_like,
    promote_dtypes_inexact,
)
from ..operands.rank_promotion import shape_of
from ..shardings.eager_mesh import mesh_of_operands
from ..staging.memoized import memoized
from .contraction import dot_general
from .creation import full_like
from .elementwise import conj
from .shape import transpose

__all__ = [
    "EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_update", "eig",
    "eigh", "hessenberg", "householder_product", "lu", "lu_pivots_to_permutation", "ormqr", "qdwh",
    "qr", "schur", "svd", "symmetric_product", "triangular_solve", "tridiagonal",
    "tridiagonal_solve",
]


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
    DIVIDE_AND_CONQUER = "divide_and_conquer"


def _adjoint(x: Any) -> Any:
    n = len(shape_of(x))
    x = transpose(x, (*range(n - 2), n - 1, n - 2))
    return conj(x) if issubdtype(dtype_name(x), np.complexfloating) else x


def _symmetrized(x: Any) -> Any:
    return div_p.bind(add_p.bind(x, _adjoint(x)), literal_like(2, x))


def _lower_triangle(x: Any) -> Any:
    """x with zeros above the diagonals."""
    shape = shape_of(x)
    index = np.dtype("int32")
    rows = iota_p.bind(dtype=index, shape=shape[-2:], dimension=0, sharding=None)
    columns = iota_p.bind(dtype=index, shape=shape[-2:], dimension=1, sharding=None)
    with mesh_of_operands(x):       # a whole mask, as in JAX: over Explicit axes x must be too
        mask = to_type(ge_p.bind(rows, columns), shape)
    return select_n_p.bind(mask, full_like(x, 0), x)


@memoized
def cholesky(x, *, symmetrize_input=True):
    """The lower triangular L with x = L L^H; NaN where x is not positive definite."""
    if symmetrize_input:
        x = _symmetrized(x)
    return _lower_triangle(cholesky_p.bind(x))


@memoized
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
    return [both, pivots, permutation]


def lu_pivots_to_permutation(pivots, permutation_size):
    """The permutation of rows that a list of row exchanges, as `lu` gives them, makes."""
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
    return list(schur_p.bind(x, compute_schur_vectors=bool(compute_schur_vectors),
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
    """x with A x = b for a tridiagonal matrix given by its three diagonals.

    perturb_singular: pivots that are zero are replaced by the precision of the largest one, so that
    x is finite for a matrix that has no inverse, too.
    """
    return tridiagonal_solve_p.bind(dl, d, du, b, perturb_singular=bool(perturb_singular))


# -- composed of others ----------------------------------------------------------------------------

def symmetric_product(a_matrix, c_matrix, *, alpha=1.0, beta=0.0, symmetrize_output=False):
    """alpha a a^T + beta c. symmetrize_output has no effect: both triangles are computed."""
    a, c = promote_dtypes_inexact(a_matrix, c_matrix)
    n = len(shape_of(a))
    if shape_of(c)[-2:] != (shape_of(a)[-2],) * 2:
        raise ValueError(f"symmetric_product: c_matrix must be square, of the number of rows of "
                         f"a_matrix; got {shape_of(c)} for {shape_of(a)}")
    batch = tuple(range(n - 2))
    product = dot_general(a, a, (((n - 1,), (n - 1,)), (batch, batch)))
    return add_p.bind(mul_p.bind(literal_like(alpha, a), product),
                      mul_p.bind(literal_like(beta, c), c))


def cholesky_update(r_matrix, w_vector):
    """The upper triangular factor R of r^T r + w w^T, for an upper triangular matrix r."""
    r, w = promote_dtypes_inexact(r_matrix, w_vector)
    if len(shape_of(w)) != 1 or shape_of(r) != shape_of(w) * 2:
        raise ValueError("Rank-1 update to Cholesky decomposition takes a square matrix and a "
                         f"vector of the same size as input. Got shapes {shape_of(r)} and "
                         f"{shape_of(w)} instead")
    square = dot_general(r, r, (((0,), (0,)), ((), ())))
    outer = dot_general(w, w, (((), ()), ((), ())))
    return transpose(cholesky(add_p.bind(square, outer), symmetrize_input=False), (1, 0))


def ormqr(a, taus, c, *, left=True, transpose=False):
    """Q c (c Q unless left), for the whole orthogonal matrix Q that `geqrf` stores; or by Q^H."""
    a, taus, c = promote_dtypes_inexact(a, taus, c)
    shape = shape_of(a)
    n = len(shape)
    extra = [(0, 0, 0)] * (n - 1) + [(0, shape[-2] - shape[-1], 0)]
    q = householder_product_p.bind(
        pad_p.bind(a, convert(0, dtype_name(a)), padding_config=tuple(extra)), taus)
    q = _adjoint(q) if transpose else q
    batch = tuple(range(n - 2))
    x, y = (q, c) if left else (c, q)
    return dot_general(x, y, (((n - 1,), (n - 2,)), (batch, batch)))


def qdwh(x, *, is_hermitian=False, max_iterations=None, eps=None, dynamic_shape=None):
    """The polar decomposition x = U H, U with orthonormal columns and H positive semidefinite.

    Returns U, H, the number of iterations (0: it is found by singular values) and whether it was
    found. Raises ValueError where x is no matrix with at least as many rows as columns.
    """
    shape = shape_of(x)
    if len(shape) != 2 or shape[0] < shape[1]:
        raise ValueError(f"The input `x` of shape {shape} has to be a matrix with at least as many "
                         "rows as columns.")
    if dynamic_shape is not None:
        raise NotImplementedError("qdwh: dynamic_shape is not supported")
    u, s, vh = svd(x, full_matrices=False)
    product = (((1,), (0,)), ((), ()))
    scaled = mul_p.bind(broadcast_in_dim_p.bind(
        convert(s, dtype_name(vh)), shape=shape_of(vh), broadcast_dimensions=(0,), sharding=None),
        vh)
    return (dot_general(u, vh, product), dot_general(_adjoint(vh), scaled, product), np.int32(0),
            np.bool_(True))


# -- condensed forms -------------------------------------------------------------------------------

def hessenberg(a):
    """The upper Hessenberg form of square matrices, as LAPACK packs it: `(a, taus)`.

    The vectors of the reflections lie below the subdiagonal; `taus` are their scales.
    """
    packed, taus = hessenberg_p.bind(a)
    return [packed, taus]


def tridiagonal(a, *, lower=True):
    """The tridiagonal form of Hermitian matrices, as LAPACK packs it: `(a, d, e, taus)`.

    d is the diagonal and e the one below (above, unless `lower`); the vectors of the reflections
    lie beyond, `taus` are their scales.
    """
    return list(tridiagonal_p.bind(a, lower=bool(lower)))
