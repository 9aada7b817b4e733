"""Orthogonal reductions to condensed forms: Hessenberg and tridiagonal, in LAPACK's packed layout.

The results hold the condensed matrix and, beyond it, the Householder vectors, with their scales
apart: what `householder_product` takes.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...facts import of_matrices
from ...kernels.matrices.linalg import _each
from ...op import Sample
from ...support.lazy import lazy_import
from ...types import Shape
from .decompositions import _matrix, _positive, _real, _square, define

linalg = lazy_import("scipy.linalg")


def _hessenberg_results(types: Any, a: Shape, dtype: np.dtype) -> list[tuple]:
    _square(types, a, "Argument to Hessenberg reduction must have shape [..., n, n], got shape ")
    return [(a, dtype), ((max(a[0] - 1, 0),), dtype)]


def _hessenberg(lead: int, a: np.ndarray) -> list[np.ndarray]:
    def one(x: np.ndarray) -> tuple:
        if len(x) < 2:
            return x, np.zeros((0,), x.dtype)
        gehrd, = linalg.get_lapack_funcs(("gehrd",), (x,))
        packed, taus, info = gehrd(x)
        bad = info != 0
        return (np.full_like(packed, np.nan), np.full_like(taus, np.nan)) if bad else (packed, taus)
    return _each(one, a, ranks=(2,))


hessenberg_p = define(
    "hessenberg", "The upper Hessenberg form, Householder vectors below it, and their scales.",
    (2,), _hessenberg_results,
    evaluate=_hessenberg, cost=of_matrices(lambda m, n: 10 * n ** 3 / 3),
    jax="linalg.hessenberg_p.bind",
    samples=lambda: [Sample((_matrix(4, 4, 10),), grad=False)])


def _tridiagonal_results(types: Any, a: Shape, dtype: np.dtype, *, lower: bool) -> list[tuple]:
    _square(types, a, "Argument to tridiagonal reduction must have shape [..., n, n], got shape ")
    n = a[0]
    return [(a, dtype), ((n,), _real(dtype)), ((max(n - 1, 0),), _real(dtype)),
            ((max(n - 1, 0),), dtype)]


def _tridiagonal(lead: int, a: np.ndarray, *, lower: bool) -> list[np.ndarray]:
    """Reduce Hermitian matrices to tridiagonal form: (packed reflectors, diagonal, off-diagonal,
    scales). A reduction that fails gives NaN.
    """
    def one(x: np.ndarray) -> tuple:
        real = np.real(x).dtype
        if len(x) < 2:
            none = np.zeros((0,), real)
            d = np.real(np.diagonal(x)).astype(real)        # of a Hermitian matrix
            return np.real(x).astype(x.dtype), d, none, none.astype(x.dtype)
        name = "hetrd" if x.dtype.kind == "c" else "sytrd"
        reduce, = linalg.get_lapack_funcs((name,), (x,))
        packed, d, e, taus, info = reduce(x, lower=int(lower))
        if info != 0:
            packed, d, e, taus = (np.full_like(v, np.nan) for v in (packed, d, e, taus))
        # LAPACK touches one triangle; the other stays as it was given.
        other = np.triu(np.ones_like(x, bool), 1) if lower else np.tril(np.ones_like(x, bool), -1)
        return np.where(other, x, packed), d, e, taus
    return _each(one, a, ranks=(2,))


tridiagonal_p = define(
    "tridiagonal",
    "The tridiagonal form of Hermitian matrices, with Householder vectors beyond "
    "it; its diagonal, its off-diagonal, and the scales of the vectors.",
    (2,), _tridiagonal_results,
    evaluate=_tridiagonal, cost=of_matrices(lambda m, n: 4 * n ** 3 / 3),
    jax="linalg.tridiagonal_p.bind",
    samples=lambda: [Sample((_positive(4, 11),), {"lower": True}, grad=False)])
