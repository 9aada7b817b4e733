"""Dense linear algebra under scipy's names, as in `jax.scipy.linalg`.

Thin functions over lax.linalg and jnp.linalg: what differs are names, defaults (Cholesky factors
are upper here) and what is returned together. `check_finite` and the `overwrite_` arguments are
accepted and mean nothing. `expm` is scaling and squaring with a Pade approximant: Higham, "The
Scaling and Squaring Method for the Matrix Exponential Revisited", 2005.
"""
from __future__ import annotations

import math

import numpy as np

from ...ir.source.wording import warn
from .. import jnp, lax
from ..jnp.indexing.searching import choose_where as where
from ..operands.dtype_promotion import dtype_name, promote_dtypes_inexact


def cholesky(a, lower=False, overwrite_a=False, check_finite=True):
    """The factor with a = L L^H (lower) or a = U^H U; only that triangle of a is read."""
    (a,) = promote_dtypes_inexact(jnp.asarray(a))
    factor = lax.linalg.cholesky(a if lower else jnp.conj(jnp.matrix_transpose(a)),
                                 symmetrize_input=False)
    return factor if lower else jnp.conj(jnp.matrix_transpose(factor))


def cho_factor(a, lower=False, overwrite_a=False, check_finite=True):
    """The Cholesky factor of `a` and the flag `lower`, as a pair that `cho_solve` takes."""
    return cholesky(a, lower=lower), lower


def cho_solve(c_and_lower, b, overwrite_b=False, check_finite=True):
    """x with a x = b, for a factored by `cho_factor`.

    >>> import shardtrace.numpy as jnp
    >>> from shardtrace.scipy.linalg import cho_factor, cho_solve
    >>> print(cho_solve(cho_factor(4.0 * jnp.eye(2)), jnp.array([4.0, 8.0])))
    [1. 2.]
    """
    c, lower = c_and_lower
    c, b = promote_dtypes_inexact(jnp.asarray(c), jnp.asarray(b))
    c, b, vector = _systems("cho_solve", "c_and_lower", c, b)
    y = _triangular(c, b, 0 if lower else 2, lower)
    x = _triangular(c, y, 2 if lower else 0, lower)
    return x[..., 0] if vector else x


def _systems(name, first, a, b):
    """Matrices and right sides in columns, batches broadcast; whether each is one vector.

    It is if b has one dimension, or, as JAX (still) has it, one less than a and as long rows.
    """
    vector = b.ndim == 1 or (a.ndim == b.ndim + 1 and a.shape[-1] == b.shape[-1])
    if vector and b.ndim > 1:
        warn(f"jax.scipy.linalg.{name}: batched 1D solves with b.ndim > 1 are deprecated, and in "
             f"the future will be treated as a batched 2D solve. Use {name}({first}, b[..., None])"
             ".squeeze(-1) to avoid this warning.", FutureWarning)
    x = b[..., None] if vector else b
    n = a.shape[-1]
    if x.shape[-2] != n:
        raise ValueError(f"inconsistent size for core dimension 'n': {x.shape[-2]} vs {n} on "
                         f"{name} of matrices {a.shape} and right sides {b.shape}")
    batch = jnp.broadcast_shapes(a.shape[:-2], x.shape[:-2])
    if a.shape[:-2] != batch:
        a = jnp.broadcast_to(a, (*batch, n, n))
    if x.shape[:-2] != batch:
        x = jnp.broadcast_to(x, (*batch, *x.shape[-2:]))
    return a, x, vector


def _triangular(a, b, kind, lower, unit_diagonal=False):
    return lax.linalg.triangular_solve(
        a, b, left_side=True, lower=lower, transpose_a=kind > 0, conjugate_a=kind == 2,
        unit_diagonal=unit_diagonal)


_TRANSPOSED = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}


def solve_triangular(a, b, trans=0, lower=False, unit_diagonal=False, overwrite_b=False,
                     debug=None, check_finite=True):
    """x with a x = b (trans 0), a^T x = b (1) or a^H x = b (2), for a triangular matrix a."""
    if trans not in _TRANSPOSED:
        raise ValueError(f"Invalid 'trans' value {trans}")
    a, b = promote_dtypes_inexact(jnp.asarray(a), jnp.asarray(b))
    a, b, vector = _systems("solve_triangular", "a", a, b)
    x = _triangular(a, b, _TRANSPOSED[trans], lower, unit_diagonal)
    return x[..., 0] if vector else x


