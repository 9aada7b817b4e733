"""device_put where other processes own some of the devices.

A value of the host must be the same in all processes, which is checked, as JAX does; an array that
all hold moves between shardings of the same devices. Both are calls of all processes. A device of
another process gets nothing from this one. Messages are JAX's (0.10.2).
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.shardings.sharding import Sharding
from ...ir.source.location import capture
from ..processes.coordinator import Call, Coordinator, GlobalValue, Slot, processes_of
from ..storage import LocalBlocks, Storage
from .array import ArrayImpl
from .blocks import laid_out


def check_reaches(x: ArrayImpl) -> None:
    """Raise unless `x` may go to a single device: ValueError where others hold a part of it."""
    if not x.is_fully_addressable and x.sharding.num_devices != 1:
        raise ValueError(
            "When the second argument to `device_put` is a Device, the first argument must be a "
            "fully addressable array or a non-addressable array with a single device sharding. Got "
            f"value with devices {{{', '.join(map(repr, sorted(x.devices())))}}}")


def storage_for_all(x: Any, data: np.ndarray | None, sharding: Sharding, coordinator: Coordinator
                    ) -> Storage:
    """What this process holds of `x` on a sharding that reaches other processes.

    data: its value if it is none of an array of several processes.
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
    """The value, which all processes must have given alike."""
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
