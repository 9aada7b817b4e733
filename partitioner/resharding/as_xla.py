"""Inserts reshards as XLA does: by the local rule, each in XLA's steps."""
from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir.facts import REPEATS, WHOLE_IN_XLA
from ...ir.ops.communication.sharding import reshard_p
from ...ir.ops.contractions.dot_general import dot_general_p
from ...ir.ops.indexing.gather import gather_p
from ...ir.ops.movement.padding import pad_p
from ...ir.program import Atom, Equation, Program, Var
from ...ir.reasons import NO_CASE
from ...ir.rewriting.inside import inside
from ...ir.types import ArrayType, Entries
from ..choice.xla.local_rule import LocalRule
from ..cost.kinds import is_product
from ..cost.prices import Prices
from ..factors import Axes, rule_info
from ..propagation.resolved_types import brought, typed
from ..redistribution.effects import tile_count
from ..redistribution.steps_of_xla import steps
from .lookups_as_xla import mask_lookups_apart
from .reshards import resharded

_GROUPS = ("feature_group_count", "batch_group_count")


def shard_as_xla(program: Program, prices: Prices, draft: bool = False) -> Program:
    """The pass: a RESHARDED program whose equations run as in XLA. draft: as for `resharded`.
    """
    program = _resharded_products(_on_whole_arrays(program))
    program = mask_lookups_apart(_padded_to_blocks(program))
    return _in_steps(resharded(program, prices, LocalRule, draft))


def _on_whole_arrays(program: Program) -> Program:
    """The program with operands and results whole around what XLA never splits."""
    program = inside(program, _on_whole_arrays)
    if not any([_is_whole(eqn) for eqn in program.eqns]):
        return program
    eqns: list[Equation] = []
    known: dict[Atom, Atom] = {}        # whole values, by what was cut out of them
    for eqn in program.eqns:
        if not _is_whole(eqn):
            eqns.append(eqn)
            continue
        before, after = [[typed(v.aval, v.aval.mesh, ((),) * v.aval.ndim,
                                v.aval.sharding.spec.unreduced) for v in values]
                         for values in (eqn.invars, eqn.outvars)]
        why = (NO_CASE(eqn.op.name),)
        operands = [known.get(atom) or brought(atom, aval, eqn.location, why, eqns)
                    for atom, aval in zip(eqn.invars, before, strict=True)]
        results = [v if v.aval is aval else Var(aval)
                   for v, aval in zip(eqn.outvars, after, strict=True)]
        known.update(zip(eqn.outvars, results, strict=True))
        eqns.append(eqn.replace(invars=operands, outvars=results))
        eqns += [Equation(reshard_p, (whole,), (v,), {"dst_sharding": v.aval.sharding},
                          eqn.location)
                 for whole, v in zip(results, eqn.outvars, strict=True) if whole is not v]
    return program.replace(eqns=eqns)


def _resharded_products(program: Program) -> Program:
    """The program with a reshard behind each product whose result takes the axes that are summed in
    place of those of an operand: the product keeps the operand's axes, as in Shardy, and its result
    moves, which is no larger than the operand.
    """
    program = inside(program, _resharded_products)
    eqns: list[Equation] = []
    for eqn in program.eqns:
        entries = _entries_of_operands(eqn) if eqn.op is dot_general_p else None
        if entries is not None:
            (out,) = eqn.outvars
            summed = Var(typed(out.aval, out.aval.mesh, entries))
            eqns.append(eqn.replace(outvars=(summed,)))
            eqn = Equation(reshard_p, (summed,), (out,), {"dst_sharding": out.aval.sharding},
                           eqn.location)
        eqns.append(eqn)
    return program.replace(eqns=eqns) if len(eqns) > len(program.eqns) else program


