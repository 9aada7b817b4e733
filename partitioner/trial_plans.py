"""Trial plans: complete plans made besides the usual one, and which of them is taken.

The plan with the shorter step wins, and between plans whose steps take as long, in some trials the
one that receives fewer bytes; within a limit of memory: one that repeats computation may hold a
tenth more than one that does not; any other may hold more by the factor by which its step is
shorter, and a tenth; and any amount more if the step of the other is longer than that of XLA's
plan.
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
from .cost.prices import SECOND, Objective, Prices
from .cost.topology import Topology
from .optimization.hoist import exchanges
from .preparation.uneven import cuts_split_rows
from .reasons import is_written

if TYPE_CHECKING:
    from .cost.memory import Memory

_memory = lazy_import(".cost.memory", __package__)
_schedule = lazy_import(".cost.schedule", __package__)

WEIGHTS = (16, 256)             # weights of the bytes of blocks, beside time
MAX_PEAK_RATIO = 1.1            # how much more a plan may hold at the same step time
MUCH_LONGER = 0.8               # without overlap, from which plans are not compared with overlap
MUCH_SHORTER = 0.95             # ratio of step times up to which it may hold more than that
MIN_GAIN = 1.03                 # ratio of step times from which blocks may be split in another way
MIN_IDLE_GAIN = 1.1             # likewise, from which arguments or values may be split further
NEAR = 0.97                     # ... and from which on what else may differ is tried
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
    def least_peak(self) -> int:
        """A bound of the peak from below, which is known at once."""
        return _memory.held_throughout(self.local, self.donated)

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

    def much_larger_than(self, other: Plan) -> bool:
        """Does it hold more memory than another plan may at the same step time?"""
        return self.local is not other.local and self.peak > MAX_PEAK_RATIO * other.peak

    def longer_than(self, other: Plan, most: float = 0.0) -> float:
        """How many times as long as another plan's a step takes on the hardware: the geometric mean
        of the ratios with and without overlap of exchanges. The former is not computed if the
        latter, which is the result then, is at most `most`.
        """
        if self.local is other.local:
            return 1.0
        topology = Topology.of(self.objective.hardware, self.local.mesh.shape)
        own, others = (sum(_schedule.totals(p.local, topology)) for p in (self, other))
        one_by_one = own / max(others, 1e-18)
        if one_by_one <= most:
            return one_by_one
        own, others = (_schedule.times(p.local, topology).mean for p in (self, other))
        return own / max(others, 1e-18)


class Facts(NamedTuple):
    """What decides which plans are tried. repeats: the usual plan repeats computation. large: it
    exchanges much, or in ways that XLA's may not need. grows: its blocks may be larger than XLA's.
    waits: starting the exchanges in loops takes much of its step. narrow: the program was searched
    narrowly. cuts: a slice cuts off rows of a split dimension. idle: a step takes some time, and an
    argument leaves open axes idle.
    """
    repeats: bool
    large: bool = False
    grows: bool = False
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
            return found._replace(large=True, grows=True)
        received = use.received_bytes
        total += received * use.count
        if use.kind != "all-reduce":
            moved = max(moved, received)
    held = sum([t.local_nbytes for t in (*local.in_avals, *local.out_avals)])
    grows = 0 < moved >= held
    large = grows or bool(objective.hardware.kernel) or (
        total >= MIN_BYTES_FOR_XLA_PLAN or held >= MIN_HELD_FOR_XLA_PLAN)
    return found._replace(large=large, grows=grows)


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


# -- which of two plans is better ------------------------------------------------------------------

def _much_shorter(own: Plan, other: Plan, _: Facts) -> Plan:
    """The other plan where its step is shorter by a margin, or no longer and receives fewer bytes;
    it may hold more, in proportion.
    """
    shorter = own.longer_than(other, MIN_GAIN)
    return other if (shorter > MIN_GAIN or AS_LONG * shorter >= 1 and (
        other.received < own.received)) and (
            other.peak <= MAX_PEAK_RATIO * max(1.0, shorter) * own.peak) else own


def shorter_or_lighter(own: Plan, other: Plan, grows: bool = True) -> Plan:
    """Of two plans the one with the shorter step; it may hold more memory, in proportion. The first
    also where only its exchanges, one by one, take longer, and receive fewer bytes.
    """
    if own.longer_than(other, 1.0) > 1 and (
            own.received >= other.received or own.step > AS_LONG * other.step):
        return other                    # whatever they hold, which takes as long to find as a plan
    if not grows:
        return own
    shorter = own.longer_than(other, MUCH_SHORTER)
    if shorter <= MUCH_SHORTER and own.peak * shorter <= MAX_PEAK_RATIO * other.least_peak or (
            not own.much_larger_than(other)):
        return own
    most = min(MUCH_SHORTER, MAX_PEAK_RATIO * other.peak / own.peak)
    return own if own.longer_than(other, most) <= most else other


def _within_memory(own: Plan, other: Plan, _: Facts) -> Plan:
    """The other plan where this one is much larger, else `shorter_or_lighter`."""
    return other if own.much_larger_than(other) else shorter_or_lighter(own, other)


def _no_larger(own: Plan, other: Plan, found: Facts) -> Plan:
    """`shorter_or_lighter`, if blocks may grow at all."""
    return shorter_or_lighter(own, other, found.grows)


def over_idle_axes(taken: Plan, tried: Sequence[Plan], make: Callable[[Objective], Plan],
                   found: Facts) -> Plan:
    """The plan that is taken so far, or one that splits arguments or values over axes that they
    leave idle, where its step is shorter by a tenth.

    tried: plans that do. Where one of them is hardly longer, what else may differ is tried from the
    shortest so far on, a greedy climb: both arguments and values, lighter blocks, a wide search.
    """
    best, gain = taken, NEAR
    for other in tried:
        more = _gain(taken, other)
        if more > gain:
            best, gain = other, more
    if best is taken:
        return taken
    for change in _CHANGES:
        other = make(change(best.objective, found))
        more = _gain(taken, other)
        if more > gain:
            best, gain = other, more
    return best if gain > MIN_IDLE_GAIN else taken


def _gain(own: Plan, other: Plan) -> float:
    """How many times as long as the other plan's a step takes; 0 where that holds too much memory
    for it.
    """
    gain = own.longer_than(other, MUCH_LONGER)
    return gain if other.peak <= MAX_PEAK_RATIO * max(1.0, gain) * own.peak else 0.0


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
    the objectives by which they are made, by that of the usual plan. judge: the better one of the
    plan that is taken so far and another; None for those that `over_idle_axes` judges, when all are
    made. stops: a plan that is the usual one is the last of them.
    """
    name: str
    why: str
    when: Callable[[Facts], bool]
    variants: Callable[[Objective, Facts], Sequence[Objective]]
    judge: Callable[[Plan, Plan, Facts], Plan] | None = None
    stops: bool = False


