"""Collectives: ops that exchange data between the devices along Manual mesh axes.

They exist inside shard_map and in per-device programs. Each declares the exchange of one replica
group once, as a function of an array whose last leading dimension is the group (`Collective` in
ir/op.py); executors, cost and tests read that. A group's members are ordered by the named axes, the
first name most significant.

Typing follows JAX's states of a value along a Manual axis: varying, invarying, unreduced, reduced.
The exchanges themselves, and their bytes, are in group_exchange.py.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...facts import (
    CHEAP,
    GENERATED,
    IDENTITY,
    MAY_BE_NAN,
    POSITION,
    REARRANGED,
    TAKEN,
    VIEW,
    DeviceCost,
)
from ...meshes.manual_state import NOT_MANUAL, ManualState
from ...op import Collective, Op, defop
from ...rules.factor_axes import axes_without, axis_set, canonical_axes, covered
from ...spec import parse_axis
from ...types import ArrayType
from ..derivatives import in_front, strong
from . import collective_shapes as shapes
from . import group_exchange as exchange

Axes = tuple[str, ...]
Params = dict[str, Any]


# -- states ---------------------------------------------------------------------------------------

def _state(t: ArrayType, *, add: Sequence[str] = (), drop: Sequence[str] = (),
           unreduced: frozenset[str] | None = None,
           reduced: frozenset[str] | None = None) -> ManualState:
    m = t.manual
    return ManualState(axes_without(axis_set(m.varying.union(add), t.mesh), drop, t.mesh),
                       m.unreduced if unreduced is None else unreduced,
                       m.reduced if reduced is None else reduced)


def _refuse_pending(op: Op, t: ArrayType, axes: Axes) -> None:
    for word, names in (("unreduced", t.manual.unreduced), ("reduced", t.manual.reduced)):
        if names & frozenset(axes):
            fail(ValueError, f"{op.name} cannot accept args which are {word}. Got "
                 f"{t.str_short(True)} and axes={set(axes)}", code=f"{word}-operand",
                 help="finish the sum first with `lax.psum`" if word == "unreduced" else
                      "cast it to varying with `lax.pcast` first")


def _keep_state(axes_of: Callable[[Params], Axes]) -> Callable[..., list[ManualState]]:
    """The result varies as the operand does."""
    def manual(op: Op, types: Sequence[ArrayType], params: Params) -> list[ManualState]:
        _refuse_pending(op, types[0], axes_of(params))
        return [t.manual for t in types]
    return manual


def _drop_state(axes_of: Callable[[Params], Axes]) -> Callable[..., list[ManualState]]:
    """The result no longer varies over the axes."""
    def manual(op: Op, types: Sequence[ArrayType], params: Params) -> list[ManualState]:
        axes = axes_of(params)
        _refuse_pending(op, types[0], axes)
        if params.get("axis_index_groups") is not None:     # the parts of the group differ
            return [t.manual for t in types]
        return [_state(t, drop=axes) for t in types]
    return manual


def _named(params: Params) -> Axes:
    return params["axes"]


def _axis_name(params: Params) -> Axes:
    name = params["axis_name"]
    return name if isinstance(name, tuple) else (name,)


# -- the ops --------------------------------------------------------------------------------------

def _reduction(name: str, doc: str, *, manual: Any = None, evaluate: Callable[..., np.ndarray],
               reduces: str = "sum", groups: bool = False, **fields: Any) -> Op:
    """Declare a reduction over the group; `groups`: whether it takes `axis_index_groups`."""
    return defop(
        name, doc=doc, infer=shapes.same, rule="... -> ...", manual=manual or _drop_state(_named),
        collective=Collective(_named, exchange.grouped(evaluate) if groups else evaluate,
                              exchange.wire_reduce, "all-reduce", reduces, invariant=True),
        **fields)


def _unreduced_to_invarying(op: Op, types: Sequence[ArrayType], params: Params
                            ) -> list[ManualState]:
    return [_state(types[0], unreduced=_waiting(op, types[0], params["axes"]))]


def _waiting(op: Op, t: ArrayType, axes: Axes) -> frozenset[str]:
    """The axes over which a sum still has to be finished when it is over these."""
    if not t.manual.unreduced.issuperset(axes):
        fail(ValueError, f"{op.name} needs an operand that is unreduced over {sorted(axes)}. Got "
             f"{t.str_short(True)}", code="not-unreduced",
             help="`lax.psum` sums an operand that varies over them")
    return t.manual.unreduced.difference(axes)


psum_invariant_p = _reduction(
    "psum_invariant", "Sum over the group; the result is the same on all its members.",
    linear=((0,),), jvp="linear", transpose=lambda ct, x, *, axes: (pvary_p.bind(ct, axes=axes),),
    evaluate=exchange.sum_group, facts=(MAY_BE_NAN,))
psum_p = _reduction(
    "psum", "Sum over the group, where varying axes are not tracked (check_vma=False).",
    linear=((0,),), jvp="linear",
    transpose=lambda ct, x, **params: (psum_p.bind(strong(ct), **params),),
    evaluate=exchange.sum_group, facts=(MAY_BE_NAN,), groups=True)
pmax_p = _reduction("pmax", "Maximum over the group.", evaluate=exchange.max_group,
                    reduces="max", groups=True)
pmin_p = _reduction("pmin", "Minimum over the group.", evaluate=exchange.min_group,
                    reduces="min", groups=True)
pprod_p = _reduction(
    "pprod", "Product over the group.",
    evaluate=exchange.combined_group(np.multiply), reduces="prod")
pand_p = _reduction(
    "pand", "Bits that are set in all blocks of the group.",
    evaluate=exchange.combined_group(np.bitwise_and), reduces="and")
por_p = _reduction(
    "por", "Bits that are set in some block of the group.",
    evaluate=exchange.combined_group(np.bitwise_or), reduces="or")
pxor_p = _reduction(
    "pxor", "Bits that are set in an odd number of blocks of the group.",
    evaluate=exchange.combined_group(np.bitwise_xor), reduces="xor")
unreduced_psum_p = _reduction(
    "unreduced_psum", "Finish a pending sum: the value was the sum over the group all along.",
    pending="keep", manual=_unreduced_to_invarying,
    linear=((0,),), jvp="linear",
    transpose=lambda ct, x, *, axes: (preduced_p.bind(ct, axes=axes),),
    evaluate=exchange.sum_group)


def _cast(name: str, doc: str, manual: Any, transpose: Any) -> Op:
    """A change of state without a change of data."""
    return defop(
        name, doc=doc, infer=shapes.same, rule="... -> ...", pending="keep", manual=manual,
        linear=((0,),), jvp="linear", transpose=transpose,
        evaluate=lambda lead, x, **_: x, arithmetic=False, facts=(IDENTITY, CHEAP))


def _varying_state(op: Op, types: Sequence[ArrayType], params: Params) -> list[ManualState]:
    _refuse_pending(op, types[0], params["axes"])
    return [_state(types[0], add=params["axes"])]


def _preduced_state(op: Op, types: Sequence[ArrayType], params: Params) -> list[ManualState]:
    t = types[0]
    return [_state(t, reduced=t.manual.reduced | frozenset(params["axes"]))]


def _to_unreduced_state(op: Op, types: Sequence[ArrayType], params: Params) -> list[ManualState]:
    t, axes = types[0], frozenset(params["axes"])
    return [_state(t, drop=params["axes"], unreduced=t.manual.unreduced | axes)]


def _reduced_to_varying_state(op: Op, types: Sequence[ArrayType], params: Params
                              ) -> list[ManualState]:
    t, axes = types[0], frozenset(params["axes"])
    return [_state(t, add=params["axes"], reduced=t.manual.reduced - axes)]


pvary_p = _cast(
    "pvary", "Regard an invarying value as varying over the axes.", _varying_state,
    lambda ct, x, *, axes: (psum_invariant_p.bind(ct, axes=axes),))
preduced_p = _cast(
    "preduced", "Regard an invarying value as reduced over the axes.", _preduced_state,
    lambda ct, x, *, axes: (unreduced_psum_p.bind(ct, axes=axes),))
vary_unreduced_cast_p = _cast(
    "vary_unreduced_cast_p", "Regard a varying value as the terms of a pending sum.",
    _to_unreduced_state, lambda ct, x, *, axes: (reduced_vary_cast_p.bind(ct, axes=axes),))
reduced_vary_cast_p = _cast(
    "reduced_vary_cast_p", "Regard a reduced value as varying.", _reduced_to_varying_state,
    lambda ct, x, *, axes: (vary_unreduced_cast_p.bind(ct, axes=axes),))


def _scatter_transpose(ct: Any, x: Any, *, scatter_dimension: int, **params: Any) -> tuple:
    return (all_gather_p.bind(ct, all_gather_dimension=scatter_dimension, **params),)


def _gather_transpose(ct: Any, x: Any, *, all_gather_dimension: int, **params: Any) -> tuple:
    return (reduce_scatter_p.bind(ct, scatter_dimension=all_gather_dimension, **params),)


def _block_after_block(position: int, operand: ArrayType, params: Params) -> list[list[int]]:
    """The gathered dimension first, as the blocks of a group are contiguous."""
    dim = params["all_gather_dimension"]
    if not position and not params["tiled"]:
        return [[*range(operand.ndim)]]
    return [[dim, *(d for d in range(operand.ndim) if d != dim)]]


def _gather(name: str, doc: str, *, groups: bool = False, **fields: Any) -> Op:
    """Declare a gather of the group's blocks; `groups`: whether it takes `axis_index_groups`."""
    return defop(
        name, doc=doc, infer=shapes.gathered, rule=shapes.gather_rule,
        explicit=shapes.same_positions,
        linear=((0,),), jvp="linear",
        batch=in_front(name, "all_gather_dimension"),
        arithmetic=False, cost=DeviceCost(orders=_block_after_block),
        collective=Collective(_axis_name,
                              exchange.grouped(exchange.gather) if groups else exchange.gather,
                              exchange.wire_gather, "all-gather", invariant=not groups),
        **fields)


