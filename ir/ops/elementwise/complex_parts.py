"""Complex numbers and their parts.

Transposes are those of real-linear maps under the pairing Re(sum(x * y)), without conjugation: so
the cotangent of `real` is a complex number without imaginary part, that of `conj` is conjugated.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import issubdtype
from ...op import LinearOperand, Sample, defop
from ..derivatives import broadcast_like, const, neg, unbroadcast
from .declaration import COMPLEX, nary, sampled, ufunc, unary, unary_infer, values

F32, C64 = np.float32, np.complex64
_REAL_ELEMENTS = (np.float32, np.float64)


def _real_dtype(dtype: np.dtype) -> np.dtype:
    return np.real(np.zeros((), dtype)).dtype


def complex_dtype(dtype: np.dtype) -> np.dtype:
    return np.result_type(dtype, np.complex64)


def _zero(ct: Any) -> np.generic:
    """Never weak, as in JAX: the gradient of a complex number through its parts is strong."""
    return ct.dtype.type(0)


real_p = unary(
    "real", "The real part.", COMPLEX, result=_real_dtype,
    linear=((0,),), jvp="linear", transpose=lambda ct, x: [complex_p.bind(ct, _zero(ct))],
    function=np.real,
    samples=sampled(1, -3, 3, (C64,)))

imag_p = unary(
    "imag", "The imaginary part.", COMPLEX, result=_real_dtype,
    linear=((0,),), jvp="linear", transpose=lambda ct, x: [complex_p.bind(_zero(ct), neg(ct))],
    function=np.imag,
    samples=sampled(1, -3, 3, (C64,)))


def _complex_jvp(operands: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    out = complex_p.bind(*operands)
    x, y = (const(0, v) if t is None else t for v, t in zip(operands, tangents, strict=True))
    return out, broadcast_like(complex_p.bind(x, y), out)


def _complex_transpose(ct: Any, x: Any, y: Any) -> list[Any]:
    return [unbroadcast(x.aval, real_p.bind(ct)) if isinstance(x, LinearOperand) else None,
            unbroadcast(y.aval, imag_p.bind(neg(ct))) if isinstance(y, LinearOperand) else None]


def _complex(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    # x + 1j * y would make NaN of infinite parts.
    out = np.empty(np.broadcast_shapes(x.shape, y.shape), complex_dtype(x.dtype))
    out.real, out.imag = x, y
    return out


complex_p = nary(
    "complex", "The complex number x + iy.", (_REAL_ELEMENTS, _REAL_ELEMENTS),
    result=complex_dtype,
    linear=((0, 1),), jvp=_complex_jvp, transpose=_complex_transpose,
    function=_complex,
    samples=sampled(2, -3, 3))


def _conj_transpose(ct: Any, x: Any, *, input_dtype: Any) -> list[Any]:
    if issubdtype(input_dtype, np.complexfloating):
        return [conj_p.bind(ct, input_dtype=input_dtype)]
    return [real_p.bind(ct)]


def _conj(x: np.ndarray) -> np.ndarray:
    return np.conjugate(x).astype(complex_dtype(x.dtype), copy=False)


conj_p = defop(
    "conj", doc="The complex conjugate, also of a float; `input_dtype` is the operand's.",
    infer=unary_infer("conj", (*_REAL_ELEMENTS, *COMPLEX), complex_dtype), rule="... -> ...",
    linear=((0,),), jvp="linear", transpose=_conj_transpose,
    evaluate=ufunc(_conj),
    samples=lambda: [
        Sample((values((4, 6), C64, -3, 3),), {"input_dtype": np.dtype(C64)}),
        Sample((values((4, 6), F32, -3, 3),), {"input_dtype": np.dtype(F32)})])
