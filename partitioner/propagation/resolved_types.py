"""Types on a frozen mesh, on which every axis is Explicit, and equations that change a layout."""
from __future__ import annotations

from ...ir.meshes.mesh import AbstractMesh, AxisType, empty_abstract_mesh
from ...ir.op_instance import OpInstance, instance_of
from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.reasons import Reason
from ...ir.shardings.sharding import named_sharding_abstract
from ...ir.source.location import Location
from ...ir.spec import spec_from_entries
from ...ir.support.caches import cached
from ...ir.types import ArrayType, Entries, array_type


@cached(256)
def frozen_mesh(mesh: AbstractMesh, manual: frozenset[str] = frozenset()) -> AbstractMesh:
    """The mesh with every axis Explicit, but for those that are Manual here."""
    kinds = tuple(AxisType.Manual if a in manual else AxisType.Explicit for a in mesh.axis_names)
    return AbstractMesh(mesh.axis_sizes, mesh.axis_names, kinds,
                        abstract_device=mesh.abstract_device)


def typed(aval: ArrayType, mesh: AbstractMesh, entries: Entries,
          pending: frozenset[str] = frozenset()) -> ArrayType:
    """The type on a frozen mesh, laid out by `entries`.

    Axes over which it is reduced stay so where it is whole: they describe its cotangent.
    """
    own = aval.sharding
    reduced = own.spec.reduced
    if own.mesh is mesh and aval.entries == entries and own.spec.unreduced == pending and (
            not reduced):
        return aval
    key, memo = (mesh, entries, pending), aval.memo
    if key in memo:
        return memo[key]
    if reduced:
        reduced -= pending.union(*entries)
    sharding = named_sharding_abstract(mesh, spec_from_entries(entries, pending, reduced))
    found = memo[key] = array_type(aval.shape, aval.dtype, aval.weak_type, sharding, aval.manual,
                                   aval.memory_space)
    return found


def bare_literal(literal: Literal) -> Literal:
    """A scalar constant without a mesh."""
    aval = literal.aval
    return literal if aval.mesh.empty else Literal(literal.val, _bare(aval))


@cached(1024, "scalars of a type")
def _bare(aval: ArrayType) -> ArrayType:
    return array_type((), aval.dtype, aval.weak_type)


def typed_literals(program: Program) -> list[Literal]:
    """The scalar constants read by equations of a program that are typed over a mesh."""
    literals = [a for e in program.eqns for a in e.invars if a.__class__ is Literal]
    over = {t for t in {a.aval for a in literals} if t.mesh is not empty_abstract_mesh}
    return [a for a in literals if a.aval in over] if over else []      # type: ignore[misc]


def without_sharding(instance: OpInstance) -> OpInstance:
    """The instance without its sharding param, which the result's type states."""
    known = instance.table(without_sharding)
    if not known:
        known[()] = instance_of(instance.op, {**instance.params, instance.op.sharding_param: None})  # type: ignore
    return known[()]


def reshard_equation(operand: Atom, aval: ArrayType, location: Location, reason: Reason,
                     name: str | None = None) -> Equation:
    """`operand` brought to the layout of `aval`."""
    if name is None and isinstance(operand, Var):
        name = name_of_form(operand, aval)
    result = Var(aval, name)
    return Equation(reshard_p, (operand,), (result,), {"dst_sharding": aval.sharding}, location,
                    reason)


def name_of_form(var: Var, aval: ArrayType) -> str | None:
    """The name of a value in the layout of `aval`: none for a pending sum."""
    same = aval.sharding.spec.unreduced == var.aval.sharding.spec.unreduced
    return var.name if same else None


def brought(atom: Atom, aval: ArrayType, location: Location, reason: Reason, eqns: list[Equation]
            ) -> Atom:
    """`atom` in the layout of `aval`; adds an equation if that takes one."""
    if atom.aval.sharding is aval.sharding or isinstance(atom, Literal):
        return atom
    eqn = reshard_equation(atom, aval.update(manual=atom.aval.manual), location, reason)
    eqns.append(eqn)
    return eqn.outvars[0]
