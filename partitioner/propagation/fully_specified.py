"""Fully specified programs skip propagation: their types already give every sharding.

Over Explicit axes, and without a mesh, tracing has decided the sharding of each value, including in
loops, branches and shard_map bodies. The RESOLVED program is then the traced one, with the same
variables and equations, except for values whose given or requested sharding differs from their
type, shardings in params (the result's type has them), and reshards that change nothing. The
propagation problem is set up on demand, for reports.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.facts import PER_DEVICE
from ...ir.meshes.mesh import AbstractMesh
from ...ir.op_instance import SIGNATURES, Signature
from ...ir.ops.communication.sharding import reshard_p, sharding_constraint_p
from ...ir.passes import LayoutConstraints
from ...ir.program import Atom, Equation, Level, Literal, Program, Var
from ...ir.reasons import LEAVES_SO, TAKES_AS, Reason, operand
from ...ir.source.location import UNKNOWN, Location
from ...ir.spec import UNCONSTRAINED, PartitionSpec
from ...ir.support.caches import cached
from ...ir.types import ArrayType
from ..regions import has_region, region_of, with_programs
from .boundary_reasons import CAPTURED_USES, asked_reason, defined_at, layout_reason, slices_reason
from .origins import WHEN_ASKED, Origins
from .program_graph import boundary_entries
from .propagate import check_ends, solve
from .resolve import enlarges
from .resolved_types import (
    bare_literal,
    brought,
    frozen_mesh,
    typed,
    typed_literals,
    without_sharding,
)


def is_decided(program: Program, mesh: AbstractMesh) -> bool:
    """Do the types of a TRACED program determine every layout over the axes of `mesh`?"""
    return (mesh.are_all_axes_explicit or not mesh.axis_names) and _is_decided(
        program, mesh, mesh)


def _is_decided(program: Program, mesh: AbstractMesh, own: AbstractMesh) -> bool:
    """own: the mesh of the types, with Manual axes in the body of a shard_map."""
    if sharding_constraint_p in program.ops:
        return False
    meshes = {*[v.aval.mesh for v in program.invars], *program.result_meshes}
    if program.consts:
        meshes.update([v.aval.mesh for v, _ in program.consts])
    for found in meshes:
        if found is not own and not found.empty and (
                own is mesh or found.axis_types != own.axis_types
                or found.shape_tuple != own.shape_tuple):
            return False
    return not program.holds_programs or all([
        _is_decided_inside(eqn, mesh, own) for eqn in program.eqns if eqn.op.subprograms])


def _is_decided_inside(eqn: Equation, mesh: AbstractMesh, own: AbstractMesh) -> bool:
    """Do all names of a value, inside and outside of this equation, have the same layout by their
    types?
    """
    if PER_DEVICE in eqn.op.facts:
        body_atoms = _mesh_inside(eqn, mesh, own)
        return _is_decided(eqn.params["jaxpr"], mesh, body_atoms) and all([
            all([axes[:len(p)] == p for axes, p in zip(
                v.aval.entries, boundary_entries(spec, v.aval.ndim), strict=True)])
            for v, spec in zip(eqn.outvars, eqn.params["out_specs"], strict=True) if v.aval.shape])
    if not has_region(eqn):
        return True
    region = region_of(eqn)
    for slot in region.slots:
        names = region.body_atoms(slot)
        if slot.result >= 0 and not slot.stacked:
            names = (*names, eqn.outvars[slot.result])
        first = names[0].aval
        entries, pending = first.entries, first.sharding.spec.unreduced
        for a in names:
            t = a.aval
            if t is not first and (t.entries != entries or t.sharding.spec.unreduced != pending):
                return False
        if slot.stacked and slot.result >= 0 and (
                eqn.outvars[slot.result].aval.entries != ((), *entries)):
            return False
    return all([_is_decided(body_atoms, mesh, own) for _, _, body_atoms in region.programs])


def _mesh_inside(eqn: Equation, mesh: AbstractMesh, own: AbstractMesh) -> AbstractMesh:
    """The mesh in the body of a shard_map."""
    return frozen_mesh(mesh, frozenset(eqn.params["manual_axes"]).union(own.manual_axes))


def decide(program: Program, mesh: AbstractMesh, in_shardings: Sequence[PartitionSpec | None],
           out_shardings: Sequence[PartitionSpec | None]) -> Program:
    """The RESOLVED program for one that `is_decided`."""
    check_ends(program, mesh, in_shardings, out_shardings)
    writer = _Writer(mesh)
    new = writer.whole(program, in_shardings, out_shardings)

    def origins() -> Origins:
        solution = solve(program, mesh, in_shardings, out_shardings)
        now, gone = writer.now, writer.gone
        return Origins(solution, {new: t for v, t in solution.graph.index.items()
                                  if v not in gone and isinstance(new := now.get(v, v), Var)})
    new.attributes[WHEN_ASKED] = origins
    if writer.places:
        new.attributes[LayoutConstraints.KEY] = LayoutConstraints(None, writer.places)
    return new


Arrivals = Mapping[Var, tuple[ArrayType, Location, Reason]]


@cached(4096)
def _type_on(aval: ArrayType, mesh: AbstractMesh) -> ArrayType:
    """The type on a frozen mesh."""
    return typed(aval, mesh, aval.entries, aval.sharding.spec.unreduced)


@cached(4096)
def _type_as(aval: ArrayType, spec: PartitionSpec, mesh: AbstractMesh) -> ArrayType:
    """The type on a frozen mesh of a parameter given as `spec`, or of a result asked for as such.
    """
    entries = tuple([own if axes is UNCONSTRAINED else axes for own, axes in
                     zip(aval.entries, spec.padded(aval.ndim).entries, strict=True)])
    return typed(aval, mesh, entries, spec.unreduced)


class _Writer:
    """now: atom to its replacement. gone: replaced atoms that are not variables any more. plain:
    whether every value so far only moved to the frozen mesh, keeping its type otherwise.
    """

    def __init__(self, mesh: AbstractMesh) -> None:
        self.mesh = mesh
        self.now: dict[Atom, Atom] = {}
        self.gone: set[Var] = set()
        self.places: dict[Var, Location] = {}       # reasons of results with an out_sharding
        self.plain = True

    # -- programs --------------------------------------------------------------------------------

    def whole(self, old: Program, in_shardings: Sequence[PartitionSpec | None],
              out_shardings: Sequence[PartitionSpec | None]) -> Program:
        """The RESOLVED program: arguments and results have the shardings that were given and asked
        for, with a reshard of each result of another type.
        """
        mesh = frozen_mesh(self.mesh)
        invars = []
        for v, spec in zip(old.invars, in_shardings, strict=True):
            aval = v.aval
            new = own = _type_on(aval, mesh)
            if spec is not None and aval.shape:
                new = _type_as(aval, spec, mesh)
                self.plain = self.plain and new is own
            if new is not aval:
                self.now[v] = v = Var(new, v.name)
            invars.append(v)
        consts, eqns = self.body(old, mesh)
        more: list[Equation] = []
        outvars = [self.result(old, i, atom, spec, mesh, more)
                   for i, (atom, spec) in enumerate(zip(old.outvars, out_shardings, strict=True))]
        return _resolved(old, mesh, invars, consts, [*eqns, *more] if more else eqns, outvars)

    def nested(self, old: Program, mesh: AbstractMesh, targets: Sequence[ArrayType | None],
               arrivals: Arrivals) -> Program:
        """A program that an equation holds. targets: the types in which the results of a shard_map
        leave. arrivals: parameters that arrive in another type than they have inside, and why.
        """
        invars, first = [], []
        for v in old.invars:
            aval = _type_on(v.aval, mesh)
            if v in arrivals:
                come, location, reason = arrivals[v]
                given = Var(come, v.name)
                self.now[v] = atom = brought(given, aval, location, reason, first)
                self.plain = self.plain and atom.aval is aval
                invars.append(given)
            else:
                invars.append(self.bind(v, aval))
        consts, eqns = self.body(old, mesh, first)
        outvars = [self.atom(a) for a in old.outvars]
        more: list[Equation] = []
        for i, target in enumerate(targets):
            if target is not None and outvars[i].aval is not target:
                outvars[i] = brought(outvars[i], target, defined_at(old, old.outvars[i]),
                                     (LEAVES_SO(),), more)
        return _resolved(old, mesh, invars, consts, [*eqns, *more] if more else eqns, outvars)

    def atom(self, atom: Atom) -> Atom:
        """The replacement of an atom."""
        if not isinstance(atom, Literal):
            return self.now.get(atom, atom)
        bare = bare_literal(atom)
        self.plain = self.plain and bare is atom
        return bare

    def bind(self, var: Var, aval: ArrayType) -> Var:
        if aval is not var.aval:
            self.now[var] = var = Var(aval, var.name)
        return var

    def constant(self, var: Var, mesh: AbstractMesh, eqns: list[Equation]) -> Var:
        """A captured array, which is whole; if its readers want blocks, these are taken at once."""
        aval = var.aval
        self.gone.add(var)
        whole = typed(aval, mesh, ((),) * aval.ndim)
        new = var if whole is aval else Var(whole, var.name)
        own = _type_on(aval, mesh)
        atom = brought(new, own, UNKNOWN, CAPTURED_USES, eqns)
        self.plain = self.plain and atom.aval is own
        if atom is not var:
            self.now[var] = atom
        return new

    def result(self, old: Program, i: int, atom: Atom, spec: PartitionSpec | None,
               mesh: AbstractMesh, eqns: list[Equation]) -> Atom:
        """Result i of the old program, with a reshard if it was asked for in another sharding."""
        if isinstance(atom, Literal):
            return bare_literal(atom)
        new, wanted = self.now.get(atom, atom), _type_on(atom.aval, mesh)
        if spec is not None:
            own, wanted = wanted, _type_as(atom.aval, spec, mesh)
            self.plain = self.plain and wanted is own
        if new.aval is wanted:
            return new
        return brought(new, wanted, defined_at(old, atom), asked_reason(old, i, spec), eqns)

    # -- equations -------------------------------------------------------------------------------

    def body(self, old: Program, mesh: AbstractMesh, eqns: Sequence[Equation] = ()
             ) -> tuple[list[tuple[Var, Any]], Sequence[Equation]]:
        """The captured arrays and the equations. eqns: those to begin with."""
        out = list(eqns)
        consts = [(self.constant(v, mesh, out), value) for v, value in old.consts]
        now = self.now
        types = {t: new for t in old.result_types if (new := _type_on(t, mesh)) is not t}
        pairs: dict[Any, Signature] = {}        # equations by what they are made from
        for literal in typed_literals(old):
            now[literal] = self.atom(literal)
        for eqn in old.eqns:
            op, operands, outvars = eqn.op, eqn.invars, eqn.outvars
            if now:
                operands = tuple(map(now.get, operands, operands))      # type: ignore[arg-type]
            if op is reshard_p:
                self.reshard(eqn, operands[0], types, out)
                continue
            if op.subprograms and self.with_programs(eqn, operands, mesh, types, out):
                continue
            instance, name = None, op.sharding_param
            if name is not None and eqn.params.get(name) is not None:
                instance = without_sharding(eqn.instance)
            if types:
                if len(outvars) == 1 and outvars[0].aval in types:
                    (var,) = outvars
                    aval = types[var.aval]
                    new = now[var] = Var(aval, var.name)
                    key = eqn.types if self.plain else (tuple([a.aval for a in operands]), aval)
                    pair = pairs.get(key)
                    if pair is None:
                        pair = pairs[key] = SIGNATURES[tuple([a.aval for a in operands]), (aval,)]
                    eqn = eqn.with_operands(operands, (new,), instance)
                    eqn.known_types = pair
                else:
                    eqn = eqn.with_operands(operands, self.bound(outvars, types), instance)
            elif instance is not None or operands != eqn.invars:
                eqn = eqn.with_operands(operands, outvars, instance)
            if instance is not None and eqn.location.known and not eqn.location.transform:
                self.places.update(dict.fromkeys(eqn.outvars, eqn.location))
            out.append(eqn)
        return consts, out

    def bound(self, outvars: Sequence[Var], types: Mapping[ArrayType, ArrayType]) -> Sequence[Var]:
        return [self.bind(v, types.get(v.aval, v.aval)) for v in outvars] if types else outvars

    def reshard(self, eqn: Equation, operand: Atom, types: Mapping[ArrayType, ArrayType],
                eqns: list[Equation]) -> None:
        """A reshard; nothing if the operand has the layout already."""
        (result,) = eqn.outvars
        target = types.get(result.aval, result.aval)
        whole = isinstance(operand, Literal) and not target.sharding.spec.unreduced
        if whole or operand.aval.sharding is target.sharding:
            self.now[result] = operand
            self.gone.add(result)
            self.plain = self.plain and operand.aval is target
            return
        eqns.append(Equation(reshard_p, (operand,), (self.bind(result, target),),
                             {"dst_sharding": target.sharding}, eqn.location))

    def with_programs(self, eqn: Equation, given: Sequence[Atom], mesh: AbstractMesh,
                      types: Mapping[ArrayType, ArrayType], eqns: list[Equation]) -> bool:
        """Append an equation whose programs have layouts of their own; returns False for any other.
        """
        operands = list(given)
        if PER_DEVICE in eqn.op.facts:
            params = self.shard_map(eqn, operands, mesh, eqns)
        elif has_region(eqn):
            params = self.region(eqn, operands, mesh, eqns)
        else:
            return False
        eqns.append(Equation(eqn.op, operands, self.bound(eqn.outvars, types), params,
                             eqn.location, eqn.reason))
        return True

    def shard_map(self, eqn: Equation, operands: list[Atom], mesh: AbstractMesh,
                  eqns: list[Equation]) -> dict[str, Any]:
        """The params of a `shard_map` with its body resolved. An operand is resharded (into
        `operands` and `eqns`) if its sharding is not the one of its `in_spec` and the body's
        parameter.
        """
        body: Program = eqn.params["jaxpr"]
        inside = _mesh_inside(eqn, self.mesh, mesh)
        for i, (v, spec) in enumerate(zip(body.invars, eqn.params["in_specs"], strict=True)):
            new, outer = operands[i], eqn.invars[i].aval
            if outer.shape:
                prefix = boundary_entries(spec, outer.ndim)
                entries = tuple([p + t for p, t in zip(prefix, v.aval.entries, strict=True)])
                if new.aval.entries != entries:
                    operands[i] = brought(
                        new, typed(outer, mesh, entries, new.aval.sharding.spec.unreduced),
                        eqn.location, (TAKES_AS("shard_map", operand(i), str(spec)),), eqns)
        targets: list[ArrayType | None] = []
        for v, atom, spec in zip(eqn.outvars, body.outvars, eqn.params["out_specs"], strict=True):
            if not v.aval.shape or isinstance(atom, Literal):
                targets.append(None)
                continue
            tail = tuple([axes[len(p):] for axes, p in zip(
                v.aval.entries, boundary_entries(spec, v.aval.ndim), strict=True)])
            targets.append(typed(atom.aval, inside, tail, atom.aval.sharding.spec.unreduced))
        return {**eqn.params, "jaxpr": self.nested(body, inside, targets, {}), "mesh": mesh}

    def region(self, eqn: Equation, operands: list[Atom], mesh: AbstractMesh,
               eqns: list[Equation]) -> dict[str, Any]:
        """The params of a loop or branch with its bodies resolved. An operand is resharded to the
        sharding of its parameter; slices of a stack may arrive in the body as the stack is split.
        """
        region = region_of(eqn)
        arrivals: dict[Var, tuple[ArrayType, Location, Reason]] = {}
        for slot in region.slots:
            if slot.operand < 0:
                continue
            p, i = slot.inputs[0]
            leader = region.programs[p][2].invars[i]
            old, entries = operands[slot.operand].aval, leader.aval.entries
            outer = ((), *entries) if slot.stacked else entries
            if old.entries == outer:
                continue
            if slot.stacked and enlarges(old, outer):
                have = typed(leader.aval, mesh, old.entries[1:])
                arrivals[leader] = have, eqn.location, slices_reason(eqn)
                outer = ((), *old.entries[1:])
            aval = typed(old, mesh, outer, old.sharding.spec.unreduced)
            operands[slot.operand] = brought(operands[slot.operand], aval, eqn.location,
                                             layout_reason(eqn), eqns)
        return with_programs(eqn.params, {
            (name, place): self.nested(body_atoms, mesh, (), arrivals)
            for name, place, body_atoms in region.programs})


def _resolved(old: Program, mesh: AbstractMesh, invars: Sequence[Var],
              consts: Sequence[tuple[Var, Any]], eqns: Sequence[Equation], outvars: Sequence[Atom]
              ) -> Program:
    return Program(old.name, invars, eqns, outvars, consts=consts, mesh=mesh,
                   level=Level.RESOLVED, arg_names=old.arg_names, result_names=old.result_names)
