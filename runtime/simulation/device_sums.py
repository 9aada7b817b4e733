"""Deferred device sums: a value that is only read summed over devices is stored as that sum.

Two sweeps over the program, before a plan is made:

- forward, over which axes each value differs (`varying_axes`): from the arguments and from the ops
  that tell devices apart, never from what types claim;
- backward, over which axes it is *summed* (`deferrable_sums`): every reader either combines it over
  the axis (psum, reduce_scatter, pmax) or is linear in it (for maxima: only moves its elements)
  with a result that is summed too. A value that is a result of the program, or that anything
  else reads, is not summed.

A contraction whose contracted dimension is in place over a summed axis is then a single product
over the whole dimension, and the N partial results are never computed. Folding requires that the
program contains the collective; where it was forgotten, devices keep their own, wrong values.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.axes import MeshAtoms
from ...ir.facts import POSITION, VIEW
from ...ir.op import Op
from ...ir.ops.control.loop_operands import scan_operands
from ...ir.ops.control.loops_and_branches import scan_p
from ...ir.program import Atom, Equation, Program, Var
from ...ir.support.caches import cached
from ...ir.types import ArrayType
from ..rewrites.pipeline import run_execution_passes

DEFERRABLE = ("sum", "max", "min")      # operators by which values are combined over devices
LOGICAL = {"max": "or", "min": "and"}   # their names for booleans

NONE: frozenset[str] = frozenset()
DeferredSums = dict[str, frozenset[str]]           # operator ("sum", "max", "min", ...) to axes
NO_DEFERRED_SUMS: DeferredSums = {}


@cached(1024, "the ops that tell devices apart, by sets of ops")
def device_dependent_ops(ops: frozenset[Op]) -> frozenset[Op]:
    """The ops whose equations may make values differ between devices, or combine them."""
    return frozenset([op for op in ops if op.collective is not None or op.effect
                      or op.subprograms or POSITION in op.facts])


def varying_axes(program: Program, known: dict[Var, frozenset[str]], atoms: MeshAtoms
              ) -> dict[Var, frozenset[str]]:
    """Over which atoms each value differs. known: of parameters and constants; extended."""
    at, apart = known, device_dependent_ops(program.ops)
    for eqn in program.eqns:
        found = NONE.union(*[at[v] for v in eqn.invars if v in at])     # type: ignore[index]
        if eqn.op not in apart:
            for v in eqn.outvars:
                at[v] = found
            continue
        collective, group = eqn.op.collective, frozenset(atoms.of_all(eqn.axes))
        if collective is not None and collective.kind == "retile":
            found -= group
            group = frozenset(atoms.of_all([a for dim in eqn.params["target"] for a in dim]))
        if collective is not None and collective.kind in ("all-reduce", "all-gather") and (
                eqn.params.get("axis_index_groups") is None):
            found -= group
        else:                                 # of programs inside an upper bound
            found = found.union(group, *[atoms.of_all(nested.axes) for nested in eqn.walk()]
                                if eqn.op.subprograms else ())
        for v in eqn.outvars:
            at[v] = found
    return at


@cached(1024)
def has_reductions(ops: frozenset[Op]) -> bool:
    """Can an equation of one of these ops be `combined`? Without any, no sum is deferred."""
    return any([op.collective is not None and op.collective.reduces in DEFERRABLE for op in ops])


def combined(eqn: Equation, atoms: MeshAtoms) -> tuple[str, frozenset[str]] | None:
    """(operator, axes) if the equation combines its operand over axes with that operator."""
    collective = eqn.op.collective
    if collective is None or collective.reduces not in DEFERRABLE or (
            eqn.params.get("axis_index_groups") is not None):
        return None
    return collective.reduces, frozenset(atoms.of_all(eqn.axes))


def linear_set(op: Op, eqn: Equation, members: frozenset[int]) -> frozenset[int] | None:
    """The operands, `members` among them, in which the equation is jointly linear, if any.

    Conversions to integers are not linear, since they round; nor are those to a wider float, since
    the sum would be rounded to the narrower one first.
    """
    if not op.linear:
        return None
    known = eqn.instance.table(linear_set)
    key = (eqn.types, members)
    if key not in known:
        known[key] = _linear_set(op, *eqn.types, eqn.params, members)
    return known[key]


def _linear_set(op: Op, types: tuple[ArrayType, ...], results: tuple[ArrayType, ...],
                params: dict[str, Any], members: frozenset[int]) -> frozenset[int] | None:
    for group in op.linear_sets(len(types), types, params):
        if members <= frozenset(group):
            sources = [types[i] for i in group]
            if len({_kind(t.dtype) for t in (*sources, *results)}) > 1:
                return None
            finest = min(t.dtype.itemsize for t in sources)
            coarse = all(t.dtype.itemsize <= finest for t in results)
            return frozenset(group) if coarse else None
    return None


@cached(1024, "kinds of dtypes")
def _kind(dtype: Any) -> str:
    name = getattr(dtype, "name", "")
    if "float" in name or "complex" in name:
        return "inexact"
    return name


def deferrable_sums(eqns: Sequence[Equation], outvars: Sequence[Atom],
                    varies: Mapping[Var, frozenset[str]], atoms: MeshAtoms,
                    sums: Sequence[frozenset[str]] = (), loops: bool = True
                    ) -> dict[Var, DeferredSums]:
    """For each value the axes over which it may be stored combined, by operator.

    sums: of a loop's body, for each result the axes over which only its sum is wanted. loops:
    whether carries and stacks of loops may be summed. A value that is missing may not be summed.
    """
    found: dict[Var, DeferredSums] = {}
    for v, axes in zip(outvars, sums or (NONE,) * len(outvars), strict=True):
        if isinstance(v, Var):
            found[v] = {"sum": axes & found.get(v, {}).get("sum", axes)} if axes else {}
    for eqn in reversed(eqns):
        if eqn.op is scan_p:
            uses = _scan_uses(eqn, found, varies, atoms, loops)
        else:
            uses = _uses(eqn, found, varies, atoms)
        for v, instance in zip(eqn.invars, uses, strict=True):
            if type(v) is not Var:
                continue
            if v not in found:
                found[v] = instance
            elif found[v]:
                found[v] = {o: axes & instance[o] for o, axes in found[v].items()
                            if o in instance and axes & instance[o]}
    return found


def _scan_uses(eqn: Equation, found: dict[Var, DeferredSums], varies: Mapping[Var, frozenset[str]],
               atoms: MeshAtoms, loops: bool) -> list[DeferredSums]:
    """For each operand of a scan the axes over which it may be summed. The body must be linear in
    the carry. Updates `found` for the results of the scan.
    """
    params = eqn.params
    nc, nk = scan_operands(params)
    sums = [found.get(v, {}).get("sum", NONE) if loops else NONE for v in eqn.outvars]
    if any(sums):
        program = run_execution_passes(params["jaxpr"])
        known = {v: NONE for v, _ in program.consts}
        for i, (v, x) in enumerate(zip(program.invars, eqn.invars, strict=True)):
            known[v] = varies[x] if isinstance(x, Var) else NONE
            if nc <= i < nc + nk:
                known[v] |= varies[eqn.outvars[i - nc]]
        inside = varying_axes(program, known, atoms)
        carried = program.invars[nc:nc + nk]
        while True:
            nested = deferrable_sums(program.eqns, program.outvars, inside, atoms, sums)
            left = [axes & nested.get(v, {"sum": axes}).get("sum", NONE)
                    for v, axes in zip(carried, sums[:nk], strict=True)]
            if left == sums[:nk]:
                break
            sums[:nk] = left
    for v, axes in zip(eqn.outvars, sums, strict=True):
        found[v] = {"sum": axes} if axes else {}
    return [{"sum": sums[i - nc]} if nc <= i < nc + nk and sums[i - nc] else {}
            for i in range(len(eqn.invars))]


def _uses(eqn: Equation, found: Mapping[Var, DeferredSums], varies: Mapping[Var, frozenset[str]],
          atoms: MeshAtoms) -> list[DeferredSums]:
    """For each operand the axes over which this equation allows it to be summed."""
    combines = combined(eqn, atoms) if eqn.op.collective is not None else None
    through: frozenset[str] | None = None
    for v in eqn.outvars:
        own = found[v].get("sum", NONE) if v in found else NONE
        through = own if through is None else through & own
        if not through:
            break
    extremes: DeferredSums = {}
    # moving elements commutes with taking the maximum over devices
    if VIEW in eqn.op.facts and eqn.op.collective is None and eqn.outvars[0] in found:
        extremes = {o: axes for o, axes in found[eqn.outvars[0]].items() if o != "sum"}
    through = through or NONE
    if through and eqn.op.collective is not None:
        through = through.difference(atoms.of_all(eqn.axes))
    if not through and combines is None and not extremes:
        return [NO_DEFERRED_SUMS] * len(eqn.invars)
    out: list[DeferredSums] = []
    for i in range(len(eqn.invars)):
        instance: DeferredSums = {}
        linear = linear_set(eqn.op, eqn, frozenset((i,))) if through else None
        if linear is not None:
            axes = through
            for j, v in enumerate(eqn.invars):
                if j not in linear and isinstance(v, Var):
                    axes -= varies[v]
            if axes:
                instance["sum"] = axes
        if combines is not None:
            operator, axes = combines
            instance[operator] = instance.get(operator, NONE) | axes
            if operator in LOGICAL and eqn.invars[i].aval.dtype == np.bool_:
                instance[LOGICAL[operator]] = axes
        instance.update(extremes)
        out.append(instance)
    return out
