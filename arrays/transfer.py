"""Moving values between the host and devices, and between shardings.

Data is held once for all devices (arrays/storage.py), so moving an array to another sharding moves
no data: the same numpy array gets another description. A numpy array from the caller is copied,
since the caller may change it later. Behaviour and messages are JAX's (0.10.2).
"""
from __future__ import annotations

from typing import Any

import numpy as np
import optree

from ..ir.diagnostics.diagnostic import Remedy, fail
from ..ir.dtypes import is_extended
from ..ir.meshes.device import Device
from ..ir.meshes.memory import MemorySpace, kind_of_space
from ..ir.meshes.mesh import AxisType
from ..ir.settings.context import STATE
from ..ir.shardings.formats import Format, Layout
from ..ir.shardings.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ..ir.source.location import capture
from ..ir.spec import PartitionSpec
from ..ir.trees.pytree import NAMESPACE, flatten, unflatten
from ..ir.trees.tree_prefix import PrefixError, broadcast_prefix, prefix_mismatches
from ..ir.values.array import Array
from .array import ArrayImpl, array_of, place
from .blocks import laid_out
from .devices import default_device
from .host import aval_for, host_array
from .processes.coordinator import (
    Call,
    Coordinator,
    GlobalValue,
    Slot,
    current_coordinator,
    processes_of,
)
from .results import all_held
from .storage import LocalBlocks, Storage

Target = Device | Sharding | PartitionSpec | Format | MemorySpace | None


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False,
               may_alias: Any = None) -> Any:
    """A pytree of numbers and arrays with its leaves placed as `device` says.

    device: a Device, Sharding, PartitionSpec (on the context mesh) or None, or a pytree of these
      that is a prefix of `x`. With None an array stays where it is, and other values go to the
      default device, uncommitted. An array that is already placed so is returned as it is.
    src: where `x` is, which arrays know themselves.
    donate: True (or a tree prefix of booleans) deletes the arrays of `x` once they are moved.
    may_alias: True allows sharing memory with a numpy array, which must then not be changed; with
      False the result is always a new array. May be a tree prefix too.
    Raises ValueError (IndivisibleError where axes do not divide) if a spec does not fit, and
    TypeError for leaves that are no arrays.
    """
    leaves, treedef = flatten(x)
    targets = targets_of(device, x, len(leaves))
    donated = each_leaf(donate, x, len(leaves), "donate")
    aliased = each_leaf(may_alias, x, len(leaves), "may_alias")
    if any(a and d for a, d in zip(aliased, donated, strict=True)):
        raise ValueError("may_alias and donate cannot be True at the same time.")
    out = []
    for leaf, target, alias, gone in zip(leaves, targets, aliased, donated, strict=True):
        placed = put(leaf, target, may_alias=alias)
        if gone and target is not None and isinstance(leaf, ArrayImpl):
            if placed is leaf:
                placed = ArrayImpl(leaf.aval, leaf.sharding, leaf.storage, True)
            leaf.delete()
        out.append(placed)
    return unflatten(treedef, out)


def targets_of(device: Any, x: Any, count: int) -> list[Any]:
    """The target of each of the `count` leaves of `x`. Raises ValueError for invalid targets."""
    targets = each_leaf(device, x, count, "device")
    for target in targets:
        if not is_target(target):
            raise ValueError(
                "`jax.device_put` only accepts `None`, `jax.sharding.Sharding`, `jax.Device`, "
                "`Format`, `jax.memory.Space` or a pytree of these values. Received invalid "
                f"value: {target}")
    return targets


def is_target(x: Any) -> bool:
    """Is `x` the target of a single leaf?"""
    return x is None or isinstance(x, (Device, Sharding, PartitionSpec, Format, MemorySpace))


def each_leaf(given: Any, x: Any, count: int, what: str) -> list[Any]:
    """The tree prefix `given` expanded to one entry for each of the `count` leaves of `x`."""
    if isinstance(given, bool) or is_target(given):
        return [given] * count
    try:
        return broadcast_prefix(given, x, is_target, f"device_put {what}")
    except PrefixError as error:
        found = prefix_mismatches(given, x, is_target, f"device_put {what}") or [str(error)]
        raise ValueError(f"device_put {what} specification must be a tree prefix of the "
                         f"corresponding value; Mismatch details ({len(found)} found):\n    "
                         + "\n    ".join(found)) from None


