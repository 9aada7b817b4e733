"""A lower bound of the cost in a model, and which layouts and strategies a better choice can have.

The cost is a sum of terms, of each group and of each equation. The sum of their least values is a
bound, a weak one, since equations that share a group may want it laid out differently. *Prices* of
layouts are moved between the terms of a group and of its equations: no choice costs more or less
for that, but the terms come to agree, and the bound rises to that of the linear program or near it.
Groups are visited in order and in reverse, as in sequential reweighted message passing (Kolmogorov,
"A New Look at Reweighted Message Passing", 2015).

What a layout or strategy makes the bound, at least, says whether any choice that is cheaper than a
known one can have it.
"""
from __future__ import annotations

import numpy as np

from .model import Edge, Model

SWEEPS = 100               # there and back
SLOW = 0.02                # of what is between bound and cost: a sweep that gains less is the last
NARROW = 1e-9              # of the cost: what rounding may make of it


class _Term:
    """An edge, with the prices that its equation asks of the layouts of the group.

    low: for each layout that is needed, the least cost of bringing it from one of the group's.
    """

    def __init__(self, edge: Edge, most: float) -> None:
        self.edge = edge
        self.costs = np.minimum(edge.costs, most)
        self.order = np.argsort(edge.row, kind="stable")
        self.starts = np.searchsorted(edge.row[self.order], np.arange(len(edge.costs)))
        self.prices = np.zeros(edge.costs.shape[1])
        self.low = self.costs.min(1)

    def least(self, strategies: np.ndarray) -> np.ndarray:
        """The least cost with each layout of the group, for costs of strategies without the edge.
        """
        needed = np.minimum.reduceat(strategies[self.order], self.starts)
        return (needed[:, None] + self.costs).min(0) - self.prices

    def move(self, prices: np.ndarray) -> None:
        """Ask so much more for each layout."""
        self.prices = self.prices + prices
        self.low = (self.costs - self.prices).min(1)


class Bound:
    """The bound of a model. most: the cost of a known choice; what costs more is of no interest."""

    def __init__(self, model: Model, most: float) -> None:
        self.model, self.most = model, most
        self.groups = [np.minimum(costs, 2 * most) for costs in model.costs]
        self.terms = [[_Term(e, 2 * most) for e in node.edges] for node in model.nodes]
        self.uses: list[list[tuple[int, int]]] = [[] for _ in self.groups]
        for n, node in enumerate(model.nodes):
            for k, e in enumerate(node.edges):
                self.uses[e.group].append((n, k))
        self.value = self._value()
        for _ in range(SWEEPS):
            before = self.value
            self._sweep(1)
            self._sweep(-1)
            self.value = max(before, self._value())
            left = most - self.value
            if left <= NARROW * most or self.value - before <= SLOW * left:
                break

    def _strategies(self, n: int, without: int = -1) -> np.ndarray:
        """The least cost of each strategy of equation n, without one of its edges."""
        total = self.model.nodes[n].costs
        for k, term in enumerate(self.terms[n]):
            if k != without:
                total = total + term.low[term.edge.row]
        return total

    def _value(self) -> float:
        return float(sum([g.min() for g in self.groups])
                     + sum([self._strategies(n).min() for n in range(len(self.terms))]))

    def _sweep(self, step: int) -> None:
        """Move prices of all groups in turn, on to the equations with groups whose turn comes."""
        for g in range(len(self.groups))[::step]:
            onward, back = [], 0
            for n, k in self.uses[g]:
                term, others = self.terms[n][k], [step * (t.edge.group - g) for t in self.terms[n]]
                least = term.least(self._strategies(n, k))
                term.move(least)
                self.groups[g] = self.groups[g] + least
                back += min(others) < 0
                if max(others) > 0:
                    onward.append(term)
            if onward:
                share = self.groups[g] / max(len(onward), back)
                for term in onward:
                    term.move(-share)
                    self.groups[g] = self.groups[g] - share

    def rise(self, g: int) -> np.ndarray:
        """By how much each layout of a group raises the bound, at least."""
        rise = self.groups[g] - self.groups[g].min()
        for n, k in self.uses[g]:
            least = self.terms[n][k].least(self._strategies(n, k))
            rise = rise + (least - least.min())
        return rise

    def choice(self) -> list[int]:
        """For each group the layout that raises the bound least."""
        return [int(self.rise(g).argmin()) for g in range(len(self.groups))]

    def kept_layouts(self, g: int) -> np.ndarray:
        """The layouts of a group that a cheaper choice can have."""
        return self.value + self.rise(g) <= self.most * (1 + NARROW)

    def kept_strategies(self, n: int) -> np.ndarray:
        """The strategies of an equation that a cheaper choice can have."""
        least = self._strategies(n)
        return self.value + (least - least.min()) <= self.most * (1 + NARROW)
