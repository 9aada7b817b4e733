"""Splits arguments, or other values, over axes that they leave idle.

A batch comes split over `d`, weights come split over `m`. Propagation follows these axes: products
of both are over `d` and `m`, and all that is computed from the batch alone is the same on every
device along `m`. With the batch split over both axes each device computes a part of it, and weights
are gathered where products need them. Or only what is between products is split over both axes:
sums behind split weights are scattered, and gathered for the next product, while weights stay where
they are ("sequence parallelism", Korthikanti et al., 2022, arXiv:2205.05198). Which takes less time
depends on all sizes, so a plan is made for each, and they are compared (plans.py).

Splitting an argument further takes no exchange: a device has each part of its block. Where parts of
axes would split values then, and none do so far, arguments stay as they are: parts have many more
layouts to search, and seldom less to exchange.
"""
from __future__ import annotations

import math

from ...ir import reasons as say
from ...ir.meshes.axes import axis_factor
from ...ir.ops.communication.sharding import sharding_constraint_p
from ...ir.program import Atom, Equation, Program, Var
from ...ir.rewriting.substitution import substituted
from ...ir.shardings.sharding import NamedSharding
from ...ir.source.location import UNKNOWN
from ...ir.spec import PartitionSpec
from ...ir.types import Entries
from .fixed_point import Solution, run
from .graph import Graph, Root
from .step import Layout


def split_arguments_further(program: Program, solution: Solution) -> Program:
    """The program with constraints on arguments that come split as most of what leaves axes idle
    is: over all axes that split any argument, along a dimension that is split already. The same
    program where none divides it. An axis that splits no argument stays idle: nobody asked for it.

    solution: how the program is laid out without that.
    """
    graph = solution.graph
    every = _every(program, graph)
    axes = _partly_split(graph, every)
    new: dict[Atom, Atom] = {}
    eqns: list[Equation] = []
    for var in program.invars:
        t = graph.of(var)
        if t < 0 or not axes or _axes_of(graph, graph.layouts[t]) != axes or graph.pending[t]:
            continue
        entries = _further(graph, graph.layouts[t], every)
        if entries != graph.layouts[t].entries:
            part = new[var] = Var(var.aval, var.name)
            sharding = NamedSharding(graph.mesh, PartitionSpec(*entries))
            eqns.append(Equation(
                sharding_constraint_p, (var,), (part,), {"sharding": sharding}, UNKNOWN,
                (say.SPLITS_FURTHER(graph.asked[t].text),)))
    made = substituted(program, new) if new else program
    return made.replace(eqns=[*eqns, *made.eqns]) if new else program


def split_values_further(program: Program, solution: Solution) -> None:
    """Split the values inside of a program as `split_arguments_further` splits arguments, where
    nothing says how they are laid out, and propagate that. Products with split weights are as they
    were; what is between them no longer leaves axes idle. Changes the solution.
    """
    graph = solution.graph
    every = _every(program, graph)
    axes = _partly_split(graph, every)
    ends = {*map(graph.of, program.invars), *solution.results} if axes else ()
    why = Root("the planner, which splits values further")
    for t, old in enumerate(graph.layouts) if axes else ():
        if t in ends or graph.pending[t] or _axes_of(graph, old) != axes:
            continue
        entries = _further(graph, old, every)
        if entries != old.entries and t not in graph.asked:
            graph.layouts[t] = Layout(old.shape, entries, old.open, old.blocked)
            graph.roots[t] = {**dict.fromkeys([(d, a) for d, more in enumerate(entries)
                                               for a in more if a not in old.entries[d]], why),
                              **(graph.roots[t] if t in graph.roots else {})}
    run(solution)


def _every(program: Program, graph: Graph) -> frozenset[str]:
    """The axes of more than one device that split any argument."""
    given = [graph.layouts[t] for t in map(graph.of, program.invars) if t >= 0]
    return frozenset().union(*[_axes_of(graph, layout) for layout in given]) & {
        axis for axis in graph.mesh.auto_axes if graph.size(axis) > 1}


def _axes_of(graph: Graph, layout: Layout) -> frozenset[str]:
    """The axes that split a value, or of which parts do."""
    return frozenset([axis_factor(axis, graph.mesh.shape)[0]
                      for axes in layout.entries for axis in axes])


def _partly_split(graph: Graph, every: frozenset[str]) -> frozenset[str]:
    """Axes that split values, but leave some of `every` idle: of all such sets that of which the
    blocks of values have the most elements in sum. None if there is no such value.
    """
    elements: dict[frozenset[str], int] = {}
    for layout in graph.layouts:
        axes = _axes_of(graph, layout)
        if axes and not axes >= every:
            block = math.prod(layout.shape) // math.prod(map(graph.size, axes))
            elements[axes] = elements.get(axes, 0) + block
    return max(elements, key=elements.__getitem__, default=frozenset())


def _further(graph: Graph, layout: Layout, every: frozenset[str]) -> Entries:
    """The entries of a layout, and in the longest dimension that is split, those of these axes that
    are idle and may divide it.
    """
    rows = {d: layout.shape[d] // math.prod(map(graph.size, axes))
            for d, axes in enumerate(layout.entries) if axes}
    dim = max(rows, key=rows.__getitem__)
    axes, left, used = layout.entries[dim], rows[dim], _axes_of(graph, layout)
    for axis in graph.mesh.axis_names:
        if axis in every - used - layout.blocked and left % graph.size(axis) == 0:
            axes, left = (*axes, axis), left // graph.size(axis)
    return tuple([axes if d == dim else own for d, own in enumerate(layout.entries)])
