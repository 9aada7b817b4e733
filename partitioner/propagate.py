"""Propagation: every open dimension gets the axes that its factors have elsewhere.

Layouts flow through factor rules, forward and backward, to a fixed point, in rounds of falling
certainty: first ops that only rename dimensions, then all factors that pass through, then
contractions, and broadcasts last; in each round first what nobody contradicts, then conflicts by
preference. Axes are only ever appended, so the fixed point is reached after at most rank x axes
changes a tensor. Each new axis remembers where it came from. After Shardy
(github.com/openxla/shardy, docs/propagation.md).

Equations are integers in a worklist and layouts integers in a table; a step is computed once per
rule and layouts, so repeated layers cost a dictionary lookup.
"""
from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.diagnostic import fail
from ..ir.errors import IndivisibleError
from ..ir.location import UNKNOWN
from ..ir.mesh import AbstractMesh
from ..ir.program import Program
from ..ir.spec import UNCONSTRAINED, PartitionSpec
from ..ir.types import Entries
from .graph import Graph, Node, Root
from .step import BACKWARD, BOTH, NONE, Extension, Layout, step
from .sub_axes import cut_graph, cuts_given, cuts_wanted, open_ends

LEVELS = 5
_MOST_CUTS = 4         # times that axes are cut further


@dataclass(frozen=True)
class Origin:
    """Why a tensor has an axis on a dimension: an equation brought it from another tensor."""
    node: Node
    tensor: int
    dim: int


class Solution:
    """The graph at its fixed point.

    origins: (tensor, dim, axis) -> Origin, for axes that were propagated; the graph's `roots` say
    where the others come from. results: the tensor of each result as it leaves, -1 for scalars.
    """

    __slots__ = ("graph", "origins", "results", "steps")

    def __init__(self, graph: Graph, results: list[int]) -> None:
        self.graph = graph
        self.results = results
        self.origins: dict[tuple[int, int, str], Origin] = {}
        self.steps = 0

    def entries(self, tensor: int) -> Entries:
        return self.graph.layouts[tensor].entries if tensor >= 0 else ()


def solve(program: Program, mesh: AbstractMesh, in_shardings: Sequence[PartitionSpec | None],
          out_shardings: Sequence[PartitionSpec | None]) -> Solution:
    """Build the graph of a program, constrain its ends and run it to the fixed point."""
    graph = Graph(mesh)
    graph.add_program(program)
    for i, (var, spec) in enumerate(zip(program.invars, in_shardings, strict=True)):
        t = graph.of(var)
        if t >= 0 and spec is not None:
            entries = spec.padded(var.aval.ndim).entries
            name = _name(program.arg_names, i)
            _check_divides(mesh, var.aval.shape, entries, f"argument {name}", spec)
            graph.constrain(t, entries, Root(f"argument `{name}`"))
            graph.pending[t] = spec.unreduced
    results = []
    for i, (atom, spec) in enumerate(zip(program.outvars, out_shardings, strict=True)):
        source = graph.of(atom)
        if source < 0:
            results.append(-1)
            continue
        t = graph.tensor(atom.aval, frozenset(), UNKNOWN)
        if spec is not None:
            entries = spec.padded(atom.aval.ndim).entries
            name = _name(program.result_names, i)
            _check_divides(mesh, atom.aval.shape, entries, f"result {name}", spec)
            graph.constrain(t, entries, Root(f"out_shardings of result `{name}`"))
            graph.pending[t] = spec.unreduced
        graph.uses[source] += 1
        graph.edge((source, t), None)
        results.append(t)
    graph.move_constraints()
    solution = Solution(graph, results)
    if any(_can_grow(layout, mesh) for layout in graph.layouts):
        ends = dict.fromkeys(t for t in (*map(graph.of, program.invars), *results) if t >= 0)
        _propagate(solution, ends)
    return solution


def _propagate(solution: Solution, ends: dict[int, None]) -> None:
    """To the fixed point; once more with axes cut into parts, while some do not fit as a whole."""
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
        solution.origins.clear()
        _by_priority(solution)
    if cuts and not given:          # where somebody wrote parts of axes, he may get some back
        open_ends(graph, ends, cuts)


def _by_priority(solution: Solution) -> None:
    """A fixed point for each priority; until its turn has come a tensor has no axes, nor any of
    those that wait for it.
    """
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
        _Propagation(solution).run()


def _can_grow(layout: Layout, mesh: AbstractMesh) -> bool:
    return any(layout.open) and len(layout.blocked) < len(mesh.axis_names)


def _name(names: Sequence[str], i: int) -> str:
    return names[i] if i < len(names) and names[i] else f"[{i}]"


def _check_divides(mesh: AbstractMesh, shape: tuple[int, ...], entries: Entries, what: str,
                   spec: PartitionSpec) -> None:
    for d, (n, axes) in enumerate(zip(shape, entries, strict=True)):
        if axes is UNCONSTRAINED:
            continue
        parts = math.prod(map(mesh.axis_size, axes))
        if n % parts:
            fail(IndivisibleError,
                 f"{what} of shape {shape} with spec {spec} has dimension {d} of size {n}, which "
                 f"is partitioned {parts} times; the size should be divisible by it",
                 code="indivisible",
                 help=f"pad the dimension to {-(-n // parts) * parts}, or leave it whole")


