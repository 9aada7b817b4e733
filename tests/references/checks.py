"""What is true of results where many are right, such as eigenvectors; see ops.py."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .elements import Array


def close(a: Array, b: Array) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def dagger(x: Array) -> Array:
    return x.conj().swapaxes(-1, -2)


def times(*matrices: Array) -> Array:
    out = matrices[0]
    for m in matrices[1:]:
        out = np.einsum("...ij,...jk->...ik", out, m, optimize=False)
    return out


def orthonormal(q: Array) -> None:
    close(times(dagger(q), q), np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2],
                                                                     *[q.shape[-1]] * 2)))


def reflected(a: Array, taus: Array) -> Array:
    """The product of the reflections whose vectors lie below the diagonal of `a`."""
    m, out = a.shape[-2], np.eye(a.shape[-2], dtype=a.dtype)
    for k in range(taus.shape[-1]):
        v = np.concatenate([np.zeros(k), [1], a[k + 1:, k]])
        out = times(out, np.eye(m) - taus[k] * np.outer(v, v.conj()))
    return out


def check_qr(operands: Sequence[Array], out: Sequence[Array], params: dict[str, Any]) -> None:
    q, r, *order = out
    orthonormal(q)
    close(np.tril(r, -1), np.zeros_like(r))
    a = operands[0] if not order else np.take(operands[0], order[0], -1)
    close(times(q, r), a)


def check_svd(operands: Sequence[Array], out: Sequence[Array], params: dict[str, Any]) -> None:
    s = out[0]
    assert (s >= 0).all() and (np.diff(s) <= 0).all()
    close((s ** 2).sum(), (np.abs(operands[0]) ** 2).sum())
    if params["compute_uv"]:
        u, vh = out[1:]
        orthonormal(u)
        orthonormal(dagger(vh))
        k = s.shape[-1]
        close(times(u[..., :k] * s[..., None, :], vh[..., :k, :]), operands[0])


def check_eigh(operands: Sequence[Array], out: Sequence[Array], params: dict[str, Any]) -> None:
    (a,), (v, w) = operands, out
    orthonormal(v)
    assert (np.diff(w) >= 0).all()
    lower = np.tril(a) + dagger(np.tril(a, -1))
    close(times(lower, v), v * w[..., None, :])


def check_eig(operands: Sequence[Array], out: Sequence[Array], params: dict[str, Any]) -> None:
    w, v = out
    close(times(operands[0].astype(np.complex128), v), v * w[..., None, :])
    close(np.linalg.norm(v, axis=-2), np.ones_like(w.real))


def check_schur(operands: Sequence[Array], out: Sequence[Array], params: dict[str, Any]) -> None:
    t, z = out
    orthonormal(z)
    close(times(z, t, dagger(z)), operands[0])
    close(np.tril(t, -2), np.zeros_like(t))


def check_geqrf(operands: Sequence[Array], out: Sequence[Array], params: dict[str, Any]) -> None:
    a, taus = out
    close(times(reflected(a, taus), np.triu(a)), operands[0])


def check_householder(operands: Sequence[Array], out: Sequence[Array], params: dict[str, Any]
                      ) -> None:
    a, taus = operands
    close(out[0], reflected(a, taus)[:, :a.shape[1]])


def check_hessenberg(operands: Sequence[Array], out: Sequence[Array], params: dict[str, Any]
                     ) -> None:
    a, taus = out
    n, q = len(a), np.eye(len(a), dtype=a.dtype)
    q[1:, 1:] = reflected(a[1:, :n - 1], taus)
    close(times(q, np.triu(a, -1), dagger(q)), operands[0])


def check_tridiagonal(operands: Sequence[Array], out: Sequence[Array], params: dict[str, Any]
                      ) -> None:
    """The form has the eigenvalues of the matrix: the same traces of all powers."""
    _, d, e, _ = out
    t = np.diag(d) + np.diag(e, -1) + np.diag(e, 1)
    a = np.tril(operands[0]) + dagger(np.tril(operands[0], -1))
    left, right = t, a
    for _ in range(len(a)):
        close(np.trace(left), np.trace(right))
        left, right = times(left, t), times(right, a)


CHECKS: dict[str, Callable[..., None]] = {
    "qr": check_qr, "svd": check_svd, "eigh": check_eigh, "eig": check_eig, "schur": check_schur,
    "geqrf": check_geqrf, "householder_product": check_householder,
    "hessenberg": check_hessenberg, "tridiagonal": check_tridiagonal}
