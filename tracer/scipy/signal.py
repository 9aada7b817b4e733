"""Convolutions, spectra and trends of signals, as in `jax.scipy.signal`.

Windows are numpy's, from `scipy.signal.get_window`: they depend on their length alone. Spectra are
averages over segments that overlap (Welch, "The use of fast Fourier transform for the estimation of
power spectra", 1967); `istft` adds the segments up again, weighted by their windows.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.support.lazy import lazy_import
from ...ir.support.named_tuple import NamedTuple
from .. import jnp, lax
from ..jnp import fft
from ..operands.dtype_promotion import promote_args_inexact, promote_dtypes_inexact
from ..operands.shape_arguments import canonical_axes, canonical_axis

_windows = lazy_import("scipy.signal")

_MODES = ("full", "same", "valid")


# -- convolution -----------------------------------------------------------------------------------

def convolve(in1, in2, mode="full", method="auto", precision=None):
    """The convolution of two arrays of the same rank.

    mode: "full", "same" (as in1, from the middle) or "valid" (without padding). method: "direct",
    "fft", or "auto", which is direct.

    >>> from shardtrace.scipy.signal import convolve
    >>> convolve(jnp.array([1., 2., 3.]), jnp.array([1., 1.]))
    Array([1., 3., 5., 3.], dtype=float32)
    """
    return _convolved("convolve", in1, in2, mode, method, precision)


def correlate(in1, in2, mode="full", method="auto", precision=None):
    """The cross-correlation of two arrays: `convolve` with in2 reversed and conjugated."""
    return _convolved("correlate", in1, _reversed(in2), mode, method, precision)


def convolve2d(in1, in2, mode="full", boundary="fill", fillvalue=0, precision=None):
    """The convolution of two matrices, with zeros around in1. mode: as in `convolve`."""
    return _matrices("convolve2d", in1, in2, in2, mode, boundary, fillvalue, precision)


def correlate2d(in1, in2, mode="full", boundary="fill", fillvalue=0, precision=None):
    """The cross-correlation of two matrices: `convolve2d` with in2 reversed and conjugated.

    The middle of "same" is the one of in2 as it is given, so the other one of two if it is even.
    """
    kernel = _reversed(in2)
    out = _matrices("correlate2d", in1, in2, kernel, "full" if mode == "same" else mode, boundary,
                    fillvalue, precision)
    if mode != "same":
        return out
    start = [n // 2 for n in kernel.shape]
    return lax.slice(out, start, [a + n for a, n in zip(start, jnp.shape(in1), strict=True)])


def fftconvolve(in1, in2, mode="full", axes=None):
    """The convolution of two arrays by their Fourier transforms, along `axes` or all dimensions.

    Other dimensions broadcast.
    """
    a, b = promote_dtypes_inexact(*map(jnp.asarray, (in1, in2)))
    if a.ndim != b.ndim:
        raise ValueError("in1 and in2 should have the same dimensionality")
    dims = tuple(range(a.ndim)) if axes is None else canonical_axes(axes, a.ndim)
    a, b = _in_order(a, b, mode, dims)
    if any(m != n and 1 not in (m, n) for d, (m, n) in enumerate(zip(a.shape, b.shape, strict=True))
           if d not in dims):
        raise ValueError(f"mapped axes must have same shape; got in1.shape={a.shape} "
                         f"in2.shape={b.shape} axes={dims}")
    sizes = [a.shape[d] + b.shape[d] - 1 for d in dims]
    if not dims or 0 in (*a.shape, *b.shape):
        return a * b if not dims else jnp.zeros((0,) * a.ndim, a.dtype)
    if jnp.iscomplexobj(a):
        full = fft.ifftn(fft.fftn(a, sizes, dims) * fft.fftn(b, sizes, dims), sizes, dims)
    else:
        full = fft.irfftn(fft.rfftn(a, sizes, dims) * fft.rfftn(b, sizes, dims), sizes, dims)
    for d, n in zip(dims, sizes, strict=True):
        start, stop = _part(mode, a.shape[d], b.shape[d], n)
        full = lax.slice_in_dim(full, start, stop, axis=d)
    return full.astype(a.dtype)


def _reversed(x: Any) -> Any:
    return jnp.conj(jnp.flip(jnp.asarray(x)))


def _matrices(name: str, in1: Any, in2: Any, kernel: Any, mode: str, boundary: str,
              fillvalue: Any, precision: Any) -> Any:
    if boundary != "fill" or not isinstance(fillvalue, (int, float)) or fillvalue != 0:
        raise NotImplementedError(f"{name}() only supports boundary='fill', fillvalue=0; pad in1 "
                                  "with jnp.pad and ask for mode='valid'")
    if jnp.ndim(in1) != 2 or jnp.ndim(in2) != 2:
        raise ValueError(f"{name}() only supports 2-dimensional inputs.")
    return _convolved(name, in1, kernel, mode, "direct", precision)


def _convolved(name: str, in1: Any, in2: Any, mode: str, method: str, precision: Any) -> Any:
    """A convolution of any number of dimensions, direct or by FFT; `mode` says which part is kept.
    """
    if method not in ("auto", "direct", "fft"):
        raise ValueError(f"Got {method=}; expected 'auto', 'fft', or 'direct'.")
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    a, b = promote_dtypes_inexact(*map(jnp.asarray, (in1, in2)))
    if a.ndim != b.ndim:
        raise ValueError("in1 and in2 must have the same number of dimensions")
    if 0 in (*a.shape, *b.shape):
        raise ValueError(f"zero-size arrays not supported in convolutions, got shapes {a.shape} "
                         f"and {b.shape}.")
    dims = tuple(range(a.ndim))
    sizes = list(zip(a.shape, b.shape, strict=True))
    if any(m < n for m, n in sizes) and any(m > n for m, n in sizes):
        raise ValueError("One input must be smaller than the other in every dimension.")
    a, b = _in_order(a, b, mode, dims)
    if not dims:
        return a * b
    padding = []
    for m, n in zip(a.shape, b.shape, strict=True):
        start, stop = _part(mode, m, n, m + n - 1)
        padding.append((n - 1 - start, n - 1 - (m + n - 1 - stop)))
    out = lax.conv_general_dilated(a[None, None], jnp.flip(b)[None, None], (1,) * a.ndim, padding,
                                   precision=precision)
    return out[0, 0]


def _in_order(a: Any, b: Any, mode: str, dims: Sequence[int]) -> tuple[Any, Any]:
    """The operands, the larger one first where only whole overlaps are asked for."""
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {list(_MODES)}")
    if mode != "valid" or all(a.shape[d] >= b.shape[d] for d in dims):
        return a, b
    if all(a.shape[d] <= b.shape[d] for d in dims):
        return b, a
    raise ValueError("For 'valid' mode, One input must be at least as large as the other in every "
                     f"dimension, got shapes {a.shape} and {b.shape}")


def _part(mode: str, first: int, second: int, full: int) -> tuple[int, int]:
    """Where the part that is asked for of a full convolution begins and ends."""
    size = {"full": full, "same": first, "valid": first - second + 1}[mode]
    return (full - size) // 2, (full - size) // 2 + size


# -- trends ----------------------------------------------------------------------------------------

def detrend(data, axis=-1, type="linear", bp=0, overwrite_data=None):
    """`data` without its trend along `axis`: the mean, or the straight line of least squares.

    type: "constant" or "linear". bp: where pieces with lines of their own begin.
    """
    if overwrite_data is not None:
        raise NotImplementedError("overwrite_data argument not implemented.")
    if type not in ("constant", "linear"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    (x,) = promote_args_inexact("detrend", data)
    x = jnp.asarray(x)
    if type == "constant":
        return x - jnp.mean(x, axis=axis, keepdims=True)
    axis = canonical_axis(axis, x.ndim)
    n = x.shape[axis]
    cuts = np.unique(np.concatenate([[0], np.atleast_1d(np.asarray(bp)), [n]])).astype(int)
    if n and cuts[-1] > n:
        raise ValueError("Breakpoints must be non-negative and less than length of data along "
                         f"given axis, got {bp}")
    rows = jnp.moveaxis(x, axis, -1)
    pieces = []
    for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
        places = np.arange(1, stop - start + 1) / (stop - start)
        line = np.stack([places, np.ones_like(places)], 1)
        basis, _ = np.linalg.qr(line)
        basis = jnp.asarray(basis, rows.real.dtype)
        piece = rows[..., start:stop]
        pieces.append(piece - (piece @ basis) @ basis.T)
    return jnp.moveaxis(jnp.concatenate(pieces, -1), -1, axis)


# -- spectra ---------------------------------------------------------------------------------------

def stft(x, fs=1.0, window="hann", nperseg=256, noverlap=None, nfft=None, detrend=False,
         return_onesided=True, boundary="zeros", padded=True, axis=-1):
    """Frequencies, times, and the Fourier transforms of segments of x around these times.

    fs: samples a second. window: its name, or its nperseg values. noverlap: how many samples
    segments share, by default half. nfft: with zeros, each is as long. boundary: "zeros",
    "constant", "even", "odd" or None: what is put before and after x. padded: with zeros, so that
    segments fit.
    """
    (x,) = promote_args_inexact("stft", x)
    how = _Segmentation(fs, window, nperseg, noverlap, nfft, detrend, return_onesided, "spectrum")
    return _segments(x, None, how, axis, boundary, padded, power=False)


def csd(x, y, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant",
        return_onesided=True, scaling="density", axis=-1, average="mean"):
    """Frequencies, and the cross power spectral density of x and y by Welch's method.

    scaling: "density" (a Hz) or "spectrum". average: "mean" or "median", of the segments. Others:
    as in `stft`.
    """
    x, y = (x, None) if y is None or y is x else promote_dtypes_inexact(
        *map(jnp.asarray, (x, y)))
    if y is None:
        (x,) = promote_args_inexact("csd", x)
    how = _Segmentation(fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling)
    freqs, _, power = _segments(x, y, how, axis, None, False, power=True)
    if average not in ("mean", "median"):
        raise ValueError(f'average must be "median" or "mean", got {average}')
    if power.ndim < 2 or not power.size:
        return freqs, power
    count = power.shape[-1]
    if average == "mean":
        return freqs, power.mean(-1)
    odd = 2 * np.arange(1.0, (count - 1) // 2 + 1)
    bias = 1 + float(np.sum(1.0 / (odd + 1) - 1.0 / odd))       # of the median of chi-square
    middle = jnp.median(power.real, -1)
    if jnp.iscomplexobj(power):
        middle = lax.complex(middle, jnp.median(power.imag, -1))
    return freqs, middle / bias


def welch(x, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant",
          return_onesided=True, scaling="density", axis=-1, average="mean"):
    """Frequencies, and the power spectral density of x by Welch's method; see `csd`."""
    freqs, power = csd(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided,
                       scaling, axis, average)
    return freqs, power.real


