"""Arrays that are changed in part on some devices, or not at all: only the part is chosen.

`where(here, dynamic_update_slice(x, part, i), x)`, as stages of a pipeline write it, copies all of
`x` twice. It is `dynamic_update_slice(x, where(here, part, x[i]), i)`, which changes `x` in place.
"""
from __future__ import annotations

from collections.abc import Mapping

from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.movement.dynamic_slicing import dynamic_slice_p, dynamic_update_slice_p
from ...ir.program import Equation, Program, Var
from .equations import makers
from .inline_calls import needed


def narrow_updates(program: Program) -> Program:
    """Choose between parts of arrays where the program chooses between the arrays."""
    updates = makers([e for e in program.eqns if e.op is dynamic_update_slice_p])
    eqns: list[Equation] = []
    for eqn in program.eqns:
        eqns += _by_parts(eqn, updates) or (eqn,)
    if len(eqns) == len(program.eqns):
        return program
    return program.replace(eqns=needed(eqns, program.outvars))


def _by_parts(eqn: Equation, updates: Mapping[Var, Equation]) -> list[Equation]:
    """Equations that do what this one does, if it chooses between an array and the same updated."""
    if eqn.op is not select_n_p or len(eqn.invars) != 3 or eqn.invars[0].aval.shape:
        return []
    which, *cases = eqn.invars
    for k, case in enumerate(cases):
        update = updates.get(case)          # type: ignore[arg-type]
        if update is None or update.invars[0] is not cases[1 - k]:
            continue
        x, part, *starts = update.invars
        if 2 * part.aval.size <= x.aval.size:
            before, chosen = Var(part.aval), Var(part.aval)
            sizes = {"slice_sizes": part.aval.shape}
            return [Equation(dynamic_slice_p, (x, *starts), (before,), sizes, eqn.location),
                    eqn.on((which, part, before) if k == 0 else (which, before, part), (chosen,)),
                    update.on((x, chosen, *starts), eqn.outvars)]
    return []
