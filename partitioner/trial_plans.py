"""Trial plans: complete plans made besides the usual one, and which of them is taken.

The plan with the shortest step wins, and between plans whose steps take as long, the one that
receives fewer bytes; within a limit of memory. A plan may hold a tenth more than XLA's, and than
the one that repeats no computation; where its step is much shorter it may hold more by that factor,
unless it computes more. What is longer than XLA's plan sets no limit.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..ir.ops.communication.collective_kinds import Use, each_collective
from ..ir.ops.communication.sharding import reshard_p
from ..ir.ops.control.trips import trips
from ..ir.passes import RECOMPUTES, LayoutConstraints
from ..ir.program import Program
from ..ir.support.lazy import lazy_import
from ..ir.support.named_tuple import NamedTuple
from .choice.lookahead import BUDGETS
from .cost.prices import MARGIN, SECOND, Objective, Prices
from .cost.topology import Topology
from .optimization.hoist import exchanges
from .preparation.uneven import cuts_split_rows
from .reasons import is_written

if TYPE_CHECKING:
    from .cost.memory import Memory

_memory = lazy_import(".cost.memory", __package__)
_schedule = lazy_import(".cost.schedule", __package__)
_work = lazy_import(".cost.work", __package__)

WEIGHTS = (16, 256)             # weights of the bytes of blocks, beside time
MAX_PEAK_RATIO = 1.1            # how much more a plan may hold at the same step time
MUCH_SHORTER = 0.95             # ratio of step times up to which it may hold more than that
MIN_GAIN = 1.03                 # ratio of step times from which another plan is taken
MIN_LIGHTER_GAIN = 1.02         # likewise, one with lighter blocks
MAX_OPERATIONS = 1.05           # ratio of operations from which a plan computes more
MIN_IDLE_GAIN = 1.1             # likewise, from which arguments or values may be split further
NEAR = 0.9                      # ... and from which on what else may differ is tried
AS_LONG = 1.005                 # ratio of step times up to which fewer bytes count
MIN_BYTES_FOR_XLA_PLAN = 100_000        # bytes received from which XLA's plan is worth making;
MIN_HELD_FOR_XLA_PLAN = 10_000_000      # or bytes of arguments and results; and any where starting
                                        # kernels, which it has fewer of, counts
MOST_FOR_WIDE_SEARCH = 200      # equations
MIN_STEP = 2e-5         # seconds from which plans that use idle axes are worth making
WAITS = 0.25            # part of a step that starting the exchanges in loops takes, to try more
_USUAL = frozenset(("all-reduce", "all-gather", "reduce-scatter"))


class Plan(NamedTuple):
    """The stages of a plan, and the last of them. donated: of the program's arguments."""
    stages: dict[str, Program]
    local: Program
    objective: Objective
    donated: Sequence[bool]

    @property
    def memory(self) -> Memory:
        """The peak memory of a device."""
        return _memory.memory(self.local, self.donated)

    @property
    def peak(self) -> int:
        return self.memory.peak_bytes

    @property
    def step(self) -> float:
        """Seconds of a step on the hardware, exchanges overlapped."""
        return step_of(self.local, self.objective)

    @property
    def one_by_one(self) -> tuple[float, float]:
        """Seconds of the computation and of the exchanges of a step, without overlap."""
        return _schedule.totals(self.local, Topology.of(
            self.objective.hardware, self.local.mesh.shape))

    @property
    def received(self) -> int:
        """Bytes that a device receives."""
        return sum([use.received_bytes * use.count for use in each_collective(self.local)])

    @property
    def mean(self) -> float:
        """Seconds of a step: the geometric mean of those with and without overlap."""
        topology = Topology.of(self.objective.hardware, self.local.mesh.shape)
        return max(_schedule.times(self.local, topology).mean, 1e-18)

    @property
    def operations(self) -> float:
        """Operations of a step."""
        return _work.program_work(self.local).operations

    def computes_more_than(self, other: Plan) -> bool:
        """Has it more operations than another plan?"""
        return self.operations > MAX_OPERATIONS * other.operations

    def may_hold(self, limits: Sequence[Plan]) -> bool:
        """May it hold as much memory as it does beside all of these plans?"""
        return all(map(self._may_hold, limits))

    def _may_hold(self, other: Plan) -> bool:
        if self.peak <= MAX_PEAK_RATIO * other.peak:
            return True
        gain = other.mean / self.mean
        repeats = other.objective.name != "xla" and self.computes_more_than(other)
        return MUCH_SHORTER * gain >= 1 and not repeats and (
            self.peak <= MAX_PEAK_RATIO * gain * other.peak)


