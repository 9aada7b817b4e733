"""From a traced program to one that devices can run: placement, partition, execution."""
from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from ...arrays import devices
from ...engines.engine import ENGINES
from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.device import Device
from ...ir.meshes.mesh import Mesh
from ...ir.ops.control.callback import inspect_sharding_p
from ...ir.passes import run_passes
from ...ir.program import Atom, Program
from ...ir.settings.context import STATE, config
from ...ir.settings.phases import phase
from ...ir.shardings.gspmd import is_single_device
from ...ir.shardings.refinement import Refinement
from ...ir.shardings.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ...ir.spec import PartitionSpec
from ...ir.support.lazy import lazy_import
from ...ir.types import ArrayType
from ...partitioner.pipeline import DEFAULT_OPTIONS, Options, Partitioned
from ...runtime.simulation.executor import compile_simulated
from .mesh_switches import (
    ONE_MESH,
    abstract_mesh_named,
    check_one_mesh,
    mesh_of_types,
    on_own_mesh,
    refined_mesh,
    refinement_of,
    warn_of_captured,
    who_named,
)
from .partition_cache import partition_cached, plan_cached
from .placement import ArgumentPlacement, Placement, argument_specs, resolve, spec_on
from .result_shardings import array_aval, found_sharding

logging = lazy_import("logging")

_USED = operator.attrgetter("used")


def _log(program: Program, args: Sequence[ArgumentPlacement]) -> None:
    """The line of `jax_log_compiles`."""
    logging.getLogger("shardtrace.driver").warning(
        "Compiling %s with global shapes and types [%s]. Argument mapping: (%s).",
        program.name, ", ".join(a.aval.str_short(True) for a in args),
        ", ".join(str(a.sharding or "UnspecifiedValue") for a in args))


