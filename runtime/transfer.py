"""Moving values between the host and devices, and between shardings.

Data is held once for all devices (runtime/storage.py), so that moving an array to another sharding
moves no data: the same numpy array gets another description. A copy is made where a numpy array
of the caller comes in, which he may change later. Behaviour and messages are JAX's (0.10.2).
"""
from __future__ import annotations

from typing import Any

import numpy as np
import optree

from ..ir.context import STATE
from ..ir.device import Device
from ..ir.diagnostic import fail
from ..ir.mesh import AxisType
from ..ir.pytree import NAMESPACE, flatten, unflatten
from ..ir.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ..ir.spec import PartitionSpec
from .array import PENDING_SUM, ArrayImpl, place
from .axes import MeshAtoms
from .host import aval_for, host_array
from .storage import LocalBlocks, Stored, frozen

Target = Device | Sharding | PartitionSpec | None


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False,
               may_alias: Any = None) -> Any:
    """A pytree of numbers and arrays with its leaves placed as `device` says.

    device: a Device, Sharding, PartitionSpec (on the context mesh) or None, or a pytree of these
      that is a prefix of `x`. With None an array stays where it is, and other values go to the
      default device, uncommitted. An array that is already placed so is returned as it is.
    donate: the caller does not need `x` any more; nothing is gained by it here.
    may_alias: True allows sharing memory with a numpy array, which must then not be changed.
    Raises ValueError (IndivisibleError where axes do not divide) if a spec does not fit, and
    TypeError for leaves that are no arrays.
    """
    leaves, treedef = flatten(x)
    if may_alias is True and donate is True:
        raise ValueError("may_alias and donate cannot be True at the same time.")
    targets = _broadcast(device, treedef, x)
    return unflatten(treedef, [
        put(leaf, target, may_alias=may_alias) for leaf, target in
        zip(leaves, targets, strict=True)])


def _broadcast(device: Any, treedef: optree.PyTreeSpec, x: Any) -> list[Target]:
    """One target for each leaf of `x`."""
    count = treedef.num_leaves
    if device is None or isinstance(device, (Device, Sharding, PartitionSpec)):
        return [device] * count
    targets, prefix = optree.tree_flatten(
        device, is_leaf=lambda t: t is None or isinstance(t, (Device, Sharding, PartitionSpec)),
        namespace=NAMESPACE)
    for target in targets:
        if target is not None and not isinstance(target, (Device, Sharding, PartitionSpec)):
            raise ValueError(
                "`jax.device_put` only accepts `None`, `jax.sharding.Sharding`, `jax.Device`, "
                "`Format`, `jax.memory.Space` or a pytree of these values. Received invalid "
                f"value: {target}")
    try:
        parts = prefix.flatten_up_to(x)
    except ValueError as error:
        raise ValueError("device_put device specification must be a tree prefix of the "
                         f"corresponding value; {error}") from None
    out: list[Target] = []
    for target, part in zip(targets, parts, strict=True):
        out.extend([target] * optree.tree_structure(part, namespace=NAMESPACE).num_leaves)
    return out


def put(x: Any, target: Target = None, *, may_alias: bool | None = None) -> ArrayImpl:
    """One leaf of `device_put`."""
    if target is None:
        if isinstance(x, ArrayImpl):
            x.storage  # noqa: B018 - raises if deleted
            return x.__copy__() if may_alias is False else x
        data, weak = host_array(x, copy=may_alias is not True)
        return place(data, weak_type=weak)
    sharding = concrete_sharding(target)
    if isinstance(x, ArrayImpl):
        return _move(x, sharding, may_alias)
    data, weak = host_array(x, copy=may_alias is not True)
    check_fits(sharding, data.shape, "device_put args")
    aval = aval_for(data.shape, data.dtype, weak, sharding)
    return ArrayImpl(aval, sharding, _laid_out(data, sharding), True)


def concrete_sharding(target: Device | Sharding | PartitionSpec,
                      asked_by: str = "device_put") -> Sharding:
    """The sharding that a device, a sharding, or a spec on the context mesh stands for."""
    if isinstance(target, Device):
        return SingleDeviceSharding(target)
    if isinstance(target, PartitionSpec):
        mesh = STATE.mesh
        if mesh.empty:
            fail(ValueError, "Please set a mesh via `jax.set_mesh` if a PartitionSpec is passed "
                 f"to {asked_by}", code="no-mesh",
                 help=f"pass `NamedSharding(mesh, {target})`, or enter `with set_mesh(mesh):`")
        return NamedSharding(mesh, target)
    if not target.is_concrete:
        raise ValueError(f"{asked_by} needs devices, and {target} is on an AbstractMesh. Use a "
                         "NamedSharding on a Mesh.")
    return target


