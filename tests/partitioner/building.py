"""Programs built by hand for tests: one method per op, on typed variables."""
from __future__ import annotations

from typing import Any

import numpy as np

import shardtrace.ir.ops.dialect  # noqa: F401
from shardtrace.ir.builder import ProgramBuilder
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.op import OPS
from shardtrace.ir.program import Atom, Level, Literal, Program, Var
from shardtrace.ir.shardings.normalized import unsharded
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.source.location import Location
from shardtrace.ir.spec import PartitionSpec
from shardtrace.ir.types import array_type

HERE = Location.at("user.py", 1)


def auto(*sizes: int, names: str = "xyz") -> AbstractMesh:
    return AbstractMesh(sizes, tuple(names[:len(sizes)]))


def explicit(*sizes: int, names: str = "xyz") -> AbstractMesh:
    return AbstractMesh(sizes, tuple(names[:len(sizes)]), (AxisType.Explicit,) * len(sizes))


class Build:
    """Appends equations; `program(*results)` closes it."""

    def __init__(self, mesh: AbstractMesh, name: str = "f") -> None:
        self.mesh = mesh
        self.name = name
        self.builder = ProgramBuilder(mesh, Level.TRACED)
        self.args: list[Var] = []

    def arg(self, *shape: int, spec: PartitionSpec | None = None, dtype: Any = np.int32,
            name: str | None = None) -> Var:
        sharding = unsharded(len(shape), self.mesh) if spec is None else NamedSharding(
            self.mesh, spec)
        var = Var(array_type(shape, np.dtype(dtype), sharding=sharding),
                  name or f"arg{len(self.args)}")
        self.args.append(var)
        return var

    def const(self, value: Any) -> Var:
        value = np.asarray(value)
        aval = array_type(value.shape, value.dtype, sharding=unsharded(value.ndim, self.mesh))
        return self.builder.constant(value, aval)

    def op(self, op_name: str, *operands: Atom, **params: Any) -> Any:
        line = len(self.builder.eqns) + 1
        out = self.builder.emit(OPS[op_name], operands, params,
                                location=Location.at("user.py", line))
        return out if OPS[op_name].multiple_results else out[0]

    def program(self, *results: Atom) -> Program:
        return Program(self.name, self.args, self.builder.eqns, results,
                       consts=self.builder.consts, mesh=self.mesh,
                       arg_names=[v.name or "" for v in self.args],
                       result_names=[f"[{i}]" for i in range(len(results))])

    # -- ops with many params ------------------------------------------------------------------

    def sin(self, x: Atom) -> Var:
        return self.op("sin", x, accuracy=None)

    def dot(self, a: Atom, b: Atom, contract: Any = ((1,), (0,)), batch: Any = ((), ()),
            out: PartitionSpec | None = None) -> Var:
        out_sharding = None if out is None else NamedSharding(self.mesh, out)
        return self.op("dot_general", a, b, dimension_numbers=(contract, batch), precision=None,
                       preferred_element_type=None, out_sharding=out_sharding)

    def sum(self, x: Atom, *axes: int) -> Var:
        return self.op("reduce_sum", x, axes=axes, out_sharding=None)

    def reshape(self, x: Atom, *sizes: int) -> Var:
        return self.op("reshape", x, new_sizes=sizes, dimensions=None, sharding=None)

    def broadcast(self, x: Atom, shape: tuple[int, ...], *dims: int) -> Var:
        return self.op("broadcast_in_dim", x, shape=shape, broadcast_dimensions=dims,
                       sharding=None)

    def transpose(self, x: Atom, *permutation: int) -> Var:
        return self.op("transpose", x, permutation=permutation)

    def slice(self, x: Atom, start: tuple, limit: tuple, strides: Any = None) -> Var:
        return self.op("slice", x, start_indices=start, limit_indices=limit, strides=strides)

    def iota(self, shape: tuple[int, ...], dimension: int) -> Var:
        return self.op("iota", dtype=np.dtype(np.int32), shape=shape, dimension=dimension,
                       sharding=None)

    def constrain(self, x: Atom, *spec: Any) -> Var:
        return self.op("sharding_constraint", x,
                       sharding=NamedSharding(self.mesh, PartitionSpec(*spec)))

    def reshard(self, x: Atom, spec: PartitionSpec) -> Var:
        return self.op("reshard", x, dst_sharding=NamedSharding(self.mesh, spec))


def literal(value: int) -> Literal:
    return Literal(np.int32(value), array_type((), np.dtype(np.int32)))
