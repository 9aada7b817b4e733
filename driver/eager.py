"""Ops outside of any trace: each runs at once, as a jitted function of one equation."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.context import STATE, config
from ..ir.op import DEFAULT_INTERPRETER, Op, params_key
from ..ir.program import Program
from ..partitioner.pipeline import Options
from ..runtime.array import ArrayImpl
from ..runtime.placement import Placed
from ..tracer import constants, region_values, sharding_functions
from ..tracer.staging import record_mesh, trace_to_program
from ..tracer.tracer import Tracer, typeof
from .executable import Executable, leaf_key, placed_sharding
from .transfer import device_put

_QUIET = Options(dump=False)     # single ops would bury the programs that a user asked to see


class EagerInterpreter:
    """Runs an op at once: a program of one equation, cached on op, params and arguments."""

    def __init__(self) -> None:
        self._cache: dict[Any, Executable] = {}

    def process(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[ArrayImpl]:
        key = (op, params_key(params), tuple(map(leaf_key, operands)), STATE.mesh,
               STATE.abstract_mesh, STATE.eager_meshes, config.shardtrace_executor,
               config.jax_default_device)
        executable = self._cache.get(key)
        if executable is None:
            for x in operands:
                if isinstance(x, Tracer):
                    x.builder._leaked(x)

            def one(*values: Any) -> list[Any]:
                for mesh in STATE.eager_meshes:
                    record_mesh(mesh)
                results = op.bind(*values, **params)
                return list(results) if op.multiple_results else [results]

            names = [chr(ord("a") + i % 26) for i in range(len(operands))]
            program, _ = trace_to_program(one, [typeof(x) for x in operands], name=op.name,
                                          arg_names=names)
            args = [Placed(n, v.aval, placed_sharding(x))
                    for n, v, x in zip(names, program.invars, operands, strict=True)]
            executable = Executable(program, args, [None] * len(program.outvars),
                                    options=_QUIET)
            if len(self._cache) > 10_000:
                self._cache.clear()
            self._cache[key] = executable
        return executable(operands)


def _eager_call(name: str, f: Callable[..., Sequence[Any]], *args: Any) -> list[ArrayImpl]:
    """Trace `f`, which takes and returns flat values, and run it."""
    names = [f"args[{i}]" for i in range(len(args))]
    saved, STATE.eager_arguments = STATE.eager_arguments, args
    try:
        program, _ = trace_to_program(f, [typeof(x) for x in args], name=name, arg_names=names)
    finally:
        STATE.eager_arguments = saved
    return _run_flat(program, args)


def _run_flat(program: Program, args: Sequence[Any]) -> list[ArrayImpl]:
    """Run a traced program on flat arguments."""
    names = [v.name or "" for v in program.invars]
    placed = [Placed(n, v.aval, placed_sharding(x))
              for n, v, x in zip(names, program.invars, args, strict=True)]
    return Executable(program, placed, [None] * len(program.outvars))(args)


def install() -> None:
    """Make this the interpreter of threads that trace nothing."""
    DEFAULT_INTERPRETER[:] = [EagerInterpreter()]
    sharding_functions.EAGER_CALL[:] = [_eager_call]
    constants.DEVICE_PUT[:] = [device_put]
    region_values.RUN_PROGRAM[:] = [_run_flat]
