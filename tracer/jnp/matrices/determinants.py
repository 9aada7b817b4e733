"""Determinants, and their signs and logarithms."""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.ops.elementwise.arithmetic import div_p, mul_p, sub_p
from ....ir.support.named_tuple import NamedTuple
from ....ir.values.array import Array
from ... import lax
from ...autodiff.custom.custom_jvp import custom_jvp
from ...lax.creation import filled_as
from ...operands.broadcasting import select_of, to_type
from ...operands.dtype_promotion import convert, is_complex
from ...staging.memoized import memoized
from ..creation.ranges import arange
from ..elementwise.arithmetic import absolute, log
from ..elementwise.division import remainder
from ..manipulation.diagonals import diagonal, trace
from ..manipulation.shaping import expand_dims
from ..reductions import reduce as reductions
from ..reductions.cumulative import cumprod
from .decompositions import _inexact, _square
from .solving import permuted


class SlogdetResult(NamedTuple):
    """Sign (or phase) and logarithm of the absolute value of a determinant."""

    sign: Array
    logabsdet: Array


def _sign(pivots: Array, dtype: Any) -> Array:
    """1 or -1, by the number of row exchanges."""
    rows = to_type(arange(pivots.shape[-1]), pivots.shape)
    exchanges = reductions.sum(lax.ne(pivots, convert(rows, pivots.dtype)), axis=-1)
    odd = convert(remainder(exchanges, 2), np.dtype("int32"))
    return convert(lax.sub(np.int32(1), lax.mul(np.int32(2), odd)), dtype)


def _small_det(a: Any) -> Any:
    """Sarrus' rule for matrices of two or three rows."""
    n = a.shape[-1]
    rows = range(n)

    def product(columns: Any) -> Any:
        out = a[..., 0, columns[0]]
        for i in rows[1:]:
            out = mul_p.bind(out, a[..., i, columns[i]])
        return out

    even = [tuple((i + k) % n for i in rows) for k in rows] if n == 3 else [(0, 1)]
    odd = [tuple((k - i) % n for i in rows) for k in (2, 1, 0)] if n == 3 else [(1, 0)]
    total = product(even[0])
    for columns in even[1:]:
        total = lax.add(total, product(columns))
    for columns in odd:
        total = sub_p.bind(total, product(columns))
    return total


@memoized
def det(a):
    """The determinants of the square matrices in the last two dimensions: [..., n, n] gives [...].
    """
    (a,) = _inexact("det", a)
    _square("det", a)
    n = a.shape[-1]
    return _small_det(a) if n in (2, 3) else a[..., 0, 0] if n == 1 else _det(a)


@custom_jvp
def _det(a: Any) -> Any:
    both, pivots, _ = lax.linalg.lu(a)
    product = reductions.prod(diagonal(both, axis1=-2, axis2=-1), axis=-1)
    return mul_p.bind(product, _sign(pivots, a.dtype))


@_det.defjvp
def _det_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The trace of adj(a) da, with adj(a) da = det(a) a^-1 da, which has a limit for singular a.

    Row n of U^-1 y is y_n / u_nn: times the determinant it is y_n times the product of the other
    u_ii, and the rows above follow from it without u_nn. Where another u_ii is zero, the rank is
    n - 2 or less, and the adjugate zero, unless an earlier column is zero below it: as in JAX.
    """
    (a,), (da,) = primals, tangents
    n = a.shape[-1]
    if n == 0:
        return _det(a), filled_as(a.shape[:-2], convert(0, a.dtype))
    both, pivots, permutation = lax.linalg.lu(a)
    products = cumprod(diagonal(both, axis1=-2, axis2=-1), axis=-1)
    products = mul_p.bind(products, to_type(expand_dims(_sign(pivots, a.dtype), -1),
                                            products.shape))
    total = products[..., -1]
    others = expand_dims(products[..., -2], (-2, -1))
    deficient = lax.eq(others, filled_as(others.shape, convert(0, a.dtype)))
    others = select_of(deficient, others, convert(1, a.dtype))
    corner, last = np.zeros((n, n), bool), np.zeros((n, 1), bool)
    corner[-1, -1] = last[-1] = True
    upper = select_of(deficient, both, np.eye(n, dtype=a.dtype))
    upper = select_of(corner, upper, div_p.bind(filled_as(others.shape, convert(1, a.dtype)),
                                                others))
    y = lax.linalg.triangular_solve(both, permuted(da, permutation), left_side=True, lower=True,
                                    unit_diagonal=True)
    y = select_of(last, mul_p.bind(y, to_type(expand_dims(total, (-2, -1)), y.shape)), y)
    y = select_of(deficient, y, convert(0, a.dtype))
    solved = lax.linalg.triangular_solve(upper, y, left_side=True, lower=False)
    return total, trace(solved, axis1=-2, axis2=-1)


def slogdet(a, *, method=None):
    """The sign of the determinants, and the logarithm of their absolute value, without overflow."""
    if method not in (None, "lu", "qr"):
        raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' (`None`), "
                         "and 'qr'.")
    (a,) = _inexact("slogdet", a)
    _square("slogdet", a)
    both, pivots, _ = lax.linalg.lu(a)
    diag, parity = diagonal(both, axis1=-2, axis2=-1), _sign(pivots, a.dtype)
    sizes = absolute(diag)
    signs = lax.div(diag, convert(sizes, a.dtype)) if is_complex(a) else lax.sign(diag)
    zero = reductions.any(lax.eq(sizes, filled_as(sizes.shape, convert(0, sizes.dtype))), axis=-1)
    sign = select_of(zero, mul_p.bind(parity, reductions.prod(signs, axis=-1)),
                     convert(0, a.dtype))
    logs = select_of(zero, reductions.sum(log(sizes), axis=-1), convert(-np.inf, sizes.dtype))
    return SlogdetResult(sign, logs)
