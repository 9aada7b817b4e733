"""The parts of `jax.scipy` that are here: arrays under the names of scipy."""
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.scipy import (
    cluster,
    fft,
    integrate,
    interpolate,
    linalg,
    ndimage,
    optimize,
    signal,
    sparse,
    spatial,
    special,
    stats,
)

__all__ = [
    "cluster",
    "fft",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "spatial",
    "special",
    "stats",
]
_bound_names(globals())
