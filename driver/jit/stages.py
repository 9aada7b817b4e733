"""The stages of a jitted function that a user can hold: Traced, Lowered, Compiled."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

from ...arrays.array import ARRAYS
from ...ir.api_boundary import bound_class
from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.device import Device
from ...ir.program import Program
from ...ir.settings.context import STATE
from ...ir.shardings.base_sharding import Sharding
from ...ir.shardings.formats import Format, default_layout, reported_layout
from ...ir.shardings.sharding import NamedSharding, SingleDeviceSharding
from ...ir.source.location import Location
from ...ir.spec import PartitionSpec
from ...ir.support.lazy import lazy_import
from ...ir.types import ArrayType
from ...ir.values.shape_struct import ShapeDtypeStruct
from ...ir.values.typeof import typeof
from ...tracer.staging.tracer import Tracer
from ...tracer.trees import tree
from ..execution.arguments import leaf_keys, placed_sharding, stored_value
from ..execution.executable import Executable, on_engine
from .fast_calls import MISS, CallCache
from .requested_shardings import checked_options
from .stage_info import Function, StageInfo, on_mesh

if TYPE_CHECKING:
    from ...partitioner.collectives import CollectiveRecord
    from ...report.explanation import Explanation
    from .figures import CompiledMemoryStats

# Reports load when first asked for.
_collectives = lazy_import("...partitioner.collectives", __package__)
_text = lazy_import("...ir.text.print", __package__)
_figures = lazy_import(".figures", __package__)
_on_jax = lazy_import("..execution.on_jax", __package__)

# What explains a stage, set by driver/__init__.py: it tries changes, hence knows `jit` and this
# module.
EXPLAINERS: list[Callable[..., Explanation]] = []


@bound_class
class Traced(StageInfo):
    """A function traced on argument types: `.jaxpr` is its program."""

    def __init__(self, jitted: Function, program: Program, in_tree: Any, out_tree: Any,
                 leaves: Sequence[Any], captured: Sequence[Any],
                 static: tuple[Any, ...] = ()) -> None:
        self.jaxpr = program
        self.in_tree, self.out_tree = in_tree, out_tree
        self._jitted, self._leaves, self._captured = jitted, leaves, captured
        self._static = static
        self._meshes = {"mesh": STATE.mesh, "abstract_mesh": STATE.abstract_mesh}   # of the context

    def lower(self, *, lowering_platforms: tuple[str, ...] | None = None) -> Lowered:
        """Resolve every sharding and partition the program.

        lowering_platforms: of no effect, since programs are the same for all.
        """
        executable = self._jitted._executable(self.jaxpr, self._leaves, self.in_tree, self.out_tree)
        return Lowered(executable, self)

    def __str__(self) -> str:
        return str(self.jaxpr)

    def __repr__(self) -> str:
        return _described("traced", self.jaxpr)

    def _repr_html_(self) -> str:
        return self.jaxpr._repr_html_()


def _described(stage: str, program: Program, more: str = "") -> str:
    """`<traced layer: 3 equations, float32[8,16] -> float32[8]>`, long types left out."""
    n = len(program.eqns)
    ins = ", ".join(map(str, program.global_in or program.in_avals))
    outs = ", ".join(map(str, program.global_out or program.out_avals))
    types = f"{ins or '()'} -> {outs or '()'}"
    if len(types) > 100:
        types = f"{len(program.invars)} arguments -> {len(program.outvars)} results"
    return f"<{stage} {program.name}: {n} equation{'' if n == 1 else 's'}{more}, {types}>"


class _Placed(StageInfo):
    """A stage that knows its shardings: `program` is the traced program, `stages` passes later."""

    program: Program

    def __init__(self, executable: Executable, traced: Traced) -> None:
        self._executable, self._traced, self._jitted = executable, traced, traced._jitted
        self.jaxpr, self.in_tree, self.out_tree = traced.jaxpr, traced.in_tree, traced.out_tree
        self.stages = executable.partitioned.stages

    def _repr_html_(self) -> str:
        return self.program._repr_html_()

    def _argument_types(self) -> list[ArrayType]:
        """With the shardings that they were given, where their types have none."""
        found = []
        mesh = self._executable.placement.abstract_mesh
        for s, given, v in zip(self._executable.arg_specs, self._executable.given,
                               self.jaxpr.invars, strict=True):
            if s is None or not isinstance(given, NamedSharding):
                found.append(v.aval)
            else:
                found.append(v.aval if v.aval.mesh is mesh else on_mesh(v.aval, mesh, s))
        return found

    def explain(self, hardware: Any = "v5p", **mapping: Any) -> Explanation:
        """Every collective with its source line, reason and cost, and what would avoid it.

        hardware and mapping (topology, slices): as of `shardtrace.explain`.

        >>> mesh = st.make_mesh((8,), ("x",))
        >>> a = st.ShapeDtypeStruct((8, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
        >>> st.jit(lambda a: a.sum(0)).lower(a).explain().received_bytes
        448
        """
        return EXPLAINERS[-1](self, hardware, **mapping)

    def cost_analysis(self) -> dict[str, float]:
        """"flops", "transcendentals" and "bytes accessed" of one run.

        >>> lowered = st.jit(lambda a: jnp.tanh(a @ a)).lower(np.ones((8, 8), np.float32))
        >>> lowered.cost_analysis()
        {'flops': 1024.0, 'transcendentals': 64.0, 'bytes accessed': 1280.0}
        """
        return _figures.cost_figures(self.program)

    def xla_hlo(self) -> tuple[str, dict[int, Location]]:
        """What XLA's own partitioner makes of the program on JAX's devices: its optimised text, and
        where the lines of the source that its metadata names stand. See `interop.xla_report`.
        """
        return _on_jax.hlo_as_traced(self._executable)


@bound_class
class Lowered(_Placed):
    """A program with every sharding resolved, still over whole arrays."""

    def __init__(self, executable: Executable, traced: Traced) -> None:
        super().__init__(executable, traced)
        self.program = executable.partitioned.resolved

    def __repr__(self) -> str:
        return _described("lowered", self.program)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = True) -> str:
        """The program as text that `parse_program` reads.

        dialect: None or "shardtrace"; ValueError for others. debug_info: with source lines.
        """
        return _text.print_program(self.compiler_ir(dialect), locations=debug_info)

    def compiler_ir(self, dialect: str | None = None) -> Program:
        """The program. Raises ValueError for a dialect that is not this library's own."""
        if dialect not in (None, "shardtrace"):
            fail(ValueError, f"unknown dialect: {dialect}", code="dialect",
                 notes=("programs here are lowered to sharded programs of the same ops, not to "
                        "another compiler's",),
                 help="leave the dialect out, or write \"shardtrace\"")
        return self.program

    def as_stablehlo(self, *, debug_info: bool = False) -> str:
        """The program as it was traced, in StableHLO with Shardy's annotations: the text that JAX
        lowers it to, for XLA's partitioner or another.

        Shardings of arguments, constraints and Explicit types are `sdy.sharding`s, shard_maps
        `sdy.manual_computation`s; results are left open where nobody asked for a sharding. Needs
        JAX, and no devices. debug_info: with the user's lines. `interop.from_stablehlo` reads it.
        """
        return _on_jax.stablehlo_as_traced(self._executable, debug_info)

    def compile(self, compiler_options: Any = None, *,
                device_assignment: Sequence[Device] | None = None, engine: str | None = None,
                devices: int | None = None) -> Compiled:
        """The per-device program.

        device_assignment: the devices to run on, in the order of the mesh, for a program that was
          lowered on an AbstractMesh. (Without, its program can be read but not run.) Raises
          ValueError where the program has other devices, or another number.
        engine: what runs it: "simulated", "per_device", "jax" or "mpi"; by default what
          `config.engine` says when it first runs.
        devices: 1 to run the program as it was traced, unpartitioned, on one of the engine's
          devices ("jax" alone): what the collectives are does not show, and it is quick.
        """
        checked_options(compiler_options)
        executable = self._executable
        if device_assignment is not None:
            executable = executable.on_devices(tuple(device_assignment))
        if engine is not None or devices is not None:
            executable = on_engine(executable, engine, devices)
        return Compiled(executable, self._traced)


@bound_class
class Compiled(_Placed):
    """A per-device program; calling it runs it on arguments of the types it was compiled for."""

    def __init__(self, executable: Executable, traced: Traced) -> None:
        super().__init__(executable, traced)
        self.program = executable.partitioned.local
        self._quick = CallCache()

    def __repr__(self) -> str:
        n = len(_collectives.collectives(self.program))
        return _described("compiled", self.program, f", {n} collective{'' if n == 1 else 's'}")

    def as_text(self) -> str:
        """The per-device program, which `parse_program` reads."""
        return _text.print_program(self.program)

    def memory_analysis(self) -> CompiledMemoryStats:
        """Bytes that each device needs for arguments, results, and besides.

        >>> compiled = st.jit(lambda a: (a + 1) @ a).lower(np.ones((8, 8), np.float32)).compile()
        >>> figures = compiled.memory_analysis()
        >>> figures.argument_size_in_bytes, figures.output_size_in_bytes
        (256, 256)
        """
        used = {v for eqn in self.program.eqns for v in eqn.invars} | {*self.program.outvars}
        kept = [self._jitted.keep_unused or v in used for v in self.program.invars]
        return _figures.memory_stats(self.program, kept, self._donated())

    def runtime_executable(self) -> Executable:
        """What runs: the partitioned program with its devices. Its contents may change."""
        return self._executable

    @property
    def out_info(self) -> Any:
        """A pytree of ShapeDtypeStruct with shardings, as the function's result."""
        executable = self._executable
        found = [ShapeDtypeStruct(t.shape, t.dtype, sharding=s, weak_type=t.weak_type)
                 for t, s in zip(self.jaxpr.out_avals, executable.shardings, strict=True)]
        return tree.unflatten(self.out_tree, found)

    def as_jax(self) -> Callable[..., Any]:
        """The program as a function of `jax.Array`s that gives such, on JAX's devices.

        It takes what the jitted function takes, in the same containers; arguments should be sharded
        as `input_shardings` say, on a mesh of the same shape, else they are moved. Donated
        arguments are given up.
        """
        return _on_jax.function_of_jax(self._executable, self.in_tree, self.out_tree)

    def as_jax_source(self) -> str:
        """The program as a Python file that needs JAX alone: a function `run` of the arguments'
        arrays, one after the other, that gives a tuple of the results'.

        >>> mesh = st.make_mesh((8,), ("x",))
        >>> a = st.ShapeDtypeStruct((8, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
        >>> text = st.jit(lambda a: a.sum(0)).lower(a).compile().as_jax_source()
        >>> [line.split("  #")[0].strip() for line in text.splitlines() if "psum(" in line]
        ["c = lax.psum(b, ('x',))"]
        """
        return _on_jax.jax_source(self._executable)

    def as_stablehlo(self, *, debug_info: bool = False) -> str:
        """The per-device program in StableHLO: one `sdy.manual_computation` over all mesh axes,
        with the collectives of this partition and no others.

        Needs JAX, and no devices. debug_info: with the lines of `as_jax_source`.
        """
        return _on_jax.stablehlo(self._executable, debug_info)

    def collectives(self) -> list[CollectiveRecord]:
        """What the per-device program exchanges, in order; see `CollectiveRecord` for the fields.

        >>> mesh = st.make_mesh((8,), ("x",))
        >>> a = st.ShapeDtypeStruct((8, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
        >>> compiled = st.jit(lambda a: a.sum(0)).lower(a).compile()
        >>> for c in compiled.collectives():
        ...     print(c.kind, c.operand_bytes, c.group_size, c.count, c.mesh_axes, c.received_bytes)
        all-reduce 256 8 1 ('x',) 448
        """
        return _collectives.collectives(self.program)

    def stored_arguments(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Arguments of a call as executors take them; raises as the call does."""
        leaves = self._leaves(args, kwargs)
        return [stored_value(x, self._executable.placement.mesh) for x in leaves]

    @property
    def input_shardings(self) -> Any:
        return tree.unflatten(self.in_tree, [self._sharding_of(s, v.aval.ndim) for s, v in zip(
            self._executable.arg_specs, self._traced.jaxpr.invars, strict=True)])

    def _sharding_of(self, spec: PartitionSpec | None, ndim: int) -> Sharding:
        """The sharding in which an argument with this spec is taken."""
        placement = self._executable.placement
        if placement.device is not None:
            return SingleDeviceSharding(placement.device)
        return placement.sharding(PartitionSpec() if spec is None else spec, ndim)

    @property
    def output_shardings(self) -> Any:
        return tree.unflatten(self.out_tree, self._executable.shardings)

    @property
    def input_formats(self) -> Any:
        """Formats of the arguments: row-major, with their shardings."""
        avals = [v.aval for v in self._traced.jaxpr.invars]
        flat = tree.leaves(self.input_shardings)
        return tree.unflatten(self.in_tree, [
            Format(default_layout(t.ndim), s) for t, s in zip(avals, flat, strict=True)])

    @property
    def output_formats(self) -> Any:
        """Formats of the results."""
        executable, avals = self._executable, self._traced.jaxpr.out_avals
        layouts = executable.layouts or [None] * len(avals)
        return tree.unflatten(self.out_tree, [
            Format(default_layout(t.ndim) if layout is None else reported_layout(layout), s)
            for t, layout, s in zip(avals, layouts, executable.shardings, strict=True)])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._quick(args, kwargs)
        if result is not MISS:
            return result
        leaves = self._leaves(args, kwargs)
        executable, rebuild = self._executable, tree.rebuilder(self.out_tree)
        results = executable(leaves)
        run = executable.fast_path(leaves)
        if run is not None:
            self._quick.insert(args, kwargs, leaves, run, (), rebuild)
        return rebuild(results)

    def _leaves(self, args: Any, kwargs: Any) -> Sequence[Any]:
        """The leaves of a call's arguments, which are those that this was compiled for."""
        jitted = self._traced._jitted
        leaves, in_tree = tree.flatten_call(args, kwargs)
        if in_tree != self.in_tree:      # static arguments may be given again, or left out
            args, kwargs, _ = jitted.arguments.split(args, kwargs)
            leaves, in_tree = tree.flatten((args, kwargs))
        if in_tree != self.in_tree:
            raise TypeError("Function compiled with input pytree does not match the input pytree "
                            f"it was called with. {self._mismatch(args, kwargs)}")
        self._check(leaves)
        return leaves

    def _mismatch(self, args: Any, kwargs: Any) -> str:
        """How the structure of the arguments differs from the one that was compiled."""
        expected = tree.unflatten(self.in_tree, [None] * self.in_tree.num_leaves)
        found: list[str] = []
        for name, before, now in (("args", expected[0], args), ("kwargs", expected[1], kwargs)):
            if type(before) is type(now) and len(before) != len(now):
                kind = type(before).__name__
                found.append(f"    * at {name}, seen {kind} of length {len(before)} but now given "
                             f"{kind} of length {len(now)}, so the lengths do not match")
        if not found:
            return f"Compiled with {self.in_tree}, called with {tree.structure((args, kwargs))}"
        return f"There are {len(found)} mismatches, including:\n" + "\n".join(found)

    def _check(self, leaves: Sequence[Any]) -> None:
        """Raise where arguments have other types or shardings than the computation was compiled
        for.
        """
        for x in leaves:
            if isinstance(x, Tracer):
                fail(TypeError, "Cannot apply JAX transformations to a function lowered and "
                     "compiled for a particular signature. Detected argument of Tracer type "
                     f"{type(x)}.", code="compiled-traced",
                     notes=(f"it is called with {x!r}, of a function that is being traced",),
                     help="call the jitted function itself there")
        known = self._traced._leaves
        if all(map(is_, leaves, known)) and ARRAYS.issuperset(map(type, leaves)) or (
                leaf_keys(leaves) == leaf_keys(known)):
            return
        program, names = self._traced.jaxpr, self._traced.jaxpr.arg_names
        wrong, moved = [], []
        executable = self._executable
        placement = executable.placement
        has_devices = placement.mesh is not None or placement.device is not None
        for x, v, name, spec, given in zip(leaves, program.invars, names, executable.arg_specs,
                                           executable.given, strict=True):
            t, sharding = typeof(x), placed_sharding(x)
            if (t.shape, t.dtype) != (v.aval.shape, v.aval.dtype):
                wrong.append(f"Argument {name!r} compiled with {v.aval} and called with {t}")
            elif has_devices and sharding is not None and not (
                    given is not None and given.is_equivalent_to(sharding, t.ndim)):
                required = self._sharding_of(spec, t.ndim)
                if not required.is_equivalent_to(sharding, t.ndim):
                    moved.append(f"Argument {name} with shape {t}:\n  Passed sharding: {sharding}\n"
                                 f"  Required sharding: {required}")
        if wrong:
            raise TypeError(
                "Argument types differ from the types for which this computation was compiled. "
                "Perhaps you are calling the compiled executable with a different enable_x64 mode "
                "than when it was AOT compiled? The mismatches are:\n" + "\n".join(wrong))
        if moved:
            raise ValueError(
                "Computation was compiled for input shardings that disagree with the shardings of "
                f"arguments passed to it. Here are the {len(moved)} mismatches:\n"
                + "\n".join(moved))
