"""The search on one mesh: the model proposes candidates, and whole programs decide between them.

    1  the named plans, and the best plan that each leads to
    2  the cheapest choice of layouts in the model, by a mixed-integer program (solve.py)
    3  for small programs, every layout of the arguments
    4  the best plan with all its split parameters changed together (joint_changes.py); then the
       arguments of the best plans so far, changed one group at a time while that helps; under a
       limit of memory, starting from fast plans that nearly meet it, then from the fastest of all
    5  plans that are behind with the program made first, by the best of several programs
    6  optimizer state split where its parameter is whole (optimizer_states.py)
    7  constraints on values inside, as few as are needed

Every candidate is partitioned and costed as a whole program (trials.py), and the best one is the
answer. So the answer is never worse than a named plan. The number of trials depends only on the
size of the program.
"""
from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..ir.program import Program, Var
from ..ir.spec import PartitionSpec, spec_from_entries
from ..ir.support.named_tuple import NamedTuple
from ..ir.support.progress import counted
from .joint_changes import moved_together
from .model.groups import Group, Groups, occurrences
from .model.memory import Memory
from .model.model import GroupLayout, Model, group_layouts
from .model.solve import descend, solve
from .named_plans import named_plans
from .optimizer_states import states_of, with_split_states
from .roles import Roles
from .trials import COMPARED as COMPARED_TRIAL
from .trials import Plan, RealisedPlans, Trial, Trials

EFFORT = 100_000           # equations that are partitioned in all trials together
EACH = 150                 # that any trial counts besides those of the program
FEWEST, LEAST = 128, 64    # partitions, of a program of so many equations at most, and of any
LONGEST, MOST = 128_000, 300
COMPARED = 16              # partitions that a plan counts for, where every layout is tried
EVERY = 4_000              # equations in all trials of every way to lay out the arguments
FAR = 6.0                  # times the cost of the best: how far behind none of a large program is
NEAR = 1.5                 # and how near is tried in several ways
FEW = 4                    # plans that hold least, of which the lightest collectives are tried
STATED = 3                 # plans with names of which states are split further
EQUAL = 1e-3               # of the cost of a choice: by less the model sees no difference
SAME = 1.001               # a time is as good as one that is less by this factor
ASIDE = 1.05               # times the time of the best, from which on a choice is tried in one way
AGAIN = 1.5                # times the time of the best, up to which one far behind is judged again
PROMISING = 1.3            # times the time of the best: what takes longer is not changed
PROPOSED = 3               # layouts of each argument that promise most
PATIENCE = 2               # plans in a row whose changes lead to nothing better
EXCESS, OUTSET = 8, 1      # powers to which what is above the limit of memory counts in a climb,
                           # and where it begins


class ComparedPlan(NamedTuple):
    """A named plan with the best figures found for it; None where the model puts it so far behind
    that it was not tried. cost: seconds in the model.
    """
    name: str
    trial: Trial | None
    cost: float


class SearchResult(NamedTuple):
    """best: the answer. bound: seconds that every plan takes at least, by the model and without
    overlap; None where no bound is known. rivals: the best first. tried: how many plans were tried.
    every: whether all layouts of the arguments were tried.
    """
    best: Trial
    bound: float | None
    rivals: tuple[ComparedPlan, ...]
    tried: int
    every: bool