def _entries_of_operands(eqn: Equation) -> Entries | None:
    """The layout of a product's result with the axes of an operand in the one dimension that has
    the axes of the sum instead. None if there is no such dimension, if operands disagree, or if the
    result is larger than the operand.
    """
    info, out = rule_info(eqn.instance.rule(*eqn.types)), eqn.outvars[0].aval
    summed: Axes = ()
    free: Axes = ()                 # of dimensions that one operand has
    moved: list[tuple[int, Axes]] = []
    for places in info.positions:
        held = [(eqn.invars[t].aval, d) for t, d, _ in places if t < info.operands]
        axes = held[0][0].entries[held[0][1]]
        if any([t.entries[d] != axes for t, d in held]):
            return None
        t, d, _ = places[-1]
        if t < info.operands:
            summed += axes
        elif out.entries[d] != axes:
            if not axes or out.size > max([t.size for t, _ in held]):
                return None
            moved.append((d, axes))
        free += axes if len(held) == 1 else ()
    if len(moved) != 1 or len({*free}) < len(free) or out.sharding.spec.unreduced:
        return None
    d, axes = moved[0]
    if not summed or out.entries[d] != summed:
        return None
    return (*out.entries[:d], axes, *out.entries[d + 1:])


def _padded_to_blocks(program: Program) -> Program:
    """The program with operands of paddings in the blocks of their results: rows that the axes of
    the result do not divide are padded to what they divide, before they move.
    """
    program = inside(program, _padded_to_blocks)
    eqns: list[Equation] = []
    for eqn in program.eqns:
        if eqn.op is pad_p:
            (x, fill), t = eqn.invars, eqn.outvars[0].aval
            more = [-n % tile_count(t.mesh, axes) if not apart else 0 for n, axes, (
                _, _, apart) in zip(x.aval.shape, t.entries, eqn.params["padding_config"],
                                      strict=True)]
            if any(more):
                shape = tuple([n + k for n, k in zip(x.aval.shape, more, strict=True)])
                blocks = Var(x.aval.update(shape=shape))
                config = tuple([(0, k, 0) for k in more])
                eqns.append(eqn.replace(invars=(x, fill), outvars=(blocks,),
                                        params={"padding_config": config}))
                eqn = eqn.replace(invars=(blocks, fill), params={"padding_config": tuple(
                    [(low, high - k, apart) for (low, high, apart), k in zip(
                        eqn.params["padding_config"], more, strict=True)])})
        eqns.append(eqn)
    return program.replace(eqns=eqns) if len(eqns) > len(program.eqns) else program


def _is_whole(eqn: Equation) -> bool:
    """Does XLA never split it? Nor a convolution in groups of several channels."""
    return WHOLE_IN_XLA in eqn.op.facts or (eqn.params.get("feature_group_count", 1) > 1 and (
        eqn.invars[1].aval.shape[eqn.params["dimension_numbers"].rhs_spec[1]] > 1))


def _in_steps(program: Program) -> Program:
    """The program with a reshard for each step; a constant is made in the wanted layout. What was
    cut out of rows that were looked up is not gathered again, since these are still there.
    """
    program = inside(program, _in_steps)
    made: dict[Atom, Equation] = {v: eqn for eqn in program.eqns for v in eqn.outvars}
    eqns: list[Equation] = []
    larger: dict[Atom, tuple[Atom, ...]] = {}       # what a value was cut out of
    same: dict[Atom, Atom] = {}
    for eqn in program.eqns:
        eqn = eqn.replace(invars=[same.get(a, a) for a in eqn.invars])
        if eqn.op is not reshard_p:
            eqns.append(eqn)
            continue
        (source,), (result,) = eqn.invars, eqn.outvars
        found = [v for v in larger.get(source, ()) if v.aval.sharding == result.aval.sharding]
        if found:
            same[result] = found[0]
            continue
        maker = made.get(source)
        if maker is not None and maker.op is gather_p and source.aval.sharding.spec.unreduced:
            larger[source] = ()
        for step in _steps_of(eqn, maker):
            eqns.append(step)
            (now,), (after,) = step.invars, step.outvars
            if now in larger and _is_cut(now.aval.entries, after.aval.entries):
                larger[after] = (*larger[now], now)
    return program.replace(eqns=eqns, outvars=[same.get(a, a) for a in program.outvars])


