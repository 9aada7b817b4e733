"""The discrete Fourier transform of lax."""
from __future__ import annotations

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.ops.contractions.fft import FftType, fft_p
from ..operands.dtype_promotion import convert, dtype_name, promote_dtypes_complex, to_inexact

__all__ = ["FftType", "fft"]


def fft(x, fft_type, fft_lengths):
    """The transform of the last dimensions, of these lengths; fft_type: a name or `FftType`."""
    kind = FftType[fft_type.upper()] if isinstance(fft_type, str) else FftType(int(fft_type))
    lengths = tuple(map(int, fft_lengths))
    if not lengths:
        return x                # as it is, of no dimension
    if kind is FftType.RFFT:
        if issubdtype(dtype_name(x), np.complexfloating):
            raise ValueError("only real valued inputs supported for rfft")
        x = convert(x, to_inexact(dtype_name(x)))
    else:
        x = convert(x, dtype_name(promote_dtypes_complex(x)[0]))
    return fft_p.bind(x, fft_type=kind, fft_lengths=lengths)
