"""Functions of matrices and factors, as in `jax.scipy.linalg`: square roots, polar, Sylvester.

Functions of a matrix go by its complex Schur form: for a triangular matrix T the columns of f(T)
follow one after the other from its diagonal (Parlett, "A recurrence among the elements of functions
of triangular matrices", 1976; for square roots: Bjorck and Hammarling, 1983).
"""
from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .. import jnp, lax
from ..jnp.indexing.searching import choose_where as where
from ..operands.dtype_promotion import promote_dtypes_inexact
from .dense import expm, qr, schur


def _square(name: str, a: Any) -> Any:
    (a,) = promote_dtypes_inexact(jnp.asarray(a))
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"{name}: expected a square matrix, got an array of shape {a.shape}")
    return a


def rsf2csf(T, Z, check_finite=True):
    """The complex Schur form from a real one: (T, Z) with `Z T Z^H` as before, T triangular.

    Dimensions in front of the matrices are broadcast.
    """
    t, z = promote_dtypes_inexact(jnp.asarray(T), jnp.asarray(Z))
    for name, x in (("Z", z), ("T", t)):
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError(f"Input '{name}' must be square.")
    if t.shape[-1] != z.shape[-1]:
        raise ValueError(f"Input array shapes must match: Z: {z.shape} vs. T: {t.shape}")
    wide = jnp.result_type(t, jnp.complex64)
    one: Any = jnp.vectorize(_triangular, signature="(n,n),(n,n)->(n,n),(n,n)")
    return one(t.astype(wide), z.astype(wide))


def _triangular(t: Any, z: Any) -> Any:
    """(T, Z) of a real Schur form made triangular: Givens rotations remove the elements below the
    diagonal, from the last column to the first.
    """
    n, eps = t.shape[0], jnp.finfo(t.dtype).eps

    def turned(k: Any, carry: Any) -> Any:
        """Zero below the diagonal in column n - 2 - k, by a rotation of two rows and columns."""
        t, z = carry
        m = n - 1 - k
        rows = jnp.array([0, 1]) + m - 1
        block = t[rows[:, None], rows]
        mu = jnp.linalg.eigvals(block)[0] - block[1, 1]
        below = block[1, 0]
        r = jnp.sqrt(jnp.abs(mu) ** 2 + jnp.abs(below) ** 2)
        r = where(r == 0, 1, r)
        c, s = mu / r, below / r
        g = jnp.array([[jnp.conj(c), s], [-s, c]])
        at = jnp.arange(n)
        left = g @ t[rows]
        new = t.at[rows].set(where(at >= m - 1, left, t[rows]))
        right = new[:, rows] @ jnp.conj(g.T)
        new = new.at[:, rows].set(where((at <= m)[:, None], right, new[:, rows]))
        moved = z.at[:, rows].set(z[:, rows] @ jnp.conj(g.T))
        small = jnp.abs(below) <= eps * (jnp.abs(block[0, 0]) + jnp.abs(block[1, 1]))
        return where(small, t, new).at[m, m - 1].set(0), where(small, z, moved)

    return lax.fori_loop(0, max(n - 1, 0), turned, (t, z))


def _columns(t: Any, diagonal: Any, entry: Any) -> Any:
    """The triangular f(T) from its diagonal. entry(f, i, j): element i, j of it, from those of f
    that are nearer to the diagonal.
    """
    n = t.shape[0]

    def column(j: Any, f: Any) -> Any:
        return lax.fori_loop(0, j, lambda k, f: f.at[j - 1 - k, j].set(entry(f, j - 1 - k, j)), f)

    return lax.fori_loop(1, n, column, jnp.diag(diagonal))


def sqrtm(A, blocksize=1):
    """The principal square root of a square matrix, complex: X with X X = A.

    >>> from shardtrace.scipy.linalg import sqrtm
    >>> sqrtm(jnp.array([[4., 0.], [0., 9.]])).real
    Array([[2., 0.],
           [0., 3.]], dtype=float32)
    """
    if blocksize > 1:
        raise NotImplementedError("Blocked version is not implemented yet.")
    a = _square("sqrtm", A)
    t, z = schur(a, output="complex")
    roots = jnp.sqrt(jnp.diag(t))

    def entry(f: Any, i: Any, j: Any) -> Any:
        rest = t[i, j] - f[i] @ f[:, j]         # what is not known yet is zero in it
        total = roots[i] + roots[j]
        return where(rest == 0, 0, rest / where(total == 0, 1, total))

    return z @ _columns(t, roots, entry) @ jnp.conj(z.T)


