"""The search on one mesh: candidates from the model, judged by what really runs.

    1  the plans that have names, and the best that each leads to
    2  the cheapest choice of layouts in the model, by the mixed-integer program (solve.py)
    3  of small programs every way to lay out the arguments
    4  the arguments of the best plan so far changed one group at a time, while that helps
    5  the state of an optimizer split where its parameter is whole (states.py)
    6  values that are brought to a layout inside, as few as it takes

All of them are partitioned and costed as whole programs (trials.py); the best of these is the
answer, so it is never behind a plan with a name. How many are tried follows from the size of the
program alone.
"""
from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

from ..ir.program import Program, Var
from ..ir.spec import PartitionSpec, spec_from_entries
from ..ir.support.named_tuple import NamedTuple
from ..ir.support.progress import counted
from .groups import Group, Groups, uses
from .memory import Held, held_at_once
from .model import GroupLayout, Model, group_layouts
from .named import named_plans
from .roles import Roles
from .solve import descend, solve
from .states import states_of, with_split_states
from .trials import Plan, Realised, Trial, Trials

EFFORT = 12_000            # equations that are partitioned in all trials together
EACH = 150                 # that any trial counts besides those of the program
FEWEST, LEAST = 32, 8      # trials, of a program of so many equations at most, and of any
LONGEST = 32_000
EVERY = 4_000              # equations in all trials of every way to lay out the arguments
FAR = 6.0                  # times the cost of the best: how far behind none of a large program is
NEAR = 2.0                 # and how near is tried in several ways
FEW = 4                    # plans that hold least, of which the lightest collectives are tried
STATED = 3                 # plans with names of which states are split further
SAME = 1.001               # a time is as good as one that is less by this factor
ABOVE = (1.001, 1.1, 1.5)  # times what each point holds at least, taken by itself
TIGHTER = (1.0, 0.7, 0.5, 0.3, 0.15, 0.08)     # limits of memory of the model, beside the real one


class Rival(NamedTuple):
    """A plan that has a name, with the best figures that were found for it; None where it is so far
    behind in the model that it was not tried. cost: in the model, in seconds.
    """
    name: str
    trial: Trial | None
    cost: float


class Outcome(NamedTuple):
    """best: the answer. bound: seconds that the model says any plan takes at least, one thing after
    the other; None where no bound is known. rivals: the best first. tried: how many plans were.
    every: were all layouts of arguments tried?
    """
    best: Trial
    bound: float | None
    rivals: tuple[Rival, ...]
    tried: int
    every: bool


