"""The fixed point of propagation: worklists of nodes, until no layout grows.

There are five levels, from the most certain propagation to the least, each a walk over the program
that resolves conflicts as it reaches them. Equations are integers in a worklist and layouts
integers in a table; a step is computed once for each rule and layouts, so repeated layers cost a
dictionary lookup, in this program and in any other on a mesh of this shape.
"""
from __future__ import annotations

import copy
import functools
import math
import threading
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, ClassVar

from ...ir.meshes.mesh import AbstractMesh
from ...ir.support.caches import Cache, module_table
from ...ir.types import Entries
from ..factors import RuleInfo
from .graph import Graph, Kind, Node
from .step import BACKWARD, BOTH, NONE, Extension, Layout, agree, step

LEVELS = 5


Origin = tuple[Node, int, int]
"""Why a tensor has an axis on a dimension: a node brought it from this dimension of a tensor."""


class Solution:
    """The graph at its fixed point.

    grown: (node, what it added), in order. origins: (tensor, dim, axis) -> Origin, for propagated
    axes; the graph's `roots` have the others. results: the tensor of each result as it leaves, -1
    for scalars. first: nodes that are visited before all others.
    """

    def __init__(self, graph: Graph, results: list[int], first: Sequence[int] = ()) -> None:
        self.graph = graph
        self.results, self.first = results, first
        self.grown: list[tuple[int, Extension]] = []
        self.steps = 0              # nodes visited
        self.evaluated = 0          # count of steps computed rather than looked up

    def copy(self) -> Solution:
        """A solution to go on from, which leaves this one as it is."""
        graph = copy.copy(self.graph)
        graph.layouts, graph.roots = [*graph.layouts], {**graph.roots}
        new = Solution(graph, self.results, self.first)
        new.grown += self.grown
        return new

    @functools.cached_property
    def origins(self) -> dict[tuple[int, int, str], Origin]:
        found: dict[tuple[int, int, str], Origin] = {}
        for i, extension in self.grown:
            node = self.graph.node(i)
            t = node.tensors[extension.position]
            for dim, axis, source, source_dim in extension.origins:
                found[t, dim, axis] = (
                    node, node.tensors[source] if source >= 0 else -1, source_dim)
        return found

    @functools.cached_property
    def has_parts_of_axes(self) -> bool:
        """Is any value split over a part of an axis?"""
        return any([":" in str(a) for layout in dict.fromkeys(self.graph.layouts)
                    for axes in layout.entries for a in axes])

    def entries(self, tensor: int) -> Entries:
        return self.graph.layouts[tensor].entries if tensor >= 0 else ()


Schedule = tuple[tuple[int, bool], ...]      # level -> (direction, pass-through factors only)
_OFF, _ALL = (NONE, False), (BOTH, False)
_BACK = (BACKWARD, False)
_CROSSING: Schedule = (_ALL,) * LEVELS
_SINGLE: Schedule = (_ALL,) * LEVELS
_SHARED: Schedule = (_OFF, _ALL, _ALL, _ALL, _ALL)
_WIDENING: Schedule = (_OFF, _OFF, _BACK, _BACK, _ALL)
_PASSING: Schedule = (_OFF, _OFF, (BOTH, True), _ALL, _ALL)
_NOWHERE: Schedule = (_OFF,) * LEVELS
_PLAIN: Schedule = (_OFF, _OFF, _ALL, _ALL, _ALL)


def _schedule(kind: Kind, shared: bool) -> Schedule:
    """When nodes of a kind are visited, by level. shared: whether other equations read an operand.
    """
    info = kind.info
    if info is None:
        return _CROSSING
    if kind.widens or info.kind == "broadcast":
        return _WIDENING
    if kind.structural:
        return _SHARED if shared else _SINGLE
    return _PASSING if info.has_other_kinds else _PLAIN


Growing = tuple[tuple[Extension, int], ...]     # what a step adds, and the new layouts
Known = tuple[dict[tuple, Growing], set[tuple]]


