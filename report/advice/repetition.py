"""Shortens programs that repeat a block, such as unrolled layers, to a few repetitions.

Equations count as equal here if op, types and the user's expression are. A run is a stretch in
which each equation equals the one a period before it: the forward layers, the backward ones, the
updates of their parameters. `shortened` removes the same number of periods from all runs; a value
read from a removed period is replaced by its counterpart in the last remaining one. The short
program computes something else, but its values are laid out and moved as in the long one. At a
fraction of the work, it shows which of many changes are worth trying on the long one.
"""
from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ...ir.program import Equation, Program, Var

PERIODS = 3            # periods that remain: layouts of the first, inner and last ones may differ
LEAST = 4           # periods from which shortening pays
_PERIODS = 12       # lengths of a period that are tried


@dataclass(frozen=True)
class Run:
    """Equations start .. start + period * count, each equal to the one a period before it."""
    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


@dataclass(frozen=True)
class Shortened:
    """A program without some periods of its runs. arguments, results: the positions in the long
    program of those that remain. gone: the number of periods removed from each run.
    """
    program: Program
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    gone: int = 0


def runs(program: Program) -> list[Run]:
    """The runs of a program's equations, in order; none overlap."""
    numbers: dict[Hashable, int] = {}
    keys = [numbers.setdefault(_key_of(e), len(numbers)) for e in program.eqns]
    votes: dict[int, int] = {}
    last: dict[int, tuple[int, int]] = {}            # key -> (position, distance to the one before)
    for i, key in enumerate(keys):
        at, gap = last.get(key, (-1, 0))
        if at >= 0:
            if gap == i - at:
                votes[gap] = votes.get(gap, 0) + 1
            gap = i - at
        last[key] = (i, gap)
    found: list[Run] = []
    free = [True] * len(keys)
    # of equally frequent ones the shortest first: multiples of a period are periods, too
    for period in sorted(votes, key=lambda p: (-votes[p] * p, p))[:_PERIODS]:
        i = 0
        while i + period < len(keys):
            j = i
            while j + period < len(keys) and keys[j] == keys[j + period] and free[j] and (
                    free[j + period]):
                j += 1
            if (j - i) // period + 1 >= LEAST:
                own = next(p for p in range(1, period + 1) if period % p == 0
                           and keys[i:j + period - p] == keys[i + p:j + period])
                run = Run(i, own, (j + period - i) // own)
                found.append(run)
                free[run.start:run.end] = [False] * (run.end - run.start)
                i = run.end
            else:
                i = j + 1
    return sorted(found, key=lambda r: r.start)


def _key_of(eqn: Equation) -> Hashable:
    at = eqn.location
    return (eqn.op, tuple([a.aval for a in eqn.invars]), tuple([v.aval for v in eqn.outvars]),
            at.file, at.line, at.column, at.transform)


def shortened(program: Program, periods: int = PERIODS, known: Sequence[Run] | None = None
              ) -> Shortened | None:
    """The program with so many periods of what it repeats most; None if it repeats little. known:
    its runs, if they are.
    """
    found = runs(program) if known is None else known
    most = max((r.count for r in found), default=0)
    found = [r for r in found if 2 * r.count > most]
    gone = min((r.count for r in found), default=0) - periods
    if gone <= 0:
        return None
    made = {v: (n, k) for n, e in enumerate(program.eqns) for k, v in enumerate(e.outvars)}
    cuts: list[tuple[int, int, int]] = []            # from, to, period
    for run in found:
        first, latest = run.start + run.period, run.end - run.period * gone
        # the layers that an earlier run has lost, as this one begins to read them
        start = next((n for n in range(first, latest)
                      if any(_within(made[a][0], cuts) is not None
                             for a in program.eqns[n].invars if a in made)),
                     latest if cuts else first)
        cuts.append((start, start + run.period * gone, run.period))

    def read(atom):
        at = made.get(atom)
        cut = None if at is None else _within(at[0], cuts)
        if at is None or cut is None:
            return atom
        start, _, period = cut
        return program.eqns[start - period + (at[0] - start) % period].outvars[at[1]]

    eqns = [e.replace(invars=tuple([read(a) for a in e.invars])) for n, e in enumerate(program.eqns)
            if _within(n, cuts) is None]
    results = [i for i, a in enumerate(program.outvars)
               if a not in made or _within(made[a][0], cuts) is None]
    outvars = [program.outvars[i] for i in results]
    before = {a for e in program.eqns for a in e.invars if isinstance(a, Var)}
    after = {a for e in eqns for a in e.invars if isinstance(a, Var)} | set(outvars)
    arguments = [i for i, v in enumerate(program.invars) if v in after or v not in before]
    return Shortened(_with(program, eqns, arguments, results), tuple(arguments), tuple(results),
                     gone)


def _within(n: int, cuts: Sequence[tuple[int, int, int]]) -> tuple[int, int, int] | None:
    return next((c for c in cuts if c[0] <= n < c[1]), None)


def _with(program: Program, eqns: Sequence[Equation], arguments: Sequence[int],
          results: Sequence[int]) -> Program:
    def of(names: Sequence[str], periods: Sequence[int]) -> tuple[str, ...]:
        return tuple([names[i] for i in periods]) if names else ()

    return program.replace(
        invars=[program.invars[i] for i in arguments], eqns=eqns,
        outvars=[program.outvars[i] for i in results],
        arg_names=of(program.arg_names, arguments),
        result_names=of(program.result_names, results))
