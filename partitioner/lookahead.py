"""Look-ahead: which choice each equation of a program takes, by what it costs before and after.

A value whose layout nobody pinned need not have the one that propagation gave it: it has what its
equation leaves, and each reader brings it to what it needs. The cheapest such program is looked for
by dynamic programming along the dataflow. Going backward, values collect the layouts that their
readers would like; going forward, the programs up to an equation are *states*, told apart only by
the layouts that live values are held in. Of states that hold all alike the cheapest is kept, of
those that differ the most promising few: as soon as all agree on a value, it is no longer part of
them. So chains, forks and joins are decided together, in time linear in equations.

States are compared by their price so far and that of bringing what they hold to the layouts that
propagation found, where every value can be had.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.ops.sharding import reshard_p
from ..ir.program import Equation, Program, Var
from .alternatives import sums_through
from .choose import Choice
from .layouts import Held, Layouts
from .origins import Origins
from .outcomes import HELD, WANTED, Outcomes, Task

# States kept side by side: so many by their price with the whole price of bringing what they hold
# to where propagation has it, with half of it, and without.
KEPT = ((1.0, 6), (0.5, 4), (0.0, 2))
COMPARED = 24           # states that the most promising are taken from, cheapest first
DIFFERENT = 24          # values that states may differ in


def _repeats(program: Program, seeds: Mapping[Var, int]) -> dict[Var, int]:
    """`seeds`, and of what is computed from them alone: results are as invariant as operands."""
    found = dict(seeds)
    if found:
        for eqn in program.eqns:
            least = min((found.get(v, 1) for v in eqn.invars if isinstance(v, Var)), default=1)
            if least > 1:
                found.update(dict.fromkeys(eqn.outvars, least))
    return found


def carried_sums(program: Program, carries: Mapping[int, int]) -> set[int]:
    """Results of a loop's body that could be carried as sums which are not finished.

    carries: result -> the parameter that it becomes. It must come of that parameter alone and by
    nothing that a sum cannot pass, as in `total + x`.
    """
    reads: dict[Var, list[Equation | None]] = {}
    for eqn in program.eqns:
        for v in dict.fromkeys(eqn.invars):
            if isinstance(v, Var):
                reads.setdefault(v, []).append(eqn)
    for v in program.outvars:
        if isinstance(v, Var):
            reads.setdefault(v, []).append(None)
    found = set()
    for k, i in carries.items():
        v = program.invars[i]
        while len(reads.get(v, ())) == 1:
            eqn = reads[v][0]
            if eqn is None:
                if v is program.outvars[k] and v is not program.invars[i]:
                    found.add(k)
                break
            at = eqn.invars.index(v)
            if not any(at in members for members in sums_through(eqn)):
                break
            v = eqn.outvars[0]
    return found


class _State:
    __slots__ = ("held", "path", "price")

    def __init__(self, price: float, held: dict[Var, Held], path: tuple | None) -> None:
        self.price = price
        self.held = held              # of values in which states differ
        self.path = path              # (path before, number of an equation, its choice)


class Planner:
    """Decides one program. repeats: per value that a loop does not change, how often equations run
    for one reshard of it. waits: per result that a loop may carry as a sum, how often the loop runs
    until it is finished.
    """

    def __init__(self, layouts: Layouts, program: Program, origins: Origins | None,
                 repeats: Mapping[Var, int], waits: Mapping[int, int]) -> None:
        self.waits = waits
        self.layouts = layouts
        self.program = program
        self.steps = Outcomes(layouts, origins)
        self.repeats = _repeats(program, repeats)
        self.tasks: list[Task | None] = [self.steps.task(eqn) for eqn in program.eqns]
        self.last: dict[Var, int] = {}
        for k, eqn in enumerate(program.eqns):
            for atom in eqn.invars:
                if isinstance(atom, Var):
                    self.last[atom] = k
        for atom in program.outvars:
            if isinstance(atom, Var):
                self.last[atom] = len(program.eqns)
        self.wanted: dict[Var, list[int]] = {}

    def run(self) -> list[Choice | None]:
        """The choice of every equation; None where there is none to make."""
        self._wish()
        return self._search()

    # -- backward: what readers would like -----------------------------------------------------

    def _wish(self) -> None:
        for eqn, task in zip(reversed(self.program.eqns), reversed(self.tasks), strict=True):
            if task is None:
                if eqn.op is reshard_p and isinstance(eqn.invars[0], Var):
                    self._add(eqn.invars[0], self.layouts.of(eqn.outvars[0].aval))
                continue
            results = tuple([tuple(self.wanted.get(v, ())) for v in eqn.outvars])
            for atom, wishes in zip(eqn.invars, self.steps.wishes(task, results), strict=True):
                if wishes and isinstance(atom, Var):
                    for layout in wishes:
                        self._add(atom, layout)

    def _add(self, var: Var, layout: int) -> None:
        if layout != self.layouts.of(var.aval):
            wanted = self.wanted.setdefault(var, [])
            if layout not in wanted and len(wanted) < WANTED:
                wanted.append(layout)

    # -- forward: states -------------------------------------------------------------------------

    def _search(self) -> list[Choice | None]:
        layouts, eqns = self.layouts, self.program.eqns
        base: dict[Var, Held] = {}                  # what all states hold alike
        for v in (*self.program.invars, *self.program.constvars):
            base[v] = (layouts.of(v.aval),)
        states = [_State(0.0, {}, None)]
        for k, (eqn, task) in enumerate(zip(eqns, self.tasks, strict=True)):
            read = tuple(dict.fromkeys([a for a in eqn.invars if isinstance(a, Var)]))
            ending = [v for v in read if self.last[v] == k]
            if task is None:
                fixed = self._fixed(eqn)
                self._bring(states, base, fixed)
                for v in eqn.outvars:
                    base[v] = (layouts.of(v.aval),)
                if len(states) > 1 and ending:
                    states = self._settled(states, base, ending)
                for v in ending:
                    base.pop(v, None)
                continue
            if eqn.op.effect:
                self._bring(states, base, self._fixed(eqn))
            wanted = tuple([tuple(self.wanted.get(v, ())) for v in eqn.outvars])
            repeats = tuple([self.repeats.get(v, 1) for v in read]) if self.repeats else ()
            new: list[_State] = []
            for state in states:
                held = tuple([state.held.get(v) or base[v] for v in read])
                if eqn.op.effect:
                    held = tuple([(self.layouts.of(v.aval),) for v in read])
                outcomes = self.steps.outcomes(task, held, wanted, repeats)
                if len(states) == 1 == len(outcomes):
                    only = outcomes[0]
                    state.price += only.price
                    state.path = (state.path, k, only.choice)
                    for v, now in zip(read, only.operands, strict=True):
                        base[v] = now
                    for v, n in zip(eqn.outvars, only.results, strict=True):
                        base[v] = (n,)
                    new.append(state)
                    continue
                for outcome in outcomes:
                    mine = dict(state.held)
                    for v, now in zip(read, outcome.operands, strict=True):
                        mine[v] = now
                    for v, n in zip(eqn.outvars, outcome.results, strict=True):
                        mine[v] = (n,)
                    new.append(_State(state.price + outcome.price, mine,
                                      (state.path, k, outcome.choice)))
            states = self._settled(new, base, ending) if len(new) > 1 or new[0].held else new
            for v in ending:
                base.pop(v, None)
            for v in eqn.outvars:
                if v not in self.last:
                    base.pop(v, None)
        best = min(states, key=lambda s: s.price + self._leaving(s, base))
        found: list[Choice | None] = [None] * len(eqns)
        path = best.path
        while path is not None:
            path, k, choice = path
            found[k] = choice
        return found

    def _fixed(self, eqn: Equation) -> list[tuple[Var, int]]:
        """What an equation without a choice needs."""
        if eqn.op is reshard_p:
            x = eqn.invars[0]
            return [(x, self.layouts.of(eqn.outvars[0].aval))] if isinstance(x, Var) else []
        return [(a, self.layouts.of(a.aval)) for a in dict.fromkeys(eqn.invars)
                if isinstance(a, Var)]

    def _bring(self, states: list[_State], base: dict[Var, Held],
               needs: Sequence[tuple[Var, int]]) -> None:
        for state in states:
            mine = base if len(states) == 1 else state.held
            for v, need in needs:
                held = mine.get(v) or base[v]
                if need not in held:
                    price = self.layouts.nearest(v.aval, held, need)[0]
                    state.price += price / self.repeats.get(v, 1)
                    mine[v] = (*held, need)[-HELD:]

    def _leaving(self, state: _State, base: dict[Var, Held]) -> float:
        total = 0.0
        seen: set[Var] = set()
        for k, v in enumerate(self.program.outvars):
            if isinstance(v, Var) and v not in seen:
                seen.add(v)
                held = state.held.get(v) or base[v]
                price, source = self.layouts.nearest(v.aval, held, self.layouts.of(v.aval))
                if price and k in self.waits and self.layouts.table[source][1]:
                    price /= self.waits[k]
                total += price
        return total

    def _settled(self, states: list[_State], base: dict[Var, Held], ending: Sequence[Var]
                 ) -> list[_State]:
        """The states that go on; what all of them hold alike moves to `base`."""
        differing: dict[Var, None] = {}
        for state in states:
            for v in ending:
                state.held.pop(v, None)
            for v in state.held:
                differing[v] = None
        for v in ending:
            base.pop(v, None)
        keys = [v for v in differing if v in self.last]
        cheapest: dict[tuple, _State] = {}
        for state in states:
            row = tuple([state.held.get(v) or base[v] for v in keys])
            other = cheapest.get(row)
            if other is None or state.price < other.price:
                cheapest[row] = state
        ranked = self._promising(keys, cheapest)
        count = len(ranked)
        while True:
            ranked = ranked[:count]
            same = [all(r[0][c] == ranked[0][0][c] for r in ranked) for c in range(len(keys))]
            if len(keys) - sum(same) <= DIFFERENT or count == 1:
                break
            count //= 2
        for c, v in enumerate(keys):
            if same[c]:
                base[v] = ranked[0][0][c]
        out = []
        for row, state in ranked:
            state.held = {v: held for v, held, alike in zip(keys, row, same, strict=True)
                          if not alike}
            out.append(state)
        return out

    def _promising(self, keys: Sequence[Var], cheapest: Mapping[tuple, _State]
                   ) -> list[tuple[tuple, _State]]:
        """The states to go on with, the most promising first."""
        found = self._undominated(keys, sorted(cheapest.items(), key=lambda item: item[1].price))
        if len(found) == 1:
            return found
        gaps = []
        for row, _ in found:
            gaps.append(sum([self.layouts.gap(v.aval, held, (self.layouts.of(v.aval),))
                             for v, held in zip(keys, row, strict=True)]))
        chosen: dict[int, None] = {}
        for weight, count in KEPT:
            order = sorted(range(len(found)),
                           key=lambda i: found[i][1].price + weight * gaps[i])
            for i in order:
                if count and i not in chosen:
                    chosen[i] = None
                    count -= 1
        return [found[i] for i in chosen]

    def _undominated(self, keys: Sequence[Var], found: list[tuple[tuple, _State]]
                     ) -> list[tuple[tuple, _State]]:
        """Without states that are as dear as it is to come to them from a cheaper one."""
        gap = self.layouts.gap
        types = [v.aval for v in keys]
        out: list[tuple[tuple, _State]] = []
        for row, state in found:
            for other, cheaper in out:
                left = state.price - cheaper.price
                for aval, held, have in zip(types, row, other):  # noqa: B905 (speed)
                    if held is not have and held != have:
                        left -= gap(aval, have, held)
                        if left < 0:
                            break
                else:
                    break
            else:
                out.append((row, state))
                if len(out) == COMPARED:
                    break
        return out
