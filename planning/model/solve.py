"""The cheapest choice of layouts in a model: a bound, and a program for what it leaves open.

Coordinate descent over groups gives choices, and bounds.py the least cost that one can have. Where
they do not meet, the layouts and strategies that no cheaper choice can have are left out, and what
remains is solved as a mixed-integer program. The layouts of groups are binary variables. The
strategy of an equation is a continuous share, which is integral at an optimum. What an operand
needs is matched with what its group has by a transport problem, which makes the relaxation tight
(the local polytope of Wainwright and Jordan, "Graphical Models, Exponential Families, and
Variational Inference", 2008; the choice per equation follows Zheng et al., "Alpa", OSDI 2022).
HiGHS is limited by nodes, not by time, so that equal problems have equal answers.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.support.lazy import lazy_import
from ...ir.support.named_tuple import NamedTuple
from .bounds import Bound
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
    known = descend(model, start)
    bound = Bound(model, model.cost(known))
    known = min(known, descend(model, bound.choice()), key=model.cost)
    cost, least = model.cost(known), bound.value
    if cost - least > GAP * cost:
        bound.most = cost
        found = _Program(model, bound).solved()
        if found is None:
            return None
        choice, least = descend(model, found[0]), max(least, found[1])
        if model.cost(choice) <= cost:
            known, cost = choice, model.cost(choice)
    return Optimum(tuple(known), cost, min(least, cost))


class _Program:
    """The mixed-integer program: rows and columns as they are added."""

    def __init__(self, model: Model, bound: Bound) -> None:
        self.model = model
        self.objective: list[float] = []
        self.integral: list[int] = []
        self.rows: list[tuple[list[int], list[float], float, float]] = []
        self.held: list[dict[int, int]] = []   # the column of each group's layouts
        self.scale = 1 / max(bound.most, 1.0)
        for g, costs in enumerate(model.costs):
            kept = np.flatnonzero(bound.kept_layouts(g))
            columns = self.columns(costs[kept], 1)
            self.held.append(dict(zip(kept.tolist(), columns, strict=True)))
            self.row(columns, [1.0] * len(columns), 1, 1)
        for n, node in enumerate(model.nodes):
            self.node(node, np.flatnonzero(bound.kept_strategies(n)))

    def columns(self, costs: Sequence[float] | np.ndarray, integral: int) -> list[int]:
        start = len(self.objective)
        self.objective += [c * self.scale for c in costs]
        self.integral += [integral] * len(costs)
        return list(range(start, len(self.objective)))

    def row(self, columns: Sequence[int], values: Sequence[float], low: float, high: float) -> None:
        self.rows.append((list(columns), list(values), low, high))

    def node(self, node: Node, strategies: np.ndarray) -> None:
        """Add an equation: these strategies of it, and the layouts that they need of each group."""
        shares = self.columns(node.costs[strategies], 0)
        self.row(shares, [1.0] * len(shares), 1, 1)
        for e in node.edges:
            needed: dict[int, list[int]] = {}
            for column, s in zip(shares, strategies, strict=True):
                needed.setdefault(int(e.row[s]), []).append(column)
            layouts = self.held[e.group]
            costs = e.costs[:, list(layouts)]
            count = len(layouts)
            if count == 1 or len(needed) == 1 and not costs[next(iter(needed))].any():
                for column, s in zip(shares, strategies, strict=True):
                    if count == 1:
                        self.objective[column] += float(costs[e.row[s], 0]) * self.scale
                continue
            moved: list[list[int]] = []
            for r, users in needed.items():
                found = self.columns(costs[r], 0)
                moved.append(found)
                self.row([*found, *users], [1.0] * count + [-1.0] * len(users), 0, 0)
            for n, held in enumerate(layouts.values()):
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
        choice = [max(held, key=lambda x: found.x[held[x]]) for held in self.held]
        bound = found.fun if found.mip_dual_bound is None else found.mip_dual_bound
        return choice, bound / self.scale

