"""device_put, inside and outside of traced functions.

Outside it moves data (arrays/transfer.py). Inside nothing can be moved yet: over Explicit
axes the request is a reshard, over Auto axes a constraint, and a single device is left to the whole
computation, as in JAX.
"""
from __future__ import annotations

from typing import Any

from ...arrays import transfer
from ...arrays.array import ArrayImpl
from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.device import Device
from ...ir.meshes.memory import MemorySpace, space_of_kind
from ...ir.meshes.mesh import Mesh
from ...ir.ops.communication.sharding import reshard_p, sharding_constraint_p
from ...ir.ops.elementwise.identity import device_put_p
from ...ir.settings.context import STATE
from ...ir.settings.managers import transfer_guarded
from ...ir.shardings.formats import Format, Layout
from ...ir.shardings.gspmd import GSPMDSharding, named_on, single_device_mesh
from ...ir.shardings.sharding import NamedSharding, Sharding, named_sharding_abstract
from ...ir.spec import PartitionSpec
from ...ir.values.typeof import typeof
from ...tracer.shard_map.region_values import BlockBuilder
from ...tracer.staging.builder import record_mesh
from ...tracer.staging.tracer import Tracer
from ...tracer.trees import tree
from .guards import guard_move


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False,
               may_alias: bool | None = None) -> Any:
    """The arrays of the pytree `x`, on `device`: a Device, a Sharding, a PartitionSpec (on the
    context mesh), a Format, a memory Space, None, or a tree prefix of these.

    With None an array stays where it is, and other values go to the default device, uncommitted;
    else the result is committed. An array that is placed so already is returned as it is.
    donate: True (or a tree prefix) deletes the arrays of `x` that were moved. may_alias: True lets
    the result share memory with a numpy array, False makes a new array in any case. src is not
    needed: arrays know where they are.
    Inside jit: over Explicit axes a reshard, over Auto axes a constraint.
    Raises ValueError (IndivisibleError where axes do not divide a dimension) for a spec that does
    not fit, an unknown target, donate together with may_alias; TypeError for what is no array.

    Sharding
      Auto: the array is laid out as asked; inside `jit` that is a constraint.
      Explicit: the result's type shows the sharding; inside `jit` that is a `reshard`.
      Manual: ValueError for Manual axes: a block cannot be placed over them.

    >>> mesh = st.make_mesh((4, 2), ("x", "y"))
    >>> x = st.device_put(np.ones((8, 2)), st.NamedSharding(mesh, P("x", "y")))
    >>> x.addressable_shards[0].data.shape
    (2, 1)
    >>> first, second = st.device_put([1.0, 2.0], st.devices()[:2])
    >>> second.device
    CpuDevice(id=1)
    """
    if STATE.interpreter is None:
        if transfer_guarded():
            _guard(x, device)
        return transfer.device_put(x, device, src=src, donate=donate, may_alias=may_alias)
    leaves, treedef = tree.flatten(x)
    targets = transfer.targets_of(device, x, len(leaves))
    return tree.unflatten(treedef, [_traced(v, t) for v, t in zip(leaves, targets, strict=True)])


def _guard(x: Any, device: Any) -> None:
    leaves, _ = tree.flatten(x)
    for leaf, target in zip(leaves, transfer.targets_of(device, x, len(leaves)), strict=True):
        moved = isinstance(leaf, ArrayImpl) and target is not None and not _stays(leaf, target)
        guard_move(leaf, moved, target)


def _stays(x: ArrayImpl, target: Any) -> bool:
    if isinstance(target, Device):
        return x.devices() == {target}
    # Over the same devices it is a computation with collectives, which no guard looks at.
    return isinstance(target, Sharding) and target.device_set == x.sharding.device_set


def _traced(x: Any, target: Any) -> Any:
    """`device_put` inside a trace: a reshard over Explicit axes, a constraint over Auto ones, and a
    move of a value that is known while tracing.
    """
    if getattr(STATE.interpreter, "concrete", False):
        if not isinstance(x, Tracer):
            return transfer.device_put(x, target)
        source = getattr(x._known(), "sharding", None)
        if _goes_elsewhere(source, target):
            record_mesh(_mesh_of(target))
            return device_put_p.bind(x, memory_space=typeof(x).memory_space.value,
                                     sharding=target, source=source)
    if isinstance(target, Format):
        target = target.sharding
    if isinstance(target, MemorySpace):
        return _in_memory(x, target)
    if isinstance(target, Sharding) and target.memory_kind is not None:
        x = _in_memory(x, space_of_kind(target.memory_kind))
    if isinstance(target, PartitionSpec):
        target = NamedSharding(STATE.abstract_mesh, target)
    if isinstance(target, GSPMDSharding):
        target = named_on(target, STATE.mesh)
    if isinstance(target, (Device, Sharding)) and isinstance(STATE.interpreter, BlockBuilder):
        fail(ValueError, "device_put with explicit device not allowed within shard_map-decorated "
             f"functions, but got device {target}", code="device-in-region",
             help="leave out the device: inside of shard_map every value is on all devices")
    if not isinstance(target, NamedSharding):
        return x
    if isinstance(target.mesh, Mesh):
        record_mesh(target.mesh)
    aval = typeof(x)
    mesh = target.mesh.abstract_mesh
    spec = target.spec.padded(aval.ndim)
    sharding = named_sharding_abstract(mesh, spec)
    if mesh.explicit_axes:
        return reshard_p.bind(x, dst_sharding=sharding)
    return sharding_constraint_p.bind(x, sharding=sharding)


def _mesh_of(target: Device | Sharding) -> Mesh:
    if isinstance(target, NamedSharding):
        return target.mesh              # type: ignore[return-value]
    return single_device_mesh(target if isinstance(target, Device) else target.device_assignment[0])


def _goes_elsewhere(source: Sharding | None, target: Any) -> bool:
    """Whether a concrete value, as outside of jit, is to go to other devices."""
    if isinstance(target, Device):
        return source is None or source.device_set != {target}
    return isinstance(target, Sharding) and target.is_concrete and (
        source is None or source.device_set != target.device_set)


def _in_memory(x: Any, space: MemorySpace) -> Any:
    if typeof(x).memory_space is space:
        return x
    return device_put_p.bind(x, memory_space=space.value)


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """The arrays of the pytree `x` in memory as `layouts`, a tree prefix of Layouts, says.

    Inside of a traced function it is checked and has no effect: there, memory is not laid out.
    Raises ValueError where a layout is not for values of that rank.

    >>> from shardtrace.experimental.layout import Layout, with_layout_constraint
    >>> with_layout_constraint(jnp.ones((2, 3)), Layout((1, 0))).format.layout.major_to_minor
    (1, 0)
    """
    leaves, treedef = tree.flatten(x)
    wanted = tree.broadcast_prefix(layouts, x, lambda t: isinstance(t, Layout), "layouts")
    out = []
    for leaf, layout in zip(leaves, wanted, strict=True):
        layout.check_compatible_aval(typeof(leaf).shape)
        if STATE.interpreter is None:
            leaf = transfer.put(leaf)
            leaf = transfer.put(leaf, Format(layout, leaf.sharding))
        out.append(leaf)
    return tree.unflatten(treedef, out)