TRIALS = (
    Trial("no repeats", "computation that is repeated may need too much memory",
          lambda found: found.repeats, lambda o, _: [no_repeats(o)], _within_memory),
    Trial("lighter blocks, no repeats", "without repeats blocks may be split in other ways",
          lambda found: found.repeats, lambda o, _: with_lighter_blocks(o)[:1],
          lambda own, other, _: shorter_or_lighter(own, other)),
    Trial("as XLA", "large exchanges may be none in the plan that XLA makes",
          lambda found: found.large, lambda o, _: [as_xla(o)], _no_larger),
    Trial("lighter blocks", "with more weight on blocks, computation is seldom repeated",
          lambda found: found.large,      # with repeats the first was tried
          lambda o, found: with_lighter_blocks(o)[found.repeats:], _much_shorter, stops=True),
    Trial("carried rows", "rows that iterations keep apart are exchanged outside of the loop",
          lambda found: found.waits, lambda o, _: [o._replace(carried_rows=True)], _much_shorter),
    Trial("kept rows", "where rows that slices cut off stay as padding, the others need not move",
          lambda found: found.cuts, lambda o, _: [no_repeats(o)._replace(kept_rows=True)],
          _much_shorter),
    Trial("fewest bytes", "rows that slices cut off may also be moved to other layouts and back",
          lambda found: found.cuts and found.repeats,
          lambda o, _: [o._replace(name="bytes", tried_for=o.name)], _much_shorter),
    Trial("idle axes", "what arguments leave idle may be used for what is computed from them",
          lambda found: found.idle, lambda o, _: [o._replace(idle="arguments")]),
    Trial("idle axes of values", "likewise for what is computed, where it is between products",
          lambda found: found.idle, lambda o, _: [o._replace(idle="values")]),
    Trial("wide search", "large exchanges are worth a longer search",
          lambda found: found.large and found.narrow, lambda o, _: [o._replace(wide=True)],
          _no_larger),
    Trial("lighter blocks, wide search", "likewise, with more weight on blocks",
          lambda found: found.large and found.narrow,
          lambda o, _: with_lighter_blocks(o._replace(wide=True))[:1], _much_shorter),
)
"""In the order in which they are tried."""