class Search:
    """The search for one program on one mesh. pinned, pinned_results: the specs that are given,
    None where there is none.
    """

    def __init__(self, trials: Trials, pinned: Sequence[PartitionSpec | None],
                 pinned_results: Sequence[PartitionSpec | None]) -> None:
        self.trials, self.pinned, self.results = trials, pinned, pinned_results
        self.program: Program = trials.program
        self.groups = Groups(self.program)
        self.model = Model(self.groups, trials.mesh, trials.objective, self._allowed)
        self.roles = Roles(self.groups, min(
            [n for n in trials.mesh.shape.values() if n > 1], default=1))
        self.realised = RealisedPlans(self.model, pinned, pinned_results)
        self.equations = max(1, sum(1 for _ in occurrences(self.program)))
        self.budget = max(min(MOST, EFFORT // (self.equations + EACH)),
                          max(LEAST, min(FEWEST, LONGEST // self.equations)))
        self.names = named_plans(self.model, self.roles)
        self.arguments = frozenset(g for g, group in enumerate(self.model.groups)
                                   if group.holds_argument)
        self.limit = trials.limit            # by which a climb judges plans
        self.found: dict[Plan, Trial] = {}
        self.choices: dict[Plan, tuple[tuple[int, ...], int]] = {}

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
        """How many more partitions the budget allows."""
        return self.budget - self.trials.made_so_far

    @functools.cached_property
    def starts(self) -> list[tuple[int, ...]]:
        """The choices that descent finds from the named plans and from the layouts that split most,
        the cheapest first.
        """
        begin = [n.choice for n in self.names] + [(0,) * len(self.model.groups)]
        found = dict.fromkeys(tuple(descend(self.model, choice)) for choice in begin)
        return sorted(found, key=lambda choice: (self.model.cost(choice), choice))

    def outlook(self) -> float:
        """The lowest cost in the model among these choices."""
        return self.model.cost(self.starts[0])

    def run(self) -> SearchResult:
        """The answer. If no plan fits into memory, its trial does not either."""
        starts = self.starts
        answer = solve(self.model, starts[0])
        self.try_choice(answer.choice if answer else starts[0])
        rivals = self.rivals()
        every = self.every_argument()
        for choice in starts[:4]:
            if self.left > 0:
                self.try_choice(choice, (0, 2))
        self.move_together()
        if self.binds:
            self.bring_within()
            self.better(self.merit, self.left // 4)
        self.better(lambda t: t.rank)
        self.bring_within()
        if self.binds:
            self.climb_freely()
            self.bring_within()
        self.retry_slower_plans()
        if self.best.plan in self.choices:
            self.try_choice(self.choices[self.best.plan][0])
        rivals = self.split_states(rivals)
        best = self.fewer(self.best)
        if not best.fits:
            best = min([self.trials.lightest(t) for t in self.lightest], key=lambda t: t.rank)
        bound = None if answer is None else answer.bound / 10 ** 18
        return SearchResult(best, bound, rivals, len(self.trials.found), every)

    @property
    def best(self) -> Trial:
        return min(self.found.values(), key=lambda t: t.rank)

    @property
    def binds(self) -> bool:
        """Is there a plan that is faster than the best one, but does not fit into memory?"""
        best = self.best
        return not best.fits or any(
            t.figures.time < best.figures.time for t in self.found.values())

    @property
    def lightest(self) -> list[Trial]:
        """The plans that hold least, for the case that none fits."""
        return sorted(self.found.values(), key=lambda t: t.rank)[:FEW]

    # -- candidates --------------------------------------------------------------------------------

    def try_choice(self, choice: Sequence[int], forms: Iterable[int] = range(6)) -> Trial | None:
        """The best plan that implements a choice of layouts in one of these forms."""
        plans, forms = self.realised.plans(choice), list(forms)
        for form in forms:
            self.choices.setdefault(plans[form], (tuple(choice), form))
        return self.try_plans([plans[form] for form in forms])

    def try_plans(self, plans: Sequence[Plan]) -> Trial | None:
        found = [t for p in plans if (t := self.trials.trial(p)) is not None]
        self.found |= {t.plan: t for t in found}
        return min(found, key=lambda t: t.rank, default=None)

    @functools.cached_property
    def memory(self) -> Memory:
        return Memory(self.model)

    def bring_within(self) -> None:
        """Brings faster plans that do not fit within the limit of memory: the nearest few, with
        collectives chosen under the limit.
        """
        limit, best = self.trials.limit, self.best
        above = [t for t in self.found.values() if not t.fits and (
            not best.fits or t.figures.time < best.figures.time)] if limit else []
        for t in sorted(above, key=self.merit)[:FEW]:
            self.found[t.plan] = self.trials.within(t)

    def retry_slower_plans(self) -> None:
        """Judge the best of the plans that are far behind with the program made first by several
        programs, too, as far as the budget goes: of loops that exchange, the first may not be near
        the best.
        """
        most = AGAIN * self.best.figures.time
        behind = {t.figures.time: t for t in sorted(       # of equal ones the least constrained
            self.found.values(), key=lambda t: -len(t.plan.inside))
                  if not t.peak and t.figures.time <= most}
        for _, t in sorted(behind.items())[:max(0, self.left) // (COMPARED_TRIAL + 1)]:
            self.found[t.plan] = self.trials.compared(t)

    def rivals(self) -> tuple[ComparedPlan, ...]:
        """The named plans."""
        if not self.names:
            return ()
        cost = {n.name: self.model.cost(n.choice) for n in self.names}
        # one job for all axes first; of mixtures the most promising, or those that hold least
        heavy = bool(self.found) and not self.best.fits
        weigh = {n.name: self.memory.peak(n.choice) if heavy else cost[n.name] for n in self.names}
        ranked = sorted(self.names, key=lambda n: (not heavy and " x " in n.name, weigh[n.name]))
        least, large = min(cost.values()), self.budget <= FEWEST
        enough, found = self.left // 2, []
        for n in counted(ranked, "plans that have names"):
            trial = None
            if ((not large or heavy or cost[n.name] <= FAR * least)
                    and self.left > enough):
                forms = range(int(large), 3)
                if cost[n.name] > NEAR * least:
                    forms = (2,) if large else (0, 2)
                trial = self.try_choice(n.choice, (0, 2) if heavy else forms)
            found.append(ComparedPlan(n.name, trial, cost[n.name] / 10 ** 18))
        return tuple(sorted(found, key=lambda r: (
            r.trial is None, r.trial.rank if r.trial else (), r.cost)))

    def every_argument(self) -> bool:
        """Try every layout of the arguments, if there are few; returns whether that was done."""
        choices: list[list[PartitionSpec]] = []
        for v, pin in zip(self.program.invars, self.pinned, strict=True):
            if pin is not None:
                choices.append([pin])
                continue
            group = Group(v, tuple(v.aval.shape))
            choices.append([spec_from_entries(x) for x in group_layouts(group, self.trials.mesh)])
        count = math.prod(map(len, choices))
        if count > max(self.left // COMPARED, EVERY // self.equations):
            return False
        results = tuple(self.results)
        self.try_plans([Plan(own, results) for own in itertools.product(*choices)])
        return True

    def move_together(self) -> None:
        """Change all split parameters of the best plan that has any together (joint_changes.py).
        The partitions that this takes are not taken from those of a climb.
        """
        before = self.trials.made_so_far
        for trial in sorted([self.found[p] for p in self.choices if p in self.found],
                            key=self.merit):
            own, form = self.choices[trial.plan]
            others = moved_together(self.model, self.roles, own)
            for choice in others:
                self.try_choice(descend(self.model, choice, self.arguments), (form,))
            if others:
                break
        self.budget += self.trials.made_so_far - before

    def better(self, merit: Callable[[Trial], Any], spared: int = 0) -> None:
        """Climb from the best plan, then from other plans in order of merit (and, under a limit of
        memory, also of time), until several in a row lead to nothing better than the best of all.
        spared: partitions to leave over.
        """
        known = [self.found[p] for p in self.choices if p in self.found]
        orders = []
        for key in (self.merit, functools.partial(self.merit, excess=OUTSET)):
            most = PROMISING * min(map(key, known))
            orders.append(sorted([t for t in known if key(t) <= most], key=key))
        starts = [t for pair in itertools.zip_longest(*orders) for t in pair if t is not None]
        done: set[tuple[float, ...]] = set()
        behind = 0
        for start in starts:
            if behind == PATIENCE or self.left <= spared:
                break
            if start.runs not in done:
                top = min(map(merit, self.found.values()))
                behind += not merit(self.climb(start, merit, done, spared)) < top

    def climb_freely(self) -> None:
        """Climb as if memory had no limit, with a third more of the budget: the fastest plans of
        all may lead to one that fits.
        """
        self.budget += self.budget // 3
        self.limit = 0
        self.better(lambda t: t.figures.time)
        self.limit = self.trials.limit

    def climb(self, best: Trial, merit: Callable[[Trial], Any], done: set[tuple[float, ...]],
              spared: int) -> Trial:
        """Repeatedly try the most promising layouts of arguments, and go on from a plan if it runs
        differently from all earlier ones, is notably faster, and is the best of all or at least
        halves the distance to it. Returns the best.
        """
        gap = own_merit = math.inf
        while self.left > spared and best.runs not in done:
            least, before = min(map(self.merit, self.found.values())), (own_merit, gap)
            own_merit, gap = self.merit(best), self.merit(best) / least - 1
            if own_merit * SAME > before[0] or gap > before[1] / 2:
                break
            done.add(best.runs)
            own, form = self.choices[best.plan]
            near = self.forms(own, form, best)
            for g, n in self.moves(own, best):
                if self.left <= spared:
                    break
                other = descend(self.model, [*own[:g], n, *own[g + 1:]], self.arguments)
                for each in dict.fromkeys((form, *near)):
                    found = self.try_choice(other, (each,))
                    if found is not None and merit(found) < merit(best):
                        best = found
                        own, form = self.choices[best.plan]
                    elif found is None or found.figures.time > ASIDE * best.figures.time:
                        break
        return best

    def forms(self, own: Sequence[int], form: int, best: Trial) -> list[int]:
        """The distinct forms of a choice that take about as much time as the best one."""
        found: dict[float, int] = {}
        for each in (form, 2, 0):
            trial = self.try_choice(own, (each,))
            if trial is not None and trial.figures.time <= ASIDE * best.figures.time:
                found.setdefault(trial.figures.time, each)
        return list(found.values())

    def merit(self, trial: Trial, excess: int = EXCESS) -> float:
        """The time of a plan, with a penalty for what it holds above the limit of memory."""
        return self.weighed(trial.figures.time, trial.peak, excess)

    def weighed(self, time: float, peak: float, excess: int = EXCESS) -> float:
        return time * max(1.0, peak / self.limit) ** excess if self.limit else time

    def moves(self, own: Sequence[int], best: Trial) -> list[tuple[int, int]]:
        """Other layouts of arguments: the three most promising of each and overall the best first,
        without those between which the model sees no difference. Where the limit of memory binds,
        all others follow, since the model is less reliable there.
        """
        cost = self.weighed(self.model.cost(own), best.peak)
        full = any([not t.fits for t in self.found.values()])
        scale = best.peak / self.memory.peak(own) if full else 0.0
        found, others = [], []
        for g in sorted(self.arguments):
            ranked = []
            for n in range(len(self.model.layouts[g])):
                if n != own[g]:
                    other = descend(self.model, [*own[:g], n, *own[g + 1:]], self.arguments)
                    peak = scale * self.memory.peak(other) if full else 0.0
                    ranked.append((self.weighed(self.model.cost(other), peak), g, n))
            ranked.sort()
            told_apart = [m for m in ranked[:PROPOSED] if abs(m[0] - cost) >= EQUAL * cost]
            found += told_apart
            others += [m for m in ranked if m not in told_apart]
        return [(g, n) for _, g, n in [*sorted(found), *(sorted(others) if self.binds else ())]]

    def split_states(self, rivals: tuple[ComparedPlan, ...]) -> tuple[ComparedPlan, ...]:
        """Split the states of the best plans further than their parameters; returns the rivals,
        including those that this produces (of the best alone where the budget is spent).
        """
        rivals = tuple([r._replace(trial=self.found[r.trial.plan]) if r.trial else r
                        for r in rivals])
        states = states_of(self.groups)
        found = []
        named = rivals[:STATED] if self.left > 0 else ()
        for name, trial, cost in [("", self.best, 0.0), *named] if states else []:
            plan = None if trial is None else with_split_states(
                trial.plan, states, self.program, self.trials.mesh, self.pinned, self.results)
            split = None if plan is None else self.try_plans([plan])
            if split is not None and name:
                found.append(ComparedPlan(f"{name}, optimizer state split", split, cost))
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
                if inside == best.plan.inside or self.left < -FEWEST // 4:
                    continue
                trial = self.trials.trial(best.plan._replace(inside=inside))
                if trial is not None and trial.fits >= best.fits and (
                        trial.figures.time <= best.figures.time * SAME
                        if best.fits else trial.peak <= best.peak):
                    best = trial
            size //= 2
        return best
