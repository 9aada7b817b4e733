"""numpy.linalg: decompositions, solving, norms. Leading dimensions are batches.

Everything rests on the ops of lax.linalg (LU, QR, eigh, svd, cholesky, triangular_solve).
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...ir.array import Array
from ...ir.dtypes import finfo
from ...ir.ops.arithmetic import div_p, mul_p, neg_p
from ...ir.ops.comparison import lt_p
from ...ir.ops.linalg import geqrf_p
from .. import lax
from ..broadcasting import select_of, to_type
from ..constants import as_array
from ..dtype_promotion import (
    LEVEL,
    canonical_axes,
    check_arraylike,
    convert,
    dtype_name,
    promote_dtypes_inexact,
    shape_of,
)
from ..lax.creation import filled_as
from . import contraction, reductions
from .complex_numbers import conj, magnitude_dtype
from .contraction import dot
from .creation import arange, eye
from .einsum import einsum
from .elementwise import absolute, log, remainder, sqrt
from .indexing import diagonal as _diagonal
from .indexing import take_along_axis
from .indexing import trace as _trace
from .shaping import expand_dims, moveaxis, reshape
from .shaping import matrix_transpose as _matrix_transpose


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


class SlogdetResult(NamedTuple):
    """Sign (or phase) and logarithm of the absolute value of a determinant."""

    sign: Array
    logabsdet: Array


def _inexact(name: str, *arrays: Any) -> list[Array]:
    check_arraylike(f"jnp.linalg.{name}", *arrays)
    return [as_array(x) for x in promote_dtypes_inexact(*arrays)]


def _square(name: str, a: Array) -> None:
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Argument to {name}() must have shape [..., n, n], got {a.shape}")


def _is_complex(x: Any) -> bool:
    return LEVEL[dtype_name(x)] == 3


def _adjoint(x: Any) -> Array:
    x = _matrix_transpose(x)
    return conj(x) if _is_complex(x) else x


# -- decompositions --------------------------------------------------------------------------------

def cholesky(a, *, upper=False, symmetrize_input=True):
    """The triangular factor of positive definite matrices: a = L L^H (upper: a = U^H U)."""
    (a,) = _inexact("cholesky", a)
    _square("cholesky", a)
    out = lax.linalg.cholesky(_adjoint(a) if upper else a, symmetrize_input=symmetrize_input)
    return _adjoint(out) if upper else out


def qr(a, mode="reduced"):
    """a = Q R. mode: "reduced", "complete", "r" (R alone) or "raw"."""
    (a,) = _inexact("qr", a)
    if mode == "raw":
        packed, taus = geqrf_p.bind(a)
        return QRResult(_matrix_transpose(packed), taus)
    if mode not in ("reduced", "r", "full", "complete"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    q, r = lax.linalg.qr(a, full_matrices=mode in ("full", "complete"))
    return r if mode == "r" else QRResult(q, r)


def svd(a, full_matrices=True, compute_uv=True, hermitian=False, subset_by_index=None):
    """Singular value decomposition a = U diag(S) Vh."""
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
    """Singular values in descending order."""
    return svd(x, compute_uv=False)


def eigh(a, UPLO=None, symmetrize_input=True):
    """Eigenvalues and eigenvectors of symmetric (Hermitian) matrices."""
    (a,) = _inexact("eigh", a)
    if UPLO not in (None, "L", "U"):
        raise ValueError("UPLO must be one of None, 'L', or 'U'")
    vectors, values = lax.linalg.eigh(a, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(values, vectors)


def eigvalsh(a, UPLO="L", *, symmetrize_input=True):
    """Eigenvalues of symmetric (Hermitian) matrices, ascending."""
    return eigh(a, UPLO, symmetrize_input).eigenvalues


def eig(a):
    """Eigenvalues and right eigenvectors of general matrices, complex."""
    (a,) = _inexact("eig", a)
    w, v = lax.linalg.eig(a, compute_left_eigenvectors=False)
    return EigResult(w, v)


def eigvals(a):
    """Eigenvalues of general matrices, complex."""
    (a,) = _inexact("eigvals", a)
    return lax.linalg.eig(a, compute_left_eigenvectors=False,
                          compute_right_eigenvectors=False)[0]


# -- solving ---------------------------------------------------------------------------------------

def _permuted(b: Array, permutation: Array) -> Array:
    """The rows of b (..., n, k) in the order of permutation (..., n)."""
    n = b.ndim
    if permutation.ndim == 1:
        numbers = lax.GatherDimensionNumbers(
            offset_dims=(*range(n - 2), n - 1), collapsed_slice_dims=(n - 2,),
            start_index_map=(n - 2,))
        return lax.gather(b, lax.expand_dims(permutation, (1,)), numbers,
                          (*b.shape[:-2], 1, b.shape[-1]))
    batch = tuple(range(n - 2))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(n - 1,), collapsed_slice_dims=(n - 2,), start_index_map=(n - 2,),
        operand_batching_dims=batch, start_indices_batching_dims=batch)
    return lax.gather(b, lax.expand_dims(permutation, (permutation.ndim,)), numbers,
                      (*[1] * (n - 1), b.shape[-1]))


def solve(a, b):
    """x with a x = b, for square matrices a; b holds columns, or is one vector."""
    a, b = _inexact("solve", a, b)
    _square("solve", a)
    vector = b.ndim == 1
    if vector:
        b = lax.expand_dims(b, (1,))
    if b.ndim < 2 or b.shape[-2] != a.shape[-1]:
        raise ValueError("solve: the rows of b must be as many as those of a, got "
                         f"{a.shape} and {b.shape}")
    batch = lax.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    both, _, permutation = lax.linalg.lu(a)
    if batch != a.shape[:-2]:
        both = to_type(both, (*batch, *a.shape[-2:]))
        permutation = to_type(permutation, (*batch, a.shape[-1]))
    b = to_type(b, (*batch, *b.shape[-2:]))
    x = _permuted(b, permutation)
    x = lax.linalg.triangular_solve(both, x, left_side=True, lower=True, unit_diagonal=True)
    x = lax.linalg.triangular_solve(both, x, left_side=True, lower=False)
    return lax.squeeze(x, (x.ndim - 1,)) if vector else x


def inv(a):
    """Inverses of square matrices."""
    (a,) = _inexact("inv", a)
    _square("inv", a)
    unit = to_type(eye(a.shape[-1], dtype=a.dtype), a.shape)
    return solve(a, unit)


def lstsq(a, b, rcond=None, *, numpy_resid=False):
    """The x with the least |a x - b|, the squared residuals, the rank and the singular values.

    rcond: singular values below rcond times the greatest count as zero.
    """
    a, b = _inexact("lstsq", a, b)
    if a.shape[:1] != b.shape[:1]:
        raise ValueError("Leading dimensions of input arrays must match")
    vector = b.ndim == 1
    if vector:
        b = lax.expand_dims(b, (1,))
    if a.ndim != 2 or b.ndim != 2:
        raise TypeError(f"lstsq: a must be a matrix and b a vector or a matrix, got {a.shape} "
                        f"and {b.shape}")
    m, n = a.shape
    real = magnitude_dtype(a)
    eps = float(finfo(real).eps)
    if n == 0 or m == 0:
        x = filled_as((n, b.shape[1]), convert(0, a.dtype))
        residual, rank = filled_as((0,), convert(0, real)), as_array(np.int32(0))
        s = filled_as((0,), convert(0, real))
        return (lax.squeeze(x, (1,)) if vector else x), residual, rank, s
    if rcond is None:
        rcond = eps * max(n, m)
    limit = select_of(lt_p.bind(convert(rcond, real), real.type(0)), convert(rcond, real),
                      real.type(eps))
    u, s, vh = svd(a, full_matrices=False)
    top = lax.index_in_dim(s, 0, 0, keepdims=False)
    mask = lax.ge(s, lax.broadcast_in_dim(lax.mul(limit, top), s.shape, ()))
    rank = reductions.sum(mask)
    safe = select_of(mask, real.type(1), s)
    inverse = select_of(mask, real.type(0), lax.reciprocal(safe))
    projected = dot(_adjoint(u), b, precision="highest")
    scaled = mul_p.bind(projected, lax.broadcast_in_dim(
        convert(inverse, a.dtype), projected.shape, (0,)))
    x = dot(_adjoint(vh), scaled, precision="highest")
    residual = reductions.sum(lax.square(absolute(lax.sub(
        b, dot(a, x, precision="highest")))), axis=0)
    if numpy_resid and (m <= n or int(np.asarray(rank)) < n):
        residual = filled_as((0,), convert(0, real))
    return (lax.squeeze(x, (1,)) if vector else x), residual, rank, s


def pinv(a, rtol=None, hermitian=False, *, rcond=None):
    """Pseudo-inverses: singular values below rtol times the greatest count as zero."""
    if rcond is not None:
        if rtol is not None:
            raise ValueError("pinv: only one of rtol and rcond may be specified.")
        rtol = rcond
    (a,) = _inexact("pinv", a)
    if a.ndim < 2:
        raise ValueError(f"Argument to pinv must have ndim >= 2, got {a.shape}")
    m, n = a.shape[-2:]
    if m == 0 or n == 0:
        return filled_as((*a.shape[:-2], n, m), convert(0, a.dtype))
    real = magnitude_dtype(a)
    if rtol is None:
        rtol = 10.0 * max(m, n) * float(finfo(real).eps)
    u, s, vh = svd(conj(a) if _is_complex(a) else a, full_matrices=False, hermitian=hermitian)
    limit = mul_p.bind(convert(rtol, real), reductions.max(s, axis=-1, keepdims=True))
    s = select_of(lax.gt(s, to_type(limit, s.shape)), real.type(np.inf), s)
    left = _matrix_transpose(vh)
    right = div_p.bind(_matrix_transpose(u), to_type(
        convert(expand_dims(s, -1), u.dtype), _matrix_transpose(u).shape))
    return matmul(left, right, precision="highest")


# -- determinants and ranks ------------------------------------------------------------------------

def _lu_diagonal(a: Array) -> tuple[Array, Array]:
    """The diagonal of U, and whether the number of row exchanges is odd (0 or 1)."""
    both, pivots, _ = lax.linalg.lu(a)
    n = a.shape[-1]
    rows = to_type(arange(n), pivots.shape)
    exchanges = reductions.sum(lax.ne(pivots, convert(rows, pivots.dtype)), axis=-1)
    return _diagonal(both, axis1=-2, axis2=-1), remainder(exchanges, 2)


def det(a):
    """Determinants of square matrices."""
    (a,) = _inexact("det", a)
    _square("det", a)
    diag, odd = _lu_diagonal(a)
    product = reductions.prod(diag, axis=-1)
    sign = convert(lax.sub(np.int32(1), lax.mul(np.int32(2), convert(odd, np.dtype("int32")))),
                   a.dtype)
    return mul_p.bind(product, sign)


def slogdet(a, *, method=None):
    """Sign and logarithm of the absolute value of determinants."""
    if method not in (None, "lu", "qr"):
        raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' (`None`), "
                         "and 'qr'.")
    (a,) = _inexact("slogdet", a)
    _square("slogdet", a)
    diag, odd = _lu_diagonal(a)
    parity = convert(lax.sub(np.int32(1), lax.mul(np.int32(2), convert(odd, np.dtype("int32")))),
                     a.dtype)
    sizes = absolute(diag)
    signs = lax.div(diag, convert(sizes, a.dtype)) if _is_complex(a) else lax.sign(diag)
    zero = reductions.any(lax.eq(sizes, filled_as(sizes.shape, sizes.dtype.type(0))), axis=-1)
    sign = select_of(zero, mul_p.bind(parity, reductions.prod(signs, axis=-1)),
                     convert(0, a.dtype))
    logs = select_of(zero, reductions.sum(log(sizes), axis=-1), sizes.dtype.type(-np.inf))
    return SlogdetResult(sign, logs)


def matrix_rank(M, rtol=None, *, hermitian=False, tol=None):
    """Number of singular values above a tolerance."""
    (a,) = _inexact("matrix_rank", M)
    if a.ndim < 2:
        return convert(reductions.any(lax.ne(a, lax.full_like(a, 0))), np.dtype("int32"))
    if tol is not None:
        rtol = tol
    s = svd(a, full_matrices=False, compute_uv=False, hermitian=hermitian)
    if rtol is None:
        rtol = max(a.shape[-2:]) * float(finfo(s.dtype).eps)
    limit = mul_p.bind(reductions.max(s, axis=-1, keepdims=True), to_type(
        convert(rtol, s.dtype), (*s.shape[:-1], 1)))
    return reductions.sum(lax.gt(s, to_type(limit, s.shape)), axis=-1)


def cond(x, p=None):
    """Condition numbers: the greatest by the least singular value, or norms of x and inverse."""
    (a,) = _inexact("cond", x)
    if a.ndim < 2:
        raise ValueError(f"jnp.linalg.cond: input array must be at least 2D; got {a.shape}")
    if p in (None, 2, -2):
        s = svd(a, compute_uv=False)
        first = lax.index_in_dim(s, 0, -1, keepdims=False)
        last = lax.index_in_dim(s, -1, -1, keepdims=False)
        return div_p.bind(last, first) if p == -2 else div_p.bind(first, last)
    _square("cond", a)
    r = mul_p.bind(norm(a, ord=p, axis=(-2, -1)), norm(inv(a), ord=p, axis=(-2, -1)))
    poisoned = reductions.any(lax.ne(a, a), axis=(-2, -1))
    return select_of(lax.bitwise_and(lax.ne(r, r), lax.bitwise_not(poisoned)), r,
                     convert(np.inf, r.dtype))


def matrix_power(a, n):
    """Matrix products of n copies of a; of its inverse for negative n."""
    (a,) = _inexact("matrix_power", a)
    _square("matrix_power", a)
    n = n.__index__()
    if n == 0:
        return to_type(eye(a.shape[-1], dtype=a.dtype), a.shape)
    if n < 0:
        a, n = inv(a), -n
    if n == 1:
        return a
    if n == 2:
        return matmul(a, a)
    if n == 3:
        return matmul(matmul(a, a), a)
    square, out = None, None
    while n:
        square = a if square is None else matmul(square, square)
        if n & 1:
            out = square if out is None else matmul(out, square)
        n >>= 1
    return out


# -- norms -----------------------------------------------------------------------------------------

def norm(x, ord=None, axis=None, keepdims=False):
    """Norms of vectors or matrices; without ord the root of the sum of squares."""
    (x,) = _inexact("norm", x)
    if axis is None:
        if ord is None:
            return sqrt(reductions.sum(_squares(x), keepdims=keepdims))
        axes = tuple(range(x.ndim))
    else:
        axes = canonical_axes(axis, x.ndim)
    if len(axes) == 1:
        return _vector_norm(x, ord, axes[0], keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    raise ValueError(f"Improper number of axes for norm: axis={axis}. Pass one axis to compute a "
                     "vector-norm, or two axes to compute a matrix-norm.")


def _squares(x: Array) -> Array:
    return lax.real(mul_p.bind(x, lax.conj(x))) if _is_complex(x) else mul_p.bind(x, x)


def _vector_norm(x: Array, ord: Any, axis: int, keepdims: bool) -> Array:
    if ord is None or (not isinstance(ord, (str, Array)) and ord == 2):
        return sqrt(reductions.sum(_squares(x), axis=axis, keepdims=keepdims))
    if isinstance(ord, str):
        raise ValueError(f"Invalid order '{ord}' for vector norm.")
    size = absolute(x)
    if not isinstance(ord, Array):
        if ord == np.inf:
            return reductions.max(size, axis=axis, keepdims=keepdims, initial=0)
        if ord == -np.inf:
            return reductions.min(size, axis=axis, keepdims=keepdims, initial=np.inf)
        if ord == 0:
            return reductions.sum(lax.ne(x, lax.full_like(x, 0)), dtype=size.dtype, axis=axis,
                                  keepdims=keepdims)
        if ord == 1:
            return reductions.sum(size, axis=axis, keepdims=keepdims)
    exponent = convert(ord, size.dtype)
    total = reductions.sum(lax.pow(size, exponent), axis=axis, keepdims=keepdims)
    return lax.pow(total, lax.reciprocal(exponent) if isinstance(exponent, Array) else
                   size.dtype.type(1 / exponent))


def _matrix_norm(x: Array, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    row, column = axes
    if ord is None or ord in ("f", "fro"):
        return sqrt(reductions.sum(_squares(x), axis=axes, keepdims=keepdims))

    def of_sums(reduce: Any, summed: int, kept: int, initial: Any) -> Array:
        if not keepdims and kept > summed:
            kept -= 1
        sums = reductions.sum(absolute(x), axis=summed, keepdims=keepdims)
        return reduce(sums, axis=kept, keepdims=keepdims, initial=initial)

    if not isinstance(ord, str):
        if ord == 1:
            return of_sums(reductions.max, row, column, 0)
        if ord == -1:
            return of_sums(reductions.min, row, column, np.inf)
        if ord == np.inf:
            return of_sums(reductions.max, column, row, 0)
        if ord == -np.inf:
            return of_sums(reductions.min, column, row, np.inf)
    if ord in ("nuc", 2, -2):
        s = svd(moveaxis(x, axes, (-2, -1)), compute_uv=False)
        if ord == "nuc":
            y = reductions.sum(s, axis=-1)
        elif ord == 2:
            y = reductions.max(s, axis=-1, initial=0)
        else:
            y = reductions.min(s, axis=-1, initial=np.inf)
        return lax.expand_dims(y, sorted(axes)) if keepdims else y
    raise ValueError(f"Invalid order '{ord}' for matrix norm.")


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """Norms of vectors along dimensions, of the flattened array for axis=None."""
    check_arraylike("jnp.linalg.vector_norm", x)
    x = as_array(x)
    if axis is None or isinstance(axis, tuple):
        axes = tuple(range(x.ndim)) if axis is None else canonical_axes(axis, x.ndim)
        rest = [d for d in range(x.ndim) if d not in axes]
        flat = reshape(lax.transpose(x, [*axes, *rest]), (-1, *(x.shape[d] for d in rest))) \
            if x.ndim else lax.expand_dims(x, (0,))
        out = norm(flat, ord, 0)
        return lax.expand_dims(out, axes) if keepdims and axes else out
    return norm(x, ord, axis, keepdims)


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """Norms of the matrices in the last two dimensions."""
    return norm(x, ord, (-2, -1), keepdims)


# -- products --------------------------------------------------------------------------------------

def multi_dot(arrays, *, precision=None):
    """The matrix product of several arrays, in the order that takes the fewest operations."""
    check_arraylike("jnp.linalg.multi_dot", *arrays)
    operands = [as_array(x) for x in arrays]
    if len(operands) < 2:
        raise ValueError("multi_dot requires at least two arrays")
    if any(x.ndim != 2 for x in operands[1:-1]) or operands[0].ndim not in (1, 2) or (
            operands[-1].ndim not in (1, 2)):
        raise ValueError("multi_dot: input arrays must all be two-dimensional, except for the "
                         "first and last array which may be 1 or 2 dimensional. Got array shapes "
                         f"{[x.shape for x in operands]}")
    names = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    name = next(names)
    texts, head = [], ""
    for i, x in enumerate(operands):
        if x.ndim == 1 and i == 0:
            texts.append(name)
            continue
        if i == 0:
            head = name
        if x.ndim == 1:
            texts.append(name)
            name = ""
            continue
        following = next(names)
        texts.append(name + following)
        name = following
    equation = f"{','.join(texts)}->{head}{name}"
    return einsum(equation, *operands, optimize="auto", precision=precision)


def matmul(x1, x2, /, *, precision=None, preferred_element_type=None):
    """Matrix product, see `jnp.matmul`."""
    return contraction.matmul(x1, x2, precision=precision,
                              preferred_element_type=preferred_element_type)


def vecdot(x1, x2, /, *, axis=-1, precision=None, preferred_element_type=None):
    """Sums of products along a dimension, the first operand conjugated."""
    return contraction.vecdot(x1, x2, axis=axis, precision=precision,
                   preferred_element_type=preferred_element_type)


def tensordot(x1, x2, /, *, axes=2, precision=None, preferred_element_type=None,
              out_sharding=None):
    """Sum of products over pairs of dimensions, see `jnp.tensordot`."""
    return contraction.tensordot(x1, x2, axes=axes, precision=precision,
                      preferred_element_type=preferred_element_type, out_sharding=out_sharding)


def cross(x1, x2, /, *, axis=-1):
    """Vector product of vectors of size 3."""
    check_arraylike("jnp.linalg.cross", x1, x2)
    a, b = shape_of(x1), shape_of(x2)
    if a[axis] != 3 or b[axis] != 3:
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors, but they "
                         f"have {a[axis]} and {b[axis]} dimensions instead.")
    return contraction.cross(x1, x2, axis=axis)


def outer(x1, x2, /):
    """All products of elements of two vectors."""
    check_arraylike("jnp.linalg.outer", x1, x2)
    if len(shape_of(x1)) != 1 or len(shape_of(x2)) != 1:
        raise ValueError("Input arrays must be one-dimensional, but they are "
                         f"x1.ndim={len(shape_of(x1))} x2.ndim={len(shape_of(x2))}")
    return contraction.outer(x1, x2)


def matrix_transpose(x, /):
    """x with its last two dimensions swapped."""
    return _matrix_transpose(x)


def diagonal(x, /, *, offset=0):
    """The diagonals of the matrices in the last two dimensions."""
    return _diagonal(x, offset=offset, axis1=-2, axis2=-1)


def trace(x, /, *, offset=0, dtype=None):
    """Sums of the diagonals of the matrices in the last two dimensions."""
    return _trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)


def tensorinv(a, ind=2):
    """The inverse of the linear map that a is from its last dimensions to its first `ind`."""
    check_arraylike("jnp.linalg.tensorinv", a)
    if ind <= 0:
        raise ValueError(f"ind must be a positive integer; got ind={ind}")
    x = as_array(a)
    batch, rest = x.shape[:ind], x.shape[ind:]
    if int(np.prod(batch)) != int(np.prod(rest)):
        raise ValueError("tensorinv is only possible when the product of the first `ind` "
                         "dimensions equals that of the remaining dimensions. got "
                         f"a.shape={x.shape} with ind={ind}.")
    n = int(np.prod(batch))
    return reshape(inv(reshape(x, (n, n))), (*rest, *batch))


def tensorsolve(a, b, axes=None):
    """x with a x = b, where a maps its last dimensions, after `axes` are moved there, to b's."""
    check_arraylike("jnp.linalg.tensorsolve", a, b)
    x, y = as_array(a), as_array(b)
    if axes is not None:
        x = moveaxis(x, axes, tuple(range(x.ndim - len(axes), x.ndim)))
    out = x.shape[y.ndim:]
    if x.shape[:y.ndim] != y.shape:
        raise ValueError("After moving axes to end, leading shape of a must match shape of b. got "
                         f"a.shape={x.shape}, b.shape={y.shape}")
    n = int(np.prod(out))
    if y.size != n:
        raise ValueError("Input arrays must have prod(a.shape[:b.ndim]) == prod(a.shape[b.ndim:]); "
                         f"got a.shape={x.shape}, b.ndim={y.ndim}.")
    return reshape(solve(reshape(x, (n, n)), reshape(y, (n,))), out)

