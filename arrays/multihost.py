"""Communication between processes, as in `jax.experimental.multihost_utils`.

Values of the host go to all processes and come back as numpy arrays; a process's part of an array
becomes a global array, and back. The former wait for all processes, the latter do not. With a
single process, each function returns what it would return with several. Results, types and messages
are those of JAX 0.10.2.
"""
from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.dtypes import canonicalize_dtype
from ..ir.meshes.mesh import Mesh
from ..ir.meshes.process import process_identity
from ..ir.settings.context import x64_enabled
from ..ir.shardings.sharding import NamedSharding
from ..ir.source.location import capture
from ..ir.spec import PartitionSpec
from ..ir.trees.pytree import flatten, unflatten
from ..ir.trees.tree_prefix import PrefixError, broadcast_prefix
from .array import ArrayImpl
from .assembly import of_blocks
from .host import host_array
from .processes.coordinator import Call, GlobalValue, Slot, current_coordinator, processes_of
from .storage import Storage, Stored, block_of, frozen
from .transfer import put

# -- values of the host ----------------------------------------------------------------------------

def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The values of all processes, as numpy arrays, at every process.

    in_tree: a pytree of numbers and arrays, of the same shapes everywhere. What the process has
    for itself (numpy, arrays of its own devices) is stacked along a new first dimension, one entry
    a process; with `tiled` it is concatenated along the first dimension instead (numbers are
    stacked all the same). A global array comes whole, and needs `tiled=True`.
    Raises ValueError for a global array without `tiled`.

    >>> from shardtrace.experimental import multihost_utils
    >>> multihost_utils.process_allgather(np.arange(3))
    array([[0, 1, 2]])
    >>> def program(i):
    ...     return multihost_utils.process_allgather(np.array([i, 10 * i]), tiled=True)
    >>> st.distributed.run_processes(program, 4)[0]
    array([ 0,  0,  1, 10,  2, 20,  3, 30], dtype=int32)
    """
    leaves, treedef = flatten(in_tree)
    shared = [isinstance(x, ArrayImpl) and not x.is_fully_addressable for x in leaves]
    if any(shared) and not tiled:
        raise ValueError(
            "Gathering global non-fully-addressable arrays only supports tiled=True")
    if process_identity().count == 1:
        return unflatten(treedef, [
            np.asarray(x) if tiled else np.expand_dims(np.asarray(x), axis=0) for x in leaves])
    own = [x for x, s in zip(leaves, shared, strict=True) if not s]
    gathered = iter(_gather("process_allgather", own))
    combine: Callable[..., np.ndarray]
    out = []
    for x, s in zip(leaves, shared, strict=True):
        if s:
            out.append(_whole("process_allgather", x))
            continue
        rows = next(gathered)
        combine = np.concatenate if tiled and rows[0].ndim else np.stack
        out.append(frozen(combine(rows)))
    return unflatten(treedef, out)


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The values of one process, as numpy arrays, at every process.

    in_tree: a pytree of numbers and arrays, of the same shapes everywhere. is_source: whether the
      caller is the process whose values count; process 0 is if nobody says so.
    Raises ValueError unless there is one source.

    >>> from shardtrace.experimental import multihost_utils
    >>> def program(i):
    ...     return multihost_utils.broadcast_one_to_all(np.array([i, 10 + i]), is_source=i == 2)
    >>> st.distributed.run_processes(program, 4)[0]
    array([ 2, 12], dtype=int32)
    """
    leaves, treedef = flatten(in_tree)
    if process_identity().count == 1:
        return unflatten(treedef, [np.asarray(x) for x in leaves])
    if is_source is None:
        is_source = process_identity().index == 0
    flags, *gathered = _gather("broadcast_one_to_all", [np.bool_(is_source), *leaves])
    sources = [i for i, flag in enumerate(flags) if flag]
    if len(sources) != 1:
        raise ValueError("broadcast_one_to_all needs one process with is_source=True, got "
                         f"{'processes ' + str(sources) if sources else 'none'}")
    return unflatten(treedef, [frozen(rows[sources[0]]) for rows in gathered])


