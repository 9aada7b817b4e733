"""dynamic_update_slice: part of an array replaced, at starts that are values."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...facts import UPDATED, DeviceCost, Sizes, Types
from ...kernels.device_dimensions import copied, lead_sizes
from ...kernels.dynamic_slices import SLAB, part_updated
from ...op import Evaluator, LinearOperand, LocalizeContext, Op, Sample, defop
from ...types import ArrayType, Entries, Shape, short_list
from ..derivatives import batch_first, cotangent_type, type_of
from ..elementwise.declaration import arange
from ..emitting import Emitting
from ..gather_numbers import GatherScatterMode, ScatterDimensionNumbers
from ..indexing.padded_positions import started_on_padding
from ..indexing.scatter import scatter_p
from ..rules import reject, rule_text, zeros
from .dynamic_slicing import dynamic_slice_p
from .dynamic_starts import (
    check_starts,
    clamped_starts,
    common_part,
    device_places,
    device_slices,
    device_windows,
    local_start,
    split_dims,
    stacked_starts,
)


def _update_infer(x: ArrayType, update: ArrayType, *starts: ArrayType) -> tuple:
    """An update of the operand's rank and dtype that fits into it, and a start for each dimension.
    """
    if x.ndim != update.ndim:
        reject(TypeError, [x, update], "dynamic_update_slice update must have the same rank as "
               f"operand, got update shape {update.shape} for operand shape {x.shape}.",
               help="add dimensions of size 1 with `jnp.expand_dims`, or `reshape` the update")
    if x.ndim != len(starts):
        reject(TypeError, [x, update], "dynamic_update_slice start_indices must have length equal "
               f"to the rank of operand, got indices {tuple(starts)} for operand shape {x.shape}.",
               help=f"give {x.ndim} starts, one for each dimension")
    if any(m > n for m, n in zip(update.shape, x.shape, strict=True)):
        reject(TypeError, [x, update], "dynamic_update_slice update shape must be smaller than "
               f"operand shape, got update shape {update.shape} for operand shape {x.shape}.",
               help=f"cut the update to {x.shape} at most")
    if x.dtype != update.dtype:
        reject(TypeError, [x, update], "lax.dynamic_update_slice requires arguments to have the "
               f"same dtypes, got {x.dtype}, {update.dtype}.",
               help="convert the update with `astype`")
    check_starts("dynamic_update_slice", [x, update, *starts], starts)
    return x.shape, x.dtype, False


def _update_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], **params: Any) -> str:
    whole, update, kinds = [], [], []
    for d, (n, m) in enumerate(zip(operands[0], operands[1], strict=True)):
        whole.append(f"d{d}")
        update.append(f"d{d}" if n == m else f"s{d}")
        if n != m:
            kinds += [f"d{d}:indexed(own)", f"s{d}!:replicate"]
    return rule_text([whole, update] + [[] for _ in operands[2:]], [whole], kinds)


def _update_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                     params: dict[str, Any]) -> list[Entries]:
    x, update = types[:2]
    if x.sharding is not update.sharding:
        fail(ShardingTypeError,
             "dynamic_update_slice operand sharding must be equal to update sharding, got operand "
             f"sharding {x.str_short(mesh_axis_types=True)} and update sharding "
             f"{update.str_short(mesh_axis_types=True)}.", code="sharding-conflict",
             label=f"operand and update are {short_list(types[:2])}",
             help="bring the update to the operand's spec with `reshard`")
    return [x.entries]


def _update_pending(op: Op, types: Sequence[ArrayType], params: dict[str, Any],
                    unreduced: Sequence[frozenset], reduced: Sequence[frozenset]) -> tuple:
    for word, sets in (("unreduced", unreduced), ("reduced", reduced)):
        if sets[0] != sets[1]:
            x, update = types[:2]
            fail(ShardingTypeError,
                 f"dynamic_update_slice operand and update must be {word} along the same axes. Got "
                 f"operand sharding {x.str_short(mesh_axis_types=True)} and update sharding "
                 f"{update.str_short(mesh_axis_types=True)}.", code="pending-operands",
                 help="bring the update to the operand's spec with `reshard`")
    return unreduced[0], reduced[0]


def _update_transpose(ct: Any, x: Any, update: Any, *starts: Any) -> tuple:
    """The cotangent of x has zeros where the update was written; that of the update is what was
    there.
    """
    ct_x = ct_update = None
    aval = type_of(update)
    if isinstance(x, LinearOperand):
        hole = cotangent_type(aval)
        t = type_of(ct)
        hole = hole.update(dtype=t.dtype, manual=t.manual)
        ct_x = dynamic_update_slice_p.bind(ct, zeros(hole), *starts)
    if isinstance(update, LinearOperand):
        ct_update = dynamic_slice_p.bind(ct, *starts, slice_sizes=aval.shape)
    return (ct_x, ct_update, *(None for _ in starts))


def _update_batch(operands: Sequence[Any], dims: Sequence[int | None], size: int) -> tuple:
    """One more dimension if starts are common; otherwise a scatter of a window for each member."""
    x, update, *starts = operands
    moved = batch_first(operands, dims, size)
    if all(d is None for d in dims[2:]):
        first = np.zeros((), type_of(starts[0]).dtype) if starts else np.int32(0)
        return [dynamic_update_slice_p.bind(*moved[:2], first, *starts)], [0]
    window = tuple(range(1, type_of(moved[0]).ndim))
    numbers = ScatterDimensionNumbers(
        update_window_dims=window, inserted_window_dims=(), scatter_dims_to_operand_dims=window,
        operand_batching_dims=(0,), scatter_indices_batching_dims=(0,))
    return [scatter_p.bind(
        moved[0], stacked_starts(starts, dims[2:], size), moved[1], dimension_numbers=numbers,
        unique_indices=True, indices_are_sorted=True, mode=GatherScatterMode.CLIP)], [0]


def _update_evaluate(lead: int, x: np.ndarray, update: np.ndarray,
                     *starts: np.ndarray) -> np.ndarray:
    devices = lead_sizes(lead, (x, update, *starts))
    return _update_over(lead, copied(x, (*devices, *x.shape[lead:])), update, *starts)


def _update_over(lead: int, x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    """The evaluator for an operand with all device dimensions, which is written over."""
    sizes, devices = update.shape[lead:], x.shape[:lead]
    part = common_part(lead, starts, sizes, x.shape)
    if part is not None:
        x[part] = update
        return x
    starts = tuple(clamped_starts(starts, sizes, x.shape[lead:]))
    if math.prod(sizes) >= SLAB:
        for to, at, where in zip(device_places(devices, devices),
                                 device_places(devices, update.shape[:lead]),
                                 device_slices(lead, devices, starts, sizes), strict=True):
            x[(*to, *where)] = update[at]
        return x
    view, (where, varying, rest) = device_windows(lead, x, list(starts), sizes, devices)
    view[where] = update.transpose(*range(lead), *(lead + d for d in (*varying, *rest)))
    return x


def _update_traffic(read: Sizes, written: Sizes, operands: Types, params: dict[str, Any]
                    ) -> tuple[Sizes, Sizes]:
    """In place: only what the update covers is written."""
    return [0, *read[1:]], [read[1]]


def _update_localize(context: LocalizeContext) -> list[Any]:
    """Where a written dimension is split: each device writes the rows that it owns.

    It rewrites a window of its block that has all of them, in part with what was there.
    """
    out = Emitting(context)
    x, update, *starts = context.operands
    block = context.local_operand_shapes[0]
    split = split_dims(context, context.local_operand_shapes[1])
    starts = [local_start(out, context, d, s) for d, s in enumerate(starts)]
    masks = {}
    for d, axes in split.items():
        m = context.local_operand_shapes[1][d]
        width = min(m, block[d])
        first = out.call("sub", starts[d], context.block_offset(axes, block[d]))
        starts[d] = out.clamped(first, block[d] - width)
        if m == 1:
            masks[d] = out.call("eq", first, starts[d])
            continue
        places = out.minus(out.iota((width,), 0), out.call("sub", first, starts[d]))
        inside = out.clamped(places, m - 1)
        masks[d] = out.call("eq", places, inside)
        update = out.rows(update, d, inside)
    shape = update.aval.shape
    if masks:
        there = out.call("dynamic_slice", x, *starts, slice_sizes=shape)
        for d, mask in masks.items():
            dims = (d,) if mask.aval.shape else ()
            update = out.select(out.broadcast(mask, shape, dims), update, there)
    return [out.call("dynamic_update_slice", x, update, *starts)]


dynamic_update_slice_p = defop(
    "dynamic_update_slice", doc="The operand with the part at the start replaced by the update.",
    infer=_update_infer, rule=_update_rule, explicit=_update_explicit, pending=_update_pending,
    linear=((0, 1),), jvp="linear", transpose=_update_transpose, batch=_update_batch,
    evaluate=Evaluator(_update_evaluate, prepare=part_updated, write_over=_update_over),
    arithmetic=False, facts=(UPDATED,), cost=DeviceCost(traffic=_update_traffic),
    padded=lambda context: started_on_padding(context, context.operands[1].shape, 2),
    localize=_update_localize,
    jax="lax.dynamic_update_slice(x, y, *, allow_negative_indices=False)",
    samples=lambda: [
        Sample((arange(4, 5), -arange(2, 3), np.int32(1), np.int32(4))),
        Sample((arange(4, 5), -arange(1, 5), np.int32(2), np.int32(0))),
    ])
