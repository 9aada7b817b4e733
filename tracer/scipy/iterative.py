"""Iterative solution of A x = b for a linear function A on pytrees: cg, bicgstab, gmres.

Derivatives come from the equation (`custom_linear_solve`), not from the iterations; the transposed
system is solved by the same method. Source: `jax.scipy.sparse.linalg`; Saad, "Iterative Methods for
Sparse Linear Systems", 2003.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.dtypes import finfo, issubdtype
from ...ir.values.array import Array
from .. import jnp, lax
from ..autodiff.solves import custom_linear_solve
from ..trees import tree
from ..trees.tree_api import PyTreeDef

Linear = Callable[[Any], Any]


# -- vectors that are pytrees ----------------------------------------------------------------------

def _dot(x: Any, y: Any) -> Any:
    """The inner product, x conjugated."""
    terms = [jnp.vdot(a, b, precision="highest") for a, b in zip(
        tree.leaves(x), tree.leaves(y), strict=True)]
    return functools.reduce(lambda a, b: a + b, terms)


def _real_dot(x: Any, y: Any) -> Any:
    return jnp.real(_dot(x, y))


def _norm(x: Any) -> Any:
    return jnp.sqrt(_real_dot(x, x))


def _plus(x: Any, a: Any, y: Any) -> Any:
    """x + a y."""
    return tree.map(lambda u, v: u + jnp.asarray(a, v.dtype) * v, x, y)


def _minus(x: Any, y: Any) -> Any:
    return tree.map(lambda u, v: u - v, x, y)


def _same(x: Any) -> Any:
    return x


def _as_function(f: Any) -> Linear:
    """A linear function, of a square matrix or of what is a function already."""
    if callable(f):
        return f
    if isinstance(f, (np.ndarray, Array)) or hasattr(f, "__matmul__"):
        if getattr(f, "ndim", 2) != 2 or f.shape[0] != f.shape[1]:
            raise ValueError(f"linear operator must be a square matrix, but has shape: {f.shape}")
        if isinstance(f, (np.ndarray, Array)):
            return lambda x: jnp.dot(f, x, precision="highest")
        return lambda x: f @ x
    raise TypeError(f"linear operator must be either a function or ndarray: {f}")


def _prepared(A: Any, b: Any, x0: Any, M: Any) -> tuple[Linear, Any, Any, Linear]:
    """(A, b, first guess, preconditioner), checked, A and M as functions."""
    b = tree.map(jnp.asarray, b)
    x0 = tree.map(jnp.zeros_like, b) if x0 is None else tree.map(jnp.asarray, x0)
    A, M = _as_function(A), _same if M is None else _as_function(M)
    structures = PyTreeDef(tree.structure(x0)), PyTreeDef(tree.structure(b))
    if structures[0] != structures[1]:
        raise ValueError("x0 and b must have matching tree structure: "
                         f"{structures[0]} vs {structures[1]}")
    shapes = [[x.shape for x in tree.leaves(t)] for t in (x0, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"arrays in x0 and b must have matching shapes: {shapes[0]} vs "
                         f"{shapes[1]}")
    return A, b, x0, M


def _size(b: Any) -> int:
    return sum(x.size for x in tree.leaves(b))


def _threshold(b: Any, tol: Any, atol: Any) -> Any:
    """The square of the residual's norm at which to stop."""
    return jnp.maximum(jnp.square(tol) * _real_dot(b, b), jnp.square(atol))


# -- conjugate gradients ---------------------------------------------------------------------------

