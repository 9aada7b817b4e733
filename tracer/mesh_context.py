"""The context mesh: which mesh `PartitionSpec`s refer to, and which one types live on.

`set_mesh` acts at once and also as a context manager; `use_mesh` is the context manager alone.
`use_abstract_mesh` changes only what types see, which is how axes are switched to Auto or Explicit
for a part of a function. All of it is per thread.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any

from ..ir.context import STATE
from ..ir.diagnostic import fail
from ..ir.mesh import AbstractMesh, Mesh, empty_mesh


def _checked(mesh: Any, what: str) -> Mesh:
    if not isinstance(mesh, Mesh):
        fail(ValueError, f"Expected mesh of type `jax.sharding.Mesh`. Got {type(mesh)}",
             code="not-a-mesh", help="make one with `make_mesh((2, 4), ('X', 'Y'))`")
    if STATE.interpreter is not None:
        fail(ValueError, f"`{what}` can only be used outside of `jax.jit`.", code="mesh-in-trace",
             help="enter the mesh around the call of the jitted function")
    if mesh.manual_axes:
        fail(ValueError,
             f"mesh {mesh} contains manual axes which is not allowed when using `jax.{what}`. "
             "Please use `jax.shard_map` to enter into `Manual` mode instead.", code="manual-mesh")
    return mesh


def _enter(mesh: Mesh) -> tuple[Mesh, AbstractMesh]:
    saved = (STATE.mesh, STATE.abstract_mesh)
    STATE.mesh, STATE.abstract_mesh = mesh, mesh.abstract_mesh
    return saved


class set_mesh:
    """Make `mesh` current, at once; as a context manager also restore the previous one.

    `set_mesh(None)` clears it. `with set_mesh(mesh) as m` binds None, as in JAX.
    Raises ValueError for anything but a Mesh, inside of jit, and on Manual axes.
    """

    def __init__(self, mesh: Mesh | None) -> None:
        self._saved = _enter(empty_mesh if mesh is None else _checked(mesh, "set_mesh"))

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        STATE.mesh, STATE.abstract_mesh = self._saved


@contextmanager
def use_mesh(mesh: Mesh):
    """Make `mesh` current within a `with` block."""
    saved = _enter(_checked(mesh, "use_mesh"))
    try:
        yield mesh
    finally:
        STATE.mesh, STATE.abstract_mesh = saved


def get_mesh() -> Mesh:
    """The concrete context mesh, empty where none is set. Only outside of traced functions."""
    if STATE.interpreter is not None:
        fail(ValueError, "`get_mesh` can only be used outside of `jax.jit`. Maybe you want "
             "`jax.sharding.get_abstract_mesh()`?", code="mesh-in-trace")
    return STATE.mesh


def get_abstract_mesh() -> AbstractMesh:
    """The context mesh as types see it: inside shard_map its axes are Manual."""
    return STATE.abstract_mesh


@contextmanager
def use_abstract_mesh(mesh: AbstractMesh):
    """Let types see `mesh` within a `with` block: other names or axis types, the same size."""
    if not isinstance(mesh, AbstractMesh):
        fail(ValueError, f"Expected mesh of type `jax.sharding.AbstractMesh`. Got {type(mesh)}",
             code="not-a-mesh")
    previous = STATE.abstract_mesh
    if previous.axis_names and mesh.axis_names and previous.size != mesh.size:
        fail(ValueError,
             f"use_abstract_mesh cannot change the size of the mesh. Got new mesh: {mesh} with "
             f"size={mesh.size} and prev mesh: {previous} with size={previous.size}",
             code="mesh-size")
    STATE.abstract_mesh = mesh
    try:
        yield mesh
    finally:
        STATE.abstract_mesh = previous
