"""Ops outside of any trace: each runs at once, as a jitted function of one equation."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.array import ArrayImpl
from ...arrays.assembly import make_array_from_callback
from ...ir.meshes.mesh import AbstractMesh, Mesh
from ...ir.meshes.process import process_identity
from ...ir.op import DEFAULT_INTERPRETER, Op, params_key
from ...ir.ops.control.callback import inspect_sharding_p
from ...ir.ops.elementwise.identity import copy_p, device_put_p
from ...ir.program import Program, subprograms_in
from ...ir.settings.context import STATE, config, put_back, trace_settings
from ...ir.shardings.gspmd import is_single_device
from ...ir.shardings.sharding import NamedSharding
from ...ir.support.caches import module_table
from ...ir.support.lazy import lazy_import
from ...ir.values.typeof import typeof
from ...partitioner.pipeline import Options
from ...tracer.shard_map import region_values
from ...tracer.shardings import sharding_functions
from ...tracer.staging import constants
from ...tracer.staging.builder import record_mesh
from ...tracer.staging.staging import trace_to_program
from ...tracer.staging.tracer import Tracer
from .arguments import leaf_key, placed_sharding
from .call_capture import WATCH, EagerCall
from .executable import Executable
from .placement import ArgumentPlacement
from .transfer import device_put

_callbacks = lazy_import("...runtime.callbacks", __package__)
_check = lazy_import("...tracer.checkify.check", __package__)

_QUIET = Options(dump=False)     # single ops would bury the programs that a user asked to see


class EagerInterpreter:
    """Runs an op at once: a program of one equation, cached on op, params and arguments."""

    def __init__(self) -> None:
        self._cache = module_table(
            "driver.execution.eager.EagerInterpreter", "ops that ran outside of jitted functions",
            2048)

    def process(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[ArrayImpl]:
        """The results of one op on arrays. Ops whose effect is all that they do are carried out
        here; any other is traced alone, and its executable kept.
        """
        for x in operands:
            if type(x) is Tracer:       # of a derivative's recording, or one that has leaked
                operands = [x.builder.outside(x) if isinstance(x, Tracer) else x for x in operands]
                break
        if op is inspect_sharding_p:
            params["callback"](device_put(operands[0]).sharding)
            return []
        if op is device_put_p and "sharding" in params:
            return [device_put(operands[0], params["sharding"])]
        if op.effect == "debug":
            _callbacks.call_now(op, params, operands, [typeof(x) for x in operands])
            return []
        if op.effect == "check":
            _check.raise_now(operands, params)
            return []
        key = (op, params_key(params), tuple(map(leaf_key, operands)), STATE.mesh,
               STATE.abstract_mesh, STATE.eager_meshes, config.shardtrace_engine,
               config.jax_default_device, trace_settings(), process_identity())
        executable = self._cache.get(key)
        if executable is None:
            def one(*values: Any) -> list[Any]:
                for mesh in (*_eager_meshes(operands, params), *_named_meshes(op, params)):
                    record_mesh(mesh)
                results = op.bind(*values, **params)
                return list(results) if op.multiple_results else [results]

            names = [chr(ord("a") + i % 26) for i in range(len(operands))]
            before = STATE.__dict__.copy()
            try:
                program, _ = trace_to_program(one, [typeof(x) for x in operands], name=op.name,
                                              arg_names=names)
            except (KeyboardInterrupt, SystemExit):
                put_back(before)
                raise
            args = _placements(names, program, operands)
            executable = Executable(program, args, [None] * len(program.outvars),
                                    options=_QUIET, is_operation=True)
            if WATCH.watcher is not None:
                WATCH.watcher(_ran(program, executable, operands))
            self._cache[key] = executable
        results = executable(operands)
        if op is copy_p and type(operands[0]) is ArrayImpl:
            return [results[0].clone()]      # executors let a copy share memory; here it is seen
        return results


def _eager_meshes(operands: Sequence[Any], params: dict[str, Any]) -> Sequence[Mesh]:
    """The meshes on which an op may live besides those of its operands: where operands are
    committed to other devices, there; else one that its types or params name."""
    meshes = STATE.eager_meshes
    if len(meshes) == 0:
        return meshes
    for x in operands:
        if isinstance(x, ArrayImpl) and x.committed:
            devices = x.sharding.device_set
            return [m for m in meshes if m.device_set == devices and not is_single_device(m)]
    named = {p.mesh if isinstance(p, NamedSharding) else p for p in params.values()
             if isinstance(p, (NamedSharding, AbstractMesh))}
    if STATE.abstract_mesh.explicit_axes:
        named.add(STATE.abstract_mesh)
    return [m for m in meshes if m.abstract_mesh in named][:1]


def _named_meshes(op: Op, params: dict[str, Any]) -> list[Mesh]:
    """The concrete meshes that programs held by an equation name."""
    return [m for _, p in subprograms_in(op, params) for m in p.attributes.get("meshes", ())]


def _placements(names: Sequence[str], program: Program, values: Sequence[Any]
                ) -> list[ArgumentPlacement]:
    """Where arguments of these names are: where their values are."""
    return [ArgumentPlacement(n, v.aval, placed_sharding(x))
            for n, v, x in zip(names, program.invars, values, strict=True)]


def _eager_call(name: str, f: Callable[..., Sequence[Any]], *args: Any,
                shardings: Callable[[], Sequence[Any]] | None = None) -> list[ArrayImpl]:
    """Trace `f`, which takes and returns flat values, and run it.

    shardings: those of the results (None: as found), to be asked when `f` has been traced.
    """
    names = [f"args[{i}]" for i in range(len(args))]
    saved, STATE.eager_arguments = STATE.eager_arguments, args
    try:
        program, _ = trace_to_program(f, [typeof(x) for x in args], name=name, arg_names=names)
    finally:
        STATE.eager_arguments = saved
    return _run_flat(program, args, shardings() if shardings is not None else None)


def _run_flat(program: Program, args: Sequence[Any], shardings: Sequence[Any] | None = None
              ) -> list[ArrayImpl]:
    """Run a traced program on flat arguments."""
    placed = _placements([v.name or "" for v in program.invars], program, args)
    wanted = [None] * len(program.outvars) if shardings is None else shardings
    executable = Executable(program, placed, wanted)
    if WATCH.watcher is not None:
        WATCH.watcher(_ran(program, executable, args))
    return executable(args)


def _ran(program: Program, executable: Executable, args: Sequence[Any]) -> EagerCall:
    """What is about to run, as a program on its mesh."""
    mesh = executable.placement.abstract_mesh
    if mesh.axis_names and not program.mesh.axis_names:
        program = program.replace(mesh=mesh)
    return EagerCall(program, executable.arg_specs, args)


def install() -> None:
    """Make this the interpreter of threads that trace nothing."""
    DEFAULT_INTERPRETER[:] = [EagerInterpreter()]
    sharding_functions.EAGER_CALL[:] = [_eager_call]
    constants.DEVICE_PUT[:] = [device_put]
    constants.NEW_ARRAY[:] = [make_array_from_callback]
    region_values.RUN_PROGRAM[:] = [_run_flat]
