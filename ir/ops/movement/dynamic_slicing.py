"""Slices with starts that are values: dynamic_slice and dynamic_update_slice.

A dimension taken whole passes through; a part at a dynamic start is an indexed factor of the
operand and a private one of the slice. Starts are clamped so that the slice fits, as XLA does.
Starts that differ per device are one batched numpy access.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...dtypes import issubdtype
from ...kernels.device_dimensions import empty_like, is_common, lead_indices, lead_sizes
from ...kernels.dynamic_slices import SLAB, clamped, part_taken, part_updated
from ...op import LinearOperand, LocalizeContext, Op, Sample, defop
from ...padded import Padded, PaddedContext
from ...rule import INDEXED
from ...support.caches import cached
from ...types import ArrayType, Entries, Shape, short_list
from ..derivatives import batch_first, cotangent_type, move_first, type_of
from ..emitting import INT32, Emitting, literal
from ..indexing.common import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from ..indexing.gather import gather_p
from ..indexing.padded_positions import bounded, indexed
from ..indexing.scatter import scatter_p
from ..rules import call, reject, resized_entries, rule_text, zeros

_ISSUES = "Please file an issue at https://github.com/jax-ml/jax/issues"


def _check_starts(name: str, types: Sequence[ArrayType], starts: Sequence[ArrayType]) -> None:
    if any(s.ndim for s in starts):
        space = "" if name == "dynamic_update_slice" else " "
        reject(TypeError, types, f"start_indices arguments to {name} must be "
               f"scalars, {space}got indices {tuple(starts)}")
    if any(s.dtype != starts[0].dtype or not issubdtype(s.dtype, np.integer) for s in starts):
        colon = "" if name == "dynamic_update_slice" else ":"
        reject(TypeError, types, f"index arguments to {name} must be integers of the same type, "
               f"got{colon} {', '.join(str(s.dtype) for s in starts)}")


def _dynamic_slice_infer(x: ArrayType, *starts: ArrayType, slice_sizes: tuple[int, ...]) -> tuple:
    if len(starts) != x.ndim:
        reject(TypeError, [x], "dynamic_slice start_indices must have length equal to the number "
               f"of dimensions of the operand, got indices {tuple(starts)} for operand shape "
               f"{x.shape}.")
    if len(slice_sizes) != x.ndim or any(m > n for m, n in zip(slice_sizes, x.shape, strict=True)):
        reject(TypeError, [x], "slice slice_sizes must be less than or equal to operand shape, got "
               f"slice_sizes {slice_sizes} for operand shape {x.shape}.")
    if any(m < 0 for m in slice_sizes):
        reject(TypeError, [x], "slice slice_sizes must be greater than or equal to zero, got "
               f"slice_sizes of {slice_sizes}.")
    _check_starts("dynamic_slice", [x, *starts], starts)
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
        fail(NotImplementedError, f"unreduced rule for {op.name} is not implemented. {_ISSUES}",
             code="unreduced-operand", label=f"operands are {short_list(types)}",
             help="finish the sum first, with `reshard` to a spec without `unreduced`")
    return frozenset(), reduced[0]


def _dynamic_slice_transpose(ct: Any, x: Any, *starts: Any, slice_sizes: tuple[int, ...]) -> tuple:
    out = dynamic_update_slice_p.bind(zeros(cotangent_type(x.aval)), ct, *starts)
    return (out, *(None for _ in starts))


def _stacked_starts(starts: Sequence[Any], dims: Sequence[int | None], size: int) -> Any:
    """Batched starts as one array of index vectors [size, rank]."""
    columns = [call("broadcast_in_dim", s, shape=(size, 1), sharding=None,
                    broadcast_dimensions=(0,)) for s in batch_first(starts, dims, size)]
    return call("concatenate", *columns, dimension=1)


def _dynamic_slice_batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *,
                         slice_sizes: tuple[int, ...]) -> tuple:
    x, *starts = operands
    batched: tuple[int, ...] = ()
    if dims[0] is not None:
        x, batched = move_first(x, dims[0]), (0,)
    if all(d is None for d in dims[1:]):
        first = np.zeros((), type_of(starts[0]).dtype) if starts else np.int32(0)
        return [dynamic_slice_p.bind(x, first, *starts, slice_sizes=(size, *slice_sizes))], [0]
    indices = _stacked_starts(starts, dims[1:], size)
    rank, shift = len(slice_sizes), len(batched)
    numbers = GatherDimensionNumbers(
        offset_dims=tuple(range(1, rank + 1)), collapsed_slice_dims=(),
        start_index_map=tuple(range(shift, rank + shift)), operand_batching_dims=batched,
        start_indices_batching_dims=batched)
    return [gather_p.bind(
        x, indices, dimension_numbers=numbers,
        slice_sizes=(1,) * shift + tuple(slice_sizes), unique_indices=False,
        indices_are_sorted=False, mode=GatherScatterMode.CLIP, fill_value=None)], [0]


def _clamped(starts: Sequence[np.ndarray], sizes: Sequence[int], shape: Sequence[int]
             ) -> list[np.ndarray]:
    """Starts moved so that a slice of `sizes` lies within `shape`."""
    return [clamped(s, n - m)
            for s, m, n in zip(starts, sizes, shape, strict=True)]


def _common_part(lead: int, starts: Sequence[np.ndarray], sizes: Sequence[int],
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
def _places(devices: tuple[int, ...], held: tuple[int, ...]) -> tuple[tuple, ...]:
    """Where each device's part lies in an array whose device dimensions have the sizes `held`."""
    return tuple([tuple([i if n > 1 else 0 for i, n in zip(at, held, strict=True)])
                  for at in np.ndindex(devices)])