def funm(A, func, disp=True):
    """The function of a square matrix that has `func` of its eigenvalues, complex.

    func: of vectors. disp: False gives also an estimate of the error, in parts of the 1-norm.
    """
    a = _square("funm", A)
    t, z = schur(a, output="complex")
    diagonal = jnp.diag(t)
    nearest = jnp.inf * jnp.ones((), t.real.dtype)
    values = func(diagonal).astype(t.dtype)

    def entry(f: Any, i: Any, j: Any) -> Any:
        place = jnp.arange(t.shape[0])
        between = (place > i) & (place < j)
        rest = t[i, j] * (f[j, j] - f[i, i]) + jnp.sum(where(
            between, t[i] * f[:, j] - f[i] * t[:, j], 0))
        gap = t[j, j] - t[i, i]
        return where(gap == 0, rest, rest / where(gap == 0, 1, gap))

    out = z @ _columns(t, values, entry) @ jnp.conj(z.T)
    if disp:
        return out
    gaps = jnp.abs(diagonal[:, None] - diagonal)
    n = t.shape[0]
    nearest = jnp.min(where(np.triu(np.ones((n, n), bool), 1), gaps, nearest), initial=jnp.inf)
    eps = jnp.finfo(a.dtype).eps
    nearest = where(nearest == 0, eps, nearest)
    error = jnp.minimum(1, jnp.maximum(eps, (eps / nearest) * jnp.linalg.norm(jnp.triu(t, 1), 1)))
    return out, error


def polar(a, side="right", *, method="qdwh", eps=None, max_iterations=None):
    """u and p with `a = u p` ("right") or `a = p u` ("left"), u with orthonormal columns or rows, p
    positive semidefinite.

    method: "qdwh" or "svd"; both are computed by the singular values.
    """
    (a,) = promote_dtypes_inexact(jnp.asarray(a))
    if a.ndim < 2:
        raise ValueError("The input `a` must be at least a 2-D array.")
    if side not in ("right", "left"):
        raise ValueError("The argument `side` must be either 'right' or 'left'.")
    if method not in ("qdwh", "svd"):
        raise ValueError(f"Unknown polar decomposition method {method}.")
    m, n = a.shape[-2:]
    if method == "qdwh" and (m < n if side == "right" else m > n):
        raise NotImplementedError(
            f"method='qdwh' with side={side!r} needs m {'>=' if side == 'right' else '<='} n, got "
            f"the shape {a.shape}; pass method='svd'")
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    s = s[..., None, :]
    p = (jnp.conj(vh.mT) * s) @ vh if side == "right" else (u * s) @ jnp.conj(u.mT)
    return u @ vh, p


def solve_sylvester(A, B, C, *, method="schur", tol=1e-8):
    """X with `A X + X B = C`; NaN where it does not exist. method: "schur" or "eigen"."""
    a, b, c = promote_dtypes_inexact(*map(jnp.asarray, (A, B, C)))
    m, n = c.shape[-2:]
    if a.shape[-2:] != (m, m) or b.shape[-2:] != (n, n):
        raise ValueError(f"Incompatible shapes for Sylvester equation:\nA: {a.shape}\n"
                         f"B: {b.shape}\nC: {c.shape}")
    if method not in ("schur", "eigen"):
        raise ValueError(f"Unrecognized method {method}. The two valid methods are either "
                         '"schur" or "eigen".')
    solve = functools.partial(_sylvester, method, tol)
    return jnp.vectorize(solve, signature="(m,m),(n,n),(m,n)->(m,n)")(a, b, c)


def _sylvester(method: str, tol: Any, a: Any, b: Any, c: Any) -> Any:
    """X with A X + X B = C, by Schur forms (columns of the transformed equation one after the
    other) or by eigenvectors. NaN where A and -B have a common eigenvalue, up to `tol`.
    """
    m, n = c.shape
    if method == "schur":
        r, u = schur(a, output="complex")
        s, v = schur(b, output="complex")
        f = jnp.conj(u.T) @ c @ v
        eye = jnp.eye(m, dtype=r.dtype)

        def column(k: Any, y: Any) -> Any:
            known = f[:, k] - y @ where(jnp.arange(n) < k, s[:, k], 0)
            return y.at[:, k].set(lax.linalg.triangular_solve(
                r + s[k, k] * eye, known[:, None], left_side=True)[:, 0])

        y = lax.fori_loop(0, n, column, jnp.zeros_like(f))
        gaps = jnp.abs(jnp.diag(r)[:, None] + jnp.diag(s))
        x = u @ y @ jnp.conj(v.T)
    else:
        left, u = jnp.linalg.eig(a)
        right, v = jnp.linalg.eig(b)
        gaps = jnp.abs(left[:, None] + right)
        x = u @ (jnp.linalg.solve(u, c @ v) / (left[:, None] + right)) @ jnp.linalg.inv(v)
    x = where(gaps.min(initial=jnp.inf) < tol, jnp.nan, x)
    return x if jnp.iscomplexobj(c) else x.real