def cg(A, b, x0=None, *, tol=1e-5, atol=0.0, maxiter=None, M=None):
    """x with A(x) = b for a Hermitian positive definite A, by conjugate gradients: `(x, None)`.

    A: a matrix, or a function on pytrees like b. M: approximates the inverse of A. The residual's
    norm is brought below max(tol |b|, atol), in at most `maxiter` steps (10 per element of b).
    Raises ValueError where shapes or structures differ.

    >>> import shardtrace.numpy as jnp
    >>> from shardtrace.scipy.sparse.linalg import cg
    >>> cg(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 8.0]))[0]
    Array([1., 2.], dtype=float32)
    """
    A, b, x0, M = _prepared(A, b, x0, M)
    steps = 10 * _size(b) if maxiter is None else maxiter

    def solve(A: Linear, b: Any) -> Any:
        stop = _threshold(b, tol, atol)
        r = _minus(b, A(x0))
        p = M(r)

        def unfinished(state: Any) -> Any:
            _, r, _, _, k = state
            return (_real_dot(r, r) > stop) & (k < steps)

        def step(state: Any) -> Any:
            x, r, rz, p, k = state
            ap = A(p)
            alpha = rz / _real_dot(p, ap)
            x, r = _plus(x, alpha, p), _plus(r, -alpha, ap)
            z = M(r)
            new = _real_dot(r, z)
            return x, r, new, _plus(z, new / rz, p), k + 1

        return lax.while_loop(unfinished, step, (x0, r, _real_dot(r, p), p, 0))[0]

    real = not any(issubdtype(x.dtype, np.complexfloating) for x in tree.leaves(b))
    return custom_linear_solve(A, b, solve, solve, symmetric=real), None


# -- stabilised biconjugate gradients --------------------------------------------------------------

def bicgstab(A, b, x0=None, *, tol=1e-5, atol=0.0, maxiter=None, M=None):
    """x with A(x) = b for a general A, by stabilised biconjugate gradients: `(x, None)`; see `cg`.

    >>> import shardtrace.numpy as jnp
    >>> from shardtrace.scipy.sparse.linalg import bicgstab
    >>> bicgstab(jnp.array([[2.0, 0.0], [0.0, 2.0]]), jnp.array([2.0, 8.0]))[0]
    Array([1., 4.], dtype=float32)
    """
    A, b, x0, M = _prepared(A, b, x0, M)
    steps = 10 * _size(b) if maxiter is None else maxiter

    def solve(A: Linear, b: Any) -> Any:
        stop = _threshold(b, tol, atol)
        r0 = _minus(b, A(x0))
        one = jnp.ones((), jnp.result_type(*tree.leaves(b)))

        def unfinished(state: Any) -> Any:
            _, r, *_, k = state
            return (_real_dot(r, r) > stop) & (k < steps) & (k >= 0)

        def step(state: Any) -> Any:
            x, r, alpha, omega, rho, p, q, k = state
            new_rho = _dot(r0, r)
            p = _plus(r, new_rho / rho * alpha / omega, _plus(p, -omega, q))
            moved = M(p)
            q = A(moved)
            alpha = new_rho / _dot(r0, q)
            s = _plus(r, -alpha, q)
            early = _real_dot(s, s) < stop
            second = M(s)
            t = A(second)
            omega = _dot(t, s) / _dot(t, t)
            x = _plus(x, alpha, moved)
            x = tree.map(lambda a, c: jnp.where(early, a, c), x, _plus(x, omega, second))
            r = tree.map(lambda a, c: jnp.where(early, a, c), s, _plus(s, -omega, t))
            broken = (omega == 0) | (alpha == 0) | (new_rho == 0)
            return x, r, alpha, omega, new_rho, p, q, jnp.where(broken, -10, k + 1)

        return lax.while_loop(unfinished, step, (x0, r0, one, one, one, r0, r0, 0))[0]

    return custom_linear_solve(A, b, solve, solve), None


# -- generalised minimal residuals -----------------------------------------------------------------

def _normalized(x: Any, least: Any = None) -> tuple[Any, Any]:
    """(x / |x|, |x|), both 0 where |x| is not above `least` (the rounding of its dtype)."""
    norm = _norm(x)
    least = jnp.asarray(finfo(norm.dtype).eps if least is None else least, norm.dtype)
    some = norm > least
    unit = tree.map(lambda y: jnp.where(some, y / norm.astype(y.dtype), jnp.zeros_like(y)), x)
    return unit, jnp.where(some, norm, jnp.zeros_like(norm))


def _basis(first: Any, count: int) -> Any:
    """Space for `count` more vectors after a first one, stacked in a new last dimension."""
    return tree.map(lambda x: jnp.pad(x[..., None], ((0, 0),) * x.ndim + ((0, count),)), first)


