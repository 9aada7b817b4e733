"""Decompositions of stacks of numpy matrices [..., m, n]: what the evaluators of linalg call.

numpy's routine is used if it supports stacks; otherwise scipy's LAPACK wrappers are looped over. A
problem that LAPACK refuses (not positive definite, not converged) gives NaN, as in JAX, and does
not affect the others of its stack.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...support.lazy import lazy_import
from ...support.threads import in_parallel, share_count
from . import small_matrices
from .blas_threads import LARGE

linalg = lazy_import("scipy.linalg")

Arrays = list[np.ndarray]
LAPACK_PACE = 1 << 7            # numpy's loops do so many elements in the time of one of a matrix
BRIEF = 1 << 12                 # multiply-adds of a system: threads wait for OpenBLAS's memory


def by_numpy(function: Callable[..., Any], *stacks: np.ndarray) -> Any:
    """A function of numpy's, which calls LAPACK for each matrix of a stack: of a long one, cores
    that are free take parts. Returns an array, or a list of those."""
    count, each = math.prod(stacks[0].shape[:-2]), math.prod(stacks[0].shape[-2:])
    threads = min(count, share_count(count * each * LAPACK_PACE)) if each < LARGE else 1
    if threads <= 1:
        return function(*stacks)
    flat = [x.reshape(count, *x.shape[-2:]) for x in stacks]
    step = -(-count // (4 * threads))
    starts, found = iter(range(0, count, step)), {}

    def some() -> None:
        for i in starts:
            found[i] = function(*(x[i:i + step] for x in flat))
    in_parallel([some] * threads)
    parts = [found[i] for i in sorted(found)]

    def joined(arrays: Any) -> np.ndarray:
        whole = np.concatenate(arrays)
        return whole.reshape(*stacks[0].shape[:-2], *whole.shape[1:])
    if isinstance(parts[0], np.ndarray):
        return joined(parts)
    return [joined(arrays) for arrays in zip(*parts, strict=True)]


def _each(function: Callable[..., Any], *stacks: np.ndarray, ranks: tuple[int, ...]) -> Arrays:
    """The results of `function` on every problem of the stacks, stacked."""
    batch = stacks[0].shape[:stacks[0].ndim - ranks[0]]
    count = int(np.prod(batch, dtype=int))
    flat = [x.reshape(count, *x.shape[x.ndim - r:]) for x, r in zip(stacks, ranks, strict=True)]
    if count == 0:
        cores = [np.zeros(x.shape[1:], x.dtype) for x in flat]
        return [np.zeros((*batch, *r.shape), r.dtype) for r in function(*cores)]
    results = [function(*(x[i] for x in flat)) for i in range(count)]
    return [np.stack(r).reshape(*batch, *r[0].shape) for r in zip(*results, strict=True)]


def _common(lead: int, *stacks: np.ndarray) -> Arrays:
    """The stacks with equal device dimensions."""
    sizes = tuple(max(x.shape[d] for x in stacks) for d in range(lead))
    return [np.broadcast_to(x, sizes + x.shape[lead:]) for x in stacks]


def finite_only(function: Callable[..., Arrays]) -> Callable[..., Arrays]:
    """`function`, whose results are NaN for matrices with NaN or infinities, which LAPACK refuses
    or does not converge for.
    """
    @functools.wraps(function)
    def evaluate(lead: int, a: np.ndarray, **params: Any) -> Arrays:
        good = np.asarray(np.isfinite(a).all((-1, -2)))
        if good.all():
            return function(lead, a, **params)
        results = function(lead, np.where(good[..., None, None], a, np.zeros((), a.dtype)),
                           **params)
        return [r if r is None or r.dtype.kind not in "fc" else np.where(
            good.reshape(good.shape + (1,) * (r.ndim - good.ndim)), r, np.full((), np.nan, r.dtype))
            for r in results]
    return evaluate


def cholesky(lead: int, a: np.ndarray) -> np.ndarray:
    """Cholesky factors of a stack. Should numpy refuse a matrix, the stack is factored one by one,
    so that the others keep their results.
    """
    def one(x: np.ndarray) -> list:
        try:
            return [np.linalg.cholesky(x)]
        except np.linalg.LinAlgError:
            return [np.full_like(x, np.nan)]

    flat = a.reshape(math.prod(a.shape[:-2]), *a.shape[-2:])
    if not small_matrices.is_tiny(flat):
        try:
            return by_numpy(np.linalg.cholesky, a)
        except np.linalg.LinAlgError:       # of one or more
            pass
    if small_matrices.is_small(flat):
        return small_matrices.cholesky(flat).reshape(a.shape)
    return _each(one, a, ranks=(2,))[0]


@finite_only
def svd(lead: int, a: np.ndarray, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any,
        algorithm: Any, only_values: bool = False) -> list[Any]:
    kept = slice(None) if subset_by_index is None else slice(*subset_by_index)
    if only_values or not compute_uv:
        values = by_numpy(functools.partial(np.linalg.svd, compute_uv=False), a)
        return [values[..., kept], *[None] * (2 * compute_uv)]
    u, s, vt = by_numpy(functools.partial(np.linalg.svd, full_matrices=full_matrices), a)
    if subset_by_index is not None and not full_matrices:
        u, s, vt = u[..., kept], s[..., kept], vt[..., kept, :]
    return [s, u, vt]


def apply_pivots(pivots: np.ndarray, size: int) -> np.ndarray:
    """Row i was exchanged with row pivots[i], in order; where each row of the result comes from.

    A row out of bounds is read as the nearest one, and not written, as in XLA.
    """
    batch = pivots.shape[:-1]
    flat = pivots.reshape(math.prod(batch), pivots.shape[-1])
    count = len(flat)
    order = np.repeat(np.arange(size, dtype=np.int32), count)      # the stack is the last dimension
    others = np.where(flat < 0, flat + size, flat).T
    nearest = others.clip(0, size - 1)
    places, written = nearest * count + np.arange(count), nearest == others
    everywhere = written.all()
    for i, (at, there) in enumerate(zip(places, written, strict=True)):
        row = order[i * count:(i + 1) * count]
        mine = row.copy()
        row[...] = order[at]
        if everywhere:
            order[at] = mine
        else:
            order[at[there]] = mine[there]
    return order.reshape(size, count).T.copy().reshape(*batch, size)


def lu(lead: int, a: np.ndarray, *, only_factors: bool = False) -> list[Any]:
    """Factors, row exchanges, and their permutation; only_factors: that one is not needed."""
    *batch, m, n = a.shape
    flat = a.reshape(math.prod(batch), m, n)
    packed, pivots = (small_matrices.lu if small_matrices.is_factored(flat) else _lu_of_each)(flat)
    pivots = pivots.reshape(*batch, min(m, n))
    return [packed.reshape(a.shape), pivots, None if only_factors else apply_pivots(pivots, m)]


def _lu_of_each(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By LAPACK, which writes over matrices that lie as in Fortran: by columns."""
    getrf, = linalg.get_lapack_funcs(("getrf",), (a,))
    columns = np.array(a.swapaxes(1, 2), getrf.dtype, order="C")
    pivots = np.empty((len(a), min(a.shape[1:])), np.int32)
    for i, x in enumerate(columns if a.size else ()):
        _, pivots[i], _ = getrf(x.T, overwrite_a=True)
    return np.ascontiguousarray(columns.swapaxes(1, 2)), pivots