all_gather_p = _gather(
    "all_gather", "Every member gets the blocks of all, concatenated or stacked.",
    manual=_keep_state(_axis_name),
    transpose=_gather_transpose,
    groups=True)


def _gather_invariant_transpose(ct: Any, x: Any, *, axis_name: Axes, axis_size: int,
                                all_gather_dimension: int, tiled: bool) -> tuple:
    out = all_slice_p.bind(ct, axes=axis_name, dimension=all_gather_dimension,
                           axis_size=axis_size)
    return (out,) if tiled else (_squeeze(out, all_gather_dimension),)


def _squeeze(x: Any, dim: int) -> Any:
    return x.squeeze(dim)


all_gather_invariant_p = _gather(
    "all_gather_invariant", "As all_gather; the result counts as the same on all members.",
    manual=_drop_state(_axis_name),
    transpose=_gather_invariant_transpose, facts=(VIEW,))


def _gather_reduced_state(op: Op, types: Sequence[ArrayType], params: Params
                          ) -> list[ManualState]:
    t, axes = types[0], _axis_name(params)
    _refuse_pending(op, t, axes)
    return [_state(t, drop=axes, reduced=t.manual.reduced | frozenset(axes))]


all_gather_reduced_p = _gather(
    "all_gather_reduced",
    "As all_gather; the result is reduced over the axes, so that its cotangent is a pending sum.",
    manual=_gather_reduced_state,
    transpose=lambda ct, x, *, all_gather_dimension, **params: (
        unreduced_reduce_scatter_p.bind(ct, scatter_dimension=all_gather_dimension, **params),))


