"""The mesh for constants that a function creates next to its operands, outside of jit.

A type has an abstract mesh, while an array has devices. A function that runs op by op creates zeros
or masks from the type of an operand, and the ops that do so could not tell on which devices; the
mesh recorded here says which.
"""
from __future__ import annotations

from typing import Any

from ...ir.meshes.mesh import Mesh
from ...ir.settings.context import STATE
from ...ir.shardings.sharding import NamedSharding
from ...ir.spec import PartitionSpec
from ..staging.constants import as_array, put_on_device


class _Meshes:
    """Entered: constants may live on `meshes`."""

    __slots__ = ("meshes", "saved")

    def __init__(self, meshes: tuple[Mesh, ...]) -> None:
        self.meshes = meshes

    def __enter__(self) -> None:
        self.saved = STATE.eager_meshes
        STATE.eager_meshes = (*self.saved, *(m for m in self.meshes if m not in self.saved))

    def __exit__(self, *exception: object) -> None:
        STATE.eager_meshes = self.saved


class _Nothing:
    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


_NOTHING = _Nothing()


def mesh_of_operands(*values: Any) -> _Meshes | _Nothing:
    """A `with` block in which constants may live on the meshes of these arrays.

    Nothing happens while tracing, or where no array is on a mesh with Explicit axes.
    """
    if STATE.interpreter is not None:
        return _NOTHING
    meshes = []
    for x in values:
        aval = getattr(x, "aval", None)
        if aval is not None and aval.sharding.mesh.explicit_axes:
            mesh = getattr(getattr(x, "sharding", None), "mesh", None)
            if isinstance(mesh, Mesh) and mesh not in meshes:
                meshes.append(mesh)
    return _Meshes(tuple(meshes)) if meshes else _NOTHING


def whole_beside(value: Any, x: Any) -> Any:
    """A value that was found on the host, as an array on all devices of the array `x`."""
    out = as_array(value)
    if STATE.interpreter is not None or not getattr(x, "committed", False):
        return out
    sharding = x.sharding
    if isinstance(sharding, NamedSharding):
        ndim = out.ndim if x.aval.has_explicit_mesh() else 0
        return put_on_device(out, sharding.update(spec=PartitionSpec(*(None,) * ndim)))
    return put_on_device(out, sharding) if sharding.num_devices == 1 else out
