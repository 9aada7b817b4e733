"""What of a loop of stages (passing/stages.py) is of use, on which device in which iteration."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.ops.collective import ppermute_p
from ...ir.program import Atom, Equation, Var
from ..rewrites.equations import is_zeros
from .carries import Written
from .numbers import outside

if TYPE_CHECKING:
    from ..simulation.executor import Planner
    from .stages import Stages

Needs = dict[Any, np.ndarray]           # [devices, iterations] whether a value is of use


def wanted_of(p: Planner, eqn: Equation, s: Stages) -> list[np.ndarray] | None:
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
    known = outside(p, e.invars[0], s)
    return None if known is None else np.broadcast_to(known, s.devices)


def _of_cases(e: Equation, need: np.ndarray, case: np.ndarray | None) -> list[np.ndarray]:
    """Where the operands of an equation are of use, if its result is where `need` says."""
    if case is None:
        return [need] * len(e.invars)
    return [need, *[need & (case.astype(int) == k) for k in range(len(e.invars) - 1)]]


def uses(s: Stages, wanted: Sequence[np.ndarray], target: Mapping[int, int]) -> Needs:
    """Enter where what iterations give is of use; where what they receive is."""
    flat = s.flat
    s.results = [np.asarray(w.any(1)) for w in wanted]
    start: Needs = {}

    def want(atom: Atom, need: np.ndarray, into: Needs) -> None:
        if type(atom) is Var:
            into[atom] = into[atom] | need if atom in into else need

    made: dict[Any, Equation] = {v: e for e in flat.eqns for v in e.outvars}
    for w in s.written:
        lasting = _lasting(s, w)
        zero = zero_of(s, w.part, made)
        idle = ~(lasting if zero is None else lasting & ~zero).any(1)
        if w.blank and idle.any():
            s.blank.add(w.carry)
            s.results[w.carry] = s.results[w.carry] & ~idle
        need = np.broadcast_to(s.results[w.carry][:, None], (s.devices, s.length))
        want(w.part, need & lasting, start)
    for a in s.added:
        want(a.term, np.broadcast_to(s.results[a.carry][:, None], (s.devices, s.length)), start)
    carried = {w.carry for w in s.written} | {a.carry for a in s.added}
    for i, (o, need) in enumerate(zip(flat.outvars, wanted, strict=True)):
        if i not in carried and need.any():
            zero = zero_of(s, o, made)
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


def zero_of(s: Stages, atom: Atom, made: Mapping[Any, Equation]) -> np.ndarray | None:
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
