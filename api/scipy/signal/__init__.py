"""Convolutions, spectra and trends of signals, as in `jax.scipy.signal`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.scipy.signal import (
    convolve,
    convolve2d,
    correlate,
    correlate2d,
    csd,
    detrend,
    fftconvolve,
    istft,
    stft,
    welch,
)

__all__ = [
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "istft",
    "stft",
    "welch",
]
_bound_names(globals())
