"""The cost of each layout of a group, as tables: the problem that the search solves.

Each group (groups.py) takes one of a few layouts, in which every mesh axis splits one of its
dimensions or none. Each equation between groups takes one of a few strategies, in which every axis
splits one factor of its rule or none (partitioner/choice/). The cost is the sum

    over groups of computing their elementwise equations on blocks and finishing their reductions,
    over equations of computing on blocks by their strategy,
    over operands and results of the reshard between the group's layout and the strategy's,

in seconds on the chosen hardware, one after the other, at the prices by which the partitioner
chooses. Costs inside a loop are multiplied by its length. Some costs are known only for whole plans
(trials.py): exchanges that overlap with computation or are shared or combined, and sums that stay
partial.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ...ir.meshes.mesh import AbstractMesh
from ...ir.meshes.mesh_axes import group_size
from ...ir.op_instance import OpInstance
from ...ir.ops.communication.sharding import sharding_constraint_p
from ...ir.program import Var
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Entries
from ...partitioner.choice.costs import local_cost
from ...partitioner.choice.layouts import TableHolder
from ...partitioner.choice.strategies import Strategy, StrategyTable
from ...partitioner.cost.kernels import moved_bytes
from ...partitioner.cost.prices import Objective
from ...partitioner.factors import RuleInfo
from .groups import Group, Groups, Occurrence, equivalence_classes
from .moves import Moves

MOST = 64                  # layouts of a group
EVEN = 1e-4                # of the price of reading it counts what is stored of an argument
GroupLayout = Entries      # the axes of each dimension of a group
_NONE: frozenset[str] = frozenset()


class Edge(NamedTuple):
    """A read or a result of an equation in a group. group: its number; row: for each strategy of
    the equation, the row of `costs` that it needs; costs: (needed layout, layout of the group).
    """
    group: int
    row: np.ndarray
    costs: np.ndarray


class Node(NamedTuple):
    """Equivalent equations between groups. strategies, costs: of all of them together, without
    edges.
    """
    occurrences: tuple[Occurrence, ...]
    strategies: list[Strategy]
    costs: np.ndarray
    edges: tuple[Edge, ...]


class Model:
    """The tables. groups: one of each of the `equivalence_classes`; `number` gives the place of any
    group, and "group" below means one of these. layouts: the layouts that each group may take;
    costs: of each of these. allowed: whether a group may take a layout.
    """

    def __init__(self, groups: Groups, mesh: AbstractMesh, objective: Objective,
                 allowed: Callable[[Group, GroupLayout], bool] | None = None) -> None:
        self.values, self.mesh = groups, mesh
        self.prices = objective.prices(mesh)
        self._holder = TableHolder(self.prices)
        self.table = self._holder.layouts
        self.moves = Moves(self.prices, self.table)
        allow = allowed or (lambda group, layout: True)
        possible = {g: tuple(group_layouts(g, mesh)) for g in dict.fromkeys(groups.of.values())}
        kept = {g: tuple([x for x in every if allow(g, x)]) or every[-1:]
                for g, every in possible.items()}
        self.number = equivalence_classes(groups, kept.__getitem__)
        first: dict[int, Group] = {}
        for g, n in self.number.items():
            first.setdefault(n, g)
        self.groups = list(first.values())
        self.layouts: list[list[GroupLayout]] = []
        self.layouts += [list(kept[g]) for g in self.groups]
        self.costs = [np.zeros(len(found)) for found in self.layouts]
        self.readers: dict[tuple[Var, str, int], int] = {}
        for use in groups.between:
            for i, a in enumerate(use.equation.invars):
                if isinstance(a, Var):
                    key = a, use.equation.op.name, i
                    self.readers[key] = self.readers.get(key, 0) + 1
        self._known: dict[tuple, list[Strategy]] = {}
        self._node_costs: dict[tuple[int, ...], np.ndarray] = {}
        self._constrained()
        self._stored()
        self._within()
        self.nodes = self._nodes()
        # per group, the nodes that read or make values of it
        self.touching: list[list[int]] = [[] for _ in self.groups]
        for n, node in enumerate(self.nodes):
            for g in dict.fromkeys(e.group for e in node.edges):
                self.touching[g].append(n)

    def entries(self, var: Var, layout: GroupLayout) -> Entries:
        """The mesh axes of each dimension of a value, in a layout of its group."""
        return tuple([layout[d] if d >= 0 else () for d in self.values.dims[var]])

    # -- tables ----------------------------------------------------------------------------------

    def _constrained(self) -> None:
        """Layouts that the user's constraints rule out are left out."""
        for use in (*self.values.between, *self.values.within):
            if use.equation.op is sharding_constraint_p:
                var = use.equation.outvars[0]
                g = self.number[self.values.of[var]]
                asked = use.equation.params["sharding"].spec.padded(var.aval.ndim).entries
                kept = [x for x in self.layouts[g] if all(
                    not isinstance(want, tuple) or want == have
                    for want, have in zip(asked, self.entries(var, x), strict=True))]
                if kept:
                    self.layouts[g], self.costs[g] = kept, np.zeros(len(kept))

    def _stored(self) -> None:
        """Make arguments prefer, of layouts that cost the same, one that splits them."""
        for v in self.values.program.invars:
            g = self.number[self.values.of[v]]
            size = math.prod(v.aval.shape) * v.aval.dtype.itemsize * self.prices.traffic * EVEN
            for n, layout in enumerate(self.layouts[g]):
                self.costs[g][n] += size / self.blocks(layout)

    def _within(self) -> None:
        """Add the costs of the equations inside groups, on the blocks of each layout; infinite
        where an equation cannot run so.
        """
        for use in self.values.within:
            eqn, info = use.equation, use.info
            assert info is not None
            atoms = (*eqn.invars, *eqn.outvars)
            tensors = [t for t, a in enumerate(atoms) if isinstance(a, Var) and info.places[t]]
            if not tensors:
                continue
            moved = moved_bytes(use.program)[eqn] * self.prices.traffic * use.runs
            if not moved and not info.has_other_kinds:
                continue
            t = max(tensors, key=[*map(len, info.places)].__getitem__)
            var = atoms[t]
            assert isinstance(var, Var)
            g = self.number[self.values.of[var]]
            for n, layout in enumerate(self.layouts[g]):
                have = self.entries(var, layout)
                axes_of = {f: have[d] for f, d, _ in info.places[t] if have[d]}
                cost = moved / self.blocks(have)
                if info.has_other_kinds:
                    done = self._finished(use, info, axes_of)
                    cost = math.inf if done is None else cost + done * use.runs
                self.costs[g][n] += cost
        for g, costs in enumerate(self.costs):
            if not np.isfinite(costs).any():
                self.costs[g] = np.zeros(len(costs))

    def _finished(self, use: Occurrence, info: RuleInfo, axes_of: dict[int, tuple[str, ...]]
                  ) -> float | None:
        """The price of finishing a reduction whose factors are split so; None where it cannot be.
        """
        table, strategy = self._strategy(use, info, axes_of)
        if strategy is None:
            return None
        total = float(strategy.cost - self._local(table, strategy))
        for k, made in enumerate(strategy.results):
            kind = table.kinds[info.operands + k]
            entries, pending = self.table.table[made]
            if pending:
                total += self.moves.price(kind, made, self.table.numbers[entries, _NONE])
        return total

    def _strategy(self, use: Occurrence, info: RuleInfo, axes_of: dict[int, tuple[str, ...]]
                  ) -> tuple[StrategyTable, Strategy | None]:
        kinds = tuple([self.table.kinds_of[t] for some in use.equation.types for t in some])
        memo = self.table.memo
        table = memo.get((info, kinds))
        if table is None:
            table = memo[info, kinds] = StrategyTable(self.table, info, kinds)
        for f, axes in axes_of.items():
            self.table.numbers[(axes,), _NONE]         # its axes have places from now on
            if not info.split_ok[f]:
                return table, None
        ordered = {f: axes_of[f] for f in sorted(axes_of)}
        return table, table.strategy(table.candidates.candidate(ordered), table.whole)

    def blocks(self, entries: Entries) -> int:
        """Into how many blocks a layout splits a value."""
        return math.prod([self.mesh.axis_size(a) for axes in entries for a in axes])

    def _local(self, table: StrategyTable, strategy: Strategy) -> int:
        """The price of the local work of a strategy, where it is not a product."""
        shapes, numbers = self.table.shapes, (*strategy.needs, *strategy.results)
        sizes = [math.prod(shapes[k][0]) * shapes[k][1] // self.blocks(self.table.table[n][0])
                 for k, n in zip(table.kinds, numbers, strict=True)]
        return local_cost(self.prices, 0, 1, sizes)

    def _nodes(self) -> list[Node]:
        """The tables of all equations between groups, one for equivalent equations."""
        found: dict[tuple, list[Occurrence]] = {}
        for use in self.values.between:
            eqn = use.equation
            if eqn.op is sharding_constraint_p or use.info is None:
                continue
            atoms = (*eqn.invars, *eqn.outvars)
            key = (eqn.instance.identity, eqn.types, use.runs, use.outside, tuple([
                (self.number[self.values.of[a]], self.values.dims[a], a in use.invariant,
                 self.readers.get((a, eqn.op.name, t))) if isinstance(a, Var) else None
                for t, a in enumerate(atoms)]))
            found.setdefault(key, []).append(use)
        return [node for same in found.values() if (node := self._node(same)) is not None]

    def _node(self, occurrences: Sequence[Occurrence]) -> Node | None:
        """The table of equivalent equations between groups."""
        use, count = occurrences[0], len(occurrences)
        info, eqn = use.info, use.equation
        assert info is not None
        atoms = (*eqn.invars, *eqn.outvars)
        touched = [t for t, a in enumerate(atoms) if isinstance(a, Var) and a.aval.shape]
        if not touched:
            return None
        found = self._strategies(use.equation.instance, use, info)
        moved = moved_bytes(use.program)[eqn] * self.prices.traffic
        largest = max(touched, key=lambda t: math.prod(atoms[t].aval.shape))
        costs = []
        for s in found:
            table = s.table
            numbers = (*s.needs, *s.results)
            if info.is_product:
                cost = float(s.cost)
            else:
                cost = s.cost - self._local(table, s) + moved / self.blocks(
                    self.table.table[numbers[largest]][0])
            costs.append(cost * use.runs * count)
        edges = []
        for t in touched:
            var = atoms[t]
            assert isinstance(var, Var)
            weight = float(use.runs * count)
            if t < info.operands:
                weight = count * (use.outside if var in use.invariant else use.runs)
                weight /= self.readers[var, eqn.op.name, t]
            edges.append(self._edge(var, [(*s.needs, *s.results)[t] for s in found],
                                    t < info.operands, weight))
        return Node(tuple(occurrences), found, np.array(costs), tuple(edges))

    def _strategies(self, instance: OpInstance, use: Occurrence, info: RuleInfo) -> list[Strategy]:
        """The strategies of an op instance: each axis of the mesh splits one factor or none."""
        key = instance, use.equation.types
        known = self._known.get(key)
        if known is None:
            axes = [a for a, n in self.mesh.shape.items() if n > 1]
            splittable = [f for f, ok in enumerate(info.split_ok)
                          if ok and info.factors[f].size > 1]
            known = []
            for picked in itertools.product((*splittable, -1), repeat=len(axes)):
                axes_of: dict[int, tuple[str, ...]] = {}
                for a, f in zip(axes, picked, strict=True):
                    if f >= 0:
                        axes_of[f] = (*axes_of.get(f, ()), a)
                strategy = self._strategy(use, info, axes_of)[1]
                if strategy is not None:
                    known.append(strategy)
            self._known[key] = known
        return known

    def _edge(self, var: Var, needed: Sequence[int], reads: bool, weight: float) -> Edge:
        g = self.number[self.values.of[var]]
        kind, numbers = self.table.kinds_of[var.aval], self.table.numbers
        have = [numbers[self.entries(var, x), _NONE] for x in self.layouts[g]]
        rows = {n: i for i, n in enumerate(dict.fromkeys(needed))}
        table = np.array([[self.moves.price(kind, h, n) if reads else self.moves.price(kind, n, h)
                           for h in have] for n in rows], float).reshape(len(rows), len(have))
        return Edge(g, np.array([rows[n] for n in needed]), table * weight)

    # -- what a choice costs -----------------------------------------------------------------------

    def strategy(self, n: int, choice: Sequence[int]) -> Strategy:
        """The best strategy for equation n, for a choice of layouts."""
        node = self.nodes[n]
        total = node.costs
        for e in node.edges:
            total = total + e.costs[e.row, choice[e.group]]
        return node.strategies[int(total.argmin())]

    def node_costs(self, n: int, choice: Sequence[int], free: int = -1) -> np.ndarray:
        """The cost of equation n by its best strategy: for each layout of group `free` (-1: one
        cost), with the other groups laid out as chosen.
        """
        node = self.nodes[n]
        key = n, free, *[choice[e.group] if e.group != free else -1 for e in node.edges]
        found = self._node_costs.get(key)
        if found is None:
            total = node.costs[:, None]
            for e, i in zip(node.edges, key[2:], strict=True):
                total = total + (e.costs[e.row] if i < 0 else e.costs[e.row, i][:, None])
            found = self._node_costs[key] = total.min(0)
        return found

    def group_costs(self, g: int, choice: Sequence[int]) -> np.ndarray:
        """The cost of each layout of a group, with the other groups laid out as chosen."""
        total = self.costs[g]
        for n in self.touching[g]:
            total = total + self.node_costs(n, choice, g)
        return total

    def cost(self, choice: Sequence[int]) -> float:
        """The cost of a choice of layouts, a number for each group."""
        return float(sum(c[i] for c, i in zip(self.costs, choice, strict=True))
                     + sum(self.node_costs(n, choice)[0] for n in range(len(self.nodes))))


def group_layouts(group: Group, mesh: AbstractMesh) -> Iterator[GroupLayout]:
    """The layouts that a group may have: those that use most axes first, the replicated one last.
    """
    axes = [a for a, n in mesh.shape.items() if n > 1]
    count = len(group.sizes)
    open_dims = [d for d in range(count) if d not in group.closed]
    found = []
    for picked in itertools.product((*open_dims, -1), repeat=len(axes)):
        layout: list[tuple[str, ...]] = [()] * count
        for a, d in zip(axes, picked, strict=True):
            if d >= 0:
                layout[d] += (a,)
        if all(n % group_size(mesh, own) == 0
               for n, own in zip(group.sizes, layout, strict=True)):
            found.append(tuple(layout))
    found.sort(key=lambda x: -math.prod([mesh.axis_size(a) for own in x for a in own]))
    yield from found if len(found) <= MOST else (*found[:MOST - 1], found[-1])