def expm_frechet(A, E, *, method=None, compute_expm=True):
    """The derivative of `expm` at A in the direction E, after `expm(A)` if that is asked for.

    By the exponential of [[A, E], [0, A]], whose upper right block it is (Higham, "Functions of
    Matrices", 3.16), whatever `method` is.
    """
    a, e = promote_dtypes_inexact(jnp.asarray(A), jnp.asarray(E))
    for letter, x in (("A", a), ("E", e)):
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError(f"expected {letter} to be a (batched) square matrix, got "
                             f"{letter}.shape={x.shape}")
    if a.shape != e.shape:
        raise ValueError("expected A and E to be the same shape, got "
                         f"A.shape={a.shape} E.shape={e.shape}")
    n = a.shape[-1]
    whole = expm(jnp.concatenate([jnp.concatenate([a, e], -1),
                                  jnp.concatenate([jnp.zeros_like(a), a], -1)], -2))
    found = whole[..., :n, n:]
    return (whole[..., :n, :n], found) if compute_expm else found


def hessenberg(a, *, calc_q=False, overwrite_a=False, check_finite=True):
    """h, zero below the first subdiagonal, with `a = q h q^H`; with calc_q also q, unitary.

    By Householder reflections (Golub and Van Loan, "Matrix Computations", 7.4.2).
    """
    (a,) = promote_dtypes_inexact(jnp.asarray(a))
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError("Argument to Hessenberg reduction must have shape [..., n, n], got shape "
                         f"{a.shape}")
    one: Any = jnp.vectorize(_hessenberg, signature="(n,n)->(n,n),(n,n)")
    h, q = one(a)
    return (h, q) if calc_q else h


def _hessenberg(a: Any) -> tuple[Any, Any]:
    """(H, Q) with A = Q H Q^H and H zero below its first subdiagonal, by Householder reflections.
    """
    n = a.shape[0]
    place = jnp.arange(n)

    def column(k: Any, carry: Any) -> Any:
        h, q = carry
        x = where(place > k, h[:, k], 0)
        norm = jnp.sqrt(jnp.sum(jnp.abs(x) ** 2)).astype(a.dtype)
        head = x[k + 1]
        size = jnp.abs(head)
        phase = where(size == 0, 1, head / where(size == 0, 1, size))
        v = x.at[k + 1].add(phase * norm)
        length = jnp.sum(jnp.abs(v) ** 2)
        v = v * jnp.sqrt(2 / where(length == 0, 1, length))
        v = where(norm == jnp.abs(head), jnp.zeros_like(v), v)       # is zero below it already
        h = h - v[:, None] * (jnp.conj(v) @ h)
        h = h - (h @ v)[:, None] * jnp.conj(v)
        return h, q - (q @ v)[:, None] * jnp.conj(v)

    found: Any = lax.fori_loop(0, max(n - 2, 0), column, (a, jnp.eye(n, dtype=a.dtype)))
    return jnp.triu(found[0], -1), found[1]


def qr_multiply(a, c, mode="right", pivoting=False, conjugate=False, overwrite_a=False,
                overwrite_c=False):
    """`c Q` ("right") or `Q c` ("left") and R, of the QR decomposition of a.

    pivoting: with the columns of `a` permuted, how is a third result. conjugate: of Q first. A
    vector c is a row on the left and a column on the right.
    """
    if mode not in ("right", "left"):
        raise ValueError(f"mode must be 'right' or 'left', got {mode!r}")
    a, c = promote_dtypes_inexact(jnp.asarray(a), jnp.asarray(c))
    vector = c.ndim == 1
    if vector:
        c = c[:, None] if mode == "left" else c[None]
    m, n = a.shape[-2:]
    k = min(m, n)
    if mode == "left" and c.shape[-2] != k:
        raise ValueError("Array shapes are not compatible for Q @ c operation: a has shape "
                         f"{a.shape} so Q has {k} columns, but c has {c.shape[-2]} rows (expected "
                         f"{k}).")
    if mode == "right" and c.shape[-1] != m:
        raise ValueError("Array shapes are not compatible for c @ Q operation: a has shape "
                         f"{a.shape} so Q has {m} rows, but c has {c.shape[-1]} columns (expected "
                         f"{m}).")
    q, r, *order = qr(a, mode="economic", pivoting=pivoting)
    q = jnp.conj(q) if conjugate else q
    out = q @ c if mode == "left" else c @ q
    return out.ravel() if vector else out, r[..., :k, :], *order


