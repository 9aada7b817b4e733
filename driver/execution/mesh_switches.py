"""Programs that switch to another mesh of the same devices in the middle (`use_abstract_mesh`).

The types say which mesh each value is on. To run, a computation needs one mesh: the common
refinement of all of them (ir/shardings/refinement.py), on which every type and param is stated
anew; results come back on the meshes that their types name.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.manual_state import NOT_MANUAL, ManualState
from ...ir.meshes.mesh import AbstractMesh, Mesh
from ...ir.passes import Pass
from ...ir.program import Equation, Program
from ...ir.rewriting.retyped import Retyped
from ...ir.shardings.refinement import Refinement, common_refinement
from ...ir.shardings.sharding import NamedSharding
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
    """How a result lies on the mesh that its type names, or else on another that can say it.

    None where none of the meshes can. spec: on the refinement. mesh: that of the devices; None for
    an abstract one.
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
        """A body names its axes one by one: each has to be an axis of the refinement as it is."""
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


ONE_MESH: tuple[Pass, ...] = (
    Pass("refine-mesh", "", _refine,
         "types and params are stated on the refinement of all meshes, where there is one"),
    Pass("unify-mesh", "", lambda p, mesh, refined: on_one_mesh(p, mesh),
         "constraints over Auto axes are stated on the mesh of the computation"))
"""The passes that bring a traced program to the mesh that it is partitioned for; they are given
that mesh, and the refinement or None."""
