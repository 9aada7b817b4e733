"""Candidates: the factor shardings worth trying for a rule, given the layouts of its tensors.

The layouts of operands and results assign mesh axes to the factors of a rule. A candidate gives
each of these axes to one of the factors to which some tensor gives it, or to none. The candidates
depend on little of the layouts, encoded as bit sets of (axis, factor) pairs, and are remembered by
these; they are shared by all rules with the same dimension maps, whatever their sizes and number of
operands.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ...ir.meshes.axes import axes_overlap
from ...ir.rules.factor import PASS, REDUCE
from ...ir.support.named_tuple import NamedTuple
from ..factors import Axes, RuleInfo, project
from .costs import Pending, parts_of
from .layout_costs import LayoutIds
from .layouts import LayoutTable

_EMPTY: Pending = frozenset()
_WHOLE = ((),)
_MOST_CANDIDATES = 32           # of one equation, over few axes
_OF_MANY_AXES = 10
_FEW_AXES = 4

Pair = tuple[int, Axes]                 # a factor, and axes that a layout gives to it
Part = tuple[tuple[Pair, ...], Axes]    # of one layout; and overflow


class Candidate:
    """One factor sharding.

    parts: factor -> number of blocks, for the factors that are split. product: of all parts.
    layouts, cuts: for each dimension map, the axes of each dimension and the number of blocks; the
    last entry is that of scalars. pending: axes over which results are partial sums. Only axes_of
    is set unless the rule is `simple` (see `CandidateTable`).
    """

    __slots__ = ("axes_of", "cuts", "layouts", "parts", "pending", "product")

    def __init__(self, candidates: CandidateTable, axes_of: dict[int, Axes]) -> None:
        self.axes_of = axes_of
        if not candidates.simple:
            return
        mesh, summed = candidates.layouts.mesh, candidates.summed
        self.pending, self.product, self.parts = _EMPTY, 1, {}
        parts = self.parts
        for f in axes_of:
            parts[f] = parts_of(mesh, axes_of[f])
            self.product *= parts[f]
            if summed >> f & 1:
                self.pending = self.pending.union(axes_of[f])
        layouts, cuts = (), ()
        for plain in candidates.plain:
            entries, cut = (), 1
            for f in plain:                                     # type: ignore[union-attr]
                if f in parts:
                    cut *= parts[f]
                    entries += (axes_of[f],)
                else:
                    entries += _WHOLE
            layouts += (entries,)
            cuts += (cut,)
        self.layouts, self.cuts = (*layouts, ()), (*cuts, 1)


# The axes that the layouts of a tensor assign to its factors, as a set of (axis, factor) pairs with
# overflow assigned to a factor after the last; the pairs that they lack: factors of the tensor with
# axes that one of the layouts assigns to none; and the pairs in order.
_FactorAxes = tuple[int, int, tuple[Pair, ...]]


class _KnownAxes(NamedTuple):
    """What has been worked out for the mesh axes seen so far. order: `LayoutTable.order` at that
    time. clashes: the pairs of two axes, of which one is a part of the other or both have one in
    common. lacking: for each map, all (axis, factor) pairs of an unsharded tensor. given: by (map,
    layouts).
    """
    order: list[tuple[str, int]]
    clashes: list[tuple[int, int]]
    lacking: list[int]
    given: dict[tuple[int, LayoutIds], _FactorAxes]


class _Shared(NamedTuple):
    """Candidates of rules in which several axes may split one factor (of `factors`): they depend on
    the order of the axes in the layouts. picks: sets of (axis, factor) pairs.
    """
    picks: list[int]
    order: list[tuple[str, int]]
    factors: int
    by_orders: dict[tuple[Pair, ...], list[Candidate]]


class CandidateTable:
    """The candidates of all rules that have the same dimension maps, and the same factors but for
    sizes.

    maps: the distinct maps of tensors with dimensions, numbered. simple: no dimension has several
    factors, and each factor passes through or is summed (`summed`, a bit set like the other sets of
    factors); then legality and cost depend only on which sizes divide. elementwise: all tensors
    with dimensions have the same map, and all factors pass through.
    """

    __slots__ = ("elementwise", "by_pick", "can_split", "carried", "found", "info", "layouts",
                 "maps", "known", "other", "parts", "passing", "plain", "simple", "summed",
                 "candidates", "width")

    def __init__(self, layouts: LayoutTable, info: RuleInfo) -> None:
        self.layouts, self.info = layouts, info
        self.maps: dict[tuple, int] = {(): -1}
        self.plain: list[tuple[int, ...] | None] = []
        self.carried: list[int] = []
        m = 0
        for dims, plain, carried in zip(info.maps, info.plain, info.carried):  # noqa: B905 (speed)
            if dims not in self.maps:
                self.maps[dims] = m
                m += 1
                self.plain.append(plain)
                own = 0
                for f in carried:                               # type: ignore[misc]
                    own |= 1 << f
                self.carried.append(own)
        self.width = len(info.factors) + 1
        self.can_split = self.other = self.passing = self.summed = 0
        for f, ok in enumerate(info.split_ok):
            self.can_split |= ok << f
        if info.has_other_kinds:
            for f, factor in enumerate(info.factors):
                if factor.kind != PASS:
                    self.other |= 1 << f
                    if factor.kind == REDUCE and factor.operator == "sum":
                        self.summed |= 1 << f
                elif factor.size > 1:
                    self.passing |= self.can_split & 1 << f
        self.simple = info.simple and self.other == self.summed and not info.has_halos
        self.elementwise = (self.simple and not self.other and m < 2
                            and self.can_split == (1 << self.width - 1) - 1
                            and not (m and -1 in (self.plain[0] or ())))
        self.parts: dict[tuple[int, int], Part] = {}
        self.candidates: dict[tuple[Pair, ...], Candidate] = {}
        self.by_pick: dict[int, Candidate] = {}
        self.known = _KnownAxes([], [], [], {})     # replaced as a whole, as other threads read it
        # by the axes that layouts give to factors, and that some of them lack
        self.found: dict[tuple[int, int, Pending], list[Candidate] | _Shared] = {}

    def candidate(self, axes_of: dict[int, Axes]) -> Candidate:
        """The candidate with these axes for each factor, in the order of the factors."""
        places, pick, several = self.layouts.places, 0, False
        for f in axes_of:
            axes = axes_of[f]
            pick |= 1 << places[axes[0]] * self.width + f
            several = several or bool(axes[1:])
        if several:
            key = tuple(axes_of.items())
            if key not in self.candidates:
                self.candidates[key] = Candidate(self, axes_of)
            return self.candidates[key]
        if pick not in self.by_pick:
            self.by_pick[pick] = Candidate(self, axes_of)
        return self.by_pick[pick]

    def part(self, m: int, layout: int) -> Part:
        """(the axes that a layout assigns to each factor of a tensor with this map, overflow)."""
        key = m, layout
        if key in self.parts:
            return self.parts[key]
        pairs: tuple[Pair, ...] = ()
        overflow: Axes = ()
        if m >= 0:
            entries, plain, last = self.layouts.table[layout][0], self.plain[m], -1
            if plain is None:
                dims = next(dims for dims, n in self.maps.items() if n == m)
                found, overflow, _ = project(dims, self.info.factors, entries,
                                             self.layouts.mesh.axis_size)
                pairs = tuple(sorted([(f, found[f]) for f in found if found[f]]))
            else:
                for f, axes in zip(plain, entries):  # noqa: B905 (speed)
                    if axes:
                        if f < 0:
                            overflow += axes
                        elif f > last:
                            pairs += ((f, axes),)
                            last = f
                        else:                   # of a factor that comes twice, the last
                            pairs = tuple(sorted({**dict(pairs), f: axes}.items()))
        self.parts[key] = pairs, overflow
        return pairs, overflow

    def rebuild(self) -> _KnownAxes:
        """What is known of the current axes, computed anew."""
        order, mesh = self.layouts.order(), self.layouts.mesh
        every, factors = 0, (1 << self.width - 1) - 1
        for _, place in order:
            every |= 1 << place * self.width
        parts = [pair for pair in order if pair[0] not in mesh.shape]
        clashes = [(factors << here * self.width, factors << there * self.width)
                   for a, here in parts for b, there in order if a != b and axes_overlap(a, b)]
        self.known = known = _KnownAxes(order, clashes, [every * own for own in self.carried], {})
        return known

    def factor_axes(self, known: _KnownAxes, m: int, held: LayoutIds) -> _FactorAxes:
        """The (axis, factor) pairs that these layouts assign to a tensor with this map; remembered
        in `known`.
        """
        if len(held) != 1:
            has = lacks = 0
            together: tuple[Pair, ...] = ()
            for n in held:
                key = m, (n,)
                own, lack, pairs = (known.given[key] if key in known.given
                                    else self.factor_axes(known, *key))
                has |= own
                lacks |= lack
                for pair in pairs:
                    if pair not in together:
                        together += (pair,)
        else:
            places, width = self.layouts.places, self.width
            together, overflow = self.part(m, held[0])
            has, lacks = 0, known.lacking[m]
            for f, axes in together:
                for a in axes:
                    place = places[a] * width
                    has |= 1 << place + f
                    lacks &= ~((1 << width) - 1 << place)
            for a in overflow:
                has |= 1 << (places[a] + 1) * width - 1
        found = known.given[m, held] = has, lacks, together
        return found

    def enumerated(self, known: _KnownAxes, has: int, lacks: int, summed: Pending,
                   given: Sequence[_FactorAxes]) -> tuple[list[Candidate], tuple[Pair, ...]]:
        """(the candidates, the orders of axes that they depend on) for the (axis, factor) pairs
        that layouts assign (`has`), and that some of them do not (`lacks`). There are orders where
        several axes may share a factor. summed: axes over which operands are partial sums.
        """
        key = has, lacks, summed
        if key in self.found:
            found = self.found[key]
        else:
            found = self.found[key] = self._enumerate(known, *key)
        if found.__class__ is list:
            return found, ()                                    # type: ignore[return-value]
        shared: _Shared = found                                 # type: ignore[assignment]
        factors = shared.factors
        orders = tuple({pair: None for _, _, pairs in given for pair in pairs
                        if factors >> pair[0] & 1})
        if orders not in shared.by_orders:
            candidates, by_pick = [], self.by_pick
            for pick in shared.picks:
                candidates += ((by_pick[pick],) if pick in by_pick else self._ordered(pick,
                                                                                      shared.order,
                                                                                      orders))
            shared.by_orders[orders] = candidates
        return shared.by_orders[orders], orders

    def _enumerate(self, known: _KnownAxes, has: int, lacks: int, summed: Pending
                   ) -> list[Candidate] | _Shared:
        """The sets of pairs that give each axis to one factor or to none.

        An axis that has the same pass-through factor in every tensor that could have it stays
        there. None is tried, too, if a tensor lacks the axis, or if it has several factors or none
        that can be split.
        """
        width, other = self.width, self.other
        every = (1 << width - 1) - 1
        choices: list[tuple[int, int, bool]] = []       # (place, factors, is none tried)
        for a, place in known.order:
            mine = has >> place * width
            if mine & (every << 1 | 1) and a not in summed:
                factors = mine & every
                none = not factors or factors & factors - 1 or lacks >> place * width & factors
                if factors & other:
                    # work along the factor while another dimension is split
                    factors |= self.passing
                    none = 1
                factors &= self.can_split
                choices.append((place * width, factors, bool(none or not factors)))
        most = _MOST_CANDIDATES if len(choices) <= _FEW_AXES else _OF_MANY_AXES
        if width ** len(choices) > most:
            choices = self._fewer(choices, most)
        picks, first, seen, shared = [0], False, 0, 0
        for place, factors, none in choices:
            more: list[int] = []
            for pick in picks:
                rest = factors
                while rest:
                    least = rest & -rest
                    more.append(pick | least << place)
                    rest ^= least
                if none:
                    more.append(pick)
            picks = more
            first = first or not none
            shared |= seen & factors
            seen |= factors
        if known.clashes:
            picks = [p for p in picks if not any([p & a and p & b for a, b in known.clashes])]
        if first:
            picks = [0, *picks]             # in case that none of the others is possible
        if shared:
            return _Shared(picks, known.order, shared, {})
        candidates, by_pick = [], self.by_pick
        for pick in picks:
            candidates += (by_pick[pick],) if pick in by_pick else self._ordered(pick, known.order,
                                                                                 ())
        return candidates

    def _fewer(self, choices: list[tuple[int, int, bool]], most: int
               ) -> list[tuple[int, int, bool]]:
        """These alternatives, or, where their product is larger than that, some of them."""
        lists = [[*[f for f in range(self.width - 1) if factors >> f & 1], *([-1] if none else ())]
                 for _, factors, none in choices]
        while math.prod([len(c) for c in lists]) > most:
            longest = max(lists, key=len)
            if len(longest) == 1:
                break
            del longest[-2 if len(longest) > 2 else -1]     # drop a factor, at last "no factor"
        return [(place, sum([1 << f for f in some if f >= 0]), some[-1] < 0)
                for (place, _, _), some in zip(choices, lists, strict=True)]

    def _ordered(self, pick: int, order: list[tuple[str, int]], orders: tuple[Pair, ...]
                 ) -> list[Candidate]:
        """The candidates for a set of pairs: axes that share a factor in each order that some
        tensor has.
        """
        sets: dict[int, Axes] = {}
        several, ordered, last = False, True, -1
        every = (1 << self.width - 1) - 1
        for a, place in order:
            own = pick >> place * self.width & every
            if own:
                f = 0
                while own >> f + 1:
                    f += 1
                if f in sets:
                    sets[f] += (a,)
                    several = True
                else:
                    sets[f] = (a,)
                    ordered = ordered and f > last
                    last = f
        if not ordered:
            sets = {f: sets[f] for f in sorted(sets)}
        if not several:
            candidate = self.by_pick[pick] = Candidate(self, sets)
            return [candidate]
        return [self.candidate(dict(zip(sets, combination, strict=True))) for combination in
                itertools.product(*[_orders(members, [axes for g, axes in orders if g == f])
                                    for f, members in sets.items()])]


def candidates_of(layouts: LayoutTable, info: RuleInfo) -> CandidateTable:
    """The table of candidates of a rule."""
    memo = layouts.memo
    if info in memo:
        return memo[info]
    key: object = info
    if info.simple:
        if info.has_other_kinds:
            key = info.maps, info.split_ok, tuple([
                (f.kind, f.operator, f.reach > 0, f.size > 1) for f in info.factors])
        else:
            maps: tuple = ()
            for dims in info.maps:
                if dims and dims not in maps:
                    maps += (dims,)
            key = maps, info.split_ok
    if key not in memo:
        memo[key] = CandidateTable(layouts, info)
    memo[info] = memo[key]
    return memo[key]


def _orders(members: Axes, seen: Sequence[Axes]) -> list[Axes]:
    """Orders of these axes on one factor: those that tensors have, else one that extends one."""
    if len(members) == 1:
        return [members]
    exact = list(dict.fromkeys([s for s in seen if set(s) == set(members)]))
    if exact:
        return exact[:2]
    heads = [s for s in seen if set(s) <= set(members)]
    head = max(heads, key=len, default=())
    return [(*head, *(a for a in members if a not in head))]
