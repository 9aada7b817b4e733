"""Why values change their layout where programs meet, and where in the user's code.

Such a change has no equation of its own to speak for it: a result leaves in another layout than the
last equation made it in, and an operand of a loop or branch enters its body. The reasons name the
result, or the loop, and stand beside the reshard in dumps and explanations.
"""
from __future__ import annotations

from ...ir import reasons as say
from ...ir.program import Atom, Equation, Program
from ...ir.reasons import Reason
from ...ir.source.location import UNKNOWN, Location
from ...ir.spec import PartitionSpec, spec_from_entries
from ...ir.support.caches import in_memo

CAPTURED_USES: Reason = (say.CAPTURED(),)


def asked_reason(program: Program, i: int, spec: PartitionSpec | None) -> Reason:
    """Why result i leaves in another layout than it is computed in."""
    if spec is None:
        return (say.DECIDED(),)
    names = program.result_names
    name = names[i] if i < len(names) and names[i] else f"[{i}]"
    entries = spec.entries
    while entries and entries[-1] == ():
        entries = entries[:-1]
    whole = spec_from_entries(entries, spec.unreduced, spec.reduced)
    which = "the result" if len(program.outvars) == 1 else f"result {name}"
    return (say.RESULT_ASKED(which, str(whole)),)


def layout_reason(eqn: Equation) -> Reason:
    """Why an operand of a loop or branch is moved."""
    return (say.KEEPS(eqn.op.name, say.MOVED),)


def slices_reason(eqn: Equation) -> Reason:
    """Why each slice of an operand is moved."""
    return (say.SLICES(eqn.op.name),)


def defined_at(program: Program, atom: Atom) -> Location:
    """The location of the equation that binds a result (the last one, if it is a parameter)."""
    places = _places(program)
    if atom in places:
        return places[atom]
    return program.eqns[-1].location if program.eqns else UNKNOWN


@in_memo
def _places(program: Program) -> dict[Atom, Location]:
    """By value, where the equation that computes it is written."""
    return {v: e.location for e in program.eqns for v in e.outvars}
