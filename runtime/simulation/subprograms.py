"""Programs inside loops and branches, as planned for operands in given layouts.

A loop plans its body again and again, until the layouts of what it carries have settled; what was
planned once is remembered for all planners of one program.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.program import Equation, Program
from ..calls.call import Call
from ..layout import Atoms, Layout
from ..masks import MASK, guard
from ..plans.plan import Plan
from ..rewrites.inline_calls import every_equation
from ..rewrites.pipeline import prepared
from .scanning import Body
from .workspace import Value


class PlannedBody:
    """A program inside, planned for operands in given layouts.

    mask: the axes over which a predicate lets some devices run it and others not; its plan then has
    the mask as first argument. trial: only to see which layouts the body prefers: what is carried
    may count as uniform, as it is in the first iteration. sums: the axes over which each result is
    folded. results: its values, in the layouts that they were computed in.
    """

    def __init__(self, p: Any, program: Program, operands: Sequence[Value],
                 layouts: Sequence[Layout], mask: Atoms, predicate: Equation | None,
                 trial: bool = False, sums: Sequence[frozenset[str]] = ()) -> None:
        program = prepared(program)
        self.planner = q = p.nested(program)
        if mask:
            q.mask, q.predicate = Value(MASK, Layout(mask, ()), q.plan.input()), predicate
        for var, x, layout in zip(program.invars, operands, layouts, strict=True):
            same = x.uniform if trial or layout is x.layout else ()
            q.at[var] = Value(var.aval, layout, q.plan.input(), same)
        q.plan_equations(sums)
        self.results: list[Value] = [q.value_of(a) for a in program.outvars]
        if sums:
            self.results = [q.folded(x, axes) if axes else x
                            for x, axes in zip(self.results, sums, strict=True)]
        self.guard = guard(program, p.atoms, mask, predicate)

    @staticmethod
    def of(p: Any, program: Program, operands: Sequence[Value], layouts: Sequence[Layout],
           mask: Atoms, predicate: Equation | None, trial: bool = False,
           sums: Sequence[frozenset[str]] = ()) -> PlannedBody:
        """As made by the constructor; the one that was planned so before, if there is one.

        A loop is planned several times until the layouts of what it carries have settled, and each
        time the loops in it: without a memory loops within loops would double the work each.
        """
        uniform = tuple([x.uniform if trial or layout is x.layout else ()
                         for x, layout in zip(operands, layouts, strict=True)])
        key = (program, tuple(layouts), uniform, mask, predicate, tuple(sums))
        found = p.planned_bodies.get(key)
        if found is None:
            found = p.planned_bodies[key] = PlannedBody(
                p, program, operands, layouts, mask, predicate, trial, sums)
        return found

    def finish(self, layouts: Sequence[Layout]) -> Plan:
        """The plan, giving its results in these layouts."""
        return self.planner.plan.finish(self._outputs(layouts))

    def finish_loop(self, layouts: Sequence[Layout], fixed: int, carried: int,
                    wanted: Sequence[int] = ()) -> Body:
        """The plan of a body whose first `fixed` operands are the same in every iteration.

        carried: how many operands follow that are results of the iteration before. wanted: results
        that there is memory for, where they can be written into it.
        """
        plan = self.planner.plan
        masks = 0 if self.planner.mask is None else 1
        first, last = masks, masks + fixed
        made = plan.finish_loop(self._outputs(layouts), plan.inputs[first:last],
                                plan.inputs[last:last + carried], wanted, _runs_again)
        return Body(made.before, made.body, first, last, made.own, made.written)

    def _outputs(self, layouts: Sequence[Layout]) -> list[int]:
        q = self.planner
        return [q.view(x, t.stack, t.split)
                for x, t in zip(self.results, layouts, strict=True)]


def _runs_again(call: Call) -> bool:
    """Must a call run in every iteration, though its operands are the same? If the host sees it."""
    if call.eqn is None:
        return False
    return any(e.op.effect for e in every_equation((call.eqn,)))