def sync_global_devices(name: str) -> None:
    """Wait until all processes are here.

    name: the same everywhere; AssertionError otherwise.

    >>> from shardtrace.experimental import multihost_utils
    >>> def program(i):
    ...     multihost_utils.sync_global_devices("data is written")
    >>> _ = st.distributed.run_processes(program, 4)
    """
    coordinator = current_coordinator()
    if coordinator is None:
        return
    call = _call("sync_global_devices", ())
    names = coordinator.all_gather(call, (name, str(call.location)))
    if len({other for other, _ in names}) > 1:
        numbers = np.array([zlib.crc32(other.encode()) for other, _ in names], np.uint32)
        places = "; ".join(f"process {i} waits for {other!r} at {where}"
                           for i, (other, where) in enumerate(names))
        raise AssertionError(
            f"sync_global_devices name mismatch ('{name}'). Expected: {numbers}; got: "
            f"{zlib.crc32(name.encode())}. {places}.")


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise AssertionError unless all processes have the same pytree of values.

    >>> from shardtrace.experimental import multihost_utils
    >>> multihost_utils.assert_equal({"step": 3})
    >>> st.distributed.run_processes(multihost_utils.assert_equal, 4, np.arange(2))
    [None, None, None, None]
    """
    out = process_allgather(in_tree, tiled=True)
    count = process_identity().count

    def expected(x: Any) -> np.ndarray:
        if isinstance(x, ArrayImpl) and not x.is_fully_addressable:
            return np.asarray(x.addressable_data(0))
        value = np.asarray(x)
        return np.concatenate([np.atleast_1d(value)] * count)

    for x, found in zip(flatten(in_tree)[0], flatten(out)[0], strict=True):
        if not np.all(np.equal(expected(x), found)):
            raise AssertionError(f"{fail_message}. Expected: {out}; got: {in_tree}.")


def _gather(name: str, leaves: list[Any]) -> list[list[np.ndarray]]:
    """For each value what every process gave, in dtypes that arrays have."""
    coordinator = current_coordinator()
    assert coordinator is not None
    x64 = x64_enabled()
    values = []
    for x in leaves:
        value = np.asarray(x)
        values.append(value.astype(canonicalize_dtype(value.dtype, x64)))   # a copy: it may change
    types = "\n".join(f"{v.dtype}{list(v.shape)}" for v in values)
    given = coordinator.all_gather(_call(name, (("values", types),)), values)
    return [list(rows) for rows in zip(*given, strict=True)]


def _whole(name: str, x: ArrayImpl) -> np.ndarray:
    """The whole value of a global array."""
    coordinator = current_coordinator()
    if coordinator is None:
        return np.asarray(x)
    processes = processes_of(x.sharding.device_assignment)
    parts = (("values", f"{x.aval.str_short(True)} {x.sharding}"),)
    call = Call(f"`{name}`", parts, processes, capture())
    (stored,) = coordinator.whole(
        call, [GlobalValue(x.storage, Slot(x.sharding, x.aval.shape, x.aval.dtype))])
    if isinstance(x.sharding, NamedSharding) and x.sharding.spec.unreduced:
        return np.asarray(x)       # raises: a pending sum has no value
    return frozen(stored.data[(0,) * len(stored.lead)])


def _call(name: str, parts: tuple[tuple[str, str], ...]) -> Call:
    return Call(f"`{name}`", parts, tuple(range(process_identity().count)), capture())


# -- parts of global arrays ------------------------------------------------------------------------

def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Global arrays of which each process gives the part that its devices hold.

    local_inputs: a pytree of arrays or numpy arrays; a dimension that is split over processes is as
      many times smaller than that of the result. Global arrays are returned as they are.
    global_mesh: the devices of each process must be a contiguous part of it.
    pspecs: a PartitionSpec, or a pytree of them that is a prefix of `local_inputs`.
    Raises ValueError for a spec that is None, IndivisibleError if a part does not divide.

    >>> from shardtrace.experimental import multihost_utils
    >>> def program(i):
    ...     mesh = st.make_mesh((8,), ("x",))
    ...     x = multihost_utils.host_local_array_to_global_array(np.arange(4) * i, mesh, P("x"))
    ...     return x.shape, x.addressable_data(0)
    >>> st.distributed.run_processes(program, 4)[3]
    ((16,), Array([0, 3], dtype=int32))
    """
    leaves, treedef = flatten(local_inputs)
    specs = _specs(pspecs, local_inputs, "input pspecs")
    return unflatten(treedef, [_to_global(x, global_mesh, spec)
                               for x, spec in zip(leaves, specs, strict=True)])


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """The parts of global arrays that this process holds, as arrays on its own devices.

    They lie on `global_mesh.local_mesh`; what lies on the process's own devices already is returned
    as it is. An array that is sharded otherwise than `pspecs` say is moved first, by all processes.
    Raises ValueError for a spec that is None.

    >>> from shardtrace.experimental import multihost_utils
    >>> def program(i):
    ...     mesh = st.make_mesh((8,), ("x",))
    ...     x = multihost_utils.host_local_array_to_global_array(np.arange(4) * i, mesh, P("x"))
    ...     return multihost_utils.global_array_to_host_local_array(x, mesh, P("x"))
    >>> st.distributed.run_processes(program, 4)[3]
    Array([0, 3, 6, 9], dtype=int32)
    """
    leaves, treedef = flatten(global_inputs)
    specs = _specs(pspecs, global_inputs, "output pspecs")
    return unflatten(treedef, [_to_local(x, global_mesh, spec)
                               for x, spec in zip(leaves, specs, strict=True)])