def solve(a, b, lower=False, overwrite_a=False, overwrite_b=False, debug=False,
          check_finite=True, assume_a="gen"):
    """x with a x = b; assume_a says what a is: "gen", "sym", "her" or "pos" (Cholesky)."""
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ValueError(f"Expected assume_a to be one of ['gen', 'sym', 'her', 'pos']; got "
                         f"{assume_a!r}")
    if assume_a != "pos":
        return jnp.linalg.solve(a, b)
    return cho_solve(cho_factor(a, lower=lower), b)


def lu_factor(a, overwrite_a=False, check_finite=True):
    """Both triangular factors of `a` in one matrix, and the pivots: a pair that `lu_solve` takes.
    """
    (a,) = promote_dtypes_inexact(jnp.asarray(a))
    both, pivots, _ = lax.linalg.lu(a)
    return both, pivots


def lu_solve(lu_and_piv, b, trans=0, overwrite_b=False, check_finite=True):
    """x with a x = b (trans 0), a^T x = b (1) or a^H x = b (2), for a factored by `lu_factor`."""
    if trans not in (0, 1, 2):
        raise ValueError(f"'trans' value must be 0, 1, or 2, got {trans}")
    both, pivots = lu_and_piv
    both, b = promote_dtypes_inexact(jnp.asarray(both), jnp.asarray(b))
    both, x, vector = _systems("lu_solve", "lu_and_piv", both, b)
    order = jnp.broadcast_to(lax.linalg.lu_pivots_to_permutation(pivots, both.shape[-1]),
                             both.shape[:-1])
    if trans == 0:
        x = jnp.take_along_axis(x, order[..., None], axis=-2)
        x = _triangular(both, _triangular(both, x, 0, True, True), 0, False)
    else:
        x = _triangular(both, _triangular(both, x, trans, False), trans, True, True)
        x = jnp.take_along_axis(x, jnp.argsort(order)[..., None], axis=-2)
    return x[..., 0] if vector else x


def lu(a, permute_l=False, overwrite_a=False, check_finite=True):
    """The factors (P, L, U) of `a = P @ L @ U`; with permute_l the pair (P @ L, U)."""
    (a,) = promote_dtypes_inexact(jnp.asarray(a))
    both, _, order = lax.linalg.lu(a)
    rows, columns = a.shape[-2:]
    k = min(rows, columns)
    lower = jnp.tril(both, -1)[..., :, :k] + jnp.eye(rows, k, dtype=dtype_name(a))
    upper = jnp.triu(both)[..., :k, :]
    # Row i of the permuted matrix is row order[i] of a, so P puts it back there.
    swaps = jnp.matrix_transpose(
        (order[..., :, None] == jnp.arange(rows)).astype(jnp.finfo(dtype_name(a)).dtype))
    return (swaps @ lower, upper) if permute_l else (swaps, lower, upper)


def det(a, overwrite_a=False, check_finite=True):
    """The determinants of the square matrices in the last two dimensions of `a`."""
    return jnp.linalg.det(a)


def inv(a, overwrite_a=False, check_finite=True):
    """The inverses of the square matrices in the last two dimensions of `a`."""
    return jnp.linalg.inv(a)


def qr(a, overwrite_a=False, lwork=None, mode="full", pivoting=False, check_finite=True):
    """(Q, R), of the sizes that mode says ("full", "economic"), or R alone ("r")."""
    (a,) = promote_dtypes_inexact(jnp.asarray(a))
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    parts = lax.linalg.qr(a, pivoting=pivoting, full_matrices=mode != "economic")
    return parts[1:] if mode == "r" else tuple(parts)


def svd(a, full_matrices=True, compute_uv=True, overwrite_a=False, check_finite=True,
        lapack_driver="gesdd"):
    """The singular value decomposition of `a`: (U, s, Vh), or the values s alone."""
    (a,) = promote_dtypes_inexact(jnp.asarray(a))
    return lax.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)


