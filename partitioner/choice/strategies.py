"""Strategies: the legal candidates of a rule for values of given kinds, with their costs.

Pass-through factors may be split, as may factors whose emitter exchanges little (halos, scans) and
reductions that a collective can finish; all others are gathered. Splitting a sum leaves a partial
sum.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Entries
from ..factors import Axes, RuleInfo, tensor_entries
from ..redistribution.joint_axes import JointAxes
from .candidates import Candidate, candidates_of
from .costs import TIE, Pending, Split, can_split_into, compute_cost, parts_of
from .layout_costs import LayoutIds
from .layouts import Answer, LayoutTable

_EMPTY: Pending = frozenset()

_WHOLE: Entries = ((),)


class StrategySpec(NamedTuple):
    """A strategy, by the names of mesh axes.

    axes_of: factor -> axes. layouts: of the operands as taken, then of the results as produced.
    sums: for each operand, the axes over which it is taken as a partial sum. pending: axes over
    which results are partial sums. finish: (monoid, axes) of reductions other than sums, which are
    finished at once. cost: of running the equation so (costs.py). received: bytes that its blocks
    exchange.
    """
    axes_of: dict[int, Axes]
    layouts: tuple[Entries, ...]
    sums: tuple[Pending, ...]
    pending: Pending
    finish: tuple[tuple[str, Axes], ...] = ()
    cost: int = 0
    received: int = 0

    # one per strategy; its parts cannot be hashed
    __hash__ = object.__hash__                  # type: ignore[assignment]


class Strategy:
    """A strategy in layout numbers.

    needs: for each operand the layout in which it is taken. results: the layouts produced. cost,
    received, pending: as in `StrategySpec`. spec: the strategy as one, made on demand.
    """

    __slots__ = ("spec", "needs", "pending", "cost", "received", "results", "sums", "table",
                 "candidate")

    spec: StrategySpec

    def __init__(self, table: StrategyTable, candidate: Candidate, sums: tuple[Pending, ...],
                 tensors: LayoutIds, cost: int, pending: Pending, received: int) -> None:
        count = table.count
        self.table, self.candidate, self.sums = table, candidate, sums
        self.needs, self.results = tensors[:count], tensors[count:]
        self.cost, self.pending, self.received = cost, pending, received

    def __getattr__(self, name: str) -> StrategySpec:
        if name != "spec":
            raise AttributeError(name)
        table = self.table
        spec = table.spec(self.candidate, self.sums)
        assert spec is not None
        self.spec = spec = _in_program_axes(spec, table.layouts.joint)
        return spec


class StrategyTable(Answer):
    """The strategies of one rule for values of certain kinds."""

    __slots__ = ("count", "flops", "found", "info", "kinds", "layouts", "lengths", "maps",
                 "strategies", "ranked", "candidates", "traffic", "whole", "wholes")

    def __init__(self, layouts: LayoutTable, info: RuleInfo, kinds: tuple[int, ...]) -> None:
        self.layouts, self.info, self.kinds = layouts, info, kinds
        self.candidates = candidates = candidates_of(layouts, info)
        self.count = info.operands
        self.whole = (_EMPTY,) * self.count         # no operand is a sum
        maps, sizes = candidates.maps, layouts.sizes
        self.maps: tuple[int, ...] = ()             # of each tensor
        self.ranked: tuple[tuple[int, int], ...] = ()   # (tensor, map) of those with dimensions
        self.wholes: tuple[tuple[int, int], ...] = ()   # (map, bytes) of each
        for t, dims in enumerate(info.maps):
            m = maps[dims]
            self.maps += (m,)
            self.wholes += ((m, sizes[kinds[t]] * layouts.shapes[kinds[t]][1]),)
            if m >= 0:
                self.ranked += ((t, m),)
        # the price of a product on one device
        prices = layouts.prices
        self.flops = 0.0
        if info.is_product:
            self.flops = (2 * math.prod([f.size for f in info.factors])
                          * prices.flops[layouts.shapes[kinds[0]][1]])
        self.traffic = prices.traffic
        self.lengths: dict[int, set[int]] = {}      # of the dimensions that a factor has
        self.strategies: dict[tuple[Candidate, tuple[Pending, ...]], Strategy | None] = {}
        self.found: dict[tuple, list[Strategy]] = {}  # by what is given

    def forget(self) -> None:
        self.strategies.clear()
        self.found.clear()

    def suggested(self, hints: Sequence[LayoutIds], sums: tuple[Pending, ...]) -> list[Strategy]:
        """All legal strategies that these layouts of the tensors suggest."""
        candidates = self.candidates
        known = candidates.known
        if known.order is not self.layouts.numbers.ordered:
            known = candidates.rebuild()
        given = known.given
        has = lacks = 0
        for t, m in self.ranked:
            key = m, hints[t]
            mine = given[key] if key in given else candidates.factor_axes(known, *key)
            has |= mine[0]
            lacks |= mine[1]
        wanted = has, has & lacks, sums
        if wanted in self.found:
            return self.found[wanted]
        summed = _EMPTY if sums == self.whole else _EMPTY.union(*sums)
        enumerated, orders = candidates.enumerated(known, has, has & lacks, summed, [
            given[m, hints[t]] for t, m in self.ranked])
        by_orders = (*wanted, orders) if orders else wanted
        if by_orders in self.found:
            return self.found[by_orders]
        found: list[Strategy] = []
        strategies, simple = self.strategies, candidates.simple
        for candidate in enumerated:
            key = candidate, sums
            if key not in strategies:
                strategies[key] = (self._simple if simple else self._general)(*key)
            strategy = strategies[key]
            if strategy is not None:
                found.append(strategy)
        self.found[by_orders] = found
        return found

    def strategy(self, candidate: Candidate, sums: tuple[Pending, ...]) -> Strategy | None:
        """The strategy of a candidate; None if it is not legal."""
        key = candidate, sums
        if key not in self.strategies:
            self.strategies[key] = (self._simple if self.candidates.simple else self._general)(*key)
        return self.strategies[key]

    def _general(self, candidate: Candidate, sums: tuple[Pending, ...]) -> Strategy | None:
        spec = self.spec(candidate, sums)
        if spec is None:
            return None
        numbers, pending = self.layouts.numbers, itertools.repeat(spec.pending)
        tensors = zip(spec.layouts, itertools.chain(sums, pending), strict=False)
        return Strategy(self, candidate, sums, tuple([numbers[t] for t in tensors]),
                        spec.cost, spec.pending, spec.received)

    def _simple(self, candidate: Candidate, sums: tuple[Pending, ...]) -> Strategy | None:
        """`legal_strategy` and `compute_cost` for a candidate of a simple rule."""
        parts, lengths = candidate.parts, self.lengths
        for f in parts:
            if f not in lengths:
                shapes, kinds = self.layouts.shapes, self.kinds
                lengths[f] = {shapes[kinds[t]][0][d] for t, d, _ in self.info.positions[f]}
            for n in lengths[f]:
                if n % parts[f]:
                    return None
        cuts = candidate.cuts
        most = total = 0
        for m, n in self.wholes:
            n //= cuts[m]
            total += n
            if n > most:
                most = n
        cost = self.traffic * (total if self.flops else most)
        if self.flops and self.flops / candidate.product > cost:
            cost = self.flops / candidate.product
        entries, numbers, pending = candidate.layouts, self.layouts.numbers, candidate.pending
        if pending or sums != self.whole:
            pending = pending if sums == self.whole else pending.union(*sums)
            tensors = zip(self.maps, itertools.chain(sums, itertools.repeat(pending)), strict=False)
            held = [numbers[entries[m], axes] for m, axes in tensors]
        else:
            held = [numbers[entries[m], _EMPTY] for m in self.maps]
        cost = int(cost) + int(total * self.traffic) // TIE
        return Strategy(self, candidate, sums, tuple(held), cost, pending, 0)

    def spec(self, candidate: Candidate, sums: tuple[Pending, ...]) -> StrategySpec | None:
        """The strategy of a candidate, by the axis names of the layouts' mesh."""
        return legal_strategy(self, candidate.axes_of, sums)


