"""The elements of a reference that an index selects, and what may be written to them.

`ref[i]`, `ref[1:3]` and `ref[ds(start, size)]`, whose start may be traced.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.ops.elementwise.convert import convert_element_type_p
from ...ir.types import ArrayType
from ...ir.values.array import Array
from ...ir.values.typeof import typeof


class Slice:
    """`size` elements from `start` on, each `stride` after the one before; see `ds`."""

    __slots__ = ("size", "start", "stride")

    def __init__(self, start: Any, size: int, stride: int = 1) -> None:
        self.start, self.size, self.stride = start, size, stride

    def __repr__(self) -> str:
        return f"Slice(start={self.start}, size={self.size}, stride={self.stride})"


def ds(start: Any, size: int | None = None, stride: int | None = None) -> Slice:
    """An index of a reference: `size` elements from `start` on, which may be traced.

    >>> st.new_ref(jnp.arange(5))[st.ds(1, 2)]
    Array([1, 2], dtype=int32)
    """
    if size is None:
        if not isinstance(start, int):
            raise TypeError("expected a static size for the dynamic slice")
        start, size = 0, start
    if stride is not None and stride < 1:
        raise ValueError(f"strides must be >= 1, got {stride}")
    return Slice(start, size, stride or 1)


def index_of(shape: Sequence[int], idx: Any) -> Any:
    """An index as arrays take it. Slices of traced starts become positions."""
    items = idx if isinstance(idx, tuple) else (idx,)
    if not any(isinstance(i, Slice) for i in items):
        for i, (item, size) in enumerate(zip(items, shape, strict=False)):
            if item is ... or item is None:
                break
            if type(item) is int and not -size <= item < size:
                raise ValueError(f"Out of bound indexer: idx={items[i]}, dim={size}.")
        return idx
    if ... in [i for i in items if not isinstance(i, (Array, np.ndarray))]:
        at = next(n for n, i in enumerate(items) if i is ...)
        items = (*items[:at], *[slice(None)] * (len(shape) - len(items) + 1), *items[at + 1:])
    items = (*items, *[slice(None)] * (len(shape) - len(items)))
    kept = [i for i, x in enumerate(items) if isinstance(x, (slice, Slice))]
    out: list[Any] = list(items)
    for place, i in enumerate(kept):
        x = items[i]
        along = (np.arange(shape[i])[x] if isinstance(x, slice)
                 else np.arange(x.size) * x.stride)
        along = along.astype(np.int32).reshape((-1,) + (1,) * (len(kept) - 1 - place))
        out[i] = along if isinstance(x, slice) else x.start + along
    return tuple(out)


def is_all(idx: Any) -> bool:
    return idx is ... or idx == () or isinstance(idx, slice) and idx == slice(None)


def fitting(value: Any, part: Any, whole: tuple[int, ...], broadcast: bool) -> Any:
    """`value` as a replacement for `part` of a reference of shape `whole`. broadcast: other shapes
    are broadcast. Raises ValueError for other types.
    """
    have, t = typeof(value), typeof(part)
    if have.dtype != t.dtype:
        if not have.weak_type or np.result_type(_sample(have), _sample(t)) != _sample(t).dtype and (
                not (have.dtype.kind == "f" and t.dtype.kind not in "biu")):
            fail(ValueError, f"Invalid dtype for `swap`. Ref dtype: {t.dtype.name}. Value dtype: "
                 f"{have.dtype.name}. ", code="ref-dtype",
                 label="a reference keeps its dtype",
                 help=f"convert the value to {t.dtype.name} with `astype`")
    if have.shape != t.shape and not broadcast:
        fail(ValueError, f"Invalid shape for `swap`. Ref shape: {whole}. Expected shape: "
             f"{t.shape}. Value shape: {have.shape}.", code="ref-shape",
             label="a write has the shape of what it replaces",
             help="reshape or broadcast the value")
    if have.dtype == t.dtype and have.weak_type == t.weak_type and isinstance(value, Array):
        return value
    return convert_element_type_p.bind(value, new_dtype=t.dtype, weak_type=t.weak_type,
                                       sharding=None)


def _sample(t: ArrayType) -> np.ndarray:
    """A number of the dtype; of those of ml_dtypes, which numpy promotes to none, a half."""
    return np.zeros(1, t.dtype if t.dtype.kind in "biufc" else np.float16)