@finite_only
def qr(lead: int, a: np.ndarray, *, pivoting: bool, full_matrices: bool, use_magma: Any,
       only_triangles: bool = False) -> list[Any]:
    """QR decompositions: by numpy, or, with pivoting, one by one by LAPACK. only_triangles: Q is
    not needed.
    """
    if only_triangles and not pivoting and not full_matrices:
        return [None, by_numpy(functools.partial(np.linalg.qr, mode="r"), a)]
    if not pivoting:
        mode = "complete" if full_matrices else "reduced"
        return list(by_numpy(functools.partial(np.linalg.qr, mode=mode), a))

    def one(x: np.ndarray) -> tuple:
        q, r, p = linalg.qr(x, mode="full" if full_matrices else "economic", pivoting=True)
        return q, r, p.astype(np.int32)
    return _each(one, a, ranks=(2,))


def geqrf(a: np.ndarray) -> Arrays:
    packed, taus = np.linalg.qr(a, "raw")
    return [np.swapaxes(packed, -1, -2), taus]


def householder_product(a: np.ndarray, taus: np.ndarray) -> np.ndarray:
    """H_1 H_2 ... H_k times the first columns of the identity; H_i = 1 - tau_i v_i v_i^H."""
    *_, m, n = a.shape
    batch = np.broadcast_shapes(a.shape[:-2], taus.shape[:-1])
    q = np.broadcast_to(np.eye(m, n, dtype=a.dtype), (*batch, m, n)).copy()
    for i in reversed(range(taus.shape[-1])):
        v = np.concatenate([np.zeros_like(a[..., :i, i]), np.ones_like(a[..., i:i + 1, i]),
                            a[..., i + 1:, i]], -1)
        along = v[..., None, :].conj() @ q
        q -= taus[..., i, None, None] * v[..., :, None] * along
    return q


@finite_only
def eig(lead: int, a: np.ndarray, *, compute_left_eigenvectors: bool,
        compute_right_eigenvectors: bool, **params: Any) -> Arrays:
    """Eigenvalues, and the eigenvectors that are asked for, of general matrices, one by one."""
    left, right = compute_left_eigenvectors, compute_right_eigenvectors

    def one(x: np.ndarray) -> list[np.ndarray]:
        kind = np.result_type(x.dtype, np.complex64)
        found = linalg.eig(x, left=left, right=right, check_finite=False)
        found = found if isinstance(found, tuple) else (found,)
        return [np.asarray(f).astype(kind) for f in found]
    return _each(one, a, ranks=(2,))


