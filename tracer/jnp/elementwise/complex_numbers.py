"""Complex numbers: their parts, conjugate and angle."""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.ops.elementwise.comparison import eq_p, ne_p
from ....ir.ops.elementwise.complex_parts import imag_p, real_p
from ....ir.ops.elementwise.transcendental import atan2_p
from ... import lax, sharding_notes
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    is_complex,
    literal_like,
    promote_dtypes_inexact,
    strong_array,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import LEVEL, float_default
from ...staging.constants import as_array
from .arithmetic import rad2deg

__all__ = ["angle", "conj", "conjugate", "imag", "iscomplex", "isreal", "real"]


@sharding_notes.elementwise
def real(val, /):
    """The real part of complex numbers, elementwise; real ones stay as they are."""
    check_arraylike("real", val)
    return real_p.bind(val) if is_complex(val) else as_array(val)


@sharding_notes.elementwise
def imag(val, /):
    """The imaginary part of complex numbers, elementwise; zeros for real ones."""
    check_arraylike("imag", val)
    return imag_p.bind(val) if is_complex(val) else lax.full_like(val, 0)


@sharding_notes.elementwise
def conjugate(x, /):
    """The complex conjugate of x, elementwise; real numbers stay as they are."""
    check_arraylike("conjugate", x)
    return lax.conj(x) if is_complex(x) else as_array(x)


@sharding_notes.elementwise
def conj(x, /):
    """The complex conjugate of x, elementwise; real numbers stay as they are."""
    return conjugate(x)


@sharding_notes.elementwise
def angle(z, deg=False):
    """The angle of complex numbers, elementwise, in radians, or in degrees if `deg`."""
    check_arraylike("angle", z)
    re, im = real(z), imag(z)
    number = LEVEL[dtype_name(z)]
    re, im = promote_dtypes_inexact(re, im)
    out = atan2_p.bind(im, re)
    if number < 2 or number == 2 and not shape_of(z):
        out = convert(out, float_default())
    return rad2deg(out) if deg else out


@sharding_notes.elementwise
def iscomplex(x):
    """Whether the imaginary part of x is not zero, elementwise: an array of bool."""
    part = imag(x)
    return strong_array(ne_p.bind(part, literal_like(0, part)))


@sharding_notes.elementwise
def isreal(x):
    """Whether the imaginary part of x is zero, elementwise: an array of bool."""
    part = imag(x)
    return strong_array(eq_p.bind(part, literal_like(0, part)))


def magnitude_dtype(x: Any) -> np.dtype:
    """The dtype of absolute values of x."""
    return np.zeros(0, dtype_name(x)).real.dtype
