"""Outcomes: how one equation may go on from what its operands are held in, and for how much.

Pure functions of the equation's types and of layouts, remembered, so that repeated layers cost a
dictionary lookup.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from ..ir.ops.sharding import reshard_p
from ..ir.program import Equation, Literal, Var
from ..ir.types import ArrayType, Entries
from .alternatives import sums_through
from .choose import Choice, choices
from .factors import RuleInfo, rule_info
from .layouts import Held, Layouts
from .origins import Origins

MOST_OUTCOMES = 5       # of one equation in one state
WANTED = 3              # layouts that readers would like a value in, besides its own
HELD = 4                # layouts of one value that are remembered
PASSED_ON = 1e-4        # bytes that passing on a sum counts: it is not done for nothing
_EMPTY: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Task:
    """What is to be decided about one equation.

    operands: position of each distinct variable it reads, and of literals -1. sums: per operand,
    axes over which its type makes the equation pass a sum on. linear: operand sets through which
    other sums may pass. pinned: per result, whether it must end as its type says.
    """
    info: RuleInfo
    types: tuple[ArrayType, ...]
    operands: tuple[int, ...]
    sums: tuple[frozenset[str], ...]
    linear: tuple[tuple[int, ...], ...]
    pinned: tuple[bool, ...]


@dataclass(frozen=True)
class Outcome:
    """A choice in a state: its price, what the operands are held in then, what the results are.

    rank: the price, and that of bringing the results to where propagation has them.
    """
    price: float
    rank: float
    choice: Choice
    operands: tuple[Held, ...]
    results: tuple[int, ...]


def declared_sums(types: Sequence[ArrayType], operands: int) -> tuple[frozenset[str], ...]:
    """Per operand the axes over which the equation passes its sum on, as the types say."""
    if len(types) != operands + 1:           # which result is pending over what is not said
        return (_EMPTY,) * operands
    wanted = types[-1].sharding.spec.unreduced
    return tuple([t.sharding.spec.unreduced & wanted for t in types[:operands]])


class Outcomes:
    """The equations of a program, one at a time. origins: None where all values stay as typed."""

    def __init__(self, layouts: Layouts, origins: Origins | None) -> None:
        self.layouts = layouts
        self.origins = origins

    def task(self, eqn: Equation) -> Task | None:
        """None for equations that take their operands as the types say, and give such results."""
        if eqn.op is reshard_p or eqn.op.subprograms:
            return None
        types = tuple([v.aval for v in (*eqn.invars, *eqn.outvars)])
        rule = eqn.op.factor_rule(tuple([v.aval.shape for v in eqn.invars]),
                                  tuple([v.aval.shape for v in eqn.outvars]), eqn.params)
        sums = declared_sums(types, len(eqn.invars))
        waiting = any(t.sharding.spec.unreduced for t in types)
        seen: dict[Var, int] = {}
        places = tuple([-1 if isinstance(a, Literal) else seen.setdefault(a, len(seen))
                        for a in eqn.invars])
        pinned = tuple([waiting or bool(eqn.op.effect) or not self.is_free(v)
                        for v in eqn.outvars])
        linear = () if all(pinned) else sums_through(eqn)
        return Task(rule_info(rule), types, places, sums, linear, pinned)

    def is_free(self, v: Var) -> bool:
        """May the value be laid out otherwise than its type says?"""
        return self.origins is not None and self.origins.is_free(v)

    def wishes(self, task: Task, results: tuple[Held, ...]) -> tuple[Held, ...]:
        """Per operand the layouts that cheap choices would have it in."""
        key = (task, results)
        found = self.layouts.memo.get(key)
        if found is None:
            found = self.layouts.memo[key] = self._new_wishes(task, results)
        return found

    def _new_wishes(self, task: Task, results: tuple[Held, ...]) -> tuple[Held, ...]:
        layouts, count = self.layouts, task.info.operands
        types = task.types
        own = [layouts.of(t) for t in types]
        hints = [(layouts.table[n][0],) for n in own[:count]]
        hints += [tuple(layouts.table[n][0] for n in (own[count + k], *more))
                  for k, more in enumerate(results)]
        priced = []
        for choice in self._choices(task, hints, task.sums):
            price = choice.price
            needs = self._needs(choice)
            for i, n in enumerate(needs):
                price += layouts.price(types[i], own[i], n)
            for k, more in enumerate(results):
                made = layouts.number(choice.layouts[count + k], choice.pending)
                price += min(layouts.price(types[count + k], made, n)
                             for n in (own[count + k], *more))
            priced.append((price, needs))
        priced.sort(key=itemgetter(0))
        out: list[list[int]] = [[] for _ in range(count)]
        for _, needs in priced[:WANTED]:
            for i, n in enumerate(needs):
                if n != own[i] and n not in out[i]:
                    out[i].append(n)
        return tuple(map(tuple, out))

    def _choices(self, task: Task, hints: Sequence[Sequence[Entries]],
                 sums: Sequence[frozenset[str]]) -> list[Choice]:
        types = task.types
        return choices(self.layouts.mesh, task.info, [t.shape for t in types],
                       [t.dtype.itemsize for t in types], hints, sums)

    def _needs(self, choice: Choice) -> list[int]:
        """The layout in which each operand is needed."""
        return list(map(self.layouts.number, choice.layouts, choice.sums))

    def _sums(self, task: Task, held: tuple[Held, ...]) -> list[tuple[frozenset[str], ...]]:
        """The ways of taking operands as sums: as the types say, and as they are held."""
        ways = [task.sums]
        for members in task.linear:
            for pending in dict.fromkeys(
                    self.layouts.table[n][1] for i in members if task.operands[i] >= 0
                    for n in held[task.operands[i]]):
                way = tuple([pending if i in members else _EMPTY for i in range(len(task.sums))])
                if pending and way not in ways and not any(
                        task.operands[i] < 0 for i in members):
                    ways.append(way)
        return ways

    def outcomes(self, task: Task, held: tuple[Held, ...], wanted: tuple[Held, ...],
                 repeats: tuple[int, ...]) -> list[Outcome]:
        """How an equation may go on, the most promising first.

        held: what its variables are held in. wanted: per result, layouts that readers would like.
        repeats: per variable, how often the equation runs for one reshard of it; () for once.
        """
        key = (task, held, wanted, repeats)
        found = self.layouts.memo.get(key)
        if found is None:
            found = self.layouts.memo[key] = self._new_outcomes(task, held, wanted, repeats)
        return found

    def _new_outcomes(self, task: Task, held: tuple[Held, ...], wanted: tuple[Held, ...],
                      repeats: tuple[int, ...]) -> list[Outcome]:
        layouts, count, types = self.layouts, task.info.operands, task.types
        homes = [layouts.of(t) for t in types]
        hints: list[tuple[Entries, ...]] = []
        for place in task.operands:
            hints.append(() if place < 0 else tuple(layouts.table[n][0] for n in held[place]))
        hints += [tuple(layouts.table[n][0] for n in (homes[count + k], *more))
                  for k, more in enumerate(wanted)]
        out: dict[tuple, Outcome] = {}
        found = [choice for way in self._sums(task, held)
                 for choice in self._choices(task, hints, way)]
        for choice in found:
            price = choice.price + (PASSED_ON if choice.sums != task.sums else 0.0)
            now = list(held)
            for place, n, t in zip(task.operands, self._needs(choice), types, strict=False):
                if place >= 0 and n not in now[place]:
                    price += layouts.nearest(t, now[place], n)[0] / (
                        repeats[place] if repeats else 1)
                    now[place] = (*now[place], n)[-HELD:]
            results = []
            rest = 0.0
            for k in range(len(task.pinned)):
                n = layouts.number(choice.layouts[count + k], choice.pending)
                home = homes[count + k]
                gap = layouts.price(types[count + k], n, home)
                if task.pinned[k]:
                    price += gap
                    n = home
                else:
                    rest += gap
                results.append(n)
            row = (tuple(now), tuple(results))
            if row not in out or price < out[row].price:
                out[row] = Outcome(price, price + rest, choice, *row)
        ranked = sorted(out.values(), key=lambda o: o.rank)
        return self._worth(ranked, task, held, wanted)

    def _worth(self, ranked: list[Outcome], task: Task, held: tuple[Held, ...],
               wanted: tuple[Held, ...]) -> list[Outcome]:
        """Where the best moves nothing: it, and what gives a result as some reader would like."""
        best = ranked[0]
        if (best.operands != held or best.choice.received or best.price - best.choice.price > 0
                or best.choice.pending):
            return ranked[:MOST_OUTCOMES]
        liked = [o for o in ranked[1:MOST_OUTCOMES]
                 if any(n in more and n != m for n, m, more in zip(
                     o.results, best.results, wanted, strict=True))]
        return [best, *liked]
