"""tridiagonal_solve: x with A x = b for tridiagonal A, given by its three diagonals.

Row i of A x is dl[i] x[i-1] + d[i] x[i] + du[i] x[i+1]; dl[0] and du[-1] do not count.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...kernels.matrices.linalg import tridiagonal_solve
from ...op import LinearOperand, Sample
from ...types import Shape
from ..derivatives import const, mul, neg, type_of
from ..rules import call, reject
from .decompositions import define


def _results(types: Any, dl: Shape, d: Shape, du: Shape, b: Shape, dtype: np.dtype,
             **params: Any) -> list[tuple]:
    if not dl == d == du:
        reject(TypeError, types, "tridiagonal_solve requires that all diagonal arguments have the "
               f"same shape, got {dl}, {d} and {du}.",
               help="fill the diagonals to one length: the first of `dl` and the last of `du` "
                    "are not read")
    if b[0] != dl[0]:
        reject(TypeError, types, "tridiagonal_solve requires that the leading ndim of b equals the "
               f"dimension of the matrix, got {b[0]} and {dl[0]}.",
               help=f"give `b` of {dl[0]} rows")
    return [(b, dtype)]


def _moved(x: Any, by: int, dim: int) -> Any:
    """Elements moved by one place along a dimension counted from the end, zero moved in."""
    n = type_of(x).ndim
    config = [(0, 0, 0)] * n
    config[dim] = (by, -by, 0)
    return call("pad", x, const(0, x), padding_config=tuple(config))


def _jvp_of_diagonal(by: int) -> Callable[..., Any]:
    def contribution(g: Any, out: Any, dl: Any, d: Any, du: Any, b: Any, **params: Any) -> Any:
        """-A^-1 dA x, for a diagonal whose element i meets x[i - by]."""
        t = type_of(out)
        x = _moved(out, by, -2) if by else out
        g = call("broadcast_in_dim", g, shape=t.shape,
                 broadcast_dimensions=tuple(range(t.ndim - 1)),
                 sharding=t.sharding if t.has_explicit_mesh() else None)
        return neg(tridiagonal_solve_p.bind(dl, d, du, mul(g, x), **params))
    return contribution


def _transpose(ct: Any, dl: Any, d: Any, du: Any, b: Any, **params: Any) -> tuple:
    if not isinstance(b, LinearOperand):
        return None, None, None, None
    return None, None, None, tridiagonal_solve_p.bind(
        _moved(du, 1, -1), d, _moved(dl, -1, -1), ct, **params)


tridiagonal_solve_p = define(
    "tridiagonal_solve", "x with A x = b for tridiagonal A, given by its diagonals.", (1, 1, 1, 2),
    _results,
    many=False,
    linear=((3,),), passes_sums="never",
    jvp=(_jvp_of_diagonal(1), _jvp_of_diagonal(0), _jvp_of_diagonal(-1),
         lambda g, out, dl, d, du, b, **params: tridiagonal_solve_p.bind(dl, d, du, g, **params)),
    transpose=_transpose,
    evaluate=tridiagonal_solve,
    jax="linalg.tridiagonal_solve_p.bind",
    samples=lambda: [Sample((np.asarray([0, 1, 2], np.float32), np.asarray([4, 5, 6], np.float32),
                             np.asarray([1, 2, 0], np.float32),
                             np.asarray([[1, -1], [2, 0.5], [-1, 3]], np.float32)),
                            {"perturb_singular": False})])
