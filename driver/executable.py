"""From a traced program to something that runs: placement, partition, execution, wrapping."""
from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

from ..ir.context import STATE, config
from ..ir.diagnostic import fail
from ..ir.formats import Layout
from ..ir.memory import MemorySpace, space_of_kind
from ..ir.mesh import AbstractMesh, AxisType, Mesh
from ..ir.program import Program
from ..ir.shape_struct import ShapeDtypeStruct
from ..ir.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ..ir.spec import PartitionSpec, spec_from_entries
from ..ir.types import ArrayType, array_type
from ..partitioner.one_mesh import on_one_mesh
from ..partitioner.pipeline import Options, Partitioned, partition
from ..runtime import devices
from ..runtime.array import ArrayImpl
from ..runtime.coordinator import current_coordinator
from ..runtime.perdevice import compile_per_device
from ..runtime.placement import Placed, Placement, resolve, spec_on
from ..runtime.simulated import compile_simulated
from ..runtime.storage import LocalBlocks, Stored, on_mesh
from ..tracer.staging import canonical_value
from ..tracer.tracer import Tracer, typeof
from .checked_values import bad_value, report, watched
from .guards import guard_arguments
from .together import check_closure, run_together

_LOG = logging.getLogger("shardtrace.driver")
DEFAULT_OPTIONS = Options()
EXECUTORS = {"simulated": compile_simulated, "per_device": compile_per_device}


def placed_sharding(x: Any) -> Sharding | None:
    """The sharding that binds a computation to devices, or None where `x` may go anywhere."""
    if isinstance(x, ArrayImpl):
        return x.sharding if x.committed else None
    if isinstance(x, ShapeDtypeStruct):
        sharding = x.sharding
        return sharding if isinstance(sharding, Sharding) else None
    return None


def leaf_key(x: Any) -> Any:
    """What a cached executable depends on, of one argument."""
    if type(x) is ArrayImpl:
        return (x.aval, x.sharding if x.committed else None, x._layout)
    return (typeof(x), placed_sharding(x))


def stored_value(x: Any, mesh: Mesh | None = None) -> Any:
    """The value as executors take it. mesh: that of the computation; it names what is stacked."""
    if isinstance(x, ArrayImpl):
        storage = x.storage
        if type(storage) is LocalBlocks:
            if current_coordinator() is None:
                return Stored(x.value)       # raises where blocks are missing
            return storage
        if mesh is not None and getattr(storage, "lead", ()):
            own = on_mesh(x.sharding).mesh  # type: ignore[attr-defined]
            if own is not mesh and own.shape != mesh.shape:
                return Stored(x.value, ())
        return storage
    if isinstance(x, Tracer):
        x.builder._leaked(x)
    return Stored(canonical_value(x), ())


