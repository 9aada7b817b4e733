"""What a device holds at its peak, for a choice of layouts.

At each point of a program a device holds the values that are still to be read (inside a loop, also
those around it), the gathered copy of an operand from its first use to its last, and what an
equation produces before it is summed. Only values that are written to memory count
(partitioner/cost/buffers.py). This is an estimate: trials.py finds the peak of a whole plan.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.program import Program, Var
from ...partitioner.cost.buffers import Buffers, buffers
from ...partitioner.regions import has_region
from ...report.reasons.value_paths import Path, inner_programs
from .model import Model


class Memory:
    """The values that a model holds at the same time. The points of a program are numbered, those
    inside a loop before the loop itself; a value is held from one point to another.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.count = 0
        self.at: dict[tuple[Path, int], int] = {}
        self.held: list[tuple[int, int, Var]] = []     # first point, last point, value
        self.values: dict[Var, Var] = {}               # whose buffer an operand is
        self._number(model.values.program, ())
        self.bytes = [(s, e, model.number[model.values.of[v]], np.array(
            [v.aval.nbytes / model.blocks(model.entries(v, x))
             for x in model.layouts[model.number[model.values.of[v]]]])) for s, e, v in self.held]

    def _number(self, program: Program, path: Path) -> None:
        """Number the points of a program, and say from which to which its values are held."""
        found: Buffers = buffers(program)
        start = self.count
        first = {v: start for v in program.invars} if not path else {}
        last: dict[Var, int] = {}
        for n, eqn in enumerate(program.eqns):
            if has_region(eqn):
                for step, inner in inner_programs(eqn, n):
                    self._number(inner, (*path, step))
            self.at[path, n] = here = self.count
            self.count += 1
            for a in eqn.invars:
                if (v := found.of(a)) is not None:
                    last[v] = here
            for v in eqn.outvars:
                if v not in found.fused and found.root.get(v, v) is v:
                    first[v] = here
        for a in program.outvars:
            if (v := found.of(a)) is not None:
                last[v] = self.count - 1
        for v, s in first.items():
            if v.aval.shape and v in self.model.values.of:
                self.held.append((s, max(s, last.get(v, s)), v))

    def peak(self, choice: Sequence[int]) -> float:
        """The most bytes that a device holds at once, for a choice of layouts."""
        model = self.model
        change = np.zeros(self.count + 1)
        for s, e, g, own in self.bytes:
            size = own[choice[g]]
            change[s] += size
            change[e + 1] -= size
        copies: dict[tuple[Var, int], list[int]] = {}
        sizes: dict[tuple[Var, int], float] = {}
        for n, node in enumerate(model.nodes):
            taken = model.strategy(n, choice)
            for use in node.occurrences:
                here = self.at[use.path, use.number]
                eqn = use.equation
                for t, number in enumerate((*taken.needs, *taken.results)):
                    a = (*eqn.invars, *eqn.outvars)[t]
                    if not isinstance(a, Var) or not a.aval.shape:
                        continue
                    blocks = model.blocks(model.table.table[number][0])
                    g = model.number[model.values.of[a]]
                    own = model.blocks(model.entries(a, model.layouts[g][choice[g]]))
                    if blocks < own:
                        key = a, number
                        sizes[key] = a.aval.nbytes / blocks
                        copies.setdefault(key, []).append(here)
        for key, where in copies.items():
            change[min(where)] += sizes[key]
            change[max(where) + 1] -= sizes[key]
        return float(np.cumsum(change).max())
