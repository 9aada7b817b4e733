"""Values that are the same on all devices of a mesh axis, in the bodies that users write."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from ....ir.ops.control.loop_operands import scan_operands
from ....ir.program import Atom, Equation, Literal, Program, Var

SPLIT = "split over"     # attribute of a body: by parameter, the axes over which that is split
_MOST = 32               # values that one is computed from
_ALIKE = ("psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant")
Axes = AbstractSet[str]


def differs_over(atom: Atom, program: Program, maker: Callable[[Atom], Equation | None]) -> Axes:
    """The axes between whose devices a value of a body may differ: those over which the parameters
    that it is computed from are split, the ones that the index of a device counts, and not those
    along which devices exchange it in a way that gives all of them the same. maker: gives the
    equation that computes a value.
    """
    given: Mapping[Var, Axes] = program.attributes.get(SPLIT, {})
    everywhere = frozenset(map(str, program.mesh.axis_names))
    found: dict[Atom, Axes] = {}

    def of(a: Atom) -> Axes:
        if isinstance(a, Literal):
            return frozenset()
        if a not in found:
            found[a] = everywhere
            if len(found) <= _MOST:
                eqn = maker(a)
                found[a] = given.get(a, everywhere) if eqn is None else made(eqn)
        return found[a]

    def made(eqn: Equation) -> Axes:
        if eqn.op.name == "axis_index":
            return {*map(str, eqn.axes)}
        alike = eqn.op.name in _ALIKE and eqn.params.get("axis_index_groups") is None
        if eqn.op.effect or eqn.op.subprograms or eqn.op.collective is not None and not alike or (
                not eqn.invars and eqn.op.evaluate is None):
            return everywhere
        over = frozenset[str]().union(*map(of, eqn.invars))
        return over - {*map(str, eqn.axes)} if alike else over

    return of(atom)


def with_split_steps(scan: Equation, body: Program, program: Program,
                     maker: Callable[[Atom], Equation | None]) -> Program:
    """The body of a scan of a program, where it is known of the parameters of the steps over which
    axes they differ in any of them.
    """
    parts = scan_operands(scan.params)
    split = {v: {*differs_over(a, program, maker)}
             for v, a in zip(body.invars, scan.invars, strict=True)}
    found = body.replace(attributes={**body.attributes, SPLIT: split})
    made = {v: e for e in body.eqns for v in e.outvars}
    _, carried, _ = parts.split(body.invars)
    last, _ = parts.results(body.outvars)
    grows = True
    while grows:
        grows = False
        for v, w in zip(carried, last, strict=True):
            later = differs_over(w, found, made.get)     # type: ignore[arg-type]
            grows |= not later <= split[v]
            split[v] |= later
    return found
