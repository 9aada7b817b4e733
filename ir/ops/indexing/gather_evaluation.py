"""The evaluator of `gather`: one `numpy.take` of rows, for any number of device dimensions.

Indexed dimensions are brought to the front and read as one dimension of rows, so that an index
vector is the number of a row. Where all devices look up the same rows, these are taken once for all
of them; else the dimensions of the devices are among the rows.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes import iinfo, issubdtype
from ...kernels.device_dimensions import is_common, lead_indices, lead_sizes, mergeable
from ...support.buffer_pool import empty
from ...support.lazy import lazy_import
from ...types import Shape
from ..gather_numbers import GatherDimensionNumbers, GatherScatterMode
from .common import linear_index, locate, query_order, window_dims

_row_indexing = lazy_import(".row_indexing", __package__)
_point_indexing = lazy_import(".point_indexing", __package__)


def fill_constant(dtype: np.dtype, value: Any) -> Any:
    """What a FILL_OR_DROP gather gives outside: `value`, or JAX's default for the dtype."""
    if value is not None:
        return value
    if issubdtype(dtype, np.inexact):
        return np.nan
    if issubdtype(dtype, np.signedinteger):
        return iinfo(dtype).min
    return True if dtype == np.bool_ else iinfo(dtype).max


def gathered(lead: int, x: np.ndarray, indices: np.ndarray, *,
              dimension_numbers: GatherDimensionNumbers, slice_sizes: Shape, unique_indices: bool,
              indices_are_sorted: bool, mode: GatherScatterMode, fill_value: Any) -> np.ndarray:
    """Indexed dimensions first, as rows; then one `take` of row numbers: the same for all devices
    if the indices are, else with the devices' dimensions among the rows. Fills what is out of
    bounds.
    """
    n = dimension_numbers
    at = locate(lead, x.shape[lead:], indices, n, slice_sizes)
    queries = indices.ndim - lead - 1
    sizes = [x.shape[lead + d] for d in at.addressed]
    view = x.transpose(*range(lead), *(lead + d for d in (*at.addressed, *at.whole)))
    stop = lead + len(at.addressed)
    tail = view.shape[stop:]
    full = tuple(indices.shape[lead:-1]) + tuple(slice_sizes[d] for d in at.partial)
    if is_common(indices, lead):
        flat = linear_index([i.reshape(i.shape[-len(full):] if full else ()) for i in at.index]
                            if lead else at.index, sizes)
        flat = np.broadcast_to(flat, full).reshape(-1)
        front = view.shape[:lead]
        if len(at.addressed) == 1 and not at.partial and x.size:
            out = _taken(x, flat, lead + at.addressed[0], lead)
        elif mergeable(view, lead, stop):
            out = view.reshape(*front, -1 if view.size else int(np.prod(sizes, dtype=int)), *tail)
            out = take(out, flat, lead)
        else:
            where = np.unravel_index(flat, sizes) if sizes else ()
            out = (view[(slice(None),) * lead + where] if sizes
                   else np.take(view[(slice(None),) * lead + (None,)], flat, axis=lead))
        devices = front
    else:
        devices = lead_sizes(lead, (x, indices))
        where = [*lead_indices(x, lead, devices, lead + len(full)), *at.index]
        count, rows = math.prod(devices + full), math.prod(view.shape[:stop])
        if 4 * count < rows and not mergeable(view, 0, stop):   # far less than a copy of all
            out = view[tuple([np.broadcast_to(i, devices + full) for i in where])]
        else:
            flat = np.broadcast_to(linear_index(where, view.shape[:stop]), devices + full)
            out = take(view.reshape(rows, *tail), flat.reshape(-1), 0)
    out = out.reshape(devices + full + tail)
    if mode is GatherScatterMode.FILL_OR_DROP and at.inside is not None:
        outside = ~at.inside.reshape(at.inside.shape + (1,) * (out.ndim - lead - queries))
        np.copyto(out, np.asarray(fill_constant(x.dtype, fill_value), x.dtype), where=outside)
    windows = window_dims(len(slice_sizes), n.collapsed_slice_dims, n.operand_batching_dims)
    return out.transpose(query_order(lead, queries, at.partial, at.whole, n.offset_dims,
                                     windows))


def prepared_gather(lead: int, shapes: Sequence[Shape], dtypes: Sequence[np.dtype],
              params: dict[str, Any]) -> Callable[..., np.ndarray] | None:
    """The evaluator for arrays of these shapes whose rows are contiguous, else None."""
    if lead:
        return None
    fill = None
    if params["mode"] is GatherScatterMode.FILL_OR_DROP:
        fill = np.asarray(fill_constant(dtypes[0], params["fill_value"]), dtypes[0])
    like = (shapes, dtypes, params["dimension_numbers"], params["slice_sizes"], fill,
            functools.partial(gathered, lead, **params))
    return _row_indexing.rows_taken(*like) or _point_indexing.windows_taken(*like)


def take(x: np.ndarray, places: np.ndarray, axis: int) -> np.ndarray:
    """`numpy.take` of a list of places, all of them inside, into memory of the pool."""
    out = empty((*x.shape[:axis], places.size, *x.shape[axis + 1:]), x.dtype)
    return np.take(x, places, axis=axis, out=out, mode="clip")


def _taken(x: np.ndarray, places: np.ndarray, axis: int, to: int) -> np.ndarray:
    """The rows at these places along `axis`, that dimension moved to `to`.

    Dimensions stay in memory in the order in which they are: nothing is copied but what is taken.
    """
    order = sorted(range(x.ndim), key=lambda d: -x.strides[d])
    dense = x.transpose(order)
    if dense.flags.c_contiguous or x.shape[axis] <= 4 * places.size:    # numpy copies other arrays
        out = take(dense, places, order.index(axis))
        out = out.transpose([order.index(d) for d in range(x.ndim)])
    else:
        out = x[(slice(None),) * axis + (places,)]
    return out if axis == to else np.moveaxis(out, axis, to)
