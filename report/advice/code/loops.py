"""Rewrites of the user's code that exchange once behind a loop instead of in each of its steps.

    NAME                  instead of                              written
    sum behind            a psum or pmean in each step of a scan  one after the scan
    stack behind          a psum, pmean, pmax or pmin of what     one of the stacked results
                          each step of a scan stacks
    write behind          a psum or pmean of what each step of a  one of the whole of that
                          scan writes into zeros that it carries
    loop ahead            computing in each step of a scan what   a loop of its own before it, whose
                          does not depend on the carry            exchanges are made after that loop
    product ahead         a product of each item of a scan with   one product of all items, before
                          a loop invariant                        the scan
    at once               a scan that carries nothing             its body, mapped over all items
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ....ir.builder import ProgramBuilder
from ....ir.dtypes import issubdtype
from ....ir.facts import VIEW
from ....ir.op import OPS
from ....ir.ops.control.loop_operands import scan_operands
from ....ir.program import Atom, Equation, Literal, Program, Var
from ....ir.rewriting.rewrite import Match, Rewrite, Shape, finder
from ....ir.rewriting.substitution import substituted
from ....ir.rewriting.unread import drop_dead
from ....ir.types import ArrayType
from .lines.ahead_lines import computed_ahead
from .lines.expressions import is_zeros
from .lines.loop_lines import reduced_behind
from .lines.statements import Edit
from .rewrites import CodeChange, varying_as
from .varying_axes import is_invariant, with_varying_steps

# What maps a program over the first dimension of some operands: of it, the types of all operands,
# and which are mapped. Set by driver/analysis/applied_changes.py, which knows the tracer.
BATCHERS: list[Callable[[Program, Sequence[ArrayType], Sequence[bool]], Program]] = []


def _reduction(m: Match) -> list[Equation]:
    """The reduction over devices of a shape, and the division behind it."""
    eqns = [m.maker(getattr(m, name)) for name in ("total", "mean") if hasattr(m, name)]
    return [e for e in eqns if e is not None]


def _is_over_all(m: Match) -> bool:
    """Are all devices along the axes added up, and is a mean theirs divided by a number?"""
    total, *means = _reduction(m)
    return not total.params.get("axis_index_groups") and all([
        isinstance(mean.invars[1], Literal) and issubdtype(m.mean.aval.dtype, np.inexact)
        for mean in means])


_SUM = "total = psum|psum_invariant part"
_MEAN = f"{_SUM}\nmean = div total count"
_REDUCED = (
    Shape(_SUM.replace(" part", "|pmax|pmin part"), where=_is_over_all, single_use=("total",)),
    Shape(_MEAN, where=_is_over_all, single_use=("total", "mean")))
_SUM_OR_MEAN = (Shape(_SUM, where=_is_over_all, single_use=("total",)), _REDUCED[1])
_SUMMED = tuple([
    Shape(f"{made}\nout = add {operands}", where=_is_over_all, single_use=(*used, "carry", "out"))
    for made, *used in ((_SUM, "total"), (_MEAN, "total", "mean"))
    for operands in (f"carry {used[-1]}", f"{used[-1]} carry")])
"""What a carry becomes in a step: the carry and a sum, or a mean, in either order."""


def _repeated(m: Match, eqns: Sequence[Equation], value: Atom) -> Atom:
    """What a reduction, and the division behind it, make of another value."""
    for eqn in eqns:
        value = m.emit(eqn.op, value, *eqn.invars[1:], like=eqn, **eqn.params)
    return value


def _summed_behind(m: Match) -> list[Atom] | None:
    """Of a scan that adds the sum over devices to what it carries in each step."""
    body, (first, carries) = m.eqn.params["jaxpr"], scan_operands(m.eqn.params)
    made_as = finder(body)
    for j in range(carries):
        found, carry = made_as(body.outvars[j], _SUMMED), body.invars[first + j]
        if found is None or found.carry is not carry:
            continue
        add, part, totals = found.eqn, found.part, _reduction(found)
        if not isinstance(part, Var) or (part.aval.shape, part.aval.dtype) != (
                carry.aval.shape, carry.aval.dtype):
            continue
        own, out = Var(part.aval, carry.name), Var(part.aval, body.outvars[j].name)
        eqns = [add.replace(invars=(own, part), outvars=(out,)) if e is add else e
                for e in body.eqns if e not in totals]
        inside = body.replace(
            eqns=eqns, invars=[own if v is carry else v for v in body.invars],
            outvars=[out if i == j else v for i, v in enumerate(body.outvars)])
        zero = m.full(varying_as(m, np.zeros((), part.aval.dtype)[()], part), part.aval.shape)
        start = m.eqn.invars[first + j]
        given = [zero if i == first + j else a for i, a in enumerate(m.eqn.invars)]
        results = m.emit(m.eqn.op, *given, **{**m.eqn.params, "jaxpr": inside})
        everywhere = _repeated(m, totals, results[j])
        results[j] = m.emit(add.op, start, everywhere, like=totals[0], **add.params)
        return results if results[j].aval == m.eqn.outvars[j].aval else None
    return None


def _summed_behind_code(m: Match) -> tuple[Edit, ...]:
    """The lines of that, for a sum that starts from zeros."""
    body, (first, carries) = m.eqn.params["jaxpr"], scan_operands(m.eqn.params)
    made_as = finder(body)
    for j in range(carries):
        found, carry = made_as(body.outvars[j], _SUMMED), body.invars[first + j]
        if found is not None and found.carry is carry:
            start = m.eqn.invars[first + j]
            missing = found.part.aval.manual.varying - start.aval.manual.varying
            return () if not is_zeros(m, start) else reduced_behind(
                m.eqn, _reduction(found), True, j, carries, sorted(missing))
    return ()


_WRITES = {"dynamic_update_slice": 1, "scatter": 2}       # the operand that is written


def _writes(m: Match) -> Iterator[tuple[int, list[Equation], Match]]:
    """The carries of a scan that hold zeros first and into which its steps write, each with the
    equations from the last to the first by which a step writes what it sums over devices, and that
    sum. Where it writes is the same on all of them, and nothing else reads the carry.
    """
    body, (first, carries) = m.eqn.params["jaxpr"], scan_operands(m.eqn.params)
    made_as, made = finder(body), {v: e for e in body.eqns for v in e.outvars}
    reads = Counter([a for e in body.eqns for a in e.invars] + [*body.outvars])
    for j in range(carries):
        write = made.get(body.outvars[j])
        at = _WRITES.get(write.op.name) if write is not None else None
        if write is None or at is None or write.invars[0] is not body.invars[first + j] or (
                reads[write.invars[0]] > 1 or not is_zeros(m, m.eqn.invars[first + j])):
            continue
        steps, value = [write], write.invars[at]
        while (found := made_as(value, _SUM_OR_MEAN)) is None and reads[value] == 1 and (
                e := made.get(value)) is not None and VIEW in e.op.facts and len(e.invars) == 1:
            steps.append(e)
            value = e.invars[0]
        if found is None:
            continue
        known, axes = with_varying_steps(m.eqn, body, m.program, m.maker), _reduction(found)[0].axes
        if all(is_invariant(a, axes, known, made.get)
               for k, a in enumerate(write.invars) if k not in (0, at)):
            yield j, steps, found


def _written_behind(m: Match) -> list[Atom] | None:
    """Of a scan whose steps write what they sum over devices into zeros that they carry."""
    body, first = m.eqn.params["jaxpr"], scan_operands(m.eqn.params).consts
    for j, steps, found in _writes(m):
        part, totals, carry = found.part, _reduction(found), body.invars[first + j]

        def varying(v: Var, part: Atom = part) -> Var:
            return Var(v.aval.update(manual=part.aval.manual), v.name)

        now: dict[Atom, Atom] = {carry: varying(carry), totals[-1].outvars[0]: part}
        now.update((e.outvars[0], varying(e.outvars[0])) for e in steps)
        missing = part.aval.manual.varying - carry.aval.manual.varying
        casts = ProgramBuilder(part.aval.mesh, body.level)       # of where it writes
        places = {a: casts.emit(OPS["pvary"], (a,), {"axes": tuple(sorted(missing))},
                                location=steps[0].location)[0]
                  for a in steps[0].invars if missing and a not in now}
        eqns: list[Equation] = []
        for e in body.eqns:
            if e is steps[0]:
                eqns += casts.eqns
                e = e.replace(invars=[places.get(a, a) for a in e.invars])
            if e not in totals:
                eqns.append(e.replace(invars=[now.get(a, a) for a in e.invars], outvars=[
                    now.get(v, v) for v in e.outvars]))
        inside = body.replace(eqns=eqns, invars=[now.get(v, v) for v in body.invars],
                              outvars=[now.get(v, v) for v in body.outvars])
        zero = m.full(varying_as(m, np.zeros((), carry.aval.dtype)[()], part), carry.aval.shape)
        given = [zero if i == first + j else a for i, a in enumerate(m.eqn.invars)]
        results = m.emit(m.eqn.op, *given, **{**m.eqn.params, "jaxpr": inside})
        results[j] = _repeated(m, totals, results[j])
        return results if results[j].aval == m.eqn.outvars[j].aval else None
    return None


def _written_behind_code(m: Match) -> tuple[Edit, ...]:
    body, (first, carries) = m.eqn.params["jaxpr"], scan_operands(m.eqn.params)
    for j, _, found in _writes(m):
        missing = found.part.aval.manual.varying - body.invars[first + j].aval.manual.varying
        return reduced_behind(m.eqn, _reduction(found), True, j, carries, sorted(missing))
    return ()


def _stacked_behind(m: Match) -> list[Atom] | None:
    """Of a scan that stacks in each step what is reduced over devices, and does not read that."""
    body = m.eqn.params["jaxpr"]
    made_as = finder(body)
    for j in range(scan_operands(m.eqn.params).carries, len(body.outvars)):
        found = made_as(body.outvars[j], _REDUCED)
        if found is None:
            continue
        totals = _reduction(found)
        inside = body.replace(eqns=[e for e in body.eqns if e not in totals],
                              outvars=[found.part if i == j else v
                                       for i, v in enumerate(body.outvars)])
        results = m.emit(m.eqn.op, *m.eqn.invars, **{**m.eqn.params, "jaxpr": inside})
        results[j] = _repeated(m, totals, results[j])
        return results if results[j].aval == m.eqn.outvars[j].aval else None
    return None


def _stacked_behind_code(m: Match) -> tuple[Edit, ...]:
    body, carries = m.eqn.params["jaxpr"], scan_operands(m.eqn.params).carries
    made_as, count = finder(body), len(body.outvars) - carries
    for j in range(carries, len(body.outvars)):
        found = made_as(body.outvars[j], _REDUCED)
        if found is not None:
            return reduced_behind(m.eqn, _reduction(found), False, j - carries, count)
    return ()


def _ahead(body: Program, consts: Sequence[Var], items: Sequence[Var]
           ) -> tuple[dict[Var, Equation], list[Var]]:
    """The values that do not depend on the carry, each with the equation that computes it; and
    those of them that depend on the step, reduce or look up, and are read by equations that do.
    (An analysis and no shape: any number of equations may be between a value and the carry.)
    """
    own: dict[Var, Equation] = {}
    reducing = dict.fromkeys(items, False)          # of values that depend on the step
    for eqn in body.eqns:
        reads = [a for a in eqn.invars if isinstance(a, Var)]
        if eqn.effects or eqn.op.subprograms or any(
                v not in own and v not in reducing and v not in consts for v in reads):
            continue
        own.update(dict.fromkeys(eqn.outvars, eqn))
        if any(v in reducing for v in reads):
            reducing.update(dict.fromkeys(
                eqn.outvars, _reduces(eqn) or any(map(reducing.get, reads))))
    later = [a for e in body.eqns if e.outvars and e.outvars[0] not in own for a in e.invars]
    return own, [v for v in dict.fromkeys(later) if isinstance(v, Var) and reducing.get(v)]


def _loop_ahead(m: Match) -> list[Atom] | None:
    """Of a scan whose steps reduce or look up what does not come from the step before: that for
    all steps in a scan without a carry, and the loop over what it stacks.
    """
    body, params, parts = m.eqn.params["jaxpr"], m.eqn.params, scan_operands(m.eqn.params)
    consts, _, items = parts.split(body.invars)
    own, read = _ahead(body, consts, items)
    if not read:
        return None
    given = [*consts, *items]
    copies = {v: Var(v.aval, v.name) for v in (*given, *own)}

    def copied(atoms: Sequence[Atom]) -> list[Atom]:
        return [copies[a] if isinstance(a, Var) else a for a in atoms]

    alone = drop_dead(body.replace(
        invars=[copies[v] for v in given], outvars=copied(read), eqns=[e.with_operands(
            copied(e.invars), [copies[v] for v in e.outvars]) for e in dict.fromkeys(own.values())]
    ))
    operands = m.eqn.invars
    closed, _, xs = parts.split(operands)
    stacks = m.emit(m.eqn.op, *closed, *xs, **{**params, "jaxpr": alone, "num_carry": 0})
    taken: dict[Atom, Atom] = {v: Var(v.aval, v.name) for v in read}
    after = substituted(body, taken)
    after = drop_dead(after.replace(invars=[*body.invars, *taken.values()]))
    results = m.emit(m.eqn.op, *operands, *stacks, **{**params, "jaxpr": after})
    return results if [r.aval for r in results] == [v.aval for v in m.eqn.outvars] else None


def _loop_ahead_code(m: Match) -> tuple[Edit, ...]:
    consts, _, items = scan_operands(m.eqn.params).split(m.eqn.params["jaxpr"].invars)
    own, read = _ahead(m.eqn.params["jaxpr"], consts, items)
    return computed_ahead(m.eqn, [own[v] for v in read], False)


def _product_ahead(m: Match) -> list[Atom] | None:
    """Of a scan whose steps multiply what they read of stacked operands with what all steps have:
    one product of the stack for each of these, whose rows the steps read instead.
    """
    body, params, operands = m.eqn.params["jaxpr"], m.eqn.params, m.eqn.invars
    closed, _, xs = scan_operands(params).split([*zip(body.invars, operands, strict=True)])
    consts: dict[Atom, Atom] = dict(closed)
    items: dict[Atom, Atom] = dict(xs)
    stacks: list[Atom] = []
    taken: dict[Atom, Var] = {}
    for eqn in _products(m):
        stacks.append(_for_all_steps(m, eqn, items, consts))
        taken[eqn.outvars[0]] = Var(eqn.outvars[0].aval, eqn.outvars[0].name)
    if not stacks:
        return None
    after = substituted(body.replace(eqns=[e for e in body.eqns if taken.keys().isdisjoint(
        e.outvars)]), taken)
    after = after.replace(invars=[*body.invars, *taken.values()])
    results = m.emit(m.eqn.op, *operands, *stacks, **{**params, "jaxpr": after})
    return results if [r.aval for r in results] == [v.aval for v in m.eqn.outvars] else None


def _products(m: Match) -> list[Equation]:
    """The products in the steps of a scan of what they read with what all of them have."""
    body = m.eqn.params["jaxpr"]
    consts, _, items = map(set, scan_operands(m.eqn.params).split(body.invars))
    return [e for e in body.eqns if e.op.name == "dot_general" and not (
        any(e.params["dimension_numbers"][1]) or e.params.get("out_sharding") is not None)
        and items & {*e.invars} and consts & {*e.invars}]


def _product_ahead_code(m: Match) -> tuple[Edit, ...]:
    return computed_ahead(m.eqn, _products(m), True)


def _for_all_steps(m: Match, eqn: Equation, items: Mapping[Atom, Atom],
                   consts: Mapping[Atom, Atom]) -> Atom:
    """The product of a step for all of them, along its first dimension."""
    (left, right), batch = eqn.params["dimension_numbers"]
    x, w = eqn.invars
    if x in items:
        return m.emit(eqn.op, items[x], consts[w], like=eqn, **{
            **eqn.params, "dimension_numbers": ((tuple([c + 1 for c in left]), right), batch)})
    value = m.emit(eqn.op, consts[x], items[w], like=eqn, **{
        **eqn.params, "dimension_numbers": ((left, tuple([c + 1 for c in right])), batch)})
    steps = x.aval.ndim - len(left)              # the dimension of the steps, behind those of x
    order = (steps, *[d for d in range(value.aval.ndim) if d != steps])
    return m.emit(OPS["transpose"], value, permutation=order)


def _reduces(eqn: Equation) -> bool:
    """Is it an exchange, or would it leave parts to exchange if its operands were split?"""
    if eqn.op.collective is not None or eqn.op.rule is None:
        return eqn.op.collective is not None
    rule = eqn.op.factor_rule(tuple([a.aval.shape for a in eqn.invars]),
                              tuple([v.aval.shape for v in eqn.outvars]), eqn.params)
    return any(f.leaves_sum or f.reducer for f in rule.factors)


def _at_once(m: Match) -> list[Atom] | None:
    """Of a scan that carries nothing: all steps at once, of the items as they are split."""
    consts, carries, items = scan_operands(m.eqn.params).split(m.eqn.invars)
    body, mesh = m.eqn.params["jaxpr"], m.program.mesh
    if carries or not items or mesh.manual_axes or mesh.explicit_axes or any(
            e.effects for e in body.eqns):
        return None
    mapped = [i >= len(consts) for i in range(len(m.eqn.invars))]
    program = BATCHERS[0](body, [a.aval for a in m.eqn.invars], mapped)
    values: dict[Atom, Atom] = dict(zip(program.invars, m.eqn.invars, strict=True))
    for eqn in program.eqns:
        made = m.emit(eqn.op, *[values.get(a, a) for a in eqn.invars], like=eqn, **eqn.params)
        values.update(zip(eqn.outvars, made if eqn.op.multiple_results else [made], strict=True))
    results = [values.get(a, a) for a in program.outvars]
    return results if not program.consts and [r.aval for r in results] == [
        v.aval for v in m.eqn.outvars] else None


LOOPS: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "stack behind", "out = scan *operands", _stacked_behind,
        why="what the steps give is reduced over devices together"),
        "reduce over devices once, behind the loop, instead of in each step of the one",
        _stacked_behind_code),
    CodeChange(Rewrite(
        "sum behind", "out = scan *operands", _summed_behind,
        why="devices add up their own parts, and these are summed once"),
        "sum over devices once, behind the loop, instead of in each step of the one",
        _summed_behind_code),
    CodeChange(Rewrite(
        "write behind", "out = scan *operands", _written_behind,
        why="devices write their own parts, and these are summed once"),
        "sum over devices once, behind the loop, instead of in each step of the one",
        _written_behind_code),
    CodeChange(Rewrite(
        "loop ahead", "out = scan *operands", _loop_ahead,
        why="what no step takes from the one before is exchanged for all steps together"),
        "compute what no step takes from the one before for all steps first, ahead of the loop",
        _loop_ahead_code),
    CodeChange(Rewrite(
        "product ahead", "out = scan *operands", _product_ahead,
        why="one product is exchanged for all steps"),
        "multiply what the steps read for all of them at once, ahead of the loop",
        _product_ahead_code),
    CodeChange(Rewrite(
        "at once", "out = scan *operands", _at_once,
        why="each device takes the steps of the items that it has"),
        "take all steps at once, with `vmap`, instead of one after the other, in the loop",
        lambda m: ()),
)