class _Tables:
    """Layouts by number, and the steps between them, for meshes of one shape.

    table: the layouts by number. steps: (rule, direction, pass-through only) -> what grows, by the
    layouts of the tensors, and those layouts for which nothing ever grows, since all tensors agree.
    Shared by all programs: a repeated layer, in this program or another, costs look-ups.
    """

    _MOST = Cache("partitioner.propagation.fixed_point._Tables",
                  "layouts and steps, for meshes of one shape", 20_000)
    _KNOWN: ClassVar[dict[Any, _Tables]] = module_table(
        "partitioner.propagation.fixed_point._Tables._KNOWN", "these tables, by shape of mesh", 16)

    def __init__(self) -> None:
        self.table: list[Layout] = []
        self.numbers: dict[Layout, int] = {}
        self.steps: dict[tuple, Known] = {}
        self.agreed: dict[RuleInfo, set[tuple]] = {}
        self.count = 0
        self.lock = threading.RLock()

    @classmethod
    def of(cls, mesh: AbstractMesh) -> _Tables:
        found = cls._KNOWN.get(mesh.shape_tuple)
        if found is None or len(found.table) + found.count > cls._MOST.most:
            found = cls._KNOWN[mesh.shape_tuple] = _Tables()
        return found

    def known(self, info: RuleInfo | None, how: tuple[int, bool]) -> Known:
        """The computed steps of a rule; empty for the boundary of a shard_map."""
        if info is None:
            return {}, set()
        found = self.steps.get((info, how))
        if found is None:
            agreed = self.agreed.setdefault(info, set())
            found = self.steps.setdefault((info, how), ({}, agreed))
        return found

    def number(self, layout: Layout) -> int:
        """The number of a layout, which is entered into the table if it is new."""
        n = self.numbers.get(layout)
        if n is None:
            with self.lock:
                n = self.numbers.get(layout)
                if n is None:
                    n = len(self.numbers)
                    del self.table[n:]      # what an interrupt left
                    self.table.append(layout)
                    self.numbers[layout] = n
        return n


def run(solution: Solution) -> None:
    """Bring the layouts of a graph to their fixed point."""
    _Propagation(solution).run()


class _Group:
    """Nodes that are visited at the same levels and share known steps.

    steps, agreed: as in `Known`, of this level.
    """

    __slots__ = ("agreed", "info", "nodes", "schedule", "steps")

    def __init__(self, kind: Kind, schedule: Schedule) -> None:
        self.info, self.schedule = kind.info, schedule
        self.nodes: list[int] = []
        self.steps: dict[tuple, Growing] = {}
        self.agreed: set[tuple] = set()


