"""Kinds of dtypes, default dtypes, and Python scalars converted to the other operand's dtype."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.dtypes import ALL_DTYPES, canonicalize_dtype, iinfo, issubdtype, python_scalar_dtype
from ...ir.ops.elementwise.convert import cast
from ...ir.settings.context import x64_enabled
from ...ir.support.caches import cached

BOOL = np.dtype(bool)


INT32 = np.dtype("int32")


def _level(dtype: np.dtype) -> int:
    if dtype == BOOL:
        return 0
    if issubdtype(dtype, np.integer):
        return 1
    return 3 if issubdtype(dtype, np.complexfloating) else 2


# bool < int < float < complex: a Python scalar takes the dtype of an array of its level or above.
LEVEL: dict[Any, int] = {d: _level(d) for d in ALL_DTYPES}


WIDE = frozenset(d for d in ALL_DTYPES if canonicalize_dtype(d) is not d)   # not without x64


PYTHON_LEVEL: dict[type, int] = {bool: 0, int: 1, float: 2, complex: 3}


INEXACT = frozenset(d for d, level in LEVEL.items() if level >= 2)


PYTHON_OF_LEVEL = (bool, int, float, complex)


def _plain_numbers(dtype: np.dtype) -> tuple[float, float]:
    """Bounds of the numbers that a dtype certainly holds, and that fit a machine integer."""
    if LEVEL[dtype] == 1:
        info = iinfo(dtype)
        return int(info.min), int(info.max)
    return (0, 1) if dtype == BOOL else (-400, 400) if dtype.itemsize == 1 else (-6e4, 6e4)


_PLAIN = {d: _plain_numbers(d) for d, level in LEVEL.items() if level < 3}
# The level, these bounds and the numpy type of dtypes that programs may have without x64.
_USUAL = {d: (LEVEL[d], *bounds, d.type) for d, bounds in _PLAIN.items() if d not in WIDE}


def float_default() -> np.dtype:
    return python_scalar_dtype(float, x64_enabled())[0]


def int_default() -> np.dtype:
    return python_scalar_dtype(int, x64_enabled())[0]


def scalar_of(x: Any, dtype: np.dtype) -> Any:
    """A Python scalar as a numpy scalar; see `_wide`."""
    if LEVEL[dtype] < 3 and type(x) is complex:
        x = x.real
    if type(x) is float and LEVEL[dtype] == 1:
        return cast(np.asarray(x), dtype)[()]
    if LEVEL[dtype] == 3:
        return dtype.type(x)
    low, high = _PLAIN[dtype]
    return dtype.type(x) if low <= x <= high else _wide(x, dtype)


def _wide(x: Any, dtype: np.dtype) -> Any:
    """A number that perhaps does not fit a dtype: ints wrap around, floats become infinite.

    Raises OverflowError for an int that does not fit the default integer either.
    """
    if type(x) is int:
        if not -2 ** 31 <= x < 2 ** 31 and not (x64_enabled() and -2 ** 63 <= x < 2 ** 63):
            raise OverflowError(
                "An overflow was encountered while parsing an argument to a jitted computation: "
                f"Got <class 'int'> with value {x}, which {int_default()} cannot hold")
        return np.asarray(x, np.int64).astype(dtype)[()]
    with np.errstate(over="ignore"):
        return dtype.type(x)


@cached(1024)
def _scalar(kind: type, x: Any) -> Any:
    """A Python scalar as a numpy scalar, of which making one takes as long as all else here."""
    return kind(x)


def scalar_like(x: Any, level: int, aval: Any) -> Any:
    """The Python scalar `x` as a literal used with an array of type `aval`, or None if that array
    must change its own dtype first."""
    dtype = aval.dtype
    usual = _USUAL.get(dtype)
    if usual is not None and not aval.weak_type:
        kind, low, high, scalar = usual
        if level <= kind and low <= x <= high:
            return _scalar(scalar, x) if x else scalar(x)      # 0.0 is -0.0, as a key
    kind = LEVEL.get(dtype)
    if kind is None or level > kind or (dtype in WIDE and not x64_enabled()):
        return None
    if not aval.weak_type:
        if kind == 3:
            return dtype.type(x)
        low, high = _PLAIN[dtype]
        return dtype.type(x) if low <= x <= high else _wide(x, dtype)
    target = PYTHON_OF_LEVEL[kind]
    if python_scalar_dtype(target, x64_enabled())[0] is dtype:
        return target(x)
    return None
