"""fft: discrete Fourier transforms over the last dimensions.

The other dimensions pass through; the transformed ones must be on one device.
"""
from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import issubdtype
from ...facts import MAY_BE_NAN, WHOLE_IN_XLA, DeviceCost, Types
from ...op import Op, Sample, defop
from ...param_types import register_param_type
from ...types import ArrayType, Entries, Shape
from ..derivatives import conj, mul, real, type_of
from ..rules import call, reject, rule_text


@register_param_type
class FftType(enum.IntEnum):
    """Which transform: complex, its inverse, or those between real and half complex signals."""
    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


Lengths = tuple[int, ...]


PADDED = "the functions of `jnp.fft` pad and cut to the lengths that they are given"


def _infer(x: ArrayType, *, fft_type: FftType, fft_lengths: Lengths) -> tuple:
    """The transform keeps the shape, except that a real one stores only n // 2 + 1 elements of the
    last dimension.
    """
    n = len(fft_lengths)
    if n > x.ndim:
        reject(ValueError, [x], f"FFT input shape {x.shape} must have at least as many input "
               f"dimensions as fft_lengths {fft_lengths}.",
               help=f"give lengths for the last {x.ndim} dimensions at most")
    batch, last = x.shape[:x.ndim - n], x.shape[x.ndim - n:]
    if fft_type == FftType.RFFT:
        if x.dtype not in (np.float32, np.float64):
            reject(ValueError, [x], f"RFFT input must be float32 or float64, got {x.dtype}",
                   help="convert it with `astype` to float32; `jnp.fft.fft` takes complex numbers")
        if last != fft_lengths:
            reject(ValueError, [x], f"RFFT input shape {x.shape} minor dimensions must be equal to "
                   f"fft_lengths {fft_lengths}", help=PADDED)
        return ((*batch, *fft_lengths[:-1], fft_lengths[-1] // 2 + 1),
                np.result_type(x.dtype, np.complex64))
    name = "IRFFT" if fft_type == FftType.IRFFT else "FFT"
    if not issubdtype(x.dtype, np.complexfloating):
        reject(ValueError, [x], f"{name} input must be complex64 or complex128, got {x.dtype}",
               help="convert it with `astype` to complex64; the functions of `jnp.fft` do so")
    if fft_type == FftType.IRFFT:
        if last[:-1] != fft_lengths[:-1]:
            reject(ValueError, [x], f"IRFFT input shape {x.shape} minor dimensions must be equal "
                   f"to all except the last fft_length, got fft_lengths={fft_lengths}",
                   help=PADDED)
        return (*batch, *fft_lengths), np.real(np.zeros((), x.dtype)).dtype
    if last != fft_lengths:
        reject(ValueError, [x], f"FFT input shape {x.shape} minor dimensions must be equal to "
               f"fft_lengths {fft_lengths}", help=PADDED)
    return x.shape, x.dtype


def _rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *, fft_type: FftType,
          fft_lengths: Lengths) -> str:
    """Transformed dimensions must be whole; a real transform changes the size of the last one,
    which is a factor of its own in the result.
    """
    rank = len(operands[0])
    dims = [f"d{d}" for d in range(rank)]
    first = rank - len(fft_lengths)
    kinds = [f"{name}:replicate" for name in dims[first:]]
    out = list(dims)
    if fft_lengths and fft_type in (FftType.RFFT, FftType.IRFFT):    # the size changes
        kinds[-1] = f"{dims[-1]}!:replicate"
        out[-1] = "h"
        kinds.append("h!:replicate")
    return rule_text([dims], [out], kinds)


def _explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
              params: dict[str, Any]) -> list[Entries]:
    return [types[0].entries]


def _transpose(ct: Any, x: Any, *, fft_type: FftType, fft_lengths: Lengths) -> tuple:
    """A transform is symmetric; of a real one the half that is not stored counts twice, or not at
    all.
    """
    if fft_type == FftType.RFFT:
        t = type_of(ct)
        full = fft_lengths[-1] - t.shape[-1]
        config = ((0, 0, 0),) * (t.ndim - 1) + ((0, full, 0),)
        ct = call("pad", ct, np.zeros((), t.dtype), padding_config=config)
        return (real(fft_p.bind(ct, fft_type=FftType.FFT, fft_lengths=fft_lengths)),)
    if fft_type == FftType.IRFFT:
        out = fft_p.bind(ct, fft_type=FftType.RFFT, fft_lengths=fft_lengths)
        return (conj(mul(out, _half_weights(out, fft_lengths)), input_dtype=out.dtype),)
    return (fft_p.bind(ct, fft_type=fft_type, fft_lengths=fft_lengths),)


def _half_weights(x: Any, fft_lengths: Lengths) -> Any:
    """1/n for frequencies that occur once in a real signal, 2/n for those that stand for two."""
    n = fft_lengths[-1]
    weights = np.full(n // 2 + 1, 2.0)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    t = type_of(x)
    weights = (weights / np.prod(fft_lengths)).astype(t.dtype)
    return call("broadcast_in_dim", weights, shape=t.shape, broadcast_dimensions=(t.ndim - 1,),
                sharding=t.sharding if t.has_explicit_mesh() else None)


def _evaluate(lead: int, x: np.ndarray, *, fft_type: FftType, fft_lengths: Lengths) -> np.ndarray:
    if not fft_lengths:
        return x
    axes = tuple(range(x.ndim - len(fft_lengths), x.ndim))
    function = {FftType.FFT: np.fft.fftn, FftType.IFFT: np.fft.ifftn, FftType.RFFT: np.fft.rfftn,
                FftType.IRFFT: np.fft.irfftn}[fft_type]
    if not x.size and fft_type == FftType.IRFFT:        # numpy reads what is not there
        return np.zeros((*x.shape[:-len(fft_lengths)], *fft_lengths), np.real(x).dtype)
    return function(x, s=fft_lengths, axes=axes)


def _flops(operands: Types, results: Types, params: dict[str, Any]) -> float:
    n = math.prod(params["fft_lengths"])
    return 5.0 * max(operands[0].size, results[0].size) * math.log2(max(n, 2))


def _sample(shape: Shape, kind: FftType, lengths: Lengths) -> Sample:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    if kind != FftType.RFFT:
        x = (x + 1j * x[..., ::-1]).astype(np.complex64)
    return Sample((x,), {"fft_type": kind, "fft_lengths": lengths})


fft_p = defop(
    "fft", doc="The discrete Fourier transform of the last dimensions.",
    infer=_infer, rule=_rule, explicit=_explicit, pending="carry",
    linear=((0,),), jvp="linear", transpose=_transpose,
    evaluate=_evaluate, facts=(MAY_BE_NAN, WHOLE_IN_XLA), cost=DeviceCost(_flops),
    samples=lambda: [
        _sample((3, 8), FftType.FFT, (8,)),
        _sample((2, 3, 4), FftType.IFFT, (3, 4)),
        _sample((2, 7), FftType.RFFT, (7,)),
        _sample((2, 5), FftType.IRFFT, (8,)),
        _sample((2, 4), FftType.IRFFT, (7,)),
    ])