def eigh(a, b=None, lower=True, eigvals_only=False, overwrite_a=False, overwrite_b=False,
         turbo=True, eigvals=None, type=1, check_finite=True):
    """Eigenvalues in ascending order, and eigenvectors as columns, of a Hermitian matrix."""
    if b is not None:
        raise NotImplementedError("Only the b=None case of eigh is implemented")
    if type != 1:
        raise NotImplementedError("Only the type=1 case of eigh is implemented.")
    if eigvals is not None:
        raise NotImplementedError("Only the eigvals=None case of eigh is implemented.")
    (a,) = promote_dtypes_inexact(jnp.asarray(a))
    vectors, values = lax.linalg.eigh(a, lower=lower)
    return values if eigvals_only else (values, vectors)


def schur(a, output="real"):
    """(T, Z) with a = Z T Z^H; output "complex" makes T triangular."""
    if output not in ("real", "complex"):
        raise ValueError("Expected 'output' to be either 'real' or 'complex', got "
                         f"output='{output}'.")
    (a,) = promote_dtypes_inexact(jnp.asarray(a))
    if output == "complex" and not jnp.iscomplexobj(a):
        a = a.astype(jnp.result_type(a, np.complex64))
    return lax.linalg.schur(a)


def block_diag(*arrs):
    """The matrices side by side along the diagonal, zeros elsewhere.

    >>> import shardtrace.numpy as jnp
    >>> from shardtrace.scipy.linalg import block_diag
    >>> print(block_diag(jnp.ones((1, 2)), 2.0))
    [[1. 1. 0.]
     [0. 0. 2.]]
    """
    blocks = [jnp.atleast_2d(x) for x in (arrs or (jnp.zeros((1, 0)),))]
    for i, x in enumerate(blocks):
        if x.ndim > 2:
            raise ValueError("Arguments to jax.scipy.linalg.block_diag must have at most 2 "
                             f"dimensions, got {arrs[i]} at argument {i}.")
    dtype = jnp.result_type(*blocks)
    width = sum(x.shape[1] for x in blocks)
    rows, start = [], 0
    for x in blocks:
        end = start + x.shape[1]
        rows.append(jnp.pad(x.astype(dtype), ((0, 0), (start, width - end))))
        start = end
    return jnp.concatenate(rows)


# Up to which 1-norm the Pade approximant of a degree is exact to rounding.
_SINGLE, _DOUBLE = (7, 3.925724783138660), (13, 5.371920351148152)


def _pade(a, degree: int):
    """U and V with exp(a) about (V - U)^-1 (V + U)."""
    weights = [math.factorial(2 * degree - k) * math.comb(degree, k) for k in range(degree + 1)]
    weights = [w / weights[-1] for w in weights]
    eye = jnp.eye(a.shape[-1], dtype=dtype_name(a))
    square = a @ a
    even, odd = weights[-2] * eye, weights[-1] * eye    # Horner in a^2; degrees are odd
    for k in range(degree - 3, -1, -2):
        even, odd = even @ square + weights[k] * eye, odd @ square + weights[k + 1] * eye
    return a @ odd, even


def expm(A, *, upper_triangular=False, max_squarings=16):
    """The exponential of a square matrix, or of each of a batch; NaN where the norm is too large.

    >>> import shardtrace.numpy as jnp
    >>> from shardtrace.scipy.linalg import expm
    >>> print(expm(jnp.array([[0.0, 1.0], [0.0, 0.0]])))
    [[1. 1.]
     [0. 1.]]
    """
    (a,) = promote_dtypes_inexact(jnp.asarray(A))
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError("Expected A to be a (batched) square matrix, got "
                         f"A.shape={a.shape}.")
    wide = np.dtype(dtype_name(a)) in (np.float64, np.complex128)
    degree, limit = _DOUBLE if wide else _SINGLE
    norm = lax.stop_gradient(jnp.max(jnp.sum(jnp.abs(a), axis=-2), axis=-1))
    times = jnp.maximum(0, jnp.ceil(jnp.log2(where(norm > 0, norm, 1.0) / limit)))
    u, v = _pade(a / jnp.exp2(times)[..., None, None].astype(dtype_name(a)), degree)
    if upper_triangular:
        x = lax.linalg.triangular_solve(v - u, v + u, left_side=True, lower=False)
    else:
        x = jnp.linalg.solve(v - u, v + u)

    def square(x, i):
        return where((i < times)[..., None, None], x @ x, x), None

    x, _ = lax.scan(square, x, jnp.arange(max_squarings))
    return where((times > max_squarings)[..., None, None], np.nan, x)
