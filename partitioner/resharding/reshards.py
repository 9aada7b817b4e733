"""From RESOLVED to RESHARDED: every change of layout becomes a `reshard` equation.

Each equation takes its operands and produces its results as its strategy says (choice/). A value
stays as it was produced until a reader needs it otherwise, unless the user or its type pins the
layout. Every reshard has a reason, and a value that is needed twice in one layout is brought there
once. A split contraction has a result `{U:X}`, and the reshard after it says where the sum goes.

What loops carry is as propagation found it (carry_layouts.py may change that later). What one loop
stacks for another one alone, as values for its gradient, stays as its body made it.
"""
from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence, Set

from ...ir.ops.communication.sharding import reshard_p
from ...ir.ops.control.region import Region
from ...ir.passes import RECOMPUTES, LayoutConstraints
from ...ir.program import Atom, Equation, Level, Literal, Program, Var
from ...ir.reasons import Reason
from ...ir.rewriting.substitution import substituted
from ...ir.rules.factor import SCAN
from ...ir.settings.phases import phase
from ...ir.source.location import UNKNOWN, Location
from ...ir.types import ArrayType, Entries
from ..choice.decisions import Decision, DecisionBuilder, EquationDecision
from ..choice.layout_costs import LayoutIds
from ..choice.layouts import LayoutTable, layouts_for
from ..choice.lookahead import LookaheadSearch, SumTrips, WideSearch
from ..choice.strategies import Strategy, StrategySpec
from ..cost.prices import Prices
from ..factors import RuleInfo, rule_info
from ..propagation.boundary_reasons import layout_reason
from ..propagation.resolved_types import name_of_form, reshard_equation, typed
from ..reasons import shown_reasons
from ..regions import has_region, region_of, with_programs
from .folding import fold_reshards
from .loop_values import Stack, carried_of, constants_of, stacks_between_loops
from .open_reasons import Form, OpenReasons, PendingReason, Produced
from .reason_kinds import PlannedEquation

_ALL_FIXED = LayoutConstraints(None, {})
_NONE: frozenset = frozenset()


def insert_reshards(program: Program, prices: Prices, draft: bool = False, wide: bool = False
                    ) -> Program:
    """The pass: a RESHARDED program whose equations agree on every factor. draft: as for
    `resharded`. wide: search it widely however long it is.
    """
    return resharded(program, prices, WideSearch if wide else LookaheadSearch, draft)


def resharded(program: Program, prices: Prices, search: type[LookaheadSearch],
              draft: bool = False) -> Program:
    """`insert_reshards` with the strategies of this search. draft: leave reasons open."""
    constraints = program.attributes.get(LayoutConstraints.KEY, _ALL_FIXED)
    if search.types_stay:
        constraints = LayoutConstraints(None, constraints.places)
    holder = layouts_for(program, prices)
    return _resharded(program, holder.layouts, constraints, {}, dict, search, draft)


def _resharded(program: Program, layouts: LayoutTable, constraints: LayoutConstraints,
               repeats: dict[Var, int], sum_trips: SumTrips,
               search_of: type[LookaheadSearch], draft: bool, free: Set[int] = _NONE
               ) -> Program:
    """repeats, sum_trips, free: as in `LookaheadSearch`."""
    with phase("choose", len(program.eqns)):
        members = DecisionBuilder(layouts, constraints.fixed).of(program.eqns)
        for parts in members:
            if parts.__class__ is not Decision or not parts.rest:          # type: ignore
                break
        else:
            return program.replace(level=Level.RESHARDED)       # nothing to choose or move
        search = search_of(layouts, program, members, repeats, sum_trips, free)
        plan = search.run()
    return _Chooser(program, constraints, search, draft).run(plan)


def form(aval: ArrayType) -> Form:
    return aval.entries, aval.sharding.spec.unreduced


