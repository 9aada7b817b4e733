"""Values of a shard_map's body where its arguments are known: outside of jit.

The body is traced, so its values are not there yet; but everything that they depend on is. When one
is printed, the part of the program that it needs is run for it, with one result block a device:

    On cpu:0 at mesh coordinates (i,) = (0,):
    [0. 1. 2.]

A value that is the same on all devices is one number to Python: `if lax.psum(x, 'i') > 0`, `float`,
`range`. Nothing is computed unless something is looked at.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.builder import ProgramBuilder
from ...ir.meshes.manual_state import NOT_MANUAL
from ...ir.meshes.mesh import AbstractMesh, Mesh
from ...ir.op import OPS
from ...ir.program import Atom, Equation, Level, Literal, Program, Var
from ...ir.settings.context import STATE
from ...ir.spec import PartitionSpec
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from ..staging.builder import Builder
from ..staging.steps import value_of
from ..staging.tracer import Tracer

RUN_PROGRAM: list[Callable[[Program, Sequence[Any]], Any]] = []     # set by the driver


class BlockBuilder(Builder):
    """Records the body of a region whose arguments are known, and can show its values.

    mesh: the region's, whose axes are all Manual inside. operands: the region's arguments, as the
    enclosing trace has them. arguments: the concrete arguments of that trace; None where it knows
    the values of its variables by itself (a recording for derivatives).
    """

    __slots__ = ("arguments", "found", "mesh", "operands", "specs")

    def __init__(self, name: str, parent: Any, capture_type: Callable[[ArrayType], ArrayType],
                 mesh: AbstractMesh, operands: Sequence[Any], specs: Sequence[PartitionSpec],
                 arguments: Sequence[Any] | None) -> None:
        super().__init__(name, parent, capture_type)
        self.mesh, self.operands, self.specs = mesh, operands, specs
        self.arguments = arguments
        self.found: dict[Var, np.ndarray] = {}

    def shown(self, tracer: Tracer) -> str:
        """A traced value with its block on each device, where the arguments are known."""
        devices = self._devices()
        blocks = None if devices is None else self._blocks(tracer.variable)
        if devices is None or blocks is None:
            return super().shown(tracer)
        names = ", ".join(str(a) for a in self.mesh.axis_names)
        texts = []
        for position, (device, block) in enumerate(zip(devices, blocks, strict=True)):
            at = tuple(int(i) for i in np.unravel_index(position, self.mesh.axis_sizes))
            texts.append(f"On {device} at mesh coordinates ({names},) = {at}:\n{block}\n")
        return "\n".join(texts)

    def value(self, var: Atom) -> Any:
        """The value, if it is the same on all devices by its type; else None."""
        if isinstance(var, Literal):
            return value_of(var)
        if not STATE.check_vma or var.aval.manual is not NOT_MANUAL or self._devices() is None:
            return None
        blocks = self._blocks(var)
        return None if blocks is None else blocks[0]

    def _devices(self) -> list[Any] | None:
        assert self.parent is not None
        meshes = [m for m in (*self.parent.meshes, STATE.mesh)
                  if isinstance(m, Mesh) and m.size == self.mesh.size]
        return list(meshes[0].devices.flat) if meshes else None

    # -- running what a value needs ------------------------------------------------------------
    def _blocks(self, var: Var) -> np.ndarray | None:
        """The value of a variable on every device, stacked in mesh order."""
        found = self.found.get(var)
        if found is None:
            ready = self._around()
            if ready is None:
                return None
            outer, values = self._program(var, *ready)
            (value,) = RUN_PROGRAM[0](outer, values)
            found = self.found[var] = np.asarray(value)
        return found

    def _around(self) -> tuple[Program, list[Atom], Sequence[Any]] | None:
        """What leads to the region: a program, the region's operands in it, its arguments."""
        parent: Any = self.parent
        given = (*self.captured, *self.operands)
        if self.arguments is not None:
            atoms = [parent.atom(x) for x in given]
            return (Program(parent.name, parent.args, parent.eqns, (), consts=parent.consts),
                    atoms, self.arguments)
        values = [parent.value(x.variable) if isinstance(x, Tracer) else x for x in given]
        if any(v is None for v in values):
            return None
        params = [Var(typeof(x)) for x in given]
        return Program(self.name, params, (), ()), list(params), values

    def _program(self, var: Var, around: Program, operands: list[Atom], values: Sequence[Any]
                 ) -> tuple[Program, Sequence[Any]]:
        """The region with this result alone, its blocks stacked."""
        body = ProgramBuilder(STATE.abstract_mesh, Level.TRACED)
        out = var
        missing = tuple(a for a in self.mesh.axis_names if a not in var.aval.varying)
        if missing and STATE.check_vma:
            (out,) = body.emit(OPS["pvary"], [out], {"axes": missing})
        (out,) = body.emit(OPS["broadcast_in_dim"], [out], {
            "shape": (1, *var.aval.shape), "sharding": None,
            "broadcast_dimensions": tuple(range(1, var.aval.ndim + 1))})
        program = Program(self.name, [*self.captured_vars, *self.args],
                          [*_needed(self.eqns, var), *body.eqns], [out], mesh=STATE.abstract_mesh)
        whole = ProgramBuilder(self.mesh, Level.TRACED)
        results = whole.emit(OPS["shard_map"], operands, {
            "jaxpr": program, "mesh": self.mesh, "manual_axes": frozenset(self.mesh.axis_names),
            "in_specs": (*[PartitionSpec()] * len(self.captured), *self.specs),
            "out_specs": (PartitionSpec(tuple(self.mesh.axis_names)),),
            "check_vma": STATE.check_vma})
        outer = around.replace(eqns=[*around.eqns, *whole.eqns], outvars=results, mesh=self.mesh)
        parent: Any = self.parent
        outer.attributes["meshes"] = (
            *parent.meshes, *([STATE.mesh] if not STATE.mesh.empty else ()))
        return outer, values


def _needed(eqns: Sequence[Equation], var: Var) -> list[Equation]:
    """The equations that a value depends on: looking at it shows nothing else a second time."""
    wanted, kept = {var}, []
    for eqn in reversed(eqns):
        if not wanted.isdisjoint(eqn.outvars):
            kept.append(eqn)
            wanted.update(a for a in eqn.invars if isinstance(a, Var))
    return kept[::-1]
