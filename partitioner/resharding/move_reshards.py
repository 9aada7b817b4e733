"""Reshards stand where they cost least: after what follows them, and outside of loops and branches.

delay.py moves them within a program. Partial sums that a loop carries, or that all branches return,
are finished once, after it: `total = total + g` in a loop, where g is a partial sum over devices,
needs no exchange per iteration if the total is carried as a partial sum. The initial value is then
placed on one device, and the result is finished. The same holds for stacked results of a scan.
delay.py finds out whether a body can run so, given a parameter in its earlier form; it is done
where that costs less.
"""
from __future__ import annotations

from ...ir.ops.communication.sharding import reshard_p
from ...ir.ops.control.region import Region, Slot
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.reasons import CARRIES, FINISHED_ONCE
from ...ir.rewriting.inside import inside
from ...ir.support.caches import in_memo
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType
from ..cost.prices import Prices
from ..propagation.resolved_types import reshard_equation, typed
from ..reasons import merged_reasons
from ..regions import has_region, is_loop, region_of, trips_of, with_programs
from .carry_layouts import lay_out_loops
from .delay import Delay, delayed
from .forks import share_layouts

_MOST_SEPARATE = 8


class _Trial(NamedTuple):
    """A loop with some sums carried unfinished, in these forms: its cost, and its body."""
    cost: int
    forms: dict[Slot, ArrayType]
    plan: Delay
    body: Program


def move_reshards(program: Program, prices: Prices) -> Program:
    """The pass: moves reshards of a RESHARDED program later, and out of loops, where that is
    cheaper.
    """
    if "reshard" not in program.all_op_names:
        return program
    if not program.holds_programs:
        return share_layouts(delayed(program, prices), prices)
    eqns: list[Equation] = []
    for eqn in inside(program, lambda body: move_reshards(body, prices)).eqns:
        eqns += (_carried(eqn, prices) if is_loop(eqn) else
                 _branched(eqn, prices) if has_region(eqn) else [eqn])
    program = lay_out_loops(program.replace(eqns=eqns), prices)
    return share_layouts(delayed(program, prices), prices)


def traffic(program: Program, prices: Prices) -> int:
    """The price of the reshards of a program, multiplied in loops."""
    return body_traffic(program, prices, frozenset())[0]


@in_memo
def body_traffic(program: Program, prices: Prices, constant: frozenset[int]) -> tuple[int, int]:
    """(the price of one run of a program, the price of its reshards of constants alone).

    constant: numbers of the parameters that are the same in every run, as in a loop. Reshards of
    these alone are done once for all runs (hoist.py).
    """
    same: set[Atom] = {program.invars[i] for i in constant}
    each = one_time = 0
    for eqn in program.eqns:
        fixed = bool(same) and all(a in same or isinstance(a, Literal) for a in eqn.invars)
        if fixed and not eqn.op.subprograms:
            same.update(eqn.outvars)
        if eqn.op is reshard_p:
            price = prices.between(eqn.invars[0].aval, eqn.outvars[0].aval)
            if fixed:
                one_time += price
            else:
                each += price
        elif is_loop(eqn):
            region = region_of(eqn)
            for p, (_, _, nested) in enumerate(region.programs):
                each += _scaled(body_traffic(nested, prices, _constants(region, p)),
                                trips_of(region))
        elif eqn.op.subprograms:
            for _, nested in eqn.subprograms():
                each += traffic(nested, prices)
    return each, one_time


def _constants(region: Region, p: int) -> frozenset[int]:
    """The parameters of a loop's program that no iteration changes."""
    return frozenset(i for s in region.slots if s.result < 0 and not s.stacked
                     for q, i in s.inputs if q == p)


# -- carries ---------------------------------------------------------------------------------------

