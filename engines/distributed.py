"""`jax.distributed`: connects the processes of one program.

Simulated processes (arrays/processes/simulated.py) have nothing to connect to, so the arguments
are only checked. The ranks of an MPI job become processes here.
"""
from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

from ..arrays.devices import local_devices, process_count, process_index
from ..arrays.processes.coordinator import (
    Coordinator,
    current_coordinator,
    set_default_coordinator,
)
from ..ir.diagnostics.diagnostic import fail
from ..ir.settings.context import config
from ..ir.support.lazy import lazy_import
from ..ir.support.spelling import none_such
from .engine import ENGINES

_mpi = lazy_import(".mpi.engine", __package__)


class _Begun:
    """Who called `initialize`: the coordinators of processes, and the only process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.coordinators: weakref.WeakSet[Coordinator] = weakref.WeakSet()
        self.alone = False


_begun = _Begun()


def initialize(coordinator_address: str | None = None, num_processes: int | None = None,
               process_id: int | None = None, local_device_ids: int | Sequence[int] | None = None,
               cluster_detection_method: str | None = None, initialization_timeout: int = 300,
               heartbeat_timeout_seconds: int = 100, *, engine: str | None = None,
               **unused: Any) -> None:
    """Register this process, and check its number, the number of processes and its devices.

    num_processes, process_id: those of the process, if given. local_device_ids: ids of its devices,
      if given. Addresses are not needed.
    engine: "mpi" where the processes are the ranks of an MPI job, which `mpiexec` started; by
      default what `config.engine` says. The configured devices are dealt out to them evenly. In
      simulated processes there is nothing to start, and the same program runs.
    heartbeat_timeout_seconds: how long ranks wait for one that says nothing, since it computes.
    Raises ValueError where these are not so, RuntimeError if called twice, ModuleNotFoundError
    where mpi4py is missing.

    >>> def program(i):
    ...     st.distributed.initialize("localhost:1234", num_processes=4, process_id=i)
    ...     return st.process_index()
    >>> st.distributed.run_processes(program, 4)
    [0, 1, 2, 3]
    """
    name = engine or config.read("shardtrace_engine")
    if name not in ENGINES:
        fail(ValueError, none_such(name, list(ENGINES), "engine called"), code="engine")
    if name == "mpi" and current_coordinator() is None and not _begun.alone:
        _mpi.begin(heartbeat_timeout_seconds)
    if num_processes is not None and num_processes != process_count():
        raise ValueError(
            f"num_processes={num_processes}, but there {_are(process_count())} here. To simulate "
            f"several, run the program in `shardtrace.distributed.run_processes(program, "
            f"{num_processes})`; for ranks of MPI start it with `mpiexec -n {num_processes}` and "
            "say engine='mpi'.")
    if process_id is not None and process_id != process_index():
        raise ValueError(f"process_id={process_id}, but this is process {process_index()} of "
                         f"{process_count()}")
    if local_device_ids is not None:
        ids = [local_device_ids] if isinstance(local_device_ids, int) else list(local_device_ids)
        own = [d.local_hardware_id for d in local_devices()]
        if not set(ids) <= set(own):
            raise ValueError(f"local_device_ids={ids}, but process {process_index()} has devices "
                             f"{own}")
    with _begun.lock:
        if is_initialized():
            raise RuntimeError("distributed.initialize should only be called once.")
        coordinator = current_coordinator()
        if coordinator is None:
            _begun.alone = True
        else:
            _begun.coordinators.add(coordinator)


def is_initialized() -> bool:
    """Whether this process has called `initialize`.

    >>> st.distributed.is_initialized()
    False
    """
    coordinator = current_coordinator()
    return _begun.alone if coordinator is None else coordinator in _begun.coordinators


def shutdown() -> None:
    """Undo `initialize`.

    The process may then call `initialize` again; without one it does nothing.

    >>> st.distributed.shutdown()
    """
    coordinator = current_coordinator()
    with _begun.lock:
        if coordinator is None:
            _begun.alone = False
        else:
            _begun.coordinators.discard(coordinator)
            set_default_coordinator(None)


def _are(count: int) -> str:
    return "is 1 process" if count == 1 else f"are {count} processes"
