"""Compiled functions handed to JAX: called on `jax.Array`s, or written as the text of a program."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...engines.xla.engine import XLAProgram
from ...engines.xla.source import Source
from ...engines.xla.stablehlo import hlo_of_traced, stablehlo_of_local, stablehlo_of_traced
from ...ir.meshes.mesh import AbstractMesh
from ...ir.program import Program
from ...ir.source.location import Location
from ...ir.spec import PartitionSpec
from ...tracer.trees import tree
from .executable import Executable


def _program(executable: Executable) -> tuple[Program, AbstractMesh | None, list[int]]:
    if executable.whole:
        return executable.partitioned.traced, None, []
    return (executable.partitioned.local, executable.placement.abstract_mesh,
            executable.device_numbers())


def _traced(executable: Executable) -> tuple[
        Program, AbstractMesh, Sequence[PartitionSpec | None], Sequence[PartitionSpec | None]]:
    """The program as it was traced, its mesh, and the specs that were given to its arguments and,
    if somebody asked for any, results."""
    partitioned = executable.partitioned
    outs = partitioned.out_specs
    if not executable.has_out_shardings:
        outs = [None] * len(outs)
    return (partitioned.traced, executable.placement.abstract_mesh,
            executable.arg_specs, outs)


def jax_source(executable: Executable) -> str:
    """The text of the program, as a file."""
    program, mesh, devices = _program(executable)
    return Source(program, mesh).file(devices)


def stablehlo(executable: Executable, debug_info: bool) -> str:
    """The per-device program as StableHLO."""
    program, mesh, _ = _program(executable)
    return stablehlo_of_local(program, mesh, debug_info)


def stablehlo_as_traced(executable: Executable, debug_info: bool) -> str:
    """The program as it was traced, with the shardings that the user gave."""
    program, mesh, ins, outs = _traced(executable)
    if not mesh.axis_names:
        return stablehlo_of_local(program, None, debug_info)
    return stablehlo_of_traced(program, mesh, ins, outs, debug_info)


def hlo_as_traced(executable: Executable) -> tuple[str, dict[int, Location]]:
    """What XLA's own partitioner makes of the program, and where the lines of its source stand."""
    return hlo_of_traced(*_traced(executable))


def function_of_jax(executable: Executable, in_tree: Any, out_tree: Any) -> Callable[..., Any]:
    """The program as a function of JAX's arrays."""
    loaded = XLAProgram(*_program(executable))

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, given = tree.flatten((args, kwargs))
        if given != in_tree:
            raise TypeError(f"Function compiled with input pytree {in_tree}, called with {given}")
        return tree.unflatten(out_tree, loaded.call(leaves))

    run.__name__ = run.__qualname__ = executable.partitioned.local.name
    return run
