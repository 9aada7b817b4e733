"""Linear algebra under the names of scipy, as in `jax.scipy.linalg`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.scipy.dense import (
    block_diag,
    cho_factor,
    cho_solve,
    cholesky,
    det,
    eigh,
    expm,
    inv,
    lu,
    lu_factor,
    lu_solve,
    qr,
    schur,
    solve,
    solve_triangular,
    svd,
    toeplitz,
)

__all__ = [
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "det",
    "eigh",
    "expm",
    "inv",
    "lu",
    "lu_factor",
    "lu_solve",
    "qr",
    "schur",
    "solve",
    "solve_triangular",
    "svd",
    "toeplitz",
]
_bound_names(globals())
