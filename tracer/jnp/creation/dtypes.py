"""Dtype objects of jnp: `jnp.float32` names a dtype, and called makes an array of it.

Also the questions about dtypes that numpy answers, with JAX's promotion.
"""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ....ir import dtypes as _dtypes
from ....ir.settings.context import x64_enabled
from ....ir.values.array import Array
from .arrays import asarray

__all__ = [
    "bfloat16", "bool_", "can_cast", "cdouble", "character", "complex64", "complex128", "complex_",
    "complexfloating", "csingle", "double", "dtype", "finfo", "flexible", "float4_e2m1fn",
    "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float16", "float32", "float64", "float_", "floating", "generic", "iinfo", "inexact", "int1",
    "int2", "int4", "int8", "int16", "int32", "int64", "int_", "integer", "isdtype", "issubdtype",
    "number", "object_", "promote_types", "result_type", "signedinteger", "single", "uint", "uint1",
    "uint2", "uint4", "uint8", "uint16", "uint32", "uint64", "unsignedinteger",
]


class _ScalarMeta(type):
    """A class that equals its dtype: `jnp.float32 == np.dtype('float32')`, usable as one."""

    dtype: np.dtype

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object) -> bool:
        if cls is other:
            return True
        if isinstance(other, np.dtype):
            return cls.dtype == other
        if isinstance(other, _ScalarMeta):
            return cls.dtype == other.dtype
        return cls.dtype.type == other

    def __ne__(cls, other: object) -> bool:
        return not cls == other

    def __call__(cls, x: Any) -> Array:
        return asarray(x, dtype=cls.dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"<class 'jax.numpy.{cls.__name__}'>"


def _scalar(name: str, dtype: Any) -> _ScalarMeta:
    made = _ScalarMeta(name, (), {"dtype": np.dtype(dtype), "__module__": "shardtrace.numpy",
                                  "__doc__": f"The dtype {name}, for `dtype=` and to compare with; "
                                             f"`{name}(x)` is x as an array of it."})
    return made


bool_ = _scalar("bool", np.bool_)
uint1, uint2, uint4 = (_scalar(n, getattr(ml_dtypes, n)) for n in ("uint1", "uint2", "uint4"))
int1, int2, int4 = (_scalar(n, getattr(ml_dtypes, n)) for n in ("int1", "int2", "int4"))
uint8, uint16 = _scalar("uint8", np.uint8), _scalar("uint16", np.uint16)
uint32, uint64 = _scalar("uint32", np.uint32), _scalar("uint64", np.uint64)
int8, int16 = _scalar("int8", np.int8), _scalar("int16", np.int16)
int32, int64 = _scalar("int32", np.int32), _scalar("int64", np.int64)
float4_e2m1fn = _scalar("float4_e2m1fn", ml_dtypes.float4_e2m1fn)
float6_e2m3fn = _scalar("float6_e2m3fn", ml_dtypes.float6_e2m3fn)
float6_e3m2fn = _scalar("float6_e3m2fn", ml_dtypes.float6_e3m2fn)
float8_e3m4 = _scalar("float8_e3m4", ml_dtypes.float8_e3m4)
float8_e4m3 = _scalar("float8_e4m3", ml_dtypes.float8_e4m3)
float8_e4m3b11fnuz = _scalar("float8_e4m3b11fnuz", ml_dtypes.float8_e4m3b11fnuz)
float8_e4m3fn = _scalar("float8_e4m3fn", ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz = _scalar("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz)
float8_e5m2 = _scalar("float8_e5m2", ml_dtypes.float8_e5m2)
float8_e5m2fnuz = _scalar("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz)
float8_e8m0fnu = _scalar("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu)
bfloat16, float16 = _scalar("bfloat16", ml_dtypes.bfloat16), _scalar("float16", np.float16)
float32, float64 = _scalar("float32", np.float32), _scalar("float64", np.float64)
complex64, complex128 = _scalar("complex64", np.complex64), _scalar("complex128", np.complex128)
single, double, csingle, cdouble = float32, float64, complex64, complex128
int_, uint, float_, complex_ = int64, uint64, float64, complex128

generic, number, integer, signedinteger, unsignedinteger, inexact, floating, complexfloating = (
    np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact,
    np.floating, np.complexfloating)
flexible, character, object_ = np.flexible, np.character, np.object_
dtype = np.dtype
finfo, iinfo = _dtypes.finfo, _dtypes.iinfo


def result_type(*args):
    """The dtype that an operation on these values, dtypes or types together would have."""
    if not args:
        raise ValueError("at least one array or dtype is required")
    return _dtypes.result_type(*(_plain(a) for a in args), x64=x64_enabled())[0]


def _plain(a: Any) -> Any:
    return a.dtype if isinstance(a, _ScalarMeta) else a


def promote_types(a, b):
    """The dtype to which operands of two dtypes are converted before they are combined."""
    return _dtypes.promote_types(_plain(a), _plain(b), x64_enabled())


def can_cast(from_, to, casting: Any = "safe"):
    """Whether a conversion between dtypes is allowed by numpy's rule of this name."""
    source = from_ if not hasattr(from_, "dtype") else from_.dtype
    return np.can_cast(source, np.dtype(_plain(to)), casting)


def issubdtype(arg1, arg2):
    """Whether a dtype is of a kind: `issubdtype(x.dtype, jnp.floating)`."""
    return _dtypes.issubdtype(_plain(arg1), _plain(arg2))


def isdtype(dtype, kind):
    """Whether a dtype is of a kind of the array API standard, such as "real floating"."""
    kinds = tuple(map(_plain, kind)) if isinstance(kind, tuple) else _plain(kind)
    return _dtypes.isdtype(_plain(dtype), kinds)


def canonicalize_dtype(dtype, allow_extended_dtype=False):
    """The dtype that arrays asked for in this one have: 64 bits become 32 unless x64 is on.

    Raises ValueError for dtypes of keys, unless `allow_extended_dtype`.

    >>> from shardtrace import dtypes
    >>> dtypes.canonicalize_dtype("float64")
    dtype('float32')
    """
    if _dtypes.is_extended(dtype):
        if not allow_extended_dtype:
            raise ValueError(f"Internal: canonicalize_dtype called on extended dtype {dtype} with "
                             "allow_extended_dtype=False")
        return dtype
    return _dtypes.canonicalize_dtype(np.dtype(dtype), x64_enabled())
