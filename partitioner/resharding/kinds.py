"""Kinds of reasons: was a change of layout asked for, is it needed, or was it chosen?

What an equation could have done is weighed by verdicts.py; here it is found out what its variables
were held in then, and whether the user said how its results are laid out, or what becomes of them.
"""
from __future__ import annotations

import functools
from collections.abc import Sequence

from ...ir.diagnostics.location import Location
from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Atom, Demands, Equation, Literal, Program, Var
from ...ir.rule import PASS
from ...ir.support.named_tuple import NamedTuple
from ..choice.choose import Choice
from ..choice.decisions import Members, Task
from ..choice.layouts import Held
from ..choice.lookahead import Planner
from ..choice.verdicts import ASKED, CHOSEN, Ballot, kind_of
from ..factors import RuleInfo

_FAR = 16           # how many equations what was asked for may be away


class Turn(NamedTuple):
    """An equation that runs otherwise than its types say. part: the number of its first task; held:
    what its variables were held in before; results: its results as they are made.
    """
    eqn: Equation
    info: RuleInfo
    choice: Choice
    members: Members
    part: int
    held: dict[Atom, Held]
    results: Sequence[Var]


class Kinds:
    """Of one program that was decided."""

    def __init__(self, program: Program, demands: Demands, planner: Planner) -> None:
        self.program, self.demands, self.planner = program, demands, planner
        self.layouts = planner.layouts

    def verdict(self, turn: Turn, at: int, more: Sequence[tuple[Turn, int]] = ()
                ) -> tuple[str, str]:
        """What kind of reason there is for moving operand `at` of an equation, or result `~at`, and
        what is to be said of that. more: others that take the operand so.
        """
        k = ~at
        ballot, at = self.ballot(turn, at)
        if at < 0:
            result = turn.eqn.outvars[k]
            summed = ballot.taken.summed or ballot.taken.inner
            kind, row = ballot.of_sum() if summed else ballot.of_result(
                ~at, self.asked_for(result) is not None)
            if summed and self.demands.places.get(result) == turn.eqn.location:
                kind, row = ASKED, None          # by the out_sharding of the equation
            return kind, f", {ballot.alternative(row)}" if row is not None else (
                ", asked for here" if kind == ASKED and summed else "")
        place = ballot.task.places[at]
        if not ballot.price_of(place):
            return CHOSEN, ""                   # a slice: there is nothing to weigh
        places = map(self.asked_for, turn.eqn.outvars if ballot.only_ends else ())
        asked = next((p for p in places if p is not None), None)
        kind, row = ballot.of_operand(place, asked is not None)
        if kind == ASKED:
            return kind, f", asked for at {asked}" if asked.line else ", as asked for"  # type: ignore
        rest = 0
        for other, i in more:
            again, j = self.ballot(other, i, turn.held[turn.eqn.invars[at]])
            found, without = again.of_operand(again.task.places[j], False)
            if without is None:
                return found, ""
            rest += without.price - again.taken.price + again.price_of(again.task.places[j])
        return kind, "" if row is None else f", {ballot.alternative(row, rest)}"

    def ballot(self, turn: Turn, at: int, before: Held = ()) -> tuple[Ballot, int]:
        """What the equation could have done, or the part of it to which operand `at`, or result
        `~at`, belongs; and its place there. before: what the operand is held in, if that is not to
        count which came later.
        """
        eqn, members, part = turn.eqn, turn.members, turn.part
        own: Sequence[int] = range(len(eqn.invars))
        made: Sequence[int] = ()
        if members.__class__ is not Task:
            for member in members:                                      # type: ignore[union-attr]
                places = member.results if at < 0 else member.operands
                if (~at if at < 0 else at) in places:
                    at = ~places.index(~at) if at < 0 else places.index(at)
                    members, own, made = member.task, member.operands, member.results
                    break
                part += 1
        task: Task = members                                            # type: ignore[assignment]
        taken = self.planner.found[part]
        if taken.__class__ is Task:
            taken = task.option
        read = range(task.count) if task.read is None else task.read
        own_held = [turn.held[eqn.invars[own[i]]] for i in read]
        if before:
            own_held[task.places[at]] = before
        mine = turn.results if members is turn.members else [turn.results[k] for k in made]
        ends = tuple([home if pinned else self.end(result, home)
                      for home, pinned, result in zip(task.results, task.pinned, mine,
                                                      strict=True)])
        memo, key = self.layouts.memo, ("ballot", task, taken, tuple(own_held), ends)
        if key not in memo:
            memo[key] = Ballot(self.layouts, *key[1:])                  # type: ignore[arg-type]
        return memo[key], at

    def finished(self, eqns: Sequence[Equation], outvars: Sequence[Atom]) -> None:
        """The program as it is after all; before any verdict."""
        self.reads: dict[Atom, list[Equation | None]] = {}
        for eqn in eqns:
            for a in eqn.invars:
                self.reads.setdefault(a, []).append(eqn)
        for a in outvars:
            self.reads.setdefault(a, []).append(None)

    def end(self, result: Var, home: int) -> int:
        """The layout in which a result is wanted: the first that it is brought to, if it is only
        brought elsewhere. A sum that is passed on is said to be wanted finished, at home.
        """
        reads = self.reads.get(result, ())
        moves = [e for e in reads if e is not None and e.op is reshard_p]
        if moves and len(moves) == len(reads):
            return self.layouts.homes[moves[0].outvars[0].aval]
        own = self.layouts.homes[result.aval]
        return home if own in self.layouts.waiting else own

    def asked_for(self, v: Var, steps: int = _FAR) -> Location | None:
        """Where the user said how a value is laid out, or what becomes of it dimension by
        dimension; None if he does not.
        """
        while steps:
            place = self.demands.places.get(v)
            if place is not None:
                return place
            readers = self.readers.get(v, ())
            for eqn in readers:
                if eqn.op is reshard_p and kind_of(eqn.reason) == ASKED:
                    return eqn.location
            onward = [eqn for eqn in readers if len(eqn.outvars) == 1 and not eqn.op.subprograms
                      and not eqn.op.effect and eqn.op is not reshard_p and all([
                          f.kind == PASS for f in eqn.use.rule(*eqn.types).factors])]
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
