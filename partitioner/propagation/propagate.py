"""Propagation: every open dimension gets the axes that its factors have elsewhere.

Layouts flow through factor rules, forward and backward, to a fixed point, in rounds of falling
certainty: first ops that only rename dimensions, then all factors that pass through, then
contractions, and broadcasts last. Where tensors of an equation contradict each other, the larger
one has its way. Axes are only ever appended, so the fixed point is reached after at most
rank x axes changes a tensor. Each new axis remembers where it came from. After Shardy
(github.com/openxla/shardy, docs/propagation.md).

This file sets the problem up; fixed_point.py runs it.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import IndivisibleError
from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.movement.padding import pad_p
from ...ir.program import Program, Var
from ...ir.reasons import PADDED
from ...ir.source.location import UNKNOWN
from ...ir.spec import PartitionSpec
from ...ir.support.caches import cached
from ..policy import OWN, Policy
from .carried_rows import split_carried_rows
from .fixed_point import Solution, run
from .graph import Root
from .program_graph import ProgramGraph
from .step import Layout
from .sub_axes import cut_graph, cuts_given, cuts_wanted, open_ends

_MOST_CUTS = 4         # rounds of cutting axes further


def solve(program: Program, mesh: AbstractMesh, in_shardings: Sequence[PartitionSpec | None],
          out_shardings: Sequence[PartitionSpec | None], uneven: bool = False,
          carried_rows: bool = False, policy: Policy = OWN) -> Solution:
    """Build the graph of a program, constrain its ends and run it to the fixed point.

    uneven: axes also go where they do not divide a dimension, if it may be padded (`padded_size`).
    carried_rows: rows that loops carry start split (carried_rows.py).
    """
    check_ends(program, mesh, in_shardings, out_shardings)
    graph = ProgramGraph(mesh, uneven, carried_rows, policy)
    graph.add_program(program)
    for i, (var, spec) in enumerate(zip(program.invars, in_shardings, strict=True)):
        t = graph.of(var)
        if t >= 0 and spec is not None:
            entries = spec.padded(var.aval.ndim).entries
            graph.constrain(t, entries, Root(f"argument `{_name(program.arg_names, i)}`",
                                             argument=i))
            graph.pending[t] = spec.unreduced
    if policy.keeps_padded_arguments:
        _constrain_padded(program, graph, in_shardings)
    results, asked = [], []
    for i, (atom, spec) in enumerate(zip(program.outvars, out_shardings, strict=True)):
        source = graph.of(atom)
        if source < 0:
            results.append(-1)
            continue
        t = graph.tensor(atom.aval, frozenset(), UNKNOWN)
        if spec is not None:
            entries = spec.padded(atom.aval.ndim).entries
            which = f" for result {_name(program.result_names, i)}" * (len(program.outvars) > 1)
            graph.constrain(t, entries, Root(f"`out_shardings`{which}"))
            graph.pending[t] = spec.unreduced
            asked.append(len(graph.kinds))
        graph.uses[source] += 1
        graph.edge((source, t), None)
        results.append(t)
    if carried_rows:
        split_carried_rows(program, graph)
    graph.move_constraints()
    solution = Solution(graph, results, asked if policy.requests_first else ())
    layouts = set(graph.layouts)
    if any([any(layout.entries) for layout in layouts]) and (any(
            [_can_grow(layout, mesh) for layout in layouts]) or cuts_given(graph)):
        ends = dict.fromkeys([t for t in (*map(graph.of, program.invars), *results) if t >= 0])
        _propagate(solution, ends)
    return solution


def _constrain_padded(program: Program, graph: ProgramGraph,
                      in_shardings: Sequence[PartitionSpec | None]) -> None:
    """What `pad_uneven` appended rows to is laid out as the argument that it was."""
    specs = dict(zip(program.invars, in_shardings, strict=True))
    for eqn in program.eqns:
        spec = specs.get(eqn.invars[0]) if eqn.op is pad_p else None    # type: ignore[call-overload]
        if spec is not None and any([c.sentence is PADDED for c in eqn.reason]):
            aval = eqn.outvars[0].aval
            if _divides(graph.mesh, aval.shape, spec):
                graph.constrain(graph.of(eqn.outvars[0]), spec.padded(aval.ndim).entries,
                                Root("an argument that is padded", eqn.location))


def _propagate(solution: Solution, ends: dict[int, None]) -> None:
    """Run to the fixed point, again with axes cut into parts as long as some do not fit as a whole.
    """
    graph, initial = solution.graph, list(solution.graph.layouts)
    cuts = given = cuts_given(graph)
    if cuts:
        cut_graph(graph, initial, cuts)
    _by_priority(solution)
    for _ in range(_MOST_CUTS):
        wanted = cuts_wanted(graph, cuts)
        if wanted == cuts:
            break
        cuts = wanted
        cut_graph(graph, initial, cuts)
        solution.grown.clear()
        _by_priority(solution)
    if cuts and not given:          # where the user wrote parts of axes, results may have some
        open_ends(graph, ends, cuts)


def _by_priority(solution: Solution) -> None:
    """Run to a fixed point for each priority; a tensor has no axes until its turn has come."""
    graph = solution.graph
    whole = list(graph.layouts)
    for now in sorted({0, *graph.priority.values()}):
        for t, priority in graph.priority.items():
            if priority == now:
                graph.layouts[t] = whole[t]
            elif priority > now:
                shape = whole[t].shape
                waiting = whole[t].blocked.union(*whole[t].entries)
                graph.layouts[t] = Layout(shape, ((),) * len(shape), (False,) * len(shape), waiting)
        run(solution)


def _can_grow(layout: Layout, mesh: AbstractMesh) -> bool:
    return any(layout.open) and len(layout.blocked) < len(mesh.axis_names)


def _name(names: Sequence[str], i: int) -> str:
    return names[i] if i < len(names) and names[i] else f"[{i}]"


def check_ends(program: Program, mesh: AbstractMesh, in_shardings: Sequence[PartitionSpec | None],
               out_shardings: Sequence[PartitionSpec | None]) -> None:
    """Raise IndivisibleError if a spec that is given or asked for does not divide."""
    for what, names, atoms, specs in (
            ("argument", program.arg_names, program.invars, in_shardings),
            ("result", program.result_names, program.outvars, out_shardings)):
        for i, (atom, spec) in enumerate(zip(atoms, specs, strict=True)):
            if spec is not None and atom.__class__ is Var and not _divides(
                    mesh, atom.aval.shape, spec):
                _check_divides(mesh, atom.aval.shape, what, names, i, spec)


@cached(4096, "whether axes divide a dimension")
def _divides(mesh: AbstractMesh, shape: tuple[int, ...], spec: PartitionSpec) -> bool:
    return all([n % math.prod(map(mesh.axis_size, axes)) == 0
                for n, axes in zip(shape, spec.padded(len(shape)).entries if shape else (),
                                   strict=True)])


def _check_divides(mesh: AbstractMesh, shape: tuple[int, ...], what: str, names: Sequence[str],
                   i: int, spec: PartitionSpec) -> None:
    """Refuse a spec of argument or result i that does not divide its shape. what: "argument" or
    "result".
    """
    for d, (n, axes) in enumerate(zip(shape, spec.padded(len(shape)).entries if shape else (),
                                      strict=True)):
        parts = math.prod(map(mesh.axis_size, axes))
        if n % parts:
            fail(IndivisibleError,
                 f"{what} {_name(names, i)} of shape {shape} with spec {spec} has dimension {d} "
                 f"of size {n}, which is partitioned {parts} times; the size should be divisible "
                 "by it", code="indivisible",
                 help=f"pad the dimension to {-(-n // parts) * parts}, or leave it whole")