def _slices(lead: int, devices: tuple[int, ...], starts: Sequence[np.ndarray], sizes: Sequence[int]
            ) -> list[tuple[slice, ...]]:
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


def _window(lead: int, x: np.ndarray, starts: list[np.ndarray], sizes: Sequence[int],
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


def _back(lead: int, varying: tuple[int, ...], rest: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation from (devices, varying, rest) to the dimensions in order."""
    order = list(varying) + list(rest)
    return tuple(range(lead)) + tuple(lead + order.index(d) for d in range(len(order)))


def _dynamic_slice_evaluate(lead: int, x: np.ndarray, *starts: np.ndarray,
                            slice_sizes: tuple[int, ...]) -> np.ndarray:
    part = _common_part(lead, starts, slice_sizes, x.shape)
    if part is not None:
        return x[part]
    devices = lead_sizes(lead, (x, *starts))
    starts = tuple(_clamped(starts, slice_sizes, x.shape[lead:]))
    if math.prod(slice_sizes) >= SLAB:
        out = empty_like(x, (*devices, *slice_sizes))
        for to, at, where in zip(_places(devices, devices), _places(devices, x.shape[:lead]),
                                 _slices(lead, devices, starts, slice_sizes), strict=True):
            out[to] = x[(*at, *where)]
        return out
    view, (where, varying, rest) = _window(lead, x, list(starts), slice_sizes, devices)
    return view[where].transpose(_back(lead, varying, rest))


_dynamic_slice_evaluate.prepared = part_taken  # type: ignore[attr-defined]


def _dynamic_slice_localize(context: LocalizeContext) -> list[Any]:
    """Where a sliced dimension is split: the rows that this device owns, zero for the others."""
    out = Emitting(context)
    x, *starts = context.operands
    block, sizes = context.local_operand_shapes[0], list(context.local_result_shapes[0])
    split = _split_dims(context, sizes)
    starts = [_start(out, context, d, s) for d, s in enumerate(starts)]
    first = [literal(0, INT32) if d in split else s for d, s in enumerate(starts)]
    sizes = tuple(n if d in split else m for d, (n, m) in enumerate(zip(block, sizes, strict=True)))
    x = out.call("dynamic_slice", x, *first, slice_sizes=sizes)
    for d, axes in split.items():
        m = context.local_result_shapes[0][d]
        offset = context.block_offset(axes, block[d])
        places = out.minus(out.iota((m,), 0), out.call("sub", offset, starts[d]))
        mine = out.inside(places, block[d])
        highest = out.full(block[d] - 1, (), INT32)
        x = out.rows(x, d, out.call("clamp", literal(0, INT32), places, highest))
        shape = x.aval.shape
        x = out.select(out.broadcast(mine, shape, (d,)), x, out.full(0, shape, x.aval.dtype))
    return [x]


def _split_dims(context: LocalizeContext, sizes: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """The dimensions that are taken or written in part and are split, with their axes."""
    whole = context.operand_types[0].shape
    block = context.local_operand_shapes[0]
    return {d: axes for d, n in enumerate(whole) if sizes[d] != block[d] or n != block[d]
            if (axes := context.axes_of_factor.get(context.rule.operands[0][d][0], ()))
            and context.rule.factors[context.rule.operands[0][d][0]].kind == INDEXED}


def _start(out: Emitting, context: LocalizeContext, d: int, start: Any) -> Any:
    """The start in the whole operand, moved so that the part is inside it; int32."""
    part = context.operand_types[1].shape if context.operand_types[1].shape else None
    m = part[d] if part else context.result_types[0].shape[d]
    n = context.operand_types[0].shape[d]
    return out.clamped(out.index(start, n), n - m)


def _padded(sizes: Callable[[PaddedContext], Shape], first: int
            ) -> Callable[[PaddedContext], list[Padded] | None]:
    """Starts are bounded by the rows that are no padding. first: the operand that is the start in
    dimension 0."""
    def padded(context: PaddedContext) -> list[Padded] | None:
        operands = list(context.operands)
        for d, m in enumerate(sizes(context)):
            x = operands[0]
            if x.is_padded(d) and m < x.shape[d]:
                start = bounded(context, operands[first + d], None, x.shape[d] - m, None)
                if start is None:
                    return None
                operands[first + d] = start
        return context.by_factors(operands, safe=indexed(context))
    return padded


def _arange(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


dynamic_slice_p = defop(
    "dynamic_slice",
    doc="The part of `slice_sizes` at the start given by the other operands, moved inside.",
    infer=_dynamic_slice_infer, rule=_dynamic_slice_rule,
    explicit=lambda op, types, shapes, params: [
        resized_entries("dynamic_slice", types[0], shapes[0])],
    pending=_dynamic_slice_pending,
    linear=((0,),), jvp="linear", transpose=_dynamic_slice_transpose, batch=_dynamic_slice_batch,
    evaluate=_dynamic_slice_evaluate, arithmetic=False,
    resize=lambda params, operands, results: {**params, "slice_sizes": results[0]},
    padded=_padded(lambda context: context.result_types[0].shape, 1),
    localize=_dynamic_slice_localize,
    samples=lambda: [
        Sample((_arange(4, 6), np.int32(1), np.int32(2)), {"slice_sizes": (2, 3)},
               lambda x, i, j: x[1:3, 2:5]),
        Sample((_arange(4, 6), np.int32(9), np.int32(-2)), {"slice_sizes": (2, 6)},
               lambda x, i, j: x[2:4]),
    ])


# -- dynamic_update_slice --------------------------------------------------------------------------

def _update_infer(x: ArrayType, update: ArrayType, *starts: ArrayType) -> tuple:
    if x.ndim != update.ndim:
        reject(TypeError, [x, update], "dynamic_update_slice update must have the same rank as "
               f"operand, got update shape {update.shape} for operand shape {x.shape}.")
    if x.ndim != len(starts):
        reject(TypeError, [x, update], "dynamic_update_slice start_indices must have length equal "
               f"to the rank of operand, got indices {tuple(starts)} for operand shape {x.shape}.")
    if any(m > n for m, n in zip(update.shape, x.shape, strict=True)):
        reject(TypeError, [x, update], "dynamic_update_slice update shape must be smaller than "
               f"operand shape, got update shape {update.shape} for operand shape {x.shape}.")
    if x.dtype != update.dtype:
        reject(TypeError, [x, update], "lax.dynamic_update_slice requires arguments to have the "
               f"same dtypes, got {x.dtype}, {update.dtype}.")
    _check_starts("dynamic_update_slice", [x, update, *starts], starts)
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
        moved[0], _stacked_starts(starts, dims[2:], size), moved[1], dimension_numbers=numbers,
        unique_indices=True, indices_are_sorted=True, mode=GatherScatterMode.CLIP)], [0]


def _update_evaluate(lead: int, x: np.ndarray, update: np.ndarray,
                     *starts: np.ndarray) -> np.ndarray:
    devices = lead_sizes(lead, (x, update, *starts))
    out = empty_like(x, (*devices, *x.shape[lead:]))
    np.copyto(out, x)
    return _update_over(lead, out, update, *starts)


def _update_over(lead: int, x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    """The same for an operand with all device dimensions, which is written over."""
    sizes, devices = update.shape[lead:], x.shape[:lead]
    part = _common_part(lead, starts, sizes, x.shape)
    if part is not None:
        x[part] = update
        return x
    starts = tuple(_clamped(starts, sizes, x.shape[lead:]))
    if math.prod(sizes) >= SLAB:
        for to, at, where in zip(_places(devices, devices), _places(devices, update.shape[:lead]),
                                 _slices(lead, devices, starts, sizes), strict=True):
            x[(*to, *where)] = update[at]
        return x
    view, (where, varying, rest) = _window(lead, x, list(starts), sizes, devices)
    view[where] = update.transpose(*range(lead), *(lead + d for d in (*varying, *rest)))
    return x


_update_evaluate.over = _update_over  # type: ignore[attr-defined]
_update_evaluate.prepared = part_updated  # type: ignore[attr-defined]


def _update_localize(context: LocalizeContext) -> list[Any]:
    """Where a written dimension is split: each device writes the rows that it owns.

    It rewrites a window of its block that has all of them, in part with what was there.
    """
    out = Emitting(context)
    x, update, *starts = context.operands
    block = context.local_operand_shapes[0]
    split = _split_dims(context, context.local_operand_shapes[1])
    starts = [_start(out, context, d, s) for d, s in enumerate(starts)]
    masks = {}
    for d, axes in split.items():
        m = context.local_operand_shapes[1][d]
        width = min(m, block[d])
        first = out.call("sub", starts[d], context.block_offset(axes, block[d]))
        starts[d] = out.clamped(first, block[d] - width)
        places = out.minus(out.iota((width,), 0), out.call("sub", first, starts[d]))
        masks[d] = out.inside(places, m)
        update = out.rows(update, d, out.call("clamp", literal(0, INT32), places,
                                              out.full(m - 1, (), INT32)))
    shape = update.aval.shape
    if masks:
        there = out.call("dynamic_slice", x, *starts, slice_sizes=shape)
        for d, mask in masks.items():
            update = out.select(out.broadcast(mask, shape, (d,)), update, there)
    return [out.call("dynamic_update_slice", x, update, *starts)]


dynamic_update_slice_p = defop(
    "dynamic_update_slice", doc="The operand with the part at the start replaced by the update.",
    infer=_update_infer, rule=_update_rule, explicit=_update_explicit, pending=_update_pending,
    linear=((0, 1),), jvp="linear", transpose=_update_transpose, batch=_update_batch,
    evaluate=_update_evaluate, arithmetic=False,
    padded=_padded(lambda context: context.operands[1].shape, 2), localize=_update_localize,
    samples=lambda: [
        Sample((_arange(4, 5), -_arange(2, 3), np.int32(1), np.int32(4)), {}),
        Sample((_arange(4, 5), -_arange(1, 5), np.int32(2), np.int32(0)), {}),
    ])