class Facts(NamedTuple):
    """What decides which plans are tried. repeats: the usual plan repeats computation. large: it
    exchanges much, or in ways that XLA's may not need. waits: starting the exchanges in loops takes
    much of its step. narrow: the program was searched narrowly. cuts: a slice cuts off rows of a
    split dimension. idle: a step takes some time, and an argument leaves open axes idle.
    """
    repeats: bool
    large: bool = False
    waits: bool = False
    narrow: bool = False
    cuts: bool = False
    idle: bool = False


def facts_of(resharded: Program, local: Program, objective: Objective, program: Program) -> Facts:
    """resharded, local: of the usual plan. program: what plans are made of."""
    if objective.name != "time":
        return Facts(False)
    found = Facts(RECOMPUTES in local.attributes)
    if program.mesh.axis_names[1:] and _leaves_axes_idle(program) and (
            step_of(local, objective) >= MIN_STEP):
        found = found._replace(idle=True, narrow=_is_searched_narrowly(program))
    if not (local.holds_programs or any(map(exchanges, local.ops))):
        return found
    uses = list(each_collective(local))
    if all([is_written(use.equation) for use in uses]) and (
            "reshard" not in resharded.all_op_names):
        return found                    # all are written by hand, and so the same in every plan
    found = found._replace(waits=_waits_in_loops(local, uses, objective),
                           narrow=_is_searched_narrowly(program), cuts=cuts_split_rows(program))
    total = moved = 0
    for use in uses:
        if use.kind not in _USUAL:
            return found._replace(large=True)
        received = use.received_bytes
        total += received * use.count
        if use.kind != "all-reduce":
            moved = max(moved, received)
    held = sum([t.local_nbytes for t in (*local.in_avals, *local.out_avals)])
    return found._replace(large=0 < moved >= held or bool(objective.hardware.kernel) or (
        total >= MIN_BYTES_FOR_XLA_PLAN or held >= MIN_HELD_FOR_XLA_PLAN))


def _waits_in_loops(local: Program, uses: Sequence[Use], objective: Objective) -> bool:
    """Does starting those of a program's exchanges that are in loops take much of a step?"""
    repeated = [use for use in uses if use.count > 1]
    if not repeated:
        return False
    prices = objective.prices(local.mesh)
    starts = sum([use.count * prices.exchange_of(use.equation).fixed for use in repeated])
    topology = Topology.of(objective.hardware, local.mesh.shape)
    return starts > WAITS * SECOND * sum(_schedule.totals(local, topology))


def _is_searched_narrowly(program: Program) -> bool:
    """Is it, or one that it holds, too long to be searched widely at once, but not for a trial?"""
    return BUDGETS[0][0] < len(program.eqns) <= MOST_FOR_WIDE_SEARCH or any(
        [_is_searched_narrowly(body) for _, _, body in program.subprograms()])


def _leaves_axes_idle(program: Program) -> bool:
    """Is some argument of a resolved program split over some of the axes that split arguments, but
    not over all? Not where layouts are part of the types, and so the user's choice, nor where parts
    of axes split any.
    """
    said = program.attributes
    if LayoutConstraints.KEY not in said or said[LayoutConstraints.KEY].fixed is None:
        return False
    used = [{axis for axes in aval.entries for axis in axes}
            for aval in dict.fromkeys(program.in_avals)]
    every = set().union(*used)
    return every <= program.mesh.shape.keys() and any([axes and axes != every for axes in used])


def moving(resharded: Program, prices: Prices) -> int:
    """The price of the bytes that all reshards of a RESHARDED program move."""
    total = 0
    for eqn in resharded.eqns:
        if eqn.op is reshard_p:
            total += prices.moving(eqn.invars[0].aval, eqn.outvars[0].aval)
        elif eqn.op.subprograms:
            total += trips(eqn) * max([moving(body, prices) for _, body in eqn.subprograms()])
    return total


def step_of(local: Program, objective: Objective) -> float:
    """Seconds of a step of a per-device program on the hardware of the objective."""
    return _schedule.times(local, Topology.of(objective.hardware, local.mesh.shape)).step


# -- which plan is better --------------------------------------------------------------------------

class Tried(NamedTuple):
    """A plan that was made besides the usual one, by a trial."""
    plan: Plan
    trial: Trial


def limits_of(thrifty: Plan, xla: Plan | None) -> list[Plan]:
    """The plans beside which memory is limited: XLA's, if it was made, and the thrifty one, which
    repeats nothing, if it is no longer than XLA's.
    """
    if xla is None:
        return [thrifty]
    return [xla, thrifty] if thrifty.mean <= AS_LONG * xla.mean else [xla]


