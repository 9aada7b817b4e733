"""Sorting: `sort` of several operands at once, and the k largest elements.

`sort` compares the first `num_keys` operands lexicographically and permutes all operands alike.
-0.0 equals 0.0, all NaNs are equal and come last; complex numbers compare by real, then imaginary
part. `top_k` compares by the total order of floats instead (see comparison.py), as XLA does, and
takes the first of equal elements.

Derivatives of a sort permute tangents with another sort: along the permutation's inverse as key, a
sort is a permutation, so it is linear in the operands that are no keys, and transposes to a sort.
That of `top_k` gathers the tangents of the elements that are taken.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...dtypes import issubdtype
from ...facts import IN_PLACE, WHOLE_IN_XLA, DeviceCost, Sizes, Types
from ...kernels.sorting import largest, largest_values, stable_order, taken
from ...meshes.mesh import empty_abstract_mesh
from ...op import OPS, Evaluator, LinearOperand, LocalizeContext, Op, Sample, defop, only
from ...padded import Padded, PaddedContext
from ...types import ArrayType, Entries, Shape, short_list
from ..communication.column_sort import column_sort
from ..derivatives import in_front, in_place, iota_like, strong, type_of
from ..elementwise.declaration import values
from ..emitting import Emitting
from ..gather_numbers import GatherDimensionNumbers, GatherScatterMode
from ..identities import last_in_order, last_of_largest

F32, I32 = np.float32, np.int32
INT32 = np.dtype(I32)


# -- sort -----------------------------------------------------------------------------------------

def _sort_infer(*types: ArrayType, dimension: int, is_stable: bool, num_keys: int) -> list[tuple]:
    if any(t.shape != types[0].shape for t in types):
        fail(TypeError, "Arguments to sort must have equal shapes, got: "
             f"{' '.join(str(t.shape) for t in types)}", code="shape-mismatch",
             label=f"operands are {short_list(types)}",
             help="`jnp.broadcast_arrays` brings them to one shape")
    if not 0 <= dimension < types[0].ndim:
        fail(ValueError, f"dimension {dimension} is out of bounds for array of shape "
             f"{types[0].shape}", code="axis-range",
             help=f"the operands have {types[0].ndim} dimensions, counted from 0")
    if not 1 <= num_keys <= len(types):
        fail(ValueError, f"num_keys={num_keys} must be between 1 and {len(types)}",
             code="axis-range",
             help="it says how many of the operands, from the first, are compared")
    return [(t.shape, t.dtype, t.weak_type) for t in types]


def _sort_rule(operand_shapes: tuple[Shape, ...], result_shapes: tuple[Shape, ...], *,
               dimension: int, is_stable: bool, num_keys: int) -> str:
    names = " ".join("k" if d == dimension else f"b{d}" for d in range(len(operand_shapes[0])))
    side = ", ".join([names] * len(operand_shapes))
    return f"{side} -> {side} | k:ordered(columns)"


def _sort_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                   params: dict[str, Any]) -> list[Any]:
    """All operands in one sharding that leaves the sorted dimension whole; the results keep it."""
    dimension = params["dimension"]
    placed = [t for t in types if t.sharding.mesh is not empty_abstract_mesh]
    for t in placed:
        if t.entries[dimension]:
            fail(ShardingTypeError,
                 "Arguments to sort must be unsharded over the sorting dimension. "
                 f"Got arg sharding={t.sharding} and sorting dimension={dimension}",
                 code="axis-sharded", label=f"operands are {short_list(types)}",
                 help=f"`reshard` the operand so that dimension {dimension} is whole")
    if any(t.sharding is not placed[0].sharding for t in placed):
        fail(ShardingTypeError, "Arguments to sort must have equal shardings, got: "
             f"{' '.join(str(t.sharding) for t in placed)}", code="sharding-conflict",
             label=f"operands are {short_list(types)}",
             help="bring all operands to one spec with `reshard`")
    return [placed[0].entries if placed else ((),) * len(shapes[0])] * len(types)


def permute(x: Any, order: Any, dimension: int) -> Any:
    """The elements of x at the positions `order` along `dimension`, by sorting; linear in x."""
    return _sort_by(_inverse(order, dimension), x, dimension)


def _inverse(order: Any, dimension: int) -> Any:
    return _sort_by(order, iota_like(order, order.dtype, dimension), dimension)


def _sort_by(key: Any, x: Any, dimension: int) -> Any:
    return sort_p.bind(key, x, dimension=dimension, is_stable=True, num_keys=1)[1]


def _sort_jvp(operands: Sequence[Any], tangents: Sequence[Any], *, dimension: int,
              is_stable: bool, num_keys: int) -> tuple[list[Any], list[Any]]:
    """Tangents are permuted as their operands: sorted along with constant keys, or else by the
    inverse of the permutation, which is found by sorting positions along.
    """
    if all(t is None for t in tangents[:num_keys]):
        # The keys are constants: the tangents of the others are sorted by them.
        moving = [i for i, t in enumerate(tangents) if t is not None]
        moved = sort_p.bind(*operands[:num_keys], *(tangents[i] for i in moving),
                            dimension=dimension, is_stable=is_stable, num_keys=num_keys)
        found = dict(zip(moving, moved[num_keys:], strict=True))
        outs = sort_p.bind(*operands, dimension=dimension, is_stable=is_stable, num_keys=num_keys)
        return list(outs), [found.get(i) for i in range(len(operands))]
    # The positions are whole, as in JAX: over Explicit axes the derivative needs whole operands.
    shape = type_of(operands[0]).shape
    index = OPS["iota"].bind(dtype=INT32, shape=shape, dimension=dimension, sharding=None)
    *outs, order = sort_p.bind(*operands, index, dimension=dimension, is_stable=is_stable,
                               num_keys=num_keys)
    inverse = _inverse(order, dimension)
    return outs, [None if t is None else _sort_by(inverse, t, dimension) for t in tangents]


def _sort_transpose(cts: Sequence[Any], *operands: Any, dimension: int, is_stable: bool,
                    num_keys: int) -> list[Any]:
    keys = operands[:num_keys]
    index = iota_like(keys[0], INT32, dimension)
    order = sort_p.bind(*keys, index, dimension=dimension, is_stable=is_stable,
                        num_keys=num_keys)[-1]
    return [_sort_by(order, strong(ct), dimension)         # as JAX, which scatters it
            if isinstance(x, LinearOperand) and ct is not None else None
            for x, ct in zip(operands, cts, strict=True)]


def _keys(x: np.ndarray) -> list[np.ndarray]:
    """What compares as x does, the most significant first: numpy puts complex NaNs elsewhere."""
    return [np.real(x), np.imag(x)] if x.dtype.kind == "c" else [x]


def _sort(lead: int, *arrays: np.ndarray, dimension: int, is_stable: bool, num_keys: int,
          read: Sequence[int] | None = None) -> list[Any]:
    """Sort one real array by values, others by the order of their keys. read: the results that are
    wanted, None for all.
    """
    axis = lead + dimension
    if len(arrays) == 1 and arrays[0].dtype.kind != "c":
        x = arrays[0]
        if not _order_shows(x):
            return [np.sort(x, axis=axis)]
        return [taken(x, stable_order(x, axis), axis)]
    arrays = np.broadcast_arrays(*arrays)
    keys = [key for x in arrays[:num_keys] for key in _keys(x)]
    order = (stable_order(keys[0], axis) if len(keys) == 1
             else np.lexsort(keys[::-1], axis=axis))
    return [taken(x, order, axis) if read is None or i in read else None
            for i, x in enumerate(arrays)]


def _order_shows(x: np.ndarray) -> bool:
    """Whether equal values differ to the eye, so that their order shows: zeros of both signs.

    Where they do not, numpy's sort that is not stable gives the same, several times as fast.
    """
    if x.dtype.isbuiltin != 1:
        return True                         # ml_dtypes: sorted by comparison in any case
    if x.dtype.kind != "f":
        return False
    zero = x == 0
    if not zero.any():
        return False
    zeros = np.signbit(x[zero])
    return bool(zeros.any() and not zeros.all())


def _sort_flops(operands: Types, results: Types, params: dict[str, Any]) -> float:
    """n log n; XLA's logarithm is of all elements."""
    n = max(t.size for t in operands)
    return n * math.log2(max(n, 2))


