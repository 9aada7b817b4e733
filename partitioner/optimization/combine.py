"""Combines small, independent exchanges of one kind into one variadic exchange.

The number of bytes stays the same; the saving is the start-up time of an exchange. The combined
exchange lists the lines and reasons of all its members. What waits for the first of them now waits
for the last, so only small exchanges are combined; sums also where they are large, or of XLA's plan
as XLA would combine them, if the modelled step is shorter. Large gathers never are, since all that
they gather would be held at once. (This is a pass rather than a rewrite because independence is a
property of the whole program.)
"""
from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice

from ...ir.op import params_key
from ...ir.ops.communication.collective import SCATTERS
from ...ir.ops.communication.variadic import EACH, MEMBERS, VARIADIC, combined
from ...ir.ops.movement.shape import transpose_p
from ...ir.program import Atom, Equation, Program
from ...ir.support.lazy import lazy_import
from ..cost.kinds import is_product
from ..cost.prices import Prices
from ..reasons import reason_of_group
from .sum_forms import in_cheapest_forms

_schedule = lazy_import("..cost.schedule", __package__)

COMBINED = frozenset([op.name for op in VARIADIC])
"""Ops of which several become one."""

_MOST = 64
WINDOW = 500
"""Equations over which exchanges are combined: what reads the first waits for the last."""


_SUMS = {op: whole for whole, part in SCATTERS.items() for op in (whole, part)}


def combine(program: Program, prices: Prices, other_forms: bool = False, as_xla: bool = False
            ) -> Program:
    """A LOCAL program (without nested ones) with small independent exchanges combined.

    other_forms: let sums take other forms if more can be combined then. as_xla: the plan is XLA's,
    judged by time.
    """
    if VARIADIC.keys().isdisjoint(program.ops):
        return program

    def small_groups(program: Program) -> tuple[dict[Equation, tuple], dict[Equation, _Group]]:
        keys = _keys(program, prices)
        groups = _groups(program, keys)
        return keys, _sums_as_xla(program, keys, groups) if as_xla else groups

    combinable = small_groups(program)
    if other_forms:
        program, combinable = in_cheapest_forms(program, prices, combinable, small_groups)
    keys, groups = combinable
    found, topology = _combined(program, groups), prices.topology
    if topology is None:
        return found
    every = [found, *[_combined(program, other) for other in (
        _cut(groups, prices), _with_large_sums(program, keys, groups),
        _by_level(program, keys, groups) if as_xla else groups) if other is not groups]]
    last = every[-1]            # most often the best, and then its kernels are not found again
    return min(every, key=lambda one: _schedule.mean_beside(one, last, topology)) if (
        last is not found) else found


def combine_as_xla(program: Program) -> Program:
    """Combine as XLA's compiler for CPUs does: all-reduces alone, of any size and however far
    apart. Those whose result is cut at once, reduce-scatters here, are among them.
    """
    keys: dict[Equation, tuple] = {}
    for eqn in program.eqns:
        collective = eqn.op.collective
        if eqn.op in _SUMS and collective is not None:
            (x,) = eqn.invars
            keys[eqn] = (_SUMS[eqn.op], tuple(collective.axes(eqn.params)), x.aval.dtype,
                         x.aval.memory_space)
    return _combined(program, _groups_in_order(program, keys))


def _combined(program: Program, groups: dict[Equation, _Group]) -> Program:
    return _Combining(program, groups).run() if groups else program


def _keys(program: Program, prices: Prices) -> dict[Equation, tuple]:
    """For each exchange that is small enough, what others must share with it to be combined."""
    return {eqn: _key(eqn) for eqn in program.eqns if eqn.op in VARIADIC
            and 0 < eqn.invars[0].aval.local_nbytes <= prices.exchange_of(eqn).combine_limit}


def _key(eqn: Equation) -> tuple:
    """What exchanges must have in common to be combined."""
    op, aval = eqn.op, eqn.invars[0].aval
    assert op.collective is not None
    common = {k: v for k, v in eqn.params.items() if k not in EACH}
    return op, params_key(common), aval.dtype if op.collective.reduces else None, aval.memory_space


def _groups(program: Program, keys: Mapping[Equation, tuple]) -> dict[Equation, _Group]:
    """The group of each exchange that has company.

    Members of a group are equally many small exchanges away from the results, so that none waits
    for another; those that no other exchange waits for come last, together. Those that wait for no
    exchange themselves, such as gathers of parameters, may join an earlier group. Members are not
    far apart, and no effect on the host lies between them.
    """
    if len({*keys.values()}) == len(keys):
        return {}
    height: dict[Atom, int] = {}
    open_: dict[tuple, _Group] = {}
    made: dict[tuple, list[_Group]] = {}            # by key, the last group first
    found: dict[Equation, _Group] = {}
    seen = {op for op in program.ops if op.effect or op.subprograms}
    waiting = _waiting(program, keys)
    region = 0
    for k, eqn in enumerate(reversed(program.eqns)):
        if eqn.op in seen and eqn.effects:
            open_.clear()
            region += 1
        level = 0
        for v in eqn.outvars:
            if v in height and height[v] > level:
                level = height[v]
        key = keys.get(eqn)
        if key is not None:
            group = open_.get((key, level))
            if group is None or k - group.first > WINDOW or group.size == _MOST:
                group = open_[key, level] = _Group(k, level)
                made.setdefault((key, region), []).append(group)
            group.size += 1
            group.waits = group.waits or eqn.invars[0] in waiting
            found[eqn] = group
            level += 1
        if level:
            for a in eqn.invars:
                if height.get(a, 0) < level:
                    height[a] = level
    merged_into = _with_earlier_ones(made.values())
    found = {eqn: merged_into.get(group, group) for eqn, group in found.items()}
    return {eqn: group for eqn, group in found.items() if group.size > 1}


