"""Pipelines that are written out, rolled up: what is done between exchanges with neighbours, each
time the same, becomes the body of a loop (which passing/stages.py executes stage by stage).

The exchanges follow one another. What is sent in one is computed from what was received in the one
before, from what all have, and from what each has of its own, which the loop iterates over.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.op import OPS
from ...ir.ops.collective import ppermute_p
from ...ir.ops.control import scan_p
from ...ir.ops.select import select_n_p
from ...ir.program import Atom, Equation, Level, Literal, Program, Var, params_equal
from ..rewrites.equations import is_blank, of_shape
from ..rewrites.flatten import FlatProgram, needed

FEWEST = 4              # exchanges that are worth a loop


def roll_up(flat: FlatProgram) -> None:
    """Let a loop do what the program does again and again between exchanges with neighbours."""
    permutes = [e for e in flat.eqns if e.op is ppermute_p]
    if len(permutes) < FEWEST:
        return
    first = permutes[0]
    t, perm = first.outvars[0].aval, first.params["perm"]
    if any([e.params["perm"] != perm or e.outvars[0].aval is not t
            or e.params["axis_name"] != first.params["axis_name"] for e in permutes]) or any(
            [e.effects for e in flat.eqns]):
        return
    eqns = _rolled(flat, permutes)
    if eqns is not None:
        flat.keep_exchanges()
        flat.rewrite(needed(eqns, flat.outvars))


def _rolled(flat: FlatProgram, permutes: Sequence[Equation]) -> list[Equation] | None:
    depth, same = _depths(flat, permutes)
    if any([depth[e.outvars[0]] != i + 1 for i, e in enumerate(permutes)]):
        return None
    made = {v: e for e in flat.eqns for v in e.outvars}
    sent = [e.invars[0] for e in permutes]
    model = _model(sent[1], permutes[0].outvars[0], made, depth)
    if not any([e.op is select_n_p and permutes[0].outvars[0] in e.invars for e in model]):
        return None             # no device takes anything else: no stages
    segments: list[dict[Atom, Atom]] = []
    for i, x in enumerate(sent):
        found = _matched(model, sent[1], x, made, depth, i, same)
        if found is None:
            return None
        segments.append(found)
    last = len(sent)
    maker = made.get(sent[1])           # type: ignore[call-overload]
    if maker is None:
        return None
    which = maker.outvars.index(sent[1])        # type: ignore[arg-type]
    for e in flat.eqns:                 # what would have been sent next
        if e.op is maker.op and len(e.outvars) == len(maker.outvars) and (
                depth[e.outvars[which]] == last):
            found = _matched(model, sent[1], e.outvars[which], made, depth, last, same)
            if found is not None and permutes[0].outvars[0] in found:
                segments.append(found)
                break
    received = permutes[0].outvars[0]
    for i, s in enumerate(segments):
        if received not in s or i and s[received] is not permutes[i - 1].outvars[0]:
            return None
    start = segments[0][received]
    if not is_blank(start, made.get):   # type: ignore[arg-type]
        return None
    return _written(flat, model, segments, received, start, permutes[1])


def _depths(flat: FlatProgram, permutes: Sequence[Equation]
            ) -> tuple[dict[Atom, int], dict[Atom, Atom]]:
    """How many exchanges a value has behind it; and for values that have none, which other value
    is the same."""
    depth: dict[Atom, int] = {}
    same: dict[Atom, Atom] = {}
    known: dict[Any, Equation] = {}
    for e in flat.eqns:
        n = max([depth.get(a, 0) for a in e.invars], default=0) + (e.op is ppermute_p)
        for v in e.outvars:
            depth[v] = n
        if not n and len(e.outvars) == 1 and not e.op.subprograms:
            key = e.op, _use(e), tuple([
                _number(a) if type(a) is Literal else same.get(a, a) for a in e.invars])
            other = known.setdefault(key, e)
            if other is not e:
                same[e.outvars[0]] = other.outvars[0]
    return depth, same


def _use(e: Equation) -> int:
    """The same for equations with the same params."""
    try:
        return id(e.use)
    except TypeError:
        return id(e)


def _same_params(a: Equation, b: Equation) -> bool:
    return _use(a) == _use(b) or bool(a.op.subprograms) and params_equal(a.params, b.params)


def _number(x: Literal) -> tuple:
    return x.aval, np.asarray(x.val).tobytes()


def _model(root: Atom, received: Atom, made: Mapping[Any, Equation], depth: Mapping[Atom, int]
           ) -> list[Equation]:
    """The equations by which the first value received becomes what is sent next, in order."""
    found: dict[int, Equation] = {}
    left = [root]
    while left:
        a = left.pop()
        e = made.get(a)
        if a is received or e is None or depth.get(a) != 1 or id(e) in found:
            continue
        found[id(e)] = e
        left.extend(e.invars)
    order = {id(e): i for i, e in enumerate(made.values())}
    return sorted(found.values(), key=lambda e: order[id(e)])


def _matched(model: Sequence[Equation], root: Atom, other: Atom, made: Mapping[Any, Equation],
             depth: Mapping[Atom, int], level: int, same: Mapping[Atom, Atom]
             ) -> dict[Atom, Atom] | None:
    """For each value of the model what stands in its place where `other` is computed; None if that
    is computed otherwise."""
    at: dict[Atom, Atom] = {root: other}
    for e in reversed(model):
        mine = made.get(at[next(v for v in e.outvars if v in at)])
        if (mine is None or mine.op is not e.op or not _same_params(e, mine)
                or len(mine.invars) != len(e.invars)
                or any([at.setdefault(v, x) is not x
                        for v, x in zip(e.outvars, mine.outvars, strict=True)])):
            return None
        for a, b in zip(e.invars, mine.invars, strict=True):
            if type(a) is Literal or type(b) is Literal:
                if type(a) is not Literal or type(b) is not Literal or _number(a) != _number(b):
                    return None
                continue
            b = same.get(b, b)
            if (a.aval.shape != b.aval.shape or a.aval.dtype != b.aval.dtype
                    or at.setdefault(a, b) is not b):
                return None
    inner = {v for e in model for v in e.outvars}
    for a, b in at.items():             # what is neither computed here nor received was before
        if a not in inner and depth.get(a) == 0 and depth.get(b, 0):
            return None
    return at if all([depth.get(at[a], 0) <= level for a in at]) else None


def _written(flat: FlatProgram, model: Sequence[Equation], segments: Sequence[Mapping[Atom, Atom]],
             received: Var, start: Atom, permute: Equation) -> list[Equation] | None:
    """The program with a loop in place of the segments."""
    inner = {v for e in model for v in e.outvars}
    place: dict[Atom, tuple[Atom, int]] = {}        # of a value: that of the model, and the segment
    for i, s in enumerate(segments):
        for a in inner:
            if place.setdefault(s[a], (a, i)) != (a, i):
                return None
    gone = {id(e) for e in flat.eqns if place.keys() >= set(e.outvars) and e.outvars
            or e.op is ppermute_p}
    rest = [e for e in flat.eqns if id(e) not in gone]
    read = set(flat.outvars).union(*[e.invars for e in rest])
    if not read.isdisjoint([e.outvars[0] for e in flat.eqns if e.op is ppermute_p]):
        return None
    before, after, late = [], [], set(place)
    for e in rest:
        if late.isdisjoint(e.invars):
            before.append(e)
        else:
            after.append(e)
            late.update(e.outvars)
    outer = list(dict.fromkeys([a for e in model for a in e.invars
                                if type(a) is Var and a not in inner and a is not received]))
    each = {a: [s[a] for s in segments] for a in outer}
    consts = [a for a in outer if len(set(each[a])) == 1]
    items = [a for a in outer if len(set(each[a])) > 1]
    if not late.isdisjoint([start, *[x for a in outer for x in each[a]]]):
        return None
    wanted = list(dict.fromkeys([place[a][0] for a in read if a in place]))
    n = len(segments)
    eqns = before
    stacks: list[Atom] = []
    for a in items:
        stacks.append(_emit(eqns, "stack", each[a], {"axis": 0}, _rows(a, n), permute))
    carried = Var(received.aval)
    inside: dict[Atom, Var] = {a: Var(a.aval) for a in (*consts, received, *items)}
    body = Program("segment", list(inside.values()), [
        e.on([inside.get(a, a) for a in e.invars], e.outvars)
        for e in (*model, permute.on(permute.invars, (carried,)))],
        [carried, *wanted], mesh=flat.program.mesh, level=Level.LOCAL)     # type: ignore[list-item]
    ys = [Var(_rows(a, n)) for a in wanted]
    eqns.append(Equation(scan_p, [*[each[a][0] for a in consts], start, *stacks],
                         [Var(received.aval), *ys], {
        "jaxpr": body, "length": n, "reverse": False, "num_consts": len(consts), "num_carry": 1},
        permute.location, permute.reason))
    rows = dict(zip(wanted, ys, strict=True))
    for e in after:
        eqns.append(_of_rows(e, place, rows) or e)
    return _with_rows(eqns, flat.outvars, place, rows, permute)


def _rows(a: Atom, n: int) -> Any:
    return of_shape(a.aval, (n, *a.aval.shape))


def _emit(eqns: list[Equation], op: str, invars: Sequence[Atom], params: dict[str, Any], t: Any,
          model: Equation) -> Var:
    var = Var(t)
    eqns.append(Equation(OPS[op], invars, (var,), params, model.location, model.reason))
    return var


def _of_rows(e: Equation, place: Mapping[Atom, tuple[Atom, int]], rows: Mapping[Atom, Var]
             ) -> Equation | None:
    """The equation as a slice of what the loop gives, if it puts that together."""
    if e.op.name != "stack" or e.params["axis"] or not all([a in place for a in e.invars]):
        return None
    (a, low) = place[e.invars[0]]
    if [place[x] for x in e.invars] != [(a, low + k) for k in range(len(e.invars))]:
        return None
    return _part(rows[a], low, len(e.invars), e.outvars[0], e)


def _part(x: Var, low: int, count: int, out: Var, model: Equation) -> Equation:
    shape = x.aval.shape
    return Equation(OPS["slice"], (x,), (out,), {
        "start_indices": (low, *[0] * (len(shape) - 1)),
        "limit_indices": (low + count, *shape[1:]), "strides": None}, model.location)


def _with_rows(eqns: Sequence[Equation], outvars: Sequence[Atom],
               place: Mapping[Atom, tuple[Atom, int]], rows: Mapping[Atom, Var], model: Equation
               ) -> list[Equation]:
    """The equations, with others before them that give the rows that they read."""
    found: list[Equation] = []
    there: set[Atom] = set()

    def take(atoms: Iterable[Any]) -> None:
        for a in atoms:
            if a in place and a not in there:
                there.add(a)
                of, i = place[a]
                t = of_shape(a.aval, (1, *a.aval.shape))
                row = Var(t)
                found.append(_part(rows[of], i, 1, row, model))
                found.append(Equation(OPS["squeeze"], (row,), (a,), {"dimensions": (0,)},
                                      model.location))

    for e in eqns:
        take(e.invars)
        found.append(e)
    take(outvars)
    return found
