"""Linear systems: solve, inverse, least squares, ranks, condition numbers."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ....ir.diagnostics.diagnostic import fail
from ....ir.dtypes import finfo
from ....ir.inference.explicit import spec_entry
from ....ir.ops.elementwise.arithmetic import div_p, mul_p
from ....ir.ops.elementwise.comparison import lt_p
from ....ir.values.array import Array
from ... import lax
from ...lax.creation import filled_as
from ...operands.broadcasting import select_of, to_type
from ...operands.dtype_promotion import check_arraylike, convert, is_complex
from ...staging.constants import as_array
from ...staging.memoized import memoized
from ..creation.filled import eye
from ..elementwise.arithmetic import absolute
from ..elementwise.complex_numbers import conj, magnitude_dtype
from ..manipulation.shaping import expand_dims, moveaxis, reshape
from ..manipulation.shaping import matrix_transpose as _matrix_transpose
from ..reductions import reduce as reductions
from .contraction import dot
from .decompositions import _adjoint, _inexact, _square, svd
from .linear_products import matmul
from .norms import norm


def permuted(b: Array, permutation: Array) -> Array:
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


@memoized
def solve(a, b):
    """The solution x of `a @ x = b`, for square matrices `a`.

    a: [..., n, n]. b: [n], or [..., n, k] with one system a column. Raises ValueError where shapes
    do not fit.

    Sharding
      Auto: batch dimensions may be split; matrices that are split are gathered.
      Explicit: batch dimensions stay split, the matrices must be whole; `reshard` first.
      Manual: solves the systems of each device's block.

    >>> jnp.linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 2.0]))
    Array([1. , 0.5], dtype=float32)
    """
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
    x = permuted(b, permutation)
    x = lax.linalg.triangular_solve(both, x, left_side=True, lower=True, unit_diagonal=True)
    x = lax.linalg.triangular_solve(both, x, left_side=True, lower=False)
    return lax.squeeze(x, (x.ndim - 1,)) if vector else x


@memoized
def inv(a):
    """The inverses of the square matrices in the last two dimensions.

    Of a singular matrix it holds infinities and NaN. Raises ValueError for matrices that are not
    square. To solve equations, `solve` is faster and more accurate.

    Sharding
      Auto: batch dimensions may be split; matrices that are split are gathered.
      Explicit: `a` must be whole, in its batch dimensions too; `reshard` first, or use `solve`.
      Manual: inverts the matrices of each device's block.

    >>> jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    (a,) = _inexact("inv", a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Argument to inv must have shape [..., n, n], got {a.shape}.")
    unit = to_type(eye(a.shape[-1], dtype=a.dtype), a.shape)
    for axes in a.aval.entries[:-2]:
        if axes:
            fail(ValueError, "Mapped away dimension of inputs passed to vmap should be sharded the "
                 f"same. Got inconsistent axis specs: {spec_entry(axes)} vs None",
                 code="mapped-sharding", label=f"the matrices are {a.aval.str_short(True)}",
                 notes=("the unit matrices beside them are whole",),
                 help="solve for a unit matrix that is broadcast to the shape of the others, and "
                      "brought to their sharding with `reshard`")
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
        columns = 0 if numpy_resid else b.shape[1]
        residual, rank = filled_as((columns,), convert(0, real)), as_array(np.int32(0))
        s = filled_as((0,), convert(0, real))
        return (lax.squeeze(x, (1,)) if vector else x), residual, rank, s
    if rcond is None:
        rcond = eps * max(n, m)
    limit = select_of(lt_p.bind(convert(rcond, real), real.type(0)), convert(rcond, real),
                      real.type(eps))
    u, s, vh = svd(a, full_matrices=False)
    top = lax.index_in_dim(s, 0, 0, keepdims=False)
    mask = lax.bitwise_and(lax.ge(s, lax.broadcast_in_dim(lax.mul(limit, top), s.shape, ())),
                           lax.gt(s, lax.full_like(s, 0)))
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
    u, s, vh = svd(conj(a) if is_complex(a) else a, full_matrices=False, hermitian=hermitian)
    limit = mul_p.bind(convert(rtol, real), reductions.max(s, axis=-1, keepdims=True))
    s = select_of(lax.gt(s, to_type(limit, s.shape)), real.type(np.inf), s)
    left = _matrix_transpose(vh)
    right = div_p.bind(_matrix_transpose(u), to_type(
        convert(expand_dims(s, -1), u.dtype), _matrix_transpose(u).shape))
    return matmul(left, right, precision="highest")


def matrix_rank(M, rtol=None, *, hermitian=False, tol=None):
    """The number of singular values above a limit, of the matrices in the last two dimensions.

    rtol, or tol by its older name: the limit itself, not in parts of the greatest singular value;
    one number, or one for each matrix. By default the greatest one times the larger size times the
    epsilon of the dtype.
    """
    if rtol is not None and tol is not None:
        raise ValueError("matrix_rank: only one of tol or rtol may be specified.")
    (a,) = _inexact("matrix_rank", M)
    if a.ndim < 2:
        return convert(reductions.any(lax.ne(a, lax.full_like(a, 0))), np.dtype("int32"))
    s: Any = svd(a, full_matrices=False, compute_uv=False, hermitian=hermitian)
    limit: Any = rtol if tol is None else tol
    if limit is None:
        limit = reductions.max(s, axis=-1) * (max(a.shape[-2:]) * float(finfo(s.dtype).eps))
    return reductions.sum(s > as_array(limit)[..., None], axis=-1)


def cond(x, p=None):
    """Condition numbers: the greatest by the least singular value, or norms of x and inverse."""
    (a,) = _inexact("cond", x)
    if a.ndim < 2:
        raise ValueError("jnp.linalg.cond: input array must be at least 2D; got "
                         f"arr.shape={a.shape}")
    if not a.shape[-1] or not a.shape[-2]:
        raise ValueError("jnp.linalg.cond: input array must not be empty; got "
                         f"arr.shape={a.shape}")
    if p in (None, 2, -2):
        s = svd(a, compute_uv=False)
        first = lax.index_in_dim(s, 0, -1, keepdims=False)
        last = lax.index_in_dim(s, -1, -1, keepdims=False)
        return div_p.bind(last, first) if p == -2 else div_p.bind(first, last)
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"jnp.linalg.cond: for p={p}, array must be square; got "
                         f"arr.shape={a.shape}")
    r = mul_p.bind(norm(a, ord=p, axis=(-2, -1)), norm(inv(a), ord=p, axis=(-2, -1)))
    poisoned = reductions.any(lax.ne(a, a), axis=(-2, -1))
    return select_of(lax.bitwise_and(lax.ne(r, r), lax.bitwise_not(poisoned)), r,
                     convert(np.inf, r.dtype))


def matrix_power(a, n):
    """Matrix products of n copies of a; of its inverse for negative n."""
    check_arraylike("matrix_power", a)
    a = as_array(a)
    if a.ndim < 2:
        raise TypeError(f"{a.ndim}-dimensional array given. Array must be at least "
                        "two-dimensional")
    if a.shape[-1] != a.shape[-2]:
        raise TypeError("Last 2 dimensions of the array must be square")
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(f"exponent must be an integer, got {n}") from None
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
                         f"arr.shape={x.shape} with ind={ind}.")
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
