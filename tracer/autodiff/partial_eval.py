"""Partial evaluation: splits a program in two by which values depend on unknown operands.

Most programs are split by inspection: an equation belongs to the second part if one of its operands
depends on an unknown one, and both parts are made of the program's own equations. Where such an
equation holds programs, these are split as well, so the program is traced again under the
interpreter of forward.py.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.program import Atom, Equation, Program, Var
from ...ir.settings.context import STATE, interpreter_context
from ...ir.support.caches import in_memo
from ...ir.support.immutable import immutable
from .forward import Forward, LinearBuilder, Mask, finish_linear
from .replay import live_equations, stage


@immutable
class Split:
    """A program cut in two: what is computed from the known operands, and the rest.

    known: known operands -> known results, then residuals. linear: residuals, unknown operands ->
    the other results. out_unknown: which results are in the second part. residuals: where each
    comes from: ("operand", i), a known operand, or ("result", i), a result of `known`.
    """
    known: Program
    linear: Program
    out_unknown: Mask
    residuals: tuple[tuple[str, int], ...]


@in_memo
def split_program(program: Program, unknown: Mask, force: Mask = (), *, forward: bool = True
                  ) -> Split:
    """Cut a program by what depends on its unknown operands.

    force: results that count as unknown in any case. forward: a residual that is a known result
    anyway is that; otherwise it leaves as a result of its own.
    """
    return _cut(program, unknown, force, forward) or _traced(program, unknown, force, forward)


def unknown_results(program: Program, unknown: Mask) -> Mask:
    """Which results of the cut are unknown, without cutting where inspection suffices."""
    parts = _parts(program, unknown)
    if parts is None:
        return split_program(program, unknown).out_unknown
    return tuple([a in parts[0] for a in program.outvars])


def _parts(program: Program, unknown: Mask
           ) -> tuple[set[Any], list[Equation], list[Equation]] | None:
    """What depends on unknown operands; the equations that do not, and those that do.

    None where one that does holds a program, which has to be cut itself.
    """
    reached: set[Any] = {v for v, u in zip(program.invars, unknown, strict=True) if u}
    first: list[Equation] = []
    second: list[Equation] = []
    for eqn in live_equations(program.eqns, program.outvars):
        if reached.isdisjoint(eqn.invars):
            first.append(eqn)
        elif eqn.op.subprograms:
            return None
        else:
            reached.update(eqn.outvars)
            second.append(eqn)
    return reached, first, second


def compute_again(program: Program, unknown: Mask) -> Split | None:
    """As `split_program`, but the second part computes all that it needs from the operands.

    None where that cannot be found by inspection.
    """
    parts = _parts(program, unknown)
    if parts is None:
        return None
    reached, first, _ = parts
    out_unknown = tuple([a in reached for a in program.outvars])
    given = [v for v, u in zip(program.invars, unknown, strict=True) if not u]
    known = _of(program, given, first,
                [a for a in program.outvars if a not in reached], program.consts)
    waiting = [a for a in program.outvars if a in reached]
    eqns = live_equations(program.eqns, waiting)
    used = {a for e in eqns for a in e.invars}
    kept = [(i, v) for i, v in enumerate(given) if v in used]
    linear = _of(program, [*(v for _, v in kept), *(
        v for v, u in zip(program.invars, unknown, strict=True) if u)], eqns, waiting,
        [(v, x) for v, x in program.consts if v in used])
    return Split(without_dead_equations(known), linear, out_unknown,
                 tuple([("operand", i) for i, _ in kept]))


def _cut(program: Program, unknown: Mask, force: Mask, forward: bool) -> Split | None:
    """`split_program` by looking; None where that cannot be done."""
    parts = _parts(program, unknown)
    if parts is None:
        return None
    reached, first, second = parts
    forced = force or (False,) * len(program.outvars)
    out_unknown = tuple([a in reached or f for a, f in zip(program.outvars, forced, strict=True)])
    waiting = [a for a, u in zip(program.outvars, out_unknown, strict=True) if u]
    second = live_equations(second, waiting)
    residuals: dict[Var, None] = {}              # in the order of their first use
    for atoms in (*(e.invars for e in second), waiting):
        for a in atoms:
            if isinstance(a, Var) and a not in reached:
                residuals[a] = None
    results: list[Atom] = [a for a, u in zip(program.outvars, out_unknown, strict=True) if not u]
    given = [v for v, u in zip(program.invars, unknown, strict=True) if not u]
    params = {v: i for i, v in enumerate(given)}
    count = len(results)
    places: list[tuple[str, int]] = []
    for v in residuals:
        if v in params:
            places.append(("operand", params[v]))
        elif forward and v in results[:count]:
            places.append(("result", results.index(v)))
        else:
            places.append(("result", len(results)))
            results.append(v)
    known = _of(program, given, first, results, program.consts)
    # the parts share no variable that one binds
    names = {v: Var(v.aval, v.name) for v in residuals}
    linear = _of(program, [*names.values(), *(
        v for v, u in zip(program.invars, unknown, strict=True) if u)],
        [renamed(e, names) for e in second], [names.get(a, a) for a in waiting])  # type: ignore
    return Split(without_dead_equations(known), linear, out_unknown, tuple(places))


def renamed(eqn: Equation, names: dict[Var, Var]) -> Equation:
    """The equation with some of its operands replaced."""
    if names.keys().isdisjoint(eqn.invars):  # type: ignore[arg-type]
        return eqn
    operands = [names.get(a, a) for a in eqn.invars]  # type: ignore[arg-type]
    return Equation(eqn.op, operands, eqn.outvars, eqn.params, eqn.location, eqn.reason)


def _of(program: Program, invars: Sequence[Var], eqns: Sequence[Equation], outvars: Sequence[Atom],
        consts: Sequence[tuple[Var, Any]] = ()) -> Program:
    """A part of a program."""
    return Program(program.name, invars, eqns, outvars, consts=consts, mesh=program.mesh,
                   level=program.level,
                   attributes={"meshes": program.attributes.get("meshes", ())})


def _traced(program: Program, unknown: Mask, force: Mask, forward: bool) -> Split:
    """`split_program` by tracing the program again."""
    linear = LinearBuilder(program.name)
    state: dict[str, Any] = {}
    forced = force or (False,) * len(program.outvars)

    def run(*known_args: Any) -> list[Any]:
        builder: Any = STATE.interpreter
        given = iter(known_args)
        values = [linear.argument(v.aval, v.name) if u else next(given)
                  for v, u in zip(program.invars, unknown, strict=True)]
        evaluation = Forward(builder, linear)
        with interpreter_context(evaluation):
            outs = evaluation.run(program, values)
        out_unknown = tuple(evaluation.is_unknown(x) or f
                            for x, f in zip(outs, forced, strict=True))
        rest = finish_linear(linear, [x for x, u in zip(outs, out_unknown, strict=True) if u],
                             program)
        results = [x for x, u in zip(outs, out_unknown, strict=True) if not u]
        places: list[tuple[str, int]] = []
        atoms = [builder.atom(x) for x in results]
        params = {t.variable: i for i, t in enumerate(known_args)}
        for x in rest.residuals:
            a = builder.atom(x)
            if a in params:
                places.append(("operand", params[a]))
                continue
            if forward and a in atoms:
                places.append(("result", atoms.index(a)))
                continue
            places.append(("result", len(results)))
            results.append(x)
            if forward:
                atoms.append(a)
        state.update(rest=rest.program, out_unknown=out_unknown, places=tuple(places))
        return results

    types = [t for t, u in zip(program.in_avals, unknown, strict=True) if not u]
    known = stage(run, types, program)
    known = without_dead_equations(known)
    return Split(known, state["rest"], state["out_unknown"], state["places"])


def without_dead_equations(program: Program) -> Program:
    """The program without equations (and constants) that no result needs."""
    eqns = live_equations(program.eqns, program.outvars)
    used = {a for e in eqns for a in e.invars} | set(program.outvars)
    consts = [(v, x) for v, x in program.consts if v in used]
    return program.replace(eqns=eqns, consts=consts)