def put(x: Any, target: Target = None, *, may_alias: bool | None = None) -> ArrayImpl:
    """`device_put` of a single leaf."""
    if isinstance(target, Format):
        return _formatted(x, target, may_alias)
    if isinstance(target, MemorySpace):
        kind = kind_of_space(target)
        own = x.sharding if isinstance(x, ArrayImpl) else SingleDeviceSharding(default_device())
        target = own.with_memory_kind(kind)
    if target is None:
        if isinstance(x, ArrayImpl):
            x.storage  # noqa: B018 - raises if deleted
            return x.clone() if may_alias is False else x
        data, weak = host_array(x, copy=may_alias is not True)
        return place(data, weak_type=weak)
    sharding = concrete_sharding(target)
    coordinator = current_coordinator()
    if isinstance(x, ArrayImpl):
        if coordinator is not None and isinstance(target, Device):
            check_reaches(x)
        return _move(x, sharding, may_alias, coordinator)
    data, weak = host_array(x, copy=may_alias is not True)
    check_fits(sharding, data.shape, "device_put args")
    held = (laid_out(data, sharding) if coordinator is None or sharding.is_fully_addressable
            else storage_for_all(x, data, sharding, coordinator))
    return array_of(data.shape, data.dtype, weak, sharding, held)


def _formatted(x: Any, target: Format, may_alias: bool | None) -> ArrayImpl:
    layout = target.layout
    if layout is not None and not isinstance(layout, Layout):
        raise ValueError("sharding and layout in `Layout` instance should be concrete. Got layout: "
                         f"{target} for input {getattr(x, 'aval', x)}")
    out = put(x, target.sharding, may_alias=may_alias)
    return out if layout is None else out.with_layout(layout)


def concrete_sharding(target: Device | Sharding | PartitionSpec,
                      asked_by: str = "device_put") -> Sharding:
    """The sharding for a device, a sharding, or a spec on the context mesh."""
    if isinstance(target, Device):
        return SingleDeviceSharding(target)
    if isinstance(target, PartitionSpec):
        mesh = STATE.mesh
        if mesh.empty:
            fail(ValueError, "Please set a mesh via `jax.set_mesh` if a PartitionSpec is passed "
                 f"to {asked_by}", code="no-mesh",
                 help=Remedy("pass a `NamedSharding` of a mesh and the spec, or make the call "
                             "under `set_mesh`", "mesh"))
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


def _move(x: ArrayImpl, sharding: Sharding, may_alias: bool | None,
          coordinator: Coordinator | None) -> ArrayImpl:
    """An array with another sharding. may_alias: False for a copy even where nothing moves."""
    storage, aval = x.storage, x.aval
    if sharding is x.sharding and x.committed and may_alias is not False:
        return x
    check_fits(sharding, aval.shape, "device_put args")
    if coordinator is not None and not sharding.is_fully_addressable:
        data = x.value if x.is_fully_addressable else None
        storage = storage_for_all(x, data, sharding, coordinator)
    elif coordinator is not None and not x.is_readable:
        raise NotImplementedError("Cannot reshard an input that is not fully addressable")
    elif not (sharding.memory_kind == x.sharding.memory_kind
              and sharding.is_equivalent_to(x.sharding, aval.ndim)):
        if isinstance(storage, LocalBlocks) or storage.lead:
            storage = laid_out(x.value, sharding)
        else:
            storage = laid_out(storage.data, sharding, x.sharding)
    out = array_of(aval.shape, aval.dtype, aval.weak_type, sharding, storage)
    return out.clone() if may_alias is False else out


def device_get(x: Any) -> Any:
    """A pytree with its arrays as numpy arrays; other leaves stay as they are.

    Raises RuntimeError for an array of which other processes hold a part, or that was deleted.

    >>> st.device_get({"loss": st.numpy.float32(2), "step": 3, "name": "a"})
    {'loss': array(2., dtype=float32), 'name': 'a', 'step': 3}
    """
    leaves, treedef = flatten(x)
    return unflatten(treedef, [_on_host(leaf) for leaf in leaves])


def _on_host(x: Any) -> Any:
    if isinstance(x, ArrayImpl) and is_extended(x.dtype):
        return x
    if isinstance(x, Array) and not isinstance(x, ArrayImpl):     # a traced one
        return x
    convert = getattr(x, "__array__", None)
    return x if convert is None or isinstance(x, type) else convert()


def block_until_ready(x: Any) -> Any:
    """The pytree itself, once the values of its arrays are there (which they always are).

    Raises RuntimeError for a deleted array.

    >>> y = st.block_until_ready(st.numpy.ones(3) + 1)
    >>> y
    Array([2., 2., 2.], dtype=float32)
    """
    leaves = optree.tree_leaves(x, namespace=NAMESPACE)
    for leaf in () if all_held(leaves) else leaves:
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x