def _scatter(name: str, doc: str, reduction: Op, *, groups: bool = False, **fields: Any) -> Op:
    """Declare a reduce-scatter: the blocks of what `reduction` gives. `groups`: whether it takes
    `axis_index_groups`.
    """
    whole = reduction.collective
    assert whole is not None
    evaluate = exchange.scattered(whole.evaluate)
    return defop(
        name, doc=doc, infer=shapes.scattered, rule=shapes.scatter_rule, explicit="follow",
        batch=in_front(name, "scatter_dimension"),
        collective=Collective(_axis_name, exchange.grouped(evaluate) if groups else evaluate,
                              exchange.wire_exchange, "reduce-scatter", whole.reduces),
        **fields)


reduce_scatter_p = _scatter(
    "reduce_scatter", "Sum over the group, each member keeping one block of a dimension.",
    psum_invariant_p, manual=_keep_state(_axis_name), linear=((0,),), jvp="linear",
    transpose=_scatter_transpose, groups=True)
# By reduction, the op that gives each member one block of the result.
SCATTERS: dict[Op, Op] = {psum_invariant_p: reduce_scatter_p, **{
    op: _scatter(f"{op.name}_scatter", f"As {op.name}, each member keeping one block of a "
                 "dimension.", op, manual=_keep_state(_axis_name))
    for op in (pmax_p, pmin_p, pprod_p, pand_p, por_p, pxor_p)}}


