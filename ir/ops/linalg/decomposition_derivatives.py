"""Forward derivatives of matrix decompositions, in matrix ops that batch over leading dimensions.

Each rule differentiates the equations that define the decomposition and solves for the tangents of
the factors. Sources: I. Murray, "Differentiation of the Cholesky decomposition" (2016); M. Giles,
"Collected matrix derivative results" (2008); J. Townsend, "Differentiating the singular value
decomposition" (2016); F. de Hoog et al., "The derivative of a matrix factorisation" (2011).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ..derivatives import (
    add,
    complex_,
    conj,
    const,
    convert,
    div,
    eq,
    full_like,
    ge,
    imag,
    iota_like,
    is_complex,
    mul,
    neg,
    real,
    select_n,
    sub,
    type_of,
    zeros_like,
)
from ..rules import call

# -- matrices --------------------------------------------------------------------------------------


def matmul(a: Any, b: Any) -> Any:
    """The product of stacks of matrices."""
    batch = tuple(range(type_of(a).ndim - 2))
    n = len(batch)
    return call("dot_general", a, b, dimension_numbers=(((n + 1,), (n,)), (batch, batch)),
                precision=None, preferred_element_type=None, out_sharding=None)


def transposed(a: Any) -> Any:
    n = type_of(a).ndim
    return call("transpose", a, permutation=(*range(n - 2), n - 1, n - 2))


def adjoint(a: Any) -> Any:
    """The conjugate transpose."""
    return conj(transposed(a), input_dtype=a.dtype) if is_complex(a) else transposed(a)


def conjugate(a: Any) -> Any:
    return conj(a, input_dtype=a.dtype) if is_complex(a) else a


def _rows_columns(a: Any) -> tuple[Any, Any]:
    n = type_of(a).ndim
    return iota_like(a, np.int32, n - 2), iota_like(a, np.int32, n - 1)


def lower(a: Any, k: int = 0) -> Any:
    """Elements on and below diagonal k, zeros above."""
    rows, columns = _rows_columns(a)
    return select_n(ge(add(rows, const(k, rows)), columns), zeros_like(a), a)


def upper(a: Any, k: int = 0) -> Any:
    """Elements on and above diagonal k, zeros below."""
    rows, columns = _rows_columns(a)
    return select_n(ge(columns, add(rows, const(k, rows))), zeros_like(a), a)


def diagonal_only(a: Any) -> Any:
    rows, columns = _rows_columns(a)
    return select_n(eq(rows, columns), zeros_like(a), a)


def diagonal(a: Any) -> Any:
    """The diagonals of square matrices, as vectors."""
    return call("reduce_sum", diagonal_only(a), axes=(type_of(a).ndim - 1,), out_sharding=None)


def as_rows(v: Any, a: Any) -> Any:
    """Vectors repeated as the rows of matrices shaped like `a`: element [i, j] is v[j]."""
    t = type_of(a)
    kept = (*range(t.ndim - 2), t.ndim - 1)
    return _spread(v, t, kept)


def as_columns(v: Any, a: Any) -> Any:
    """Vectors repeated as the columns of matrices shaped like `a`: element [i, j] is v[i]."""
    t = type_of(a)
    return _spread(v, t, tuple(range(t.ndim - 1)))


def _spread(v: Any, t: Any, kept: tuple[int, ...]) -> Any:
    return call("broadcast_in_dim", v, shape=t.shape, broadcast_dimensions=kept,
                sharding=t.sharding if t.has_explicit_mesh() else None)


def solve(a: Any, b: Any, *, left: bool, low: bool, flip: bool = False, unit: bool = False) -> Any:
    """a^-1 b (or b a^-1) for triangular a; a^H instead of a if `flip`."""
    return call("triangular_solve", a, b, left_side=left, lower=low, transpose_a=flip,
                conjugate_a=flip and is_complex(a), unit_diagonal=unit)


def _unless_zero(x: Any) -> Any:
    """1 / x, and 0 where x is 0."""
    zero = eq(x, const(0, x))
    one = full_like(x, 1)
    return select_n(zero, div(one, select_n(zero, x, one)), zeros_like(x))


# -- the rules -------------------------------------------------------------------------------------

Rule = tuple[Any, Any]


def cholesky_jvp(operands: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Rule:
    """dL = L phi(L^-1 dA L^-H), phi taking the lower triangle with half the diagonal."""
    factor = lower(call("cholesky", operands[0], **params))
    inner = solve(factor, tangents[0], left=True, low=True)
    inner = solve(factor, inner, left=False, low=True, flip=True)
    half = mul(diagonal_only(inner), full_like(inner, 0.5))
    return factor, matmul(factor, sub(lower(inner), half))


def eigh_jvp(operands: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Rule:
    """dV = V (F o V^H dA V) with F_ij = 1 / (w_j - w_i); dw = diag(V^H dA V)."""
    if params["subset_by_index"] is not None:
        fail(NotImplementedError, "Derivatives not defined for partial eigen decomposition.",
             code="not-differentiable", help="leave `subset_by_index` out, and slice the results")
    vectors, values = call("eigh", operands[0], **params)
    inner = matmul(adjoint(vectors), matmul(tangents[0], vectors))
    gaps = sub(as_rows(values, inner), as_columns(values, inner))
    weights = convert(_unless_zero(gaps), inner.dtype)
    d_values = diagonal(inner)
    return ([vectors, values], [matmul(vectors, mul(weights, inner)),
                                real(d_values) if is_complex(d_values) else d_values])


def svd_jvp(operands: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Rule:
    """ds = diag(U^H dA V); for the vectors see Townsend, equations 11 to 16."""
    a, d_a = operands[0], tangents[0]
    m, n = type_of(a).shape[-2:]
    if params["subset_by_index"] is not None:
        fail(NotImplementedError, "Derivatives not defined for partial singular value "
             "decomposition.", code="not-differentiable",
             help="leave `subset_by_index` out, and slice the results")
    if params["compute_uv"] and params["full_matrices"] and m != n:
        fail(NotImplementedError, "Singular value decomposition JVP not implemented for full "
             "matrices", code="not-differentiable", help="make it without `full_matrices`")
    s, u, vt = call("svd", a, **{**params, "compute_uv": True, "full_matrices": False})
    v = adjoint(vt)
    inner = matmul(adjoint(u), matmul(d_a, v))
    ds = diagonal(inner)
    ds = real(ds) if is_complex(ds) else ds
    if not params["compute_uv"]:
        return [s], [ds]
    cols, rows = as_rows(s, inner), as_columns(s, inner)       # s_j and s_i
    gaps = mul(add(cols, rows), sub(cols, rows))
    weights = convert(_unless_zero(gaps), inner.dtype)
    cols, rows = convert(cols, inner.dtype), convert(rows, inner.dtype)
    inner_h = adjoint(inner)
    du_inner = mul(weights, add(mul(inner, cols), mul(rows, inner_h)))
    dv_inner = mul(weights, add(mul(rows, inner), mul(inner_h, cols)))
    if is_complex(inner):       # the phase that real singular values leave open, given to U
        phase = mul(diagonal_only(sub(inner, inner_h)),
                    convert(_unless_zero(real(add(rows, rows))), inner.dtype))
        du_inner = add(du_inner, phase)
    du, dv = matmul(u, du_inner), matmul(v, dv_inner)
    inverse = _unless_zero(s)
    if m > n:
        rest = matmul(d_a, v)
        rest = sub(rest, matmul(u, matmul(adjoint(u), rest)))
        du = add(du, mul(rest, convert(as_rows(inverse, rest), rest.dtype)))
    if n > m:
        rest = matmul(adjoint(d_a), u)
        rest = sub(rest, matmul(v, matmul(adjoint(v), rest)))
        dv = add(dv, mul(rest, convert(as_rows(inverse, rest), rest.dtype)))
    return [s, u, vt], [ds, du, adjoint(dv)]


def permuted(order: Any, like: Any, n: int) -> Any:
    """The matrices, of the dtype of `like`, that bring n rows into an order."""
    square = call("broadcast_in_dim", order, shape=(*type_of(order).shape, n), sharding=None,
                  broadcast_dimensions=tuple(range(type_of(order).ndim)))
    return convert(eq(square, iota_like(square, np.int32, type_of(square).ndim - 1)), like.dtype)


def _solve_general(a: Any, b: Any) -> Any:
    """a^-1 b for square matrices."""
    both, _, permutation = call("lu", a)
    b = matmul(permuted(permutation, a, type_of(a).shape[-1]), b)
    return solve(both, solve(both, b, left=True, low=True, unit=True), left=True, low=False)


def eig_jvp(operands: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Rule:
    """With P = V^-1 dA V: dw = diag(P) and dV = V (F o P) + V c, F as of `eigh`.

    c keeps the scale that the decomposition gives each vector: of length 1, its largest element
    real. Left eigenvectors are right ones of A^H.
    """
    left, right = params["compute_left_eigenvectors"], params["compute_right_eigenvectors"]
    if (left or right) and not params["enable_eigvec_derivs"]:
        fail(NotImplementedError, "Derivatives of non-symmetric eigenvectors are only valid under "
             "assumptions on the input that JAX cannot check (see the enable_eigvec_derivs "
             "argument to jax.lax.linalg.eig). Pass enable_eigvec_derivs=True to "
             "jax.lax.linalg.eig to opt in.", code="not-differentiable",
             help="eigenvalues alone always have derivatives; `eigh` has them of vectors, too")
    w, *vectors = call("eig", operands[0], **{**params, "compute_right_eigenvectors": True})
    d_a = convert(tangents[0], w.dtype)
    dw, dv = _eigenvector_tangents(w, vectors[-1], d_a)
    out, d_out = [w], [dw]
    if left:
        conj_w = conj(w, input_dtype=w.dtype)
        out.append(vectors[0])
        d_out.append(_eigenvector_tangents(conj_w, vectors[0], adjoint(d_a))[1])
    if right:
        out.append(vectors[-1])
        d_out.append(dv)
    return out, d_out


def _eigenvector_tangents(w: Any, v: Any, d_a: Any) -> tuple[Any, Any]:
    """Tangents of eigenvalues w and right eigenvectors v of a general matrix. Eigenvectors keep
    norm 1, and their largest element keeps its phase, as LAPACK normalises them.
    """
    inner = _solve_general(v, matmul(d_a, v))
    gaps = sub(as_rows(w, inner), as_columns(w, inner))
    moved = matmul(v, mul(_unless_zero(gaps), inner))
    n = type_of(v).ndim
    largest = call("argmax", call("abs", v), axes=(n - 2,), index_dtype=np.dtype(np.int32))
    place = eq(as_rows(largest, v), iota_like(v, np.int32, n - 2))

    def at_largest(x: Any) -> Any:
        x = select_n(place, zeros_like(x), x)
        return call("reduce_sum", x, axes=(n - 2,), out_sharding=None)

    along = call("reduce_sum", mul(conjugate(v), moved), axes=(n - 2,), out_sharding=None)
    turn = div(imag(at_largest(moved)), real(at_largest(v)))
    c = complex_(neg(real(along)), neg(turn))
    return diagonal(inner), add(moved, mul(v, as_rows(c, v)))


def lu_jvp(operands: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Rule:
    """L^-1 P dA U^-1 is a strictly lower part, L^-1 dL, and an upper one, dU U^-1.

    L and U are made square with the identity where the matrix is not.
    """
    lu, pivots, permutation = call("lu", operands[0], **params)
    m, n = type_of(lu).shape[-2:]
    low = _fitted(lower(lu, -1), m, m)
    low = add(low, diagonal_only(full_like(low, 1)))
    high = _fitted(upper(lu), n, n)
    if n > m:
        rows, _ = _rows_columns(high)
        one = diagonal_only(full_like(high, 1))
        high = add(high, select_n(ge(rows, const(m, rows)), zeros_like(high), one))
    inner = matmul(permuted(permutation, low, m), tangents[0])
    inner = solve(low, inner, left=True, low=True, unit=True)
    inner = solve(high, inner, left=False, low=False)
    d_lu = add(matmul(low, lower(inner, -1)), matmul(upper(inner), high))
    return [lu, pivots, permutation], [d_lu, None, None]


def _fitted(a: Any, m: int, n: int) -> Any:
    """Matrices cut or padded with zeros to m x n."""
    *batch, rows, columns = type_of(a).shape
    if (rows, columns) == (m, n):
        return a
    config = ((0, 0, 0),) * len(batch) + ((0, m - rows, 0), (0, n - columns, 0))
    return call("pad", a, const(0, a), padding_config=config)


def qr_jvp(operands: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Rule:
    """With X = dA R^-1 and C the skew matrix that has the lower part of Q^H X: dQ = Q C + rest."""
    a, d_a = operands[0], tangents[0]
    m, n = type_of(a).shape[-2:]
    if params["full_matrices"] and m > n:
        fail(NotImplementedError, "Unimplemented case of QR decomposition derivative",
             code="not-differentiable", help="make it without `full_matrices`")
    q, r, *order = call("qr", a, **params)
    if order:                                           # A with its columns in another order
        a, d_a = (matmul(x, transposed(permuted(order[0], x, n))) for x in (a, d_a))
    k = min(m, n)
    x = solve(_fitted(r, k, k), _fitted(d_a, m, k), left=False, low=False)
    inner = matmul(adjoint(q), x)
    low = lower(inner, -1)
    skew = sub(low, adjoint(low))
    if is_complex(inner):
        on = diagonal_only(inner)
        skew = add(skew, sub(on, convert(real(on), inner.dtype)))
    dq = add(matmul(q, sub(skew, inner)), x)
    dr = (matmul(sub(inner, skew), r) if n <= m else
          upper(add(matmul(adjoint(dq), a), matmul(adjoint(q), d_a))))
    return [q, r, *order], [dq, dr, *[None for _ in order]]


def triangular_jvp_a(g: Any, out: Any, a: Any, b: Any, **params: Any) -> Any:
    """d(a^-1 b) = -a^-1 da (a^-1 b), da being the triangle that is read."""
    rows, columns = _rows_columns(g)
    k = const(1 if params["unit_diagonal"] else 0, rows)
    inside = ge(rows, add(columns, k)) if params["lower"] else ge(columns, add(rows, k))
    g = neg(select_n(inside, zeros_like(g), g))
    g = transposed(g) if params["transpose_a"] else g
    g = conjugate(g) if params["conjugate_a"] else g
    return call("triangular_solve", a, matmul(g, out) if params["left_side"] else matmul(out, g),
                **params)
