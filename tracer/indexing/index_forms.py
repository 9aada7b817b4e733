"""The index of x[index] in normal form: one item for each dimension that it uses or adds."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import NonConcreteBooleanIndexError
from ...ir.dtypes import issubdtype
from ...ir.support.immutable import immutable
from ...ir.values.array import Array
from .. import lax
from ..operands.rank_promotion import shape_of
from ..staging.constants import PYTHON_SCALARS, as_array
from ..staging.tracer import Tracer


@immutable
class Position:
    """One item of a plain index. kind: "int" (static), "scalar" or "array" (of integers), "slice"
    (start, stop, step resolved against the size), "new" (None), "mask" (True or False)."""

    kind: str
    value: Any = None
    start: int = 0
    stop: int = 0
    step: int = 1

    @property
    def length(self) -> int:
        """Number of positions that a slice takes."""
        return len(range(self.start, self.stop, self.step))


def _refuse_list(index: list[Any]) -> NoReturn:
    several = any(isinstance(i, (list, tuple, slice, Array, np.ndarray)) or i in (None, ...)
                  for i in index)
    raise TypeError(
        "Using a non-tuple sequence for multidimensional indexing is not allowed; use "
        f"`arr[{'tuple' if several else 'array'}(seq)]` instead of `arr[seq]`. See "
        "https://github.com/jax-ml/jax/issues/4564 for more information.")


def plain_index(index: Any, shape: tuple[int, ...]) -> list[Position]:
    """The index of an array of this shape, one item per dimension and per None.

    Raises IndexError for too many items, traced slice bounds and misfitting masks, TypeError for
    lists, strings and floats, NonConcreteBooleanIndexError for traced masks.
    """
    if isinstance(index, list):
        _refuse_list(index)
    items = index if isinstance(index, tuple) else (index,)
    checked = [_item(i, place) for place, i in enumerate(items)]
    if sum(i is Ellipsis for i in checked) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    expanded: list[Any] = []
    for i in checked:
        expanded.extend(_mask_positions(i))
    used = sum(1 for i in expanded if i is not None and i is not Ellipsis
               and not isinstance(i, _ScalarMask))
    if used > len(shape):
        raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, but {used} were "
                         "indexed")
    rest = [slice(None)] * (len(shape) - used)
    if Ellipsis in [i for i in expanded if i is Ellipsis]:
        at = next(k for k, i in enumerate(expanded) if i is Ellipsis)
        expanded[at:at + 1] = rest
    else:
        expanded += rest
    out, dim = [], 0
    for i in expanded:
        if i is None:
            out.append(Position("new"))
            continue
        if isinstance(i, _ScalarMask):
            out.append(Position("mask", i.value))
            continue
        if isinstance(i, _MaskPart):
            if i.size not in (shape[dim], 0):             # as in numpy, an empty one fits
                expected = tuple(shape[i_start(dim, i):][:len(i.mask_shape)])
                raise IndexError("boolean index did not match shape of indexed array in index "
                                 f"{dim}: got {i.mask_shape}, expected {expected}")
            out.append(Position("array", i.positions))
        elif isinstance(i, slice):
            start, stop, step = i.indices(shape[dim])
            out.append(Position("slice", None, start, stop, step))
        elif isinstance(i, int):
            out.append(Position("int", i))
        else:
            out.append(Position("array" if shape_of(i) else "scalar", i))
        dim += 1
    return out


def i_start(dim: int, part: _MaskPart) -> int:
    """The first dimension of the mask that `part` belongs to."""
    return dim - part.place


@immutable
class _MaskPart:
    """Positions along one dimension of a boolean mask."""

    positions: np.ndarray
    size: int
    place: int
    mask_shape: tuple[int, ...]


@immutable
class _ScalarMask:
    """A True or False as index: a new dimension of size 1 or 0."""

    value: bool


def _item(i: Any, place: int) -> Any:
    """The item of an index at this place: int, slice of ints, None, Ellipsis, or an array."""
    if i is None or i is Ellipsis:
        return i
    if isinstance(i, (bool, np.bool_)):
        return _ScalarMask(bool(i))
    if isinstance(i, slice):
        return _static_slice(i, place)
    if isinstance(i, (int, np.integer)):
        return int(i)
    if isinstance(i, str):
        raise TypeError(f"JAX does not support string indexing; got idx={i!r}")
    if isinstance(i, (tuple, list)):
        i = _array_of(i) if len(i) else np.zeros((0,), np.int32)
    convert_ = None if isinstance(i, (Array, np.ndarray)) else getattr(i, "__jax_array__", None)
    if convert_ is not None:
        i = convert_()
    if not isinstance(i, (Array, np.ndarray, np.generic)):
        if isinstance(i, PYTHON_SCALARS):
            i = np.asarray(i)
        elif hasattr(i, "__index__"):
            return operator.index(i)
        elif hasattr(i, "__array__"):
            i = np.asarray(i)
        else:
            raise TypeError(f"JAX does not support indexing with {type(i)}; got {i!r}")
    dtype = i.dtype
    if dtype == np.dtype(bool):
        if not i.shape and not isinstance(i, Tracer):
            return _ScalarMask(bool(np.asarray(i)))
        return i
    if not isinstance(dtype, np.dtype) or not issubdtype(dtype, np.integer):
        raise TypeError("Indexer must have integer or boolean type, got indexer with type "
                        f"{dtype}")
    return i


def _array_of(items: Sequence[Any]) -> Any:
    """Nested sequences of positions as one array: of numpy where no array of ours is among them."""
    parts = [_array_of(x) if isinstance(x, (tuple, list)) else x for x in items]
    if any(isinstance(x, Array) for x in parts):
        return lax.stack([as_array(x) for x in parts], 0)
    return np.asarray(parts)


def _static_slice(s: slice, place: int) -> slice:
    """A slice whose bounds are Python integers; refused if one of them is traced."""
    parts = []
    for p in (s.start, s.stop, s.step):
        if p is None:
            parts.append(None)
            continue
        if isinstance(p, Array) and not isinstance(p, Tracer) and not p.shape:
            p = np.asarray(p)[()]
        if isinstance(p, Array):
            fail(IndexError, f"Slice entries must be static integers. Got {s} at position {place}",
                 code="traced-slice",
                 help="take a part of fixed size with `lax.dynamic_slice` or "
                      "`lax.dynamic_slice_in_dim`; `lax.dynamic_update_slice` writes one")
        parts.append(operator.index(p))
    return slice(*parts)


def _mask_positions(i: Any) -> Sequence[Any]:
    """A boolean array as the positions where it is true, one array per dimension."""
    if not isinstance(i, (Array, np.ndarray, np.generic)) or i.dtype != np.dtype(bool):
        return (i,)
    if isinstance(i, Tracer):
        fail(NonConcreteBooleanIndexError,
             f"Array boolean indices must be concrete; got {i.aval.str_short(True)}",
             code="traced-mask",
             label="how many elements this takes is known only when the program runs",
             help="use `jnp.where`, or `jnp.nonzero` with `size` for a fixed number")
    mask = np.asarray(i)
    return [_MaskPart(p.astype(np.int32), n, place, mask.shape)
            for place, (p, n) in enumerate(zip(np.nonzero(mask), mask.shape, strict=True))]
