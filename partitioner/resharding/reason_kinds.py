"""Whether an exchange was requested by the user, needed by the op, or chosen for its cost.

`comparisons.py` compares the strategies that an equation had. This module looks up the state before
the equation: the layouts in which its operands were available, and whether the user fixed the
sharding of its results or of what is computed from them.
"""
from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence

from ...ir import reasons as say
from ...ir.ops.communication.sharding import reshard_p
from ...ir.passes import LayoutConstraints
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.reasons import ASKED, CHOSEN, Alternative, Clause
from ...ir.rules.factor import PASS
from ...ir.source.location import Location
from ...ir.support.named_tuple import NamedTuple
from ..choice.comparisons import Comparison
from ..choice.decisions import Decision, EquationDecision
from ..choice.layout_costs import LayoutIds
from ..choice.lookahead import LookaheadSearch
from ..choice.strategies import StrategySpec
from ..factors import RuleInfo
from ..reasons import kind_of

_FAR = 16           # equations, at most, to a constraint by the user


class PlannedEquation(NamedTuple):
    """An equation that runs otherwise than its types say. part: the number of its first decision.
    held: the layouts in which its variables were available. results: as they are produced.
    """
    eqn: Equation
    info: RuleInfo
    spec: StrategySpec
    members: EquationDecision
    part: int
    held: dict[Atom, LayoutIds]
    results: Sequence[Var]


class ReasonKinds:
    """The kinds of reasons in one program that has been decided."""

    def __init__(self, program: Program, constraints: LayoutConstraints,
                 search: LookaheadSearch) -> None:
        self.program, self.constraints, self.search = program, constraints, search
        self.layouts = search.layouts

    def verdict(self, planned: PlannedEquation, at: int,
                more: Sequence[tuple[PlannedEquation, int]] = ()
                ) -> tuple[str, Clause | Alternative | None]:
        """(kind, ending of the clause) for moving operand `at` of an equation, or result `~at`.
        more: other equations that take the operand in the same layout.
        """
        k = ~at
        comparison, at = self.comparison(planned, at)
        if at < 0:
            result = planned.eqn.outvars[k]
            summed = comparison.taken.summed or comparison.taken.exchanges_inside
            kind, row = comparison.of_sum() if summed else comparison.of_result(
                ~at, self.asked_for(result) is not None)
            if summed and self.constraints.places.get(result) == planned.eqn.location:
                kind, row = ASKED, None          # with the equation's out_sharding
            return kind, comparison.alternative(row) if row is not None else (
                say.ASKED_HERE() if kind == ASKED and summed else None)
        place = comparison.decision.places[at]
        if not comparison.cost_of(place):
            return CHOSEN, None                 # a slice costs nothing
        places = map(self.asked_for, planned.eqn.outvars if comparison.only_ends else ())
        asked = next((p for p in places if p is not None), None)
        kind, row = comparison.of_operand(place, asked is not None)
        if kind == ASKED:
            return kind, say.ASKED_AT(str(asked)) if asked.line else say.ASKED_SO()     # type: ignore
        others = taken = 0
        for other, i in more:
            again, j = self.comparison(other, i, planned.held[planned.eqn.invars[at]])
            found, without = again.of_operand(again.decision.places[j], False)
            if without is None:
                return found, None
            others += without.cost
            taken += again.taken.cost - again.cost_of(again.decision.places[j])
        return kind, None if row is None else comparison.alternative(row, others, taken)

    def comparison(self, planned: PlannedEquation, at: int, before: LayoutIds = ()
                   ) -> tuple[Comparison, int]:
        """(the alternatives of the equation, or of the part of it to which operand `at` or result
        `~at` belongs; the position in it). before: the layout in which the operand is available, if
        layouts that came later are not to count.
        """
        eqn, members, part = planned.eqn, planned.members, planned.part
        own: Sequence[int] = range(len(eqn.invars))
        made: Sequence[int] = ()
        if members.__class__ is not Decision:
            for member in members:                                      # type: ignore[union-attr]
                places = member.results if at < 0 else member.operands
                if (~at if at < 0 else at) in places:
                    at = ~places.index(~at) if at < 0 else places.index(at)
                    members, own, made = member.decision, member.operands, member.results
                    break
                part += 1
        decision: Decision = members                                            # type: ignore[assignment]
        taken = self.search.found[part]
        if taken.__class__ is Decision:
            taken = decision.strategy
        read = range(decision.count) if decision.read is None else decision.read
        own_held = [planned.held[eqn.invars[own[i]]] for i in read]
        if before:
            own_held[decision.places[at]] = before
        mine = planned.results if members is planned.members else [planned.results[k] for k in made]
        ends = tuple([home if pinned else self.end(result, home)
                      for home, pinned, result in zip(decision.results, decision.pinned, mine,
                                                      strict=True)])
        memo, key = self.layouts.memo, ("comparison", decision, taken, tuple(own_held), ends)
        if key not in memo:
            memo[key] = Comparison(self.layouts, *key[1:])                  # type: ignore[arg-type]
        return memo[key], at

    def finished(self, eqns: Sequence[Equation], outvars: Sequence[Atom]) -> None:
        """Take note of the final program, before any verdict."""
        self.reads: defaultdict[Atom, list[Equation | None]] = defaultdict(list)
        for eqn in eqns:
            for a in eqn.invars:
                self.reads[a].append(eqn)
        for a in outvars:
            self.reads[a].append(None)

    def end(self, result: Var, home: int) -> int:
        """The layout in which a result is wanted: the first to which it is brought, if it is only
        resharded. For a sum that is passed on, finished in the layout of its type.
        """
        reads = self.reads.get(result, ())
        moves = [e for e in reads if e is not None and e.op is reshard_p]
        if moves and len(moves) == len(reads):
            return self.layouts.homes[moves[0].outvars[0].aval]
        own = self.layouts.homes[result.aval]
        return home if own in self.layouts.waiting else own

    def asked_for(self, v: Var, steps: int = _FAR) -> Location | None:
        """Where the user wrote the layout of a value, or of one that follows from it dimension by
        dimension; None if nowhere.
        """
        while steps:
            place = self.constraints.places.get(v)
            if place is not None:
                return place
            readers = self.readers.get(v, ())
            for eqn in readers:
                if eqn.op is reshard_p and kind_of(eqn.reason)[0] == ASKED:
                    return eqn.location
            onward = [eqn for eqn in readers if len(eqn.outvars) == 1 and not eqn.op.subprograms
                      and not eqn.op.effect and eqn.op is not reshard_p and all([
                          f.kind == PASS for f in eqn.instance.rule(*eqn.types).factors])]
            if not onward:
                return None
            (v,) = onward[0].outvars
            steps -= 1
        return None

    @functools.cached_property
    def readers(self) -> dict[Atom, list[Equation]]:
        found: dict[Atom, list[Equation]] = {}
        for eqn in self.program.eqns:
            for a in dict.fromkeys(eqn.invars):
                if a.__class__ is not Literal:
                    found.setdefault(a, []).append(eqn)
        return found
