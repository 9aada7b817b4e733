"""Matrices of a known form, as in `jax.scipy.linalg`: from vectors, or of a size alone.

Those of a size alone are constants, taken from scipy.
"""
from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.support.lazy import lazy_import
from .. import jnp
from ..operands.dtype_promotion import check_arraylike, promote_dtypes_inexact, strong
from ..operands.scalars import float_default

_known = lazy_import("scipy.linalg")


def circulant(c):
    """The matrix whose columns are the last dimension of c, each turned one further.

    >>> from shardtrace.scipy.linalg import circulant
    >>> circulant(jnp.array([1, 2, 3]))
    Array([[1, 3, 2],
           [2, 1, 3],
           [3, 2, 1]], dtype=int32)
    """
    check_arraylike("circulant", c)
    c = jnp.atleast_1d(jnp.asarray(c))
    n = np.arange(c.shape[-1])
    return c[..., (n[:, None] - n) % max(c.shape[-1], 1)]


def toeplitz(c, r=None):
    """The matrix with constant diagonals, first column c and first row r (conj(c) if None).

    Of c and r with more dimensions, whose others broadcast, one for each vector.
    """
    c, r = _vectors(c, jnp.conj(jnp.asarray(c)) if r is None else r)
    line = strong(jnp.concatenate([jnp.flip(c, -1), r[..., 1:]], axis=-1))
    m = c.shape[-1]
    return line[..., (m - 1 - np.arange(m))[:, None] + np.arange(r.shape[-1])]


def hankel(c, r=None):
    """The matrix with constant anti-diagonals, first column c and last row r (zeros if None).

    Of c and r with more dimensions, whose others broadcast, one for each vector.
    """
    check_arraylike("hankel", c, *(() if r is None else (r,)))
    for name, x in (("c", c), ("r", r)):
        if x is not None and not jnp.ndim(x):
            raise ValueError(f"hankel: {name} must be at least 1-dimensional, got a scalar.")
    c, r = _vectors(c, jnp.zeros_like(c) if r is None else r)
    line = jnp.concatenate([c, r[..., 1:]], axis=-1)
    return line[..., np.arange(c.shape[-1])[:, None] + np.arange(r.shape[-1])]


def _vectors(c: Any, r: Any) -> list[Any]:
    """Both as vectors, in dimensions that broadcast."""
    vectors = [jnp.atleast_1d(jnp.asarray(v)) for v in (c, r)]
    batch = np.broadcast_shapes(*[v.shape[:-1] for v in vectors])
    return [jnp.broadcast_to(v, (*batch, v.shape[-1])) for v in vectors]


def companion(a):
    """The companion matrix of the polynomial with coefficients a, greatest power first."""
    check_arraylike("companion", a)
    (a,) = promote_dtypes_inexact(jnp.asarray(a))
    n = a.shape[-1] if a.ndim else 0
    if n < 2:
        raise ValueError("The length of `a` along the last axis must be at least 2; got shape "
                         f"{a.shape}.")
    first = -a[..., 1:] / a[..., :1]
    below = jnp.broadcast_to(jnp.eye(n - 2, n - 1, dtype=a.dtype), (*a.shape[:-1], n - 2, n - 1))
    return jnp.concatenate([first[..., None, :], below], axis=-2)


def fiedler(a):
    """The symmetric matrix of the distances between elements: `abs(a[i] - a[j])`."""
    check_arraylike("fiedler", a)
    a = jnp.atleast_1d(jnp.asarray(a))
    return jnp.abs(a[..., :, None] - a[..., None, :])


def fiedler_companion(a):
    """A matrix with five diagonals and the polynomial's roots as eigenvalues, from a as in
    `companion`.
    """
    check_arraylike("fiedler_companion", a)
    (a,) = promote_dtypes_inexact(jnp.atleast_1d(jnp.asarray(a)))
    n = a.shape[-1] - 1
    if n < 0:
        raise ValueError("fiedler_companion requires the last axis of 'a' to have nonzero length, "
                         f"but got an array of shape {a.shape}.")
    if n < 1:
        return jnp.zeros((*a.shape[:-1], 0, 0), a.dtype)
    a = a / a[..., :1]
    if n == 1:
        return -a[..., 1:, None]
    c = jnp.zeros((*a.shape[:-1], n, n), a.dtype)
    c = c.at[..., np.arange(3, n, 2), np.arange(1, n - 2, 2)].set(1)
    c = c.at[..., np.arange(2, n, 2), np.arange(1, n, 2)[:len(range(2, n, 2))]].set(-a[..., 3::2])
    c = c.at[..., np.arange(0, n - 2, 2), np.arange(2, n, 2)].set(1)
    c = c.at[..., np.arange(0, n - 1, 2), np.arange(1, n, 2)].set(-a[..., 2::2])
    return c.at[..., 0, 0].set(-a[..., 1]).at[..., 1, 0].set(1)