class _Propagation:
    """The state of one run. state: the layout number of each tensor. nodes_of: the nodes of each
    tensor. settled: 1 for each node whose tensors agree.
    """

    def __init__(self, solution: Solution) -> None:
        self.solution = solution
        graph = self.graph = solution.graph
        self.size = graph.size
        self.tables = _Tables.of(graph.mesh)
        known, number = self.tables.numbers, self.tables.number
        numbers = {layout: known[layout] if layout in known else number(layout)
                   for layout in dict.fromkeys(graph.layouts)}
        # the last entry, which tensor -1 reads, stands for "no dimensions"
        self.state = [*[numbers[layout] for layout in graph.layouts], -1]
        self.nodes_of, self.settled = self.neighbours()

    def groups(self) -> tuple[list[_Group], Iterable[_Group]]:
        """(the group of each node, all groups)."""
        graph = self.graph
        uses = graph.uses
        found: list[_Group] = []
        known: dict[tuple[Kind, bool], _Group] = {}
        never = _Group(Kind(None), _NOWHERE)
        first = frozenset(self.solution.first)
        for i, (kind, tensors) in enumerate(zip(graph.kinds, graph.tensors)):  # noqa: B905 (speed)
            shared = False
            if kind.structural and i not in first:
                for t in tensors[:kind.operands]:
                    if t >= 0 and uses[t] > 1:
                        shared = True
            only = -1
            for t in tensors:
                if t >= 0:
                    if only >= 0 and t != only:
                        break
                    only = t
            else:                           # it is of one tensor
                found.append(never)
                continue
            group = known.get((kind, shared))
            if group is None:
                group = known[kind, shared] = _Group(kind, _schedule(kind, shared))
            group.nodes.append(i)
            found.append(group)
        return found, known.values()

    def neighbours(self) -> tuple[list[list[int]], bytearray]:
        """(the nodes of each tensor, the last being none; 1 for each node whose tensors agree, as
        all do without axes).
        """
        graph = self.graph
        found: list[list[int]] = [[] for _ in self.state]
        for i, tensors in enumerate(graph.tensors):
            for t in tensors:
                found[t].append(i)
        settled = bytearray(b"\1") * len(graph.kinds)
        for t, layout in enumerate(graph.layouts):
            if any(layout.entries):
                for i in found[t]:
                    settled[i] = 0
        return found, settled

    def run(self) -> None:
        """Bring the layouts of a graph to their fixed point."""
        graph, state, tables = self.graph, self.state, self.tables
        count = len(graph.kinds)
        group_of, groups = self.groups()
        settled = self.settled
        numbers_of = [itemgetter(*tensors) for tensors in graph.tensors]    # from the state
        waiting = bytearray(count)      # 1 for nodes to visit
        visits = 0
        for level in range(LEVELS):
            for group in groups:
                how = group.schedule[level]
                if how is not (group.schedule[level - 1] if level else _OFF):
                    group.steps, group.agreed = tables.known(group.info, how)
                    for i in group.nodes:
                        waiting[i] = 1
            # nodes to visit before going on
            stack = [] if level else [*reversed(self.solution.first)]
            at = -1                         # position in the walk over all nodes
            while True:
                if stack:
                    i = stack.pop()
                else:
                    i = at = waiting.find(1, at + 1)
                    if i < 0:
                        break
                waiting[i] = 0
                group = group_of[i]
                if settled[i] or group.schedule[level] is _OFF:
                    continue
                visits += 1
                key = numbers_of[i](state)
                if key in group.agreed:
                    settled[i] = 1
                    continue
                growing = group.steps.get(key)
                if growing is None:
                    if group.info is None:
                        growing = self.cross(i)
                    else:
                        growing = group.steps[key] = self.step(
                            group.info, key, group.schedule[level], group.agreed)
                if growing:
                    stack += self.grow(i, key, growing, waiting, at)
        self.solution.steps += visits
        table = tables.table
        self.graph.layouts = [table[n] for n in state[:-1]]

    def grow(self, i: int, key: tuple[int, ...], growing: Growing, waiting: bytearray,
             at: int) -> list[int]:
        """Extend layouts as node i asks for; what is to be visited at once, the next one last.

        As in Shardy, that is what a change touches, unless it is still ahead in the walk, which is
        at position `at`. key: the layouts that were read. waiting: 1 for nodes to visit.
        """
        state, tensors = self.state, self.graph.tensors[i]
        touched: list[int] = []
        for extension, number in growing:
            t = tensors[extension.position]
            if state[t] != key[extension.position]:
                continue            # an operand used twice: done already
            state[t] = number
            self.solution.grown.append((i, extension))
            for j in self.nodes_of[t]:
                self.settled[j] = 0
                if not waiting[j]:
                    waiting[j] = 1
                    if j <= at:
                        touched.append(j)
        return touched[::-1]

    def step(self, info: RuleInfo | None, key: tuple[int, ...], how: tuple[int, bool],
             agreed: set[tuple]) -> Growing:
        """(what grows, the new layout numbers). agreed: gets the key if nothing can ever grow for
        it.
        """
        assert info is not None
        table = self.tables.table
        layouts = [table[n] if n >= 0 else None for n in key]
        self.tables.count += 1
        if agree(info, layouts):
            agreed.add(key)
            return ()
        self.solution.evaluated += 1
        return tuple([(x, self.tables.number(self.grown(layouts[x.position], x.entries)))
                      for x in step(info, layouts, *how, self.size)])

    def grown(self, layout: Layout | None, entries: Entries) -> Layout:
        assert layout is not None
        return Layout(layout.shape, entries, layout.open, layout.blocked)

    def cross(self, i: int) -> Growing:
        """The growth between the two sides of a shard_map: the same axes, minor to the manual ones.
        """
        outer_t, body_t = self.graph.tensors[i]
        table = self.tables.table
        outer, in_body = table[self.state[outer_t]], table[self.state[body_t]]
        out_entries, in_entries = list(outer.entries), list(in_body.entries)
        out_used = {a for axes in outer.entries for a in axes} | outer.blocked
        in_used = {a for axes in in_body.entries for a in axes} | in_body.blocked
        out_new: list[tuple[int, str, int, int]] = []
        in_new: list[tuple[int, str, int, int]] = []
        for d, prefix in enumerate(self.graph.prefixes[i]):
            tail, own = out_entries[d][len(prefix):], in_entries[d]
            common = min(len(tail), len(own))
            if out_entries[d][:len(prefix)] != prefix or tail[:common] != own[:common]:
                continue
            for axis in tail[common:]:
                parts = math.prod(map(self.size, (*in_entries[d], axis)))
                if not in_body.open[d] or axis in in_used or in_body.shape[d] % parts:
                    break
                in_entries[d] += (axis,)
                in_used.add(axis)
                in_new.append((d, axis, 0, d))
            for axis in own[common:]:
                parts = math.prod(map(self.size, (*out_entries[d], axis)))
                if not outer.open[d] or axis in out_used or outer.shape[d] % parts:
                    break
                out_entries[d] += (axis,)
                out_used.add(axis)
                out_new.append((d, axis, 1, d))
        growing: Growing = ()
        for at, layout, entries, new in ((0, outer, out_entries, out_new),
                                         (1, in_body, in_entries, in_new)):
            if new:
                x = Extension(at, tuple(entries), tuple(new))
                growing += ((x, self.tables.number(self.grown(layout, x.entries))),)
        return growing