def _cut(groups: dict[Equation, _Group], prices: Prices) -> dict[Equation, _Group]:
    """The groups cut, in program order, where their bytes exceed the limit of one exchange; the
    same if none does.
    """
    found: dict[Equation, _Group] = {}
    parts: dict[_Group, tuple[_Group, float]] = {}      # the last part of each, and what it takes
    for eqn, group in reversed(groups.items()):
        nbytes, limit = eqn.invars[0].aval.local_nbytes, prices.exchange_of(eqn).combine_limit
        part, left = parts.get(group) or (_Group(0), limit)
        if nbytes > left:
            part, left = _Group(0), limit
        part.size += 1
        found[eqn] = part
        parts[group] = part, left - nbytes
    if len({*found.values()}) == len(parts):
        return groups
    return {eqn: part for eqn, part in found.items() if part.size > 1}


def _with_large_sums(program: Program, keys: Mapping[Equation, tuple],
                     groups: dict[Equation, _Group]) -> dict[Equation, _Group]:
    """The groups if sums of any size may be combined; the same if no large one has company."""
    large = {eqn: _key(eqn) for eqn in program.eqns if eqn.op in SCATTERS and eqn not in keys}
    found = _groups(program, {**keys, **large}) if large else groups
    return groups if found.keys().isdisjoint(large) else found


def _sums_as_xla(program: Program, keys: Mapping[Equation, tuple],
                 groups: dict[Equation, _Group]) -> dict[Equation, _Group]:
    """The groups of small sums in XLA's order; the same if these save as many exchanges."""
    sums = {eqn: key for eqn, key in keys.items() if eqn.op in SCATTERS}
    if _saved(groups) >= _saved(sums):
        return groups
    found = _groups_in_order(program, sums)
    return found if _saved(found) > _saved(groups) else groups


def _by_level(program: Program, keys: Mapping[Equation, tuple],
              groups: dict[Equation, _Group]) -> dict[Equation, _Group]:
    """The groups of `_groups`; the given ones if these save no more exchanges, and so are the same.
    """
    found = _groups(program, keys)
    return groups if _saved(found) == _saved(groups) else found


def _saved(groups: Mapping[Equation, object]) -> int:
    """How many exchanges there are less if those of a group become one."""
    return len(groups) - len({*groups.values()})


def _waiting(program: Program, keys: Mapping[Equation, tuple]) -> set[Atom]:
    """The values that depend on one of these exchanges."""
    found: set[Atom] = set()
    for eqn in program.eqns:
        if eqn in keys or (found and not found.isdisjoint(eqn.invars)):
            found.update(eqn.outvars)
    return found


def _with_earlier_ones(made: Iterable[list[_Group]]) -> dict[_Group, _Group]:
    """For groups that wait for no exchange, the earlier groups that they join."""
    merged_into: dict[_Group, _Group] = {}
    for groups in made:
        for i, group in enumerate(groups):
            if group.waits:
                continue
            for other in islice(groups, i + 1, None):
                if other.first - group.first > WINDOW or other.size + group.size > _MOST:
                    break
                if other.level > group.level:
                    other.size += group.size
                    other.first = group.first
                    merged_into[group] = other
                    break
    for group in reversed(merged_into):                  # those of the last ones are known
        merged_into[group] = merged_into.get(merged_into[group], merged_into[group])
    return merged_into


def _groups_in_order(program: Program, keys: Mapping[Equation, tuple]) -> dict[Equation, _Group]:
    """The groups of XLA: each exchange with the next ones of its key, up to one that depends on
    them. Exchanges come in the order in which the results need them, anew when some are combined.
    Fusion takes what is computed last first, and puts what that reads after the other operands.
    """
    if len({*keys.values()}) == len(keys):
        return {}
    roots, below = _needs(program, keys)
    leader: dict[Equation, Equation] = {}           # of a group, for each other member
    groups: dict[Equation, _Group] = {}
    order, at = _operands_first(roots, below, leader), 0
    left = {*order}
    while left:
        while order[at] not in left:
            at += 1
        first = order[at]
        members, before = [first], {first}          # before: what depends on them, too
        for eqn in order[at + 1:]:
            if not before.isdisjoint([leader.get(e, e) for e in below[eqn]]):
                before.add(eqn)
            if eqn in left and keys[eqn] == keys[first]:
                if eqn in before or len(members) == _MOST:
                    break
                members.append(eqn)
                before.add(eqn)
        left.difference_update(members)
        if len(members) > 1:
            group = _Group(0)
            whole = [eqn for eqn in members if eqn.op in SCATTERS]
            group.size = len(whole)
            groups.update(dict.fromkeys(whole if len(whole) > 1 else (), group))
            leader.update(dict.fromkeys(members[1:], first))
            below[first] = tuple(dict.fromkeys([e for eqn in members for e in below[eqn]]))
            order, at = _operands_first(roots, below, leader), 0
    return groups


