"""Warnings about equations: redundant computation, and unnecessary exchanges."""
from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...ir.facts import BITCAST, BRANCHES, TAKEN
from ...ir.ops.communication.collective_kinds import each_collective, received_bytes
from ...ir.ops.control.trips import trips
from ...ir.ops.elementwise.convert import convert_element_type_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...partitioner.cost.work import equation_flops
from ..analysis import Analysis
from ..explained_collective import ExplainedCollective
from ..words import quantity
from .layouts import idle_axes
from .waste import LEAST, Waste, base_axis, equations, programs

_NEARBY = 256         # equations, at most, searched for a gather


def _is_same(eqn: Equation) -> bool:
    """Are the results other forms of the operands?"""
    return BITCAST in eqn.op.facts or eqn.op is convert_element_type_p


def redundant(e: Analysis) -> Iterator[Waste]:
    """Equations that all devices along an axis compute alike, by line and axis."""
    p = e.partitioned
    mesh = p.mesh
    sizes = {str(axis): n for axis, n in mesh.shape.items()}
    idle = {w.text.split("`")[1] for w in idle_axes(e)}
    flops: dict[tuple, float] = {}
    example: dict[tuple, Equation] = {}
    made: dict[Atom, Equation] = {}
    for eqn, count in equations(p.local):
        made.update(dict.fromkeys(eqn.outvars, eqn))
        if eqn.op.subprograms or eqn.op.collective is not None or not eqn.op.arithmetic:
            continue
        own = equation_flops(eqn) * count
        if not own:
            continue
        varies = {base_axis(a) for v in eqn.outvars for a in (*v.aval.varying, *v.aval.unreduced)}
        for axis, n in zip(mesh.axis_names, mesh.axis_sizes, strict=True):
            if n > 1 and str(axis) not in varies and str(axis) not in idle:
                key = (eqn.location.file, eqn.location.line, str(axis))
                flops[key] = flops.get(key, 0.0) + own * (1 - 1 / n)
                if key not in example or equation_flops(example[key]) < equation_flops(eqn):
                    example[key] = eqn
    for key, lost in flops.items():
        if lost < LEAST * e.flops:
            continue
        eqn, axis = example[key], key[2]
        n = sizes[axis]
        t = eqn.outvars[0].aval
        free = [d for d, size in enumerate(t.shape) if size % n == 0 and size >= n]
        fix = f"split one of its operands over `{axis}`"
        if not free and t.ndim:
            fix += f"; no dimension of {list(t.shape)} divides by {n}: pad one to a multiple"
        elif free:
            fix += f", for example along dimension {free[0]} of the result"
        by = _gathered_by(e, eqn, axis, made)
        why = ""
        if by is not None:
            at = f" at line {by.source.line}" if by.source.line else ""
            why = f"; its operands are whole by the {by.kind}{at}, {by.verdict}"
            if by.reason_kind == "chosen":
                why = why.replace("chosen: ", "which the planner chose: ", 1)
                fix = "none is needed: the planner weighed it, and to split it saves nothing"
        yield Waste("redundant-compute", f"`{eqn.op.name}` is computed alike on all {n} devices of "
                    f"`{axis}`: {quantity(lost, 'FLOP')} a device, {lost / e.flops:.0%} of the "
                    f"program's{why}", eqn.location, 0, lost, fix=fix)


def _gathered_by(e: Analysis, eqn: Equation, axis: str, made: dict[Atom, Equation]
                 ) -> ExplainedCollective | None:
    """The equation that makes an operand whole along an axis that split it, preferably a chosen
    one; None if all inputs of the equation were whole from the start.
    """
    explained = {id(c.record.equation): c for c in e.collectives}
    found: list[ExplainedCollective] = []
    seen: set[Equation] = set()
    waiting = [made[a] for a in eqn.invars if a in made]
    while waiting and len(seen) < _NEARBY:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        c = explained.get(id(at))
        if c is None or axis not in map(base_axis, c.mesh_axes):
            waiting += [made[a] for a in at.invars if a in made]
        elif c.kind != "all-reduce":        # which leaves a value that nothing was split of
            found.append(c)
    return min(found, key=lambda c: c.reason_kind != "chosen", default=None)


