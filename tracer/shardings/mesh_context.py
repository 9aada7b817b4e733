"""The context mesh: which mesh `PartitionSpec`s refer to, and which one types live on.

`set_mesh` acts at once and also as a context manager; `use_mesh` is the context manager alone.
`use_abstract_mesh` changes only what types see, which is how axes are switched to Auto or Explicit
for a part of a function. All of it is per thread.
"""
from __future__ import annotations

import opcode
import sys
from types import FrameType
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import AbstractMesh, Mesh, empty_mesh
from ...ir.settings.context import STATE, mesh_context
from ...ir.support.scopes import override

_BEFORE_WITH = opcode.opmap.get("BEFORE_WITH")


def _checked(mesh: Any, what: str) -> Mesh:
    """A mesh that may become the context mesh; anything else is refused."""
    if not isinstance(mesh, Mesh):
        fail(ValueError, f"Expected mesh of type `jax.sharding.Mesh`. Got {type(mesh)}",
             code="not-a-mesh", help="make one with `make_mesh`")
    if STATE.interpreter is not None:
        fail(ValueError, f"`{what}` can only be used outside of `jax.jit`.", code="mesh-in-trace",
             help="enter the mesh around the call of the jitted function")
    if mesh.manual_axes:
        fail(ValueError,
             f"mesh {mesh} contains manual axes which is not allowed when using `jax.{what}`. "
             "Please use `jax.shard_map` to enter into `Manual` mode instead.", code="manual-mesh")
    return mesh


class set_mesh:
    """Make `mesh` current, at once; as a context manager also restore the previous one.

    `set_mesh(None)` clears it. `with set_mesh(mesh) as m` binds None, as in JAX.
    Raises ValueError for anything but a Mesh, inside of jit, and on Manual axes.

    Sharding
      Auto: `P(...)` without a mesh means this mesh, in jit's shardings and constraints.
      Explicit: besides, new arrays and `out_sharding=P(...)` are typed over it.
      Manual: may not be called inside `shard_map`, which sets its own.

    >>> mesh = st.make_mesh((8,), ("x",), axis_types=(st.sharding.AxisType.Explicit,))
    >>> with st.set_mesh(mesh):
    ...     st.typeof(jnp.zeros((16, 2), out_sharding=P("x")))
    ShapedArray(float32[16@x,2])
    """

    def __init__(self, mesh: Mesh | None) -> None:
        checked = empty_mesh if mesh is None else _checked(mesh, "set_mesh")
        self._for_block = _enters(sys._getframe(1))
        self._block = mesh_context(checked)
        self._block.__enter__()

    def __enter__(self) -> None:
        self._for_block = True

    def __exit__(self, *exc: Any) -> None:
        self._block.__exit__()

    def __del__(self) -> None:
        block = getattr(self, "_block", None)
        if block is not None and not self._for_block:
            block.keep()                    # it was called for good


def _enters(frame: FrameType) -> bool:
    """Is a frame about to enter a `with` block with what it calls?"""
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while not code[at]:                     # caches of the call
        at += 2
    return code[at] == _BEFORE_WITH


def use_mesh(mesh: Mesh) -> override:
    """Make `mesh` current within a `with` block.

    Raises ValueError for anything but a Mesh, inside of jit, and on Manual axes.

    >>> with st.sharding.use_mesh(st.make_mesh((8,), ("x",))):
    ...     st.device_put(np.ones(16), P("x")).sharding.spec
    P('x',)
    """
    return mesh_context(_checked(mesh, "use_mesh"), mesh)


def get_mesh() -> Mesh:
    """The concrete context mesh, empty where none is set.

    Raises ValueError inside of traced functions.

    >>> st.sharding.get_mesh().empty
    True
    >>> with st.set_mesh(st.make_mesh((4, 2), ("x", "y"))):
    ...     st.sharding.get_mesh().axis_names
    ('x', 'y')
    """
    if STATE.interpreter is not None:
        fail(ValueError, "`get_mesh` can only be used outside of `jax.jit`. Maybe you want "
             "`jax.sharding.get_abstract_mesh()`?", code="mesh-in-trace")
    return STATE.mesh


def get_abstract_mesh() -> AbstractMesh:
    """The context mesh as types see it: inside shard_map its axes are Manual.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> def axis_types(x):
    ...     print(st.sharding.get_abstract_mesh().axis_types)
    ...     return x
    >>> f = st.shard_map(axis_types, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    >>> x = f(np.ones(8))
    (Manual,)
    """
    return STATE.abstract_mesh


def use_abstract_mesh(mesh: AbstractMesh) -> override:
    """Let types see `mesh` within a `with` block: other names or axis types, the same size.

    Raises ValueError for anything but an AbstractMesh, and for one of another size.

    Sharding
      Auto, Explicit: says which axes of the context count as which, with no devices behind them.
      Manual: axes of the mesh may be Manual; `shard_map` sees to that by itself.

    >>> mesh = st.sharding.AbstractMesh((8,), ("x",), (st.sharding.AxisType.Explicit,))
    >>> x = st.ShapeDtypeStruct((16, 4), np.float32, sharding=st.NamedSharding(mesh, P("x")))
    >>> with st.sharding.use_abstract_mesh(mesh):
    ...     st.eval_shape(lambda x: x.sum(1), x).sharding.spec
    P('x',)
    """
    if not isinstance(mesh, AbstractMesh):
        fail(ValueError, f"Expected mesh of type `jax.sharding.AbstractMesh`. Got {type(mesh)}",
             code="not-a-mesh",
             help="give its `abstract_mesh`, or enter a mesh of devices with `set_mesh`")
    previous = STATE.abstract_mesh
    if previous.axis_names and mesh.axis_names and previous.size != mesh.size:
        fail(ValueError,
             f"use_abstract_mesh cannot change the size of the mesh. Got new mesh: {mesh} with "
             f"size={mesh.size} and prev mesh: {previous} with size={previous.size}",
             code="mesh-size", help=f"choose axis sizes whose product is {previous.size}")
    return override(STATE, mesh, abstract_mesh=mesh)
