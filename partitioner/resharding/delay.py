"""Sinks reshards below their readers, to where the value is smaller or shared.

The sum of two finished sums is the finished sum of the terms' sums; a finished sum that is only
reduced further, sliced, scaled or multiplied by a matrix can be finished after that; what was
gathered and then cut or rounded can be gathered after that. So the operand of a reshard is the
*earlier form* of its result, and a value computed from the result has one, too (sinking.py). A
backward sweep computes the price of finishing a value here, or all that is computed from it later;
then the equations are rewritten on the forms in which their operands are available.

The price of a program never grows: a reshard moves only if all that depends on it is served, and
each of several values that meet in an equation is charged for it in full.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.fingerprint import literal_key
from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.reasons import CARRIED, MORE, RUNS_BEFORE, WAITS, Reason
from ...ir.rewriting.unread import without_unread
from ...ir.source.location import UNKNOWN, Location
from ...ir.types import ArrayType
from ..choice.sinking import Sunk, sunk
from ..cost.prices import Prices
from ..propagation.resolved_types import name_of_form, reshard_equation
from ..reasons import merged_reasons
from .folding import fold_reshards, takes

# Of plans with equal costs the preferred one is made cheaper by one unit.
_LITTLE = 1
_NEVER = float("inf")       # the cost of a value that must be finished where it arises
_MOST_REASONS = 8
_MORE: Reason = (MORE(),)
_CARRIED: Reason = (CARRIED(),)


def delayed(program: Program, prices: Prices) -> Program:
    """The program (without nested ones) with its reshards where they cost least."""
    if reshard_p not in program.ops:
        return program
    return Delay(program, prices).rewritten()


class Delay:
    """One program, analysed. entering: parameters that come in an earlier form. leaving: by
    position, results that may leave in one. location: of the loop that has these
    (move_reshards.py).
    """

    def __init__(self, program: Program, prices: Prices,
                 entering: Mapping[Var, ArrayType] | None = None,
                 leaving: Mapping[int, ArrayType] | None = None,
                 location: Location = UNKNOWN) -> None:
        self.program, self.prices = program, prices
        self.location = location
        self.entering = dict(entering or {})
        self.leaving = dict(leaving or {})
        # result that leaves in its earlier form -> where and why it would have been finished
        self.left: dict[int, tuple[Location, tuple[Reason, ...]]] = {}
        self.earlier: dict[Atom, ArrayType] = {}
        self.touched: list[tuple[int, Equation, Sunk | None]] = []
        self._plan(frozenset())
        # values finished where they arise, from which some reshard should rather start
        ready = self.earlier.keys() - self.later
        for n, (k, eqn, _) in enumerate(self.touched) if ready else ():
            if (eqn.op is reshard_p and eqn.invars[0] in ready
                    and _is_cheaper(eqn, self.earlier, self.prices)):
                self._plan(frozenset(ready), self.touched[:n], k)
                break

    def _plan(self, ready: frozenset[Atom],
              before: Sequence[tuple[int, Equation, Sunk | None]] = (), start: int = 0) -> None:
        """Find the earlier forms of values, and decide which are finished later.

        ready: values known to be finished where they arise. before: `touched` up to equation
        `start`, if that is known; `earlier` then has the forms of its results.

        Sets touched: (position, equation, how it passes the earlier form on) for each reshard, and
        each reader of a value with an earlier form. later: values not finished where they arise.
        direct: values resharded from one that is finished anyway.
        """
        known = self.earlier
        self.earlier = {**self.entering}
        for _, eqn, _ in before:
            if eqn.outvars and eqn.outvars[0] in known:
                self.earlier[eqn.outvars[0]] = known[eqn.outvars[0]]
        self.touched = [*before]
        self.later: set[Atom] = set()
        self.direct: set[Atom] = set()
        self._find_forms(ready, start)
        self._decide(ready)

    # -- what could be ---------------------------------------------------------------------------

    def _find_forms(self, ready: frozenset[Atom], start: int) -> None:
        """Find the earlier forms of values, from equation `start` on."""
        earlier, touched = self.earlier, self.touched
        untouched = earlier.keys().isdisjoint
        eqns = self.program.eqns
        for k, eqn in enumerate(eqns[start:] if start else eqns, start):
            if eqn.op is reshard_p:
                (x,), (y,) = eqn.invars, eqn.outvars
                touched.append((k, eqn, None))
                if x.__class__ is Var and not y.aval.sharding.spec.unreduced:
                    form = x.aval
                    if x in earlier:
                        if x in ready and _is_cheaper(eqn, earlier, self.prices):
                            self.direct.add(y)
                        else:
                            form = earlier[x]
                    if form.sharding is not y.aval.sharding and not form.sharding.spec.reduced:
                        earlier[y] = form
                continue
            invars = eqn.invars
            if untouched(invars):
                continue
            found = sunk(eqn, tuple([earlier[a] if a in earlier else None for a in invars]))
            if found is not None and (
                    len(found.used) == len(invars) or _no_operand_twice(eqn, found)):
                earlier[eqn.outvars[0]] = found.result
            else:
                found = None
            touched.append((k, eqn, found))

    def _decide(self, ready: frozenset[Atom]) -> None:
        """Decide which values are finished later, from the last equation to the first."""
        earlier = self.earlier
        # the price that readers of a value pay, if it is finished later
        served: dict[Atom, float] = dict.fromkeys(ready, _NEVER)
        for i, atom in enumerate(self.program.outvars):
            if atom in earlier and self.leaving.get(i) is not earlier[atom]:
                served[atom] = _NEVER
        for _, eqn, sinking in reversed(self.touched):
            y, cost = eqn.outvars[0] if eqn.outvars else None, 0
            if y is not None and y in earlier:      # all its readers are known
                cost = self.prices.between(earlier[y], y.aval)
                waiting = served[y] if y in served else 0
                if waiting < cost:
                    self.later.add(y)
                    cost = waiting
            if eqn.op is reshard_p:
                (x,), (y,) = eqn.invars, eqn.outvars
                if x in earlier:
                    own = self.prices.between(earlier[x], y.aval)
                    if y in earlier and cost < own:
                        own = cost
                    served[x] = served[x] + own if x in served else own
                continue
            invars = eqn.invars
            if sinking is None:
                for v in invars:
                    if v in earlier:
                        served[v] = _NEVER
                continue
            if len(invars) == 1:
                (v,) = invars
                served[v] = served[v] + cost if v in served else cost
                continue
            readers = {*invars}
            used = readers if len(sinking.used) == len(invars) else {invars[i]
                                                                     for i in sinking.used}
            if len(used) > 1:
                cost -= _LITTLE                    # one exchange for several
            for v in readers:
                if v in earlier:
                    own = cost if v in used else _NEVER
                    served[v] = served[v] + own if v in served else own
        self._finish_with_others(served)
        for v in self.entering:
            if served.get(v, 0.0) < self.prices.between(earlier[v], v.aval):
                self.later.add(v)

    def _finish_with_others(self, served: Mapping[Atom, float]) -> None:
        """Finish a value at once where an equation reads it together with others that are
        finished anyway, and finishing it later saves nothing. served: the price that readers of a
        value pay.
        """
        for _, eqn, sinking in self.touched:
            if sinking is not None and eqn.outvars[0] not in self.later:
                waiting = [v for v in {*eqn.invars} if v in self.later]
                if len(waiting) == 1 < len(sinking.used) and served[waiting[0]] + _LITTLE >= (
                        self.prices.between(self.earlier[waiting[0]], waiting[0].aval)):
                    self.later.discard(waiting[0])

    # -- what is written -------------------------------------------------------------------------

    def rewritten(self) -> Program:
        """The program, with parameters and results in the forms asked for."""
        if self.later or self.entering or self.leaving:
            return _Writer(self).program()
        return fold_reshards(self.program)


def _is_cheaper(move: Equation, earlier: Mapping[Atom, ArrayType], prices: Prices) -> bool:
    """Is a reshard cheaper from its operand than from the operand's earlier form?"""
    (x,), target = move.invars, move.outvars[0].aval
    return prices.between(x.aval, target) < prices.between(earlier[x], target)


