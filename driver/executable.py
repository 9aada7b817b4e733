"""From a traced program to something that runs: placement, partition, execution, wrapping."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.context import STATE, config
from ..ir.diagnostic import fail
from ..ir.mesh import AbstractMesh
from ..ir.program import Program
from ..ir.shape_struct import ShapeDtypeStruct
from ..ir.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ..ir.spec import PartitionSpec, spec_from_entries
from ..ir.types import ArrayType, array_type
from ..partitioner.pipeline import Options, Partitioned, partition
from ..runtime import devices
from ..runtime.array import ArrayImpl
from ..runtime.perdevice import compile_per_device
from ..runtime.placement import Placed, Placement, resolve, spec_on
from ..runtime.simulated import compile_simulated
from ..runtime.storage import Stored
from ..tracer.staging import canonical_value
from ..tracer.tracer import Tracer, typeof

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
        return (x.aval, x.sharding if x.committed else None)
    return (typeof(x), placed_sharding(x))


def stored_value(x: Any) -> Any:
    """The value as executors take it."""
    if isinstance(x, ArrayImpl):
        return x.storage
    if isinstance(x, Tracer):
        x.builder._leaked(x)
    return Stored(canonical_value(x), ())


class Executable:
    """A partitioned program bound to devices: runs on stored values and wraps the results."""

    __slots__ = ("_run", "arg_specs", "avals", "committed", "forwarded", "partitioned",
                 "placement", "shardings")

    def __init__(self, program: Program, args: Sequence[Placed], out_shardings: Sequence[Any],
                 others: Sequence[Sharding] = (), options: Options = DEFAULT_OPTIONS) -> None:
        context = STATE.mesh
        default = devices.default_device()
        self.placement = placement = resolve(
            program.name, args, program.memo.get("meshes", ()), others, context, default)
        mesh = placement.mesh
        self.arg_specs = tuple(self._arg_spec(a, placement) for a in args)
        wanted = tuple(self._wanted_spec(s, v.aval, placement)
                       for s, v in zip(out_shardings, program.outvars, strict=True))
        _check_one_mesh(program, placement.abstract_mesh)
        self.partitioned: Partitioned = partition(
            program, mesh=placement.abstract_mesh, in_shardings=self.arg_specs,
            out_shardings=wanted, options=options)
        self.committed = bool(mesh is not None or any(a.sharding is not None for a in args))
        self.shardings = [self._result_sharding(i, s, program)
                          for i, s in enumerate(out_shardings)]
        self.avals = [_array_aval(v.aval, s) for v, s in
                      zip(program.outvars, self.shardings, strict=True)]
        positions: dict[Any, int] = {v: i for i, v in enumerate(program.invars)}
        self.forwarded = [positions.get(v) for v in program.outvars]
        self._run: Any = None

    @staticmethod
    def _arg_spec(a: Placed, placement: Placement) -> PartitionSpec | None:
        if a.sharding is None or not placement.abstract_mesh.axis_names:
            return None
        if placement.mesh is None:
            return a.sharding.spec if isinstance(a.sharding, NamedSharding) else None
        return spec_on(placement.mesh, a.sharding, a.aval.ndim)

    @staticmethod
    def _wanted_spec(sharding: Any, aval: ArrayType, placement: Placement) -> PartitionSpec | None:
        if sharding is None or not placement.abstract_mesh.axis_names:
            return None
        if placement.mesh is None:
            return sharding.spec
        return spec_on(placement.mesh, sharding, aval.ndim)

    def _result_sharding(self, i: int, asked: Any, program: Program) -> Any:
        placement = self.placement
        if asked is not None:
            return asked
        if not placement.abstract_mesh.axis_names:
            return SingleDeviceSharding(placement.device) if placement.device else None
        mesh = placement.mesh or placement.abstract_mesh
        spec = self.partitioned.out_specs[i]
        aval = program.outvars[i].aval
        if (aval.mesh.axis_types != mesh.axis_types and placement.mesh is not None
                and aval.mesh.shape_tuple == mesh.shape_tuple):
            mesh = mesh.update(axis_types=aval.mesh.axis_types)  # an op of auto_axes
        entries = spec.entries
        if not (aval.mesh.axis_names and not aval.mesh.auto_axes) or not mesh.explicit_axes:
            while entries and not entries[-1]:
                entries = entries[:-1]
        return NamedSharding(mesh, spec_from_entries(entries, spec.unreduced, spec.reduced))

    def __call__(self, leaves: Sequence[Any]) -> list[ArrayImpl]:
        if self._run is None:
            if self.placement.mesh is None and self.placement.device is None:
                fail(ValueError, "A computation on an AbstractMesh has no devices to run on. Got "
                     f"mesh {self.placement.abstract_mesh}", code="no-devices",
                     help="lower it with arrays or shardings on a Mesh, as made by `make_mesh`")
            compiler = EXECUTORS[config.shardtrace_executor]
            self._run = compiler(self.partitioned.local, self.placement.abstract_mesh)
        results = self._run([stored_value(x) for x in leaves])
        out = []
        for aval, sharding, stored, source in zip(
                self.avals, self.shardings, results, self.forwarded, strict=True):
            if source is not None:
                x = leaves[source]
                if type(x) is ArrayImpl and x.committed and x.sharding.is_equivalent_to(
                        sharding, aval.ndim):
                    sharding, aval = x.sharding, x.aval
            out.append(ArrayImpl(aval, sharding, stored, self.committed))
        return out


def _check_one_mesh(program: Program, mesh: AbstractMesh) -> None:
    """Raise where a value's type is on a mesh with axes that the computation's mesh lacks."""
    if not mesh.axis_names:
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


def _array_aval(aval: ArrayType, sharding: Any) -> ArrayType:
    """The type of an array that a value of type `aval` became, under its concrete sharding."""
    if isinstance(sharding, NamedSharding):
        abstract = sharding.mesh.abstract_mesh
        sharding = NamedSharding(abstract, sharding.spec)
        return array_type(aval.shape, aval.dtype, aval.weak_type, sharding,
                          memory_space=aval.memory_space)
    return array_type(aval.shape, aval.dtype, aval.weak_type, memory_space=aval.memory_space)
