"""gather: windows of an array at positions that are values (`x[i]`, `take`, `take_along_axis`).

Queries, whole windows and batching dimensions pass through; a partial window or a collapsed
dimension is an indexed factor of the operand.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...facts import READS_FUSED, TAKEN, DeviceCost, Types, window_traffic
from ...op import OPS, Evaluator, LocalizeContext, Op, Sample, defop
from ...padded import Padded, PaddedContext
from ...types import ArrayType, Entries, Shape
from ..derivatives import cotangent_type, move_first
from ..emitting import INT32, Emitting, literal
from ..gather_numbers import GatherDimensionNumbers, GatherScatterMode
from ..rules import permutation_inverse, rule_text, shifted, zeros
from .common import (
    Checks,
    check_index_dtype,
    factor_dims,
    window_dims,
)
from .gather_evaluation import fill_constant, gathered, prepared_gather
from .padded_positions import indexed_on_padding
from .split_windows import Outside, own_windows, split_dims


def _infer(operand: ArrayType, indices: ArrayType, *, dimension_numbers: GatherDimensionNumbers,
           slice_sizes: Shape, unique_indices: bool, indices_are_sorted: bool,
           mode: GatherScatterMode, fill_value: Any) -> tuple:
    """Check the dimension numbers; the result has a dimension for each of indices and of the
    windows.
    """
    n = dimension_numbers
    types = [operand, indices]
    check = Checks("gather", types)
    check_index_dtype(types, indices)
    if indices.ndim == 0:
        check.fail("Gather index leaf dimension must be within [0, rank(indices) + 1). "
                   "rank(indices) is 0 and gather index leaf dimension is -1.")
    check.sorted_unique(n.offset_dims, "offset_dims")
    rank = len(n.offset_dims) + indices.ndim - 1
    for i, d in enumerate(n.offset_dims):
        if not 0 <= d < rank:
            check.fail(f"Offset dimension {i} in gather op is out of bounds; got {d}, but should "
                       f"have been in [0, {rank})")
    last = indices.ndim - 1
    if len(n.start_index_map) != indices.shape[last]:
        check.fail(f"Gather op has {len(n.start_index_map)} elements in start_index_map and the "
                   f"bound of dimension index_vector_dim={last} of indices is "
                   f"{indices.shape[last]}. These two numbers must be equal.")
    for i, d in enumerate(n.start_index_map):
        if not 0 <= d < operand.ndim:
            check.fail(f"Invalid start_index_map; domain is [0, {operand.ndim}), got: {i}->{d}.")
    check.unique(n.start_index_map, "start_index_map")
    check.operand_dims(n, operand, indices, "collapsed_slice_dims", "start_index_map",
                       "start_indices_batching_dims")
    _check_slice_sizes(check, operand, indices, n, slice_sizes)
    return gather_shape(indices.shape, n, slice_sizes), operand.dtype, operand.weak_type


def _check_slice_sizes(check: Checks, operand: ArrayType, indices: ArrayType,
                       n: GatherDimensionNumbers, slice_sizes: Shape) -> None:
    """Refuse windows that do not fit the operand, or collapsed and batching dimensions of more than
    one.
    """
    if operand.ndim != len(slice_sizes):
        check.fail("Gather op must have one slice size for every input dimension; got: "
                   f"len(slice_sizes)={len(slice_sizes)}, input_shape.rank={operand.ndim}")
    if len(slice_sizes) != (len(n.offset_dims) + len(n.collapsed_slice_dims)
                            + len(n.operand_batching_dims)):
        check.fail("All components of the offset index in a gather op must either be a offset "
                   "dimension or explicitly collapsed/batching; got "
                   f"len(slice_sizes)={len(slice_sizes)}, output_slice_sizes={n.offset_dims}, "
                   f"collapsed_slice_dims={n.collapsed_slice_dims}, operand_batching_dims="
                   f"{n.operand_batching_dims}.")
    for i, (m, size) in enumerate(zip(slice_sizes, operand.shape, strict=True)):
        if not 0 <= m <= size and 0 not in indices.shape:
            check.fail(f"Slice size at index {i} in gather op is out of range, must be within [0, "
                       f"{size} + 1), got {m}.")
    for i, d in enumerate(n.collapsed_slice_dims):
        if slice_sizes[d] != 1:
            check.fail("Gather op can only collapse slice dims with bound 1, but bound is "
                       f"{slice_sizes[d]} for index {d} at position {i}.")
    for i, d in enumerate(n.operand_batching_dims):
        if slice_sizes[d] > 1:
            check.fail("Gather op can only have operand batching dims with bound 0/1, but bound is "
                       f"{slice_sizes[d]} for index {d} at position {i}.")


def gather_shape(indices: Shape, n: GatherDimensionNumbers, slice_sizes: Shape) -> Shape:
    windows = iter([slice_sizes[d] for d in window_dims(
        len(slice_sizes), n.collapsed_slice_dims, n.operand_batching_dims)])
    queries = iter(indices[:-1])
    return tuple(next(windows) if d in n.offset_dims else next(queries)
                 for d in range(len(n.offset_dims) + len(indices) - 1))


def _rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
          dimension_numbers: GatherDimensionNumbers, slice_sizes: Shape, **params: Any) -> str:
    operand, indices, result, kinds = factor_dims(operands[0], operands[1],
                                                  slice_sizes, dimension_numbers)
    # a device that owns a row has it, the others have zero
    kinds = [f"{k}(sum)" if k[0] in "ck" else k for k in kinds]
    return rule_text([operand, indices], [result], kinds)


# -- Explicit axes ---------------------------------------------------------------------------------

def _explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
              params: dict[str, Any]) -> list[Entries]:
    """Dimensions taken whole and batching dimensions keep their axes; what is indexed must be
    whole, and so must the indices.
    """
    operand, indices = types
    n, slice_sizes = params["dimension_numbers"], params["slice_sizes"]
    batching = list(zip(n.operand_batching_dims, n.start_indices_batching_dims, strict=True))
    queries = list(indices.entries[:-1])
    sliced = all(not operand.entries[d] or slice_sizes[d] == operand.shape[d]
                 for d in range(operand.ndim) if d not in n.operand_batching_dims)
    in_step = all(not operand.entries[d] or not queries[q] or operand.entries[d] == queries[q]
                  for d, q in batching)
    common = all(not e for q, e in enumerate(indices.entries)
                 if q not in n.start_indices_batching_dims)
    if not (sliced and in_step and common):
        fail(ShardingTypeError,
             "Use `.at[...].get(out_sharding=)` to provide output PartitionSpec for the gather "
             "indexing as out sharding could not be resolved unambiguously (or would require "
             f"collectives on inputs). Got operand={operand!r}, indices={indices!r}",
             code="gather-sharding", label=f"operand is {operand.str_short(True)}, indices are "
             f"{indices.str_short(True)}",
             notes=("a dimension that is indexed must be whole, and so must the indices",),
             help="say how the result is split: `get` of the property `at` takes `out_sharding`")
    for d, q in batching:
        queries[q] = queries[q] or operand.entries[d]
    windows = iter([operand.entries[d] for d in window_dims(
        operand.ndim, n.collapsed_slice_dims, n.operand_batching_dims)])
    rest = iter(queries)
    return [tuple(next(windows) if d in n.offset_dims else next(rest)
                  for d in range(len(shapes[0])))]


# -- derivatives and batching ---------------------------------------------------------------------

def _passes_sums(types: Sequence[ArrayType], params: dict[str, Any]) -> bool:
    """Is the fill for indices outside the sum of the fills of all terms?"""
    if params["mode"] is not GatherScatterMode.FILL_OR_DROP:
        return True
    fill, inexact = params["fill_value"], types[0].dtype.kind in "fc"
    if fill is None:                             # NaN; of integers the least
        return inexact
    return fill == 0 or (inexact and bool(np.isnan(fill)))


def _jvp(g: Any, out: Any, operand: Any, indices: Any, *, fill_value: Any, **params: Any) -> Any:
    return gather_p.bind(g, indices, fill_value=0, **params)


def _transpose(ct: Any, operand: Any, indices: Any, *, dimension_numbers: GatherDimensionNumbers,
               slice_sizes: Shape, unique_indices: bool, indices_are_sorted: bool,
               mode: GatherScatterMode, fill_value: Any) -> tuple:
    base = zeros(cotangent_type(operand.aval).update(dtype=ct.dtype))
    return OPS["scatter-add"].bind(
        base, indices, ct, dimension_numbers=dimension_numbers.as_scatter(),
        indices_are_sorted=indices_are_sorted, unique_indices=unique_indices, mode=mode), None


def _batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *,
           dimension_numbers: GatherDimensionNumbers, slice_sizes: Shape, unique_indices: bool,
           indices_are_sorted: bool, mode: GatherScatterMode, fill_value: Any) -> tuple:
    """A dimension of both operands becomes a batching dimension; of the operand alone, part of each
    window; of the indices alone, one more of theirs.
    """
    n = dimension_numbers
    x, indices = (x if d is None else move_first(x, d)
                  for x, d in zip(operands, dims, strict=True))
    in_x, in_indices = int(dims[0] is not None), int(dims[1] is not None)
    pair = (0,) if in_x and in_indices else ()
    numbers = GatherDimensionNumbers(
        offset_dims=((0,) if in_x and not in_indices else ()) + shifted(n.offset_dims),
        collapsed_slice_dims=shifted(n.collapsed_slice_dims, in_x),
        start_index_map=shifted(n.start_index_map, in_x),
        operand_batching_dims=pair + shifted(n.operand_batching_dims, in_x),
        start_indices_batching_dims=pair + shifted(n.start_indices_batching_dims, in_indices))
    sizes = ((min(size, 1) if in_indices else size,) if in_x else ()) + tuple(slice_sizes)
    kept = in_x and not in_indices
    return [gather_p.bind(
        x, indices, dimension_numbers=numbers, slice_sizes=sizes,
        unique_indices=unique_indices and bool(kept or pair),
        indices_are_sorted=indices_are_sorted and bool(kept or pair), mode=mode,
        fill_value=fill_value)], [0]


# -- cost and blocks ------------------------------------------------------------------------------

def _flops(operands: Types, results: Types, params: dict[str, Any]) -> float:
    """Where windows may lie outside, each component of their positions is compared with both ends,
    and each element chosen.
    """
    if params["mode"] is not GatherScatterMode.FILL_OR_DROP:
        return 0.0
    (_, indices), (out,) = operands, results
    *windows, components = indices.shape
    return 3.0 * indices.size + (components - 1) * math.prod(windows) + out.size


def _resize(params: dict[str, Any], operands: Sequence[Shape],
            results: Sequence[Shape]) -> dict[str, Any]:
    n = params["dimension_numbers"]
    sizes = list(params["slice_sizes"])
    windows = window_dims(len(sizes), n.collapsed_slice_dims, n.operand_batching_dims)
    for d, at in zip(windows, n.offset_dims, strict=True):
        sizes[d] = results[0][at]
    return {**params, "slice_sizes": tuple(sizes)}


def _padded(context: PaddedContext) -> list[Padded] | None:
    params = context.params
    return indexed_on_padding(context, params["dimension_numbers"].start_index_map,
                              params["slice_sizes"],
                              params["mode"] is GatherScatterMode.FILL_OR_DROP)


def _localize(context: LocalizeContext) -> list[Any]:
    """Where indexed dimensions are split: what this device owns of the windows, zero elsewhere.

    What lies outside of the whole operand is filled by the first device alone.
    """
    out = Emitting(context)
    operand, indices = context.operands
    params = context.params
    n: GatherDimensionNumbers = params["dimension_numbers"]
    params = _resize(params, context.local_operand_shapes, context.local_result_shapes)
    split = split_dims(context, n, context.params["slice_sizes"])
    if not split:
        return context.emit(gather_p, [operand, indices], params)
    fills = params["mode"] is GatherScatterMode.FILL_OR_DROP
    own = own_windows(out, indices, n, context.params["slice_sizes"], params["slice_sizes"], split,
                      Outside.TOLD if fills else Outside.MOVED)
    found = context.emit(gather_p, [operand, own.indices], {
        **params, "mode": GatherScatterMode.CLIP, "fill_value": None,
        "dimension_numbers": own.numbers, "slice_sizes": own.sizes, "indices_are_sorted": False})[0]
    shape, dtype = found.aval.shape, context.result_types[0].dtype
    at = tuple(d for d in range(len(shape)) if d not in own.numbers.offset_dims)

    def mask(x: Any) -> Any:
        return out.broadcast(out.without(x, len(x.aval.shape) - 1), shape, at)

    found = out.select(mask(own.is_held), found, out.full(0, shape, dtype))
    if own.outside is not None:
        axes = tuple(a for group in split.values() for a in group)
        first = out.call("eq", context.block_offset(axes, 1), literal(0, INT32))
        fill = out.select(first, literal(fill_constant(dtype, params["fill_value"]), dtype),
                          literal(0, dtype))
        found = out.select(mask(own.outside), out.broadcast(fill, shape, ()), found)
    if own.moved:
        back = permutation_inverse(own.order(len(shape)))
        found = out.call("transpose", found, permutation=back)
    return [found]


# -- the op ---------------------------------------------------------------------------------------

def _sample(x: np.ndarray, indices: Any, n: GatherDimensionNumbers, slice_sizes: Shape,
            mode: GatherScatterMode = GatherScatterMode.CLIP,
            fill: Any = None) -> Sample:
    return Sample((x, np.asarray(indices, np.int32)),
                  {"dimension_numbers": n, "slice_sizes": slice_sizes, "unique_indices": False,
                   "indices_are_sorted": False, "mode": mode, "fill_value": fill})


def _samples() -> list[Sample]:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    rows = GatherDimensionNumbers((1,), (0,), (0,))
    return [
        _sample(x, [[2], [0], [3]], rows, (1, 6)),
        _sample(x, [[2], [9], [-1]], rows, (1, 6), GatherScatterMode.FILL_OR_DROP, -5.),
        _sample(x, [[1], [0], [5], [3]], GatherDimensionNumbers((), (1,), (1,), (0,), (0,)),
                (1, 1)),
        _sample(x, [[1, 2], [3, 5]], GatherDimensionNumbers((1, 2), (), (0, 1)), (2, 3)),
        _sample(x, [[[4], [0]], [[1], [2]]], GatherDimensionNumbers((0,), (1,), (1,)), (4, 1)),
    ]


gather_p = defop(
    "gather",
    doc="Windows of `slice_sizes` of operand 0 at the positions given by the index vectors.",
    infer=_infer, rule=_rule, explicit=_explicit, pending="iterated",
    linear=((0,),), passes_sums=_passes_sums, jvp=(_jvp, None), transpose=_transpose, batch=_batch,
    evaluate=Evaluator(gathered, prepare=prepared_gather), arithmetic=False,
    facts=(TAKEN, READS_FUSED), cost=DeviceCost(_flops, window_traffic),
    resize=_resize, padded=_padded, localize=_localize,
    samples=_samples)
