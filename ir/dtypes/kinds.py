"""Kinds of dtypes, canonical dtypes, and the dtypes of values.

Whether 64-bit types are enabled is an argument (`x64`), never read from a configuration: without it
int64, uint64, float64 and complex128 become their 32-bit counterparts, as in JAX.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..support.caches import cached
from .table import (
    BOOL,
    C64,
    C128,
    F16,
    F32,
    F64,
    FLOATS,
    ML_FLOATS,
    NARROW_INTS,
    NARROW_UINTS,
    PYTHON_TO_64_BIT,
    SIGNED,
    TO_32_BIT,
    UNSIGNED,
    VALID_DTYPES,
    DType,
    ExtendedDType,
    extended,
    float0,
)

__all__ = [
    "canonicalize_dtype", "check_user_dtype", "check_valid_dtype", "compute_dtype",
    "default_dtype", "dtype_of", "finfo", "iinfo", "is_narrow_float", "is_python_scalar",
    "isdtype", "issubdtype", "itemsize_bits", "loop_dtype", "python_scalar_dtype", "scalar_type_of",
    "tangent_dtype", "to_complex_dtype", "to_floating_dtype", "to_inexact_dtype",
    "to_numeric_dtype",
]

finfo = ml_dtypes.finfo
iinfo = ml_dtypes.iinfo


def python_scalar_dtype(kind: type, x64: bool = False) -> tuple[np.dtype, bool]:
    """`(dtype, weak)` of Python's bool, int, float or complex; bool alone is not weak.

    Raises KeyError for any other type.
    """
    dtype = PYTHON_TO_64_BIT[kind]
    return dtype if x64 else TO_32_BIT.get(dtype, dtype), kind is not bool


def is_python_scalar(x: Any) -> bool:
    """Whether x is a plain Python bool, int, float or complex."""
    return type(x) in PYTHON_TO_64_BIT


def default_dtype(kind: str, x64: bool = False) -> np.dtype:
    """The dtype used where only a kind is asked for: kind is one of 'b', 'i', 'u', 'f', 'c'."""
    by_kind: dict[str, np.dtype] = {
        "b": BOOL, "i": np.dtype("int64"), "u": np.dtype("uint64"), "f": F64, "c": C128,
    }
    dtype = by_kind[kind]
    return dtype if x64 else TO_32_BIT.get(dtype, dtype)


def canonicalize_dtype(dtype: Any, x64: bool = False) -> Any:
    """Anything that names a dtype to the dtype in use: without `x64`, 64 bits become 32.

    Accepts dtypes, names, numpy scalar types, Python scalar types and extended dtypes. Raises
    TypeError for anything else.
    """
    if not isinstance(dtype, np.dtype):
        if isinstance(dtype, ExtendedDType):
            return dtype
        try:
            dtype = np.dtype(dtype)
        except TypeError as error:
            raise TypeError(f"dtype {dtype!r} not understood") from error
    return dtype if x64 else TO_32_BIT.get(dtype, dtype)


def check_valid_dtype(dtype: Any) -> None:
    """Raise TypeError unless arrays of this dtype can be in a program."""
    if not isinstance(dtype, ExtendedDType) and dtype not in VALID_DTYPES:
        raise TypeError(
            f"Dtype {dtype} is not a valid JAX array type. Only arrays of numeric types are "
            "supported by JAX."
        )


def check_user_dtype(dtype: Any, x64: bool = False, fun_name: str = "") -> tuple[Any, bool]:
    """A dtype that a user passed as argument, and whether it was cut to 32 bits.

    Python scalar types mean the defaults. A 64-bit dtype without `x64` is truncated, and the
    caller is to warn of it. Raises TypeError for a dtype that no array can have.
    """
    if dtype is None:
        raise ValueError("dtype must be specified.")
    if isinstance(dtype, ExtendedDType):
        return dtype, False
    if isinstance(dtype, type) and dtype in PYTHON_TO_64_BIT:
        return python_scalar_dtype(dtype, x64)[0], False
    requested = np.dtype(dtype)
    if requested not in VALID_DTYPES:
        where = f" in {fun_name}" if fun_name else ""
        raise TypeError(
            f"JAX only supports number, bool, and string dtypes, got dtype {dtype}{where}"
        )
    used = canonicalize_dtype(requested, x64)
    return used, used != requested


def dtype_of(x: Any, x64: bool = False) -> tuple[Any, bool]:
    """`(dtype, weak)` of a value: array, tracer, numpy or Python scalar.

    numpy values are canonicalized and never weak; anything with an `aval` (arrays and tracers of
    this package) keeps its dtype and weak flag as it stands. Raises TypeError for what is no
    array.
    """
    kind = type(x)
    if kind in PYTHON_TO_64_BIT:
        return python_scalar_dtype(kind, x64)
    dtype = getattr(x, "dtype", None)
    if isinstance(dtype, (np.dtype, ExtendedDType)):
        aval = getattr(x, "aval", None)
        if aval is not None:
            return dtype, bool(getattr(aval, "weak_type", False))
    else:
        try:
            dtype = np.result_type(x)
        except TypeError as error:
            raise TypeError(f"Cannot determine dtype of {x}") from error
    if not isinstance(dtype, ExtendedDType):
        if dtype not in VALID_DTYPES:
            raise TypeError(
                f"Value '{x}' with dtype {dtype} is not a valid JAX array type. Only arrays of "
                "numeric types are supported by JAX."
            )
        if not x64:
            dtype = TO_32_BIT.get(dtype, dtype)
    return dtype, False


# --------------------------------------------------------------------------- kinds


_CUSTOM_SCALARS: dict[type, set] = {
    **{d.type: {d.type, np.floating, np.inexact, np.number, np.generic} for d in ML_FLOATS},
    **{d.type: {d.type, np.signedinteger, np.integer, np.number, np.generic}
       for d in NARROW_INTS},
    **{d.type: {d.type, np.unsignedinteger, np.integer, np.number, np.generic}
       for d in NARROW_UINTS},
}


# The letters that numpy has for dtypes of a kind.
_LETTERS: dict[Any, str] = {
    np.bool_: "b", np.signedinteger: "i", np.unsignedinteger: "u", np.integer: "iu",
    np.floating: "f", np.complexfloating: "c", np.inexact: "fc", np.number: "iufc"}


def issubdtype(a: Any, b: Any) -> bool:
    """Whether dtype or scalar type `a` is of kind `b`, as `np.issubdtype`.

    Knows ml_dtypes (`issubdtype(bfloat16, np.floating)`) and extended dtypes
    (`issubdtype(key.dtype, prng_key)`).
    """
    if isinstance(a, np.dtype) and a.kind in "biufc":
        letters = _LETTERS.get(b)
        if letters is not None:
            return a.kind in letters
    known = (type, np.dtype, ExtendedDType)
    return _issubdtype(
        a if isinstance(a, known) else np.dtype(a), b if isinstance(b, known) else np.dtype(b)
    )


def _scalar_type(x: Any) -> type:
    """The numpy scalar type of a dtype, or of a type such as np.float32, float, jnp.float32."""
    if isinstance(x, ExtendedDType):
        return x.type
    if isinstance(x, type) and issubclass(x, np.generic):
        return x
    return np.dtype(x).type


@cached(1024, "which dtypes are of which kind")
def _issubdtype(a: Any, b: Any) -> bool:
    """Is dtype a of kind b? Dtypes that numpy does not know have their ancestors in a table."""
    if isinstance(b, ExtendedDType):
        return a is b
    kind_a, kind_b = _scalar_type(a), _scalar_type(b)
    if issubclass(kind_b, extended):
        return issubclass(kind_a, kind_b)
    ancestors = _CUSTOM_SCALARS.get(kind_a)
    if ancestors is not None:
        return kind_b in ancestors
    return bool(np.issubdtype(kind_a, kind_b))


KINDS: dict[str, frozenset[np.dtype]] = {
    "bool": frozenset((BOOL,)),
    "signed integer": frozenset(SIGNED),
    "unsigned integer": frozenset(UNSIGNED),
    "integral": frozenset(SIGNED + UNSIGNED),
    "real floating": frozenset(FLOATS),
    "complex floating": frozenset((C64, C128)),
    "numeric": frozenset((*SIGNED, *UNSIGNED, *FLOATS, C64, C128)),
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether `dtype` is of a kind: a name of the array API standard, a dtype, or a tuple of them.

    Raises ValueError for an unknown name, TypeError for what names no dtype.
    """
    dtype = np.dtype(dtype)
    for one in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(one, str) and one in KINDS:
            if dtype in KINDS[one]:
                return True
            continue
        try:
            wanted = np.dtype(one)
        except TypeError as error:
            if isinstance(one, str):
                raise ValueError(
                    f"Unrecognized kind={one!r} expected one of {list(KINDS)}, or a compatible "
                    "input for jnp.dtype()"
                ) from error
            raise TypeError(
                f"Expected kind to be a dtype, string, or tuple; got kind={one!r}"
            ) from error
        if dtype == wanted:
            return True
    return False