def _to_global(x: Any, mesh: Mesh, spec: PartitionSpec) -> ArrayImpl:
    """The global array whose part on the devices of this process is `x`, split by `spec` over them.
    """
    if isinstance(x, ArrayImpl) and not x.is_fully_addressable:
        return x
    local = NamedSharding(mesh.local_mesh, spec)
    sharding = NamedSharding(mesh, spec)
    storage: Storage
    if isinstance(x, ArrayImpl):
        aval = x.aval
        shape, dtype, weak = aval.shape, aval.dtype, aval.weak_type
        storage = x.storage if x.sharding.is_equivalent_to(local, len(shape)) else Stored(x.value)
    else:
        data, weak = host_array(x)
        shape, dtype, storage = data.shape, data.dtype, Stored(frozen(data))
    local.shard_shape(shape)                      # raises if it does not divide
    assert isinstance(storage, Stored)
    blocks = {d: (block_of(storage, local, shape, d), dtype) for d in mesh.local_devices}
    whole = tuple(n * g // own for n, g, own in zip(
        shape, sharding.dim_factors(len(shape)), local.dim_factors(len(shape)), strict=True))
    return of_blocks(whole, dtype, sharding, blocks, weak)


def _to_local(x: Any, mesh: Mesh, spec: PartitionSpec) -> ArrayImpl:
    if isinstance(x, ArrayImpl) and x.is_fully_addressable:
        return x
    local = NamedSharding(mesh.local_mesh, spec)
    if not isinstance(x, ArrayImpl):
        return put(x, local)
    sharding = NamedSharding(mesh, spec)
    if not x.sharding.is_equivalent_to(sharding, x.aval.ndim):
        x = put(x, sharding)
    shape = x.aval.shape
    part = tuple(n * own // g for n, g, own in zip(
        shape, sharding.dim_factors(len(shape)), local.dim_factors(len(shape)), strict=True))
    blocks = {s.device: (s.data.value, x.aval.dtype) for s in x.addressable_shards}
    return of_blocks(part, x.aval.dtype, local, blocks, x.aval.weak_type)


def _specs(pspecs: Any, values: Any, name: str) -> list[PartitionSpec]:
    """One spec for each leaf."""
    try:
        out = broadcast_prefix(pspecs, values, lambda s: isinstance(s, PartitionSpec), name)
    except PrefixError as e:
        raise ValueError(f"{name} must be a tree prefix of the values; {e}") from None
    if any(s is None for s in out):
        raise ValueError(
            "`None` is not a valid input to the pspecs argument. Please use "
            "jax.sharding.PartitionSpec() if you wanted to replicate your input.")
    return out
