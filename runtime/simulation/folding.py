"""Which values need never exist per device, because only their sum over devices is looked at.

Before a plan is made, two sweeps over the program:

- forward, over which axes each value differs (`variation`): from the arguments and from the ops
  that tell devices apart, never from what types claim;
- backward, over which axes it is *folded* (`folds`): every use of the value either sums it over
  the axis (psum, reduce_scatter) or is an op that is linear in it, whose result is folded too. A
  value that is a result of the program, or that anything else looks at, is not.

A contraction whose contracted dimension is in place over a folded axis is then one product over the
whole dimension, and the N partial results are never made. Nothing here applies unless the program
contains the collective: where it was forgotten, devices keep their own wrong values.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.op import Op
from ...ir.ops.control.loops_and_branches import scan_p
from ...ir.program import Atom, Equation, Program, Var
from ...ir.support.caches import cached
from ...ir.types import ArrayType
from ..axes import MeshAtoms, group_of
from ..rewrites.inline_calls import every_equation, telling
from ..rewrites.pipeline import prepared

SUMS = frozenset({"psum", "psum_invariant", "unreduced_psum"})
SCATTERS = frozenset({"reduce_scatter", "unreduced_reduce_scatter"})
GATHERS = frozenset({"all_gather", "all_gather_invariant", "all_gather_reduced"})
EXTREMES = {"pmax": "max", "pmin": "min"}
OTHERS = frozenset({"pprod", "pand", "por", "pxor"})     # also the same on all members, not folded

NONE: frozenset[str] = frozenset()


def variation(program: Program, known: dict[Var, frozenset[str]], atoms: MeshAtoms
              ) -> dict[Var, frozenset[str]]:
    """Over which atoms each value differs, given those of parameters and constants."""
    at, apart = known, telling(program.ops)
    for eqn in program.eqns:
        found = NONE
        for v in eqn.invars:
            if v in at:
                more = at[v]  # type: ignore[index]
                if more is not found:
                    found = found | more if found else more
        if eqn.op not in apart:
            for v in eqn.outvars:
                at[v] = found
            continue
        name = eqn.op.name
        if name == "axis_index" or eqn.op.collective is not None:
            group = group_of(eqn, atoms)
            whole = eqn.params.get("axis_index_groups") is None
            if name == "retile":
                found -= group
                group = frozenset(atoms.of_all(a for dim in eqn.params["target"] for a in dim))
            if whole and (name in SUMS or name in EXTREMES or name in GATHERS or name in OTHERS):
                found -= group
            else:
                found |= group
        elif eqn.op.effect:                   # each place has its own results
            found |= frozenset(atoms.of_all(eqn.params.get("axes", ())))
        elif eqn.op.subprograms:              # at most what the equations inside tell apart
            for inner in every_equation((eqn,)):
                if inner.op.name == "axis_index" or inner.op.collective is not None:
                    found |= group_of(inner, atoms)
                elif inner.op.effect:
                    found |= frozenset(atoms.of_all(inner.params.get("axes", ())))
        for v in eqn.outvars:
            at[v] = found
    return at


@cached(1024)
def may_sum(ops: frozenset[Op]) -> bool:
    """May an equation of one of these ops be `summed`? Else no value is folded for its sake."""
    return any([op.name in SUMS or op.name in SCATTERS for op in ops])


def summed(eqn: Equation, atoms: MeshAtoms) -> frozenset[str]:
    """The axes over which the equation sums its operand, if it does."""
    if eqn.params.get("axis_index_groups") is not None:
        return NONE
    return group_of(eqn, atoms) if eqn.op.name in SUMS or eqn.op.name in SCATTERS else NONE


def linear_set(op: Op, eqn: Equation, members: frozenset[int]) -> frozenset[int] | None:
    """The operands in which the equation is jointly linear that include `members`, if any.

    A conversion between kinds of numbers is linear only up to rounding to integers, hence not; nor
    is one to a wider float, since the sum would be rounded to the narrower one first.
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
            if len({_kind(t) for t in (*sources, *results)}) > 1:
                return None
            finest = min(t.dtype.itemsize for t in sources)
            coarse = all(t.dtype.itemsize <= finest for t in results)
            return frozenset(group) if coarse else None
    return None


