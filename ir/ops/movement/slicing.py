"""Static slices: `x[1:5:2]` with bounds that are known while tracing.

A dimension taken whole passes through; a proper part is a halo factor: a block of the result
consists of rows from one or two blocks of the operand.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...facts import REARRANGED, TAKEN, UNEVEN, VIEW, DeviceCost, window_traffic
from ...op import LocalizeContext, Sample, defop
from ...padded import Padded, PaddedContext, with_entry
from ...rules.factor import INDEXED
from ...types import ArrayType, Shape
from ..communication.halo_exchange import rows_needed, split_halos
from ..derivatives import move_first, slice_along, type_of
from ..elementwise.declaration import arange
from ..emitting import INT32, Emitting, literal
from ..rules import batch_dim, call, reject, resized_entries, rule_text


def _slice_infer(x: ArrayType, *, start_indices: tuple[int, ...], limit_indices: tuple[int, ...],
                 strides: tuple[int, ...] | None) -> tuple:
    """Bounds within the operand; each dimension has as many rows as strides fit between them."""
    if x.ndim != len(start_indices):
        reject(TypeError, [x], "slice start_indices must have length equal to the number of "
               f"dimensions of the operand, got indices {start_indices} for operand shape "
               f"{x.shape}.", help=f"give {x.ndim} starts, one for each dimension")
    if len(start_indices) != len(limit_indices):
        reject(TypeError, [x], "slice limit_indices must have the same length as start_indices, "
               f"got start_indices {start_indices} and limit_indices {limit_indices}.",
               help="give as many limits as starts")
    if any(stop > n for n, stop in zip(x.shape, limit_indices, strict=True)):
        reject(TypeError, [x], "slice limit_indices must be less than or equal to operand shape, "
               f"got limit_indices {limit_indices} for operand shape {x.shape}.",
               help=f"limits are {x.shape} at most; an index cuts them off")
    if any(start < 0 for start in start_indices):
        reject(TypeError, [x], "slice start_indices must be greater than or equal to zero, got "
               f"start_indices of {start_indices}.",
               help="count from the front; in an index, negative ones count from the end")
    if any(stop < start for start, stop in zip(start_indices, limit_indices, strict=True)):
        reject(TypeError, [x], "slice limit_indices must be greater than or equal to "
               f"start_indices, got start_indices {start_indices} and limit_indices "
               f"{limit_indices}.", help="give limits that are not below the starts")
    steps = (1,) * x.ndim if strides is None else tuple(strides)
    if len(steps) != x.ndim:
        reject(TypeError, [x], "slice strides must have length equal to the number of dimensions "
               f"of the operand, got strides {strides} for operand shape {x.shape}.",
               help=f"give {x.ndim} strides, one for each dimension")
    if not all(step > 0 for step in steps):
        reject(TypeError, [x], f"slice strides must be positive, got {strides}",
               help="`lax.rev` reverses dimensions")
    return tuple(-(-(stop - start) // step) for start, stop, step
                 in zip(start_indices, limit_indices, steps, strict=True)), x.dtype


def _slice_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
                start_indices: tuple[int, ...], limit_indices: tuple[int, ...],
                strides: tuple[int, ...] | None) -> str:
    """A dimension in part is a halo factor, or an indexed one if so few rows are taken that most
    devices have none of them.
    """
    dims = [f"d{d}" for d in range(len(start_indices))]
    out = list(dims)
    steps = strides or (1,) * len(dims)
    kinds = []
    for d, (name, n, m, start, step) in enumerate(zip(
            dims, operands[0], results[0], start_indices, steps, strict=True)):
        if _few(m, n):                       # few devices have the rows
            kinds.append(f"{name}:indexed(sum)")
            if m > 1:
                out[d] = f"s{d}"
                kinds.append(f"s{d}!:replicate")
        elif n != m:
            kinds.append(f"{name}:halo({start},1,{step})")
    return rule_text([dims], [out], kinds)


def _few(rows: int, size: int) -> bool:
    """Are these rows of a dimension too few to be split themselves?"""
    return rows == 1 < size or 0 < 8 * rows <= size and rows < 8


def _slice_transpose(ct: Any, x: Any, *, start_indices: tuple[int, ...],
                     limit_indices: tuple[int, ...], strides: tuple[int, ...] | None) -> tuple:
    """Pad with zeros for the rows that were left out, between rows too for strides."""
    steps = strides if strides is not None else (1,) * len(start_indices)
    config = []
    for n, m, start, step in zip(x.aval.shape, type_of(ct).shape, start_indices, steps,
                                 strict=True):
        covered = start + (m - 1) * step + 1 if m else start
        config.append((start, n - covered, step - 1))
    if x.aval.shape == type_of(ct).shape:
        return (ct,)
    return (call("pad", ct, np.zeros((), x.aval.dtype), padding_config=tuple(config)),)


def _slice_batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *,
                 start_indices: tuple[int, ...], limit_indices: tuple[int, ...],
                 strides: tuple[int, ...] | None) -> tuple:
    return [slice_p.bind(
        move_first(operands[0], batch_dim(dims)), start_indices=(0, *start_indices),
        limit_indices=(size, *limit_indices),
        strides=None if strides is None else (1, *strides))], [0]


def _slice_evaluate(lead: int, x: np.ndarray, *, start_indices: tuple[int, ...],
                    limit_indices: tuple[int, ...], strides: tuple[int, ...] | None) -> np.ndarray:
    steps = strides if strides is not None else (1,) * len(start_indices)
    return x[(slice(None),) * lead + tuple(map(slice, start_indices, limit_indices, steps))]


def _slice_resize(params: dict[str, Any], operands: Sequence[Shape],
                  results: Sequence[Shape]) -> dict[str, Any]:
    """Only dimensions taken whole are split: there, the limit is the block's size.

    The stride is 1 there; a dimension of size 1 may have had any.
    """
    whole = [n == m for n, m in zip(operands[0], results[0], strict=True)]
    steps = params["strides"]
    return {**params, "limit_indices": tuple(
        n if w else stop for n, w, stop
        in zip(operands[0], whole, params["limit_indices"], strict=True)),
        "strides": steps and tuple(1 if w else step for w, step in zip(whole, steps, strict=True))}


def _slice_padded(context: PaddedContext) -> list[Padded]:
    """Rows from the start on, as many as are wanted: those from the limit on are padding. All rows
    of a dimension stay where those that are cut off do.
    """
    (x,), params, (shape,) = context.given, context.params, context.sizes
    result = context.result_types[0].shape
    steps = params["strides"] or (1,) * len(shape)
    fills: list[Any] = []
    for d, (start, m, size, step) in enumerate(zip(
            params["start_indices"], result, shape, steps, strict=True)):
        if (start, m, step) == (0, x.shape[d], 1):
            x = context.resized(x, d, max(size, x.size(d)), x.lows[d])
            fills.append(x.fills[d])
            continue
        if d in context.kept:
            fills.append(None)
            x = Padded(x.atom, with_entry(x.shape, d, m), with_entry(x.fills, d, None),
                       with_entry(x.lows, d, None if x.lows[d] is None else x.lows[d] + start))
            continue
        x = context.resized(x, d, x.size(d))
        rows = size if step == 1 else start + (size - 1) * step + 1 if size else start
        first = start if step == 1 else 0
        zero = np.zeros((), x.atom.aval.dtype)[()] if size > m else None
        known = x.shape[d] - start <= m * step and x.holds(d, zero)
        if step == 1 or rows > x.size(d):
            atom = context.moved(x, d, first, max(rows, size * step if step > 1 else 0))
        else:
            atom = x.atom
        if step > 1:
            atom = context.call("slice", atom, **slice_along(atom.aval.shape, d, start, rows, step))
        fills.append(zero if known else None)
        x = Padded(atom, with_entry(x.shape, d, m), with_entry(x.fills, d, None), x.lows)
    return [Padded(x.atom, result, fills, x.lows)]


def _slice_localize(context: LocalizeContext) -> list[Any]:
    """Where a dimension taken in part is split: the rows that its part of the result is made of."""
    x, params = context.operands[0], context.params
    params = _slice_resize(params, context.local_operand_shapes, context.local_result_shapes)
    starts, limits = list(params["start_indices"]), list(params["limit_indices"])
    owners, few = [], []
    for d, dims in enumerate(context.rule.operands[0]):
        axes = context.axes_of_factor.get(dims[0], ()) if dims else ()
        if axes and context.rule.factors[dims[0]].kind == INDEXED:
            block = context.local_operand_shapes[0][d]
            owner, end = starts[d] // block, context.params["limit_indices"][d]
            if (end - 1) // block == owner:
                starts[d], limits[d] = starts[d] - owner * block, end - owner * block
                owners.append((axes, owner))
            else:
                few.append((d, axes, starts[d]))
                starts[d], limits[d] = 0, block
    for d, axes in split_halos(context).items():
        rows = rows_needed(context, x, d, axes)
        x, starts[d], limits[d] = rows.x, 0, rows.count
    steps = list(context.params["strides"] or (1,) * len(starts))
    taken = {d: steps[d] for d, _, _ in few}
    for d in taken:
        steps[d] = 1
    if x.aval.shape != tuple(limits) or any(starts) or any(step != 1 for step in steps):
        x = context.emit(slice_p, [x], {"start_indices": tuple(starts), "strides": tuple(steps),
                                        "limit_indices": tuple(limits)})[0]
    out = Emitting(context)
    for d, axes, start in few:
        x = _held_rows(out, x, d, axes, start, taken[d], context.local_result_shapes[0][d])
    for axes, owner in owners:
        if context.permutes and owner:              # the first one decides for all
            x, owner = out.call("ppermute", x, axis_name=axes, perm=((owner, 0),)), 0
        is_owner = out.call("eq", context.block_offset(axes, 1), literal(owner, INT32))
        x = out.select(is_owner, x, out.full(0, x.aval.shape, x.aval.dtype))
    return [x]


def _held_rows(out: Emitting, x: Any, d: int, axes: tuple[str, ...], start: int, step: int,
               count: int) -> Any:
    """The rows start, start + step, ... of the whole dimension that this device has, else zeros."""
    block = x.aval.shape[d]
    places = out.call("mul", out.iota((count,), 0), out.full(step, (count,), INT32))
    places = out.call("add", places, out.full(start, (count,), INT32))
    places = out.minus(places, out.context.block_offset(axes, block))
    return out.rows_inside(x, d, places)


slice_p = defop(
    "slice", doc="Elements start, start + stride, ... below limit in each dimension.",
    infer=_slice_infer, rule=_slice_rule,
    explicit=lambda op, types, shapes, params: [resized_entries("slicing", types[0], shapes[0])],
    pending="keep",
    linear=((0,),), jvp="linear", transpose=_slice_transpose, batch=_slice_batch,
    evaluate=_slice_evaluate, arithmetic=False, facts=(VIEW, REARRANGED, TAKEN, UNEVEN),
    cost=DeviceCost(traffic=window_traffic), resize=_slice_resize,
    padded=_slice_padded, localize=_slice_localize,
    samples=lambda: [
        Sample((arange(4, 6),), {"start_indices": (0, 1), "limit_indices": (4, 5),
                                  "strides": (1, 2)}),
        Sample((arange(4, 6),), {"start_indices": (2, 0), "limit_indices": (4, 6),
                                  "strides": None}),
    ])
