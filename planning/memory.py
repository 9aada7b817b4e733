"""What a device holds at once, as a sum over the layouts of groups.

A point of a program holds the values that are read later, inside of a loop those around it too.
Only values that are written to memory count (partitioner/cost/buffers.py). The points that hold
most, if nothing were split, bound a choice of layouts; what a plan really holds at its peak is
judged of whole plans (trials.py).
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ..ir.program import Program, Var
from ..ir.support.named_tuple import NamedTuple
from ..partitioner.cost.buffers import buffers
from ..partitioner.regions import has_region
from ..report.reasons.value_paths import inner_programs
from .model import Model

POINTS = 12                # that bound a choice


class Held(NamedTuple):
    """by_layout: per group the bytes that it holds in each of its layouts."""
    by_layout: list[np.ndarray]
    fixed: float = 0.0

    def total(self, chosen: Sequence[int]) -> float:
        """Bytes of a device, for a choice of layouts."""
        return self.fixed + float(sum(c[n] for c, n in zip(self.by_layout, chosen, strict=True)))


def held_at_once(model: Model) -> list[Held]:
    """The points that hold most, the first first."""
    program = model.values.program
    points = dict.fromkeys(map(tuple, _points(program, dict.fromkeys(program.invars))))
    ranked = sorted(points, key=lambda p: -sum(v.aval.nbytes for v in p))
    kept: list[tuple[Var, ...]] = []
    for p in ranked:
        if not any({*p} <= {*k} for k in kept):
            kept.append(p)
        if len(kept) == POINTS:
            break
    return [_held(model, p) for p in kept]


def _held(model: Model, values: tuple[Var, ...]) -> Held:
    found = [np.zeros(len(own)) for own in model.costs]
    for v in values:
        g = model.number[model.values.of[v]]
        for n, layout in enumerate(model.layouts[g]):
            parts = math.prod([model.mesh.axis_size(a) for axes in model.entries(v, layout)
                               for a in axes])
            found[g][n] += v.aval.nbytes / parts
    return Held(found)


def _points(program: Program, around: dict[Var, None]) -> Iterator[dict[Var, None]]:
    """The values that each equation holds, in order, with those of the program around it."""
    held = buffers(program)
    last: dict[Var, int] = {}
    for n, eqn in enumerate(program.eqns):
        for a in eqn.invars:
            source = held.of(a)
            if source is not None:
                last[source] = n
    for a in program.outvars:
        source = held.of(a)
        if source is not None:
            last[source] = len(program.eqns)
    alive: dict[Var, None] = {}
    for n, eqn in enumerate(program.eqns):
        alive.update({v: None for v in eqn.outvars
                      if v not in held.fused and held.root.get(v, v) is v})
        now = around | alive
        if has_region(eqn):
            read = {v: None for a in eqn.invars if (v := held.of(a)) is not None}
            for _, inner in inner_programs(eqn, n):
                yield from _points(inner, now | read)
        yield now
        alive = {v: None for v in alive if last.get(v, n) > n}
