"""Loops and branches of the simulated executor: bodies are planned once, and run as plans.

What a loop carries has one layout throughout, found by planning the body until its results have the
layouts of its operands; so an iteration is the body's calls and nothing else. A predicate that is
the same on all devices is a Python bool. Where it differs (in a shard_map), all devices compute and
those on which it is false keep their old values; a *mask* of the active devices is passed on to
loops and branches inside, so that a finished device neither prolongs a loop nor is waited for.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.axes import MeshAtoms
from ...ir.kernels.key_data import storage_dtype
from ...ir.ops.control.loop_operands import scan_operands, while_operands
from ...ir.program import Equation, Program
from ..layout import Atoms, Layout, array_shape
from ..masks import MASK, guard, mask_dims, outer_mask, selected
from ..plans.plan import LoopBody, Plan
from ..rewrites.pipeline import run_execution_passes
from .device_sums import NONE
from .scanning import Arrays, scan_runner, while_runner
from .workspace import Value


class PlannedBody:
    """A loop body or branch, planned for operands in given layouts.

    mask: the axes over which a predicate differs, so that only some devices run it; the plan then
    takes the mask as first argument. sums: the axes over which each result is summed. results: its
    values, in the layouts in which they were computed.
    """

    def __init__(self, p: Any, program: Program, layouts: Sequence[Layout],
                 uniform: Sequence[tuple[bool, ...]], mask: Atoms, predicate: Equation | None,
                 sums: Sequence[frozenset[str]]) -> None:
        program = run_execution_passes(program)
        self.planner = q = p.nested(program)
        if mask:
            q.mask, q.predicate = Value(MASK, Layout(mask, ()), q.plan.input()), predicate
            check = guard(program, p.atoms, mask, predicate)
            if check is not None:
                q.plan.call_several(check, [q.mask.slot], 0)
        for var, layout, same in zip(program.invars, layouts, uniform, strict=True):
            q.at[var] = Value(var.aval, layout, q.plan.input(), same)
        q.plan_equations(sums)
        self.results: list[Value] = [q.value_of(a) for a in program.outvars]
        if sums:
            self.results = [q.summed(x, axes) if axes else x
                            for x, axes in zip(self.results, sums, strict=True)]

    @staticmethod
    def of(p: Any, program: Program, operands: Sequence[Value], layouts: Sequence[Layout],
           mask: Atoms, predicate: Equation | None, fixed: int | None = None, trial: bool = False,
           sums: Sequence[frozenset[str]] = ()) -> PlannedBody:
        """The body for these operands, planned anew unless it was before.

        fixed: how many operands come first that are the same in all iterations; all if None.
        trial: plan it only to see which layouts it prefers; carries may then count as uniform, as
        they are in the first iteration.

        A loop is planned several times until the layouts of its carry have settled, and each time
        the loops inside: without this memory, the work would double with each level of nesting.
        """
        count = len(operands) if trial or fixed is None else fixed
        uniform = tuple([x.uniform if trial or layout is x.layout and i < count else ()
                         for i, (x, layout) in enumerate(zip(operands, layouts, strict=True))])
        key = (program, tuple(layouts), uniform, mask, predicate, tuple(sums))
        if key not in p.planned_bodies:
            p.planned_bodies[key] = PlannedBody(p, *key)
        return p.planned_bodies[key]

    def finish(self, layouts: Sequence[Layout]) -> Plan:
        """The plan that gives its results in these layouts."""
        return self.planner.plan.finish(self.planner.in_layouts(self.results, layouts))

    def finish_loop(self, layouts: Sequence[Layout], fixed: int, carried: int) -> LoopBody:
        """The plan of a loop's body. fixed: how many operands come first, the same in all
        iterations. carried: how many of the next are results of the iteration before.
        """
        plan = self.planner.plan
        first = fixed + (self.planner.mask is not None)
        return plan.finish_loop(self.planner.in_layouts(self.results, layouts),
                                plan.inputs[first:first + carried])


def plain(layout: Layout) -> Layout:
    return Layout(layout.stack, layout.split)


def common_layout(have: Layout, got: Layout, atoms: MeshAtoms) -> Layout:
    """The layout that arrays in either of these are converted to: the axes of both stacked."""
    if got.atoms <= have.atoms:
        return have
    if have.atoms <= got.atoms:
        return got
    return Layout(atoms.sort({*have.stack, *(got.atoms - have.atoms)}), have.split, have.summed)


def stacked(layout: Layout, axes: Atoms, atoms: MeshAtoms) -> Layout:
    """The layout with these axes stacked."""
    rest = layout.without(set(axes))
    return Layout(atoms.sort({*rest.stack, *axes}), rest.split)


def _next_carry_layouts(layouts: list[Layout], made: Sequence[Layout], atoms: MeshAtoms, first: bool
             ) -> list[Layout]:
    """The layouts of a carry to try next, planned in `layouts` and come back in `made`.

    The first time, an arrangement that the body prefers is adopted: one copy before the loop
    instead of one in each iteration.
    """
    return [b if first and a.atoms == b.atoms else common_layout(a, b, atoms)
            for a, b in zip(layouts, made, strict=True)]


# -- scan ------------------------------------------------------------------------------------------

def plan_scan(p: Any, eqn: Equation) -> None:
    """Append a scan: one call, which runs the plan of the body for each item."""
    params, atoms = eqn.params, p.atoms
    (nc, nk), length = scan_operands(params), params["length"]
    operands = [p.value_of(a) for a in eqn.invars]
    mask, predicate, mask_slot = outer_mask(p)
    fixed = [x.layout for x in operands[:nc]]
    whole, items, depths = [], [], []
    for x in operands[nc + nk:]:
        stack = atoms.sort({*x.layout.stack, *x.layout.split[0]})
        whole.append(p.view(x, stack, ((), *x.layout.split[1:])))
        items.append(Layout(stack, x.layout.split[1:]))
        depths.append(len(stack))
    sums = [p.deferred.get(v, {}).get("sum", NONE) for v in eqn.outvars]
    for i, axes in enumerate(sums[:nk], nc):
        operands[i] = p.summed(operands[i], axes)
    layouts = [x.layout for x in operands[nc:nc + nk]]
    first = True
    while True:
        trial = first and any(any(x.uniform) for x in operands[nc:nc + nk])
        planned = PlannedBody.of(p, params["jaxpr"], operands, [*fixed, *layouts, *items],
                                 mask, predicate, nc, trial, sums)
        grown = _next_carry_layouts(layouts, [r.layout for r in planned.results[:nk]], atoms, first)
        if grown == layouts and not trial:
            break
        layouts, first = grown, False
    outs = [r.layout for r in planned.results[nk:]]
    body = planned.finish_loop([*layouts, *outs], nc, nk)
    made = [Layout(t.stack, ((), *t.split), t.summed) for t in outs]
    stacks = [(array_shape(t, v.aval.shape, atoms.size), storage_dtype(v.aval.dtype), len(t.stack))
              for t, v in zip(made, eqn.outvars[nk:], strict=True)]
    shifted = [(c, a, b) for c, a, b in _carries_stacked_twice(planned, nc, nk)
               if outs[a] == outs[b] and stacks[a] == stacks[b] and not outs[a].stack]
    run = scan_runner(body, len(mask_slot) + nc, nk, depths, length, params["reverse"], stacks,
                      shifted)
    p.bind_several(eqn, run, [*mask_slot, *(x.slot for x in operands[:nc]),
                              *p.in_layouts(operands[nc:nc + nk], layouts), *whole],
                   [*layouts, *made])


def _carries_stacked_twice(planned: PlannedBody, nc: int, nk: int) -> list[tuple[int, int, int]]:
    """(c, a, b) for stacked results a and b that are carry c before and after each iteration."""
    program = planned.planner.program
    carries, results = program.invars[nc:nc + nk], program.outvars[nk:]
    found = []
    for c, after in enumerate(program.outvars[:nk]):
        if carries[c] in results and after in results and after is not carries[c]:
            found.append((c, results.index(carries[c]), results.index(after)))
    taken: set[int] = set()
    return [f for f in found if taken.isdisjoint(f[1:]) and not taken.update(f[1:])]


# -- while -----------------------------------------------------------------------------------------

def plan_while(p: Any, eqn: Equation) -> None:
    """Append a while loop: one call, which runs the plans of test and body in turn."""
    params, atoms = eqn.params, p.atoms
    nt, nb = while_operands(params)
    operands = [p.value_of(a) for a in eqn.invars]
    outer, predicate, mask_slot = outer_mask(p)
    fixed = [x.layout for x in operands[:nt + nb]]
    layouts = [plain(x.layout) for x in operands[nt + nb:]]
    mask: Atoms = outer
    splits = False
    first = True
    while True:
        blamed = eqn if splits else predicate
        test = PlannedBody.of(p, params["cond_jaxpr"], [*operands[:nt], *operands[nt + nb:]],
                              [*fixed[:nt], *layouts], mask, blamed, nt)
        body = PlannedBody.of(p, params["body_jaxpr"], operands[nt:], [*fixed[nt:], *layouts], mask,
                              blamed, nb)
        grown = _next_carry_layouts(layouts, [r.layout for r in body.results], atoms, first)
        deciding = test.results[0].layout.atoms
        if deciding:
            splits = True
            more = atoms.sort({*mask, *deciding})
            grown = [stacked(t, more, atoms) for t in grown]
        else:
            more = mask
        if grown == layouts and more == mask:
            break
        layouts, mask, first = grown, more, False
    ask = test.finish([Layout(mask, ()) if splits else Layout((), ())])
    step = body.finish_loop(layouts, nb, 0 if splits else len(layouts))
    counts = len(mask_slot), nt, nb
    function = while_runner(ask, step, counts)
    if splits:
        function = _differing_while(ask, step, counts, atoms.sizes(mask), [
            mask_dims(mask, t, v.aval.ndim, atoms)
            for t, v in zip(layouts, eqn.outvars, strict=True)])
    mask_slot = [p.view(p.mask, mask, ()) for _ in mask_slot]
    p.bind_several(eqn, function, [*mask_slot, *(x.slot for x in operands[:nt + nb]),
                                   *p.in_layouts(operands[nt + nb:], layouts)], layouts)


def _differing_while(test: Plan, body: LoopBody, counts: tuple[int, int, int],
                     sizes: tuple[int, ...], shapes: Sequence[tuple[int, ...]]
                     ) -> Callable[..., Arrays]:
    """Runs until no device is active; finished ones keep their carry. sizes: of the mask. shapes:
    of the mask beside each part of the carry.
    """
    masks, nt, nb = counts

    def run(*arrays: Any) -> Arrays:
        rest = arrays[masks:]
        active = arrays[0] if masks else np.ones(sizes, np.bool_)
        carry: Arrays = list(rest[nt + nb:])
        while True:
            active = active & test.step([active, *rest[:nt], *carry])[0]
            if not active.any():
                return carry
            new = body.plan.step([active, *rest[nt:nt + nb], *carry])
            carry = selected(active, new, carry, shapes)

    return run


# -- cond ------------------------------------------------------------------------------------------

def plan_cond(p: Any, eqn: Equation) -> None:
    """Append a cond: one call, which runs the plan of each branch that some device takes."""
    atoms = p.atoms
    index, *operands = [p.value_of(a) for a in eqn.invars]
    outer, predicate, mask_slot = outer_mask(p)
    splits = bool(index.layout.atoms)
    mask = atoms.sort({*outer, *index.layout.atoms}) if splits else outer
    planned_bodies = [PlannedBody.of(p, b, operands, [x.layout for x in operands], mask,
                                     eqn if splits else predicate) for b in eqn.params["branches"]]
    layouts = [plain(r.layout) for r in planned_bodies[0].results]
    for planned in planned_bodies[1:]:
        layouts = [common_layout(a, r.layout, atoms)
                   for a, r in zip(layouts, planned.results, strict=True)]
    if splits:
        layouts = [stacked(t, mask, atoms) for t in layouts]
    plans = [planned.finish(layouts) for planned in planned_bodies]
    masks, last = len(mask_slot), len(plans) - 1
    sizes = atoms.sizes(mask)
    shapes = [mask_dims(mask, t, v.aval.ndim, atoms)
              for t, v in zip(layouts, eqn.outvars, strict=True)]

    def one(*arrays: Any) -> Arrays:
        i = min(max(int(arrays[masks]), 0), last)
        return plans[i].step([*arrays[:masks], *arrays[masks + 1:]])

    def each(*arrays: Any) -> Arrays:
        active = arrays[0] if masks else np.ones(sizes, np.bool_)
        branch = np.clip(arrays[masks], 0, last)
        results: Arrays | None = None
        for i, plan in enumerate(plans):
            mine = active & (branch == i)
            if not mine.any() and (results is not None or i < last):
                continue
            new = plan.step([mine, *arrays[masks + 1:]])
            results = new if results is None else selected(mine, new, results, shapes)
        return results or []

    mask_slot = [p.view(p.mask, mask, ()) for _ in mask_slot]
    choice = p.view(index, mask, ()) if splits else index.slot
    p.bind_several(eqn, each if splits else one,
                   [*mask_slot, choice, *(x.slot for x in operands)], layouts)


STRATEGIES = {"scan": plan_scan, "while": plan_while, "cond": plan_cond}