@finite_only
def schur(lead: int, a: np.ndarray, *, compute_schur_vectors: bool, sort_eig_vals: bool,
          select_callable: Any) -> Arrays:
    kind = "complex" if a.dtype.kind == "c" else "real"
    out = _each(lambda x: linalg.schur(x, output=kind), a, ranks=(2,))
    return out if compute_schur_vectors else out[:1]


def triangular_solve(lead: int, a: np.ndarray, b: np.ndarray, *, left_side: bool, lower: bool,
                     transpose_a: bool, conjugate_a: bool, unit_diagonal: bool) -> np.ndarray:
    """Solve triangular systems: stacks of tiny matrices all at once in numpy, others one by one
    with BLAS's trsm.
    """
    a, b = _common(lead, a, b)
    trsm, = linalg.get_blas_funcs(("trsm",), (a, b))
    if conjugate_a:
        a = a.conj()
    if 0 in b.shape:
        return np.array(b)

    def each(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """By BLAS, which reads and writes over matrices that lie as in Fortran: by columns."""
        columns = np.array(y.swapaxes(1, 2), trsm.dtype, order="C")
        for one, other in zip(x, columns, strict=True):
            trsm(1.0, one.T, other.T, side=not left_side, lower=not lower,
                 trans_a=int(not transpose_a), diag=unit_diagonal, overwrite_b=True)
        return np.ascontiguousarray(columns.swapaxes(1, 2))

    def at_once(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if not left_side:                       # x a = b is a^T x^T = b^T
            y = y.swapaxes(1, 2)
        flips = transpose_a == left_side
        found = small_matrices.triangular_solve(
            x.swapaxes(1, 2) if flips else x, y, lower != flips, unit_diagonal)
        return found if left_side else found.swapaxes(1, 2)
    matrices, sides = (x.reshape(-1, *x.shape[-2:]) for x in (a, b))
    solve = at_once if small_matrices.is_solved(matrices, sides) else each
    return solve(matrices, sides).reshape(b.shape)


def solve(lead: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x with a x = b. Where a matrix is singular, what its factors give."""
    if a.shape[:lead] == b.shape[:lead]:
        try:
            brief = a.shape[-1] ** 2 * b.shape[-1] < BRIEF
            return np.linalg.solve(a, b) if brief else by_numpy(np.linalg.solve, a, b)
        except np.linalg.LinAlgError:       # of one or more
            pass
    packed, _, order = lu(lead, a)
    packed, order, b = _common(lead, packed, order, b)
    x = np.take_along_axis(b, order[..., None], -2)
    for lower in (True, False):
        x = triangular_solve(lead, packed, x, left_side=True, lower=lower, transpose_a=False,
                             conjugate_a=False, unit_diagonal=lower)
    return x


def tridiagonal_solve(lead: int, dl: np.ndarray, d: np.ndarray, du: np.ndarray, b: np.ndarray, *,
                      perturb_singular: bool) -> np.ndarray:
    """Solve tridiagonal systems with LAPACK. dl, d, du: the diagonals, of which dl[0] and du[-1] do
    not count. perturb_singular: shift pivots that are too small, so that singular systems have
    finite solutions.
    """
    dl, d, du, b = _common(lead, dl, d, du, b)

    def perturbed(low: np.ndarray, on: np.ndarray, high: np.ndarray, x: np.ndarray
                  ) -> list[np.ndarray]:
        """With pivots that are zero, or would make infinities, moved away from zero by the
        precision of the largest."""
        n, limits = len(on), np.finfo(x.dtype)
        factor, solve = linalg.get_lapack_funcs(("gttrf", "gttrs"), (on, x))
        # LAPACK's wrappers want three rows; further ones, of the identity, stand apart.
        more = max(0, 3 - n)
        low, high = np.pad(low[1:], (0, more)), np.pad(high[:-1], (0, more))
        on = np.pad(on, (0, more), constant_values=1)
        low, on, high, second, pivots, _ = factor(low, on, high)
        own = on[:n]
        largest = max(np.abs(part).max() for part in (own, high[:n - 1], second[:max(n - 2, 0)])
                      if len(part))
        too_small = limits.tiny * max(1.0, np.abs(x).max(initial=0))
        least, small = max(limits.eps * largest, too_small), np.abs(own) <= too_small
        on[:n] = np.where(small, np.where(np.real(own) < 0, -least, least), own)
        return [solve(low, on, high, second, pivots, np.pad(x, ((0, more), (0, 0))))[0][:n]]

    if perturb_singular:
        return _each(perturbed, dl, d, du, b, ranks=(1, 1, 1, 2))[0]

    def one(low: np.ndarray, on: np.ndarray, high: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
        if len(on) == 1:
            return [x / on[0]]
        gtsv, = linalg.get_lapack_funcs(("gtsv",), (on, x))
        *_, solution, info = gtsv(low[1:], on, high[:-1], x)
        return [solution if info == 0 else np.full_like(x, np.nan)]
    return _each(one, dl, d, du, b, ranks=(1, 1, 1, 2))[0]
