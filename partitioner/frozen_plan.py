"""The mark of a frozen plan in a program: constraints whose reason is `THE_PLAN`.

report/frozen/ writes them; a program that has them is partitioned as they say, and no other plan is
compared with it.
"""
from __future__ import annotations

from ..ir.program import Program
from ..ir.reasons import FROZEN, Reason

THE_PLAN: Reason = (FROZEN(),)


def keeps_plan(program: Program) -> bool:
    """Does a traced program carry the decisions of a frozen plan?"""
    return "sharding_constraint" in program.op_names and any(
        [eqn.reason == THE_PLAN for eqn in program.eqns])
