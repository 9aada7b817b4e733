"""How arrays print: `Array([0., 1.], dtype=float32)`, as JAX prints them.

Values are shown where this process can see them and they are values: a partial sum shows its
sharding instead, random keys their words.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...ir.dtypes import is_extended, long_name
from ...ir.kernels.key_data import key_words
from ...ir.shardings.sharding import NamedSharding

if TYPE_CHECKING:
    from .array import ArrayImpl

_PREFIX = "Array("


def shows_value(x: ArrayImpl) -> bool:
    """Is there a value that this process can print?"""
    if _is_pending(x):
        return False
    return x.is_fully_addressable or (
        x.is_fully_replicated and bool(x.sharding.addressable_devices))


def _is_pending(x: ArrayImpl) -> bool:
    sharding = x.sharding
    return isinstance(sharding, NamedSharding) and bool(sharding.spec.unreduced)


def array_repr(x: ArrayImpl) -> str:
    aval = x.aval
    if is_extended(aval.dtype):
        inner = key_words(x.value) if shows_value(x) else f"shape={aval.shape}"
        return f"Array({aval.shape}, dtype={aval.dtype.name}) overlaying:\n{inner}"
    tail = f"dtype={long_name(aval.dtype)}" + (", weak_type=True" if aval.weak_type else "")
    if _is_pending(x):
        return f"Array(shape={aval.shape}, {tail}, sharding={x.sharding})"
    if not shows_value(x):
        return f"Array(shape={aval.shape}, {tail})"
    width = np.get_printoptions()["linewidth"]
    if aval.size == 0:
        body = f"[], shape={aval.shape}"
    else:
        body = np.array2string(x.value, prefix=_PREFIX, suffix=",", separator=", ",
                               max_line_width=width)
    last_line = len(body) - (body.rfind("\n") + 1)
    fits = last_line + 2 + len(tail) + 2 <= width
    return f"{_PREFIX}{body},{' ' if fits else ' ' * len(_PREFIX)}{tail})"


def array_str(x: ArrayImpl) -> str:
    if is_extended(x.aval.dtype) or not shows_value(x):
        return array_repr(x)
    return str(x.value)


def array_format(x: ArrayImpl, spec: str) -> str:
    if is_extended(x.aval.dtype) or not shows_value(x):
        return format(array_repr(x), spec)
    return format(x.value if x.aval.shape else x.value[()], spec)