def gathers(e: Analysis) -> Iterator[Waste]:
    """Gathers whose result is cut down again, and gathers that are repeated."""
    for program, count in programs(e.partitioned.local):
        readers: dict[Var, list[Equation]] = {}
        for eqn in program.eqns:
            for a in eqn.invars:
                if isinstance(a, Var):
                    readers.setdefault(a, []).append(eqn)
        results = {v for v in program.outvars if isinstance(v, Var)}
        made = {v: eqn for eqn in program.eqns for v in eqn.outvars}
        again: dict[tuple, list[Equation]] = {}
        for eqn in program.eqns:
            if not eqn.op.name.startswith("all_gather"):
                continue
            root = _root(eqn.invars[0], made)
            assert eqn.op.collective is not None
            again.setdefault((id(root), eqn.op.collective.axes(eqn.params),
                              eqn.outvars[0].aval.shape), []).append(eqn)
            yield from _sliced(eqn, readers, results, count)
        for eqns in again.values():
            if len(eqns) > 1:
                each, whole = received_bytes(eqns[0]), eqns[0].outvars[0].aval.local_nbytes
                lost = each * (len(eqns) - 1) * count
                name = _called(eqns[0])
                lines = ", ".join(dict.fromkeys(f"line {x.location.line}" for x in eqns))
                yield Waste("repeated-gather", f"`{name}` is gathered {len(eqns)} times ({lines}): "
                            f"{quantity(lost, 'B')} received more than once", eqns[-1].location,
                            lost, what="received",
                            fix="gather it once before its uses; a `checkpoint` between them makes "
                                f"it anew, to save {quantity(whole, 'B')} of memory")


def _sliced(gather: Equation, readers: dict[Var, list[Equation]], results: set[Var], count: int
            ) -> Iterator[Waste]:
    """A gather whose readers all take only a part of its result."""
    out, kept = gather.outvars[0], 0
    whole = out.aval.local_nbytes
    frontier, steps = [out], 0
    while frontier and steps < 64:
        steps += 1
        v = frontier.pop()
        if v in results or not readers.get(v):
            return
        for reader in readers[v]:
            size = sum(w.aval.local_nbytes for w in reader.outvars)
            if _is_same(reader):
                k = reader.invars.index(v) if len(reader.outvars) == len(reader.invars) else 0
                frontier.append(reader.outvars[k])
            elif TAKEN in reader.op.facts and reader.invars[0] is v and size < whole:
                kept += size
            else:
                return
    if kept > 0.75 * whole:
        return
    each = received_bytes(gather)
    lost = max(0, int(each * (1 - kept / whole))) * count
    where = next(r.location for v in [out] for r in readers[v])
    yield Waste("gather-then-slice", f"what is gathered, {quantity(whole, 'B')}, is cut down to "
                f"{quantity(kept, 'B')} by all that read it", where, lost, what="received",
                fix="slice before the dimension is gathered, or keep the dimension that is sliced "
                    "whole and split another one")


def invariant(e: Analysis) -> Iterator[Waste]:
    """Collectives in the body of a loop that depend on nothing that changes, in its branches, too:
    from one that only some devices take nothing is hoisted.
    """
    for eqn, count in equations(e.partitioned.local):
        if eqn.op.region is None or trips(eqn) < 2:
            continue
        region = eqn.op.region(eqn)
        for inner, is_sure in [found for _, _, body in region.programs
                               for found in _unchanged(body, region.invariants(body))]:
            lost = received_bytes(inner) * (trips(eqn) - 1) * count
            again = f"{quantity(lost, 'B')} received again"
            if not is_sure:
                again = f"up to {again}, as often as its branch is taken"
            yield Waste("loop-invariant", f"`{inner.op.name}` of `{_called(inner)}` is the same in "
                        f"each of the loop's {trips(eqn)} steps: {again}", inner.location, lost,
                        what="received",
                        fix="do it once before the loop, and let the body use the result")


def _unchanged(program: Program, constant: Iterable[Var]) -> Iterator[tuple[Equation, bool]]:
    """(collectives of a body that are the same in all runs if these parameters are, whether each
    run has them).
    """
    fixed: set[Var] = {*constant, *program.constvars}
    exchanged = {id(u.equation) for u in each_collective(program)}
    for eqn in program.eqns:
        known = [isinstance(a, Literal) or a in fixed for a in eqn.invars]
        if BRANCHES in eqn.op.facts:
            for _, branch in eqn.subprograms():
                operands = [v for v, is_known in zip(branch.invars, known[1:], strict=True)
                            if is_known]
                yield from ((inner, False) for inner, _ in _unchanged(branch, operands))
        if eqn.op.effect or not all(known):
            continue
        fixed.update(eqn.outvars)
        if eqn.op.collective is not None and received_bytes(eqn) and id(eqn) in exchanged:
            yield eqn, True


def _root(atom: Atom, made: dict[Var, Equation]) -> Atom:
    """The value of which this one is another form."""
    while isinstance(atom, Var) and atom in made and _is_same(made[atom]):
        eqn = made[atom]                # a barrier: the operand at its place
        atom = eqn.invars[eqn.outvars.index(atom) if len(eqn.outvars) == len(eqn.invars) else 0]
    return atom


def _called(eqn: Equation) -> str:
    """The user's name for the operand of an equation of a per-device program, or its expression."""
    operand, text = eqn.invars[0], eqn.location.text()
    if isinstance(operand, Var) and operand.name:
        return operand.name
    return text if 0 < len(text) <= 60 else f"the operand of {eqn.op.name}"
