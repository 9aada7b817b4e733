"""Coordination: the interface through which the processes of one program communicate.

Every process runs the same Python program (SPMD, one controller each). Processes share nothing but
three calls, each of which all processes of a group make at the same point:

    all_gather(call, value)              the values that the processes give, at every process
    whole(call, values)                  the whole values of global arrays, at every process
    run(call, program, arguments)        a program of all devices; what each process owns of it

`Coordinator` declares them. Simulated processes are threads that meet
(arrays/processes/rendezvous.py): the last one to arrive runs the program once, on the storage that
all share. MPI ranks implement the same calls over their wire (engines/mpi/): `all_gather` of bytes,
`whole` as a gather of blocks, and `run` as the per-device program on the devices that the process
owns, with its collectives carried by the wire. They compare `Call.digest` first.
"""
from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.meshes.device import Device
from ...ir.meshes.mesh import AbstractMesh
from ...ir.meshes.process import ProcessIdentity, set_default_process_index
from ...ir.program import Program
from ...ir.shardings.sharding import Sharding
from ...ir.source.location import Location
from ...ir.support.caches import cached
from ...ir.support.immutable import immutable
from ...ir.support.lazy import lazy_import
from ...ir.support.named_tuple import NamedTuple
from ...ir.support.scopes import override
from ..storage import Shape, Storage, Stored, assemble, block_of, identical

hashlib = lazy_import("hashlib")

Parts = tuple[tuple[str, str], ...]


@immutable
class Call:
    """One call that several processes make together.

    what: as a user would name it, such as "the jitted function `step`". parts: (word, text) pairs
    that must be equal at all processes. processes: who takes part, in order. location: the line
    of the user's program.
    """
    what: str
    parts: Parts
    processes: tuple[int, ...]
    location: Location

    @property
    def _values(self) -> tuple[str, Parts, tuple[int, ...]]:
        """What calls are compared by: everything but where they are made."""
        return self.what, self.parts, self.processes

    @property
    def digest(self) -> str:
        """A short text that is the same for equal calls."""
        return _digest(self._values)


@cached(256, "digests of the calls that processes make together")
def _digest(values: tuple) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()


class Slot(NamedTuple):
    """An argument or result of a program of all devices."""
    sharding: Sharding
    shape: Shape
    dtype: Any


class GlobalValue(NamedTuple):
    """An array of several processes, as one of them holds it."""
    storage: Storage
    slot: Slot


class GlobalProgram(NamedTuple):
    """A program over the devices of several processes.

    local: the per-device program. mesh: all its axes. devices: in mesh order. execute: runs it on
    whole values, in a process that has all devices.
    """
    local: Program
    mesh: AbstractMesh
    devices: tuple[Device, ...]
    execute: Callable[[Sequence[Stored]], list[Stored]]


class Coordinator(abc.ABC):
    """What a process asks of the others. A call returns when its whole group has made it.

    A call that the others do not make, or make differently, raises `ProcessMismatchError` in all
    that wait; none waits for ever. An exception while a program runs is raised in every process.
    """

    identity: ProcessIdentity
    """Who this process is, of how many, and who owns which device."""

    @abc.abstractmethod
    def all_gather(self, call: Call, value: Any) -> list[Any]:
        """The values (of the host) that the processes gave, in the order of the group."""

    def same(self, call: Call, data: np.ndarray) -> np.ndarray | None:
        """The value if all processes of the group give the same, bit for bit; else None. Processes
        that share memory get the first one's array.
        """
        first, *others = self.all_gather(call, data)
        return first if all(identical(x, first) for x in others) else None

    @abc.abstractmethod
    def whole(self, call: Call, values: Sequence[GlobalValue]) -> list[Stored]:
        """The whole value of each global array, of which every process gives its blocks."""

    @abc.abstractmethod
    def run(self, call: Call, program: GlobalProgram, arguments: Sequence[GlobalValue]
            ) -> Sequence[Storage]:
        """The results of a program, to which every process gives its blocks of the arguments."""


class _Thread(threading.local):
    coordinator: Coordinator | None = None     # the default of all threads


THREAD = _Thread()
"""Holds `current_coordinator()`, for callers that read it at every call."""


def current_coordinator() -> Coordinator | None:
    """The calling thread's coordinator; None if there is only one process."""
    return THREAD.coordinator


def set_default_coordinator(coordinator: Coordinator | None) -> None:
    """Make this operating system process, with all its threads, one of several processes. None:
    there is only this one.
    """
    identity = ProcessIdentity() if coordinator is None else coordinator.identity
    set_default_process_index(identity.index, identity.owners)
    _Thread.coordinator = coordinator


def coordinator_scope(coordinator: Coordinator | None) -> override:
    """A `with` block in which the calling thread uses this coordinator."""
    return override(THREAD, coordinator=coordinator)


def processes_of(sharding_devices: Sequence[Any]) -> tuple[int, ...]:
    """The processes that own some of these devices, in order."""
    return tuple(sorted({d.process_index for d in sharding_devices}))


# -- global arrays, put together from what the processes hold of them ------------------------------
# A process holds the blocks of its own devices (`LocalBlocks`), or a whole value of which only
# its own blocks count (`Stored`): a host value that is passed as replicated, or the result of a
# program of all processes, which they share. Values that are the same everywhere are used as they
# are; replicas that differ stay different, as they would on devices.

def merged(values: Sequence[Sequence[GlobalValue]], processes: Sequence[int]) -> list[Stored]:
    """The whole value of each array, from what each of the processes holds of all of them."""
    return [_whole(held, processes) for held in zip(*values, strict=True)]


def _whole(held: Sequence[GlobalValue], processes: Sequence[int]) -> Stored:
    stored = [v.storage for v in held if isinstance(v.storage, Stored)]
    if len(stored) == len(held) and all(
            s.lead == stored[0].lead and identical(stored[0].data, s.data) for s in stored):
        return stored[0]
    slot = held[0].slot
    of = dict(zip(processes, held, strict=True))
    blocks = {d: own_block(of[d.process_index], d) for d in slot.sharding.device_assignment}
    return assemble(blocks, slot.sharding, slot.shape, slot.dtype)


def own_block(value: GlobalValue, device: Device) -> np.ndarray:
    """The block of a device, from what its process holds."""
    storage, slot = value
    return block_of(storage, slot.sharding, slot.shape, device)
