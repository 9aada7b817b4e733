"""Dynamic starts: what dynamic_slice and dynamic_update_slice share."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import issubdtype
from ...kernels.device_dimensions import is_common, lead_indices
from ...kernels.dynamic_slices import clamped
from ...op import LocalizeContext
from ...rules.factor import INDEXED
from ...support.caches import cached
from ...types import ArrayType
from ..derivatives import batch_first
from ..emitting import INT32, Emitting, literal
from ..rules import call, reject

ISSUES = "Please file an issue at https://github.com/jax-ml/jax/issues"


def check_starts(name: str, types: Sequence[ArrayType], starts: Sequence[ArrayType]) -> None:
    if any(s.ndim for s in starts):
        space = "" if name == "dynamic_update_slice" else " "
        reject(TypeError, types, f"start_indices arguments to {name} must be "
               f"scalars, {space}got indices {tuple(starts)}",
               help="give one scalar for each dimension, each an argument")
    if any(s.dtype != starts[0].dtype or not issubdtype(s.dtype, np.integer) for s in starts):
        colon = "" if name == "dynamic_update_slice" else ":"
        reject(TypeError, types, f"index arguments to {name} must be integers of the same type, "
               f"got{colon} {', '.join(str(s.dtype) for s in starts)}",
               help="convert them with `astype` to int32")


def stacked_starts(starts: Sequence[Any], dims: Sequence[int | None], size: int) -> Any:
    """Batched starts as one array of index vectors [size, rank]."""
    columns = [call("broadcast_in_dim", s, shape=(size, 1), sharding=None,
                    broadcast_dimensions=(0,)) for s in batch_first(starts, dims, size)]
    return call("concatenate", *columns, dimension=1)


def clamped_starts(starts: Sequence[np.ndarray], sizes: Sequence[int], shape: Sequence[int]
             ) -> list[np.ndarray]:
    """Starts moved so that a slice of `sizes` lies within `shape`."""
    return [clamped(s, n - m)
            for s, m, n in zip(starts, sizes, shape, strict=True)]


def common_part(lead: int, starts: Sequence[np.ndarray], sizes: Sequence[int],
                shape: Sequence[int]) -> tuple[slice, ...] | None:
    """The part of an array of this shape that a slice is, if it is the same on all devices."""
    part = [slice(None)] * lead
    for s, m, n in zip(starts, sizes, shape[lead:], strict=True):
        if m == n:
            part.append(slice(None))
        elif s.size == 1:
            first = min(max(int(s.item()), 0), n - m)
            part.append(slice(first, first + m))
        else:
            return None
    return tuple(part)


@cached(256)
def device_places(devices: tuple[int, ...], held: tuple[int, ...]) -> tuple[tuple, ...]:
    """The place of each device's part in an array whose device dimensions have the sizes `held`."""
    return tuple([tuple([i if n > 1 else 0 for i, n in zip(at, held, strict=True)])
                  for at in np.ndindex(devices)])


def device_slices(lead: int, devices: tuple[int, ...], starts: Sequence[np.ndarray],
                  sizes: Sequence[int]) -> list[tuple[slice, ...]]:
    """For each device where its slice is in its block, given (clamped) starts."""
    count, wide = math.prod(devices), []
    for s, n in zip(starts, sizes, strict=True):
        if s.size == 1:
            first = int(s.flat[0])
            wide.append([slice(first, first + n)] * count)
        else:
            each = np.broadcast_to(s.reshape(s.shape[:lead]), devices).reshape(-1).tolist()
            wide.append([slice(i, i + n) for i in each])
    return list(zip(*wide, strict=True))


def device_windows(lead: int, x: np.ndarray, starts: list[np.ndarray], sizes: Sequence[int],
                   devices: tuple[int, ...]) -> tuple[np.ndarray, tuple]:
    """A view of `x` and an index into it that selects the slices at these (clamped) starts.

    The index result has the device dimensions, then the dimensions with varying starts in the
    view's order; the view has the dimensions with a common start cut already.
    """
    cut: list[slice] = [slice(None)] * lead
    varying = []
    for d, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if is_common(start, lead) or size == x.shape[lead + d]:
            first = int(start.flat[0])
            cut.append(slice(first, first + size))
        else:
            varying.append(d)
            cut.append(slice(None))
    view = x[tuple(cut)]
    if not varying:
        return view, ()
    rest = [d for d in range(len(sizes)) if d not in varying]
    view = view.transpose(*range(lead), *(lead + d for d in varying), *(lead + d for d in rest))
    rank = lead + len(varying)
    index = lead_indices(x, lead, devices, rank)
    for k, d in enumerate(varying):
        start = starts[d].reshape(starts[d].shape[:lead] + (1,) * len(varying))
        along = np.arange(sizes[d]).reshape((-1,) + (1,) * (len(varying) - k - 1))
        index.append(start + along)
    return view, (tuple(index), tuple(varying), tuple(rest))


def back(lead: int, varying: tuple[int, ...], rest: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation from (devices, varying, rest) to the dimensions in order."""
    order = list(varying) + list(rest)
    return tuple(range(lead)) + tuple(lead + order.index(d) for d in range(len(order)))


def split_dims(context: LocalizeContext, sizes: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """The dimensions that are taken or written in part and are split, with their axes."""
    whole = context.operand_types[0].shape
    block = context.local_operand_shapes[0]
    return {d: axes for d, n in enumerate(whole) if sizes[d] != block[d] or n != block[d]
            if (axes := context.axes_of_factor.get(context.rule.operands[0][d][0], ()))
            and context.rule.factors[context.rule.operands[0][d][0]].kind == INDEXED}


def local_start(out: Emitting, context: LocalizeContext, d: int, start: Any) -> Any:
    """The start in the whole operand, moved so that the part is inside it; int32."""
    part = context.operand_types[1].shape if context.operand_types[1].shape else None
    m = part[d] if part else context.result_types[0].shape[d]
    n = context.operand_types[0].shape[d]
    if m == n:
        return literal(0, INT32)
    return out.clamped(out.index(start, n), n - m)
