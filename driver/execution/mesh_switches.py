"""The mesh of a computation; programs that switch to another one of the same devices in the middle
(`use_abstract_mesh`).

The types say which mesh each value is on. To run, a computation needs one mesh: the common
refinement of all of them (ir/shardings/refinement.py), on which every type and param is stated
anew; results come back on the meshes that their types name.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.manual_state import NOT_MANUAL, ManualState
from ...ir.meshes.mesh import AbstractMesh, AxisType, Mesh, empty_abstract_mesh
from ...ir.ops.communication.sharding import sharding_constraint_p
from ...ir.ops.control.call import jit_p
from ...ir.passes import Pass, pipeline
from ...ir.program import Equation, Program
from ...ir.rewriting.retyped import Retyped
from ...ir.settings.context import STATE, config
from ...ir.shardings.refinement import Refinement, common_refinement
from ...ir.shardings.sharding import NamedSharding
from ...ir.source.wording import warn
from ...ir.spec import PartitionSpec
from ...ir.types import ArrayType
from ...partitioner.preparation.one_mesh import on_one_mesh

_NAMED = ("axes", "axis_name", "axis_names", "manual_axes")     # params that are names of axes


def refinement_of(program: Program, mesh: AbstractMesh) -> Refinement | None:
    """The refinement on which a program runs that uses other meshes than `mesh`; else None.

    None too where the other meshes are all Auto and have no refinement with it: constraints may be
    left open then. Raises ValueError where there is none and types say what must hold.
    """
    if not mesh.axis_names:
        return None
    found = _foreign_meshes(program, mesh)
    if not found:
        return None
    refined = common_refinement([mesh, *found])
    if refined is not None:
        return refined
    if mesh.are_all_axes_auto and all(m.are_all_axes_auto for m in found):
        return None
    other = next(m for m in found if common_refinement([mesh, m]) is None or m is found[-1])
    eqn = next((e for e in program.eqns for v in e.outvars if v.aval.mesh is other), None)
    fail(ValueError, f"{program.name} works on mesh {other} inside, but its arguments and devices "
         f"are on mesh {mesh}: no mesh has axes of which both are made", code="mesh-names",
         location=eqn.location if eqn is not None else program.eqns[0].location,
         notes=("the sizes of the axes, multiplied up from the last, have to divide each other: "
                "(4, 2) and (2, 4) do, (2, 3) and (3, 2) do not",),
         help="choose sizes that cut the devices in the same places")


def _foreign_meshes(program: Program, mesh: AbstractMesh) -> list[AbstractMesh]:
    """Meshes of the same size, but of other axes, that values inside of the program are on."""
    others = program.result_meshes
    if program.consts:
        others = (*[v.aval.mesh for v, _ in program.consts], *others)
    found = [other for other in others
             if other is not mesh and other.axis_names and other.size == mesh.size
             and other.shape_tuple != mesh.shape_tuple]
    if program.holds_programs:
        for _, _, inner in program.subprograms():
            found += _foreign_meshes(inner, mesh)
    return list(dict.fromkeys(found)) if found else found


def refined_mesh(refined: Refinement, mesh: Mesh | None) -> Mesh | None:
    """The refinement over the devices of the first mesh."""
    if mesh is None:
        return None
    abstract = refined.mesh
    if abstract is mesh.abstract_mesh:
        return mesh
    devices = np.asarray(mesh.devices).reshape(abstract.axis_sizes)
    return Mesh(devices, abstract.axis_names, axis_types=abstract.axis_types)


def on_own_mesh(aval: ArrayType, spec: PartitionSpec, refined: Refinement, mesh: Mesh | None,
                memory_kind: str | None = None) -> NamedSharding | None:
    """The sharding of a result on the mesh that its type names, or on another that can express it.

    None where no mesh can. spec: on the refinement. mesh: of the devices; None if abstract.
    """
    explicit = aval.mesh.are_all_axes_explicit and refined.knows(aval.mesh)
    found = None
    for own in [aval.mesh, *refined.meshes]:
        if own.axis_names and refined.knows(own):
            found = aval.spec if explicit else refined.from_refined(own, spec)
            if found is not None:
                break
    if found is None:
        return None
    if not explicit:
        entries = found.entries
        while entries and not entries[-1]:
            entries = entries[:-1]
        found = found.update(partitions=[e or None for e in entries])
    if mesh is None:
        return NamedSharding(own, found)
    concrete = Mesh(np.asarray(mesh.devices).reshape(own.axis_sizes), own.axis_names,
                    axis_types=own.axis_types)
    return NamedSharding(concrete, found, memory_kind=memory_kind)


class _Refined(Retyped):
    """Restates a program, types and params included, on the refinement of all meshes in it."""

    def __init__(self, refined: Refinement) -> None:
        super().__init__()
        self.refined = refined

    def mesh(self, mesh: AbstractMesh) -> AbstractMesh:
        return self.refined.onto(mesh) if mesh.axis_names and self.refined.knows(mesh) else mesh

    def params(self, eqn: Equation) -> dict[str, Any]:
        mesh = eqn.params.get("mesh")
        if isinstance(mesh, AbstractMesh) and self.refined.knows(mesh):
            self._check_region(eqn, mesh)
        near = next((a.aval.mesh for a in (*eqn.outvars, *eqn.invars)
                     if a.aval.mesh.axis_names), self.refined.mesh)
        return {name: self.param(name, value, near) for name, value in eqn.params.items()}

    def _check_region(self, eqn: Equation, mesh: AbstractMesh) -> None:
        """A body names its axes one by one: the refinement has to have each of them, uncut."""
        for axis, parts in self.refined.parts(mesh).items():
            if len(parts) != 1:
                fail(NotImplementedError,
                     f"{eqn.op.name} over mesh {mesh}, whose axis {axis!r} is "
                     f"{' and '.join(map(repr, parts)) or 'none'} of the axes of the computation's "
                     f"mesh {self.refined.mesh}", code="mesh-names", location=eqn.location,
                     help="use a mesh whose axes have the sizes of the computation's mesh here")

    def type(self, aval: ArrayType) -> ArrayType:
        mesh, manual = aval.mesh, aval.manual
        if not mesh.axis_names or not self.refined.knows(mesh):
            return aval
        if manual is not NOT_MANUAL:
            manual = ManualState(*(self.refined.axes(mesh, names) for names in (
                manual.varying, manual.unreduced, manual.reduced)))
        return aval.update(sharding=self.sharding(aval.sharding), manual=manual)

    def sharding(self, sharding: NamedSharding) -> NamedSharding:
        mesh = sharding.mesh.abstract_mesh
        return NamedSharding(self.refined.onto(mesh),
                             self.refined.to_refined(mesh, sharding.spec))

    def param(self, name: str, value: Any, near: AbstractMesh) -> Any:
        """near: the mesh that names of axes in it are of."""
        refined = self.refined
        if isinstance(value, NamedSharding):
            known = value.mesh.axis_names and refined.knows(value.mesh.abstract_mesh)
            return self.sharding(value) if known else value
        if isinstance(value, Program):
            return self.program(value)
        if isinstance(value, AbstractMesh):
            return refined.onto(value) if refined.knows(value) else value
        if isinstance(value, PartitionSpec):
            return refined.to_refined(near, value) if refined.knows(near) else value
        if name in _NAMED and refined.knows(near) and isinstance(value, (tuple, frozenset)):
            return type(value)(refined.axes(near, value))
        if isinstance(value, tuple):
            return tuple([self.param("", v, near) for v in value])
        return value


def _refine(program: Program, mesh: AbstractMesh, refined: Refinement | None) -> Program:
    return program if refined is None else _Refined(refined).program(program)


ONE_MESH = pipeline(
    Pass("refine-mesh", "traced", _refine,
         "types and params are stated on the refinement of all meshes, where there is one",
         needed=True),
    Pass("unify-mesh", "traced", lambda p, mesh, refined: on_one_mesh(p, mesh),
         "constraints over Auto axes are stated on the mesh of the computation", needed=True))
"""The passes that bring a traced program to the mesh that it is partitioned for; they are given
that mesh, and the refinement or None."""


# -- what a program is asked before it is partitioned ----------------------------------------------
# Types or ops that name another mesh are refused; arrays of many bytes that it captures, which are
# in the program then, are warned of.

def mesh_of_types(program: Program, mesh: AbstractMesh) -> AbstractMesh:
    """The mesh to partition for: all axes are open where the types are on no mesh at all."""
    if not mesh.explicit_axes or program.mesh.axis_names or any(
            t.mesh.axis_names for t in program.result_types):
        return mesh
    return mesh.update(axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def abstract_mesh_named(program: Program) -> AbstractMesh:
    """The first abstract mesh that a `with_sharding_constraint` or a `shard_map` of the program
    names, or of those that it holds; empty if none does.
    """
    for eqn in program.walk():
        if eqn.op is sharding_constraint_p or eqn.op.name == "shard_map":
            own = eqn.params["mesh" if "mesh" in eqn.params else "sharding"]
            own = own.mesh if isinstance(own, NamedSharding) else own
            if isinstance(own, AbstractMesh) and own.axis_names:
                return own
    return empty_abstract_mesh


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
            if mesh in inner.attributes.get("meshes", ()):
                return who_named(inner, mesh)
    return "sharding_constraint"


def check_one_mesh(program: Program, mesh: AbstractMesh) -> None:
    """Raise where a value's type is on a mesh with axes that the computation's mesh lacks, or
    blocks are those of other sizes.
    """
    if not mesh.axis_names:
        _check_has_mesh(program)
        return
    _check_sizes(program, mesh)
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


def _check_sizes(program: Program, mesh: AbstractMesh) -> None:
    """Raise where a `shard_map` is over axes that have other sizes on the computation's mesh."""
    for eqn in program.eqns:
        if not eqn.op.subprograms:
            continue
        own = eqn.params["mesh"] if eqn.op.name == "shard_map" else mesh
        if own is not mesh and any(mesh.shape.get(a, n) != n for a, n in own.shape.items()):
            fail(ValueError, f"`shard_map` is over mesh {own}, but its arguments are on mesh "
                 f"{mesh}, whose axes have other sizes", code="mesh-sizes",
                 location=eqn.location, label="the blocks of these devices",
                 help="give both the same mesh; a `shard_map` that names none takes that of the "
                      "context")
        for _, held in eqn.subprograms():
            _check_sizes(held, mesh)


def _check_has_mesh(program: Program) -> None:
    """Raise where a result is split over a mesh that a computation on one device never used."""
    if STATE.abstract_mesh.axis_names:
        return                              # the mesh is known, its devices are not needed yet
    for aval in (v.aval for v in program.outvars):
        if aval.mesh.axis_names and aval.mesh.are_all_axes_explicit and aval.mesh.size > 1:
            fail(ValueError, "Length of device assignment 1 is not equal to the size of the mesh "
                 f"{aval.mesh.size} of aval {aval.str_short(True)}. Please enter your `jit` into a "
                 "mesh context via `jax.set_mesh`.", code="mesh-without-devices",
                 help="make the call under `set_mesh`, with the mesh of the arguments")


def warn_of_captured(program: Program) -> None:
    """Warn if the program captures `jax_captured_constants_warn_bytes` bytes or more."""
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