def _sort_traffic(read: Sizes, written: Sizes, operands: Types, params: dict[str, Any]
                  ) -> tuple[Sizes, Sizes]:
    """All of it, as often as sorted blocks are merged to larger ones."""
    merges = math.ceil(math.log2(max(operands[0].shape[params["dimension"]], 2)))
    return [merges * n for n in read], [merges * n for n in written]


def _sort_padded(context: PaddedContext) -> list[Padded] | None:
    """Padding is sorted to the end: its keys are the largest there are, and the sort is stable."""
    params, d = context.params, context.params["dimension"]
    operands = list(context.operands)
    for k in range(params["num_keys"]):
        if operands[k].is_padded(d):
            last = last_in_order(operands[k].atom.aval.dtype)
            if last is None:
                return None
            operands[k] = context.masked(operands[k], d, last)
    if not any([x.is_padded(d) for x in operands]):
        return context.by_factors()
    size = max([x.size(d) for x in operands])
    if any([x.size(d) != size for x in operands[:params["num_keys"]]]):
        return None
    return context.by_factors(operands, params={**params, "is_stable": True},
                              safe=context.rule.operands[0][d])


def _sort_localize(context: LocalizeContext) -> list[Any]:
    """Where the dimension is split, by columns (column_sort.py)."""
    dimension = context.params["dimension"]
    axes = context.axes_of_factor.get(context.rule.operands[0][dimension][0], ())
    if not axes:
        return context.emit(sort_p, list(context.operands), context.params)
    return column_sort(context, axes, dimension, context.params["num_keys"],
                       context.params["is_stable"])


