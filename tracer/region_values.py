"""Printing a block: what `print(x)` shows inside a shard_map that is called outside of a trace.

The body is traced, so its values are not there yet; but everything that they depend on is. When
one is printed, the program recorded so far is run for it, with one result block a device:

    On cpu:0 at mesh coordinates (i,) = (0,):
    [0. 1. 2.]

Nothing is computed unless something is printed.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.builder import ProgramBuilder
from ..ir.context import STATE
from ..ir.mesh import AbstractMesh, Mesh
from ..ir.op import OPS
from ..ir.program import Level, Program, Var
from ..ir.spec import PartitionSpec
from ..ir.types import ArrayType
from .staging import Builder
from .tracer import Tracer

RUN_PROGRAM: list[Callable[[Program, Sequence[Any]], Any]] = []     # set by the driver


class BlockBuilder(Builder):
    """Records the body of a region whose arguments are known, and can show its values.

    mesh: the region's, whose axes are all Manual inside. operands: the region's arguments, as
    tracers of the enclosing trace. arguments: the concrete arguments of that trace.
    """

    __slots__ = ("arguments", "mesh", "operands", "specs")

    def __init__(self, name: str, parent: Any, capture_type: Callable[[ArrayType], ArrayType],
                 mesh: AbstractMesh, operands: Sequence[Tracer], specs: Sequence[PartitionSpec],
                 arguments: Sequence[Any]) -> None:
        super().__init__(name, parent, capture_type)
        self.mesh, self.operands, self.specs = mesh, operands, specs
        self.arguments = arguments

    def shown(self, tracer: Tracer) -> str:
        devices = self._devices()
        if devices is None:
            return super().shown(tracer)
        blocks = self._blocks(tracer.variable)
        names = ", ".join(str(a) for a in self.mesh.axis_names)
        texts = []
        for position, (device, block) in enumerate(zip(devices, blocks, strict=True)):
            at = tuple(int(i) for i in np.unravel_index(position, self.mesh.axis_sizes))
            texts.append(f"On {device} at mesh coordinates ({names},) = {at}:\n{block}\n")
        return "\n".join(texts)

    def _devices(self) -> list[Any] | None:
        assert self.parent is not None
        meshes = [m for m in (*self.parent.meshes, STATE.mesh)
                  if isinstance(m, Mesh) and m.size == self.mesh.size]
        return list(meshes[0].devices.flat) if meshes else None

    def _blocks(self, var: Var) -> np.ndarray:
        """The value of a variable on every device, stacked in mesh order."""
        parent = self.parent
        assert parent is not None
        body = ProgramBuilder(STATE.abstract_mesh, Level.TRACED)
        out = var
        missing = tuple(a for a in self.mesh.axis_names if a not in var.aval.varying)
        if missing and STATE.check_vma:
            (out,) = body.emit(OPS["pvary"], [out], {"axes": missing})
        (out,) = body.emit(OPS["broadcast_in_dim"], [out], {
            "shape": (1, *var.aval.shape), "sharding": None,
            "broadcast_dimensions": tuple(range(1, var.aval.ndim + 1))})
        program = Program(self.name, [*self.captured_vars, *self.args], [*self.eqns, *body.eqns],
                          [out], mesh=STATE.abstract_mesh)
        whole = ProgramBuilder(self.mesh, Level.TRACED)
        atoms = [parent.atom(x) for x in (*self.captured, *self.operands)]
        results = whole.emit(OPS["shard_map"], atoms, {
            "jaxpr": program, "mesh": self.mesh, "manual_axes": frozenset(self.mesh.axis_names),
            "in_specs": (*[PartitionSpec()] * len(self.captured), *self.specs),
            "out_specs": (PartitionSpec(tuple(self.mesh.axis_names)),),
            "check_vma": STATE.check_vma})
        outer = Program(parent.name, parent.args, [*parent.eqns, *whole.eqns], results,
                        consts=parent.consts, mesh=self.mesh)
        outer.memo["meshes"] = tuple(parent.meshes)
        (value,) = RUN_PROGRAM[0](outer, self.arguments)
        return np.asarray(value)