class _Chooser:
    """Writes one program with its reshards."""

    def __init__(self, program: Program, constraints: LayoutConstraints,
                 search: LookaheadSearch, draft: bool) -> None:
        self.program, self.draft = program, draft
        self.mesh = program.mesh
        self.search = search
        self.layouts, self.constraints, self.repeats = search.layouts, constraints, search.repeats
        self.eqns: list[Equation] = []
        self.env: dict[Var, Var] = {}
        self.held: dict[Var, dict[Form, Var]] = {}      # value to its variables, in all layouts
        self.moved: set[Var] = set()
        self.inside: dict[tuple[Var, Form, Hashable], Var] = {}     # see `along`
        self.brought: dict[Var, PendingReason] = {}     # by what was brought
        self.reasons = OpenReasons(program, constraints, search)
        self.repeats_work = search.repeats_work     # by the planner, here or in nested programs
        self.loose = False          # may a reshard have only another one as reader, or none?
        self.stacks: dict[Atom, Stack] | None = None    # that need not be as typed, once asked for

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
        outvars = [self.smallest_form(atom) if k in self.search.free else
                   self.as_typed(atom, UNKNOWN, ()) for k, atom in enumerate(program.outvars)]
        if self.reasons.open and not self.draft:
            self.reasons.explain(eqns, outvars, self.source)
        made = program.replace(eqns=eqns, outvars=outvars, level=Level.RESHARDED)
        if self.loose and not self.search.types_stay:
            made = fold_reshards(made)
        if self.repeats_work:
            made.attributes[RECOMPUTES] = True
        return made

    def nested(self, program: Program, repeats: dict[Var, int], sum_trips: SumTrips,
               free: Set[int] = _NONE) -> Program:
        layouts = self.layouts
        if program.mesh is not self.mesh:
            holder = layouts_for(program, layouts.prices)
            layouts = holder.layouts
        made = _resharded(program, layouts, self.constraints, repeats, sum_trips,
                          type(self.search), self.draft, free)
        self.repeats_work = self.repeats_work or RECOMPUTES in made.attributes
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
        """The variable from which bringing `v` to a form is cheapest."""
        held = self.forms(v)
        if need in held:
            return held[need]
        if len(held) == 1 or self.search.types_stay:
            return next(iter(held.values()))
        named = self.layouts.named
        numbers = {named(*f): var for f, var in held.items()}
        _, best = self.layouts.nearest(self.layouts.kinds_of[v.aval], tuple(numbers),
                                       named(*need))
        return numbers[best]

    def bring(self, v: Var, need: Form, location: Location, reason: Reason,
              name: str | None = None, source: Var | None = None) -> Var:
        """The variable that holds `v` in this form, made by a new reshard if necessary. source: the
        result of `source`, if known.
        """
        source = source or self.source(v, need)
        if form(source.aval) == need:
            return source
        if source in self.reasons.produced and (source.aval.sharding.spec.unreduced or not reason):
            location, why = self.reasons.why(source)
            moved = source.aval.entries != need[0]
            reason = shown_reasons([why, reason if moved else ()])
        move = reshard_equation(source, self.laid_out(v.aval, *need), location, reason,
                                name or v.name)
        self.eqns.append(move)
        self.loose = self.loose or source in self.moved
        (result,) = move.outvars
        self.moved.add(result)
        self.held[v][need] = result
        return result

    def as_typed(self, atom: Atom, location: Location, reason: Reason) -> Atom:
        if isinstance(atom, Literal) or (atom not in self.env and atom not in self.held):
            return atom
        return self.bring(atom, form(atom.aval), location, reason)

    def smallest_form(self, atom: Atom) -> Atom:
        """A result in the layout in which it is available, if its blocks are smaller there."""
        if atom in self.env and form(atom.aval) not in self.forms(atom):
            found, t = self.env[atom], self.env[atom].aval
            if not t.sharding.spec.unreduced and t.local_size < atom.aval.local_size:
                return found
        return self.as_typed(atom, UNKNOWN, ())

    # -- equations -------------------------------------------------------------------------------

    def append_planned(self, eqn: Equation, members: EquationDecision, part: int, spec: StrategySpec
               ) -> None:
        """Append an equation by its strategy: reshards of operands, the equation on these, and a
        reshard of each pinned result that it makes in another layout. A result that is not pinned
        stays as it is made.
        """
        if members.__class__ is Decision:
            pinned = members.pinned                                     # type: ignore[union-attr]
            info: RuleInfo = members.info                               # type: ignore
        else:
            pinned = {k: p for m in members                             # type: ignore[union-attr]
                      for k, p in zip(m.results, m.decision.pinned, strict=True)}
            info = rule_info(eqn.instance.rule(*eqn.types))
        results = [*eqn.outvars]
        planned = PlannedEquation(eqn, info, spec, members, part, self.numbers(eqn), results)
        operands = self.taken(planned)
        after: list[tuple[Var, Var]] = []
        pending = spec.pending
        for k, var in enumerate(eqn.outvars):
            made, aval = spec.layouts[info.operands + k], var.aval
            if made != aval.entries or pending != aval.sharding.spec.unreduced:
                given = self.laid_out(aval, made, pending)
                result = Var(given, None if pinned[k] else name_of_form(var, given))
                self.env[var] = results[k] = result
                made_by = Produced(planned, k, operands)
                if pinned[k]:
                    self.reasons.produced[result] = self.reasons.cause(*made_by)
                    after.append((var, result))
                else:
                    self.reasons.produced[result] = made_by
        if spec.received:
            eqn = eqn.replace(reason=self.reasons.placeholder(planned, ~0))
        same = (*operands,) == eqn.invars and (*results,) == eqn.outvars
        self.eqns.append(eqn if same else eqn.with_operands(operands, results))
        for var, result in after:
            now, why = result, self.reasons.why(result)
            intermediate = [
                Var(self.laid_out(var.aval, entries or (), _NONE)) for entries, _ in
                self.search.paths.get((members, info.operands), ())]            # type: ignore
            for then in (*intermediate, var):
                if now.aval is not then.aval or then is var:
                    self.eqns.append(Equation(reshard_p, (now,), (then,), {
                        "dst_sharding": then.aval.sharding}, *why))
                    now = then
            self.loose = self.loose or var not in self.search.last
            self.moved.add(var)
            self.held[var] = {form(var.aval): var}
            if self.search.types_stay and not any([f.kind == SCAN for f in info.factors]):
                self.held[var][form(result.aval)] = result      # XLA still has it as it was made,
                                                                # but of scans only own blocks
            self.env[var] = var

    def taken(self, planned: PlannedEquation) -> list[Atom]:
        """The operands of an equation, each in the layout in which its strategy takes it."""
        env, held, spec, paths = self.env, self.held, planned.spec, self.search.paths
        operands: list[Atom] = [*planned.eqn.invars]
        for i, atom in enumerate(planned.eqn.invars):
            if atom.__class__ is not Literal:
                layout, sums = spec.layouts[i], spec.sums[i]
                now = env[atom] if atom in env else atom                        # type: ignore
                aval = now.aval
                if paths and (planned.members, i) in paths:                       # type: ignore
                    now = self.along(planned, i, now, (layout, sums))           # type: ignore
                elif (atom in held or aval.entries != layout
                        or aval.sharding.spec.unreduced != sums):
                    now = self.source(atom, (layout, sums))                     # type: ignore
                    if form(now.aval) != (layout, sums):
                        now = self.take(planned, i, atom, now, (layout, sums))     # type: ignore
                    elif now in self.brought:
                        self.brought[now].more.append((planned, i))                # type: ignore
                operands[i] = now
        return operands

    def take(self, planned: PlannedEquation, i: int, atom: Var, source: Var, need: Form) -> Var:
        """Operand i of an equation, brought to the layout in which the strategy takes it."""
        why = self.reasons.placeholder(planned, i, source)
        now = self.bring(atom, need, planned.eqn.location, why, None, source)
        if why[0] in self.eqns[-1].reason:
            self.brought[now] = self.reasons.open[-1]
        return now

    def along(self, planned: PlannedEquation, i: int, now: Var, need: Form) -> Var:
        """Operand i of an equation, brought along its path to the layout in which it is taken. What
        devices do inside of a group is shared with equations that take the same groups off.
        """
        for entries, inside in self.search.paths[planned.members, i]:        # type: ignore
            then = need[0] if entries is None else entries, need[1]
            if not inside:
                now = self.forms(planned.eqn.invars[i]).get(then, now)          # type: ignore
            key = now, then, inside
            if form(now.aval) != then and key not in self.inside:
                move = reshard_equation(now, self.laid_out(now.aval, *then), planned.eqn.location,
                                        self.reasons.placeholder(planned, i, now))
                groups = sum(inside, ())                                        # type: ignore
                self.eqns.append(move.replace(params={**move.params, "inside": groups})
                                 if groups else move)
                (self.inside[key],) = move.outvars
            now = self.inside.get(key, now)
        return now

    def numbers(self, eqn: Equation) -> dict[Atom, LayoutIds]:
        """The layouts in which the variables of an equation are available, by number."""
        named, env = self.layouts.named, self.env
        return {v: tuple([named(*f) for f in self.held[v]]) if v in self.held
                else (named(*form((env[v] if v in env else v).aval)),)          # type: ignore
                for v in eqn.invars if v.__class__ is not Literal}

    def reshard(self, eqn: Equation) -> None:
        (operand,), (result,) = eqn.invars, eqn.outvars
        if isinstance(operand, Literal) or result.aval.sharding.spec.reduced \
                or operand.aval.sharding.spec.reduced:
            self.eqns.append(eqn.replace(invars=(self.as_typed(operand, eqn.location, ()),)))
            return
        self.loose = self.loose or result not in self.search.last
        need, source = form(result.aval), None
        if self.search.types_stay and need in self.forms(operand):
            source = next(iter(self.held[operand].values()))     # XLA brings it for each by itself
        self.env[result] = self.bring(operand, need, eqn.location, eqn.reason, result.name, source)

    def holding(self, eqn: Equation) -> None:
        """Write an equation with nested programs: operands and results are as their types say,
        except what loops stack for other loops.
        """
        reason = layout_reason(eqn)
        stacks, free = self.stacks, _NONE
        if stacks is None:
            stacks = self.stacks = {} if self.search.types_stay else stacks_between_loops(
                self.program)
        operands = [self.env[a] if a in stacks and a in self.env else
                    self.as_typed(a, eqn.location, reason) for a in eqn.invars]
        results = list(eqn.outvars)
        programs: dict[tuple[str, int], Program] = {}
        if has_region(eqn):
            region = region_of(eqn)
            repeats = constants_of(region, eqn, self.repeats)
            if stacks and any([slot.stacked for slot in region.slots]):
                free = {k for k, v in enumerate(results) if v in stacks}
                region = region_of(_with_slices(eqn, region, operands))
            programs = {(name, place): self.nested(
                p, repeats, functools.partial(carried_of, region, n), free)
                for n, (name, place, p) in enumerate(region.programs)}
            for k in free:
                made, stack = programs["jaxpr", -1].outvars[k].aval, results[k]
                if made.entries != stack.aval.entries[1:]:
                    results[k] = self.env[stack] = Var(
                        self.laid_out(stack.aval, ((), *made.entries), frozenset()), stack.name)
        else:
            programs = {(name, -1): self.nested(eqn.params[name], {}, dict)
                        for name in eqn.op.subprograms}
        self.eqns.append(eqn.replace(invars=operands, outvars=results,
                                     params=with_programs(eqn.params, programs)))


def _with_slices(eqn: Equation, region: Region, operands: Sequence[Atom]) -> Equation:
    """A scan whose body takes slices in the layout of the stacks."""
    body: Program = eqn.params["jaxpr"]
    new: dict[Atom, Var] = {}
    for slot in region.slots:
        if slot.stacked and slot.operand >= 0:
            old, entries = body.invars[slot.operand], operands[slot.operand].aval.entries[1:]
            if old.aval.entries != entries:
                new[old] = Var(typed(old.aval, old.aval.mesh, entries), old.name)
    if not new:
        return eqn
    invars = [new.get(v, v) for v in body.invars]
    body = substituted(body, new).replace(invars=invars)
    return eqn.replace(params={**eqn.params, "jaxpr": body})
