"""Lowers programs to StableHLO with JAX; no devices are needed."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.diagnostics.extras import need_jax
from ...ir.meshes.mesh import AbstractMesh
from ...ir.program import Program
from ...ir.source.location import Location
from ...ir.spec import PartitionSpec
from ...ir.support.lazy import lazy_import
from .engine import ask_for_devices, check_devices, enabled_x64, executed
from .source import Source
from .transfer import dtype_in_jax
from .whole_source import WholeSource

jax = lazy_import("jax")


def stablehlo_of_local(program: Program, mesh: AbstractMesh | None, debug_info: bool) -> str:
    """A LOCAL program as one region in which all mesh axes are manual.

    mesh: None for a program of whole values, for one device.
    """
    need_jax("as_stablehlo")
    return _lowered(Source(program, mesh, abstract=True), program, debug_info)


def stablehlo_of_traced(program: Program, mesh: AbstractMesh,
                        in_specs: Sequence[PartitionSpec | None],
                        out_specs: Sequence[PartitionSpec | None], debug_info: bool) -> str:
    """A traced program with the shardings that the user gave."""
    need_jax("as_stablehlo")
    return _lowered(WholeSource(program, mesh, in_specs, out_specs), program, debug_info)


def hlo_of_traced(program: Program, mesh: AbstractMesh,
                  in_specs: Sequence[PartitionSpec | None],
                  out_specs: Sequence[PartitionSpec | None]) -> tuple[str, dict[int, Location]]:
    """What XLA's own partitioner makes of a traced program: its optimised program of one device,
    and, by the lines of the text that it was written as, where the equations stand.
    """
    ask_for_devices(mesh.size)
    check_devices(mesh.size)
    source = WholeSource(program, mesh, in_specs, out_specs, abstract=False)
    text = source.text()
    with enabled_x64(program):
        run, shapes = _function(source, text, program)
        return run.lower(*shapes).compile().as_text(), source.places(text)


def _lowered(source: Source, program: Program, debug_info: bool) -> str:
    with enabled_x64(program):
        run, shapes = _function(source, source.text(), program)
        return run.trace(*shapes).lower(lowering_platforms=("cpu",)).as_text(debug_info=debug_info)


def _function(source: Source, text: str, program: Program) -> tuple[Any, list[Any]]:
    """The jitted function, and structs for its arguments."""
    namespace = executed(text, {"constants": source.constants,
                                "callbacks": [_not_called] * len(source.calls)})
    types = program.global_in or program.in_avals
    return namespace["run"], [
        jax.ShapeDtypeStruct(t.shape, dtype_in_jax(t), sharding=s)
        for t, s in zip(types, source.argument_shardings(namespace), strict=True)]


def _not_called(*_: Any) -> Any:
    raise RuntimeError("a program that was written as StableHLO calls no function of this process")