def _carried(eqn: Equation, prices: Prices) -> list[Equation]:
    """The loop with sums carried unfinished where that pays, with equations before and after it."""
    region = region_of(eqn)
    trips = trips_of(region)
    at = len(region.programs) - 1                        # the last program is the body
    body = region.programs[at][2]
    if trips < 2 or reshard_p not in body.ops:
        return [eqn]
    slots = [s for s in region.slots if s.result >= 0 and _is_private(s, region, at, eqn)]
    first = Delay(body, prices)
    wanted = {}
    for s in slots:
        result = body.outvars[_output(s, at)]
        form = first.earlier.get(result) if isinstance(result, Var) else None
        if form is not None and (s.inputs or form.local_size <= result.aval.local_size):
            wanted[s] = form
    if not wanted:
        return [eqn]
    constant = _constants(region, at)

    def tried(trial: dict[Slot, ArrayType]) -> _Trial:
        plan = _body_with(body, prices, trial, at, eqn)
        found = plan.rewritten()
        cost = _scaled(body_traffic(found, prices, constant), trips)
        cost += trips * (_price_of_writing(found, prices) - _price_of_writing(body, prices)
                         + _combining_savings(body, prices) - _combining_savings(found, prices))
        finishing = _CombinedSums(prices)
        for s, form in trial.items():
            outer = eqn.outvars[s.result].aval
            waiting = _outside(s, form, outer)
            finishing.add(waiting, outer)
            cost += prices.between(waiting, outer)
            if s.operand >= 0:
                cost += prices.between(outer, waiting)
        return _Trial(cost - finishing.saved, trial, plan, found)

    before = _scaled(body_traffic(body, prices, constant), trips)
    best = tried(wanted)                                # one may wait for another
    cheapest, least = dict[Slot, ArrayType](), before
    for more in _separately(wanted):
        trial = tried({**cheapest, **more})
        if trial.cost < least:
            cheapest, least = trial.forms, trial.cost
            best = min(best, trial, key=lambda t: t.cost)
    if best.cost >= before:
        return [eqn]
    return _outer_reshards(eqn, region, at, best.body, best.forms, best.plan)


def _separately(wanted: dict[Slot, ArrayType]) -> list[dict[Slot, ArrayType]]:
    """The sums to be tried one after the other: those that the body does not read together, then
    each that it reads, if these are few.
    """
    stacked = {s: form for s, form in wanted.items() if not s.inputs}
    carried = [{s: form} for s, form in wanted.items() if s.inputs]
    parts = [stacked, *carried] if stacked else carried
    return parts if 1 < len(parts) <= _MOST_SEPARATE else []


def _price_of_writing(program: Program, prices: Prices) -> int:
    """The price of writing the results of all equations; unfinished sums are larger."""
    blocks = [v.aval.local_nbytes for eqn in program.eqns for v in eqn.outvars]
    return prices.computation(0, 1, sum(blocks))


class _CombinedSums:
    """The savings from small independent sums over the same axes becoming one exchange
    (optimization/combine.py).
    """

    def __init__(self, prices: Prices) -> None:
        self.prices = prices
        self.saved = 0
        self.together: dict[tuple, int] = {}

    def add(self, source: ArrayType, target: ArrayType, after: int = 0) -> bool:
        """Add a reshard; returns False if it is not such a sum. after: how many later sums wait for
        it.
        """
        summed = source.sharding.spec.unreduced - target.sharding.spec.unreduced
        if not summed:
            return False
        axes = tuple(target.mesh.sort_axes(summed))
        price, nbytes = self.prices.exchange("all-reduce", axes), target.local_nbytes
        if nbytes > price.combine_limit:
            return False
        key = after, axes, target.dtype
        known = self.together.get(key, 0)
        self.saved += price.of(nbytes) + price.of(known) - price.of(known + nbytes)
        self.together[key] = known + nbytes
        return True


def _combining_savings(program: Program, prices: Prices) -> int:
    """What a program saves in this way."""
    sums = [eqn for eqn in program.eqns
            if eqn.op is reshard_p and eqn.invars[0].aval.sharding.spec.unreduced]
    if len(sums) < 2:
        return 0
    joint, height, first = _CombinedSums(prices), dict[Atom, int](), sums[0]
    for eqn in reversed(program.eqns):
        own = 0
        for v in eqn.outvars:
            if v in height and height[v] > own:
                own = height[v]
        if eqn.op is reshard_p:
            own += joint.add(eqn.invars[0].aval, eqn.outvars[0].aval, own)
        if eqn is first:
            break
        if own:
            for a in eqn.invars:
                if a not in height or own > height[a]:
                    height[a] = own
    return joint.saved


def _scaled(cost: tuple[int, int], trips: int) -> int:
    each, one_time = cost
    return each * trips + one_time


def _is_private(slot: Slot, region: Region, at: int, eqn: Equation) -> bool:
    """Does nothing but the body read the value within the loop?"""
    for p, i in slot.inputs:
        if p != at:
            program = region.programs[p][2]
            v = program.invars[i]
            if v in program.outvars or any(v in e.invars for e in program.eqns):
                return False
    return bool(slot.outputs) and not eqn.outvars[slot.result].aval.sharding.spec.unreduced


def _output(slot: Slot, at: int) -> int:
    return next(i for p, i in slot.outputs if p == at)


def _as_form(t: ArrayType, form: ArrayType) -> ArrayType:
    """`t` laid out as `form`; other parts of the types, such as weakness, may differ."""
    return typed(t, form.mesh, form.entries, form.sharding.spec.unreduced)


def _outside(slot: Slot, form: ArrayType, outer: ArrayType) -> ArrayType:
    """The type outside of the loop for a value of this form inside."""
    entries = ((), *form.entries) if slot.stacked else form.entries
    return typed(outer, outer.mesh, entries, form.sharding.spec.unreduced)


