"""Vector quantisation, as in `jax.scipy.cluster.vq`."""
from __future__ import annotations

from .. import jnp
from ..operands.dtype_promotion import check_arraylike, promote_dtypes_inexact


def vq(obs, code_book, check_finite=True):
    """For each row of obs the nearest row of code_book, and the distance to it."""
    check_arraylike("scipy.cluster.vq.vq", obs, code_book)
    a, b = promote_dtypes_inexact(jnp.asarray(obs), jnp.asarray(code_book))
    if a.ndim != b.ndim:
        raise ValueError("Observation and code_book should have the same rank")
    if a.ndim not in (1, 2):
        raise ValueError("ndim different than 1 or 2 are not supported")
    if a.ndim == 1:
        a, b = a[:, None], b[:, None]
    distances = jnp.linalg.norm(a[:, None] - b[None], axis=-1)
    nearest = jnp.argmin(distances, -1)
    return nearest, jnp.take_along_axis(distances, nearest[:, None], 1)[:, 0]
