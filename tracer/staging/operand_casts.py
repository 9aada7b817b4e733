"""Casts that an op needs of its operands before it is recorded: to varying, from reduced.

`builder` is the interpreter that records the op (staging.py), and the casts.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.inference.infer import infer
from ...ir.meshes.manual_state import NOT_MANUAL
from ...ir.meshes.mesh import AbstractMesh
from ...ir.op import OPS, Op
from ...ir.program import Atom, Literal
from ...ir.settings.context import STATE
from ...ir.support.caches import cached
from ...ir.types import ArrayType
from .tracer import Tracer


def cast_operands(builder: Any, op: Op, atoms: Sequence[Atom]) -> tuple[Atom, ...]:
    """Insert the casts that JAX makes silently: operands of an op inside shard_map are made to vary
    over the same axes (`pvary`), and a rank-0 operand next to a reduced one becomes reduced."""
    if op.manual is None:
        changed = list(atoms)
        for i, cast, axes, _ in casts_of(tuple([a.aval for a in atoms]), STATE.abstract_mesh):
            operand = _as_operand(builder, changed[i])
            changed[i] = builder.process(cast, [operand], {"axes": axes})[0].variable
        atoms = changed
    return reduce_scalars(builder, op, tuple(atoms))


def reduce_scalars(builder: Any, op: Op, atoms: tuple[Atom, ...]) -> tuple[Atom, ...]:
    """The second of these casts."""
    if len(atoms) != 2 or op.subprograms:
        return atoms
    for i, (a, b) in enumerate((atoms, atoms[::-1])):
        wanted = b.aval.sharding.spec.reduced
        if (wanted and not a.aval.shape and not a.aval.spec.reduced
                and not wanted & (a.aval.unreduced | a.aval.varying)):
            dst = b.aval.update(shape=(), sharding=_replicated_reduced(b.aval)).sharding
            params = {"dst_sharding": dst}
            tracer = builder.process(OPS["reshard"], [_as_operand(builder, a)], params)
            atoms = (tracer[0].variable, b) if i == 0 else (b, tracer[0].variable)
    return atoms


@cached(4096)
def casts_of(types: tuple[ArrayType, ...], context: AbstractMesh
             ) -> tuple[tuple[int, Op, tuple[str, ...], ArrayType], ...]:
    """(operand, op, axes, type) of the casts after which all operands vary over the same axes."""
    if all([t.manual is NOT_MANUAL for t in types]):
        return ()
    union: frozenset[str] = frozenset().union(*[t.varying for t in types])
    out = []
    for i, t in enumerate(types):
        missing = union - t.varying
        reduced = missing & t.manual.reduced
        for cast, names in (("reduced_vary_cast_p", reduced), ("pvary", missing - reduced)):
            if names:
                order = t.mesh.axis_names or context.axis_names
                axes = tuple([n for n in order if n in names]) or tuple(sorted(names))
                (t,) = infer(OPS[cast], (t,), {"axes": axes}, context)
                out.append((i, OPS[cast], axes, t))
    return tuple(out)


def _replicated_reduced(aval: ArrayType) -> Any:
    spec = aval.spec.update(partitions=())
    return type(aval.sharding)(aval.mesh, spec)


def _as_operand(builder: Any, atom: Atom) -> Any:
    return atom if isinstance(atom, Literal) else Tracer(builder, atom)
