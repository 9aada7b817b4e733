"""The cheapest choice of layouts in a model, by a mixed-integer program.

The layouts of groups are binary variables. The strategy of an equation is a continuous share, which
is integral at an optimum. What an operand needs is matched with what its group has by a transport
problem, which makes the relaxation tight (the local polytope of Wainwright and Jordan, "Graphical
Models, Exponential Families, and Variational Inference", 2008; the choice per equation follows
Zheng et al., "Alpa", OSDI 2022). Coordinate descent over groups gives a first solution, which rules
out strategies that cannot be part of a better one. HiGHS is limited by nodes, not by time, so that
equal problems have equal answers.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.support.lazy import lazy_import
from ..ir.support.named_tuple import NamedTuple
from .model import Model, Node

optimize = lazy_import("scipy.optimize")
sparse = lazy_import("scipy.sparse")

NODES = 64                 # of the branch-and-bound tree
GAP = 1e-7                 # of the answer, at which HiGHS is content
SWEEPS = 12                # over all groups, of a descent


class Optimum(NamedTuple):
    """choice: the number of a layout for each group. cost: its cost in the model; bound: the least
    cost that any choice can have.
    """
    choice: tuple[int, ...]
    cost: float
    bound: float


def descend(model: Model, start: Sequence[int], fixed: frozenset[int] = frozenset()) -> list[int]:
    """A choice that no change of a single group makes cheaper. fixed: groups that stay as they are.
    """
    choice = list(start)
    for _ in range(SWEEPS):
        moved = False
        for g, own in enumerate(model.costs):
            if g in fixed or len(own) < 2:
                continue
            total = model.group_costs(g, choice)
            best = int(total.argmin())
            if total[best] < total[choice[g]] * (1 - 1e-9):
                choice[g], moved = best, True
        if not moved:
            break
    return choice


def solve(model: Model, start: Sequence[int]) -> Optimum | None:
    """The cheapest choice; None if none is found. start: a choice that it must improve on."""
    first = descend(model, start)
    most = model.cost(first)
    found = _Program(model, most).solved()
    if found is None:
        return None
    choice, bound = descend(model, found[0]), found[1]
    cost = model.cost(choice)
    if most < cost:
        choice, cost = first, most
    return Optimum(tuple(choice), cost, min(bound, cost))


class _Program:
    """The mixed-integer program: rows and columns as they are added."""

    def __init__(self, model: Model, most: float) -> None:
        self.model = model
        self.objective: list[float] = []
        self.integral: list[int] = []
        self.rows: list[tuple[list[int], list[float], float, float]] = []
        self.first: list[int] = []             # column of each group's first layout
        self.scale = 1 / max(most, 1.0)
        for costs in model.costs:
            self.first.append(len(self.objective))
            columns = self.columns(costs, 1)
            self.row(columns, [1.0] * len(columns), 1, 1)
        least = [_least(node) for node in model.nodes]
        floor = sum(float(c.min()) for c in model.costs) + sum(float(m.min()) for m in least)
        for node, own in zip(model.nodes, least, strict=True):
            self.node(node, own - own.min() <= most - floor)

    def columns(self, costs: Sequence[float] | np.ndarray, integral: int) -> list[int]:
        start = len(self.objective)
        self.objective += [c * self.scale for c in costs]
        self.integral += [integral] * len(costs)
        return list(range(start, len(self.objective)))

    def row(self, columns: Sequence[int], values: Sequence[float], low: float, high: float) -> None:
        self.rows.append((list(columns), list(values), low, high))

    def node(self, node: Node, kept: np.ndarray) -> None:
        """Add an equation: its strategies, and the layouts that they need of each group. kept: the
        strategies that a better choice can use.
        """
        strategies = np.flatnonzero(kept)
        shares = self.columns(node.costs[strategies], 0)
        self.row(shares, [1.0] * len(shares), 1, 1)
        for e in node.edges:
            needed: dict[int, list[int]] = {}
            for column, s in zip(shares, strategies, strict=True):
                needed.setdefault(int(e.row[s]), []).append(column)
            count = e.costs.shape[1]
            if count == 1 or len(needed) == 1 and not e.costs[next(iter(needed))].any():
                for column, s in zip(shares, strategies, strict=True):
                    if count == 1:
                        self.objective[column] += float(e.costs[e.row[s], 0]) * self.scale
                continue
            moved: list[list[int]] = []
            for r, users in needed.items():
                found = self.columns(e.costs[r], 0)
                moved.append(found)
                self.row([*found, *users], [1.0] * count + [-1.0] * len(users), 0, 0)
            for n in range(count):
                held = self.first[e.group] + n
                self.row([*[m[n] for m in moved], held], [1.0] * len(moved) + [-1.0], 0, 0)

    def solved(self) -> tuple[list[int], float] | None:
        """The layouts chosen, and the bound; None if the problem is infeasible."""
        starts = np.cumsum([0, *(len(r[0]) for r in self.rows)])
        matrix = sparse.csr_array((np.concatenate([r[1] for r in self.rows]),
                                   np.concatenate([r[0] for r in self.rows]), starts),
                                  shape=(len(self.rows), len(self.objective)))
        found = optimize.milp(
            np.array(self.objective), integrality=np.array(self.integral),
            bounds=optimize.Bounds(0, 1),
            constraints=optimize.LinearConstraint(matrix, np.array([r[2] for r in self.rows]),
                                                  np.array([r[3] for r in self.rows])),
            options={"mip_rel_gap": GAP, "node_limit": NODES})
        if found.x is None:
            return None
        choice = [int(np.argmax(found.x[f:f + len(c)]))
                  for f, c in zip(self.first, self.model.costs, strict=True)]
        bound = found.fun if found.mip_dual_bound is None else found.mip_dual_bound
        return choice, bound / self.scale


def _least(node: Node) -> np.ndarray:
    """Per strategy what it costs at least, whatever the layouts."""
    total = node.costs.copy()
    for e in node.edges:
        total += e.costs.min(1)[e.row]
    return total
