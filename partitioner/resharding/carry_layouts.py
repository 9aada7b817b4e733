"""Chooses the layout in which loops carry or stack a value, or branches pass one, by its cost.

Propagation gives a carried value the layout of its parameter in the body. If the body reshards it
at once, carrying it in the other layout moves as much per iteration, but may save the exchange on
entry or after the loop. Candidates are the layouts that the value is resharded to or from, inside
and around the loop; each is costed over all iterations. Operands and results of branches are
treated the same way, and values that one loop stacks for another, with the uses in both bodies.
Stacks come first, because a body that stacks what it carries thereby reads it.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...ir.ops.communication.sharding import reshard_p
from ...ir.ops.control.region import Region, Slot
from ...ir.program import Atom, Equation, Program, Var
from ...ir.reasons import HOLDING, HOLDS, Alternative, Reason
from ...ir.types import ArrayType, Entries
from ..choice.comparisons import alternative, spelled
from ..cost.prices import Prices
from ..propagation.resolved_types import reshard_equation, typed
from ..regions import has_region, is_loop, region_of, trips_of, with_programs
from .folding import fold_reshards
from .loop_values import stacks_between_loops


def lay_out_loops(program: Program, prices: Prices) -> Program:
    """A RESHARDED program whose own loops carry and stack each value in the cheapest layout."""
    if not program.holds_programs:
        return program
    return _lay_out_carries(_lay_out_stacks(program, prices), prices)


def _lay_out_stacks(program: Program, prices: Prices) -> Program:
    """The program with each array that one loop stacks for another alone in the cheapest layout."""
    better: dict[Equation, _Better] = {}
    new: dict[Atom, Var] = {}
    around: dict[Program, _Around] = {}
    for stack, ends in stacks_between_loops(program).items():
        for eqn in (ends.maker, ends.reader):
            body = eqn.params["jaxpr"]
            if body not in around:
                around[body] = _Around(body, (*body.invars, *body.outvars))
        entries = _cheapest_slices(*ends, around, prices)
        if entries is not None:
            new[stack] = Var(typed(stack.aval, stack.aval.mesh, ((), *entries[0])),
                             getattr(stack, "name", None))
            better.setdefault(ends.maker, {})[ends.made] = entries
            better.setdefault(ends.reader, {})[ends.read] = entries
    if not better:
        return program
    eqns = [_with_bodies(eqn.with_operands([new.get(a, a) for a in eqn.invars],
                                           [new.get(v, v) for v in eqn.outvars]), better[eqn])
            if eqn in better else eqn for eqn in program.eqns]
    return program.replace(eqns=eqns)


def _cheapest_slices(maker: Equation, made: Slot, reader: Equation, slot: Slot,
                     around: Mapping[Program, _Around], prices: Prices
                     ) -> tuple[Entries, Alternative] | None:
    """The layout of slices of a stack with the least cost where they are made and read, or with
    less memory there; None if they have it.
    """
    body, other = maker.params["jaxpr"], reader.params["jaxpr"]
    result, param = body.outvars[made.outputs[0][1]], other.invars[slot.operand]
    if not isinstance(result, Var) or param in other.outvars:
        return None
    inside, there = around[body], around[other]
    sources = list(dict.fromkeys([inside.source(result).aval, result.aval]))
    if len(inside.readers[result]) == 1:
        sources = sources[:1]                           # it is resharded only for the stack
    reads = there.wanted(param)
    costs: dict[Entries, tuple[int, int]] = {}
    for entries in dict.fromkeys(t.entries for t in (param.aval, *sources, *reads)):
        held = typed(param.aval, param.aval.mesh, entries)
        cost = trips_of(region_of(maker)) * min(prices.between(t, held) for t in sources)
        cost += trips_of(region_of(reader)) * sum(prices.between(held, t) for t in reads)
        costs[entries] = cost, held.local_size
    first, *others = sorted(costs, key=costs.__getitem__)
    if costs[first] >= costs[param.aval.entries]:
        return None
    return first, alternative([HOLDING("stacking", spelled(others[0]))], costs[others[0]][0],
                              costs[first][0], prices)


def _with_bodies(eqn: Equation, better: _Better) -> Equation:
    """A loop whose programs have values in these layouts."""
    region = region_of(eqn)
    return eqn.replace(params=with_programs(eqn.params, {
        (name, place): _program(region, p, better, eqn)
        for p, (name, place, _) in enumerate(region.programs)}))


def _lay_out_carries(program: Program, prices: Prices) -> Program:
    """The program with what its loops carry, and its branches pass, in the cheapest layout."""
    holding = [eqn for eqn in program.eqns if has_region(eqn)]
    if not holding:
        return program
    around = _Around(program, [v for eqn in holding for v in eqn.outvars])
    eqns: list[Equation] = []
    changed = False
    replaced: dict[Equation, Equation] = {}
    for eqn in program.eqns:
        eqn = replaced.pop(eqn, eqn)
        better = _better(eqn, around, prices) if has_region(eqn) else {}
        if not better:
            eqns.append(eqn)
            continue
        changed = True
        eqns.extend(_rewritten(eqn, better, around, replaced))
    if not changed:
        return program
    return fold_reshards(program.replace(eqns=eqns))


class _Around:
    """The reshards of a program by their results, and the readers of these variables."""

    def __init__(self, program: Program, atoms: Iterable[Atom] = ()) -> None:
        self.made: dict[Atom, Equation] = {
            eqn.outvars[0]: eqn for eqn in program.eqns if eqn.op is reshard_p}
        readers: dict[Atom, list[Equation | None]] = {a: [] for a in atoms}
        self.readers = readers
        if readers:
            for eqn in program.eqns:
                for a in eqn.invars:
                    if a in readers:
                        readers[a].append(eqn)
            for a in program.outvars:
                if a in readers:
                    readers[a].append(None)

    def source(self, atom: Atom) -> Atom:
        """A value before the reshard that makes it; itself if none does."""
        eqn = self.made.get(atom)
        return eqn.invars[0] if eqn is not None else atom

    def wanted(self, atom: Atom) -> list[ArrayType]:
        """The types in which a value is read."""
        readers = dict.fromkeys(self.readers.get(atom, ()))
        targets = [e.outvars[0].aval if e is not None and e.op is reshard_p else atom.aval
                   for e in readers]
        return list(dict.fromkeys(targets))


# For each carried value the cheapest layout, and the one after it.
_Better = dict[Slot, tuple[Entries, Alternative]]


class _Held:
    """A value that a loop carries, or that branches take or give.

    enters: its type before, if it has one. made, reads: for each program the types in which it is
    made, and in which it is wanted there. leaves: types wanted after it.
    """

    def __init__(self, region: Region, slot: Slot, eqn: Equation, around: _Around,
                 inside: Sequence[_Around]) -> None:
        self.enters = around.source(eqn.invars[slot.operand]).aval if slot.operand >= 0 else None
        self.leaves = around.wanted(eqn.outvars[slot.result]) if slot.result >= 0 else []
        self.made: dict[int, ArrayType] = {
            p: inside[p].source(region.programs[p][2].outvars[k]).aval for p, k in slot.outputs}
        self.reads = {p: inside[p].wanted(region.programs[p][2].invars[i]) for p, i in slot.inputs}

    def cost(self, aval: ArrayType, trips: int, prices: Prices) -> int:
        """The cost of having it in the layout of this type; all branches count, as in `traffic`."""
        between = prices.between

        def to(targets: Iterable[ArrayType]) -> int:
            return sum(between(aval, t) for t in targets)

        inside = (sum([to(reads) for reads in self.reads.values()])
                  + sum([between(made, aval) for made in self.made.values()]))
        return to(self.leaves) + trips * inside + (
            between(self.enters, aval) if self.enters is not None else 0)

    def candidates(self) -> list[Entries]:
        types = [*self.made.values(), *[self.enters] * (self.enters is not None), *self.leaves,
                 *[t for reads in self.reads.values() for t in reads]]
        return list(dict.fromkeys(t.entries for t in types if not t.sharding.spec.unreduced))


def _better(eqn: Equation, around: _Around, prices: Prices) -> _Better:
    """The values of a loop or conditional for which another layout is cheaper."""
    region, branches = region_of(eqn), not is_loop(eqn)
    trips = trips_of(region)
    if not around.made and not any([reshard_p in p.ops for _, _, p in region.programs]):
        return {}                           # nothing is resharded
    inside = [_Around(p, p.invars) for _, _, p in region.programs]
    found: dict[Slot, tuple[Entries, Alternative]] = {}
    for slot in region.slots:
        if slot.stacked or not (branches or slot.operand >= 0 <= slot.result and slot.inputs):
            continue
        now = (eqn.outvars[slot.result] if slot.result >= 0 else eqn.invars[slot.operand]).aval
        if (now.sharding.spec.unreduced or now.sharding.spec.reduced or not now.shape
                or now.mesh.empty or not all(isinstance(a, Var) for a in region.body_atoms(slot))):
            continue
        held = _Held(region, slot, eqn, around, inside)
        costs = {entries: held.cost(typed(now, now.mesh, entries), trips, prices)
                 for entries in (now.entries, *held.candidates())}
        first, *others = sorted(costs, key=costs.__getitem__)
        if costs[first] < costs[now.entries]:
            second = HOLDING("giving" if branches else "carrying", spelled(others[0]))
            found[slot] = first, alternative([second], costs[others[0]], costs[first], prices)
    return found


def _rewritten(eqn: Equation, better: _Better, around: _Around,
               replaced: dict[Equation, Equation]) -> list[Equation]:
    """The loop or conditional with these layouts, between the reshards before and after it."""
    operands, results = list(eqn.invars), list(eqn.outvars)
    before: list[Equation] = []
    after: list[Equation] = []
    for slot, (entries, second) in better.items():
        reason = _reason(eqn, second)
        if slot.operand >= 0:
            operand = operands[slot.operand]
            first, source = around.made.get(operand), around.source(operand)
            move = reshard_equation(source, typed(source.aval, operand.aval.mesh, entries),
                                    eqn.location, first.reason if first is not None else reason,
                                    getattr(operand, "name", None))
            before.append(move)
            operands[slot.operand] = move.outvars[0]
        if slot.result >= 0:
            outer = eqn.outvars[slot.result]
            new = results[slot.result] = Var(typed(outer.aval, outer.aval.mesh, entries),
                                             outer.name)
            after.append(reshard_equation(new, outer.aval, eqn.location, reason, outer.name
                                          ).replace(outvars=(outer,)))
            for reader in around.readers.get(outer, ()):       # directly from the new layout
                if reader is not None and reader.op is reshard_p:
                    replaced[reader] = reader.replace(invars=(new,))
    whole = _with_bodies(eqn.replace(invars=operands, outvars=results), better)
    return [*before, whole, *after]


def _reason(eqn: Equation, second: Alternative) -> Reason:
    inside = "body needs" if is_loop(eqn) else "branches need"
    return (HOLDS(eqn.op.name, inside, ending=second),)


def _program(region: Region, p: int, better: _Better, eqn: Equation) -> Program:
    """A program of the loop with its carried values in the new layouts."""
    program = region.programs[p][2]
    around = _Around(program)
    invars, outvars = list(program.invars), list(program.outvars)
    first: list[Equation] = []
    last: list[Equation] = []
    direct: dict[Atom, Var] = {}
    for slot, (entries, second) in better.items():
        loop = _reason(eqn, second)
        for q, i in slot.inputs:
            if q == p:
                old = invars[i]
                invars[i] = new = Var(typed(old.aval, old.aval.mesh, entries), old.name)
                first.append(reshard_equation(new, old.aval, eqn.location, loop).replace(
                    outvars=(old,)))
                direct[old] = new
    for slot, (entries, second) in better.items():
        loop = _reason(eqn, second)
        for q, i in slot.outputs:
            if q != p:
                continue
            old = outvars[i]
            made = around.made.get(old)
            source = made.invars[0] if made is not None else direct.get(old, old)
            where, why = ((made.location, made.reason) if made is not None
                          else (eqn.location, loop))
            move = reshard_equation(direct.get(source, source),
                                    typed(source.aval, old.aval.mesh, entries), where, why)
            last.append(move)
            outvars[i] = move.outvars[0]
    middle: Sequence[Equation] = [
        e.replace(invars=(direct[e.invars[0]],)) if e.op is reshard_p and e.invars[0] in direct
        else e for e in program.eqns]
    return fold_reshards(program.replace(invars=invars, eqns=[*first, *middle, *last],
                                         outvars=outvars))
