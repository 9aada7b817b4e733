"""From RESOLVED to RESHARDED: every change of layout becomes a `reshard` equation.

Each equation takes its operands and produces its results as its strategy says (choice/). A value
stays as it was produced until a reader needs it otherwise, unless the user or its type pins the
layout. Every reshard has a reason, and a value that is needed twice in one layout is brought there
once. A split contraction has a result `{U:X}`, and the reshard after it says where the sum goes.
"""
from __future__ import annotations

import functools
from collections.abc import Sequence

from ...ir.attributes import RECOMPUTES, LayoutConstraints
from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Atom, Equation, Level, Literal, Program, Var
from ...ir.settings.phases import phase
from ...ir.source.location import UNKNOWN, Location
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType, Entries
from ..choice.comparisons import ASKED, CHOSEN, NEEDED
from ..choice.decisions import Decision, DecisionBuilder, EquationDecision
from ..choice.layouts import LayoutIds, LayoutTable, layouts_for
from ..choice.lookahead import LookaheadSearch, LoopTrips
from ..choice.reasons import operand_reason, result_reason
from ..choice.strategies import Strategy, StrategySpec
from ..cost.prices import Prices
from ..factors import RuleInfo, rule_info
from ..propagation.resolved_types import name_of_form, reshard_equation, typed
from ..reasons import shown_reasons
from ..regions import has_region, region_of, with_programs
from .folding import fold_reshards
from .loop_values import carried_of, constants_of
from .reason_kinds import PlannedEquation, ReasonKinds

Form = tuple[Entries, frozenset[str]]       # a layout, and the axes that a sum waits for


def insert_reshards(program: Program, prices: Prices) -> Program:
    """The pass: a RESHARDED program whose equations agree on every factor."""
    return resharded(program, prices, LookaheadSearch)


def resharded(program: Program, prices: Prices, search: type[LookaheadSearch]) -> Program:
    """The same by the strategies that this search finds."""
    constraints = program.memo.get(LayoutConstraints.KEY, _ALL_FIXED)
    if search.types_stay:
        constraints = LayoutConstraints(None, constraints.places)
    return _resharded(program, layouts_for(program, prices), constraints, {}, dict, search)


_ALL_FIXED = LayoutConstraints(None, {})
_OPEN = "?"                 # a reason that is said when all is known


def _resharded(program: Program, layouts: LayoutTable, constraints: LayoutConstraints,
               repeats: dict[Var, int], loop_trips: LoopTrips,
               search_of: type[LookaheadSearch]) -> Program:
    """repeats, loop_trips: as of `LookaheadSearch`."""
    with phase("choose", len(program.eqns)):
        members = DecisionBuilder(layouts, constraints.fixed).of(program.eqns)
        for parts in members:
            if parts.__class__ is not Decision or not parts.rest:          # type: ignore
                break
        else:
            return program.replace(level=Level.RESHARDED)       # nothing to choose or to move
        search = search_of(layouts, program, members, repeats, loop_trips)
        plan = search.run()
    return _Chooser(program, constraints, search).run(plan)


def form(aval: ArrayType) -> Form:
    return aval.entries, aval.sharding.spec.unreduced


class _Produced(NamedTuple):
    """A variable that was produced otherwise than its type says: result k of an equation, with the
    operands that it runs on.
    """
    planned: PlannedEquation
    k: int
    operands: Sequence[Atom]


class _PendingReason(NamedTuple):
    """A reason that is given when all is known. at: operand `at` of an equation, or its result
    `~at`; source: what the operand was; more: other equations that take it so.
    """
    planned: PlannedEquation
    at: int
    source: Var | None
    more: list[tuple[PlannedEquation, int]]


