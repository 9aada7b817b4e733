"""Deferred reasons: why each reshard is there, determined once all reshards have been inserted.

While a program is being resharded, each reason is a placeholder. Which of them can be given follows
from everything that was inserted: a value that was produced in another layout than its type says
passes the cause on to what is computed from it.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.ops.communication.sharding import reshard_p
from ...ir.passes import LayoutConstraints
from ...ir.program import Atom, Equation, Program, Var
from ...ir.reasons import AS_XLA, ASKED, CHOSEN, EXCHANGES, NEEDED, OPEN, Clause, Reason
from ...ir.source.location import Location
from ...ir.support.caches import cached
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Entries
from ..choice.lookahead import LookaheadSearch
from ..choice.reasons import operand_reason, result_reason
from ..propagation.resolved_types import typed
from ..reasons import shown_reasons
from .reason_kinds import PlannedEquation, ReasonKinds

Form = tuple[Entries, frozenset[str]]       # a layout, and the axes of a pending sum


class Produced(NamedTuple):
    """A variable that was produced in another layout than its type says: result k of an equation on
    these operands.
    """
    planned: PlannedEquation
    k: int
    operands: Sequence[Atom]


class PendingReason(NamedTuple):
    """A reason still to be given. at: operand `at` of an equation, or its result `~at`. source: the
    variable that the operand was brought from. more: other equations that take it in the same
    layout.
    """
    planned: PlannedEquation
    at: int
    source: Var | None
    more: list[tuple[PlannedEquation, int]]


class OpenReasons:
    """The open reasons of one program. produced: for each variable not produced as its type says,
    where and why, or what it takes to say so (see `why`).
    """

    def __init__(self, program: Program, constraints: LayoutConstraints,
                 search: LookaheadSearch) -> None:
        self.program, self.constraints, self.search = program, constraints, search
        self.produced: dict[Var, Produced | tuple[Location, Reason]] = {}
        self.open: list[PendingReason] = []

    def placeholder(self, planned: PlannedEquation, at: int, source: Var | None = None) -> Reason:
        """A placeholder for a reason that is given once all is known."""
        self.open.append(PendingReason(planned, at, source, []))
        return _open(len(self.open) - 1)

    def why(self, var: Var) -> tuple[Location, Reason]:
        """(where, why) a variable was not produced as its type says."""
        produced, waiting = self.produced, [var]
        while waiting:
            v = waiting[-1]
            made = produced[v]
            if made.__class__ is Produced:
                first = [a for a in made.operands                         # type: ignore[union-attr]
                         if a in produced and produced[a].__class__ is Produced]
                if first:
                    waiting += first
                    continue
                produced[v] = self.cause(*made)                           # type: ignore[misc]
            waiting.pop()
        return produced[var]                                              # type: ignore[return-value]

    def cause(self, planned: PlannedEquation, k: int, operands: Sequence[Atom]
              ) -> tuple[Location, Reason]:
        """(where, why) result k is not as its type says: because of this equation, or of one that
        its sums come from.
        """
        eqn, info, spec = planned.eqn, planned.info, planned.spec
        before: list[tuple[Location, Reason]] = []
        own = spec.pending
        for a, sums in zip(operands, spec.sums, strict=True):
            if sums:
                own = own - sums
                if a in self.produced:
                    before.append(self.why(a))                            # type: ignore[arg-type]
        own = own or not before
        asked = None
        if not before and not spec.pending:
            asked = self.constraints.places.get(eqn.outvars[k])     # of the user
            if asked is None:
                before = self.passed_on(eqn, spec.layouts[info.operands + k], k, operands)
                own = not before
        reason = self.placeholder(planned, ~k) if own else ()
        where = before[0][0] if before else asked or eqn.location
        return where, shown_reasons([*[why for _, why in before], reason] if before else [reason])

    def passed_on(self, eqn: Equation, made: Entries, k: int, operands: Sequence[Atom]
                  ) -> list[tuple[Location, Reason]]:
        """What made an operand differ from its type, if result k differs in the same axes."""
        axes = _differing(made, eqn.outvars[k].aval.entries)
        return [self.why(a) for a, was in zip(operands, eqn.invars, strict=True)
                if isinstance(a, Var) and a in self.produced
                and axes <= _differing(a.aval.entries, was.aval.entries)][:1]

    def explain(self, eqns: Sequence[Equation], outvars: Sequence[Atom],
                source: Callable[[Var, Form], Var]) -> None:
        """The equations with all reasons given. source: the variable from which a value is brought
        to a form.
        """
        kinds = ReasonKinds(self.program, self.constraints, self.search)
        kinds.finished(eqns, outvars)
        found: dict[Clause, Reason] = {}
        for eqn in eqns:
            is_open = False
            for c in eqn.reason:
                if c.sentence is OPEN:
                    is_open = True
                    if c not in found:
                        found[c] = self.given(eqn, self.open[c.values[0]], kinds, source)
            if is_open:
                eqn.reason = shown_reasons([found.get(c, (c,)) for c in eqn.reason])

    def given(self, where: Equation, why: PendingReason, kinds: ReasonKinds,
              source: Callable[[Var, Form], Var]) -> Reason:
        """The reason that a placeholder stands for. source: the variable that holds a value in a
        form.
        """
        planned, at = why.planned, why.at
        eqn, info, spec = planned.eqn, planned.info, planned.spec
        kind, ending = kinds.verdict(planned, at, why.more)
        if self.search.types_stay and kind == CHOSEN:
            ending = AS_XLA()                   # no alternatives were considered
        if where.op is not reshard_p:           # the equation itself exchanges something
            return (EXCHANGES(eqn.op.name, ending=ending),) if kind == CHOSEN else ()
        if at < 0:
            clause = result_reason(eqn.op, info, spec, ~at, eqn.outvars[~at].aval, kind == ASKED)
            return (clause if ending is None else clause._replace(ending=ending),)
        types = []
        for j, atom in enumerate(eqn.invars):
            if j == at:
                types.append(why.source.aval)                           # type: ignore[union-attr]
            elif isinstance(atom, Var):
                types.append(source(atom, (spec.layouts[j], spec.sums[j])).aval)
            else:
                types.append(atom.aval)
        types += [typed(v.aval, self.program.mesh, spec.layouts[info.operands + k], spec.pending)
                  for k, v in enumerate(eqn.outvars)]
        clause = operand_reason(eqn.op, info, at, spec, tuple(types), kind == NEEDED)
        return (clause if ending is None else clause._replace(ending=ending),)


@cached(4096)
def _open(number: int) -> Reason:
    """The placeholder of an open reason."""
    return (OPEN(number),)


def _differing(one: Entries, other: Entries) -> set[str]:
    """The axes that two layouts of a value (perhaps of different rank) place differently."""
    if len(one) != len(other):
        return set()
    return {a for x, y in zip(one, other, strict=True) if x != y for a in {*x} ^ {*y}}