def _no_operand_twice(eqn: Equation, sinking: Sunk) -> bool:
    """Is no operand needed both in its earlier form and as it is?"""
    invars = eqn.invars
    if len(invars) == 2 and invars[0] is not invars[1] or len(set(invars)) == len(invars):
        return True
    used = {invars[i] for i in sinking.used}
    return used.isdisjoint([a for i, a in enumerate(invars) if i not in sinking.used])


class _Writer:
    """Writes the program as a plan decides: equations on the forms in which operands are held."""
    def __init__(self, plan: Delay) -> None:
        self.plan = plan
        self.eqns: list[Equation] = []
        self.forms: dict[Atom, Var] = {}            # value -> the variable with its earlier form
        self.finished: set[Atom] = set()            # values with an earlier form, finished as well
        self.why: dict[Atom, tuple[Reason, ...]] = {}  # earlier form -> reasons for finishing it
        self.where: dict[Atom, Location] = {}
        self.brought: dict[tuple[Any, ArrayType], Var] = {}

    def program(self) -> Program:
        """The program with the reshards sunk. Parameters and results that the plan has in their
        earlier forms get these types; of reshards, only those that something reads remain.
        """
        plan, program = self.plan, self.plan.program
        # only equations that deal with a reshard or an early parameter are rewritten
        eqns, done = program.eqns, 0
        invars = []
        for v in program.invars:
            if v not in plan.entering:
                invars.append(v)
                continue
            form = Var(plan.entering[v], name_of_form(v, plan.entering[v]))
            invars.append(form)
            self._record_form(v, form, (_CARRIED,), plan.location)
        for k, eqn, sinking in plan.touched:
            self.eqns += eqns[done:k]
            done = k + 1
            if eqn.op is reshard_p:
                self.reshard(eqn)
            else:
                self.equation(eqn, sinking)
        self.eqns += eqns[done:]
        outvars: list[Atom] = []
        for i, atom in enumerate(program.outvars):
            want = plan.leaving.get(i)
            if want is None:
                outvars.append(atom)
            elif plan.earlier.get(atom) is want and atom in self.forms:
                form = self.forms[atom]
                outvars.append(form)
                plan.left[i] = (self.where.get(form, plan.location), self.why.get(form, ()))
            else:
                outvars.append(self.bring(atom, want, None, (WAITS(),)))
        eqns = without_unread(self.eqns, outvars, (reshard_p,))
        return fold_reshards(program.replace(invars=invars, eqns=eqns, outvars=outvars))

    def equation(self, eqn: Equation, sinking: Sunk | None) -> None:
        if sinking is not None:
            later, forms, finished = self.plan.later, self.forms, self.finished
            for a in eqn.invars:
                if a in later and a in forms and a not in finished:
                    self.passing(eqn, sinking)
                    return
            finished.add(eqn.outvars[0])
        self.eqns.append(eqn)

    def passing(self, eqn: Equation, sinking: Sunk) -> None:
        """Append an equation on the earlier forms of its operands."""
        operands = [self._operand(eqn, sinking, i, a) for i, a in enumerate(eqn.invars)]
        result = eqn.outvars[0]
        form = Var(sinking.result, name_of_form(result, sinking.result))
        self.eqns.append(eqn.replace(invars=operands, outvars=(form,)))
        sources = [o for o in operands if o in self.why]
        reasons = tuple(dict.fromkeys(r for o in sources for r in self.why[o]))
        if len(reasons) > 1:
            reasons = tuple(r for r in reasons if r not in (_CARRIED, _MORE))
        if len(reasons) > _MOST_REASONS:
            reasons = (*reasons[:_MOST_REASONS], _MORE)
        where = [self.where[o] for o in sources if self.why[o] != (_CARRIED,)]
        self._record_form(result, form, reasons, (where or [self.where[sources[0]]])[0])

    def _operand(self, eqn: Equation, sinking: Sunk, i: int, atom: Atom) -> Atom:
        want = sinking.needed[i]
        if i in sinking.used and atom in self.forms:
            return self.forms[atom]
        if atom.aval.sharding is want.sharding or (
                isinstance(atom, Literal) and not want.sharding.spec.unreduced):
            return atom
        return self.bring(atom, want, eqn.location, (RUNS_BEFORE(eqn.op.name),))

    def _record_form(self, v: Var, form: Var, reasons: tuple[Reason, ...], where: Location) -> None:
        """Record that `form` is the earlier form of `v`; finish it here unless that is left for
        later.
        """
        self.forms[v] = form
        self.why[form] = reasons
        self.where[form] = where
        if v not in self.plan.later:
            self.finish(v)

    def finish(self, v: Var) -> None:
        form = self.forms[v]
        move = reshard_equation(form, v.aval, self.where[form],
                                merged_reasons(self.why[form]), v.name)
        self.eqns.append(move.replace(outvars=(v,)))
        self.finished.add(v)

    def reshard(self, eqn: Equation) -> None:
        """Write a reshard, or record that its result is held in the earlier form. Where x itself is
        held so, the reshard starts from that, with the reasons for which it waited.
        """
        plan = self.plan
        (x,), (y,) = eqn.invars, eqn.outvars
        held = x in self.forms
        is_last_read = held and x not in self.finished
        reasons = tuple(dict.fromkeys(filter(None, (*(self.why[self.forms[x]] if held else ()),
                                                    eqn.reason))))
        form = x if y in plan.direct else self.forms.get(x, None if x in plan.earlier else x)
        if y in plan.earlier:
            if isinstance(form, Var):
                self.forms[y] = form
                self.why.setdefault(form, reasons)
                self.where.setdefault(form, eqn.location)
                if y in plan.later:
                    return
            self.finished.add(y)
        if is_last_read:
            first = self.forms[x]
            where = self.where[first] if takes(first.aval, x.aval) else eqn.location
            self.eqns.append(eqn.replace(invars=(first,), reason=merged_reasons(reasons),
                                         location=where if where.known else eqn.location))
        else:
            self.eqns.append(eqn)

    def bring(self, atom: Atom, want: ArrayType, where: Location | None, reason: Reason) -> Atom:
        key = (literal_key(atom) if isinstance(atom, Literal) else atom, want)
        if key not in self.brought:
            move = reshard_equation(atom, want, where or self.plan.location, reason)
            self.eqns.append(move)
            self.brought[key] = move.outvars[0]
        return self.brought[key]
