"""`solve`: a system of linear equations at once, which programs express as a decomposition and two
triangular systems.

The executor rewrites those to it (runtime/rewrites/solves.py); tracing never emits it.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...facts import IN_PLACE, DeviceCost, Types
from ...kernels.matrices.blas_threads import by_lapack
from ...kernels.matrices.linalg import solve
from ...op import Sample
from ...types import Shape
from ..rules import reject
from .decompositions import define


def _results(types: Types, a: Shape, b: Shape, dtype: np.dtype) -> list[tuple]:
    if a != (b[0], b[0]):
        reject(ValueError, types, "solve requires a square matrix with as many rows as the "
               f"right-hand side, got {a} and {b}",
               help="`jnp.linalg.lstsq` solves with a matrix that is not square")
    return [(b, dtype)]


def _flops(operands: Types, results: Types, params: dict[str, Any]) -> float:
    """Of the factors, and of two triangular systems."""
    a, b = operands
    n = a.shape[-1]
    return a.size * n * 2 / 3 + 2 * b.size * n


solve_p = define(
    "solve", "x with a x = b, by the factors of a with rows exchanged.", (2, 2), _results,
    many=False,
    evaluate=by_lapack(solve), facts=(IN_PLACE,), cost=DeviceCost(_flops),
    jax="jnp.linalg.solve",
    samples=lambda: [Sample((
        np.asarray([[0, 2, 1], [1, 1, 0], [3, 0, 1]], np.float32),
        np.asarray([[1, 2], [0, 1], [4, 0]], np.float32)))])
