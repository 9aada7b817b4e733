"""Batching of programs: their equations replayed on values with a mapped dimension.

`batch_program` gives a program for the whole axis out of one for a single index; it is made once
for the types and the mapped dimensions of its operands. Calls (`jit`, `checkpoint`) stay calls.
Every equation keeps the location of the one that it comes from.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.meshes.mesh import AbstractMesh
from ...ir.op import OPS
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.settings.context import STATE
from ...ir.source.location import UNKNOWN
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from ..staging.builder import current_builder, record_mesh
from ..staging.staging import trace_to_program
from ..staging.steps import value_of
from .rules import (
    Batched,
    Dims,
    MappedAxis,
    batch_op,
    program_axis_names,
    rule,
    to_dim,
    typed,
    uses_axis,
)

ANYWHERE = -1     # in `wanted` of batch_program: a result may be mapped along any dimension, or not


def batch_program(axis: MappedAxis, program: Program, types: Sequence[ArrayType], dims: Dims,
                  wanted: Sequence[int | None] = (), *, mesh: AbstractMesh | None = None,
                  capture_type: Callable[[ArrayType], ArrayType] = lambda t: t
                  ) -> tuple[Program, list[Any], list[int | None]]:
    """A program for the whole axis: (program, captured values, mapped dimension of each result).

    types: of the mapped operands. wanted: for each result the dimension where it shall be mapped
      (the loop carry of which another part is mapped, say), or ANYWHERE; default all ANYWHERE.
    mesh: the context mesh of its types (default: the current one).
    The captured values are the first operands of the new program, in front of its own.
    """
    out_dims: list[int | None] = []

    def run(*operands: Any) -> list[Any]:
        results = replay(axis, program, operands, dims)
        out_dims[:] = [d for _, d in results]
        for i, place in enumerate(wanted):
            x, d = results[i]
            if place != ANYWHERE and place != d:
                if place is None:
                    raise ValueError(f"result {i} of `{program.name}` is mapped")
                x = typed(to_dim(x, d, place, axis), place, program.out_avals[i], axis)
                results[i], out_dims[i] = (x, place), place
        return [x for x, _ in results]

    key = ("batch", axis, tuple(dims), tuple(wanted))
    return cached_trace(program, key, run, types, out_dims, mesh=mesh, capture_type=capture_type)


def cached_trace(program: Program, key: tuple[Any, ...], f: Callable[..., list[Any]],
                 types: Sequence[ArrayType], details: Any, *, mesh: AbstractMesh | None = None,
                 capture_type: Callable[[ArrayType], ArrayType] = lambda t: t
                 ) -> tuple[Program, list[Any], Any]:
    """The program of f, which is made out of `program`: (program, captured values, details).

    Made once for the key, the types and the context; `details` is what f returns besides.
    """
    context = STATE.abstract_mesh if mesh is None else mesh
    key = (*key, tuple(types), context, STATE.check_vma)
    found = program.memo.get(key)
    if found is not None:
        return found
    new, captured = trace_to_program(f, types, name=program.name, arg_names=program.arg_names,
                                     mesh=context, capture_type=capture_type)
    own = not captured
    if new.consts:        # only an outermost program has constants: this one is called by another
        captured = [x for _, x in new.consts]
        new = new.replace(invars=[*new.constvars, *new.invars], consts=())
    if own:
        program.memo[key] = (new, captured, details)
    return new, captured, details


def mapped_results(axis: MappedAxis, program: Program, mapped: Sequence[bool]) -> list[bool]:
    """Results that are certainly mapped where these operands are, found without a trace.

    Nothing is known of what equations that hold programs give, nor where the axis is named: then a
    result may be the same for all though an operand is not.
    """
    found: set[Atom] = {v for v, m in zip(program.invars, mapped, strict=True) if m}
    if axis.name is None or axis.name not in program_axis_names(program):
        for eqn in program.eqns:
            if not eqn.op.subprograms and not found.isdisjoint(eqn.invars):
                found.update(eqn.outvars)
    return [a in found for a in program.outvars]


def replay(axis: MappedAxis, program: Program, operands: Sequence[Any], dims: Dims
           ) -> list[tuple[Any, int | None]]:
    """Bind a program's equations, batched, in the current interpreter: (result, dim) pairs."""
    env: dict[Var, tuple[Any, int | None]] = dict(
        zip(program.invars, zip(operands, dims, strict=True), strict=True))
    env.update((v, (x, None)) for v, x in program.consts)
    for m in program.attributes.get("meshes", ()):
        record_mesh(m)

    def read(atom: Atom) -> tuple[Any, int | None]:
        if isinstance(atom, Literal):
            value = value_of(atom)
            return (value.item() if atom.aval.weak_type else value), None
        return env[atom]

    builder = current_builder()
    saved, context = builder.location if builder else None, STATE.abstract_mesh
    last, under = None, UNKNOWN                # equations made of one have one location
    try:
        for eqn in program.eqns:
            if eqn.location is not last:
                last, under = eqn.location, eqn.location.under("batch")
            if builder is not None:
                builder.location = under
            STATE.abstract_mesh = _mesh_of(eqn, context)
            results, out = _replay_equation(axis, eqn, [read(a) for a in eqn.invars])
            for v, x, d in zip(eqn.outvars, results, out, strict=True):
                env[v] = (x, d)
    finally:
        STATE.abstract_mesh = context
        if builder is not None:
            builder.location = saved
    return [read(a) for a in program.outvars]


def _mesh_of(eqn: Equation, context: AbstractMesh) -> AbstractMesh:
    """The context of one equation: a program may switch axes to Auto and back (`auto_axes`)."""
    if not context.axis_names or not eqn.outvars:
        return context
    mesh = eqn.outvars[0].aval.mesh
    return mesh if mesh.axis_names else context


def _replay_equation(axis: MappedAxis, eqn: Equation, operands: list[tuple[Any, int | None]]
                     ) -> Batched:
    values, dims = [x for x, _ in operands], [d for _, d in operands]
    op, params = eqn.op, eqn.params
    if all(d is None for d in dims) and not uses_axis(axis, op, params):
        out = op.bind(*values, **params)
        results = list(out) if op.multiple_results else [out]
        return results, [None] * len(results)
    return batch_op(axis, op, values, dims, params, [v.aval for v in eqn.outvars])


# -- calls -----------------------------------------------------------------------------------------

def _call(name: str) -> None:
    @rule(name)
    def batch(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Sequence[ArrayType],
              *, jaxpr: Program, **params: Any) -> Batched:
        """One call stays one call, of the batched program."""
        program, captured, out = batch_program(axis, jaxpr, [typeof(x) for x in operands], dims)
        return OPS[name].bind(*captured, *operands, jaxpr=program, **params), out


_call("jit")
_call("checkpoint")
