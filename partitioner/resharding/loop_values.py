"""Which values loops carry, read unchanged, or stack for each other; for resharding."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ...ir.ops.control.region import Region, Slot
from ...ir.program import Atom, Equation, Program, Var
from ...ir.support.named_tuple import NamedTuple
from ..choice.sinking import partial_sum_sets
from ..regions import is_loop, region_of, trips_of


def carried_of(region: Region, p: int) -> dict[int, int]:
    """The results of program p of a loop that may stay partial sums until the loop ends, with the
    number of its iterations, at least one.
    """
    carries = {s.outputs[0][1]: s.inputs[0][1] for s in region.slots
               if s.result >= 0 and not s.stacked and len(s.inputs) == len(s.outputs) == 1
               and s.inputs[0][0] == s.outputs[0][0] == p}
    return dict.fromkeys(_carried_sums(region.programs[p][2], carries), max(1, trips_of(region)))


def _carried_sums(program: Program, carries: Mapping[int, int]) -> Iterator[int]:
    """The results of a loop's body that could be carried as partial sums.

    carries: result -> the parameter it becomes. It must depend on that parameter alone, through
    equations that pass a sum on, as in `total + x`.
    """
    reads: dict[Atom, list[Equation | None]] = {}
    for eqn in program.eqns if carries else ():
        for a in dict.fromkeys(eqn.invars):
            reads.setdefault(a, []).append(eqn)
    for a in program.outvars:
        reads.setdefault(a, []).append(None)
    for k, i in carries.items():
        v = first = program.invars[i]
        while len(readers := reads.get(v, ())) == 1 and (eqn := readers[0]) is not None and any(
                [eqn.invars.index(v) in members for members in partial_sum_sets(eqn)]):
            v = eqn.outvars[0]
        if len(readers) == 1 and readers[0] is None and first is not v is program.outvars[k]:
            yield k


def constants_of(region: Region, eqn: Equation, repeats: Mapping[Any, int]) -> dict[Var, int]:
    """For each parameter that a loop does not change, how often it is read in all iterations.
    repeats: the same for values around the loop.
    """
    trips = trips_of(region)
    if trips < 2:
        return {}
    return {region.programs[p][2].invars[i]: trips * repeats.get(eqn.invars[slot.operand], 1)
            for slot in region.slots if slot.result < 0 and not slot.stacked
            for p, i in slot.inputs}


class Stack(NamedTuple):
    """An array that one loop stacks and another one iterates over, with the slots of both."""
    maker: Equation
    made: Slot
    reader: Equation
    read: Slot


def stacks_between_loops(program: Program) -> dict[Atom, Stack]:
    """The arrays that loops of a program stack for another loop alone."""
    loops = list(filter(is_loop, program.eqns))
    if len(loops) < 2:
        return {}
    made: dict[Atom, tuple[Equation, Slot]] = {}
    found: dict[Atom, Stack] = {}
    for eqn in loops:
        for slot in region_of(eqn).slots:
            if slot.stacked and slot.result >= 0:
                stack: Atom = eqn.outvars[slot.result]
                if not stack.aval.entries[0] and not stack.aval.sharding.spec.unreduced:
                    made[stack] = eqn, slot
            elif slot.stacked and eqn.invars[slot.operand] in made:
                stack = eqn.invars[slot.operand]
                found[stack] = Stack(*made[stack], eqn, slot)
    read = Counter(program.outvars)
    for eqn in program.eqns if found else ():
        read.update(eqn.invars)
    return {stack: ends for stack, ends in found.items() if read[stack] == 1}