def _overlaps(basis: Any, v: Any) -> Any:
    terms = [jnp.einsum("...n,...->n", jnp.conj(q), x, precision="highest") for q, x in zip(
        tree.leaves(basis), tree.leaves(v), strict=True)]
    return functools.reduce(lambda a, b: a + b, terms)


def _combined(basis: Any, weights: Any) -> Any:
    return tree.map(lambda q: jnp.dot(q, weights, precision="highest"), basis)


def _cycle(A: Linear, b: Any, x: Any, residual: Any, norm: Any, restart: int, M: Linear) -> Any:
    """One restart: the least residual in the Krylov space of `restart` dimensions."""
    basis = _basis(residual, restart)
    dtype = jnp.result_type(*tree.leaves(b))
    projected = jnp.eye(restart, restart + 1, dtype=dtype)

    def unfinished(state: Any) -> Any:
        _, _, broken, k = state
        return (k < restart) & ~broken

    def step(state: Any) -> Any:
        basis, projected, _, k = state
        v = M(A(tree.map(lambda q: lax.dynamic_index_in_dim(q, k, q.ndim - 1, False), basis)))
        _, before = _normalized(v)
        row = jnp.zeros((restart + 1,), dtype)
        for _ in range(2):                    # Gram-Schmidt twice is enough
            h = _overlaps(basis, v)
            v, row = _minus(v, _combined(basis, h)), row + h
        unit, after = _normalized(v, finfo(dtype).eps * before)
        basis = tree.map(lambda q, y: lax.dynamic_update_index_in_dim(q, y, k + 1, q.ndim - 1),
                         basis, unit)
        row = lax.dynamic_update_index_in_dim(row, after.astype(dtype), k + 1, 0)
        projected = lax.dynamic_update_index_in_dim(projected, row, k, 0)
        return basis, projected, after == 0, k + 1

    basis, projected, _, _ = lax.while_loop(
        unfinished, step, (basis, projected, jnp.asarray(False), 0))
    target = jnp.zeros((restart + 1,), dtype).at[0].set(norm.astype(dtype))
    normal = jnp.matmul(jnp.conj(projected), projected.T, precision="highest")
    weights = jnp.linalg.solve(normal, jnp.dot(jnp.conj(projected), target, precision="highest"))
    step_taken = _combined(tree.map(lambda q: q[..., :-1], basis), weights)
    x = tree.map(lambda u, v: u + v, x, step_taken)
    return x, *_normalized(M(_minus(b, A(x))))


def gmres(A, b, x0=None, *, tol=1e-5, atol=0.0, restart=20, maxiter=None, M=None,
          solve_method="batched"):
    """x with A(x) = b for a general A, by GMRES: `(x, info)`, info -1 where x is NaN, else 0.

    restart: the dimension of the Krylov spaces; maxiter: how many of them at most. See `cg` for the
    rest. solve_method: "batched" or "incremental"; both solve a least squares problem per space.

    >>> import shardtrace.numpy as jnp
    >>> from shardtrace.scipy.sparse.linalg import gmres
    >>> gmres(jnp.array([[0.0, 2.0], [-2.0, 0.0]]), jnp.array([2.0, 8.0]))[0].round(3)
    Array([-4.,  1.], dtype=float32)
    """
    if solve_method not in ("batched", "incremental"):
        raise ValueError(f"invalid solve_method {solve_method}, must be either 'incremental' or "
                         "'batched'")
    A, b, x0, M = _prepared(A, b, x0, M)
    size = _size(b)
    cycles = 10 * size if maxiter is None else maxiter
    dims = min(restart, size)
    stop = jnp.maximum(tol * _norm(b), atol)

    def solve(A: Linear, b: Any) -> Any:
        def unfinished(state: Sequence[Any]) -> Any:
            _, _, norm, k = state
            return (k < cycles) & (norm > stop)

        def step(state: Sequence[Any]) -> Any:
            x, residual, norm, k = state
            return *_cycle(A, b, x, residual, norm, dims, M), k + 1

        residual, norm = _normalized(M(_minus(b, A(x0))))
        return lax.while_loop(unfinished, step, (x0, residual, norm, 0))[0]

    x = custom_linear_solve(A, b, solve, solve)
    return x, jnp.where(jnp.isnan(_norm(x)), -1, 0)