def eigh_tridiagonal(d, e, *, eigvals_only=False, select="a", select_range: Any = None, tol=None,
                     key=None):
    """The eigenvalues, ascending, of the symmetric matrix with diagonal d and e beside it.

    select: "a" all, "i" those of indices select_range[0] to select_range[1], "v" those in an
    interval, which needs values that are known. tol: is not needed: bisection goes to the last
    digit. Unless eigvals_only, the pair of these and of their eigenvectors, as columns, which are
    those of the whole matrix.
    """
    d, e = jnp.asarray(d), jnp.asarray(e)
    _check_tridiagonal(d, e, select, select_range)
    n = d.shape[0]
    beside = jnp.abs(e)
    real = d.real
    radius = jnp.zeros_like(real).at[:-1].add(beside).at[1:].add(beside)
    low, high = jnp.min(real - radius), jnp.max(real + radius)
    squares = jnp.concatenate([jnp.zeros(1, real.dtype), beside ** 2])
    least = jnp.finfo(real.dtype).tiny

    def below(x: Any) -> Any:
        """How many eigenvalues are less than each of x: negative pivots (Sturm's sequence)."""
        def step(i: Any, carry: Any) -> Any:
            pivot, count = carry
            pivot = real[i] - x - squares[i] / pivot
            pivot = where(jnp.abs(pivot) < least, -least, pivot)
            return pivot, count + (pivot < 0)

        counted: Any = lax.fori_loop(0, n, step, (jnp.ones_like(x), jnp.zeros(x.shape, int)))
        return counted[1]

    first, last = select_range if select == "i" else (0, n - 1)
    if select == "v":
        counts = np.asarray(below(jnp.asarray(select_range, real.dtype)))
        first, last = int(counts[0]), int(counts[1]) - 1
    if not eigvals_only:
        values, vectors = jnp.linalg.eigh(
            jnp.diag(d) + jnp.diag(e, 1) + jnp.diag(jnp.conj(e), -1))
        return values[first:last + 1], vectors[:, first:last + 1]
    wanted = jnp.arange(first, last + 1)
    steps = 2 * jnp.finfo(real.dtype).nmant

    def halve(_: Any, carry: Any) -> Any:
        low, high = carry
        middle = (low + high) / 2
        less = below(middle) <= wanted
        return where(less, middle, low), where(less, high, middle)

    ends: Any = jnp.broadcast_to(low, wanted.shape), jnp.broadcast_to(high, wanted.shape)
    ends = lax.fori_loop(0, steps, halve, ends)
    return (ends[0] + ends[1]) / 2


def _check_tridiagonal(d: Any, e: Any, select: str, select_range: Any) -> None:
    """Raise unless these are what `eigh_tridiagonal` takes."""
    if d.dtype != e.dtype:
        raise TypeError("diagonal and off-diagonal values must have same dtype, got "
                        f"{d.dtype} and {e.dtype}")
    if d.dtype not in ("float32", "float64", "complex64", "complex128"):
        raise TypeError("Only float32 and float64 inputs are supported as inputs to "
                        f"jax.scipy.linalg.eigh_tridiagonal, got {d.dtype} and {e.dtype}")
    n = d.shape[0]
    if n < 1 or e.shape != (n - 1,):
        raise ValueError(f"eigh_tridiagonal: expected d of shape (n,) and e of shape (n - 1,), got "
                         f"{d.shape} and {e.shape}")
    if select not in ("a", "i", "v"):
        raise ValueError("'select must have a value in {'a', 'i', 'v'}.")
    if select != "a" and select_range is None:
        raise ValueError(f"for select='{select}', select_range must be specified.")
    if select == "i" and not 0 <= select_range[0] <= select_range[1] < n:
        raise ValueError(f"for select='i', select_range must be within 0 and {n - 1}, got "
                         f"{select_range}")
