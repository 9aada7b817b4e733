"""The mesh of a plan: the one that is given, or those that a number of devices can form."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..ir.diagnostics.diagnostic import fail
from ..ir.meshes.mesh import AbstractMesh, AxisType, Mesh
from ..ir.settings.context import STATE
from ..ir.shardings.sharding import NamedSharding

NAMES = ("data", "model", "part")          # of the axes of a mesh that is chosen
MOST_AXES = 3


def given_mesh(mesh: Any, leaves: Sequence[Any]) -> Mesh | AbstractMesh | int:
    """The requested mesh, or the number of devices from which one is to be formed.

    mesh: a mesh, sizes by axis name, a number, or None for the mesh of the arguments or else of the
    context. Raises TypeError and ValueError for anything else, and for Manual axes.
    """
    if mesh is None:
        mesh = next((s.mesh for x in leaves
                     if isinstance(s := getattr(x, "sharding", None), NamedSharding)), None)
        if mesh is None:
            context = STATE.mesh or STATE.abstract_mesh
            mesh = context if context is not None and context.axis_names else None
    if mesh is None:
        fail(TypeError, "autoshard() needs a mesh or a number of devices", code="mesh",
             help="write mesh=64 for the best mesh of 64 devices, or mesh=AbstractMesh((8, 8), "
                  "(\"data\", \"model\"))")
    if isinstance(mesh, bool) or not isinstance(mesh, (int, Mapping, Mesh, AbstractMesh)):
        fail(TypeError, "mesh must be a Mesh, an AbstractMesh, sizes by names of axes, or a number "
             f"of devices, got {mesh!r}", code="mesh",
             help="write mesh=64, or mesh={\"data\": 8, \"model\": 8}")
    if isinstance(mesh, Mapping):
        return AbstractMesh(tuple(mesh.values()), tuple(mesh),
                            axis_types=(AxisType.Auto,) * len(mesh))
    if isinstance(mesh, int):
        if mesh < 1:
            fail(ValueError, f"mesh is {mesh}: a mesh has at least one device", code="mesh",
                 help="give the number of devices, such as 8, or sizes by name, {'data': 8}")
        return mesh
    others = [str(a) for a, t in zip(mesh.axis_names, mesh.axis_types, strict=True)
              if t is AxisType.Manual]
    if others:
        fail(ValueError, f"autoshard() chooses specs over Auto and Explicit axes; "
             f"{', '.join(others)} of the mesh are Manual, over which a `shard_map` says them",
             code="mesh-axis-types", help="call it outside of the `shard_map`")
    return mesh


def searched_mesh(mesh: Mesh | AbstractMesh) -> Mesh | AbstractMesh:
    """The mesh with only Auto axes, on which plans are searched."""
    types = (AxisType.Auto,) * len(mesh.axis_names)
    return mesh if mesh.axis_types == types else mesh.update(axis_types=types)


def meshes_of(devices: int) -> Iterator[AbstractMesh]:
    """The meshes of this many devices, each axis at least as long as the next."""
    for sizes in _factors(devices, MOST_AXES, devices):
        sizes = sizes or (devices,)
        yield AbstractMesh(sizes, NAMES[:len(sizes)], axis_types=(AxisType.Auto,) * len(sizes))


def _factors(n: int, axes: int, longest: int) -> Iterator[tuple[int, ...]]:
    if n == 1:
        yield ()
        return
    if axes == 0:
        return
    for first in range(min(n, longest), 1, -1):
        if n % first == 0 and first ** axes >= n:
            for rest in _factors(n // first, axes - 1, first):
                yield (first, *rest)
