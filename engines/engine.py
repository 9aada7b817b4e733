"""What an engine is, and which there are.

An engine loads a LOCAL program for a mesh and returns a function of stored values
(arrays/storage.py) that returns stored values. That function places its arguments where the engine
computes, runs the program, and fetches the results. Engines are imported when first asked for.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..arrays.processes.coordinator import current_coordinator
from ..arrays.storage import Stored
from ..ir.meshes.mesh import AbstractMesh
from ..ir.program import Program
from ..ir.support.lazy import lazy_import
from ..runtime.simulation.executor import compile_simulated

_per_device = lazy_import("..runtime.per_device.executor", __package__)
_xla = lazy_import(".xla.engine", __package__)
_mpi = lazy_import(".mpi.engine", __package__)


class LoadedProgram(Protocol):
    """A program on an engine."""

    def __call__(self, arguments: Sequence[Stored]) -> list[Any]:
        """Place whole values, run, and fetch whole results."""
        ...


class Engine(Protocol):
    """Loads LOCAL programs. name: as in `compile(engine=...)`. compiles: whether loading takes so
    long that operations outside of jitted functions are left to the simulation."""
    name: str
    compiles: bool

    def load(self, local: Program, mesh: AbstractMesh | None, devices: Sequence[int] = ()
             ) -> LoadedProgram:
        """The program, ready to run. mesh: None for a program of whole values, on one device.
        devices: numbers of the mesh's devices, in its order."""
        ...


class SimulatedEngine:
    """All devices at once, as arrays of numpy (runtime/simulation/): the default."""
    name, compiles = "simulated", False

    def load(self, local: Program, mesh: AbstractMesh | None, devices: Sequence[int] = ()
             ) -> LoadedProgram:
        assert mesh is not None
        return compile_simulated(local, mesh)


class PerDeviceEngine:
    """One device after the other, with buffers of its own (runtime/per_device/): the judge."""
    name, compiles = "per_device", False

    def load(self, local: Program, mesh: AbstractMesh | None, devices: Sequence[int] = ()
             ) -> LoadedProgram:
        return _per_device.compile_per_device(local, mesh)


class XLAEngine:
    """JAX's devices, by XLA (xla/)."""
    name, compiles = "jax", True

    def load(self, local: Program, mesh: AbstractMesh | None, devices: Sequence[int] = ()
             ) -> LoadedProgram:
        return _xla.XLAProgram(local, mesh, devices)


class MPIEngine:
    """The ranks of an MPI job (mpi/). Where ranks are processes of one program, their coordinator
    runs what needs several of them, and what is loaded here runs on this rank alone.
    """
    name, compiles = "mpi", True

    def load(self, local: Program, mesh: AbstractMesh | None, devices: Sequence[int] = ()
             ) -> LoadedProgram:
        assert mesh is not None
        if current_coordinator() is not None:
            return compile_simulated(local, mesh)
        return _mpi.MPIProgram(local, mesh)


ENGINES: dict[str, Engine] = {
    e.name: e for e in (SimulatedEngine(), PerDeviceEngine(), XLAEngine(), MPIEngine())}


def reports(engine: str) -> bool:
    """Whether this process is the one that prints what an engine gave: the first rank of a job."""
    return engine != "mpi" or _mpi.link().rank == 0
