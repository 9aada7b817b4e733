"""StableHLO, by JAX, of the programs that are written for it. No devices are needed."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.diagnostics.extras import need_jax
from ...ir.dtypes import is_extended
from ...ir.mesh import AbstractMesh
from ...ir.program import Program
from ...ir.spec import PartitionSpec
from ...ir.support.lazy import lazy_import
from .engine import enabled_x64, executed
from .source import Source
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


def _lowered(source: Source, program: Program, debug_info: bool) -> str:
    text = source.text()
    with enabled_x64(program):
        namespace = executed(text, {"constants": source.constants,
                                    "callbacks": [_not_called] * len(source.calls)})
        run = namespace["run"]
        shapes = [_struct(t, s) for t, s in zip(
            program.global_in or program.in_avals, source.argument_shardings(namespace),
            strict=True)]
        return run.trace(*shapes).lower(lowering_platforms=("cpu",)).as_text(debug_info=debug_info)


def _struct(t: Any, sharding: Any) -> Any:
    dtype = jax.random.key(0).dtype if is_extended(t.dtype) else t.dtype
    return jax.ShapeDtypeStruct(t.shape, dtype, sharding=sharding)


def _not_called(*_: Any) -> Any:
    raise RuntimeError("a program that was written as StableHLO calls no function of this process")