def _unreduced_scatter_state(op: Op, types: Sequence[ArrayType], params: Params
                             ) -> list[ManualState]:
    axes = _axis_name(params)
    return [_state(types[0], add=axes, unreduced=_waiting(op, types[0], axes))]


unreduced_reduce_scatter_p = _scatter(
    "unreduced_reduce_scatter", "Finish a pending sum, each member keeping one block.",
    psum_invariant_p, pending="keep", manual=_unreduced_scatter_state, linear=((0,),), jvp="linear",
    transpose=lambda ct, x, *, scatter_dimension, **params: (
        all_gather_reduced_p.bind(ct, all_gather_dimension=scatter_dimension, **params),))
# Ops that differ from others in the state of a value alone (unreduced, reduced, untracked), to the
# op for data that plainly varies or not; None if it is the value itself.
OPS_ON_DATA: dict[Op, Op | None] = {
    **dict.fromkeys((pvary_p, preduced_p, vary_unreduced_cast_p, reduced_vary_cast_p)),
    psum_p: psum_invariant_p, unreduced_psum_p: psum_invariant_p,
    unreduced_reduce_scatter_p: reduce_scatter_p, all_gather_reduced_p: all_gather_invariant_p}


all_to_all_p = defop(
    "all_to_all", doc="Member j gets block j of the split dimension of every member.",
    infer=shapes.exchanged, rule=shapes.exchange_rule, explicit=shapes.same_positions,
    manual=_keep_state(_axis_name),
    linear=((0,),), jvp="linear",
    transpose=lambda ct, x, *, split_axis, concat_axis, **params: (
        all_to_all_p.bind(ct, split_axis=concat_axis, concat_axis=split_axis, **params),),
    batch=in_front("all_to_all", "split_axis", "concat_axis"),
    arithmetic=False, cost=DeviceCost(is_packed=True),
    collective=Collective(_axis_name, exchange.grouped(exchange.all_to_all),
                          exchange.wire_exchange, "all-to-all"))


def _infer_permute(t: ArrayType, *, axis_name: Axes, perm: tuple[tuple[int, int], ...]) -> tuple:
    sources, destinations = [s for s, _ in perm], [d for _, d in perm]
    if len(set(sources)) != len(sources) or len(set(destinations)) != len(destinations):
        fail(ValueError, f"ppermute sources and destinations must be unique, got {perm}.",
             code="permutation", help="let every device send once and receive once")
    return t.shape, t.dtype