def _needs(program: Program, exchanges: Container[Equation]
           ) -> tuple[list[Equation], dict[Equation, Sequence[Equation]]]:
    """The exchanges that results come from, and those that each exchange comes from: without what
    comes before one that is ahead of it, so that these are few also after a long sum of sums.
    """
    reads: dict[Atom, list[Equation]] = {}          # the exchanges that a value comes from
    below: dict[Equation, Sequence[Equation]] = {}
    reached: dict[Equation, int] = {}               # an exchange and all below it, a bit for each

    def nearest(atoms: Iterable[Atom]) -> list[Equation]:
        found, known = [], 0
        for eqn in [eqn for a in atoms for eqn in reads.get(a, ())]:
            if reached[eqn] & ~known:
                found.append(eqn)
                known |= reached[eqn]
        return found

    fused: dict[Atom, int] = {}         # what is fused with its readers: minus its place
    for k, eqn in enumerate(program.eqns):
        found = nearest(sorted(eqn.invars, key=lambda a: fused.get(a, -len(program.eqns))))
        if eqn in exchanges:
            below[eqn] = found
            reached[eqn] = 1 << len(reached)
            for other in found:
                reached[eqn] |= reached[other]
            found = [eqn]
        elif not is_product(eqn) and eqn.op is not transpose_p and not eqn.op.subprograms:
            fused.update(dict.fromkeys(eqn.outvars, -k))
        if found:
            reads.update(dict.fromkeys(eqn.outvars, found))
    return nearest(program.outvars), below


def _operands_first(roots: Iterable[Equation], below: Mapping[Equation, Sequence[Equation]],
                    leader: Mapping[Equation, Equation]) -> list[Equation]:
    """Exchanges, each after those below it. leader: of a group, for each other member."""
    found: dict[Equation, None] = {}
    stack = [*reversed([leader.get(e, e) for e in roots])]
    while stack:
        eqn = stack[-1]
        missing = [e for e in [leader.get(e, e) for e in below[eqn]] if e not in found]
        if missing and eqn not in found:
            stack += reversed(missing)
        else:
            found[stack.pop()] = None
    return [*found]


class _Group:
    """Exchanges that become one.

    first: the number of its last equation, counted from the end. level: how many exchanges away
    from the results it is. size: number of members. waits: whether a member waits for another
    exchange. members: those whose operands are available.
    """

    def __init__(self, first: int, level: int = 0) -> None:
        self.first = first
        self.level = level
        self.size = 0
        self.waits = False
        self.members: list[Equation] = []


class _Combining:
    """Writes the program with each group as one exchange, after the last of its members."""
    def __init__(self, program: Program, groups: dict[Equation, _Group]) -> None:
        self.program = program
        self.groups = groups
        self.eqns: list[Equation] = []
        self.missing: set[Atom] = set()        # values that wait for a group to complete
        self.postponed: list[Equation] = []    # equations that read them
        self.combined: dict[Equation, tuple[Equation, ...]] = {}

    def run(self) -> Program:
        """Each equation stands where it stood, unless it reads a result of a group that is not
        complete yet; it then comes right after the group.
        """
        groups, missing, eqns = self.groups, self.missing, self.eqns
        for eqn in self.program.eqns:
            if eqn not in groups and (not missing or missing.isdisjoint(eqn.invars)):
                eqns.append(eqn)
                continue
            complete = self.add(eqn)
            while complete:
                again, self.postponed, complete = self.postponed, [], False
                for waiting in again:
                    self.missing.difference_update(waiting.outvars)
                for waiting in again:
                    complete |= self.add(waiting)
        assert not self.postponed, "every group is complete at the end"
        program = self.program.replace(eqns=self.eqns)
        program.attributes[MEMBERS] = self.combined
        return program

    def add(self, eqn: Equation) -> bool:
        """Write an equation down if its operands are there; whether this completes a group."""
        group = self.groups.get(eqn)
        if self.missing and not self.missing.isdisjoint(eqn.invars):
            self.postponed.append(eqn)
            self.missing.update(eqn.outvars)
            return False
        if group is None:
            self.eqns.append(eqn)
            return False
        group.members.append(eqn)
        if len(group.members) < group.size:
            self.missing.update(eqn.outvars)
            return False
        for member in group.members:
            self.missing.difference_update(member.outvars)
        eqn = combined(group.members, reason_of_group(group.members))
        self.combined[eqn] = tuple(group.members)
        self.eqns.append(eqn)
        return True
