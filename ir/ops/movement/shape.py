"""Ops that rearrange dimensions and touch no element: broadcast, transpose, squeeze, reverse, tile.

All evaluators give views where numpy can. Shape errors and sharding rules are JAX's (0.10.2): a
dimension takes its axes along wherever it goes.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...facts import BITCAST, CHEAP, GENERATED, PERMUTED, REARRANGED, REPEATS, VIEW
from ...inference.pending import refuse
from ...op import LocalizeContext, Op, Sample, defop
from ...padded import Padded, PaddedContext
from ...rules.rule import FactorRule, Pattern, make_rule
from ...shardings.sharding import NamedSharding
from ...support.caches import cached
from ...types import ArrayType, Entries, Shape
from ..communication.halo_exchange import split_halos
from ..derivatives import in_front, in_place, move_first, type_of
from ..elementwise.declaration import arange
from ..emitting import Emitting
from ..rules import (
    batch_axes,
    batch_dim,
    call,
    cotangent_sharding,
    insert_axes,
    permutation_inverse,
    reject,
    rule_text,
    shifted,
)

# -- broadcast_in_dim ------------------------------------------------------------------------------


def _broadcast_infer(x: ArrayType, *, shape: Shape, broadcast_dimensions: tuple[int, ...],
                     sharding: Any) -> tuple:
    """Each dimension of x goes to one of the result, of the same size or from size one."""
    own, ndim = x.shape, len(shape)
    if len(own) == len(broadcast_dimensions) == len({*broadcast_dimensions}):
        for n, d in zip(own, broadcast_dimensions, strict=True):
            if not 0 <= d < ndim or (n != 1 and n != shape[d]):
                break
        else:
            return tuple(shape), x.dtype
    if x.ndim != len(broadcast_dimensions):
        reject(TypeError, [x],
               "broadcast_in_dim broadcast_dimensions must have length equal to operand "
               f"ndim; got broadcast_dimensions {broadcast_dimensions} for operand ndim "
               f"{x.ndim}.",
               help="say for each dimension of the operand which one of the result it is")
    if len(shape) < x.ndim:
        reject(TypeError, [x],
               "broadcast_in_dim target broadcast shape must have equal or higher rank to "
               f"the operand shape; got operand ndim {x.ndim} and target broadcast ndim "
               f"{len(shape)}.", help="`jnp.squeeze` takes out dimensions of size 1")
    if not set(broadcast_dimensions) <= set(range(len(shape))):
        reject(TypeError, [x], "broadcast_in_dim broadcast_dimensions must be a subset of output "
               f"dimensions, got {broadcast_dimensions} for operand ndim {x.ndim} and "
               f"shape {shape}.", help=f"name dimensions of the result: 0 to {len(shape) - 1}")
    if any(n not in (1, shape[d]) for n, d in zip(x.shape, broadcast_dimensions, strict=True)):
        reject(TypeError, [x],
               "broadcast_in_dim operand dimension sizes must either be 1, or be equal to "
               "their corresponding dimensions in the target broadcast shape; got operand "
               f"of shape {x.shape}, target broadcast shape {shape}, broadcast_dimensions "
               f"{broadcast_dimensions} ", help="`jnp.tile` repeats whole operands")
    if len(set(broadcast_dimensions)) != len(broadcast_dimensions):
        reject(TypeError, [x],
               "broadcast_in_dim broadcast_dimensions must not contain duplicates, got "
               f"broadcast_dimensions {broadcast_dimensions}",
               help="name each dimension of the result once at most")
    return tuple(shape), x.dtype


def _broadcast_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
                    broadcast_dimensions: tuple[int, ...], **params: Any) -> Pattern:
    return _broadcast_pattern(broadcast_dimensions, len(results[0]))


@cached(4096, "rules of broadcasts")
def _broadcast_pattern(dimensions: tuple[int, ...], ndim: int) -> Pattern:
    names = [f"d{d}" for d in range(ndim)]
    return Pattern([[names[d] for d in dimensions]], [names])


def _broadcast_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                        params: dict[str, Any]) -> list[Entries | NamedSharding]:
    if params["sharding"] is not None:
        return [params["sharding"]]
    entries: list[Any] = [()] * len(shapes[0])
    for d, axes in zip(params["broadcast_dimensions"], types[0].entries, strict=True):
        entries[d] = axes
    return [tuple(entries)]


def _broadcast_transpose(ct: Any, x: Any, *, shape: Shape, broadcast_dimensions: tuple[int, ...],
                         sharding: Any) -> tuple:
    """Sum the cotangent over new dimensions and over those that had size one; the sums of the
    latter get their dimension back.
    """
    aval = x.aval
    repeated = [i for i, d in enumerate(broadcast_dimensions)
                if aval.shape[i] == 1 and shape[d] != 1]
    kept = [d for i, d in enumerate(broadcast_dimensions) if i not in repeated]
    axes = tuple(d for d in range(len(shape)) if d not in kept)
    if list(kept) != sorted(kept):          # put the kept dimensions into the operand's order
        ct = call("transpose", ct, permutation=(*axes, *kept))
        axes = tuple(range(len(axes)))
    wanted = cotangent_sharding(aval)
    if not repeated:
        if axes:
            return (call("reduce_sum", ct, axes=axes, out_sharding=wanted),)
        same = sharding is None or wanted is None or type_of(ct).sharding is wanted
        return (ct if same else call("reshard", ct, dst_sharding=wanted),)
    inner = wanted
    if wanted is not None:
        spec = wanted.spec
        inner = wanted.update(spec=spec.update(
            partitions=[p for i, p in enumerate(spec.partitions) if i not in repeated]))
    ct = call("reduce_sum", ct, axes=axes, out_sharding=inner)
    rest = tuple(i for i in range(aval.ndim) if i not in repeated)
    return (broadcast_in_dim_p.bind(ct, shape=aval.shape, broadcast_dimensions=rest,
                                    sharding=wanted),)


def _broadcast_batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *,
                     shape: Shape, broadcast_dimensions: tuple[int, ...], sharding: Any) -> tuple:
    axes = batch_axes(operands, dims)
    x = move_first(operands[0], batch_dim(dims))
    return [broadcast_in_dim_p.bind(
        x, shape=(size, *shape), broadcast_dimensions=(0, *shifted(broadcast_dimensions)),
        sharding=insert_axes(sharding, 0, axes, len(shape)))], [0]


def _broadcast_evaluate(lead: int, x: np.ndarray, *, shape: Shape,
                        broadcast_dimensions: tuple[int, ...], sharding: Any) -> np.ndarray:
    order = sorted(range(len(broadcast_dimensions)), key=broadcast_dimensions.__getitem__)
    if order != list(range(len(order))):
        x = x.transpose(*range(lead), *(lead + i for i in order))
    sizes = [1] * len(shape)
    for i, d in enumerate(sorted(broadcast_dimensions)):
        sizes[d] = x.shape[lead + i]
    return np.broadcast_to(x.reshape(x.shape[:lead] + tuple(sizes)), x.shape[:lead] + tuple(shape))


broadcast_in_dim_p = defop(
    "broadcast_in_dim",
    doc="Operand dimension i becomes dimension broadcast_dimensions[i] of `shape`; size-1 "
        "dimensions and new ones are repeated.",
    infer=_broadcast_infer, rule=_broadcast_rule, explicit=_broadcast_explicit, pending="carry",
    sharding_param="sharding",
    linear=((0,),), jvp="linear", transpose=_broadcast_transpose, batch=_broadcast_batch,
    evaluate=_broadcast_evaluate, arithmetic=False, facts=(VIEW, CHEAP, GENERATED, REPEATS),
    resize=lambda params, operands, results: {**params, "shape": results[0]},
    samples=lambda: [
        Sample((arange(3, 1),), {"shape": (2, 3, 4), "broadcast_dimensions": (1, 2),
                                  "sharding": None}),
        Sample((arange(4),), {"shape": (4, 2), "broadcast_dimensions": (0,), "sharding": None}),
        Sample((arange(),), {"shape": (2, 2), "broadcast_dimensions": (), "sharding": None}),
        Sample((arange(1, 4),), {"shape": (1, 4), "broadcast_dimensions": (0, 1),
                                  "sharding": None}),
    ])


# -- transpose -------------------------------------------------------------------------------------

def _transpose_infer(x: ArrayType, *, permutation: tuple[int, ...]) -> tuple:
    if not isinstance(permutation, (tuple, list, np.ndarray)):
        reject(TypeError, [x], f"transpose permutation must be a tuple/list/ndarray, got "
               f"{type(permutation)}.", help="give a tuple such as (1, 0)")
    if sorted(permutation) != list(range(x.ndim)):
        reject(TypeError, [x],
               "transpose permutation isn't a permutation of operand dimensions, got "
               f"permutation {permutation} for operand shape {x.shape}.",
               help=f"name each of the {x.ndim} dimensions once")
    return tuple(x.shape[p] for p in permutation), x.dtype


def _transpose_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
                    permutation: tuple[int, ...]) -> Pattern:
    return _transpose_pattern(permutation)


@cached(4096, "rules of transpositions")
def _transpose_pattern(permutation: tuple[int, ...]) -> Pattern:
    names = [f"d{d}" for d in range(len(permutation))]
    return Pattern([names], [[names[p] for p in permutation]])


def _transpose_batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *,
                     permutation: tuple[int, ...]) -> tuple:
    dim = batch_dim(dims)
    inner = tuple(p if p < dim else p + 1 for p in permutation)
    return [transpose_p.bind(operands[0], permutation=(dim, *inner))], [0]


transpose_p = defop(
    "transpose", doc="Result dimension i is operand dimension permutation[i].",
    infer=_transpose_infer, rule=_transpose_rule, pending="keep",
    linear=((0,),), jvp="linear",
    transpose=lambda ct, x, *, permutation: (
        transpose_p.bind(ct, permutation=permutation_inverse(permutation)),),
    batch=_transpose_batch,
    evaluate=lambda lead, x, *, permutation: x.transpose(
        *range(lead), *(lead + p for p in permutation)),
    arithmetic=False, facts=(VIEW, CHEAP, REARRANGED, PERMUTED),
    samples=lambda: [
        Sample((arange(2, 3, 4),), {"permutation": (2, 0, 1)}),
        Sample((arange(4, 3),), {"permutation": (1, 0)}),
    ])


# -- squeeze ---------------------------------------------------------------------------------------

def _squeeze_infer(x: ArrayType, *, dimensions: tuple[int, ...]) -> tuple:
    if len(set(dimensions)) != len(dimensions):
        reject(ValueError, [x], f"dimensions are not unique: {dimensions}",
               help="name each dimension once")
    if not all(0 <= d < x.ndim for d in dimensions):
        reject(ValueError, [x], f"dimensions outside range [0, ndim): {dimensions}",
               help=f"the operand has {x.ndim} dimensions, counted from 0")
    if any(x.shape[d] != 1 for d in dimensions):
        reject(ValueError, [x],
               "cannot select an axis to squeeze out which has size not equal to one, "
               f"got shape={x.shape} and dimensions={dimensions}",
               help="`jnp.take` takes one element there, `reshape` merges dimensions")
    return tuple(n for d, n in enumerate(x.shape) if d not in dimensions), x.dtype


def _squeeze_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
                  dimensions: tuple[int, ...]) -> Pattern:
    kept = [() if d in dimensions else f"d{d}" for d in range(len(operands[0]))]
    return Pattern([kept], [[d for d in kept if d]])


def _squeeze_transpose(ct: Any, x: Any, *, dimensions: tuple[int, ...]) -> tuple:
    kept = tuple(d for d in range(x.aval.ndim) if d not in dimensions)
    return (broadcast_in_dim_p.bind(ct, shape=x.aval.shape, broadcast_dimensions=kept,
                                    sharding=None),)


squeeze_p = defop(
    "squeeze", doc="Drop dimensions of size one.",
    infer=_squeeze_infer, rule=_squeeze_rule, pending="keep",
    linear=((0,),), jvp="linear", transpose=_squeeze_transpose,
    batch=in_front("squeeze", "dimensions"),
    evaluate=lambda lead, x, *, dimensions: x.squeeze(tuple(lead + d for d in dimensions)),
    arithmetic=False, facts=(BITCAST, CHEAP),
    samples=lambda: [
        Sample((arange(1, 3, 1),), {"dimensions": (0, 2)}),
        Sample((arange(4, 1),), {"dimensions": (1,)}),
    ])


# -- rev -------------------------------------------------------------------------------------------

def _rev_infer(x: ArrayType, *, dimensions: tuple[int, ...]) -> tuple:
    if len(set(dimensions)) != len(dimensions):
        reject(TypeError, [x], f"rev dimensions must be unique, got {dimensions}.",
               help="name each dimension once")
    if dimensions and not (max(dimensions) < x.ndim and min(dimensions) >= 0):
        reject(TypeError, [x], "rev dimensions must all be less than operand ndim, got dimensions "
               f"{dimensions} for operand ndim {x.ndim}.",
               help=f"the operand has {x.ndim} dimensions, counted from 0")
    return x.shape, x.dtype


def _rev_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
              dimensions: tuple[int, ...]) -> str:
    dims = [f"d{d}" for d in range(len(operands[0]))]
    return rule_text([dims], [dims], [f"d{d}:halo(mirror)" for d in sorted(dimensions)])


def _rev_padded(context: PaddedContext) -> list[Padded]:
    """Padding comes first in the mirror image, and is moved to the end."""
    (y,) = context.by_factors(safe=context.params["dimensions"])
    for d in context.params["dimensions"]:
        if y.is_padded(d):
            atom = context.moved(y, d, y.size(d) - y.shape[d], y.size(d))
            y = Padded(atom, y.shape, (*y.fills[:d], None, *y.fills[d + 1:]))
    return [y]


def _rev_localize(context: LocalizeContext) -> list[Any]:
    """Blocks change places with their mirror images."""
    x = context.emit(rev_p, list(context.operands), context.params)[0]
    out = Emitting(context)
    axes = tuple(a for split in split_halos(context).values() for a in split)
    n = out.size(axes)                       # all dimensions at once: the last is the first in all
    if n > 1:
        x = out.call("ppermute", x, axis_name=axes, perm=tuple((i, n - 1 - i) for i in range(n)))
    return [x]


rev_p = defop(
    "rev", doc="Reverse the order of elements along `dimensions`.",
    infer=_rev_infer, rule=_rev_rule, explicit="follow", pending=refuse,
    linear=((0,),), jvp="linear",
    transpose=lambda ct, x, *, dimensions: (rev_p.bind(ct, dimensions=dimensions),),
    batch=in_place("rev", "dimensions"),
    evaluate=lambda lead, x, *, dimensions: np.flip(x, tuple(lead + d for d in dimensions)),
    arithmetic=False, facts=(REARRANGED,), padded=_rev_padded, localize=_rev_localize,
    samples=lambda: [Sample((arange(3, 4),), {"dimensions": (1,)}),
                     Sample((arange(3, 2, 2),), {"dimensions": (0, 2)})])


# -- tile ------------------------------------------------------------------------------------------

def _tile_infer(x: ArrayType, *, reps: tuple[int, ...]) -> tuple:
    if len(reps) != x.ndim:
        reject(TypeError, [x], "reps length must be equal to the ndim of x, got "
               f"len(reps)={len(reps)} and x.ndim={x.ndim}.",
               help=f"give {x.ndim} numbers; `jnp.tile` adds what is missing")
    if any(r < 0 for r in reps):
        reject(ValueError, [x], f"tile reps must be nonnegative, got {reps}.",
               help="give numbers of 0 or more")
    return tuple(n * r for n, r in zip(x.shape, reps, strict=True)), x.dtype


def _tile_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
               reps: tuple[int, ...]) -> FactorRule:
    """A tiled dimension is (repetition, element): the repetitions can be split freely."""
    dims: list[str | tuple[str, ...]] = []
    sizes = {}
    for d, (n, r) in enumerate(zip(operands[0], reps, strict=True)):
        dims.append((f"r{d}", f"d{d}") if r != 1 else f"d{d}")
        sizes[f"d{d}"] = n
        if r != 1:
            sizes[f"r{d}"] = r
    return make_rule(rule_text([[f"d{d}" for d in range(len(reps))]], [dims]), operands, results,
                     sizes)


def _tile_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                   params: dict[str, Any]) -> list[Entries]:
    (x,), reps = types, params["reps"]
    for d, (axes, r) in enumerate(zip(x.entries, reps, strict=True)):
        if axes and r != 1:
            fail(ShardingTypeError,
                 f"Operand cannot be sharded on dimension {d} when the tiling is non-trivial. Got "
                 f"input type: {x.str_short()} with reps: {reps}",
                 code="sharded-tiling", label=f"dimension {d} is split over {', '.join(axes)}",
                 help="gather that dimension first with `reshard`")
    return [x.entries]


def _tile_transpose(ct: Any, x: Any, *, reps: tuple[int, ...]) -> tuple:
    paired = tuple(m for n, r in zip(x.aval.shape, reps, strict=True) for m in (r, n))
    entries = tuple(m for axes in type_of(ct).entries for m in ((), axes))
    sharding = cotangent_sharding(x.aval)
    inner = None if sharding is None else sharding.update(
        spec=sharding.spec.update(partitions=[e or None for e in entries]))
    ct = call("reshape", ct, new_sizes=paired, dimensions=None, sharding=inner)
    return (call("reduce_sum", ct, axes=tuple(range(0, len(paired), 2)), out_sharding=sharding),)


def _tile_batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *,
                reps: tuple[int, ...]) -> tuple:
    dim = batch_dim(dims)
    return [tile_p.bind(operands[0], reps=(*reps[:dim], 1, *reps[dim:]))], [dim]


def _tile_evaluate(lead: int, x: np.ndarray, *, reps: tuple[int, ...]) -> np.ndarray:
    front, local = x.shape[:lead], x.shape[lead:]
    paired = [m for n in local for m in (1, n)]
    wanted = [m for n, r in zip(local, reps, strict=True) for m in (r, n)]
    out = [n * r for n, r in zip(local, reps, strict=True)]
    return np.broadcast_to(x.reshape(*front, *paired), (*front, *wanted)).reshape(*front, *out)


tile_p = defop(
    "tile", doc="Repeat the whole operand reps[i] times along dimension i.",
    infer=_tile_infer, rule=_tile_rule, explicit=_tile_explicit, pending="iterated",
    linear=((0,),), jvp="linear", transpose=_tile_transpose, batch=_tile_batch,
    evaluate=_tile_evaluate, arithmetic=False,
    resize=lambda params, operands, results: {**params, "reps": tuple(
        r if n == 0 else m // n
        for n, m, r in zip(operands[0], results[0], params["reps"], strict=True))},
    samples=lambda: [Sample((arange(2, 3),), {"reps": (2, 2)}),
                     Sample((arange(2, 3),), {"reps": (1, 3)})])
