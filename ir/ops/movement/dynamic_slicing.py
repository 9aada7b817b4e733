"""dynamic_slice: part of an array, at starts that are values.

A dimension taken whole passes through; a part at a dynamic start is an indexed factor of the
operand and a private one of the slice. Starts are clamped so that the slice fits, as XLA does.
Starts that differ per device are one batched numpy access.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...facts import READS_FUSED, TAKEN, DeviceCost, window_traffic
from ...kernels.device_dimensions import empty_like, lead_sizes
from ...kernels.dynamic_slices import SLAB, part_taken
from ...op import Evaluator, LocalizeContext, Op, Sample, defop
from ...types import ArrayType, Shape, short_list
from ..derivatives import cotangent_type, move_first, type_of
from ..elementwise.declaration import arange
from ..emitting import INT32, Emitting, literal
from ..gather_numbers import GatherDimensionNumbers, GatherScatterMode
from ..indexing.gather import gather_p
from ..indexing.padded_positions import started_on_padding
from ..rules import call, reject, resized_entries, rule_text, zeros
from .dynamic_starts import (
    ISSUES,
    back,
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


def _dynamic_slice_infer(x: ArrayType, *starts: ArrayType, slice_sizes: tuple[int, ...]) -> tuple:
    if len(starts) != x.ndim:
        reject(TypeError, [x], "dynamic_slice start_indices must have length equal to the number "
               f"of dimensions of the operand, got indices {tuple(starts)} for operand shape "
               f"{x.shape}.", help=f"give {x.ndim} starts, one for each dimension")
    if len(slice_sizes) != x.ndim or any(m > n for m, n in zip(slice_sizes, x.shape, strict=True)):
        reject(TypeError, [x], "slice slice_sizes must be less than or equal to operand shape, got "
               f"slice_sizes {slice_sizes} for operand shape {x.shape}.",
               help=f"sizes are {x.shape} at most; starts are moved so that the slice fits")
    if any(m < 0 for m in slice_sizes):
        reject(TypeError, [x], "slice slice_sizes must be greater than or equal to zero, got "
               f"slice_sizes of {slice_sizes}.", help="give sizes of 0 or more")
    check_starts("dynamic_slice", [x, *starts], starts)
    return tuple(slice_sizes), x.dtype, x.weak_type


def _dynamic_slice_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...],
                        **params: Any) -> str:
    whole, slices, kinds = [], [], []
    for d, (n, m) in enumerate(zip(operands[0], results[0], strict=True)):
        whole.append(f"d{d}")
        slices.append(f"d{d}" if n == m else f"s{d}")
        if n != m:
            kinds += [f"d{d}:indexed(sum)", f"s{d}!:replicate"]
    return rule_text([whole] + [[] for _ in operands[1:]], [slices], kinds)


def _dynamic_slice_pending(op: Op, types: Sequence[ArrayType], params: dict[str, Any],
                           unreduced: Sequence[frozenset], reduced: Sequence[frozenset]) -> tuple:
    if any(unreduced):
        fail(NotImplementedError, f"unreduced rule for {op.name} is not implemented. {ISSUES}",
             code="unreduced-operand", label=f"operands are {short_list(types)}",
             help="finish the sum first, with `reshard` to a spec without `unreduced`")
    return frozenset(), reduced[0]


def _dynamic_slice_transpose(ct: Any, x: Any, *starts: Any, slice_sizes: tuple[int, ...]) -> tuple:
    out = call("dynamic_update_slice", zeros(cotangent_type(x.aval)), ct, *starts)
    return (out, *(None for _ in starts))


def _dynamic_slice_batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *,
                         slice_sizes: tuple[int, ...]) -> tuple:
    """With common starts, a slice with one more dimension; with starts of their own, a gather of a
    window for each member of the batch.
    """
    x, *starts = operands
    batched: tuple[int, ...] = ()
    if dims[0] is not None:
        x, batched = move_first(x, dims[0]), (0,)
    if all(d is None for d in dims[1:]):
        first = np.zeros((), type_of(starts[0]).dtype) if starts else np.int32(0)
        return [dynamic_slice_p.bind(x, first, *starts, slice_sizes=(size, *slice_sizes))], [0]
    indices = stacked_starts(starts, dims[1:], size)
    rank, shift = len(slice_sizes), len(batched)
    numbers = GatherDimensionNumbers(
        offset_dims=tuple(range(1, rank + 1)), collapsed_slice_dims=(),
        start_index_map=tuple(range(shift, rank + shift)), operand_batching_dims=batched,
        start_indices_batching_dims=batched)
    return [gather_p.bind(
        x, indices, dimension_numbers=numbers,
        slice_sizes=(1,) * shift + tuple(slice_sizes), unique_indices=False,
        indices_are_sorted=False, mode=GatherScatterMode.CLIP, fill_value=None)], [0]


def _dynamic_slice_evaluate(lead: int, x: np.ndarray, *starts: np.ndarray,
                            slice_sizes: tuple[int, ...]) -> np.ndarray:
    """A view if all devices slice alike; else a copy for each device if slices are large, or one
    indexed read of a strided view.
    """
    part = common_part(lead, starts, slice_sizes, x.shape)
    if part is not None:
        return x[part]
    devices = lead_sizes(lead, (x, *starts))
    starts = tuple(clamped_starts(starts, slice_sizes, x.shape[lead:]))
    if math.prod(slice_sizes) >= SLAB:
        out = empty_like(x, (*devices, *slice_sizes))
        for to, at, where in zip(device_places(devices, devices),
                                 device_places(devices, x.shape[:lead]),
                                 device_slices(lead, devices, starts, slice_sizes), strict=True):
            out[to] = x[(*at, *where)]
        return out
    view, (where, varying, rest) = device_windows(lead, x, list(starts), slice_sizes, devices)
    return view[where].transpose(back(lead, varying, rest))


def _dynamic_slice_localize(context: LocalizeContext) -> list[Any]:
    """Where a sliced dimension is split: the rows that this device owns, zero for the others."""
    out = Emitting(context)
    x, *starts = context.operands
    block, sizes = context.local_operand_shapes[0], list(context.local_result_shapes[0])
    split = split_dims(context, sizes)
    starts = [local_start(out, context, d, s) for d, s in enumerate(starts)]
    first = [literal(0, INT32) if d in split else s for d, s in enumerate(starts)]
    sizes = tuple(n if d in split else m for d, (n, m) in enumerate(zip(block, sizes, strict=True)))
    if sizes != block:
        x = out.call("dynamic_slice", x, *first, slice_sizes=sizes)
    for d, axes in split.items():
        m = context.local_result_shapes[0][d]
        offset = context.block_offset(axes, block[d])
        if m == 1:
            place = out.call("sub", starts[d], offset)
            row = out.part_from(x, d, place, 1)             # moved inside
            here = out.broadcast(out.inside(place, block[d]), row.aval.shape, ())
            x = out.select(here, row, out.full(0, row.aval.shape, row.aval.dtype))
            continue
        places = out.minus(out.iota((m,), 0), out.call("sub", offset, starts[d]))
        x = out.rows_inside(x, d, places)
    return [x]


dynamic_slice_p = defop(
    "dynamic_slice",
    doc="The part of `slice_sizes` at the start given by the other operands, moved inside.",
    infer=_dynamic_slice_infer, rule=_dynamic_slice_rule,
    explicit=lambda op, types, shapes, params: [
        resized_entries("dynamic_slice", types[0], shapes[0])],
    pending=_dynamic_slice_pending,
    linear=((0,),), jvp="linear", transpose=_dynamic_slice_transpose, batch=_dynamic_slice_batch,
    evaluate=Evaluator(_dynamic_slice_evaluate, prepare=part_taken), arithmetic=False,
    facts=(READS_FUSED, TAKEN), cost=DeviceCost(traffic=window_traffic),
    resize=lambda params, operands, results: {**params, "slice_sizes": results[0]},
    padded=lambda context: started_on_padding(context, context.result_types[0].shape, 1),
    localize=_dynamic_slice_localize,
    jax="lax.dynamic_slice(x, *, allow_negative_indices=False)",
    samples=lambda: [
        Sample((arange(4, 6), np.int32(1), np.int32(2)), {"slice_sizes": (2, 3)}),
        Sample((arange(4, 6), np.int32(9), np.int32(-2)), {"slice_sizes": (2, 6)}),
    ])