def _schedule(node: Node, graph: Graph) -> tuple[tuple[int, bool], ...]:
    """(direction, pass-through factors only) at each level."""
    off, both = (NONE, False), (BOTH, False)
    info = node.info
    if info is None:
        return (both,) * LEVELS
    if info.kind == "structural":
        single = all(graph.uses[t] <= 1 for t in node.tensors[:info.operands] if t >= 0)
        return (both if single else off, both, both, both, both)
    if info.kind == "broadcast":
        return (off, off, (BACKWARD, False), (BACKWARD, False), both)
    return (off, off, (BOTH, info.has_other_kinds), both, both)


class _Propagation:
    """The fixed point: worklists of node numbers, layouts as numbers in a table."""

    def __init__(self, solution: Solution) -> None:
        self.solution = solution
        graph = self.graph = solution.graph
        self.size = graph.size
        self.table: list[Layout] = []
        self.numbers: dict[Layout, int] = {}
        self.state = [self.number(layout) for layout in graph.layouts]
        self.neighbours: list[list[int]] = [[] for _ in graph.layouts]
        for i, node in enumerate(graph.nodes):
            for t in set(node.tensors):
                if t >= 0:
                    self.neighbours[t].append(i)
        self.schedules = [_schedule(node, graph) for node in graph.nodes]
        self.steps: dict[tuple, tuple] = {}      # (rule, how, layouts) -> what grows

    def number(self, layout: Layout) -> int:
        n = self.numbers.get(layout)
        if n is None:
            n = self.numbers[layout] = len(self.table)
            self.table.append(layout)
        return n

    def run(self) -> None:
        nodes = self.graph.nodes
        waiting = (set(), set())          # nodes to visit by either strategy
        for level in range(LEVELS):
            for i, schedule in enumerate(self.schedules):
                before = schedule[level - 1] if level else (NONE, False)
                if schedule[level] != before:
                    waiting[0].add(i)
                    waiting[1].add(i)
            for aggressive in (False, True):
                mine = waiting[aggressive]
                queue = deque(sorted(mine))
                while queue:
                    i = queue.popleft()
                    if i not in mine:
                        continue
                    mine.discard(i)
                    direction, pass_only = self.schedules[i][level]
                    if direction == NONE:        # its turn comes with the level that enables it
                        continue
                    for t in self.visit(nodes[i], direction, pass_only, aggressive):
                        for j in self.neighbours[t]:
                            for w in waiting:
                                if j not in w:
                                    w.add(j)
                                    if w is mine:
                                        queue.append(j)
        for t, n in enumerate(self.state):
            self.graph.layouts[t] = self.table[n]

    def visit(self, node: Node, direction: int, pass_only: bool, aggressive: bool) -> list[int]:
        """Run one node; the tensors whose layouts grew."""
        tensors = node.tensors
        state = self.state
        if node.info is None:
            return self.cross(node)
        key = (id(node.info), direction, pass_only, aggressive,
               *[state[t] if t >= 0 else -1 for t in tensors])
        found = self.steps.get(key)
        if found is None:
            layouts = [self.table[state[t]] if t >= 0 else None for t in tensors]
            extensions: tuple[Extension, ...] = ()
            if any(layout is not None and any(layout.entries) for layout in layouts):
                extensions = step(node.info, layouts, direction, pass_only, aggressive, self.size)
            found = self.steps[key] = tuple(
                (x, self.number(self.grown(layouts[x.position], x.entries))) for x in extensions)
        changed = []
        for extension, number in found:
            t = tensors[extension.position]
            if state[t] != key[4 + extension.position]:
                continue                  # an operand used twice: its other place came first
            state[t] = number
            changed.append(t)
            for dim, axis, source, source_dim in extension.origins:
                self.solution.origins[(t, dim, axis)] = Origin(
                    node, tensors[source] if source >= 0 else -1, source_dim)
        self.solution.steps += 1
        return changed

    def grown(self, layout: Layout | None, entries: Entries) -> Layout:
        assert layout is not None
        return Layout(layout.shape, entries, layout.open, layout.blocked)

    def cross(self, node: Node) -> list[int]:
        """Between the two sides of a shard_map: the same axes after the manual ones."""
        outer_t, inner_t = node.tensors
        outer, inner = self.table[self.state[outer_t]], self.table[self.state[inner_t]]
        out_entries, in_entries = list(outer.entries), list(inner.entries)
        out_used = {a for axes in outer.entries for a in axes} | outer.blocked
        in_used = {a for axes in inner.entries for a in axes} | inner.blocked
        changed = []
        for d, prefix in enumerate(node.prefix):
            tail, own = out_entries[d][len(prefix):], in_entries[d]
            common = min(len(tail), len(own))
            if out_entries[d][:len(prefix)] != prefix or tail[:common] != own[:common]:
                continue
            for axis in tail[common:]:
                parts = math.prod(map(self.size, (*in_entries[d], axis)))
                if not inner.open[d] or axis in in_used or inner.shape[d] % parts:
                    break
                in_entries[d] += (axis,)
                in_used.add(axis)
                self.solution.origins[(inner_t, d, axis)] = Origin(node, outer_t, d)
            for axis in own[common:]:
                parts = math.prod(map(self.size, (*out_entries[d], axis)))
                if not outer.open[d] or axis in out_used or outer.shape[d] % parts:
                    break
                out_entries[d] += (axis,)
                out_used.add(axis)
                self.solution.origins[(outer_t, d, axis)] = Origin(node, inner_t, d)
        for t, layout, entries in ((outer_t, outer, out_entries), (inner_t, inner, in_entries)):
            new = tuple(entries)
            if new != layout.entries:
                self.state[t] = self.number(self.grown(layout, new))
                changed.append(t)
        return changed
