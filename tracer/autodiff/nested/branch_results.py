"""Results that the branches of a `cond` are given besides their own, for a later equation to read.

The values that each branch adds are put into slots, which are results of all branches: branches
share a slot where their values are of one type, and give zeros for the slots that they do not use.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....ir.op import LinearOperand
from ....ir.ops.derivatives import full_like
from ....ir.program import Program
from ....ir.types import ArrayType
from ..replay import evaluate, stage


def assign_slots(branches: Sequence[tuple[Program, Iterable[int]]]
                 ) -> tuple[list[dict[int, int]], list[ArrayType]]:
    """The slots of the results that branches add, and the types of all slots.

    branches: each with the numbers of these results, for which the first list has the slots.
    """
    found: list[dict[int, int]] = []
    types: list[ArrayType] = []
    for program, added in branches:
        free, slots = list(range(len(types))), dict[int, int]()
        for i in added:
            t = program.outvars[i].aval
            slot = next((k for k in free if types[k] is t), None)
            if slot is None:
                slot = len(types)
                types.append(t)
            else:
                free.remove(slot)
            slots[i] = slot
        found.append(slots)
    return found, types


def with_slots(branch: Program, count: int, slots: Mapping[int, int], types: Sequence[ArrayType]
               ) -> Program:
    """A branch that gives its first `count` results, and then something for every slot.

    slots: by the number of a result, the slot that it is put into. types: of the slots.
    """
    def run(*args: Any) -> list[Any]:
        results = evaluate(branch, args)
        made = {slot: results[i] for i, slot in slots.items()}
        return [*results[:count], *(made[k] if k in made else full_like(LinearOperand(t), 0)
                                    for k, t in enumerate(types))]

    return stage(run, branch.in_avals, branch)
