"""Traces functions to programs inside an equation: loop bodies, tests, branches.

A body is traced once. Values of the enclosing trace that it uses become parameters in front of its
own; all branches of a `cond` get the same ones. A result that is a parameter passed on unchanged
need not go through the body, and can be removed from it.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....ir.op import OPS
from ....ir.program import Program, Var
from ....ir.support.named_tuple import NamedTuple
from ....ir.types import ArrayType
from ....ir.values.typeof import typeof
from ...staging.staging import trace_to_program
from ...staging.tracer import Tracer
from ...trees import tree

NONE: frozenset[str] = frozenset()


class Body(NamedTuple):
    """A traced function: its program, the values it closes over, and its result's structure."""
    program: Program
    captured: list[Any]
    out_tree: tree.PyTreeDef

    @property
    def own_params(self) -> tuple[Var, ...]:
        return self.program.invars[len(self.captured):]


def function_name(f: Callable[..., Any]) -> str:
    while hasattr(f, "func"):
        f = f.func
    name = getattr(f, "__name__", type(f).__name__)
    return name if name.isidentifier() else "body"


def trace_body(f: Callable[..., Any], in_tree: tree.PyTreeDef, types: Sequence[ArrayType],
               varying: Sequence[frozenset[str]] | frozenset[str] = NONE) -> Body:
    """Trace `f(*arguments)`, where `in_tree` is the structure of the tuple of arguments.

    varying: manual axes that results shall vary over, of all results or of each.
    """
    trees: list[tree.PyTreeDef] = []

    def flat(*tracers: Any) -> list[Any]:
        leaves, out_tree = tree.flatten(f(*tree.unflatten(in_tree, tracers)))
        trees.append(out_tree)
        if not varying:
            return leaves
        axes = [varying] * len(leaves) if isinstance(varying, frozenset) else varying
        return [vary(x, a) for x, a in zip(leaves, axes, strict=True)]

    program, captured = trace_to_program(flat, types, name=function_name(f))
    return Body(program, captured, trees[-1])


def vary(x: Any, axes: frozenset[str]) -> Any:
    """`x`, varying over these manual axes as well."""
    t = typeof(x)
    missing = axes - t.varying - t.manual.unreduced - t.manual.reduced
    if not missing:
        return x
    return OPS["pvary"].bind(x, axes=tuple(sorted(missing)))


# -- parameters and results ------------------------------------------------------------------------

def hands_on(program: Program) -> bool:
    """Whether a result of the program is a parameter of it."""
    return not set(program.invars).isdisjoint(program.outvars)


def forwarded(program: Program) -> list[int | None]:
    """For each result the parameter that it is, None where it is computed."""
    place = {v: i for i, v in enumerate(program.invars)}
    return [place.get(v) if isinstance(v, Var) else None for v in program.outvars]


def with_results(program: Program, keep: Sequence[bool]) -> Program:
    """The program with some of its results."""
    if all(keep):
        return program
    return program.replace(outvars=[v for v, k in zip(program.outvars, keep, strict=True) if k],
                           result_names=())


def in_front(program: Program, moved: Sequence[bool]) -> Program:
    """The program with some parameters in front of the others."""
    if not any(moved):
        return program
    pairs = list(zip(program.invars, moved, strict=True))
    return program.replace(invars=[*(v for v, m in pairs if m), *(v for v, m in pairs if not m)],
                           arg_names=())


def without_params(program: Program, dropped: Sequence[bool]) -> Program:
    """The program without some parameters, which it must not use."""
    return program.replace(
        invars=[v for v, d in zip(program.invars, dropped, strict=True) if not d], arg_names=())


def needed(program: Program) -> set[Var]:
    """The variables that the results of the program depend on, or what the host sees of it."""
    found = {v for v in program.outvars if isinstance(v, Var)}
    for eqn in reversed(program.eqns):
        if eqn.effects or not found.isdisjoint(eqn.outvars):
            found.update(v for v in eqn.invars if isinstance(v, Var))
    return found


def pruned(program: Program) -> Program:
    """The program without equations that neither its results nor the host depend on."""
    found = needed(program)
    return program.replace(eqns=[e for e in program.eqns
                                 if e.effects or not found.isdisjoint(e.outvars)])


def with_common_captures(bodies: Sequence[Body]) -> tuple[list[Program], list[Any]]:
    """Programs of alternatives, all taking what any of them closes over, and these values."""
    if not any([body.captured for body in bodies]):
        return [body.program for body in bodies], []
    union: dict[Any, Any] = {}
    for body in bodies:
        for outer in body.captured:
            union.setdefault(_identity(outer), outer)
    programs = []
    for body in bodies:
        own = {_identity(outer): var for outer, var in
               zip(body.captured, body.program.invars, strict=False)}
        params = [own[key] if key in own else Var(typeof(x)) for key, x in union.items()]
        repeated = {var: own[_identity(outer)] for outer, var in
                    zip(body.captured, body.program.invars, strict=False)
                    if own[_identity(outer)] is not var}
        program = _renamed(body.program, repeated) if repeated else body.program
        programs.append(program.replace(invars=[*params, *body.own_params], arg_names=()))
    return programs, list(union.values())


def _identity(x: Any) -> Any:
    """What two captured values have in common if they are one: tracers of one variable do."""
    return x.variable if isinstance(x, Tracer) else id(x)


def _renamed(program: Program, names: dict[Var, Var]) -> Program:
    """The program reading other variables; those of its own are not touched."""
    def new(atom: Any) -> Any:
        return names.get(atom, atom) if isinstance(atom, Var) else atom

    return program.replace(
        eqns=[e.replace(invars=tuple(map(new, e.invars))) for e in program.eqns],
        outvars=[new(v) for v in program.outvars])
