"""Ops that join arrays and take them apart: concatenate, stack, unstack, split.

The dimension along which operands are joined is a `replicate` or `halo` factor: blocks of the
result are not blocks of the operands. A concatenation exchanges the rows that devices lack; for the
others the dimension is gathered before the op. All other dimensions pass through.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...facts import REARRANGED, SPLICED, UNEVEN
from ...inference.explicit import POLICIES
from ...kernels.device_dimensions import empty_like, lead_sizes, with_lead
from ...op import Evaluator, LinearOperand, LocalizeContext, Op, Sample, defop
from ...padded import Padded, PaddedContext
from ...support.buffer_pool import SMALLEST
from ...types import ArrayType, Entries, Shape, array_type, short_list
from ..communication.halo_exchange import split_halos
from ..communication.row_exchange_plan import concatenated_rows, plain
from ..derivatives import cotangent_type, in_front, in_place, slice_along, type_of
from ..elementwise.declaration import arange, check_same_dtypes
from ..emitting import Emitting
from ..rules import call, reject, resized_entries, rule_text, with_entries, zeros

_EMPTY: frozenset[str] = frozenset()


# -- concatenate -----------------------------------------------------------------------------------

def _concatenate_infer(*types: ArrayType, dimension: int) -> tuple:
    """Operands that differ in one dimension at most, whose sizes add up."""
    if not types:
        reject(TypeError, types, "concatenate expects at least one operand, got 0.",
               help="give at least one array")
    listed = ", ".join(str(t.shape) for t in types)
    if len({t.ndim for t in types}) != 1:
        reject(TypeError, types,
               "Cannot concatenate arrays with different numbers of dimensions: got "
               f"{listed}.", help="add dimensions of size 1 with `jnp.expand_dims`")
    if not 0 <= dimension < types[0].ndim:
        reject(TypeError, types,
               f"concatenate dimension out of bounds: dimension {dimension} for shapes "
               f"{listed}.",
               help=f"the operands have {types[0].ndim} dimensions, counted from 0; `jnp.stack` "
                    "adds one")
    if len({t.shape[:dimension] + t.shape[dimension + 1:] for t in types}) != 1:
        reject(TypeError, types,
               "Cannot concatenate arrays with shapes that differ in dimensions other "
               "than the one being concatenated: concatenating along dimension "
               f"{dimension} for shapes {listed}.",
               help="join along the dimension that differs, or pad the others with `jnp.pad`")
    check_same_dtypes("concatenate", types)
    shape = list(types[0].shape)
    shape[dimension] = sum(t.shape[dimension] for t in types)
    return tuple(shape), types[0].dtype


def _concatenate_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
                      dimension: int) -> str:
    dims = [f"d{d}" for d in range(len(results[0]))]
    if len(operands) == 1:
        return rule_text([dims], [dims])
    return rule_text([dims] * len(operands), [dims], [f"d{dimension}:halo(joined)"])


def _concat_pending(op: Op, types: Sequence[ArrayType], params: dict[str, Any],
                    unreduced: Sequence[frozenset], reduced: Sequence[frozenset]) -> tuple:
    """Pieces of one value are pending over the same axes, all of them."""
    out = []
    for word, sets in (("unreduced", unreduced), ("reduced", reduced)):
        found = {s for s in sets if s}
        if len(found) > 1 or (word == "unreduced" and found and not all(sets)):
            listed = ", ".join(str(sorted(s)) for s in sets)
            fail(ShardingTypeError,
                 f"All operands should be {word} along the same mesh axes. Got {word} specs: "
                 f"{listed}", code="pending-operands", label=f"operands are {short_list(types)}",
                 help="bring all operands to one spec with `reshard`")
        out.append(next(iter(found), _EMPTY))
    return out[0], out[1]


def _concatenate_transpose(ct: Any, *operands: Any, dimension: int) -> tuple:
    out, start = [], 0
    shape = type_of(ct).shape
    for x in operands:
        size = type_of(x).shape[dimension]
        if isinstance(x, LinearOperand):
            out.append(call("slice", ct, **slice_along(shape, dimension, start, start + size)))
        else:
            out.append(None)
        start += size
    return tuple(out)


def _concatenate_evaluate(lead: int, *arrays: np.ndarray, dimension: int) -> np.ndarray:
    sizes = lead_sizes(lead, arrays)
    parts = [with_lead(x, lead, sizes) for x in arrays]
    shape = list(parts[0].shape)
    shape[lead + dimension] = sum([x.shape[lead + dimension] for x in parts])
    out = empty_like(max(parts, key=_extent), tuple(shape))
    return np.concatenate(parts, lead + dimension, out=out)


def _concatenate_prepared(lead: int, shapes: Sequence[Shape], dtypes: Sequence[np.dtype],
                          params: dict[str, Any]) -> Callable[..., np.ndarray] | None:
    """The evaluator for small arrays that all have the same device dimensions; None for others."""
    size = sum([math.prod(s) for s in shapes]) * dtypes[0].itemsize
    if size >= SMALLEST or any([s[:lead] != shapes[0][:lead] for s in shapes]):
        return None
    axis = lead + params["dimension"]

    def together(*arrays: np.ndarray) -> np.ndarray:
        return np.concatenate(arrays, axis)

    together.fresh = True  # type: ignore[attr-defined]
    return together


def _extent(x: np.ndarray) -> int:
    """How many elements of its own an array has, as opposed to repeated ones."""
    return 0 if 0 in x.strides else x.size


def _concatenate_padded(context: PaddedContext) -> list[Padded]:
    """The longest piece at its place in all rows that are wanted, and the others over it."""
    d, (shape,), result = context.params["dimension"], context.sizes, context.result_types[0].shape
    pieces = list(context.operands)
    along = [f for dims in context.rule.results for f in dims[d]]
    if shape[d] == result[d]:
        return context.by_factors([context.cut(x, d) for x in pieces], own=along)
    for e in range(len(shape)):
        if e != d:
            size = max([shape[e], *[x.size(e) for x in pieces]])
            pieces = [context.resized(x, e, size) for x in pieces]
    starts = [sum([x.shape[d] for x in pieces[:k]]) for k in range(len(pieces))]
    longest = max(range(len(pieces)), key=lambda k: pieces[k].shape[d])
    whole = context.moved(pieces[longest], d, -starts[longest], shape[d])
    for k, (x, start) in enumerate(zip(pieces, starts, strict=True)):
        n = x.shape[d]
        if k == longest or not n:
            continue
        few = 8 * n <= shape[d]                  # no device needs to hold a part of them alone
        rows = context.cut(x, d).atom if few else context.moved(x, d, -start, shape[d])
        first = 0 if few else start
        whole = context.call("place", rows, whole, dimension=d, start=first, limit=first + n,
                             low=start)
    fills: list[Any] = [None] * len(shape)
    if not pieces[longest].is_padded(d):
        fills[d] = np.zeros((), whole.aval.dtype)[()]
    return [Padded(whole, result, fills)]


def _concatenate_localize(context: LocalizeContext) -> list[Any]:
    """Where the dimension is split, each device gets the rows of its block that it lacks."""
    out, d = Emitting(context), context.params["dimension"]
    x = (context.emit(concatenate_p, list(context.operands), context.params)[0]
         if len(context.operands) > 1 else context.operands[0])
    axes = split_halos(context).get(d)
    if not axes:
        return [x]
    n = out.size(axes)
    parts, wanted = concatenated_rows(n, [t.shape[d] for t in context.operand_types])
    return [out.call("exchange_rows", x, axis_name=axes, axis_size=n, dimension=d, parts=parts,
                     wanted=plain(wanted))]


concatenate_p = defop(
    "concatenate", doc="The operands one after the other along `dimension`.",
    infer=_concatenate_infer, rule=_concatenate_rule, explicit="equal", pending=_concat_pending,
    linear="all", jvp="linear", transpose=_concatenate_transpose,
    batch=in_front("concatenate", "dimension"),
    evaluate=Evaluator(_concatenate_evaluate, prepare=_concatenate_prepared),
    arithmetic=False, facts=(REARRANGED, SPLICED, UNEVEN),
    padded=_concatenate_padded, localize=_concatenate_localize,
    jax="lax.concatenate(*)",
    samples=lambda: [
        Sample((arange(2, 3), -arange(2, 2)), {"dimension": 1}),
        Sample((arange(2, 3), arange(1, 3), arange(3, 3)), {"dimension": 0}),
        Sample((arange(4, 2),), {"dimension": 1}),
    ])


# -- stack and unstack -----------------------------------------------------------------------------

def _stack_infer(*types: ArrayType, axis: int) -> tuple:
    if not types:
        reject(ValueError, types, "stack expects at least one operand, got 0.",
               help="give at least one array")
    if len({t.ndim for t in types}) != 1:
        reject(ValueError, types, "Cannot stack arrays with different numbers of dimensions: got "
               f"{', '.join(str(t.shape) for t in types)}.",
               help="add dimensions of size 1 with `jnp.expand_dims`")
    if len({t.shape for t in types}) != 1:
        reject(ValueError, types, "All input arrays must have the same shape. Got "
               f"{', '.join(str(t.shape) for t in types)}.",
               help="`jnp.broadcast_arrays` brings them to one shape; `jnp.concatenate` joins "
                    "arrays of several sizes")
    check_same_dtypes("stack", types)
    shape = types[0].shape
    return (*shape[:axis], len(types), *shape[axis:]), types[0].dtype


def _stack_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *, axis: int) -> str:
    dims = [f"d{d}" for d in range(len(operands[0]))]
    return rule_text([dims] * len(operands), [[*dims[:axis], "n", *dims[axis:]]],
                     ["n!:replicate"])


def _stack_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                    params: dict[str, Any]) -> list[Entries]:
    (entries,) = POLICIES["equal"](op, types, [types[0].shape], params)
    return [(*entries[:params["axis"]], (), *entries[params["axis"]:])]


def _stack_transpose(ct: Any, *operands: Any, axis: int) -> tuple:
    pieces = unstack_p.bind(ct, axis=axis)
    return tuple(p if isinstance(x, LinearOperand) else None
                 for p, x in zip(pieces, operands, strict=True))


def _stack_evaluate(lead: int, *arrays: np.ndarray, axis: int) -> np.ndarray:
    sizes = lead_sizes(lead, arrays)
    return np.stack([with_lead(x, lead, sizes) for x in arrays], lead + axis)


stack_p = defop(
    "stack", doc="The operands as slices of a new dimension `axis`.",
    infer=_stack_infer, rule=_stack_rule, explicit=_stack_explicit, pending=_concat_pending,
    linear="all", jvp="linear", transpose=_stack_transpose, batch=in_front("stack", "axis"),
    evaluate=_stack_evaluate, arithmetic=False, facts=(REARRANGED, SPLICED),
    jax="lax.stack(*)",
    samples=lambda: [Sample((arange(2, 3), -arange(2, 3)), {"axis": 1}),
                     Sample((arange(2), arange(2), -arange(2)), {"axis": 0})])


def _unstack_infer(x: ArrayType, *, axis: int) -> list[tuple]:
    if x.ndim == 0:
        reject(ValueError, [x],
               "unstack requires arrays with rank > 0, however a scalar array of shape "
               f"{x.shape} was passed.", help="`jnp.atleast_1d` makes it a vector")
    return [(x.shape[:axis] + x.shape[axis + 1:], x.dtype)] * x.shape[axis]


def _unstack_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *, axis: int) -> str:
    dims = [f"d{d}" for d in range(len(operands[0]))]
    kept = dims[:axis] + dims[axis + 1:]
    return rule_text([dims], [kept] * len(results), [f"d{axis}!:replicate"])


def _unstack_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                      params: dict[str, Any]) -> list[Entries]:
    (x,), axis = types, params["axis"]
    if x.entries[axis]:
        fail(ShardingTypeError,
             f"unstack operand cannot be sharded on the unstacking axis {axis}. Got operand "
             f"type={x.str_short(True)}", code="sharded-unstack",
             label=f"dimension {axis} is split over {', '.join(x.entries[axis])}",
             help="gather that dimension first with `reshard`")
    return [x.entries[:axis] + x.entries[axis + 1:]] * len(shapes)


def _part_type(x: ArrayType, shape: Shape, entries: Entries) -> ArrayType:
    """The cotangent type of a piece of `x`."""
    ct = cotangent_type(x)
    return array_type(shape, ct.dtype, x.weak_type, with_entries(ct.sharding, entries), ct.manual)


def _unstack_transpose(cts: Sequence[Any], x: Any, *, axis: int) -> tuple:
    aval = x.aval
    shape = aval.shape[:axis] + aval.shape[axis + 1:]
    piece = _part_type(aval, shape, aval.entries[:axis] + aval.entries[axis + 1:])
    return (stack_p.bind(*(zeros(piece) if ct is None else ct for ct in cts), axis=axis),)


unstack_p = defop(
    "unstack", doc="The slices of dimension `axis`, without it.",
    infer=_unstack_infer, multiple_results=True, rule=_unstack_rule, explicit=_unstack_explicit,
    pending="indexed",
    linear=((0,),), jvp="linear", transpose=_unstack_transpose, batch=in_front("unstack", "axis"),
    evaluate=lambda lead, x, *, axis: list(np.moveaxis(x, lead + axis, 0)), arithmetic=False,
    samples=lambda: [Sample((arange(2, 3),), {"axis": 1}),
                     Sample((arange(3, 2),), {"axis": 0})])


# -- split -----------------------------------------------------------------------------------------

def _split_infer(x: ArrayType, *, sizes: tuple[int, ...], axis: int) -> list[tuple]:
    if any(n < 0 for n in sizes):
        reject(ValueError, [x], f"Sizes passed to split must be nonnegative, got {list(sizes)}",
               help=f"give sizes of 0 or more that sum to {x.shape[axis]}")
    if x.shape[axis] != sum(sizes):
        reject(ValueError, [x],
               f"Sum of sizes {sum(sizes)} must be equal to dimension {axis} of the "
               f"operand shape {list(x.shape)}", help=f"give sizes that sum to {x.shape[axis]}")
    return [((*x.shape[:axis], n, *x.shape[axis + 1:]), x.dtype) for n in sizes]


def _split_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
                sizes: tuple[int, ...], axis: int) -> str:
    dims = [f"d{d}" for d in range(len(operands[0]))]
    return rule_text([dims], [dims] * len(results),
                     [f"d{axis}:halo"] if len(results) > 1 else [])


def _split_transpose(cts: Sequence[Any], x: Any, *, sizes: tuple[int, ...], axis: int) -> tuple:
    shape = x.aval.shape
    pieces = [zeros(_part_type(x.aval, (*shape[:axis], n, *shape[axis + 1:]), x.aval.entries))
              if ct is None else ct for n, ct in zip(sizes, cts, strict=True)]
    return (concatenate_p.bind(*pieces, dimension=axis),)


def _split_evaluate(lead: int, x: np.ndarray, *, sizes: tuple[int, ...], axis: int) -> list:
    return np.split(x, np.cumsum(sizes[:-1]), lead + axis) if sizes else []


def _split_padded(context: PaddedContext) -> list[Padded]:
    """Slices of as many rows as are wanted."""
    (x,), d, start = context.operands, context.params["axis"], 0
    along = [f for dims in context.rule.results for f in dims[d]]
    if all([s[d] == t.shape[d] for s, t in zip(context.sizes, context.result_types, strict=True)]):
        return context.by_factors([context.cut(x, d)], own=along)
    results = []
    for size, t in zip(context.sizes, context.result_types, strict=True):
        results.append(Padded(context.moved(x, d, start, size[d]), t.shape))
        start += t.shape[d]
    return results


split_p = defop(
    "split", doc="Consecutive pieces of these sizes along `axis`.",
    infer=_split_infer, multiple_results=True, rule=_split_rule,
    explicit=lambda op, types, shapes, params: [
        resized_entries("split", types[0], s) for s in shapes],
    pending="keep",
    linear=((0,),), jvp="linear", transpose=_split_transpose, batch=in_place("split", "axis"),
    evaluate=_split_evaluate, arithmetic=False, facts=(UNEVEN,),
    resize=lambda params, operands, results: {
        **params, "sizes": tuple(r[params["axis"]] for r in results)},
    padded=_split_padded,
    samples=lambda: [Sample((arange(2, 6),), {"sizes": (1, 3, 2), "axis": 1}),
                     Sample((arange(4, 2),), {"sizes": (2, 2), "axis": 0})])