def _body_with(body: Program, prices: Prices, forms: dict[Slot, ArrayType], at: int,
               eqn: Equation) -> Delay:
    """The body with these sums carried unfinished."""
    entering, leaving = {}, {}
    for s, form in forms.items():
        leaving[_output(s, at)] = form
        for p, i in s.inputs:
            if p == at:
                entering[body.invars[i]] = _as_form(body.invars[i].aval, form)
    return Delay(body, prices, entering, leaving, eqn.location)


# -- branches --------------------------------------------------------------------------------------

def _branched(eqn: Equation, prices: Prices) -> list[Equation]:
    """The branches with sums that all of them end with left unfinished, and the equations after
    them.

    A branch without such a sum returns its value as one, if that moves nothing.
    """
    region = region_of(eqn)
    programs = [program for _, _, program in region.programs]
    if not any(reshard_p in program.ops for program in programs):
        return [eqn]
    first = [Delay(program, prices) for program in programs]
    wanted: dict[int, ArrayType] = {}
    for k, outer in enumerate(eqn.outvars):
        forms = [plan.earlier.get(program.outvars[k])
                 for plan, program in zip(first, programs, strict=True)]
        found = next((f for f in forms if f is not None and f.sharding.spec.unreduced), None)
        if found is not None and not outer.aval.sharding.spec.unreduced and all(
                f is found or not prices.between(program.outvars[k].aval, found)
                for f, program in zip(forms, programs, strict=True)):
            wanted[k] = found
    if not wanted:
        return [eqn]
    plans = [Delay(program, prices, location=eqn.location, leaving={
                 k: _as_form(program.outvars[k].aval, form) for k, form in wanted.items()})
             for program in programs]
    rewritten = [plan.rewritten() for plan in plans]

    def total(some: list[Program]) -> int:
        return sum([traffic(program, prices) for program in some])

    after = sum([prices.between(form, eqn.outvars[k].aval) for k, form in wanted.items()])
    if total(rewritten) + after >= total(programs):
        return [eqn]
    results = list(eqn.outvars)
    finishing: list[Equation] = []
    for k, form in wanted.items():
        outer = eqn.outvars[k]
        results[k] = Var(_as_form(outer.aval, form))
        left = [plan.left[k] for plan in plans if k in plan.left]
        where = left[0][0] if left else eqn.location
        reason = merged_reasons((*(r for _, reasons in left for r in reasons),
                                 (FINISHED_ONCE("branches", eqn.op.name),)))
        move = reshard_equation(results[k], outer.aval, where, reason, outer.name)
        finishing.append(move.replace(outvars=(outer,)))
    nested = {(name, place): program for (name, place, _), program in
             zip(region.programs, rewritten, strict=True)}
    return [eqn.replace(outvars=results, params=with_programs(eqn.params, nested)), *finishing]


def _outer_reshards(eqn: Equation, region: Region, at: int, body: Program,
                    forms: dict[Slot, ArrayType], plan: Delay) -> list[Equation]:
    """A loop that carries values in other forms, between the reshards that this takes: of the
    initial values before it, and of the results after it. at, body: which of its programs is
    rewritten.
    """
    before: list[Equation] = []
    after: list[Equation] = []
    operands: list[Atom] = list(eqn.invars)
    results = list(eqn.outvars)
    programs = {(name, place): program for name, place, program in region.programs}
    name, place, _ = region.programs[at]
    programs[name, place] = body
    loop = eqn.op.name
    for s, form in forms.items():
        outer = eqn.outvars[s.result]
        waiting = _outside(s, form, outer.aval)
        if s.operand >= 0:
            operand = operands[s.operand]
            move = reshard_equation(operand, _as_form(operand.aval, waiting), eqn.location,
                                    (CARRIES(loop),))
            before.append(move)
            operands[s.operand] = move.outvars[0]
        results[s.result] = Var(waiting)
        where, reasons = plan.left.get(_output(s, at), (eqn.location, ()))
        reason = merged_reasons((*reasons, (FINISHED_ONCE("iterations", loop),)))
        move = reshard_equation(results[s.result], outer.aval, where, reason, outer.name)
        after.append(move.replace(outvars=(outer,)))
        for p, i in s.inputs:                           # the test has the carry as well
            if p != at:
                where, pos, program = region.programs[p]
                program = programs[where, pos]
                invars = list(program.invars)
                invars[i] = Var(_as_form(invars[i].aval, waiting))
                programs[where, pos] = program.replace(invars=invars)
    params = with_programs(eqn.params, programs)
    whole = eqn.replace(invars=operands, outvars=results, params=params)
    return [*before, whole, *after]
