"""A traced program as a JAX function of whole arrays, with constraints and shard_maps as the user
wrote them; JAX lowers it to StableHLO with Shardy's annotations.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arrays.axes import mesh_atoms
from ...ir.meshes.mesh import AbstractMesh
from ...ir.program import Equation, Program
from ...ir.shardings.sharding import NamedSharding
from ...ir.spec import UNCONSTRAINED, PartitionSpec
from ...ir.types import ArrayType
from .literals import spec_text, tuple_of
from .source import Source

_CONSTRAINTS = {"sharding_constraint": "sharding", "reshard": "dst_sharding"}


class WholeSource(Source):
    """Writes a traced program for a mesh whose axes are all Auto in JAX: what Explicit types say is
    expressed by constraints.

    in_specs, out_specs: of the arguments and results; None says nothing. abstract: on a mesh of no
    devices.
    """

    def __init__(self, program: Program, mesh: AbstractMesh,
                 in_specs: Sequence[PartitionSpec | None],
                 out_specs: Sequence[PartitionSpec | None], abstract: bool = True) -> None:
        super().__init__(program, None, abstract)
        self._atoms = mesh_atoms(mesh, ())
        self.sizes = dict(mesh.shape)
        self._specs = in_specs, out_specs
        self._manual: frozenset[str] = frozenset()

    def _equation(self, e: Equation) -> None:
        """Write one equation; results with axes in an Explicit type are constrained to these."""
        if e.op.name == "shard_map":
            self._region(e)
        elif e.op.name in _CONSTRAINTS:
            sharding = e.params[_CONSTRAINTS[e.op.name]]
            spec = sharding.spec if isinstance(sharding, NamedSharding) else PartitionSpec()
            self.assign(e, self._constrained(self.read(e.invars[0]), self._entries(spec)))
        else:
            super()._equation(e)
            for v in e.outvars:
                if v.aval.has_explicit_mesh() and any(v.aval.entries) and not self._manual:
                    name = self.read(v)
                    self.line(f"{name} = {self._constrained(name, _typed(v.aval))}")

    def _constrained(self, x: str, entries: Sequence[Any]) -> str:
        if self._manual.issuperset(self.sizes):
            return x
        spec = spec_text(entries)
        sharding = spec if self._manual else f"NamedSharding(mesh, {spec})"
        return f"lax.with_sharding_constraint({x}, {sharding})"

    def _entries(self, spec: PartitionSpec) -> list[Any]:
        return [e if e is UNCONSTRAINED or e is None else
                tuple([a for a in _names(e) if a not in self._manual]) for e in spec]

    def _region(self, e: Equation) -> None:
        """`jax.shard_map` of a function that is written before it."""
        p = e.params
        body: Program = p["jaxpr"]
        name = self.fresh("region")
        operands = [self.read(a) for a in e.invars]
        outer, self._manual = self._manual, self._manual | p["manual_axes"]
        with self.function(name, [self.name(v) for v in body.invars]):
            self.line(f"return {tuple_of(self.body(body))}")
        self._manual = outer
        specs = [tuple_of([spec_text([_names(a) if a else None for a in s])
                           for s in p[k]]) for k in ("in_specs", "out_specs")]
        axes = ", ".join(map(repr, sorted(p["manual_axes"])))
        where = "" if outer else "mesh=mesh, "
        self.assign(e, f"jax.shard_map({name}, {where}in_specs={specs[0]}, out_specs={specs[1]}, "
                       f"axis_names={{{axes}}}, check_vma=False)({', '.join(operands)})")

    def _placed(self, name: str, devices: Sequence[int]) -> list[str]:
        def shardings(specs: Sequence[PartitionSpec | None]) -> str:
            return tuple_of(["None" if s is None else
                             f"NamedSharding(mesh, {spec_text(self._entries(s))})"
                             for s in specs])
        ins, outs = self._specs
        result = f", out_shardings={shardings(outs)}" if any(s is not None for s in outs) else ""
        return [f"mesh = {self._mesh(devices)}",
                f"run = jax.jit({name}, in_shardings={shardings(ins)}{result})"]

    def argument_shardings(self, namespace: dict[str, Any]) -> list[Any]:
        return [None] * len(self.program.invars)           # `run` has them


def _names(entry: Any) -> tuple[str, ...]:
    return tuple(entry) if isinstance(entry, tuple | list) else (entry,)


def _typed(t: ArrayType) -> list[Any]:
    """The entries of an Explicit type; other dimensions are left to the partitioner."""
    auto = len(t.mesh.explicit_axes) < len(t.mesh.axis_names)
    return [axes or (UNCONSTRAINED if auto else None) for axes in t.entries]
