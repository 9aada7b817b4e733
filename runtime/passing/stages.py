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

from ...ir.ops.collective import all_to_all_p, ppermute_p
from ...ir.ops.emitting import literal
from ...ir.program import Atom, Equation, Literal, Var
from ..axes import axis_names
from ..rewrites.equations import is_blank, repeating
from ..rewrites.flatten import FlatProgram, every_equation
from ..rewrites.lean import lean_program
from .carries import Added, Passed, Written, sort_carries
from .numbers import Numbers, is_shared, know_numbers
from .straight import Straight, straightened
from .travelling import number
from .used import Needs, uses, wanted_of, zero_of

if TYPE_CHECKING:
    from ..simulation.executor import Planner


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
    op = ppermute_p if ppermute_p in flat.ops else all_to_all_p
    first = next(e for e in flat.eqns if e.op is op)
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
            and {(axis_names(e.params["axis_name"]), e.params["perm"]) for e in flat.eqns
                 if e.op is ppermute_p} == {(names, first.params["perm"])}):
        return None
    know_numbers(p, eqn, found)
    if not all([is_shared(found.known(a)) for a in body.everywhere]):
        return None
    wanted = wanted_of(p, eqn, found)
    if wanted is None:
        return None
    target = dict(first.params["perm"])
    needs = uses(found, wanted, target)
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
            p.equation(repeating(literal(0, t.dtype), new))
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


def _in_order(p: Planner, s: Stages, target: Mapping[int, int], needs: Needs
              ) -> list[int] | None:
    """The devices from the first stage to the last; None if they are no line."""
    first = set(range(s.devices)).difference(target.values())
    made: dict[Any, Equation] = {v: e for e in s.flat.eqns for v in e.outvars}

    def sends_zeros(x: Passed, device: int) -> bool:
        zero = zero_of(s, x.sent, made)
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
