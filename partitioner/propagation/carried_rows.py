"""Splits what loops carry along the dimensions that their iterations keep apart.

`h = tanh(h @ w + x)` with `w` split over the devices gathers or sums `h` in every iteration. Each
row of `h` is a recurrence of its own, though: with the rows split, an iteration exchanges nothing,
and `w` is gathered once, before the loop. Propagation cannot tell which of both takes less time,
since that depends on how often the loop runs. So a plan is made for each, and the two are compared
(plans.py): in the second, carried values start with split rows, as if a constraint asked for it.
"""
from __future__ import annotations

import math

from ...ir.ops.control.region import Slot
from ...ir.program import Atom, Equation, Program
from ...ir.rules.factor import PASS
from ...ir.spec import UNCONSTRAINED
from ...ir.support.disjoint_sets import DisjointSets
from ..factors import rule_info
from ..regions import is_loop, region_of
from .graph import Graph, Root
from .step import Layout

_Dim = tuple[Atom, int]


def split_carried_rows(program: Program, graph: Graph) -> None:
    """Constrain, in the graph of a program, what its loops carry: to as many axes as divide a
    dimension that iterations keep apart. Where a constraint says something else, nothing changes.
    """
    for eqn in program.eqns:
        for _, body in eqn.subprograms():
            split_carried_rows(body, graph)
        if is_loop(eqn):
            _split_carries(eqn, graph)


def _split_carries(eqn: Equation, graph: Graph) -> None:
    """Constrain every carried value of a loop without a layout of its own: of the dimensions that
    the iterations keep apart, the one that most devices can split is split.
    """
    region = region_of(eqn)
    apart = [_Apart(program) for _, _, program in region.programs]
    root = Root(f"the rows that `{eqn.op.name}` keeps apart", eqn.location)
    for slot in region.slots:
        if slot.operand < 0 or slot.stacked or not slot.outputs:
            continue
        tensors = [graph.of(a) for a in region.body_atoms(slot)]
        if min(tensors) < 0 or not graph.asked.keys().isdisjoint(tensors):
            continue
        layout = graph.layouts[tensors[0]]
        splits = {d: _axes(graph, layout, d) for d in range(len(layout.shape))
                  if _is_apart(slot, d, apart)}
        best = max(splits, key=lambda d: math.prod(map(graph.size, splits[d])), default=-1)
        if best >= 0 and splits[best] != layout.entries[best]:
            graph.constrain(tensors[0], [splits[best] if d == best else UNCONSTRAINED
                                         for d in range(len(layout.shape))], root)


def _axes(graph: Graph, layout: Layout, dim: int) -> tuple[str, ...]:
    """The axes of a dimension, with all others that divide it."""
    axes = layout.entries[dim]
    parts = math.prod(map(graph.size, axes))
    for axis in graph.mesh.axis_names if layout.open[dim] else ():
        more = parts * graph.size(axis)
        if axis not in layout.blocked.union(*layout.entries) and layout.shape[dim] % more == 0:
            axes, parts = (*axes, axis), more
    return axes


def _is_apart(slot: Slot, dim: int, apart: list[_Apart]) -> bool:
    """Do the programs of a loop that give a carried value again keep a dimension of it apart?"""
    ends = {p: apart[p].program.outvars[k] for p, k in slot.outputs}
    return all([apart[p].holds((apart[p].program.invars[i], dim), (ends[p], dim))
                for p, i in slot.inputs if p in ends])


class _Apart:
    """Which dimensions of its values a program keeps apart: no equation combines elements of
    different indices.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._classes = DisjointSets[_Dim]()
        mixed: list[_Dim] = []
        for eqn in program.eqns:
            atoms = (*eqn.invars, *eqn.outvars)
            if eqn.op.subprograms or eqn.op.effect:
                mixed += [(a, d) for a in atoms for d in range(a.aval.ndim)]
                continue
            info = rule_info(eqn.instance.rule(*eqn.types))
            same: dict[int, list[_Dim]] = {}
            for a, place in zip(atoms, info.places, strict=True):
                for f, d, _ in place:
                    same.setdefault(f, []).append((a, d))
            for f, dims in same.items():
                self._classes.join(*dims)
                if info.factors[f].kind != PASS or not info.simple:
                    mixed += dims
        self._mixed = set(map(self._classes.of, mixed))

    def holds(self, start: _Dim, end: _Dim) -> bool:
        """Is a dimension kept apart, and is it the same one at the end?"""
        found = self._classes.of(start)
        return found not in self._mixed and self._classes.of(end) == found
