"""What a program is asked before it is partitioned: which mesh it runs on, and what it captures.

Types or ops that name another mesh are refused; arrays of many bytes that it captures, which are in
the program then, are warned of.
"""
from __future__ import annotations

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import AbstractMesh, AxisType, Mesh
from ...ir.ops.communication.sharding import sharding_constraint_p
from ...ir.ops.control.call import jit_p
from ...ir.program import Program
from ...ir.settings.context import STATE, config
from ...ir.shardings.sharding import NamedSharding
from ...ir.source.wording import warn


def mesh_of_types(program: Program, mesh: AbstractMesh) -> AbstractMesh:
    """The mesh to partition for: all axes are open where the types are on no mesh at all."""
    if not mesh.explicit_axes or program.mesh.axis_names or any(
            t.mesh.axis_names for t in program.result_types):
        return mesh
    return mesh.update(axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def who_named(program: Program, mesh: Mesh) -> str:
    """The op of a program that names a concrete mesh, which may be in a program that it holds."""
    calls = {str(eqn.location) for eqn in program.eqns if eqn.op is jit_p}
    for eqn in program.eqns:
        for param in eqn.params.values():
            if isinstance(param, NamedSharding):
                param = param.mesh
            if param is mesh or param is mesh.abstract_mesh:
                if eqn.op is sharding_constraint_p and str(eqn.location) in calls:
                    return jit_p.name                 # of in_shardings or out_shardings
                return eqn.op.name
        for _, inner in eqn.subprograms() if eqn.op.subprograms else ():
            if mesh in inner.memo.get("meshes", ()):
                return who_named(inner, mesh)
    return "sharding_constraint"


def check_one_mesh(program: Program, mesh: AbstractMesh) -> None:
    """Raise where a value's type is on a mesh with axes that the computation's mesh lacks."""
    if not mesh.axis_names:
        _check_has_mesh(program)
        return
    names = set(mesh.axis_names)
    if all([m is mesh or names.issuperset(m.axis_names) for m in program.result_meshes]):
        return
    for eqn in program.eqns:
        for v in eqn.outvars:
            other = v.aval.mesh
            if other is not mesh and not names.issuperset(other.axis_names):
                fail(ValueError,
                     f"{program.name} works on mesh {other} inside, but its arguments and devices "
                     f"are on mesh {mesh}: a computation has one set of axis names",
                     code="mesh-names", location=eqn.location, label=f"this is {v.aval}",
                     help="give the axes of both meshes the same names and sizes, or call "
                          f"{program.name} under a mesh with the axes {other.axis_names}")


def _check_has_mesh(program: Program) -> None:
    """Raise where a result is split over a mesh that a computation on one device never met."""
    if STATE.abstract_mesh.axis_names:
        return                              # the mesh is known, its devices are not needed yet
    for aval in (v.aval for v in program.outvars):
        if aval.mesh.axis_names and aval.mesh.are_all_axes_explicit and aval.mesh.size > 1:
            fail(ValueError, "Length of device assignment 1 is not equal to the size of the mesh "
                 f"{aval.mesh.size} of aval {aval.str_short(True)}. Please enter your `jit` into a "
                 "mesh context via `jax.set_mesh`.", code="mesh-without-devices",
                 help="make the call under `set_mesh`, with the mesh of the arguments")


def warn_of_captured(program: Program) -> None:
    """Warn if what the program captures is of `jax_captured_constants_warn_bytes`, or more."""
    limit = config.read("jax_captured_constants_warn_bytes")
    sizes = [getattr(x, "nbytes", 0) for _, x in program.consts]
    total = sum(sizes)
    if limit == -1 or total < limit:
        return
    largest, _ = program.consts[sizes.index(max(sizes))]
    user = next((e for e in program.eqns if largest in e.invars), None)
    used = "" if user is None else f", which `{user.location.text()}` uses, on line {user.location}"
    warn(f"A large amount of constants were captured during lowering ({total:,} bytes total). "
         "If this is intentional, disable this warning by setting "
         f"JAX_CAPTURED_CONSTANTS_WARN_BYTES=-1. The largest is {largest.aval.str_short(True)}"
         f"{used}. Passed as an argument of the function, it would not be in its program.")
