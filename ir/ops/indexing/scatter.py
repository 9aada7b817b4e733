"""scatter and its accumulating kin: write, add, subtract, multiply, min or max into windows.

The updates are the result of the gather with the same dimension numbers. Windows outside the
operand are dropped (or moved inside, mode CLIP); where windows overlap, an overwriting scatter
keeps the last update in row-major order of the indices and the others accumulate all.

Queries are a reduction onto the result for the accumulating ops: each device adds its own updates,
and the operand counts once (see `_localize`).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...facts import UPDATED, DeviceCost, Sizes, Types
from ...kernels.device_dimensions import copied, lead_indices, lead_sizes, with_lead
from ...kernels.row_updates import accumulate_rows, combine_few, write_rows
from ...op import OPS, Evaluator, LocalizeContext, Op, Sample, defop
from ...padded import Padded, PaddedContext
from ...rules.factor import REDUCE
from ...support.immutable import immutable
from ...support.lazy import lazy_import
from ...types import Shape
from ..derivatives import batch_first
from ..emitting import INT32, Emitting, literal
from ..gather_numbers import GatherScatterMode, ScatterDimensionNumbers
from ..rules import call, permutation_inverse, shifted
from .common import linear_index, locate, query_order, window_dims
from .one_window import one_window, window_changed
from .padded_positions import indexed_on_padding
from .scatter_derivatives import (
    jvp_extremal,
    jvp_mul_operand,
    jvp_mul_updates,
    slice_sizes_of,
    transpose_mul,
    transpose_sum,
    transpose_write,
)
from .scatter_typing import Params, rule_with, scatter_explicit, scatter_infer
from .split_windows import Outside, own_windows, split_dims
from .window_updates import as_windows, change_windows

_row_indexing = lazy_import(".row_indexing", __package__)
_point_indexing = lazy_import(".point_indexing", __package__)


# -- batching --------------------------------------------------------------------------------------

def _batch_with(name: str) -> Callable[..., tuple]:
    """The batching rule of a scatter: a dimension of the indices becomes a batching dimension of
    all; without it, the dimension is part of each window.
    """
    def batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *,
              dimension_numbers: ScatterDimensionNumbers, indices_are_sorted: bool,
              unique_indices: bool, mode: GatherScatterMode) -> tuple:
        n = dimension_numbers
        together = dims[1] is not None
        x, indices, updates = batch_first(operands, dims, size)
        pair = (0,) if together else ()
        numbers = ScatterDimensionNumbers(
            update_window_dims=(() if together else (0,)) + shifted(n.update_window_dims),
            inserted_window_dims=shifted(n.inserted_window_dims),
            scatter_dims_to_operand_dims=shifted(n.scatter_dims_to_operand_dims),
            operand_batching_dims=pair + shifted(n.operand_batching_dims),
            scatter_indices_batching_dims=pair + shifted(n.scatter_indices_batching_dims,
                                                         len(pair)))
        return [call(name, x, indices if together else operands[1], updates,
                     dimension_numbers=numbers, indices_are_sorted=indices_are_sorted,
                     unique_indices=unique_indices, mode=mode)], [0]
    return batch


# -- evaluation, on blocks too --------------------------------------------------------------------

@immutable
class _Combining:
    """A scatter on blocks. combine: of rows, places and updates. ufunc: what it does to one
    element; None if it writes."""
    combine: Callable[[np.ndarray, np.ndarray, np.ndarray], None]
    ufunc: np.ufunc | None

    @property
    def evaluator(self) -> Evaluator:
        return Evaluator(self.evaluate, prepare=self.prepared, write_over=self.write_over)

    def evaluate(self, lead: int, x: np.ndarray, indices: np.ndarray, updates: np.ndarray,
                 **params: Any) -> np.ndarray:
        one = one_window(lead, x, indices, updates, params)
        if one is None:
            return self._apart(lead, x, indices, updates, **params)
        out = copied(x, (*lead_sizes(lead, (x, updates)), *x.shape[lead:]))
        one.change(out, updates, self.ufunc)
        return out

    def write_over(self, lead: int, x: np.ndarray, indices: np.ndarray, updates: np.ndarray,
                   **params: Any) -> np.ndarray:
        """As `evaluate`, but the result may take the memory of `x`."""
        one = one_window(lead, x, indices, updates, params)
        if one is None:
            return self._apart(lead, x, indices, updates, **params, over=True)
        if x.shape[:lead] != lead_sizes(lead, (x, updates)) or not x.flags.writeable:
            return self.evaluate(lead, x, indices, updates, **params)
        one.change(x, updates, self.ufunc)
        return x

    def _apart(self, lead: int, x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *,
               dimension_numbers: ScatterDimensionNumbers, indices_are_sorted: bool,
               unique_indices: bool, mode: GatherScatterMode, over: bool = False) -> np.ndarray:
        """The result where there are several windows. over: in the memory of `x`, if that goes."""
        n = dimension_numbers
        local = x.shape[lead:]
        devices = lead_sizes(lead, (x, indices, updates))
        slices = slice_sizes_of(local, updates.shape[lead:], n)
        large = as_windows(local, slices, self.ufunc)    # each changed as such
        at = locate(lead, local, indices, n.as_gather(), slices, starts_only=large)
        queries = indices.ndim - lead - 1
        layout = (*range(lead), *(lead + d for d in (*at.addressed, *at.whole)))
        sizes = [local[d] for d in at.addressed]
        index_shape = devices + tuple(indices.shape[lead:-1])
        whole = with_lead(x, lead, devices)
        where = [*lead_indices(whole, lead, devices, lead + queries + len(at.partial)), *at.index]
        windows = window_dims(len(local), n.inserted_window_dims, n.operand_batching_dims)
        order = query_order(lead, queries, at.partial, at.whole, n.update_window_dims, windows)
        values = with_lead(updates, lead, devices).transpose(permutation_inverse(order))
        valid = (None if at.inside is None or mode is GatherScatterMode.CLIP
                 else np.broadcast_to(at.inside, index_shape))
        in_place = over and x.shape[:lead] == devices and not np.may_share_memory(x, updates)
        in_order = layout == tuple(range(x.ndim))

        def changed() -> np.ndarray:
            return x if in_place and in_order and x.flags.carray else np.array(
                whole.transpose(layout), order="C")

        if large:
            out = changed()
            change_windows(out, where, [slices[d] for d in at.partial],
                           [lead + at.addressed.index(d) for d in at.partial], values,
                           np.ones(index_shape, bool) if valid is None else valid, self.ufunc)
        else:
            positions = np.broadcast_to(linear_index(where, [*devices, *sizes]),
                                        index_shape + tuple([slices[d] for d in at.partial]))
            if valid is not None:
                positions, values = positions[valid], values[valid]
            width = math.prod([local[d] for d in at.whole])
            positions = positions.reshape(-1)
            values = values.reshape(positions.size, width)
            rows = math.prod((*devices, *sizes))
            if not in_order and 2 * positions.size <= rows:
                out = x if in_place and x.flags.writeable else copied(whole)
                combine_few(self.combine, out.transpose(layout), (*devices, *sizes), positions,
                            values)
                return out
            out = changed()
            self.combine(out.reshape(rows, width), positions, values)
        return x if out is x else out.transpose(permutation_inverse(layout))

    def prepared(self, lead: int, shapes: Sequence[Shape], dtypes: Sequence[np.dtype],
                 params: Params) -> Callable[..., np.ndarray] | None:
        """The evaluator for arrays of these shapes, where it changes one window, or rows that are
        contiguous; else None."""
        one = window_changed(lead, shapes, params, self.ufunc)
        if one is not None:
            return one
        if lead or 0 in shapes[2]:
            return None
        clips = params["mode"] is GatherScatterMode.CLIP
        n = params["dimension_numbers"]
        sizes = slice_sizes_of(shapes[0], shapes[2], n)
        given = shapes, dtypes, n, sizes, self.combine
        found = None if clips else _row_indexing.rows_combined(*given)
        return found or _point_indexing.windows_combined(*given, clips)


# -- padded operands ------------------------------------------------------------------------------

def _padded(context: PaddedContext) -> list[Padded] | None:
    n: ScatterDimensionNumbers = context.params["dimension_numbers"]
    operand, _, updates = [x.shape for x in context.operands]
    return indexed_on_padding(context, n.scatter_dims_to_operand_dims,
                              slice_sizes_of(operand, updates, n),
                              context.params["mode"] is not GatherScatterMode.CLIP)


# -- per-device code -------------------------------------------------------------------------------

def _localize(name: str) -> Callable[[LocalizeContext], list[Any]]:
    """The emitter of a scatter on blocks."""
    def localize(context: LocalizeContext) -> list[Any]:
        """Each device writes what it owns; of split queries it adds its own, to zero but for one
        (multiplies, one).

        Where written dimensions are split, positions are counted from the start of the block, and
        what lies outside of it is dropped: another device has it, or none.
        """
        out = Emitting(context)
        x, indices, updates = context.operands
        params = context.params
        n: ScatterDimensionNumbers = params["dimension_numbers"]
        factors, axes_of = context.rule.factors, context.axes_of_factor
        for operator, neutral in (("sum", 0), ("prod", 1)):
            split_queries = tuple(a for f, factor in enumerate(factors) if factor.kind == REDUCE
                                  and factor.operator == operator for a in axes_of.get(f, ()))
            if split_queries:
                first = out.call("eq", context.block_offset(split_queries, 1), literal(0, INT32))
                x = out.call("select_n", first, out.full(neutral, x.aval.shape, x.aval.dtype), x)
        whole = context.operand_types[0].shape
        windows = slice_sizes_of(whole, context.operand_types[2].shape, n)
        split = split_dims(context, n.as_gather(), windows)
        if split:
            sizes = slice_sizes_of(context.local_operand_shapes[0], updates.aval.shape, n)
            clips = params["mode"] in (GatherScatterMode.CLIP, GatherScatterMode.ONE_HOT)
            own = own_windows(out, indices, n.as_gather(), windows, sizes, split,
                              Outside.MOVED if clips else Outside.LEFT)
            is_held = own.is_held
            if own.outside is not None:
                is_held = out.call("and", is_held, out.call("not", own.outside))
            shape = own.indices.aval.shape
            rank = len(shape) - 1
            is_held = out.broadcast(out.without(is_held, rank), shape, range(rank))
            indices = out.select(is_held, own.indices, out.full(-1, shape, INT32))
            if own.moved:
                updates = out.call("transpose", updates,
                                   permutation=own.order(len(updates.aval.shape)))
            params = {**params, "mode": GatherScatterMode.FILL_OR_DROP, "indices_are_sorted": False,
                      "dimension_numbers": own.numbers.as_scatter()}
        return context.emit(OPS[name], [x, indices, updates], params)
    return localize


# -- the ops ---------------------------------------------------------------------------------------

def _samples(unique: bool = False) -> list[Sample]:
    """Samples of every scatter: rows, out-of-bounds rows, single elements with a batching
    dimension, clipped windows; and windows that overlap, unless indices are promised to be unique.
    """
    def sample(x: np.ndarray, indices: Any, updates: np.ndarray, n: ScatterDimensionNumbers,
               mode: GatherScatterMode = GatherScatterMode.FILL_OR_DROP,
               distinct: bool = False) -> Sample:
        return Sample((x, np.asarray(indices, np.int32), updates), {
            "dimension_numbers": n, "indices_are_sorted": False,
            "unique_indices": distinct or unique, "mode": mode})

    x = np.arange(24, dtype=np.float32).reshape(4, 6) / 4
    rows = ScatterDimensionNumbers((1,), (0,), (0,))
    few = np.arange(18, dtype=np.float32).reshape(3, 6) / 8 + 1
    box = ScatterDimensionNumbers((1, 2), (), (0, 1))
    boxes = np.arange(12, dtype=np.float32).reshape(2, 2, 3) / 8 + 1
    found = [
        sample(x, [[2], [0], [3]], few, rows, distinct=True),
        sample(x, [[2], [9], [-1]], few, rows, distinct=True),
        sample(x, [[1], [0], [5], [3]], few[0, :4], ScatterDimensionNumbers((), (1,), (1,), (0,),
                                                                            (0,)), distinct=True),
        sample(x, [[0, 0], [9, 9]], boxes, box, GatherScatterMode.CLIP, distinct=True),
    ]
    if not unique:
        found += [sample(x, [[2], [0], [2]], few, rows),
                  sample(x, [[0, 0], [1, 1]], boxes, box)]
    return found


def _flops(operands: Types, results: Types, params: dict[str, Any]) -> float:
    """Each update is combined with an element."""
    return float(operands[-1].size)


def _traffic(read: Sizes, written: Sizes, operands: Types, params: dict[str, Any]
             ) -> tuple[Sizes, Sizes]:
    """In place: the elements that change are read and written."""
    return [0, *read[1:]], [2 * read[2]]


def _defscatter(name: str, doc: str, query_kind: str, ufunc: np.ufunc | None,
                arithmetic: bool = True, **fields: Any) -> Op:
    combine = write_rows if ufunc is None else accumulate_rows(ufunc)
    return defop(
        name, doc=doc,
        infer=scatter_infer, rule=rule_with(query_kind), explicit=scatter_explicit,
        pending="iterated",
        batch=_batch_with(name),
        evaluate=_Combining(combine, ufunc).evaluator, arithmetic=arithmetic, padded=_padded,
        localize=_localize(name),
        **fields)


scatter_p = _defscatter(
    "scatter",
    "Overwrite windows of operand 0, at the positions given by operand 1, with operand 2.",
    "replicate", None,
    linear=((0, 2),), jvp="linear", transpose=transpose_write,
    arithmetic=False, facts=(UPDATED,), cost=DeviceCost(traffic=_traffic),
    samples=_samples)
scatter_add_p = _defscatter(
    "scatter-add", "Add operand 2 to windows of operand 0.", "sum", np.add,
    linear=((0, 2),), jvp="linear", transpose=transpose_sum(1),
    facts=(UPDATED,), cost=DeviceCost(_flops, _traffic),
    samples=_samples)
scatter_sub_p = _defscatter(
    "scatter-sub", "Subtract operand 2 from windows of operand 0.", "sum", np.subtract,
    linear=((0, 2),), jvp="linear", transpose=transpose_sum(-1),
    cost=DeviceCost(_flops),
    samples=_samples)
scatter_mul_p = _defscatter(
    "scatter-mul", "Multiply windows of operand 0 by operand 2.", "prod", np.multiply,
    linear=((0,),), passes_sums="never",
    jvp=(jvp_mul_operand, None, jvp_mul_updates), transpose=transpose_mul,
    cost=DeviceCost(_flops),
    samples=lambda: _samples(unique=True))
scatter_min_p = _defscatter(
    "scatter-min", "The smaller of windows of operand 0 and operand 2.", "min", np.minimum,
    jvp=jvp_extremal("scatter-min"),
    cost=DeviceCost(_flops),
    samples=_samples)
scatter_max_p = _defscatter(
    "scatter-max", "The larger of windows of operand 0 and operand 2.", "max", np.maximum,
    jvp=jvp_extremal("scatter-max"),
    cost=DeviceCost(_flops),
    samples=_samples)

WRITES = frozenset((scatter_p, scatter_add_p, scatter_sub_p, scatter_mul_p, scatter_min_p,
                    scatter_max_p))
"""The ops that write at indices, which are operand 1."""