class Executable:
    """A partitioned program bound to devices: runs on stored values and wraps the results.

    is_operation: whether it is a single op, outside of any jitted function. asked: whether somebody
    said where results go. agreements: what it is to several processes, by who asks
    (driver/together.py).
    """

    __slots__ = ("_run", "agreements", "arg_specs", "asked", "avals", "committed", "forwarded",
                 "given", "is_operation", "layouts", "partitioned", "placement", "shardings")

    def __init__(self, program: Program, args: Sequence[Placed], out_shardings: Sequence[Any],
                 others: Sequence[Sharding] = (), options: Options = DEFAULT_OPTIONS,
                 is_operation: bool = False) -> None:
        check_closure([value for _, value in program.consts])
        if config.jax_log_compiles:
            _LOG.warning("Compiling %s with global shapes and types [%s]. Argument mapping: (%s).",
                         program.name, ", ".join(a.aval.str_short(True) for a in args),
                         ", ".join(str(a.sharding or "UnspecifiedValue") for a in args))
        self.is_operation = is_operation
        self.agreements: dict[Any, Any] = {}
        self.asked = any(s is not None for s in out_shardings)
        context = STATE.mesh
        default = devices.default_device()
        self.placement = placement = resolve(
            program.name, args, program.memo.get("meshes", ()), others, context, default,
            functools.partial(_who_named, program))
        mesh = placement.mesh
        self.given = tuple(a.sharding for a in args)
        self.arg_specs = tuple(self._arg_spec(a, placement) for a in args)
        wanted = tuple(self._wanted_spec(s, v.aval, placement)
                       for s, v in zip(out_shardings, program.outvars, strict=True))
        program = on_one_mesh(program, placement.abstract_mesh)
        _check_one_mesh(program, placement.abstract_mesh)
        self.partitioned: Partitioned = partition(
            program, mesh=placement.abstract_mesh, in_shardings=self.arg_specs,
            out_shardings=wanted, options=options)
        self.committed = bool(mesh is not None or self.asked
                              or any(a.sharding is not None and a.used for a in args))
        model = next((a for a in args if isinstance(a.sharding, NamedSharding)), None)
        self.shardings = [self._result_sharding(i, s, program, model)
                          for i, s in enumerate(out_shardings)]
        self.avals = [_array_aval(v.aval, s) for v, s in
                      zip(program.outvars, self.shardings, strict=True)]
        positions: dict[Any, int] = {v: i for i, v in enumerate(program.invars)}
        self.forwarded = [positions.get(v) for v in program.outvars]
        self.layouts: Sequence[Layout | None] = ()     # of results that are not row-major
        self._run: Any = None

    @staticmethod
    def _arg_spec(a: Placed, placement: Placement) -> PartitionSpec | None:
        if a.sharding is None or not placement.abstract_mesh.axis_names:
            return None
        if placement.mesh is None:
            return a.sharding.spec if isinstance(a.sharding, NamedSharding) else None
        if not a.used and a.sharding.device_assignment != placement.mesh.device_tuple:
            return None
        return spec_on(placement.mesh, a.sharding, a.aval.ndim)

    @staticmethod
    def _wanted_spec(sharding: Any, aval: ArrayType, placement: Placement) -> PartitionSpec | None:
        if sharding is None or not placement.abstract_mesh.axis_names:
            return None
        if placement.mesh is None:
            return sharding.spec
        return spec_on(placement.mesh, sharding, aval.ndim)

    def _result_sharding(self, i: int, asked: Any, program: Program, model: Placed | None) -> Any:
        """model: the first argument that lies on a mesh; a result laid out alike says it alike."""
        placement = self.placement
        if asked is not None:
            return asked
        host = program.outvars[i].aval.memory_space is MemorySpace.Host
        kind = "pinned_host" if host else None
        if not placement.abstract_mesh.axis_names:
            device = placement.device
            return SingleDeviceSharding(device, memory_kind=kind) if device else None
        mesh = placement.mesh or placement.abstract_mesh
        spec = self.partitioned.out_specs[i]
        aval = program.outvars[i].aval
        types = mesh.axis_types
        if placement.mesh is not None and aval.mesh.shape_tuple == mesh.shape_tuple:
            types = aval.mesh.axis_types     # others than the mesh has after an op of auto_axes
        entries = spec.entries
        by_type = aval.mesh.axis_names and set(spec.axes()) <= set(aval.mesh.explicit_axes)
        if not by_type or AxisType.Explicit not in types:   # as found, but for empty last entries
            while entries and not entries[-1]:
                entries = entries[:-1]
        spec = spec_from_entries(entries, spec.unreduced, spec.reduced)
        found = placement.sharding(spec, aval.ndim, types, kind)
        if (not by_type and model is not None and kind is None and aval.ndim == model.aval.ndim
                and model.sharding.mesh is found.mesh  # type: ignore[union-attr]
                and model.sharding.is_equivalent_to(found, aval.ndim)):  # type: ignore[union-attr]
            return model.sharding
        return found

    def run_whole(self, stored: Sequence[Any]) -> list[Any]:
        """Run on whole values, where all devices are at hand."""
        if self._run is None:
            if self.placement.mesh is None and self.placement.device is None:
                fail(ValueError, "A computation on an AbstractMesh has no devices to run on. Got "
                     f"mesh {self.placement.abstract_mesh}", code="no-devices",
                     help="lower it with arrays or shardings on a Mesh, as made by `make_mesh`")
            compiler = EXECUTORS[config.shardtrace_executor]
            self._run = compiler(self.partitioned.local, self.placement.abstract_mesh)
        return self._run(stored)

    def __call__(self, leaves: Sequence[Any]) -> list[ArrayImpl]:
        guard_arguments(leaves)
        values = [stored_value(x, self.placement.mesh) for x in leaves]
        coordinator = current_coordinator()
        results = None if coordinator is None else run_together(self, coordinator, leaves, values)
        if results is None:
            results = self.run_whole(values)
        out = []
        for aval, sharding, stored, source in zip(
                self.avals, self.shardings, results, self.forwarded, strict=True):
            if source is not None:
                x = leaves[source]
                if isinstance(x, ArrayImpl) and x.committed and x.sharding.is_equivalent_to(
                        sharding, aval.ndim):
                    sharding, aval = _as_result(x), x.aval
            out.append(ArrayImpl(aval, sharding, stored, self.committed))
        for i, layout in enumerate(self.layouts):
            if layout is not None:
                out[i] = out[i].with_layout(layout)
        kinds = watched()
        if kinds:
            kind = bad_value(out, kinds)
            if kind is not None:
                report(self.partitioned.stages["traced"], leaves, kind, kinds)
        return out