def check_fits(sharding: Sharding, shape: tuple[int, ...], what: str) -> None:
    """Raise unless arrays of this shape can be sharded so."""
    try:
        sharding.check_compatible_aval(shape)
    except ValueError as error:
        raise ValueError(f"One of {what} is incompatible with its sharding annotation "
                         f"{sharding}: {error}") from None
    if isinstance(sharding, NamedSharding) and AxisType.Explicit in sharding.mesh.axis_types:
        aval_for(shape, np.dtype(np.float32), False, sharding)    # raises where JAX's types do
    sharding.shard_shape(shape)


def _move(x: ArrayImpl, sharding: Sharding, may_alias: bool | None) -> ArrayImpl:
    storage, aval = x.storage, x.aval
    if sharding is x.sharding and x.committed and may_alias is not False:
        return x
    check_fits(sharding, aval.shape, "device_put args")
    new = aval_for(aval.shape, aval.dtype, aval.weak_type, sharding)
    kept = storage
    same_memory = sharding.memory_kind == x.sharding.memory_kind
    if not (same_memory and sharding.is_equivalent_to(x.sharding, aval.ndim)):
        if isinstance(storage, LocalBlocks) or storage.lead:
            kept = _laid_out(x.value, sharding)
        else:
            kept = _laid_out(storage.data, sharding, x.sharding)
    return ArrayImpl(new, sharding, kept, True)


def _laid_out(data: np.ndarray, sharding: Sharding, source: Sharding | None = None) -> Stored:
    """The stored form of a whole value.

    Along unreduced axes the first devices hold it all and the others zeros; but where such an axis
    splits a dimension of `source`, each device keeps its own block, in its place among zeros.
    """
    if not isinstance(sharding, NamedSharding) or not sharding.spec.unreduced:
        return Stored(frozen(data))
    spec = sharding.spec
    if not spec.axes():
        raise NotImplementedError(PENDING_SUM)
    atoms = MeshAtoms(sharding.mesh, (*spec.axes(), *spec.unreduced))
    lead = atoms.sort(atoms.of_all(sorted(spec.unreduced, key=str)))
    sizes = atoms.sizes(lead)
    keeps = np.ones(sizes + data.shape, bool)
    for k, axis in enumerate(lead):
        holder = _holder(axis, source, data.shape) if isinstance(source, NamedSharding) and (
            source.mesh.shape == sharding.mesh.shape) else np.zeros((1,) * data.ndim, int)
        here = np.arange(sizes[k]).reshape([-1 if i == k else 1 for i in range(keeps.ndim)])
        keeps &= here == holder
    return Stored(frozen(np.where(keeps, data, np.zeros((), data.dtype))), lead)


def _holder(axis: str, source: NamedSharding, shape: tuple[int, ...]) -> np.ndarray:
    """For every element, the coordinate along `axis` of the devices that hold it."""
    for dim, axes in enumerate(source.spec.padded(len(shape)).entries):
        stride = shape[dim]
        for name in axes:
            size = source.mesh.axis_size(name)
            stride //= size
            if name == axis:
                index = np.arange(shape[dim]) // stride % size
                return index.reshape([-1 if d == dim else 1 for d in range(len(shape))])
    return np.zeros((1,) * len(shape), int)


def device_get(x: Any) -> Any:
    """A pytree with its arrays as numpy arrays; other leaves stay as they are."""
    leaves, treedef = flatten(x)
    return unflatten(treedef, [
        np.asarray(leaf) if isinstance(leaf, ArrayImpl) else leaf for leaf in leaves])


def block_until_ready(x: Any) -> Any:
    """The pytree itself, once its values are there (which they always are)."""
    for leaf in optree.tree_leaves(x, namespace=NAMESPACE):
        if isinstance(leaf, ArrayImpl):
            leaf.block_until_ready()
    return x


def copy_to_host_async(x: Any) -> Any:
    """The pytree itself: there is nothing to wait for, the host has the values."""
    for leaf in optree.tree_leaves(x, namespace=NAMESPACE):
        if isinstance(leaf, ArrayImpl):
            leaf.copy_to_host_async()
    return x