class BoundProgram:
    """A partitioned program bound to devices, which runs on stored values.

    is_operation: whether it is a single op, outside of any jitted function. has_out_shardings:
    whether some were given. agreements: what the processes of a job have found to agree in
    (driver/execution/multiprocess.py). engine: what runs it, None for the configured one when it
    first runs. whole: whether the engine gets the program as it was traced, for one device.
    """

    __slots__ = ("_run", "agreements", "arg_specs", "avals", "committed", "engine", "forwarded",
                 "given", "has_out_shardings", "is_operation", "partitioned", "placement",
                 "shardings", "used", "whole")

    def __init__(self, program: Program, args: Sequence[ArgumentPlacement],
                 out_shardings: Sequence[Any],
                 others: Sequence[Sharding] = (), options: Options = DEFAULT_OPTIONS,
                 is_operation: bool = False, who: str = "") -> None:
        if config.read("jax_log_compiles"):
            _log(program, args)
        if program.consts:
            warn_of_captured(program)
        self.is_operation = is_operation
        self.agreements: dict[Any, Any] = {}
        self.has_out_shardings = any([s is not None for s in out_shardings])
        placement = resolve(
            who or program.name, args, program.attributes.get("meshes", ()), others, STATE.mesh,
            devices.default_device, functools.partial(who_named, program),
            functools.partial(abstract_mesh_named, program))
        devices_mesh = placement.mesh
        refined = refinement_of(program, placement.abstract_mesh)
        if refined is not None:
            placement = placement._replace(
                mesh=refined_mesh(refined, devices_mesh), abstract_mesh=refined.mesh)
        self.placement = placement
        self.given = tuple([a.sharding for a in args])
        self.used = tuple(map(_USED, args))
        self.arg_specs = argument_specs(args, placement)
        self.partitioned = self._partition(program, refined, out_shardings, options)
        traced = self.partitioned.traced
        if "debug" in traced.effects:
            self._inspect_shardings()
        self.committed = bool(placement.mesh is not None or self.has_out_shardings
                              or any(map(is_single_device, program.attributes.get("meshes", ())))
                              or any([a.sharding is not None and a.used for a in args]))
        self.shardings = self._result_shardings(traced.outvars, out_shardings, args)
        if refined is not None:
            self._use_own_meshes(program, out_shardings, refined, devices_mesh)
        self.avals = [array_aval(v.aval, s)
                      for v, s in zip(traced.outvars, self.shardings, strict=True)]
        positions: dict[Any, int] = {v: i for i, v in enumerate(traced.invars)}
        self.forwarded = [(i, positions[v]) for i, v in enumerate(traced.outvars)
                          if v in positions]      # type: ignore[index]
        self._run: Any = None
        self.engine: str | None = None
        self.whole = False

    def _partition(self, program: Program, refined: Refinement | None,
                   out_shardings: Sequence[Any], options: Options) -> Partitioned:
        """The program brought to one mesh, and partitioned."""
        mesh = self.placement.abstract_mesh
        wanted = tuple([None if s is None else self._wanted_spec(s, v.aval, self.placement)
                        for s, v in zip(out_shardings, program.outvars, strict=True)])
        with phase("partition", len(program.eqns)):
            program = run_passes(ONE_MESH, program, mesh, refined)
            check_one_mesh(program, mesh)
            return partition_cached(
                program, mesh=mesh_of_types(program, mesh), in_shardings=self.arg_specs,
                out_shardings=wanted, options=options)

    def _inspect_shardings(self) -> None:
        """Call what `debug.inspect_array_sharding` registered within the program."""
        placement = self.placement
        for eqn in self.partitioned.resolved.walk():
            if eqn.op is inspect_sharding_p:
                aval = eqn.invars[0].aval
                eqn.params["callback"](
                    SingleDeviceSharding(placement.device) if placement.device is not None else
                    placement.sharding(aval.sharding.spec, aval.ndim))

    def _use_own_meshes(self, program: Program, requested: Sequence[Any], refined: Refinement,
                        mesh: Mesh | None) -> None:
        """Results on the meshes that the types of the program, as it was traced, name."""
        for i, v in enumerate(program.outvars):
            if requested[i] is None:
                own = on_own_mesh(v.aval, self.partitioned.out_specs[i], refined, mesh,
                                  self.shardings[i].memory_kind)
                if own is not None:
                    self.shardings[i] = own

    @staticmethod
    def _wanted_spec(sharding: Any, aval: ArrayType, placement: Placement) -> PartitionSpec | None:
        if not placement.abstract_mesh.axis_names:
            return None
        if placement.mesh is None:
            return sharding.spec
        return spec_on(placement.mesh, sharding, aval.ndim)

    def _result_shardings(self, outvars: Sequence[Atom], requested: Sequence[Any],
                          args: Sequence[ArgumentPlacement]) -> list[Any]:
        """What was asked for, else as found; spelled as that of the first argument on a mesh."""
        model = next((a for a in args if isinstance(a.sharding, NamedSharding)), None)
        like = None if model is None else model.sharding
        ndim = -1 if model is None else model.aval.ndim
        return [found_sharding(self.placement, v.aval, spec, like if ndim == v.aval.ndim else None)
                if s is None else s
                for v, spec, s in zip(outvars, self.partitioned.out_specs, requested, strict=True)]

    def on_devices(self, devices: tuple[Device, ...]) -> Self:
        """This computation, which was lowered on an AbstractMesh, bound to devices.

        Raises ValueError where it has other devices already, or the mesh another size.
        """
        placement = self.placement
        own = placement.unnamed or (
            (placement.device,) if placement.device else
            placement.mesh.device_tuple if placement.mesh is not None else ())
        if own:
            if devices != own:
                fail(ValueError, "device_assignment passed to `.compile` must match the "
                     "device_assignment calculated from array shardings and out_shardings. Got "
                     f"device ids passed to compile: {[d.id for d in devices]}, calculated device "
                     f"ids: {[d.id for d in own]}", code="device-assignment",
                     help="leave device_assignment out, or lower with shardings on an AbstractMesh")
            return self
        abstract = placement.abstract_mesh
        if abstract.size != len(devices):
            fail(ValueError, f"The size of abstract mesh {abstract.size} in {abstract} must match "
                 f"the length of device assignment: {len(devices)}", code="device-assignment",
                 help=f"pass {abstract.size} devices as device_assignment")
        mesh = Mesh(np.array(devices, object).reshape(abstract.axis_sizes), abstract.axis_names,
                    axis_types=abstract.axis_types)

        def concrete(s: Any) -> Any:
            if not isinstance(s, NamedSharding) or s.is_concrete:
                return s
            return s.update(mesh=mesh if s.mesh.shape_tuple == mesh.shape_tuple else Mesh(
                np.array(devices, object).reshape(s.mesh.axis_sizes), s.mesh.axis_names,
                axis_types=s.mesh.axis_types))

        found = copy.copy(self)
        found.placement = placement._replace(mesh=mesh)
        found.given = tuple(map(concrete, self.given))
        found.shardings = list(map(concrete, self.shardings))
        found.avals = [array_aval(t, s)
                       for t, s in zip(self.avals, found.shardings, strict=True)]
        found.committed, found.agreements, found._run = True, {}, None
        return found

    def run_stored(self, stored: Sequence[Any]) -> list[Any]:
        """Run on whole values, where all devices are at hand."""
        if self._run is None:
            if self.placement.mesh is None and self.placement.device is None:
                fail(ValueError, "A computation on an AbstractMesh has no devices to run on. Got "
                     f"mesh {self.placement.abstract_mesh}", code="no-devices",
                     help="lower it with arrays or shardings on a Mesh, as made by `make_mesh`")
            with phase("plan", len(self.partitioned.local.eqns)):
                self._run = self._load()
        if STATE.phases is None:
            return self._run(stored)
        with phase("run", len(self.partitioned.local.eqns)):
            return self._run(stored)

    def _load(self) -> Any:
        """The program on its engine."""
        engine = ENGINES[self.engine or config.read("shardtrace_engine")]
        local, mesh = self.partitioned.local, self.placement.abstract_mesh
        if engine.name == "simulated" or self.is_operation and engine.compiles:
            return plan_cached(local, mesh, compile_simulated)
        if self.whole:
            return engine.load(self.partitioned.traced, None)
        return engine.load(local, mesh, self.device_numbers())

    def device_numbers(self) -> list[int]:
        """The numbers of its devices, in the order of the mesh."""
        placed = self.placement.mesh
        return [d.id for d in placed.device_tuple] if placed is not None else []

    def on_engine(self, engine: str, whole: bool = False) -> Self:
        """This computation, run by the engine of that name."""
        found = copy.copy(self)
        found.engine, found.whole, found._run = engine, whole, None
        return found
