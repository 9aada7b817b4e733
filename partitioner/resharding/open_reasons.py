"""Deferred reasons: why each reshard is there, told once all reshards have been inserted.

While a program is being resharded, each reason is a placeholder. Which of them can be told follows
from everything that was inserted: a value that was produced in another layout than its type says
passes the cause on to what is computed from it.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.ops.communication.sharding import reshard_p
from ...ir.passes import LayoutConstraints
from ...ir.program import Atom, Equation, Program, Var
from ...ir.source.location import Location
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Entries
from ..choice.comparisons import ASKED, CHOSEN, NEEDED
from ..choice.lookahead import LookaheadSearch
from ..choice.reasons import operand_reason, result_reason
from ..propagation.resolved_types import typed
from ..reasons import shown_reasons
from .reason_kinds import PlannedEquation, ReasonKinds

_OPEN = "?"                 # a reason that is said when all is known
Form = tuple[Entries, frozenset[str]]       # a layout, and the axes that a sum waits for


class Produced(NamedTuple):
    """A variable that was produced otherwise than its type says: result k of an equation, with the
    operands that it runs on.
    """
    planned: PlannedEquation
    k: int
    operands: Sequence[Atom]


class PendingReason(NamedTuple):
    """A reason that is given when all is known. at: operand `at` of an equation, or its result
    `~at`; source: what the operand was; more: other equations that take it so.
    """
    planned: PlannedEquation
    at: int
    source: Var | None
    more: list[tuple[PlannedEquation, int]]


class OpenReasons:
    """Of one program. produced: per variable that was not produced as its type said, what it takes
    to say where and why, or that (see `why`).
    """

    def __init__(self, program: Program, constraints: LayoutConstraints,
                 search: LookaheadSearch) -> None:
        self.program, self.constraints, self.search = program, constraints, search
        self.produced: dict[Var, Produced | tuple[Location, str]] = {}
        self.open: list[PendingReason] = []

    def placeholder(self, planned: PlannedEquation, at: int, source: Var | None = None) -> str:
        """What stands for a reason until all is known."""
        self.open.append(PendingReason(planned, at, source, []))
        return f"{_OPEN}{len(self.open) - 1}"

    def why(self, var: Var) -> tuple[Location, str]:
        """Where and why a variable was not produced as its type said."""
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
              ) -> tuple[Location, str]:
        """Where and why result k is not as its type says: here, or where its sums come from."""
        eqn, info, spec = planned.eqn, planned.info, planned.spec
        before: list[tuple[Location, str]] = []
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
        reason = ""
        if own:
            reason = self.placeholder(planned, ~k)
        where = before[0][0] if before else asked or eqn.location
        return where, shown_reasons([*[why for _, why in before], reason] if before else [reason])

    def passed_on(self, eqn: Equation, made: Entries, k: int, operands: Sequence[Atom]
                  ) -> list[tuple[Location, str]]:
        """What made an operand differ from its type, where result k differs in the same axes."""
        axes = _differing(made, eqn.outvars[k].aval.entries)
        return [self.why(a) for a, was in zip(operands, eqn.invars, strict=True)
                if isinstance(a, Var) and a in self.produced
                and axes <= _differing(a.aval.entries, was.aval.entries)][:1]

    def explain(self, eqns: Sequence[Equation], outvars: Sequence[Atom],
                source: Callable[[Var, Form], Var]) -> None:
        """Give the reasons that were left open. source: the variable from which a value is brought
        to a form.
        """
        kinds = ReasonKinds(self.program, self.constraints, self.search)
        kinds.finished(eqns, outvars)
        found: dict[str, str] = {}
        for eqn in eqns:
            if _OPEN in eqn.reason:
                clauses = eqn.reason.split("; ")
                for c in clauses:
                    if c[:1] == _OPEN and c not in found:
                        found[c] = self.rendered(
                            eqn, self.open[int(c[1:])], kinds, source)
                eqn.reason = shown_reasons([found.get(c, c) for c in clauses])

    def rendered(self, where: Equation, why: PendingReason, kinds: ReasonKinds,
                 source: Callable[[Var, Form], Var]) -> str:
        planned, at = why.planned, why.at
        eqn, info, spec = planned.eqn, planned.info, planned.spec
        kind, said = kinds.verdict(planned, at, why.more)
        if self.search.types_stay and kind == CHOSEN:
            said = ", as in XLA"                # nobody looked at what else it could be
        if where.op is not reshard_p:           # it exchanges something itself
            return f"`{eqn.op.name}` puts its blocks together{said}" if kind == CHOSEN else ""
        if at < 0:
            return result_reason(eqn.op, info, spec, ~at, eqn.outvars[~at].aval,
                                 kind == ASKED) + said
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
        return operand_reason(eqn.op, info, at, spec, tuple(types), kind == NEEDED) + said


def _differing(one: Entries, other: Entries) -> set[str]:
    """Axes that two layouts of a value (perhaps of other rank) put elsewhere."""
    if len(one) != len(other):
        return set()
    return {a for x, y in zip(one, other, strict=True) if x != y for a in {*x} ^ {*y}}
