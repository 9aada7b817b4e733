"""Decompositions of matrices: Cholesky, QR, singular values, eigenvalues. Leading dims are batches.

Everything rests on the ops of lax.linalg (qr, eigh, svd, cholesky, eig).
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.ops.elementwise.arithmetic import mul_p, neg_p
from ....ir.ops.linalg.decompositions import geqrf_p
from ....ir.support.named_tuple import NamedTuple
from ....ir.values.array import Array
from ... import lax
from ...operands.broadcasting import to_type
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    is_complex,
    promote_dtypes_inexact,
)
from ...staging.constants import as_array
from ..elementwise.arithmetic import absolute
from ..elementwise.complex_numbers import conj
from ..indexing.take import take_along_axis
from ..manipulation.shaping import expand_dims
from ..manipulation.shaping import matrix_transpose as _matrix_transpose


class EigResult(NamedTuple):
    """Eigenvalues, and eigenvectors as columns."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """Orthonormal Q and upper triangular R."""

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """Left vectors, singular values in descending order, adjoint right vectors."""

    U: Array
    S: Array
    Vh: Array


def _inexact(name: str, *arrays: Any) -> list[Array]:
    check_arraylike(f"jnp.linalg.{name}", *arrays)
    return [as_array(x) for x in promote_dtypes_inexact(*arrays)]


def _square(name: str, a: Array) -> None:
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Argument to {name}() must have shape [..., n, n], got {a.shape}")


def _adjoint(x: Any) -> Array:
    x = _matrix_transpose(x)
    return conj(x) if is_complex(x) else x


# -- decompositions --------------------------------------------------------------------------------

def cholesky(a, *, upper=False, symmetrize_input=True):
    """The triangular factor of positive definite matrices: a = L L^H (upper: a = U^H U)."""
    (a,) = _inexact("cholesky", a)
    _square("cholesky", a)
    out = lax.linalg.cholesky(_adjoint(a) if upper else a, symmetrize_input=symmetrize_input)
    return _adjoint(out) if upper else out


def qr(a, mode="reduced"):
    """The factors of `a = Q @ R`: Q with orthonormal columns, R upper triangular.

    a: [..., m, n]. mode: "reduced" gives Q of min(m, n) columns, "complete" a square one, "r"
    gives R alone, and "raw" what LAPACK stores.

    Sharding
      Auto: batch dimensions may be split; matrices that are split are gathered.
      Explicit: batch dimensions stay split, the matrices must be whole; `reshard` first.
      Manual: factors the matrices of each device's block.

    >>> q, r = jnp.linalg.qr(jnp.ones((4, 3)))
    >>> q.shape, r.shape
    ((4, 3), (3, 3))
    """
    (a,) = _inexact("qr", a)
    if mode == "raw":
        packed, taus = geqrf_p.bind(a)
        return QRResult(_matrix_transpose(packed), taus)
    if mode not in ("reduced", "r", "full", "complete"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    q, r = lax.linalg.qr(a, full_matrices=mode in ("full", "complete"))
    return r if mode == "r" else QRResult(q, r)


def svd(a, full_matrices=True, compute_uv=True, hermitian=False, subset_by_index=None):
    """The singular value decomposition `a = U @ diag(S) @ Vh` of matrices: (U, S, Vh).

    full_matrices: U and Vh are square; otherwise they have min(m, n) columns and rows.
    compute_uv: False gives S alone, in descending order. hermitian: `a` is its own adjoint.

    Sharding
      Auto: batch dimensions may be split; matrices that are split are gathered.
      Explicit: batch dimensions stay split, the matrices must be whole; `reshard` first.
      Manual: decomposes the matrices of each device's block.

    >>> u, s, vh = jnp.linalg.svd(jnp.ones((4, 3)), full_matrices=False)
    >>> u.shape, s.shape, vh.shape
    ((4, 3), (3,), (3, 3))
    """
    (a,) = _inexact("svd", a)
    if hermitian:
        w, v = lax.linalg.eigh(a)[::-1]
        size = absolute(w)
        order = lax.sort_key_val(neg_p.bind(size), lax.broadcasted_iota(
            np.int32, size.shape, size.ndim - 1))[1]
        s = take_along_axis(size, order, -1)
        if not compute_uv:
            return s
        w = take_along_axis(w, order, -1)
        u = take_along_axis(v, to_type(expand_dims(order, -2), v.shape), -1)
        sign = convert(lax.sign(w), u.dtype)
        vh = _adjoint(mul_p.bind(u, to_type(expand_dims(sign, -2), u.shape)))
        return SVDResult(u, s, vh)
    if not compute_uv:
        return lax.linalg.svd(a, full_matrices=full_matrices, compute_uv=False,
                              subset_by_index=subset_by_index)
    return SVDResult(*lax.linalg.svd(a, full_matrices=full_matrices, compute_uv=True,
                                     subset_by_index=subset_by_index))


def svdvals(x, /):
    """The singular values of the matrices in the last two dimensions, in descending order."""
    return svd(x, compute_uv=False)


def eigh(a, UPLO=None, symmetrize_input=True):
    """The eigenvalues, ascending, and the eigenvectors (columns) of symmetric matrices.

    a: [..., n, n], symmetric or Hermitian; one triangle is read if symmetrize_input is False. The
    result is a named pair (eigenvalues, eigenvectors).

    Sharding
      Auto: batch dimensions may be split; matrices that are split are gathered.
      Explicit: batch dimensions stay split, the matrices must be whole; `reshard` first.
      Manual: works on the matrices of each device's block.

    >>> values, vectors = jnp.linalg.eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]]))
    >>> values
    Array([1., 2.], dtype=float32)
    """
    (a,) = _inexact("eigh", a)
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L', or 'U', got {UPLO}")
    vectors, values = lax.linalg.eigh(a, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(values, vectors)


def eigvalsh(a, UPLO="L", *, symmetrize_input=True):
    """The eigenvalues of symmetric (Hermitian) matrices, real, in ascending order."""
    return eigh(a, UPLO, symmetrize_input).eigenvalues


def eig(a):
    """The eigenvalues, in no particular order, and the right eigenvectors (columns) of matrices.

    a: [..., n, n]. The result is a named pair (eigenvalues, eigenvectors), both complex.
    """
    (a,) = _inexact("eig", a)
    w, v = lax.linalg.eig(a, compute_left_eigenvectors=False)
    return EigResult(w, v)


def eigvals(a):
    """The eigenvalues of square matrices, complex, in no particular order."""
    (a,) = _inexact("eigvals", a)
    return lax.linalg.eig(a, compute_left_eigenvectors=False,
                          compute_right_eigenvectors=False)[0]