def istft(Zxx, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, input_onesided=True,
          boundary=True, time_axis=-1, freq_axis=-2):
    """Times, and the signal whose `stft` this is, by the least squares of overlapping segments.

    boundary: whether `stft` put something before and after it.
    """
    z = jnp.asarray(Zxx)
    if z.ndim < 2:
        raise ValueError("Input stft must be at least 2d!")
    z = z.astype(jnp.result_type(z, jnp.complex64))
    freq, when = canonical_axis(freq_axis, z.ndim), canonical_axis(time_axis, z.ndim)
    if freq == when:
        raise ValueError("Must specify differing time and frequency axes!")
    z = jnp.moveaxis(z, (freq, when), (-2, -1))
    length = 2 * (z.shape[-2] - 1) if input_onesided else z.shape[-2]
    nperseg = length if nperseg is None else operator.index(nperseg)
    nfft = (length + (input_onesided and nperseg == length + 1)) if nfft is None else nfft
    if nfft < nperseg:
        raise ValueError(f"FFT length ({nfft}) must be longer than nperseg ({nperseg}).")
    noverlap = nperseg // 2 if noverlap is None else operator.index(noverlap)
    if noverlap >= nperseg:
        raise ValueError("noverlap must be less than nperseg.")
    step, count = nperseg - noverlap, z.shape[-1]
    parts = (fft.irfft(z, nfft, -2) if input_onesided else fft.ifft(z, nfft, -2))[..., :nperseg, :]
    weights = jnp.asarray(_window(window, nperseg), parts.real.dtype)
    parts = jnp.swapaxes(parts, -1, -2) * (weights * weights.sum())
    places = (step * np.arange(count))[:, None] + np.arange(nperseg)
    total = nperseg + step * (count - 1)
    signal = jnp.zeros((*parts.shape[:-2], total), parts.dtype).at[..., places].add(parts)
    norm = jnp.zeros(total, weights.dtype).at[places].add(jnp.broadcast_to(
        weights ** 2, places.shape))
    signal = signal / jnp.where(norm > 1e-10, norm, 1.0)
    if boundary:
        signal = signal[..., nperseg // 2:total - nperseg // 2]
    signal = jnp.moveaxis(signal, -1, when - (freq < when))
    return jnp.arange(signal.shape[0]) / fs, signal         # of its first dimension, as in scipy


def _window(window: Any, nperseg: int) -> np.ndarray:
    if isinstance(window, (str, tuple)):
        return _windows.get_window(window, nperseg)
    values = np.asarray(window)
    if values.ndim != 1:
        raise ValueError("window must be 1-D")
    if values.shape[0] != nperseg:
        raise ValueError(f"window must have length of {nperseg}")
    return values


_AROUND = {"zeros": {"mode": "constant"}, "constant": {"mode": "edge"},
           "even": {"mode": "reflect"}, "odd": {"mode": "reflect", "reflect_type": "odd"}}


class _Segmentation(NamedTuple):
    """How a signal is cut into segments, and these are transformed; fields as in `stft`."""
    fs: Any
    window: Any
    nperseg: Any
    noverlap: Any
    nfft: Any
    trend: Any
    onesided: bool
    scaling: str


def _segments(x: Any, y: Any, how: _Segmentation, axis: int, boundary: str | None, padded: bool,
              *, power: bool) -> tuple[Any, Any, Any]:
    """(frequencies, times, for each segment the transform, or x's conjugate times y's)."""
    fs, window, nperseg, noverlap, nfft, trend, onesided, scaling = how
    signals = [jnp.moveaxis(jnp.asarray(v), axis, -1) for v in (x, y) if v is not None]
    if len(signals) > 1:
        signals = _as_long(signals)
    nperseg, noverlap, nfft = _lengths(window, nperseg, noverlap, nfft, signals[0].shape[-1])
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"Unknown scaling: {scaling}")
    if boundary is not None:
        if boundary not in _AROUND:
            raise ValueError(f"Unknown boundary option '{boundary}', must be one of: "
                             f"{[*_AROUND, None]}")
        signals = [_padded(v, nperseg // 2, nperseg // 2, **_AROUND[boundary]) for v in signals]
    step = nperseg - noverlap
    if padded:
        more = -(signals[0].shape[-1] - nperseg) % step % nperseg
        signals = [_padded(v, 0, more) for v in signals]
    count = (signals[0].shape[-1] - noverlap) // step
    places = (step * np.arange(count))[:, None] + np.arange(nperseg)
    weights = _window(window, nperseg)
    dtype = jnp.result_type(*signals)
    onesided = onesided and not jnp.issubdtype(dtype, np.complexfloating)
    without = _without_trend(trend)
    transform: Callable[..., Any] = fft.rfft if onesided else fft.fft
    found = [transform(without(v[..., places]) * jnp.asarray(weights, v.real.dtype), nfft)
             for v in signals]
    scale = 1 / (fs * (weights * weights).sum()) if scaling == "density" else 1 / weights.sum() ** 2
    if power:
        out = jnp.conj(found[0]) * found[-1] * scale
        if onesided:
            end = None if nfft % 2 else -1
            out = out.at[..., 1:end].multiply(2)
    else:
        out = found[0] * math.sqrt(scale)
    freqs = (fft.rfftfreq if onesided else fft.fftfreq)(nfft, 1 / fs)
    times = (np.arange(count) * step + nperseg / 2 - (nperseg / 2 if boundary else 0)) / fs
    axis = axis if axis < 0 else axis - jnp.ndim(x)
    out = jnp.moveaxis(out, -1, -2)                         # frequencies, then times
    if axis != -1:
        out = jnp.moveaxis(out, -2, axis - 1)
    return freqs, jnp.asarray(times, out.real.dtype), out


def _padded(x: Any, before: int, after: int, **how: Any) -> Any:
    """The signals with more samples at their ends: zeros, or as a mode of `jnp.pad` says."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(before, after)], **how)


def _as_long(signals: Sequence[Any]) -> list[Any]:
    """Signals of one shape, the shorter ones padded with zeros."""
    ranks = [v.ndim for v in signals]
    if ranks[0] != ranks[1]:
        raise ValueError(f"two-arguments must have the same rank ({ranks[0]} vs {ranks[1]}).")
    try:
        lead = np.broadcast_shapes(*(v.shape[:-1] for v in signals))
    except ValueError:
        raise ValueError("x and y cannot be broadcast together.") from None
    n = max(v.shape[-1] for v in signals)
    return [jnp.broadcast_to(_padded(v, 0, n - v.shape[-1]), (*lead, n)) for v in signals]


def _lengths(window: Any, nperseg: Any, noverlap: Any, nfft: Any, n: int) -> tuple[int, int, int]:
    """`nperseg`, `noverlap` and `nfft` for signals of n samples, where they are left open, too."""
    if nperseg is not None and operator.index(nperseg) < 1:
        raise ValueError("nperseg must be a positive integer")
    if isinstance(window, (str, tuple)):
        nperseg = min(256 if nperseg is None else operator.index(nperseg), max(n, 1))
    elif nperseg is not None and nperseg != len(window):
        raise ValueError("value specified for nperseg is different from length of window: "
                         f"{nperseg} and {len(window)}")
    elif len(window) > n:
        raise ValueError("window is longer than input signal")
    else:
        nperseg = len(window)
    noverlap = nperseg // 2 if noverlap is None else operator.index(noverlap)
    nfft = nperseg if nfft is None else operator.index(nfft)
    if nfft < nperseg:
        raise ValueError("nfft must be greater than or equal to nperseg.")
    if noverlap >= nperseg:
        raise ValueError("noverlap must be less than nperseg.")
    return nperseg, noverlap, nfft


def _without_trend(trend: Any) -> Callable[[Any], Any]:
    if not trend:
        return lambda v: v
    return trend if callable(trend) else lambda v: detrend(v, axis=-1, type=trend)
