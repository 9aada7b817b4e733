"""Writes the decisions of a plan into a program, as constraints.

A `sharding_constraint` follows each value that a decision is about, and precedes each read that
takes it in another layout. Their reason is `THE_PLAN`, so that reports name it.
"""
from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping, Sequence

from ...ir.facts import PER_DEVICE
from ...ir.meshes.axes import axis_size
from ...ir.meshes.mesh import AbstractMesh, Mesh
from ...ir.ops.communication.sharding import sharding_constraint_p
from ...ir.program import Atom, Equation, Program, Var
from ...ir.reasons import Reason
from ...ir.rewriting.retyped import OnMesh
from ...ir.shardings.sharding import NamedSharding
from ...ir.source.location import Location
from ...ir.spec import PartitionSpec, spec_from_entries
from ...ir.types import ArrayType
from ...partitioner.frozen_plan import THE_PLAN
from .decisions import Decision, Key, Place, found_places, named_arguments, named_results

Pins = Mapping[Place, PartitionSpec]


def parsed_spec(text: str) -> PartitionSpec:
    """The spec in a text such as `P('data', None)`. Raises ValueError for any other text."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
                and call.func.id == "P" and {k.arg for k in call.keywords} <= {"unreduced"}):
            raise ValueError
        return PartitionSpec(*[ast.literal_eval(a) for a in call.args],
                             **{str(k.arg): ast.literal_eval(k.value) for k in call.keywords})
    except (SyntaxError, ValueError, TypeError):
        raise ValueError(f"{text!r} is no spec; write P('X', None)") from None


def fitted(program: Program, decisions: Iterable[Decision], mesh: Mesh | AbstractMesh,
           partial: bool = False) -> tuple[Program, dict[Key, str]]:
    """(the inlined program with these decisions as constraints, why other decisions do not fit).
    Over Explicit axes types have decided, and the program stays as it is. partial: whether they are
    constraints like those of a user, beside which plans are compared as ever.
    """
    known = {d.key: d for d in decisions}
    pins: dict[Place, PartitionSpec] = {}
    unfit: dict[Key, str] = {}
    arguments = {d.key.name: d for d in known.values() if d.key.kind == "argument"}
    at = [(Key("argument", name), Place((), "parameter", i), v.aval)
          for i, (name, v) in enumerate(named_arguments(program)) if name in arguments]
    at += [(f.key, f.place, f.atom.aval) for f in found_places(program) if f.key in known]
    at += [(key, Place((), "end", k), v.aval) for k, (name, v) in enumerate(
        named_results(program)) if (key := Key("result", name)) in known]
    for key, place, aval in at:
        spec = parsed_spec(known[key].spec)
        why = misfit(aval, spec, mesh.abstract_mesh)
        if why:
            unfit[key] = why
        elif not mesh.abstract_mesh.explicit_axes and not aval.varying:
            pins[place] = spec
    if not pins:
        return program, unfit
    return _pinned(OnMesh(mesh.abstract_mesh).program(program), pins, mesh,
                   () if partial else THE_PLAN), unfit


def misfit(aval: ArrayType, spec: PartitionSpec, mesh: AbstractMesh) -> str:
    """Why a value of this type cannot have the spec; "" if it can."""
    if len(spec) > aval.ndim:
        return f"it has {aval.ndim} dimensions now"
    for d, axes in enumerate(spec.padded(aval.ndim).entries):
        unknown = [a for a in axes if not _has_axis(mesh, a)]
        if unknown:
            return f"the mesh has no axis {', '.join(map(repr, unknown))} now"
        parts = math.prod([axis_size(a, mesh.shape) for a in axes])
        if parts > max(aval.shape[d], 1):
            return f"dimension {d} of size {aval.shape[d]} cannot be split {parts} ways"
    return ""


def _has_axis(mesh: AbstractMesh, name: str) -> bool:
    """Does the mesh have this axis, or the axis of which this is a part?"""
    try:
        return axis_size(name, mesh.shape) > 0
    except (KeyError, ValueError):
        return False


def _pinned(program: Program, pins: Pins, mesh: Mesh | AbstractMesh, reason: Reason,
            path: tuple = ()) -> Program:
    """The program with a `sharding_constraint` for each pin that names a place in it. reason: of
    these; path: to this program inside the outermost one.
    """
    out: list[Equation] = []
    same: dict[Atom, Var] = {}
    pinned: dict[Atom, PartitionSpec] = {}

    def constrained(a: Atom, spec: PartitionSpec, location: Location) -> Var:
        now = same.get(a, a)
        params: dict = {"sharding": NamedSharding(mesh, spec_from_entries(
            spec.padded(a.aval.ndim).entries))}
        if spec.unreduced:
            params["unreduced"] = tuple(sorted(spec.unreduced))
        made = Var(sharding_constraint_p.infer(now.aval, **params), getattr(a, "name", None))
        out.append(Equation(sharding_constraint_p, (now,), (made,), params, location, reason))
        return made

    def pin(role: str, n: int, values: Sequence[Var], location: Location) -> None:
        for i, v in enumerate(values):
            spec = pins.get(Place(path, role, i, n))
            if spec is not None:
                same[v] = constrained(v, spec, location)
                pinned[v] = spec

    first = program.eqns[0].location if program.eqns else Location.at("<unknown>", 0)
    pin("parameter", -1, program.invars, first)
    for n, eqn in enumerate(program.eqns):
        operands = []
        for i, a in enumerate(eqn.invars):
            spec = pins.get(Place(path, "operand", i, n))
            operands.append(same.get(a, a) if spec is None else constrained(a, spec, eqn.location))
        params = dict(eqn.params)
        for name in eqn.op.subprograms if PER_DEVICE not in eqn.op.facts else ():
            held = params[name]
            params[name] = (
                tuple([_pinned(p, pins, mesh, reason, (*path, (n, name, j)))
                       for j, p in enumerate(held)]) if isinstance(held, tuple)
                else _pinned(held, pins, mesh, reason, (*path, (n, name, -1))))
        out.append(eqn.replace(invars=tuple(operands), params=params))
        pin("value", n, eqn.outvars, eqn.location)
    ends: list[Atom] = []
    for k, a in enumerate(program.outvars):     # a value may be resharded as a result
        spec = pins.get(Place(path, "end", k))
        if spec is None or not isinstance(a, Var) or pinned.get(a) == spec:
            ends.append(same.get(a, a))
        else:
            ends.append(constrained(a, spec, program.eqns[-1].location if program.eqns else first))
    return program.replace(eqns=out, outvars=ends)