def _varies_over(axes: Axes, t: ArrayType) -> list[bool]:
    """Whether the value varies over each of these axes, parts of axes among them."""
    def known(names: Any) -> list[str]:
        return [a for a in names if a in t.mesh.shape or parse_axis(a)[0] in t.mesh.shape]

    own = canonical_axes(known(t.varying), t.mesh)
    return [a in t.varying or bool(known((a,))) and covered(canonical_axes((a,), t.mesh), own)
            for a in axes]


def _permute_state(op: Op, types: Sequence[ArrayType], params: Params) -> list[ManualState]:
    """As the operand; where that varies over some of the axes only, what the permutation makes.

    The partitioner permutes blocks that are the same along some of the axes (a dimension that goes
    from X to Y): the result varies over the axes along which the block that arrives differs.
    """
    t, axes, perm = types[0], _axis_name(params), params["perm"]
    _refuse_pending(op, t, axes)
    held = [a in t.varying for a in axes]
    if not all(a in t.mesh.shape for a in (*axes, *t.varying)) and not all(held):
        held = _varies_over(axes, t)
    if all(held) or not any(held):
        return [t.manual]
    sizes = tuple(t.mesh.axis_size(a) for a in axes)
    block = np.zeros(sizes, np.int64)                    # which block each device holds
    for n, own, index in zip(sizes, held, np.indices(sizes, sparse=True), strict=True):
        block = block * n + index if own else block
    arrives = np.full(block.size, -1)
    sources, targets = np.array(perm, np.int64).reshape(-1, 2).T
    arrives[targets] = block.ravel()[sources]
    arrives = arrives.reshape(sizes)
    differs = {a for i, a in enumerate(axes) if (arrives != arrives.take([0], axis=i)).any()}
    return [_state(t, drop=tuple(a for a in axes if a not in differs), add=tuple(differs))]


ppermute_p = defop(
    "ppermute",
    doc="Member d gets the block of member s for every (s, d) in perm; others get " "zeros.",
    infer=_infer_permute, rule="... -> ...", manual=_permute_state,
    linear=((0,),), jvp="linear",
    transpose=lambda ct, x, *, axis_name, perm: (
        ppermute_p.bind(ct, axis_name=axis_name, perm=tuple((d, s) for s, d in perm)),),
    arithmetic=False,
    collective=Collective(_axis_name, exchange.permute, exchange.wire_permute,
                          "collective-permute"))


all_slice_p = defop(
    "all_slice",
    doc="Each member takes its own block of a dimension: no communication. After Shardy's "
        "all_slice.",
    infer=shapes.sliced, rule=shapes.slice_rule, explicit="follow", manual=_varying_state,
    linear=((0,),), jvp="linear",
    transpose=lambda ct, x, *, axes, dimension, axis_size: (
        all_gather_invariant_p.bind(ct, axis_name=axes, axis_size=axis_size,
                                    all_gather_dimension=dimension, tiled=True),),
    batch=in_front("all_slice", "dimension"),
    arithmetic=False, facts=(REARRANGED, TAKEN),
    collective=Collective(_named, exchange.own_slice, exchange.wire_nothing, "", local=True))


def _axis_index_state(op: Op, types: Sequence[ArrayType], params: Params) -> list[ManualState]:
    return [ManualState(_axis_name(params)) if params["varying"] else NOT_MANUAL]


axis_index_p = defop(
    "axis_index",
    doc="The device's position along the axes, row-major in the order given. "
        "varying=False where varying axes are not tracked (check_vma=False).",
    infer=lambda *, axis_name, varying: ((), np.dtype(np.int32)), rule=" -> ",
    manual=_axis_index_state,
    jvp="zero",
    arithmetic=False, facts=(GENERATED, POSITION))
