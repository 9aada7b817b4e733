"""The dtypes there are, and their names.

A dtype is an `np.dtype` (ml_dtypes included), or a `KeyDType` for random keys, which numpy does
not have. Programs print short names (`bf16`), messages for users full ones (`bfloat16`).
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import ml_dtypes
import numpy as np

from ..support.caches import cached
from ..support.interning import Immutable, InternTable

__all__ = [
    "ALL_DTYPES", "KEY_DTYPES", "KEY_FRY", "KEY_RBG", "KEY_URBG", "DType", "ExtendedDType",
    "KeyDType", "extended", "float0", "is_extended", "long_name", "named_key_dtype", "parse_long",
    "parse_short", "prng_key", "short_name",
]


# --------------------------------------------------------------------------- extended dtypes


class extended(np.generic):
    """Scalar class of dtypes that numpy does not have; only for `issubdtype`."""


class prng_key(extended):
    """The scalar class of random key dtypes; for `issubdtype(key.dtype, dtypes.prng_key)` only."""


class ExtendedDType(Immutable):
    """Base of dtypes that are no `np.dtype`."""

    __slots__ = ("__weakref__",)

    name: str
    type: type
    itemsize: int


_KEYS: InternTable[Any] = InternTable()


class KeyDType(ExtendedDType):
    """Dtype of typed random keys: one element is `key_shape` words of uint32.

    `impl` is the short tag of the generator: `key<fry>` for threefry.
    """

    __slots__ = ("impl", "itemsize", "key_shape", "name")

    impl: str
    key_shape: tuple[int, ...]
    type = prng_key
    kind = "V"

    def __new__(cls, impl: str, key_shape: tuple[int, ...]) -> KeyDType:
        key = (impl, tuple(key_shape))
        dtype = _KEYS.get(key)
        if dtype is None:
            dtype = object.__new__(cls)
            put = object.__setattr__
            put(dtype, "impl", impl)
            put(dtype, "key_shape", key[1])
            put(dtype, "name", f"key<{impl}>")
            put(dtype, "itemsize", 4 * math.prod(key[1]))
            dtype = _KEYS.add(key, dtype)
        return dtype

    def __reduce__(self) -> tuple:
        return KeyDType, (self.impl, self.key_shape)

    @property
    def base(self) -> np.dtype:
        """Dtype of the words that a key consists of."""
        return _UINT32

    def __repr__(self) -> str:
        return self.name


_UINT32 = np.dtype(np.uint32)

KEY_FRY: KeyDType = KeyDType("fry", (2,))
"""Keys of threefry2x32, the default generator: two words of uint32."""
KEY_RBG: KeyDType = KeyDType("rbg", (4,))
"""Keys of the generator rbg: threefry to split, Philox for numbers."""
KEY_URBG: KeyDType = KeyDType("urbg", (4,))
"""Keys of the generator unsafe_rbg: Philox for all."""
KEY_DTYPES: dict[str, KeyDType] = {d.impl: d for d in (KEY_FRY, KEY_RBG, KEY_URBG)}
"""By the tag of the generator."""

float0: np.dtype = np.dtype([("float0", np.void, 0)])
"""Dtype of tangents of values that have none (integers, booleans): no bytes at all."""

DType = np.dtype | ExtendedDType


def is_extended(dtype: Any) -> bool:
    """Whether `dtype` is one that numpy does not have, such as that of random keys."""
    return isinstance(dtype, ExtendedDType)


# --------------------------------------------------------------------------- the dtypes there are


def _ml(*names: str) -> tuple[np.dtype, ...]:
    return tuple(np.dtype(getattr(ml_dtypes, name)) for name in names)


BOOL = np.dtype(bool)
NARROW_INTS = _ml("int1", "int2", "int4")
NARROW_UINTS = _ml("uint1", "uint2", "uint4")
SIGNED = NARROW_INTS + tuple(map(np.dtype, ("int8", "int16", "int32", "int64")))
UNSIGNED = NARROW_UINTS + tuple(map(np.dtype, ("uint8", "uint16", "uint32", "uint64")))
FLOAT4 = _ml("float4_e2m1fn")
FLOAT6 = _ml("float6_e2m3fn", "float6_e3m2fn")
FLOAT8 = _ml(
    "float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "float8_e4m3b11fnuz", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)
BF16 = np.dtype(ml_dtypes.bfloat16)
ML_FLOATS = frozenset((*FLOAT4, *FLOAT6, *FLOAT8, BF16))
F16, F32, F64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
FLOATS = (*FLOAT4, *FLOAT6, *FLOAT8, BF16, F16, F32, F64)
C64, C128 = np.dtype("complex64"), np.dtype("complex128")

ALL_DTYPES: tuple[np.dtype, ...] = (BOOL, *UNSIGNED, *SIGNED, *FLOATS, C64, C128)
"""Every dtype that takes part in arithmetic: bool, unsigned, signed, float, complex."""

VALID_DTYPES = frozenset((*ALL_DTYPES, float0))
TO_32_BIT: dict[np.dtype, np.dtype] = {
    np.dtype(wide): np.dtype(narrow)
    for wide, narrow in (("int64", "int32"), ("uint64", "uint32"), ("float64", "float32"),
                         ("complex128", "complex64"))
}
PYTHON_TO_64_BIT: dict[type, np.dtype] = {
    bool: BOOL, int: np.dtype("int64"), float: F64, complex: C128,
}


# --------------------------------------------------------------------------- names


@cached(256)
def long_name(dtype: DType) -> str:
    """Name in full, as `str(typeof(x))` prints it: 'float32', 'bfloat16', 'key<fry>', 'float0'."""
    return "float0" if dtype == float0 else dtype.name


@cached(256)
def short_name(dtype: DType) -> str:
    """Name as programs print it: 'f32', 'bf16', 'f8_e4m3fn', 'i4', 'bool', 'key<fry>'."""
    name = long_name(dtype)
    if name == "float0" or isinstance(dtype, ExtendedDType):
        return name
    for full, short in (("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        name = name.replace(full, short)
    return name


def named_key_dtype(tag: str, key_shape: tuple[int, ...]) -> KeyDType:
    """A key dtype for one more generator: of this tag, if that is a word and free."""
    stem = re.sub(r"\W", "", tag) or "own"
    names = (f"{stem}{n or ''}" for n in itertools.count())
    dtype = KeyDType(next(name for name in names if name not in KEY_DTYPES), key_shape)
    KEY_DTYPES[dtype.impl] = _BY_LONG[dtype.name] = _BY_SHORT[dtype.name] = dtype
    return dtype


_BY_LONG: dict[str, Any] = {long_name(d): d for d in (*ALL_DTYPES, float0, *KEY_DTYPES.values())}
_BY_SHORT: dict[str, Any] = {short_name(d): d for d in (*ALL_DTYPES, float0, *KEY_DTYPES.values())}


def parse_long(name: str) -> Any:
    """The dtype with this full name; inverse of `long_name`. Raises ValueError if there is none."""
    return _parse(name, _BY_LONG)


def parse_short(name: str) -> Any:
    """The dtype with this short name; inverse of `short_name`. Raises ValueError if none."""
    return _parse(name, _BY_SHORT)


def _parse(name: str, names: dict[str, Any]) -> Any:
    try:
        return names[name]
    except KeyError:
        raise ValueError(f"no dtype is called {name!r}; known: {', '.join(names)}") from None