class _Chooser:
    """One program."""

    def __init__(self, program: Program, constraints: LayoutConstraints,
                 search: LookaheadSearch) -> None:
        self.program = program
        self.mesh = program.mesh
        self.search = search
        self.layouts, self.constraints, self.repeats = search.layouts, constraints, search.repeats
        self.eqns: list[Equation] = []
        self.env: dict[Var, Var] = {}
        # per value, the variables that hold it; per variable that was not produced as its type
        # said, what it takes to say where and why, or that (see `why`)
        self.held: dict[Var, dict[Form, Var]] = {}
        self.produced: dict[Var, _Produced | tuple[Location, str]] = {}
        self.moved: set[Var] = set()
        self.open: list[_PendingReason] = []
        self.brought: dict[Var, _PendingReason] = {}     # by what was brought
        self.kinds = ReasonKinds(program, constraints, search)
        self.repeats_work = search.repeats_work     # by the planner, here or in nested programs
        self.loose = False          # may a reshard be read by another one alone, or by nobody?

    def run(self, plan: Sequence[Strategy | StrategySpec | Decision | None]) -> Program:
        """plan: as of `LookaheadSearch.run`."""
        program = self.program
        env, eqns = self.env, self.eqns
        part = 0
        for eqn, members, taken in zip(program.eqns, self.search.members, plan, strict=True):
            if taken is not None:
                if taken.__class__ is Decision:
                    same = taken.rest                                   # type: ignore[union-attr]
                else:
                    same = taken.__class__ is Strategy and (
                        *taken.needs, *taken.results) == members.homes  # type: ignore[union-attr]
                if env and same:
                    for a in eqn.invars:
                        if a in env:
                            same = False
                if same:
                    eqns.append(eqn)
                else:
                    spec = taken if taken.__class__ is StrategySpec else taken.spec  # type: ignore
                    self.append_planned(eqn, members, part, spec)       # type: ignore[arg-type]
            elif eqn.op is reshard_p:
                self.reshard(eqn)
            else:
                self.holding(eqn)
            part += 1 if members.__class__ is Decision else len(members)    # type: ignore[arg-type]
        outvars = [self.as_typed(atom, UNKNOWN, "") for atom in program.outvars]
        if self.open:
            self.explain(outvars)
        if self.loose and not self.search.types_stay:
            eqns, outvars = fold_reshards(eqns, outvars)
        made = program.replace(eqns=eqns, outvars=outvars, level=Level.RESHARDED)
        if self.repeats_work:
            made.memo[RECOMPUTES] = True
        return made

    def nested(self, program: Program, repeats: dict[Var, int], loop_trips: LoopTrips) -> Program:
        layouts = self.layouts if program.mesh is self.mesh else layouts_for(
            program, self.layouts.prices)
        made = _resharded(program, layouts, self.constraints, repeats, loop_trips,
                          type(self.search))
        self.repeats_work = self.repeats_work or RECOMPUTES in made.memo
        return made

    def laid_out(self, aval: ArrayType, entries: Entries, pending: frozenset[str]) -> ArrayType:
        """The type of a value in another layout."""
        return typed(aval, self.mesh, entries, pending)

    # -- values ----------------------------------------------------------------------------------

    def forms(self, v: Var) -> dict[Form, Var]:
        if v not in self.held:
            first = self.env[v] if v in self.env else v
            self.held[v] = {form(first.aval): first}
        return self.held[v]

    def source(self, v: Var, need: Form) -> Var:
        """The variable from which `v` is brought to a form for least."""
        held = self.forms(v)
        if need in held:
            return held[need]
        if len(held) == 1:
            return next(iter(held.values()))
        named = self.layouts.named
        numbers = {named(*f): var for f, var in held.items()}
        _, best = self.layouts.nearest(self.layouts.kinds_of[v.aval], tuple(numbers),
                                       named(*need))
        return numbers[best]

    def bring(self, v: Var, need: Form, location: Location, reason: str,
              name: str | None = None, source: Var | None = None) -> Var:
        """The variable that holds `v` so, by a reshard if there is none. source: as of `source`,
        where that is known.
        """
        source = source or self.source(v, need)
        if form(source.aval) == need:
            return source
        if source in self.produced and (source.aval.sharding.spec.unreduced or not reason):
            location, why = self.why(source)
            moved = source.aval.entries != need[0]
            reason = shown_reasons([why, reason if moved else ""])
        move = reshard_equation(source, self.laid_out(v.aval, *need), location, reason,
                                name or v.name)
        self.eqns.append(move)
        self.loose = self.loose or source in self.moved
        (result,) = move.outvars
        self.moved.add(result)
        self.held[v][need] = result
        return result

    def as_typed(self, atom: Atom, location: Location, reason: str) -> Atom:
        if isinstance(atom, Literal) or (atom not in self.env and atom not in self.held):
            return atom
        return self.bring(atom, form(atom.aval), location, reason)

    # -- equations -------------------------------------------------------------------------------

    def append_planned(self, eqn: Equation, members: EquationDecision, part: int, spec: StrategySpec
               ) -> None:
        if members.__class__ is Decision:
            pinned = members.pinned                                     # type: ignore[union-attr]
            info: RuleInfo = members.info                               # type: ignore
        else:
            pinned = {k: p for m in members                             # type: ignore[union-attr]
                      for k, p in zip(m.results, m.decision.pinned, strict=True)}
            info = rule_info(eqn.instance.rule(*eqn.types))
        env, held = self.env, self.held
        operands: list[Atom] = [*eqn.invars]
        results = [*eqn.outvars]
        planned = PlannedEquation(eqn, info, spec, members, part, self.numbers(eqn), results)
        same = True
        for i, atom in enumerate(eqn.invars):
            if atom.__class__ is not Literal:
                layout, sums = spec.layouts[i], spec.sums[i]
                now = env[atom] if atom in env else atom                        # type: ignore
                aval = now.aval
                if (atom in held or aval.entries != layout
                        or aval.sharding.spec.unreduced != sums):
                    now = self.source(atom, (layout, sums))                     # type: ignore
                    if form(now.aval) != (layout, sums):
                        now = self.take(planned, i, atom, now, (layout, sums))     # type: ignore
                    elif now in self.brought:
                        self.brought[now].more.append((planned, i))                # type: ignore
                if now is not atom:
                    operands[i] = now
                    same = False
        after: list[tuple[Var, Var]] = []
        pending = spec.pending
        for k, var in enumerate(eqn.outvars):
            made, aval = spec.layouts[info.operands + k], var.aval
            if made != aval.entries or pending != aval.sharding.spec.unreduced:
                given = self.laid_out(aval, made, pending)
                result = Var(given, None if pinned[k] else name_of_form(var, given))
                env[var] = results[k] = result
                same = False
                made_by = _Produced(planned, k, operands)
                if pinned[k]:
                    self.produced[result] = self.cause(*made_by)
                    after.append((var, result))
                else:
                    self.produced[result] = made_by
        if spec.received:
            eqn = eqn.replace(reason=self.placeholder(planned, ~0))
        self.eqns.append(eqn if same else eqn.with_operands(operands, results))
        for var, result in after:
            sharding = var.aval.sharding
            self.eqns.append(Equation(reshard_p, (result,), (var,), {"dst_sharding": sharding},
                                      *self.why(result)))
            self.loose = self.loose or var not in self.search.last
            self.moved.add(var)
            self.held[var] = {form(var.aval): var}
            env[var] = var

    def take(self, planned: PlannedEquation, i: int, atom: Var, source: Var, need: Form) -> Var:
        """Operand i of an equation, brought to where it takes it."""
        why = self.placeholder(planned, i, source)
        now = self.bring(atom, need, planned.eqn.location, why, None, source)
        if why in self.eqns[-1].reason.split("; "):
            self.brought[now] = self.open[-1]
        return now

    def why(self, var: Var) -> tuple[Location, str]:
        """Where and why a variable was not produced as its type said."""
        produced, waiting = self.produced, [var]
        while waiting:
            v = waiting[-1]
            made = produced[v]
            if made.__class__ is _Produced:
                first = [a for a in made.operands                         # type: ignore[union-attr]
                         if a in produced and produced[a].__class__ is _Produced]
                if first:
                    waiting += first
                    continue
                produced[v] = self.cause(*made)                           # type: ignore[misc]
            waiting.pop()
        return produced[var]                                              # type: ignore[return-value]

    def cause(self, planned: PlannedEquation, k: int, operands: Sequence[Atom]) -> tuple[Location,
                                                                                         str]:
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

    def numbers(self, eqn: Equation) -> dict[Atom, LayoutIds]:
        """What the variables of an equation are held in."""
        named, env = self.layouts.named, self.env
        return {v: tuple([named(*f) for f in self.held[v]]) if v in self.held
                else (named(*form((env[v] if v in env else v).aval)),)          # type: ignore
                for v in eqn.invars if v.__class__ is not Literal}

    def placeholder(self, planned: PlannedEquation, at: int, source: Var | None = None) -> str:
        """What stands for a reason until all is known."""
        self.open.append(_PendingReason(planned, at, source, []))
        return f"{_OPEN}{len(self.open) - 1}"

    def explain(self, outvars: Sequence[Atom]) -> None:
        """Give the reasons that were left open."""
        self.kinds.finished(self.eqns, outvars)
        found: dict[str, str] = {}
        for eqn in self.eqns:
            if _OPEN in eqn.reason:
                clauses = eqn.reason.split("; ")
                for c in clauses:
                    if c[:1] == _OPEN and c not in found:
                        found[c] = self.render_reason(eqn, self.open[int(c[1:])])
                eqn.reason = shown_reasons([found.get(c, c) for c in clauses])

    def render_reason(self, where: Equation, why: _PendingReason) -> str:
        planned, at = why.planned, why.at
        eqn, info, spec = planned.eqn, planned.info, planned.spec
        kind, said = self.kinds.verdict(planned, at, why.more)
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
                types.append(self.source(atom, (spec.layouts[j], spec.sums[j])).aval)
            else:
                types.append(atom.aval)
        types += [self.laid_out(v.aval, spec.layouts[info.operands + k], spec.pending)
                  for k, v in enumerate(eqn.outvars)]
        return operand_reason(eqn.op, info, at, spec, tuple(types), kind == NEEDED) + said

    def reshard(self, eqn: Equation) -> None:
        (operand,), (result,) = eqn.invars, eqn.outvars
        if isinstance(operand, Literal) or result.aval.sharding.spec.reduced \
                or operand.aval.sharding.spec.reduced:
            self.eqns.append(eqn.replace(invars=(self.as_typed(operand, eqn.location, ""),)))
            return
        self.loose = self.loose or result not in self.search.last
        self.env[result] = self.bring(operand, form(result.aval), eqn.location, eqn.reason,
                                      result.name)

    def holding(self, eqn: Equation) -> None:
        """An equation with programs in it: operands and results are as the types say."""
        reason = f"`{eqn.op.name}` keeps this value in one layout"
        operands = [self.as_typed(a, eqn.location, reason) for a in eqn.invars]
        programs: dict[tuple[str, int], Program] = {}
        if has_region(eqn):
            region = region_of(eqn)
            repeats = constants_of(region, eqn, self.repeats)
            programs = {(name, place): self.nested(
                p, repeats, functools.partial(carried_of, region, eqn, n))
                for n, (name, place, p) in enumerate(region.programs)}
        else:
            programs = {(name, -1): self.nested(eqn.params[name], {}, dict)
                        for name in eqn.op.subprograms}
        self.eqns.append(eqn.replace(invars=operands, params=with_programs(eqn.params, programs)))


def _differing(one: Entries, other: Entries) -> set[str]:
    """Axes that two layouts of a value (perhaps of other rank) put elsewhere."""
    if len(one) != len(other):
        return set()
    return {a for x, y in zip(one, other, strict=True) if x != y for a in {*x} ^ {*y}}