def _who_named(program: Program, mesh: Mesh) -> str:
    """The op of a program that names a concrete mesh."""
    for eqn in program.eqns:
        for param in eqn.params.values():
            if isinstance(param, NamedSharding):
                param = param.mesh
            if param is mesh or param is mesh.abstract_mesh:
                return eqn.primitive.name
            if isinstance(param, Program) and mesh in param.memo.get("meshes", ()):
                return eqn.primitive.name
    return "sharding_constraint"


def _as_result(x: ArrayImpl) -> Sharding:
    """The sharding of an argument that is a result too: over Explicit axes with a full spec."""
    sharding = x.sharding
    if isinstance(sharding, NamedSharding) and x.aval.has_explicit_mesh():
        return sharding.update(spec=sharding.spec.padded(x.aval.ndim))
    return sharding


def _check_one_mesh(program: Program, mesh: AbstractMesh) -> None:
    """Raise where a value's type is on a mesh with axes that the computation's mesh lacks."""
    if not mesh.axis_names:
        _check_has_mesh(program)
        return
    names = set(mesh.axis_names)
    for eqn in program.eqns:
        for v in eqn.outvars:
            other = v.aval.mesh
            if other is not mesh and not names.issuperset(other.axis_names):
                fail(ValueError,
                     f"{program.name} works on mesh {other} inside, but its arguments and devices "
                     f"are on mesh {mesh}: a computation has one set of axis names",
                     code="mesh-names", location=eqn.location, label=f"this is {v.aval}",
                     help="give the axes of both meshes the same names and sizes, or call "
                          f"{program.name} under a mesh with the axes {other.axis_names}")


def _check_has_mesh(program: Program) -> None:
    """Raise where a result is split over a mesh that a computation on one device never met."""
    for aval in (v.aval for v in program.outvars):
        if aval.mesh.axis_names and aval.mesh.are_all_axes_explicit and aval.mesh.size > 1:
            fail(ValueError, "Length of device assignment 1 is not equal to the size of the mesh "
                 f"{aval.mesh.size} of aval {aval.str_short(True)}. Please enter your `jit` into a "
                 "mesh context via `jax.set_mesh`.", code="mesh-without-devices",
                 help="with set_mesh(mesh): ...")


def _array_aval(aval: ArrayType, sharding: Any) -> ArrayType:
    """The type of an array that a value of type `aval` became, under its concrete sharding."""
    space = aval.memory_space if sharding is None else space_of_kind(sharding.memory_kind)
    if isinstance(sharding, NamedSharding):
        abstract = sharding.mesh.abstract_mesh
        sharding = NamedSharding(abstract, sharding.spec)
        return array_type(aval.shape, aval.dtype, aval.weak_type, sharding, memory_space=space)
    return array_type(aval.shape, aval.dtype, aval.weak_type, memory_space=space)