_NARROW_FLOATS = frozenset((*ML_FLOATS, F16))


def is_narrow_float(dtype: Any) -> bool:
    """Whether values are stored in fewer than 32 bits but computed in float32: bf16, f16, fp8."""
    return dtype in _NARROW_FLOATS


def compute_dtype(dtype: Any) -> Any:
    """Dtype in which arithmetic on `dtype` is done: float32 for narrow floats, else itself."""
    return F32 if dtype in _NARROW_FLOATS else dtype


_BYTES = {**dict.fromkeys(NARROW_INTS, np.dtype("int8")),
          **dict.fromkeys(NARROW_UINTS, np.dtype("uint8"))}


def loop_dtype(dtype: Any) -> Any:
    """Dtype with which numpy's functions are called: a byte for integers of fewer bits, of which
    ml_dtypes defines only sums and products; else itself.
    """
    return _BYTES.get(dtype, dtype)


def itemsize_bits(dtype: Any) -> int:
    """Bits of one element: 4 for int4, 8 for bool, 64 for complex64, 0 for float0."""
    if isinstance(dtype, ExtendedDType):
        return 8 * dtype.itemsize
    dtype = np.dtype(dtype)
    if dtype == float0:
        return 0
    if dtype == BOOL:
        return 8
    if issubdtype(dtype, np.integer):
        return iinfo(dtype).bits
    if issubdtype(dtype, np.floating):
        return finfo(dtype).bits
    if issubdtype(dtype, np.complexfloating):
        return 8 * dtype.itemsize
    raise ValueError(f"unexpected input: dtype={dtype!r}")


