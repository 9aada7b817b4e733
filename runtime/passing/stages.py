"""Loops in which each device passes on what it made to the next: pipelines.

In iteration t device d computes with what device d - 1 made in iteration t - 1, and with nothing
else of an earlier one. So all iterations of one device can be computed together, one device after
the other: large products instead of many small ones. And what is thrown away in the end, such as
that of devices which wait for their first input, is known before and need not be computed.

Here is found whether a loop is such, and which iterations of each device are of use.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.op import OPS
from ...ir.ops.collective import all_to_all_p, ppermute_p
from ...ir.ops.emitting import literal
from ...ir.program import Atom, Equation, Literal, Var
from ..axes import axis_names
from ..rewrites.equations import is_zeros
from ..rewrites.flatten import FlatProgram, every_equation
from ..rewrites.lean import lean_program
from .carries import DEEPEST, SAME, Added, Passed, Written, is_blank, sort_carries
from .followed import COUNTING
from .straight import Straight, straightened
from .travelling import number

if TYPE_CHECKING:
    from ..simulation.executor import Planner

Numbers = dict[Any, np.ndarray]         # known integers: [devices * iterations], or [1] for all
Needs = dict[Any, np.ndarray]           # [devices, iterations] whether a value is of use


class Stages:
    """What a loop of stages consists of.

    passed, written, added, counters, fixed: what it carries (passing/carries.py). order: the
    devices, from the first stage to the last. low: for each device its first iteration of use;
    many: how many iterations are computed of each. numbers: known integers; outside: those of the
    program around, if they are known. needs: where values are of use, sent: those that are sent.
    lifted: results of which a device has all, by number (passing/straight.py). invars: what the
    loop is given, for them.
    """

    def __init__(self, axis: str, devices: int, length: int, body: Straight,
                 invars: Sequence[Atom]) -> None:
        self.axis, self.devices, self.length = axis, devices, length
        self.flat, self.lifted = body.flat, body.lifted
        self.invars = invars
        self.order: list[int] = []
        self.passed: list[Passed] = []
        self.written: list[Written] = []
        self.added: list[Added] = []
        self.counters: list[Var] = []
        self.fixed: list[int] = []
        self.numbers: Numbers = {}
        self.outside: dict[Atom, np.ndarray | None] = {}
        self.needs: Needs = {}
        self.sent: Needs = {}
        self.results: list[np.ndarray] = []     # by result of the loop, what is of use: [devices]
        self.blank: set[int] = set()            # results that are zeros where nothing is given
        self.low = np.zeros(devices, int)
        self.many = length

    def known(self, atom: Atom) -> np.ndarray | None:
        """Of a known integer its value by device and iteration."""
        found = self.numbers.get(atom)
        if found is None and type(atom) is Literal:
            found = number(atom)
        return None if found is None else np.broadcast_to(
            found, self.devices * self.length).reshape(self.devices, self.length)


def find_stages(p: Planner, eqn: Equation) -> Stages | None:
    """The stages of a loop; None if it is no such loop, or nothing can be said before it runs."""
    params, flat = eqn.params, lean_program(eqn.params["jaxpr"])
    if p.mask is not None or params["length"] < 2:
        return None
    first = next(e for e in flat.eqns if e.op in (ppermute_p, all_to_all_p))
    names = axis_names(first.params["axis_name"])
    if len(names) != 1 or p.atoms.of_all(names) != names:
        return None
    (axis,) = names
    body = straightened(flat, params["num_consts"], params["num_carry"], axis, p.atoms.size[axis])
    flat = body.flat
    first = next((e for e in flat.eqns if e.op is ppermute_p), None)
    invars = _given(p, eqn, body, axis)
    if first is None or invars is None:
        return None
    found = Stages(axis, p.atoms.size[axis], params["length"], body, invars)
    if not (_stays_inside(flat, axis) and sort_carries(p, eqn, found)
            and len({e.params["perm"] for e in flat.eqns if e.op is ppermute_p}) == 1):
        return None
    _know_numbers(p, eqn, found)
    if not all([_is_shared(found.known(a)) for a in body.everywhere]):
        return None
    wanted = _wanted(p, eqn, found)
    if wanted is None:
        return None
    target = dict(first.params["perm"])
    needs = _use(found, wanted, target)
    order = _in_order(p, found, target, needs)
    if order is None:
        return None
    found.order = order
    _choose_iterations(found)
    return found


def _given(p: Planner, eqn: Equation, body: Straight, axis: str) -> list[Atom] | None:
    """What the loop is given, with the whole of what it carries as such; None if that is unknown.
    """
    invars, nc = [*eqn.invars], eqn.params["num_consts"]
    for i, x in body.lifted.items():
        if i >= eqn.params["num_carry"]:
            continue
        start, t = invars[nc + i], body.flat.invars[nc + i].aval
        made = p.maker(start)
        if made is not None and made.op.name == "all_slice" and (
                axis_names(made.params["axes"]) == (axis,) and made.params["dimension"] == x.part):
            invars[nc + i] = made.invars[0]
        elif is_blank(start, p.maker):
            invars[nc + i] = new = Var(t)
            p.equation(Equation(OPS["broadcast_in_dim"], (literal(0, t.dtype),), (new,), {
                "shape": t.shape, "broadcast_dimensions": (), "sharding": None}))
        else:
            return None
    return invars


def _stays_inside(flat: FlatProgram, axis: str) -> bool:
    """Does nothing go along the axis but from neighbour to neighbour?"""
    for eqn in flat.eqns:
        for inner in every_equation((eqn,)):
            if inner.op.effect:
                return False
            if inner.op.collective is not None and (inner is not eqn or eqn.op is not ppermute_p):
                names = axis_names(inner.op.collective.axes(inner.params))
            elif inner.op.name == "axis_index":
                names = axis_names(inner.params["axis_name"])
                if inner is eqn and names == (axis,):
                    continue
            else:
                continue
            if any([name.split(":")[0] == axis for name in names]):
                return False
    return True


# -- what is known ---------------------------------------------------------------------------------

def _know_numbers(p: Planner, eqn: Equation, s: Stages) -> None:
    """Enter the integers that are known for all devices and iterations."""
    params, flat, at = eqn.params, s.flat, s.numbers
    nc, nk = params["num_consts"], params["num_carry"]
    ticks = np.arange(s.length)
    for var, atom in zip(flat.invars[:nc], s.invars, strict=False):
        known = _outside(p, atom, s) if var.aval.size == 1 else None
        if known is not None:
            at[var] = known if len(known) == 1 else np.repeat(known, s.length)
    made = {v: e for e in flat.eqns for v in e.outvars}
    for i, (c, o) in enumerate(zip(flat.invars[nc:nc + nk], flat.outvars, strict=False)):
        if c in s.counters:
            start, step = s.invars[nc + i], made[o].invars[1]    # type: ignore[index]
            assert type(start) is Literal and type(step) is Literal
            at[c] = np.tile(start.val + ticks * step.val, s.devices).astype(c.aval.dtype)
    for var, atom in zip(flat.invars[nc + nk:], s.invars[nc + nk:], strict=True):
        source = p.maker(atom)
        if source is not None and source.op.name == "iota" and not var.aval.shape and (
                var.aval.dtype.kind in "iu"):
            order = ticks[::-1] if params["reverse"] else ticks
            at[var] = np.tile(order, s.devices).astype(var.aval.dtype)
    for e in flat.eqns:
        found = _evaluated(e, at, s, s.length)
        if found is not None:
            at[e.outvars[0]] = found


def _is_shared(known: np.ndarray | None) -> bool:
    """Is it a number that is known, and the same on all devices?"""
    return known is not None and bool((known == known[0]).all())


def _evaluated(e: Equation, at: Numbers, s: Stages, times: int) -> np.ndarray | None:
    (out, *more) = e.outvars or (None,)
    if out is None or more or out.aval.size != 1 or out.aval.dtype.kind not in "iub":
        return None
    if e.op.name == "axis_index":
        mine = axis_names(e.params["axis_name"]) == (s.axis,)
        return np.repeat(np.arange(s.devices).astype(out.aval.dtype), times) if mine else None
    if e.op.name not in COUNTING and e.op.name not in SAME:
        return None
    numbers = [at[a] if a in at else number(a) for a in e.invars]
    if not numbers or any([x is None for x in numbers]):
        return None
    if e.op.name in SAME:
        return numbers[0]
    evaluate: Any = e.op.evaluate
    return evaluate(1, *numbers, **e.params) if not out.aval.shape else None


def _outside(p: Planner, atom: Atom, s: Stages, depth: int = DEEPEST) -> np.ndarray | None:
    """A known integer of the program around: by device, or one for all."""
    if atom not in s.outside:
        if not depth:
            return None
        source = p.maker(atom)
        found = number(atom)
        if found is None and source is not None and (
                source.op.name in COUNTING or source.op.name in SAME
                or source.op.name == "axis_index"):
            at = {a: _outside(p, a, s, depth - 1) for a in source.invars}
            if not any([x is None for x in at.values()]):
                found = _evaluated(source, at, s, 1)        # type: ignore[arg-type]
        s.outside[atom] = found
    return s.outside[atom]


# -- what is of use --------------------------------------------------------------------------------

def _wanted(p: Planner, eqn: Equation, s: Stages) -> list[np.ndarray] | None:
    """Of each result of the loop: on which device the item of which iteration is of use."""
    nk = eqn.params["num_carry"]
    everywhere = np.ones(s.devices, bool)
    needs: dict[Any, np.ndarray] = {a: everywhere for a in p.flat.outvars}
    given = {v: i for i, v in enumerate(eqn.outvars)}
    found = [np.zeros((s.devices, s.length), bool) for _ in eqn.outvars]
    for v in given.keys() & needs.keys():
        found[given[v]][...] = True
    for e in reversed(p.flat.eqns):
        if e is eqn:
            break
        mine = [needs[v] for v in e.outvars if v in needs]
        if not mine and not e.effects:
            continue
        all_of_it = e.op.collective is not None or e.op.subprograms or e.effects
        need = everywhere if all_of_it else np.logical_or.reduce(mine)
        for a, part in zip(e.invars, _of_cases(e, need, _case(p, e, s)), strict=True):
            if type(a) is not Var:
                continue
            i = given.get(a)
            if i is None:
                needs[a] = part | needs[a] if a in needs else part
            elif i >= nk and e.op.name == "slice" and set(e.params["strides"] or ()) <= {1}:
                low, high = e.params["start_indices"][0], e.params["limit_indices"][0]
                if eqn.params["reverse"]:
                    low, high = s.length - high, s.length - low
                found[i][:, low:high] |= part[:, None]
            else:
                found[i] |= part[:, None]
    for i, x in s.lifted.items():       # on all devices there are parts of what one has
        everywhere = found[i].any(0)
        found[i][...] = False
        found[i][x.device] = everywhere
    return found


def _case(p: Planner, e: Equation, s: Stages) -> np.ndarray | None:
    """Which case of a `select_n` each device takes, if that is known."""
    if e.op.name != "select_n" or e.invars[0].aval.shape:
        return None
    known = _outside(p, e.invars[0], s)
    return None if known is None else np.broadcast_to(known, s.devices)


def _of_cases(e: Equation, need: np.ndarray, case: np.ndarray | None) -> list[np.ndarray]:
    """Where the operands of an equation are of use, if its result is where `need` says."""
    if case is None:
        return [need] * len(e.invars)
    return [need, *[need & (case.astype(int) == k) for k in range(len(e.invars) - 1)]]


def _use(s: Stages, wanted: Sequence[np.ndarray], target: Mapping[int, int]) -> Needs:
    """Enter where what iterations give is of use; where what they receive is."""
    flat = s.flat
    s.results = [np.asarray(w.any(1)) for w in wanted]
    start: Needs = {}

    def want(atom: Atom, need: np.ndarray, into: Needs) -> None:
        if type(atom) is Var:
            into[atom] = into[atom] | need if atom in into else need

    made: dict[Any, Equation] = {v: e for e in flat.eqns for v in e.outvars}
    for w in s.written:
        zero = _zero(s, w.part, made) if w.blank else None
        if zero is not None and zero.all(1).any():
            s.blank.add(w.carry)
            s.results[w.carry] = s.results[w.carry] & ~zero.all(1)
        need = np.broadcast_to(s.results[w.carry][:, None], (s.devices, s.length))
        want(w.part, need & _lasting(s, w), start)
    for a in s.added:
        want(a.term, np.broadcast_to(s.results[a.carry][:, None], (s.devices, s.length)), start)
    carried = {w.carry for w in s.written} | {a.carry for a in s.added}
    for i, (o, need) in enumerate(zip(flat.outvars, wanted, strict=True)):
        if i not in carried and need.any():
            zero = _zero(s, o, made)
            if zero is not None and zero.any():
                s.blank.add(i)
                need = need & ~zero
            want(o, need, start)
    cases = {id(e): s.known(e.invars[0]) for e in flat.eqns
             if e.op.name == "select_n" and not e.invars[0].aval.shape}
    eqns = [e for e in reversed(flat.eqns) if e.op is not ppermute_p
            and not all([v in s.numbers for v in e.outvars])]
    sent: Needs = {}
    while True:
        needs = dict(start)
        for v, need in sent.items():
            want(v, need, needs)
        for e in eqns:
            mine = [needs[v] for v in e.outvars if v in needs]
            if mine:
                need = mine[0] if len(mine) == 1 else np.logical_or.reduce(mine)
                for a, part in zip(e.invars, _of_cases(e, need, cases.get(id(e))), strict=True):
                    want(a, part, needs)
        new: Needs = {}
        for x in s.passed:
            if x.received in needs:
                need = np.zeros((s.devices, s.length), bool)
                for source, to in target.items():
                    need[source, :-1] = needs[x.received][to, 1:]
                want(x.sent, need, new)
        if new.keys() == sent.keys() and all([(new[v] == sent[v]).all() for v in new]):
            break
        sent = new
    s.needs = needs
    s.sent = sent
    return needs


def _lasting(s: Stages, w: Written) -> np.ndarray:
    """On which device in which iteration something is written that is not written over later."""
    which = None if w.which is None else s.known(w.which)
    writes = np.ones((s.devices, s.length), bool) if which is None else which.astype(int) == w.case
    starts = [s.known(a) for a in w.starts if a is not None]
    known = [x for x in starts if x is not None]
    if len(known) < len(starts) or w.which is not None and which is None:
        return writes
    room = [n - m for n, m, a in zip(s.flat.outvars[w.carry].aval.shape, w.sizes, w.starts,
                                     strict=True) if a is not None]
    inside = [np.minimum(np.maximum(x, 0), n) for x, n in zip(known, room, strict=True)]
    if w.drops:
        writes = np.logical_and.reduce([writes, *[
            x == y for x, y in zip(known, inside, strict=True)]])
    for d in range(s.devices):
        seen: set[tuple] = set()
        for t in range(s.length - 1, -1, -1):
            place = tuple([int(x[d, t]) for x in inside])
            if writes[d, t] and place in seen:
                writes[d, t] = False
            elif writes[d, t]:
                seen.add(place)
    return writes


def _in_order(p: Planner, s: Stages, target: Mapping[int, int], needs: Needs
              ) -> list[int] | None:
    """The devices from the first stage to the last; None if they are no line."""
    first = set(range(s.devices)).difference(target.values())
    made: dict[Any, Equation] = {v: e for e in s.flat.eqns for v in e.outvars}

    def sends_zeros(x: Passed, device: int) -> bool:
        zero = _zero(s, x.sent, made)
        return zero is not None and bool(zero[device].all())

    if len(target) == s.devices:
        source = {to: d for d, to in target.items()}
        first = {d for d in range(s.devices) if all([
            x.received not in needs or not needs[x.received][d, 1:].any()
            or sends_zeros(x, source[d]) for x in s.passed])}
    if not first:
        return None
    order = [min(first)]
    while len(order) < s.devices:
        if order[-1] not in target or target[order[-1]] in order:
            return None
        order.append(target[order[-1]])
    return order


def _zero(s: Stages, atom: Atom, made: Mapping[Any, Equation]) -> np.ndarray | None:
    """On which device in which iteration a value is chosen to be zeros; None if that is not known.
    """
    choice = made.get(atom)
    if choice is None or choice.op.name != "select_n" or choice.invars[0].aval.shape:
        return None
    known = s.known(choice.invars[0])
    if known is None:
        return None
    found = np.zeros((s.devices, s.length), bool)
    for k, case in enumerate(choice.invars[1:]):
        if is_zeros(case, made.get):                                # type: ignore[arg-type]
            found |= known.astype(int) == k
    return found


def _choose_iterations(s: Stages) -> None:
    """Enter which iterations of each device are computed: those of use, if each device has as many,
    one later than the device before it."""
    given = [*[w.part for w in s.written], *[a.term for a in s.added], *s.sent,
             *[o for o in s.flat.outvars if o in s.needs]]
    use = np.zeros((s.devices, s.length), bool)
    for v in given:
        if v in s.needs:
            use |= s.needs[v]
    low = use.argmax(1)
    many = s.length - use[:, ::-1].argmax(1) - low
    along = low[s.order]
    if use.any(1).all() and (many == many[0]).all() and many[0] > 1 and (
            along == along[0] + np.arange(s.devices)).all():
        s.low, s.many = low, int(many[0])