def copy_to_host_async(x: Any) -> Any:
    """The pytree itself: there is nothing to wait for, the host has the values.

    Raises RuntimeError for a deleted array.

    >>> x = st.copy_to_host_async(st.numpy.ones(2))
    >>> np.asarray(x)
    array([1., 1.], dtype=float32)
    """
    for leaf in optree.tree_leaves(x, namespace=NAMESPACE):
        if hasattr(leaf, "copy_to_host_async"):
            leaf.copy_to_host_async()
    return x


# -- device_put where other processes own some of the devices --------------------------------------
# A host value must be the same in all processes, which is checked; an array that all hold moves
# between shardings of the same devices. Both are calls that all processes make. Nothing can be put
# on a single device of another process.

def check_reaches(x: ArrayImpl) -> None:
    """Raise ValueError if other processes hold a part of `x`, which is to go to one device."""
    if not x.is_fully_addressable and x.sharding.num_devices != 1:
        raise ValueError(
            "When the second argument to `device_put` is a Device, the first argument must be a "
            "fully addressable array or a non-addressable array with a single device sharding. Got "
            f"value with devices {{{', '.join(map(repr, sorted(x.devices())))}}}")


def storage_for_all(x: Any, data: np.ndarray | None, sharding: Sharding, coordinator: Coordinator
                    ) -> Storage:
    """What this process holds of `x` under a sharding that spans other processes.

    data: the value, if x is not an array of several processes.
    """
    if data is None:
        return _moved(x, sharding, coordinator)
    if isinstance(x, ArrayImpl) and x.committed and sharding.num_devices > 1:
        raise ValueError(
            "device_put's second argument must be a Device or a Sharding which represents "
            f"addressable devices, but got {sharding}. Please pass device or Sharding which "
            "represents addressable devices.")
    processes = processes_of(sharding.device_assignment)
    if coordinator.identity.index not in processes:
        return LocalBlocks({})
    if len(processes) == coordinator.identity.count:
        data = _agreed(x, data, sharding, processes, coordinator)
    return laid_out(data, sharding)


def _agreed(x: Any, data: np.ndarray, sharding: Sharding, processes: tuple[int, ...],
            coordinator: Coordinator) -> np.ndarray:
    """The value, after checking that all processes gave the same."""
    call = _call(data, sharding, processes)
    same = coordinator.same(call, data)
    if same is not None:
        return same
    given = coordinator.all_gather(call, data)
    for other in given:
        if other is not data and not _equal(other, data):
            kind = f"{type(x)}"
            found = np.concatenate([np.atleast_1d(g) for g in given])
            raise AssertionError(
                f"{kind} passed to device_put is not the same on each process. Make sure you are "
                f"passing the same value of {kind} on each process.. Expected: {found}; got: {x}.")
    return data                                           # NaN of other bits


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def _moved(x: ArrayImpl, sharding: Sharding, coordinator: Coordinator) -> Storage:
    """What an array stores under another sharding, some of whose devices other processes have: all
    of them exchange their blocks.
    """
    source = x.sharding
    if sharding.memory_kind == source.memory_kind and sharding.is_equivalent_to(
            source, x.aval.ndim):
        return x.storage
    if source.device_set != sharding.device_set:
        ours, theirs = ([d.id for d in s.device_assignment] for s in (source, sharding))
        raise ValueError(
            "For a cross-host reshard in multi-controller JAX, input and target sharding should "
            f"have the same set of devices. Got input's device set ids: {ours} on platform CPU and "
            f"target sharding's device set ids: {theirs} on platform CPU.\n\n"
            "There is experimental support for cross-host transfers with different device sets, "
            "when input/output shardings have the same indices and layouts, in the TFRT TPU "
            "runtime only.")
    call = _call(x, sharding, processes_of(source.device_assignment),
                 getattr(source, "spec", source))
    (whole,) = coordinator.whole(
        call, [GlobalValue(x.storage, Slot(source, x.aval.shape, x.aval.dtype))])
    if whole.lead:     # copies that differ, or a pending sum, which x.value refuses
        return laid_out(x.value if x.is_readable else whole.data[(0,) * len(whole.lead)], sharding)
    return laid_out(whole.data, sharding, source)


def _call(x: Any, sharding: Sharding, processes: tuple[int, ...],
          source: Any = "the host") -> Call:
    value = f"{x.dtype}{list(x.shape)}"
    ids = [d.id for d in sharding.device_assignment]
    return Call("`device_put`", (("values", value), ("sources", str(source)),
                              ("shardings", f"{sharding} of devices {ids}")),
                processes, capture())
