"""The mesh axes over which values of a `shard_map` body vary: between whose devices they differ.

This is finer than the axes in their types: what is gathered is the same on all devices of the
gather, and a body that was traced without `check_vma` has no such types. `by_device` says what an
index of a device is on each. Scalars that enter a loop and depend only on such an index are
computed inside it (`with_numbers`), where rewrites see them.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from ....ir.ops.control.loop_operands import scan_operands
from ....ir.program import Atom, Equation, Literal, Program, Var
from ....ir.rewriting.rewrite import Match
from ....ir.rewriting.substitution import substituted

VARYING = "varying over"     # attribute of a body: by parameter, the axes over which it varies
_MOST = 32               # values that one is computed from
_SCALARS = 60            # equations that an index may be computed by
_UNVARYING = ("psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant")
Axes = AbstractSet[str]


def varying_axes(atom: Atom, program: Program, maker: Callable[[Atom], Equation | None],
                 among: Iterable[str] | None = None) -> Axes:
    """The axes, among some of the mesh or all, over which a value of a body may vary: those over
    which the parameters that it is computed from do, the ones that the index of a device counts,
    and not those over which it comes out of an exchange that gives all devices the same. maker:
    gives the equation that computes a value.
    """
    given: Mapping[Var, Axes] = program.attributes.get(VARYING, {})
    everywhere = frozenset(map(str, program.mesh.axis_names if among is None else among))
    found: dict[Atom, Axes] = {}

    def of(a: Atom) -> Axes:
        if isinstance(a, Literal):
            return frozenset()
        if a not in found:
            found[a] = everywhere
            if len(found) <= _MOST:
                eqn = maker(a)
                found[a] = everywhere & given.get(a, everywhere) if eqn is None else made(eqn)
        return found[a]

    def made(eqn: Equation) -> Axes:
        if eqn.op.name == "axis_index":
            return everywhere & {*map(str, eqn.axes)}
        equalised = eqn.op.name in _UNVARYING and eqn.params.get("axis_index_groups") is None
        if equalised and everywhere.issubset(map(str, eqn.axes)):
            return frozenset()          # whatever it is computed from
        unknown = eqn.op.collective is not None and not equalised or (
            not eqn.invars and eqn.op.evaluate is None)
        if unknown or eqn.op.effect or eqn.op.subprograms:
            return everywhere
        over = frozenset[str]().union(*map(of, eqn.invars))
        return over - {*map(str, eqn.axes)} if equalised else over

    return of(atom)


def is_invariant(atom: Atom, axes: Iterable[str], program: Program,
                 maker: Callable[[Atom], Equation | None]) -> bool:
    """Do all devices along these axes surely have the same value?"""
    return not varying_axes(atom, program, maker, axes)


def with_varying_steps(scan: Equation, body: Program, program: Program,
                       maker: Callable[[Atom], Equation | None]) -> Program:
    """The body of a scan of a program, with the axes over which the parameters of its steps vary in
    any of them.
    """
    parts = scan_operands(scan.params)
    varying = {v: {*varying_axes(a, program, maker)}
               for v, a in zip(body.invars, scan.invars, strict=True)}
    found = body.replace(attributes={**body.attributes, VARYING: varying})
    made = {v: e for e in body.eqns for v in e.outvars}
    _, carried, _ = parts.split(body.invars)
    last, _ = parts.results(body.outvars)
    grows = True
    while grows:
        grows = False
        for v, w in zip(carried, last, strict=True):
            later = varying_axes(w, found, made.get)     # type: ignore[arg-type]
            grows |= not later <= varying[v]
            varying[v] |= later
    return found


def by_device(m: Match, atom: Atom, n: int, names: Sequence[str]) -> np.ndarray | None:
    """A scalar on each of n devices; None if it depends on more than the index along the axis."""
    known: dict[Atom, np.ndarray | None] = {}
    left = _SCALARS

    def value(a: Atom) -> np.ndarray | None:
        nonlocal left
        if isinstance(a, Literal):
            return np.asarray(a.val)[None]
        if a not in known:
            left -= 1
            known[a] = None if left < 0 else made(m.maker(a))
        return known[a]

    def made(eqn: Equation | None) -> np.ndarray | None:
        if eqn is None or any(v.aval.shape for v in (*eqn.outvars, *eqn.invars)):
            return None
        if eqn.op.name == "axis_index":
            return np.arange(n, dtype=np.int32) if eqn.axes == tuple(names) else None
        given = [value(a) for a in eqn.invars]
        if any(g is None for g in given):
            return None
        if eqn.op.name == "pvary":
            return given[0]
        if eqn.op.evaluate is None or eqn.op.effect or eqn.op.multiple_results:
            return None
        return np.asarray(eqn.op.evaluate(1, *given, **eqn.params))

    found = value(atom)
    return None if found is None else np.broadcast_to(found, (n,))


def with_numbers(eqn: Equation, body: Program, made: Mapping[Var, Equation]) -> Program:
    """The body of a scan in which scalars that it is given from outside are computed inside
    instead, if they depend only on the index of the device. made: for each value outside, the
    equation that computes it.
    """
    steps: dict[Var, Equation] = {}
    given: dict[Var, Var] = {}
    consts, _, _ = scan_operands(eqn.params).split(eqn.invars)
    for a, parameter in zip(consts, body.invars, strict=False):
        needed = _steps(a, made)
        if needed and isinstance(a, Var):
            steps.update(needed)
            given[parameter] = a
    if not given:
        return body
    own = {v: Var(v.aval, v.name) for e in steps.values() for v in e.outvars}
    first = [e.with_operands([own.get(a, a) if isinstance(a, Var) else a for a in e.invars],
                             [own[v] for v in e.outvars]) for e in steps.values()]
    new = substituted(body, {parameter: own[a] for parameter, a in given.items()})
    return new.replace(eqns=[*first, *new.eqns])


def _steps(atom: Atom, made: Mapping[Var, Equation]) -> dict[Var, Equation] | None:
    """The equations by which a scalar is computed from the number of the device and literals."""
    found: dict[Var, Equation] = {}
    waiting = [atom]
    while waiting:
        a = waiting.pop()
        if isinstance(a, Literal) or a in found:
            continue
        eqn = made.get(a)
        if (eqn is None or len(found) >= _SCALARS or eqn.op.effect or eqn.op.subprograms
                or any(v.aval.shape for v in (*eqn.outvars, *eqn.invars))):
            return None
        found[a] = eqn
        waiting += eqn.invars
    return {v: found[v] for v in made if v in found}            # as they were computed