def best_of(usual: Plan, tried: Sequence[Tried], limits: Sequence[Plan]) -> Plan:
    """The plan with the shortest step that may hold its memory beside all of `limits`, which the
    smallest of these may; of those whose steps take as long the one that receives fewest bytes.
    Plans beside the usual one have to be shorter by the margin of their trial.
    """
    found = [(usual.mean, usual), *[(trial.margin * plan.mean, plan) for plan, trial in tried
                                    if trial.margin_of_more == 1 or (
                                        trial.margin_of_more * plan.mean <= usual.mean
                                        or not plan.computes_more_than(usual))]]
    best = next(p for _, p in sorted(found, key=lambda f: f[0]) if p.may_hold(limits))
    as_long = [p for _, p in found if p.mean <= AS_LONG * best.mean
               and p.received < best.received and p.may_hold(limits)]
    return min(as_long, key=lambda p: p.received, default=best)


def over_idle_axes(taken: Plan, tried: Sequence[Plan], make: Callable[[Objective], Plan],
                   found: Facts, limits: Sequence[Plan]) -> Plan:
    """The plan that is taken so far, or one that splits arguments or values over axes that they
    leave idle, where its step is shorter by a tenth, within the same limits of memory.

    tried: plans that do. Where one of them is hardly longer, what else may differ is tried from the
    shortest so far on, a greedy climb: both arguments and values, lighter blocks, a wide search.
    """
    best, gain = taken, NEAR

    def consider(other: Plan) -> None:
        nonlocal best, gain
        more = taken.mean / other.mean
        if more > gain and other.may_hold(limits):
            best, gain = other, more
    for other in tried:
        consider(other)
    for change in _CHANGES if best is not taken else ():
        consider(make(change(best.objective, found)))
    return best if gain > MIN_IDLE_GAIN else taken


_CHANGES: tuple[Callable[[Objective, Facts], Objective], ...] = (
    lambda o, _: o._replace(idle="both"),
    lambda o, _: with_lighter_blocks(o)[0],
    lambda o, found: o._replace(wide=found.narrow))
"""What is changed of a plan over idle axes, in this order."""


# -- the plans that are tried ----------------------------------------------------------------------

def no_repeats(objective: Objective) -> Objective:
    return objective._replace(no_repeats=True)


def with_lighter_blocks(objective: Objective) -> list[Objective]:
    return [objective._replace(weight=weight, no_repeats=True) for weight in WEIGHTS]


def as_xla(objective: Objective) -> Objective:
    """The objective of XLA's plan, to be judged by another one."""
    return objective._replace(name="xla", tried_for=objective.name)


class Trial(NamedTuple):
    """Plans that are tried besides the usual one, each complete. when: they are tried. variants:
    the objectives by which they are made, by that of the usual plan. margin: how many times as long
    the step of a plan takes that they replace, and margin_of_more: that of the usual one, if they
    compute more. stops: a plan that is the usual one is the last of them. idle: they are judged at
    the end, by `over_idle_axes`.
    """
    name: str
    why: str
    when: Callable[[Facts], bool]
    variants: Callable[[Objective, Facts], Sequence[Objective]]
    margin: float = 1.0
    margin_of_more: float = 1.0
    stops: bool = False
    idle: bool = False


TRIALS = (
    Trial("no repeats", "computation that is repeated may need too much memory",
          lambda found: found.repeats, lambda o, _: [no_repeats(o)]),
    Trial("as XLA", "large exchanges may be none in the plan that XLA makes",
          lambda found: found.large, lambda o, _: [as_xla(o)]),
    Trial("lighter blocks", "with more weight on blocks, computation is seldom repeated",
          lambda found: found.repeats or found.large,
          lambda o, found: with_lighter_blocks(o)[:1 + found.large],
          MIN_LIGHTER_GAIN, stops=True),
    Trial("carried rows", "rows that iterations keep apart are exchanged outside of the loop",
          lambda found: found.waits, lambda o, _: [o._replace(carried_rows=True)], MIN_GAIN),
    Trial("kept rows", "where rows that slices cut off stay as padding, the others need not move",
          lambda found: found.cuts, lambda o, _: [no_repeats(o)._replace(kept_rows=True)],
          MIN_GAIN),
    Trial("fewest bytes", "what is exchanged less often, or in smaller blocks, may take less time",
          lambda found: found.large or found.cuts and found.repeats,
          lambda o, _: [o._replace(name="bytes", tried_for=o.name)], MIN_GAIN, MARGIN / 100),
    Trial("idle axes", "what arguments leave idle may be used for what is computed from them",
          lambda found: found.idle, lambda o, _: [o._replace(idle="arguments")], idle=True),
    Trial("idle axes of values", "likewise for what is computed, where it is between products",
          lambda found: found.idle, lambda o, _: [o._replace(idle="values")], idle=True),
    Trial("wide search", "large exchanges are worth a longer search",
          lambda found: found.large and found.narrow, lambda o, _: [o._replace(wide=True)]),
    Trial("lighter blocks, wide search", "likewise, with more weight on blocks",
          lambda found: found.large and found.narrow,
          lambda o, _: with_lighter_blocks(o._replace(wide=True))[:1], MIN_GAIN),
)
"""In the order in which they are tried."""