def _kind(t: ArrayType) -> str:
    return _kind_of_dtype(t.dtype)


@cached(1024, "kinds of dtypes")
def _kind_of_dtype(dtype: Any) -> str:
    name = getattr(dtype, "name", "")
    if "float" in name or "complex" in name:
        return "inexact"
    return name


def folds(eqns: Sequence[Equation], outvars: Sequence[Atom],
          varies: Mapping[Var, frozenset[str]], atoms: MeshAtoms,
          sums: Sequence[frozenset[str]] = (), loops: bool = True) -> dict[Var, frozenset[str]]:
    """For each value that has uses: over which axes it may be held folded.

    sums: for each result of the program, if it is a loop's body, the axes over which its sum is
    wanted. loops: whether what loops carry and stack may be folded. Values that are not in the
    result may not be folded.
    """
    found: dict[Var, frozenset[str]] = {}
    for v, axes in zip(outvars, sums or (NONE,) * len(outvars), strict=True):
        if isinstance(v, Var):
            found[v] = axes & found.get(v, axes)
    for eqn in reversed(eqns):
        if eqn.op is scan_p:
            uses = _scan_uses(eqn, found, varies, atoms, loops)
        else:
            if eqn.op.collective is None:
                for v in eqn.outvars:
                    if v in found and found[v]:
                        break
                else:
                    for a in eqn.invars:
                        if type(a) is Var:
                            found[a] = NONE
                    continue
            uses = _uses(eqn, found, varies, atoms)
        for v, axes in zip(eqn.invars, uses, strict=True):
            if isinstance(v, Var):
                found[v] = axes & found[v] if v in found else axes
    return found


def _scan_uses(eqn: Equation, found: dict[Var, frozenset[str]],
               varies: Mapping[Var, frozenset[str]], atoms: MeshAtoms, loops: bool
               ) -> list[frozenset[str]]:
    """What a scan's results and carry may be folded over: the body must be linear in the carry.

    Enters for its results what remains of it.
    """
    params = eqn.params
    nc, nk = params["num_consts"], params["num_carry"]
    sums = [found.get(v, NONE) if loops else NONE for v in eqn.outvars]
    if any(sums):
        program = prepared(params["jaxpr"])
        known = {v: NONE for v, _ in program.consts}
        for i, (v, x) in enumerate(zip(program.invars, eqn.invars, strict=True)):
            known[v] = varies[x] if isinstance(x, Var) else NONE
            if nc <= i < nc + nk:
                known[v] |= varies[eqn.outvars[i - nc]]
        inside = variation(program, known, atoms)
        carried = program.invars[nc:nc + nk]
        while True:
            inner = folds(program.eqns, program.outvars, inside, atoms, sums)
            left = [axes & inner.get(v, axes) for v, axes in zip(carried, sums[:nk], strict=True)]
            if left == sums[:nk]:
                break
            sums[:nk] = left
    found.update(zip(eqn.outvars, sums, strict=True))
    return [sums[i - nc] if nc <= i < nc + nk else NONE for i in range(len(eqn.invars))]


def _uses(eqn: Equation, found: Mapping[Var, frozenset[str]], varies: Mapping[Var, frozenset[str]],
          atoms: MeshAtoms) -> list[frozenset[str]]:
    """For each operand: the axes over which this use allows it to be folded."""
    through = common_folds(eqn.outvars, found)
    over = NONE
    if eqn.op.collective is not None:
        over = summed(eqn, atoms)
        through -= group_of(eqn, atoms)
    out: list[frozenset[str]] = []
    for i in range(len(eqn.invars)):
        axes = NONE
        linear = linear_set(eqn.op, eqn, frozenset((i,))) if through else None
        if linear is not None:
            axes = through.difference(*[varies[v] for j, v in enumerate(eqn.invars)
                                        if j not in linear and isinstance(v, Var)])
        out.append(axes | over)
    return out


def common_folds(results: Sequence[Var], found: Mapping[Var, frozenset[str]]) -> frozenset[str]:
    """The axes over which all results of an equation may be folded."""
    first, *others = [found.get(v, NONE) for v in results] or [NONE]
    return first.intersection(*others)