def _repeated_keys() -> np.ndarray:
    return values((4, 6), I32, 0, 3)


sort_p = defop(
    "sort",
    doc="All operands permuted along `dimension` so that the first `num_keys` are in order.",
    infer=_sort_infer, multiple_results=True, rule=_sort_rule, explicit=_sort_explicit,
    pending="indexed",
    jvp=_sort_jvp, transpose=_sort_transpose, batch=in_front("sort", "dimension"),
    evaluate=Evaluator(_sort, narrowed=lambda read: {"read": read}), facts=(IN_PLACE,),
    cost=DeviceCost(_sort_flops, _sort_traffic), padded=_sort_padded, localize=_sort_localize,
    jax="lax.sort(*)",
    samples=lambda: [
        Sample((values((4, 6), F32, -3, 3),), {"dimension": 1, "is_stable": True, "num_keys": 1}),
        Sample((values((4, 6), F32, -3, 3), values((4, 6), F32, -3, 3, 1)),
               {"dimension": 0, "is_stable": True, "num_keys": 1}),
        Sample((_repeated_keys(), values((4, 6), F32, -3, 3)),
               {"dimension": 1, "is_stable": True, "num_keys": 2})])


# -- top_k ----------------------------------------------------------------------------------------

def _check_top_k(x: ArrayType, k: int, axis: int) -> None:
    if issubdtype(x.dtype, np.complexfloating):
        fail(ValueError, "top_k is not compatible with complex inputs.", code="dtype-not-accepted",
             help="order by `jnp.abs` or `jnp.real` of it")
    if k < 0:
        fail(ValueError, f"k argument to top_k must be nonnegative, got {k}", code="axis-range",
             help="give the number of elements to take, such as k=1")
    if not x.shape:
        fail(TypeError, f"top_k operand must have >= 1 dimension, got {x.shape}",
             code="shape-mismatch", help="`jnp.atleast_1d` makes it a vector")
    if not 0 <= axis < x.ndim:
        fail(ValueError, f"axis argument out of range: axis={axis} for operand.shape={x.shape}",
             code="axis-range", help=f"the operand has {x.ndim} dimensions, counted from 0")
    if x.shape[axis] < k:
        fail(ValueError, "k argument to top_k must be no larger than size along axis; got "
             f"k={k} with shape={list(x.shape)} and axis={axis}", code="axis-range",
             help=f"take all with k={x.shape[axis]}")


def _top_k_infer(x: ArrayType, *, k: int, axis: int) -> list[tuple]:
    _check_top_k(x, k, axis)
    shape = (*x.shape[:axis], k, *x.shape[axis + 1:])
    return [(shape, x.dtype, x.weak_type), (shape, INT32, x.weak_type)]


def _top_k_rule(operand_shapes: tuple[Shape, ...], result_shapes: tuple[Shape, ...], *, k: int,
                axis: int) -> str:
    rank = len(operand_shapes[0])
    left, right = (" ".join(name if d == axis else f"b{d}" for d in range(rank))
                   for name in ("k", "m"))
    return f"{left} -> {right}, {right} | k:ordered(top) m!:replicate"


