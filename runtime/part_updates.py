"""Arrays that are changed in part on some devices, or not at all: only the part is chosen.

`where(here, dynamic_update_slice(x, part, i), x)`, as stages of a pipeline write it, copies all of
`x` twice. It is `dynamic_update_slice(x, where(here, part, x[i]), i)`, which changes `x` in place.
"""
from __future__ import annotations

from ..ir.ops.dynamic_slicing import dynamic_slice_p, dynamic_update_slice_p
from ..ir.program import Equation, Var
from .alone import makers
from .flatten import FlatProgram, needed


def choose_parts(flat: FlatProgram) -> None:
    """Choose, in the program, between parts of arrays where it chooses between the arrays."""
    made = makers([e for e in flat.eqns if e.op is dynamic_update_slice_p])
    found: list[Equation] = []
    for eqn in flat.eqns:
        if eqn.op.name == "select_n" and len(eqn.invars) == 3 and not eqn.invars[0].aval.shape:
            which, *cases = eqn.invars
            for k in (0, 1):
                update = made.get(cases[k])         # type: ignore[call-overload]
                if update is None or update.invars[0] is not cases[1 - k]:
                    continue
                x, part, *starts = update.invars
                if 2 * part.aval.size > x.aval.size:
                    continue
                before, chosen = Var(part.aval), Var(part.aval)
                both = (part, before) if k == 0 else (before, part)
                found += [
                    Equation(dynamic_slice_p, (x, *starts), (before,),
                             {"slice_sizes": part.aval.shape}, eqn.location),
                    eqn.on((which, *both), (chosen,)),
                    update.on((x, chosen, *starts), eqn.outvars)]
                break
            else:
                found.append(eqn)
        else:
            found.append(eqn)
    if len(found) != len(flat.eqns):
        flat.rewrite(needed(found, flat.outvars))