def convolution_matrix(a, n, mode="full"):
    """The matrix that convolves a vector of length n with the last dimension of a.

    mode: "full", "same" or "valid", as in `numpy.convolve`.
    """
    n = operator.index(n)
    if n <= 0:
        raise ValueError(f"n must be a positive integer; got {n}.")
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"mode must be one of 'full', 'valid', 'same'; got {mode!r}.")
    check_arraylike("convolution_matrix", a)
    a = jnp.asarray(a)
    if not a.ndim or not a.shape[-1]:
        raise ValueError(f"len(a) must be at least 1; got shape {a.shape}.")
    m = a.shape[-1]
    start, rows = {"full": (0, n + m - 1), "same": ((min(n, m) - 1) // 2, max(n, m)),
                   "valid": (min(n, m) - 1, max(n, m) - min(n, m) + 1)}[mode]
    places = (start + np.arange(rows))[:, None] - np.arange(n)
    inside = (places >= 0) & (places < m)
    return jnp.where(inside, a[..., np.clip(places, 0, m - 1)], 0)


def leslie(f, s):
    """The Leslie matrix of fecundities f and survival rates s, one fewer."""
    check_arraylike("leslie", f, s)
    f, s = promote_dtypes_inexact(jnp.atleast_1d(jnp.asarray(f)), jnp.atleast_1d(jnp.asarray(s)))
    n = f.shape[-1]
    if n < 2:
        raise ValueError("The length of f along the last axis must be at least 2; got shape "
                         f"{f.shape}.")
    if s.shape[-1] != n - 1:
        raise ValueError("Incorrect lengths for f and s. The length of s along the last axis must "
                         f"be one less than the length of f; got f shape {f.shape} and s shape "
                         f"{s.shape}.")
    batch = np.broadcast_shapes(f.shape[:-1], s.shape[:-1])
    out = jnp.zeros((*batch, n, n), f.dtype).at[..., 0, :].set(f)
    return out.at[..., np.arange(1, n), np.arange(n - 1)].set(s)


def _size(name: str, n: int) -> int:
    n = operator.index(n)
    if n < 0:
        raise ValueError(f"{name}: the size is at least 0, got {n}")
    return n


def dft(n, scale=None, *, dtype=None):
    """The matrix of the discrete Fourier transform. scale: None, "sqrtn" or "n"."""
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; got {scale!r}.")
    if dtype is not None and not issubdtype(dtype, np.complexfloating):
        raise ValueError("dtype must be a complex floating-point type; got "
                         f"{np.dtype(dtype).name}.")
    matrix = _known.dft(_size("dft", n), scale)
    return jnp.asarray(matrix, jnp.complex128 if dtype is None and float_default().itemsize == 8
                       else dtype or jnp.complex64)


def hadamard(n, dtype=int):
    """The Hadamard matrix of size n, a power of two: 1 and -1, with orthogonal rows."""
    n = operator.index(n)
    if n < 1 or n & (n - 1):
        raise ValueError(f"n must be a positive power of 2; got {n}.")
    return jnp.asarray(_known.hadamard(n), dtype)


def helmert(n, full=False):
    """The Helmert matrix of size n; without its constant first row unless `full`."""
    n = operator.index(n)
    if n < 1:
        raise ValueError(f"n must be a positive integer; got {n}.")
    return jnp.asarray(_known.helmert(n, full), float_default())


def hilbert(n):
    """The Hilbert matrix of size n: `1 / (i + j + 1)`, which is nearly singular."""
    return jnp.asarray(_known.hilbert(_size("hilbert", n)), float_default())


def invhilbert(n):
    """The inverse of the Hilbert matrix: whole numbers, as floats."""
    return jnp.asarray(_known.invhilbert(_size("invhilbert", n)), float_default())


_KINDS = {None: "symmetric", "symmetric": "symmetric", "lower": "lower", "upper": "upper"}


def pascal(n, kind=None):
    """The matrix of binomial coefficients. kind: "symmetric" (the default), "lower", "upper"."""
    if kind not in _KINDS:
        raise ValueError("Expected kind to be on of: ['symmetric', 'lower', 'upper']; got "
                         f"{kind}")
    n = _size("pascal", n)
    lower = np.array([[math.comb(i, j) for j in range(n)] for i in range(n)],
                     float).reshape(n, n)
    return jnp.asarray({"symmetric": lower @ lower.T, "lower": lower, "upper": lower.T}[
        _KINDS[kind]], float_default())


def invpascal(n, kind=None):
    """The inverse of the matrix that `pascal` gives: whole numbers, as floats."""
    if kind not in _KINDS:
        raise ValueError("Expected kind to be one of: ['symmetric', 'lower', 'upper']; got "
                         f"{kind}")
    n = _size("invpascal", n)
    lower = np.array([[(-1) ** (i + j) * math.comb(i, j) for j in range(n)] for i in range(n)],
                     float).reshape(n, n)
    return jnp.asarray({"symmetric": lower.T @ lower, "lower": lower, "upper": lower.T}[
        _KINDS[kind]], float_default())
