"""device_put, inside and outside of traced functions.

Outside it moves data (runtime/transfer.py). Inside nothing can be moved yet: over Explicit axes the
request is a reshard, over Auto axes a constraint, and a single device is left to the whole
computation, as in JAX.
"""
from __future__ import annotations

from typing import Any

from ..ir.context import STATE
from ..ir.device import Device
from ..ir.mesh import Mesh
from ..ir.ops.sharding import reshard_p, sharding_constraint_p
from ..ir.sharding import NamedSharding, Sharding, named_sharding_abstract
from ..ir.spec import PartitionSpec
from ..runtime import transfer
from ..tracer import tree
from ..tracer.staging import record_mesh
from ..tracer.tracer import typeof


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False,
               may_alias: bool | None = None) -> Any:
    """The arrays of the pytree `x`, on `device`: a Device, a Sharding, a PartitionSpec (under a
    context mesh), None, or a tree prefix of these.

    Errors are JAX's: a spec that is too long or does not divide, an unknown target, donate together
    with may_alias.
    """
    if STATE.interpreter is None:
        return transfer.device_put(x, device, src=src, donate=donate, may_alias=may_alias)
    leaves, treedef = tree.flatten(x)
    targets = tree.broadcast_prefix(device, x, _is_target, "device_put device")
    return tree.unflatten(treedef, [_traced(v, t) for v, t in zip(leaves, targets, strict=True)])


def _is_target(x: Any) -> bool:
    return isinstance(x, (Device, Sharding, PartitionSpec))


def _traced(x: Any, target: Any) -> Any:
    if isinstance(target, PartitionSpec):
        target = NamedSharding(STATE.abstract_mesh, target)
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