@cached(256)
def tangent_dtype(dtype: DType) -> np.dtype:
    """Dtype of tangents: the same for floats and complex numbers, float0 for all others."""
    return dtype if issubdtype(dtype, np.inexact) else float0  # type: ignore[return-value]


def scalar_type_of(x: Any, x64: bool = False) -> type:
    """Python's bool, int, float or complex, whichever is like the value x."""
    dtype = dtype_of(x, x64)[0]
    for kind, scalar in ((np.bool_, bool), (np.integer, int), (np.floating, float),
                         (np.complexfloating, complex)):
        if issubdtype(dtype, kind):
            return scalar
    raise TypeError(f"Invalid scalar value {x}")


def to_numeric_dtype(dtype: Any) -> np.dtype:
    """int32 for bool, any other dtype itself."""
    dtype = np.dtype(dtype)
    return np.dtype("int32") if dtype == BOOL else dtype


_TO_INEXACT = {
    **{np.dtype(d): F32 for d in (
        "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", ml_dtypes.int4,
        ml_dtypes.uint4)},
    np.dtype("uint64"): F64,
    np.dtype("int64"): F64,
}


def to_inexact_dtype(dtype: Any) -> np.dtype:
    """A float dtype for integers and bool; a float or complex dtype itself."""
    dtype = np.dtype(dtype)
    return _TO_INEXACT.get(dtype, dtype)


def to_floating_dtype(dtype: Any) -> np.dtype:
    """As `to_inexact_dtype`, and the dtype of the parts for a complex one."""
    dtype = to_inexact_dtype(dtype)
    if not issubdtype(dtype, np.inexact):
        raise ValueError(f"data type {dtype} has no floating counterpart")
    return {C64: F32, C128: F64}.get(dtype, dtype)


def to_complex_dtype(dtype: Any) -> np.dtype:
    """complex128 for what needs 64-bit floats, else complex64."""
    return C128 if to_inexact_dtype(dtype) in (F64, C128) else C64