class Search:
    """One program on one mesh. pinned, pinned_results: the specs that are given, None for others.
    """

    def __init__(self, trials: Trials, pinned: Sequence[PartitionSpec | None],
                 pinned_results: Sequence[PartitionSpec | None]) -> None:
        self.trials, self.pinned, self.results = trials, pinned, pinned_results
        self.program: Program = trials.program
        self.groups = Groups(self.program)
        self.model = Model(self.groups, trials.mesh, trials.objective, self._allowed)
        self.roles = Roles(self.groups)
        self.realised = Realised(self.model, pinned, pinned_results)
        self.equations = max(1, sum(1 for _ in uses(self.program)))
        self.budget = max(EFFORT // (self.equations + EACH),
                          max(LEAST, min(FEWEST, LONGEST // self.equations)))
        self.names = named_plans(self.model, self.roles)
        self.arguments = frozenset(g for g, group in enumerate(self.model.groups)
                                   if group.holds_argument)
        self.found: list[Trial] = []

    def _allowed(self, group: Group, layout: GroupLayout) -> bool:
        """Is a layout compatible with the given spec of the group's arguments or results?"""
        asked = [(v, spec) for v, spec in (*zip(self.program.invars, self.pinned, strict=True),
                                           *zip(self.program.outvars, self.results, strict=True))
                 if spec is not None and isinstance(v, Var) and self.groups.of[v] is group]
        return not asked or any(
            spec.padded(v.aval.ndim).entries == tuple([
                layout[d] if d >= 0 else () for d in self.groups.dims[v]]) for v, spec in asked)

    @property
    def left(self) -> int:
        """How many plans may still be tried."""
        return self.budget - len(self.trials.found)

    @functools.cached_property
    def starts(self) -> list[tuple[int, ...]]:
        """The choices that descent finds from the plans that have names, and from the layouts that
        split most; the cheapest first.
        """
        begin = [n.chosen for n in self.names] + [(0,) * len(self.model.groups)]
        found = dict.fromkeys(tuple(descend(self.model, chosen)) for chosen in begin)
        return sorted(found, key=lambda chosen: (self.model.cost(chosen), chosen))

    def outlook(self) -> float:
        """The cost in the model of the best choice of these."""
        return self.model.cost(self.starts[0])

    def run(self) -> Outcome:
        """The answer. Its trial may not fit into memory, where none was found that does."""
        starts = self.starts
        best_start = starts[0]
        answer = solve(self.model, best_start)
        self.try_choice(answer.chosen if answer else best_start)
        within = self.within(best_start)
        rivals = self.rivals()
        every = self.every_argument()
        for chosen in starts[:4]:
            if self.left > 0:
                self.try_choice(chosen)
        self.better(within or (answer.chosen if answer else best_start))
        rivals = self.split_states(rivals)
        best = self.fewer(self.best)
        if not best.fits:
            best = min([self.trials.lightest(t) for t in self.lightest], key=lambda t: t.rank)
        bound = None if answer is None else answer.bound / 10 ** 18
        return Outcome(best, bound, rivals, len(self.trials.found), every)

    @property
    def best(self) -> Trial:
        return min(self.found, key=lambda t: t.rank)

    @property
    def lightest(self) -> list[Trial]:
        """Those that hold least, where none fits."""
        return sorted(self.found, key=lambda t: t.rank)[:FEW]

    # -- candidates --------------------------------------------------------------------------------

    def try_choice(self, chosen: Sequence[int], few: bool = False) -> Trial | None:
        """The best plan that stands for a choice of layouts; few: of those alone that say most."""
        plans = self.realised.plans(chosen)
        return self.try_plans(plans[2:3] if few and len(plans) > 2 else plans)

    def try_plans(self, plans: Sequence[Plan]) -> Trial | None:
        found = [t for p in plans if (t := self.trials.trial(p)) is not None]
        self.found += found
        return min(found, key=lambda t: t.rank, default=None)

    def within(self, start: Sequence[int]) -> tuple[int, ...] | None:
        """A choice of layouts whose plan keeps to the limit of memory, if there is a limit."""
        limit = self.trials.limit
        if not limit:
            return None
        held = held_at_once(self.model)
        chosen: tuple[int, ...] | None = None
        for share in TIGHTER:
            if self.found and self.best.fits:
                return chosen
            answer = solve(self.model, start, {}, held, limit * share)
            if answer is None:
                break
            if answer.chosen != chosen:
                chosen = answer.chosen
                self.try_choice(chosen)
        if not self.best.fits:
            chosen = self.least(start, held) or chosen
        return chosen

    def least(self, start: Sequence[int], held: Sequence[Held]) -> tuple[int, ...] | None:
        """A choice of layouts with nearly the least memory, for the message where no plan keeps the
        limit.
        """
        floor = max((h.total([int(c.argmin()) for c in h.by_layout]) for h in held), default=0.0)
        for above in ABOVE:
            answer = solve(self.model, start, {}, held, floor * above)
            if answer is not None:
                self.try_choice(answer.chosen)
                return answer.chosen
        return None

    def rivals(self) -> tuple[Rival, ...]:
        """The plans that have names."""
        if not self.names:
            return ()
        cost = {n.name: self.model.cost(n.chosen) for n in self.names}
        # one job for all axes first; of mixtures the most promising, or those that hold least
        heavy = bool(self.found) and not self.best.fits
        held = held_at_once(self.model) if heavy else ()
        weigh = {n.name: max([h.total(n.chosen) for h in held], default=cost[n.name])
                 for n in self.names}
        ranked = sorted(self.names, key=lambda n: (not heavy and " x " in n.name, weigh[n.name]))
        least, large = min(cost.values()), self.budget <= FEWEST
        before, found = len(self.trials.found), []
        for n in counted(ranked, "plans that have names"):
            trial = None
            if ((not large or heavy or cost[n.name] <= FAR * least)
                    and len(self.trials.found) - before < 2 * self.budget // 3):
                plans = self.realised.plans(n.chosen)
                far = large and cost[n.name] > NEAR * least
                trial = self.try_plans(plans[:3:2] if heavy else plans[2 if far else int(large):3])
            found.append(Rival(n.name, trial, cost[n.name] / 10 ** 18))
        return tuple(sorted(found, key=lambda r: (
            r.trial is None, r.trial.rank if r.trial else (), r.cost)))

    def every_argument(self) -> bool:
        """Try every way to lay out the arguments, where there are few; whether that was done."""
        choices: list[list[PartitionSpec]] = []
        for v, pin in zip(self.program.invars, self.pinned, strict=True):
            if pin is not None:
                choices.append([pin])
                continue
            group = Group(v, tuple(v.aval.shape))
            choices.append([spec_from_entries(x) for x in group_layouts(group, self.trials.mesh)])
        count = math.prod(map(len, choices))
        if count > max(self.left, EVERY // self.equations):
            return False
        results = tuple(self.results)
        self.try_plans([Plan(own, results) for own in itertools.product(*choices)])
        return True

    def better(self, chosen: Sequence[int]) -> None:
        """Change the arguments of the best plan, one group at a time, while that helps."""
        order = sorted(self.arguments, key=lambda g: (-sum(
            math.prod(v.aval.shape) * v.aval.dtype.itemsize for v in self.model.groups[g].members
            if v in self.program.invars), g))
        own = list(chosen)
        for g in order:
            if len(self.model.layouts[g]) < 2:
                continue
            ranked = []
            for n in range(len(self.model.layouts[g])):
                if n != own[g]:
                    other = [*own[:g], n, *own[g + 1:]]
                    other = descend(self.model, other, self.arguments)
                    ranked.append((self.model.cost(other), other))
            for _, other in sorted(ranked)[:2]:
                if self.left <= 0:
                    return
                before = self.best
                self.try_choice(other, few=True)
                if self.best.rank < before.rank:
                    own = other

    def split_states(self, rivals: tuple[Rival, ...]) -> tuple[Rival, ...]:
        """Split the states of the best plans further than their parameters; the rivals, with those
        of them that this makes.
        """
        states = states_of(self.groups)
        if not states:
            return rivals
        found = []
        for name, trial, cost in [("", self.best, 0.0), *rivals[:STATED]]:
            plan = None if trial is None else with_split_states(
                trial.plan, states, self.program, self.trials.mesh, self.pinned, self.results)
            split = None if plan is None else self.try_plans([plan])
            if split is not None and name:
                found.append(Rival(f"{name}, optimizer state split", split, cost))
        return tuple(sorted([*rivals, *found], key=lambda r: (
            r.trial is None, r.trial.rank if r.trial else (), r.cost)))

    def fewer(self, best: Trial) -> Trial:
        """An equally good plan with fewer specs: without those inside, if they make no difference.
        """
        left = list(dict.fromkeys(i.group for i in best.plan.inside))
        size = len(left)
        while size:
            for start in range(0, len(left), size):
                gone = {*left[start:start + size]}
                inside = tuple([i for i in best.plan.inside if i.group not in gone])
                if inside == best.plan.inside or len(self.trials.found) > self.budget + FEWEST // 4:
                    continue
                trial = self.trials.trial(best.plan._replace(inside=inside))
                if trial is not None and trial.fits >= best.fits and (
                        trial.figures.time <= best.figures.time * SAME
                        if best.fits else trial.figures.peak_bytes <= best.figures.peak_bytes):
                    best = trial
            size //= 2
        return best