def _in_program_axes(spec: StrategySpec, joint: JointAxes | None) -> StrategySpec:
    """A strategy with the program's own axes in place of joint ones."""
    if joint is None:
        return spec
    spelled = joint.spelled
    return StrategySpec({f: spelled(axes) for f, axes in spec.axes_of.items()},
                        tuple([tuple(map(spelled, entries)) for entries in spec.layouts]),
                        tuple([frozenset(spelled(sums)) for sums in spec.sums]),
                        frozenset(spelled(spec.pending)),
                        tuple([(reducer, spelled(axes)) for reducer, axes in spec.finish]),
                        spec.cost, spec.received)


def legal_strategy(table: StrategyTable, axes_of: dict[int, Axes], sums: tuple[Pending, ...]
                   ) -> StrategySpec | None:
    """The strategy with these axes for each factor; None if a block would be strided or sizes do
    not divide. sums: for each operand, the axes over which it is taken as a partial sum that the
    equation passes on.
    """
    layouts, info = table.layouts, table.info
    mesh = layouts.mesh
    shapes, itemsizes = zip(*[layouts.shapes[k] for k in table.kinds], strict=True)
    parts = {f: parts_of(mesh, axes) for f, axes in axes_of.items() if axes}
    tensors, blocks = [], list(map(math.prod, shapes))
    for t, plain in enumerate(info.plain):
        shape = shapes[t]
        if plain is None:
            dims = info.maps[t]
            entries = tensor_entries(dims, shape, info.factors, axes_of, mesh.axis_size)
            if entries is None or any([
                    info.factors[f].size % parts[f]
                    for split in dims if len(split) > 1 for f in split if f in parts]):
                return None
            for split in dims:
                for f in split:
                    if f in parts:
                        blocks[t] //= parts[f]
        else:
            entries = ()
            for f, n in zip(plain, shape):  # noqa: B905 (speed)
                if f in parts:
                    if n % parts[f]:
                        return None
                    blocks[t] //= parts[f]
                    entries += (axes_of[f],)
                else:
                    entries += _WHOLE
        tensors.append(entries)
    if info.has_other_kinds and not all(
            [can_split_into(info, shapes, f, n) for f, n in parts.items()]):
        return None
    pending, finish = _EMPTY.union(*sums), []
    for f in parts if info.has_other_kinds else ():
        factor = info.factors[f]
        if factor.leaves_sum:
            pending = pending.union(axes_of[f])
        elif factor.reducer:
            finish.append((factor.reducer, axes_of[f]))
    cost = compute_cost(layouts.price, layouts.prices, Split(
        info, shapes, itemsizes, axes_of, parts, blocks), finish)
    return StrategySpec(axes_of, tuple(tensors), sums, pending, tuple(finish), *cost)