def _steps_of(eqn: Equation, maker: Equation | None) -> Iterator[Equation]:
    """A reshard as those that XLA makes, one after the other; a constant is rather made again.
    maker: the equation of the operand.
    """
    (now,), (result,) = eqn.invars, eqn.outvars
    target = result.aval
    if maker is not None and REPEATS in maker.op.facts and not maker.invars[0].aval.shape:
        yield maker.replace(outvars=(result,))
        return
    if not eqn.location.known and maker is not None:
        eqn = eqn.replace(location=maker.location)
    types = [*_intermediate_types(now.aval, target, maker), target]
    for aval in types:
        after = result if aval is target else Var(aval)
        yield eqn.replace(invars=(now,), outvars=(after,),
                          params={**eqn.params, "dst_sharding": aval.sharding})
        now = after


def _intermediate_types(source: ArrayType, target: ArrayType, maker: Equation | None
                ) -> Iterator[ArrayType]:
    """The types between the two ends."""
    mesh, layout = target.mesh, source.entries
    pending, left = source.sharding.spec.unreduced, target.sharding.spec.unreduced
    if left - pending or target.sharding.spec.reduced or source.sharding.spec.reduced:
        return
    if pending != left:
        cut = _cut(layout, target.entries, pending) if maker is not None else layout
        rest = pending.difference(*cut)
        is_cut_product = maker is not None and is_product(maker) and cut != layout
        if rest and is_cut_product and rest >= {*mesh.axis_names}.difference(*target.entries):
            yield typed(target, mesh, layout, rest)         # copies of the result are summed last
            yield typed(target, mesh, cut, rest)
            layout, pending = cut, rest
        sums = [] if maker is None or maker.op.subprograms or not left.isdisjoint(pending) else [
            axes for axes in _summed(maker) if pending.issuperset(axes)]
        if sums and is_cut_product and not any(layout):
            sums = _by_result(cut, sums)
        for axes in sums[:-1]:
            pending = pending - {*axes}
            yield typed(target, mesh, layout, pending)
        if layout == target.entries:
            return
        yield typed(target, mesh, layout, left)
    for entries in steps(mesh, layout, target.entries)[:-1]:
        if all([n % tile_count(mesh, axes) == 0
                for n, axes in zip(target.shape, entries, strict=True)]):      # XLA would pad
            yield typed(target, mesh, entries, left)


def _by_result(result: Entries, sums: Sequence[Axes]) -> list[Axes]:
    """The axes over which a product sums, in the order in which XLA does: those that each dimension
    of the result is cut by, the last one first, then others.
    """
    split = [axes for axes in reversed(result) if axes]
    used = {a for axes in split for a in axes}
    rest = [tuple([a for a in axes if a not in used]) for axes in sums]
    return [*split, *[axes for axes in rest if axes]]


def _summed(maker: Equation) -> list[tuple[str, ...]]:
    """For each dimension the axes over which an equation sums, the last dimension first; then those
    of all dimensions in which rows of neighbours are taken, at once. In groups all are.
    """
    found = [(factor.reach > 1, axes) for factor, axes in _axes_of(maker)
             if factor.leaves_sum and axes]
    if any([maker.params.get(count, 1) > 1 for count in _GROUPS]):
        return []
    beside = dict.fromkeys([axes for reaches, axes in found if reaches])
    alone = dict.fromkeys([axes for reaches, axes in reversed(found) if not reaches])
    return [*alone, *([sum(beside, ())] if beside else [])]


def _axes_of(maker: Equation) -> Iterator:
    info = rule_info(maker.instance.rule(*maker.types))
    for f, factor in enumerate(info.factors):
        for t, d, _ in info.positions[f]:
            if t < info.operands:
                yield factor, maker.invars[t].aval.entries[d]


def _is_cut(have: Entries, want: Entries) -> bool:
    """Has every dimension at least the axes that it had?"""
    return all([b[:len(a)] == a for a, b in zip(have, want, strict=True)])


def _cut(have: Entries, want: Entries, axes: frozenset[str]) -> Entries:
    """The wanted layout as far as it is the other one cut by these axes."""
    return tuple([b if b[:len(a)] == a and axes.issuperset(b[len(a):]) else a
                  for a, b in zip(have, want, strict=True)])