def _top_k_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                    params: dict[str, Any]) -> list[Entries]:
    (x,) = types
    axis = params["axis"]
    if x.entries[axis]:
        fail(ShardingTypeError,
             "The input should be unsharded over the axis along which to compute the top_k values. "
             f"Got input type={x} and axis={axis}", code="axis-sharded",
             label=f"the operand is {short_list(types)}",
             help=f"`reshard` the operand so that dimension {axis} is whole")
    return [x.entries] * 2


def _top_k_jvp(operands: Sequence[Any], tangents: Sequence[Any], *, k: int, axis: int
               ) -> tuple[list[Any], list[Any]]:
    (x,), (g,) = operands, tangents
    if g is None:
        return list(top_k_p.bind(x, k=k, axis=axis)), [None, None]
    best, places = top_k_p.bind(x, k=k, axis=axis)
    vectors = OPS["reshape"].bind(places, new_sizes=(*type_of(places).shape, 1), dimensions=None,
                                  sharding=None)
    moved = OPS["gather"].bind(g, vectors, **_along(axis, type_of(x).ndim),
                               mode=GatherScatterMode.PROMISE_IN_BOUNDS)
    return [best, places], [moved, None]


def _along(axis: int, rank: int) -> dict[str, Any]:
    """Parameters of a gather of elements along an axis, all other dimensions in step."""
    batch = tuple(d for d in range(rank) if d != axis)
    return {"dimension_numbers": GatherDimensionNumbers((), (axis,), (axis,), batch, batch),
            "slice_sizes": (1,) * rank, "unique_indices": False, "indices_are_sorted": False,
            "fill_value": None}


def _top_k(lead: int, x: np.ndarray, *, k: int, axis: int, only_values: bool = False) -> list[Any]:
    if only_values and x.dtype.kind in "fiub":
        return [largest_values(x, k, lead + axis), None]
    values, places = largest(x, k, lead + axis)
    return [values, places.astype(I32)]


def _top_k_padded(context: PaddedContext) -> list[Padded] | None:
    """Padding is less than all else, and of what is equal the first is taken."""
    (x,), d = context.operands, context.params["axis"]
    if not x.is_padded(d):
        return context.by_factors()
    last = last_of_largest(x.atom.aval.dtype)
    if last is None:
        return None
    return context.by_factors([context.masked(x, d, last)], safe=context.rule.operands[0][d])


def _top_k_localize(context: LocalizeContext) -> list[Any]:
    """The best of the best of each block: blocks in order, so that ties go to the first."""
    out = Emitting(context)
    k, axis = context.params["k"], context.params["axis"]
    axes = context.axes_of_factor.get(context.rule.operands[0][axis][0], ())
    n = context.local_operand_shapes[0][axis]
    values, places = context.emit(top_k_p, list(context.operands), {"k": min(k, n), "axis": axis})
    if not axes:
        return [values, places]
    offset = context.block_offset(axes, n)
    places = out.call("add", places, out.broadcast(offset, places.aval.shape, ()))
    values, places = (
        out.call("all_gather_invariant", x, axis_name=axes, axis_size=out.size(axes),
                 all_gather_dimension=axis, tiled=True) for x in (values, places))
    best, order = context.emit(top_k_p, [values], {"k": k, "axis": axis})
    return [best, _take_along_axis(out, places, order, axis)]


def _take_along_axis(out: Emitting, x: Any, order: Any, axis: int) -> Any:
    """x at the positions `order` along `axis` (take_along_axis)."""
    rank = len(x.aval.shape)
    index = out.broadcast(order, (*order.aval.shape, 1), range(rank))
    return out.call("gather", x, index, **_along(axis, rank), mode=GatherScatterMode.CLIP)


top_k_p = defop(
    "top_k", doc="The `k` largest elements along `axis`, largest first, and their positions.",
    infer=_top_k_infer, multiple_results=True, rule=_top_k_rule, explicit=_top_k_explicit,
    pending="indexed",
    jvp=_top_k_jvp, batch=in_place("top_k", "axis"),
    evaluate=Evaluator(_top_k, narrowed=only(0, "only_values")), facts=(WHOLE_IN_XLA,),
    cost=DeviceCost(_sort_flops),
    padded=_top_k_padded, localize=_top_k_localize,
    samples=lambda: [
        Sample((values((4, 6), F32, -3, 3),), {"k": 2, "axis": 1}),
        Sample((values((4, 6), I32, 0, 4),), {"k": 3, "axis": 0}, grad=False)])
