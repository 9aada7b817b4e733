"""Custom calls of JAX's CPU backend that programs of linear algebra hold."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.ops.dialect import OPS
from ...tracer import lax
from ...tracer.lax import linalg
from .attributes import python_of, shape_and_dtype
from .ops import adjoint
from .replay import Replay, rule


def _letter(op: Any, name: str) -> str:
    return chr(int(python_of(op.attributes["mhlo.backend_config"])[name]))


def _fine(op: Any, result: int) -> Any:
    """Zeros: the number that LAPACK gives where nothing failed, or what nobody reads."""
    shape, dtype = shape_and_dtype(op.results[result].type)
    return np.zeros(shape, dtype)


@rule(*(f"lapack_{t}potrf_ffi" for t in "sdcz"))
def _cholesky(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    if _letter(op, "uplo") == "L":
        return linalg.cholesky(x[0], symmetrize_input=False), _fine(op, 1)
    return adjoint(linalg.cholesky(adjoint(x[0]), symmetrize_input=False)), _fine(op, 1)


@rule(*(f"lapack_{t}trsm_ffi" for t in "sdcz"), *(f"blas_{t}trsm_ffi" for t in "sdcz"))
def _triangular_solve(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return linalg.triangular_solve(
        x[0], x[1], left_side=_letter(op, "side") == "L", lower=_letter(op, "uplo") == "L",
        transpose_a=_letter(op, "trans_x") != "N", conjugate_a=_letter(op, "trans_x") == "C",
        unit_diagonal=_letter(op, "diag") == "U")


@rule(*(f"lapack_{t}getrf_ffi" for t in "sdcz"))
def _lu(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """LAPACK's LU decomposition, whose pivots count from 1."""
    factors, pivots, _ = OPS["lu"].bind(x[0])
    return factors, lax.add(pivots, lax.full_like(pivots, 1)), _fine(op, 2)


@rule("cu_lu_pivots_to_permutation", "lu_pivots_to_permutation")
def _permutation(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return linalg.lu_pivots_to_permutation(x[0], shape_and_dtype(op.results[0].type)[0][-1])


@rule(*(f"lapack_{t}geqrf_ffi" for t in "sdcz"))
def _packed_qr(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return (*OPS["geqrf"].bind(x[0]), *([_fine(op, 2)] if len(op.results) == 3 else []))


@rule(*(f"lapack_{t}gqr_ffi" for t in ("sor", "dor", "cun", "zun")))
def _householder_product(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return linalg.householder_product(x[0], x[1]), *(
        [_fine(op, 1)] if len(op.results) == 2 else [])


@rule(*(f"lapack_{t}evd_ffi" for t in ("ssy", "dsy", "che", "zhe")))
def _eigh(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    vectors, values = linalg.eigh(x[0], lower=_letter(op, "uplo") == "L", symmetrize_input=False)
    return vectors, values, _fine(op, 2)


@rule(*(f"lapack_{t}gesdd_ffi" for t in "sdcz"))
def _svd(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """The overwritten matrix, singular values, and both sets of vectors if they are asked for."""
    mode = _letter(op, "mode")
    if mode == "N":
        values = linalg.svd(x[0], compute_uv=False)
        return x[0], values, _fine(op, 2), _fine(op, 3), _fine(op, 4)
    u, values, v = linalg.svd(x[0], full_matrices=mode == "A")
    return x[0], values, u, v, _fine(op, 4)


@rule(*(f"lapack_{t}gtsv_ffi" for t in "sdcz"))
def _tridiagonal_solve(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return *x[:3], linalg.tridiagonal_solve(*x), _fine(op, 4)


@rule(*(f"lapack_{t}mqr_ffi" for t in ("sor", "dor", "cun", "zun")))
def _times_q(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    config = python_of(op.attributes["mhlo.backend_config"])
    return linalg.ormqr(*x, left=bool(config["left"]), transpose=bool(config["transpose"]))


@rule("annotate_device_placement")
def _same(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return list(x)
