"""Conversions to Python numbers: the checks that arrays and traced arrays share.

Messages are JAX's (0.10.2).
"""
from __future__ import annotations

from ..dtypes import is_extended
from ..types import ArrayType

_NARROW = ("int1", "int2", "int4", "uint1", "uint2", "uint4")


def check_bool(aval: ArrayType) -> None:
    """Raise unless a value of this type is true or false: of one element, and no random key."""
    if is_extended(aval.dtype):
        raise TypeError("key array cannot be converted to boolean.")
    if aval.size == 0:
        raise ValueError("The truth value of an empty array is ambiguous. Use `array.size > 0` to "
                         "check that an array is not empty.")
    if aval.size > 1:
        raise ValueError("The truth value of an array with more than one element is ambiguous. "
                         "Use a.any() or a.all()")


def check_scalar(aval: ArrayType) -> None:
    """Raise TypeError unless values of this type have no dimensions."""
    if aval.shape:
        raise TypeError("Only scalar arrays can be converted to Python scalars; got "
                        f"arr.ndim={aval.ndim}")


def check_index(aval: ArrayType) -> None:
    """Raise TypeError unless values of this type are integers without dimensions."""
    dtype = aval.dtype
    if aval.shape or is_extended(dtype) or dtype.kind not in "iu" and dtype.name not in _NARROW:
        raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
