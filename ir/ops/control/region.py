"""Ops that hold programs over whole values: which values inside and outside share a layout.

`scan`, `while` and `cond` run programs: an operand, the body's parameter, the body's result and the
op's result can be one value. `region=` of `defop` says this once per op, as groups of variables
that propagation, layout choice and lowering read.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from ...support.named_tuple import NamedTuple

if TYPE_CHECKING:
    from ...program import Atom, Program, Var


class Slot(NamedTuple):
    """One value of a region: where it enters, what the programs call it, where it comes out.

    operand, result: position among the equation's operands and results, or -1. inputs, outputs:
    (program, position) among the parameters and results of the region's programs. stacked: outside
    it has one more dimension in front, over which the region iterates.
    """
    operand: int = -1
    inputs: tuple[tuple[int, int], ...] = ()
    outputs: tuple[tuple[int, int], ...] = ()
    result: int = -1
    stacked: bool = False


class Region(NamedTuple):
    """What an equation runs.

    programs: (param, position in it or -1 where it is one program, program). slots: its values.
    trips: how often the programs run, None where that is decided as they run. predicate: what
    decides what runs next, as (program, result of it), or (-1, operand of the equation).
    """
    programs: tuple[tuple[str, int, Program], ...]
    slots: tuple[Slot, ...]
    trips: int | None = 1
    predicate: tuple[int, int] | None = None

    def body_atoms(self, slot: Slot) -> tuple[Atom, ...]:
        """What the programs call the value: their parameters, then their results."""
        programs = self.programs
        return (*[programs[p][2].invars[i] for p, i in slot.inputs],
                *[programs[p][2].outvars[i] for p, i in slot.outputs])

    def invariants(self, program: Program) -> frozenset[Var]:
        """The parameters of one of the programs that are the same however often it runs."""
        return frozenset([program.invars[i] for slot in self.slots
                          if not slot.stacked and not slot.outputs
                          for p, i in slot.inputs if self.programs[p][2] is program])
