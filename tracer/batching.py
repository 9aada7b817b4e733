"""Batching: an op, or a whole program, on values that carry one more dimension.

`batch_op` binds an op, in the current interpreter, to operands of which some have a mapped
dimension. Most ops need no rule: an elementwise op takes the dimension along, any other op takes it
in front. An op that does not declares `batch`; ops that hold programs, name mesh axes, or speak of
shardings have their rule here or in batching_regions.py, because it needs to know the axis that is
mapped (`MappedAxis`). `batch_program` replays a program's equations so, and gives a program.

On a mesh with Explicit axes a mapped dimension that is split over axes stays split over them in
every batched value: what a rule leaves otherwise is resharded.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ir.context import STATE
from ..ir.diagnostic import fail
from ..ir.mesh import AbstractMesh, empty_abstract_mesh
from ..ir.op import OPS, Op
from ..ir.ops.derivatives import batch_first, move_first
from ..ir.ops.rules import insert_axes
from ..ir.ops.sharding import insert_dim
from ..ir.program import Atom, Equation, Literal, Program, Var
from ..ir.sharding import named_sharding_abstract
from ..ir.spec import UNCONSTRAINED, spec_from_entries
from ..ir.types import ArrayType
from .staging import current_builder, record_mesh, trace_to_program
from .tracer import typeof

Dims = Sequence[int | None]
Batched = tuple[list[Any], list[int | None]]      # results, and the mapped dimension of each


@dataclass(frozen=True, slots=True)
class MappedAxis:
    """The axis that a vmap maps over.

    name: what collectives call it, or None. entry: the Explicit mesh axes (of `mesh`) that split
    the mapped dimension. spmd: `spmd_axis_name`, the Auto or Manual axes that it shall have.
    """
    size: int
    name: Hashable = None
    entry: tuple[str, ...] = ()
    mesh: AbstractMesh = empty_abstract_mesh
    spmd: tuple[str, ...] = ()

    def entry_on(self, mesh: AbstractMesh) -> tuple[str, ...]:
        """The entry in types on `mesh`, where these axes may have been switched to Auto."""
        return self.entry if set(self.entry) <= set(mesh.explicit_axes) else ()


Rule = Callable[..., Batched]
RULES: dict[str, Rule] = {}
"""op name -> rule(axis, operands, dims, types, **params); `types`: of the unbatched results."""
NAMED_RULES: dict[str, Rule] = {}
"""The same for a collective that names the mapped axis; dims may all be None."""


def rule(*names: str, table: dict[str, Rule] = RULES) -> Callable[[Rule], Rule]:
    """Decorator: the batching rule of the ops of these names."""
    def enter(f: Rule) -> Rule:
        for name in names:
            table[name] = f
        return f
    return enter


# -- types and dimensions --------------------------------------------------------------------------

def batched_type(t: ArrayType, dim: int, axis: MappedAxis) -> ArrayType:
    """The type of a value of type `t` for each index of the axis, stacked along `dim`."""
    mesh = t.mesh if t.mesh.axis_names else axis.mesh
    entries = (*t.entries[:dim], axis.entry_on(mesh), *t.entries[dim:])
    return t.update(shape=(*t.shape[:dim], axis.size, *t.shape[dim:]),
                    sharding=named_sharding_abstract(mesh, spec_from_entries(
                        entries, t.spec.unreduced, t.spec.reduced)))


def element_type(t: ArrayType, dim: int) -> ArrayType:
    """The type of one element along `dim` of a value of type `t`."""
    return t.update(shape=t.shape[:dim] + t.shape[dim + 1:],
                    sharding=named_sharding_abstract(t.mesh, spec_from_entries(
                        t.entries[:dim] + t.entries[dim + 1:], t.spec.unreduced, t.spec.reduced)))


def move_dim(x: Any, source: int, target: int) -> Any:
    """x with dimension `source` moved to the place `target`, the others in order."""
    if source == target:
        return x
    order = [d for d in range(typeof(x).ndim) if d != source]
    order.insert(target, source)
    return OPS["transpose"].bind(x, permutation=tuple(order))


def spread(x: Any, dim: int, axis: MappedAxis) -> Any:
    """The unmapped value x repeated along a mapped dimension `dim`.

    A value that knows of no mesh (a Python scalar, a numpy array) stays whole, as in JAX.
    """
    t = typeof(x)
    target = batched_type(t, dim, axis if t.mesh.axis_names else replace(axis, entry=()))
    out = tuple(d for d in range(t.ndim + 1) if d != dim)
    sharding = target.sharding if target.mesh.explicit_axes else None
    return OPS["broadcast_in_dim"].bind(x, shape=target.shape, broadcast_dimensions=out,
                                        sharding=sharding)


def to_dim(x: Any, source: int | None, target: int, axis: MappedAxis) -> Any:
    """x with its mapped dimension at `target`, repeated along it if it has none."""
    return spread(x, target, axis) if source is None else move_dim(x, source, target)


def typed(x: Any, dim: int | None, t: ArrayType, axis: MappedAxis) -> Any:
    """A result, with the sharding that the unbatched type and the mapped axis give it."""
    want = t if dim is None else batched_type(t, dim, axis)
    if want.mesh.explicit_axes and typeof(x).sharding is not want.sharding:
        return OPS["reshard"].bind(x, dst_sharding=want.sharding)
    return x


# -- one op ----------------------------------------------------------------------------------------

def axis_names_of(op: Op, params: dict[str, Any]) -> frozenset[Hashable]:
    """The axis names that an equation uses, those inside its programs included."""
    if op.subprograms:
        names: frozenset[Hashable] = frozenset()
        for field in op.subprograms:
            value = params[field]
            for program in value if isinstance(value, tuple) else (value,):
                if isinstance(program, Program):
                    names |= program_axis_names(program)
        return names
    if op.collective is not None or op.name == "axis_index":
        named = params.get("axes", params.get("axis_name", ()))
        return frozenset(named if isinstance(named, tuple) else (named,))
    return frozenset()


def program_axis_names(program: Program) -> frozenset[Hashable]:
    """The axis names that a program's collectives use."""
    found = program.memo.get("axis_names")
    if found is None:
        found = frozenset().union(*(axis_names_of(e.op, e.params) for e in program.eqns))
        program.memo["axis_names"] = found
    return found


def batch_op(axis: MappedAxis, op: Op, operands: Sequence[Any], dims: Dims,
             params: dict[str, Any], types: Sequence[ArrayType]) -> Batched:
    """Bind an op whose operand i has the mapped dimension dims[i] (None: it is not mapped).

    types: of the results without the mapped dimension. Returns the results and their dims.
    """
    if axis.name is not None and op.name in NAMED_RULES and axis.name in axis_names_of(op, params):
        results, out = NAMED_RULES[op.name](axis, operands, dims, types, **params)
    elif op.name in RULES:
        results, out = RULES[op.name](axis, operands, dims, types, **params)
    elif op.batch is not None:
        results, out = op.batch(operands, dims, axis.size, **params)
    elif op.subprograms:
        return fail(NotImplementedError, f"Batching rule for '{op.name}' not implemented",
                    code="not-batchable")
    else:
        results, out = _default(axis, op, operands, dims, params, types)
    return [typed(x, d, t, axis) for x, d, t in zip(results, out, types, strict=True)], list(out)


def _default(axis: MappedAxis, op: Op, operands: Sequence[Any], dims: Dims,
             params: dict[str, Any], types: Sequence[ArrayType]) -> Batched:
    at = 0
    if op.rule == "... -> ...":
        ranked = [(t.shape, d) for t, d in zip(map(typeof, operands), dims, strict=True) if t.shape]
        at = next(d for d in dims if d is not None)
        if any(r != ranked[0] for r in ranked):
            at = 0
            operands = (_aligned(operands, dims) if op.explicit == "join"
                        else batch_first(operands, dims, axis.size))
    else:
        operands = batch_first(operands, dims, axis.size)
    if op.sharding_param and params[op.sharding_param] is not None:
        asked = params[op.sharding_param]
        params = {**params, op.sharding_param: insert_axes(
            asked, at, axis.entry_on(asked.mesh), types[0].ndim)}
    out = op.bind(*operands, **params)
    results = list(out) if op.multiple_results else [out]
    return results, [at] * len(results)


def _aligned(operands: Sequence[Any], dims: Dims) -> list[Any]:
    """Operands of an elementwise op of equal rank, mapped dimensions first, others of size one.

    Unmapped scalars stay: every elementwise op takes them.
    """
    rank = max(typeof(x).ndim + (d is None) for x, d in zip(operands, dims, strict=True))
    out = []
    for x, d in zip(operands, dims, strict=True):
        t = typeof(x)
        if d is None and t.shape:
            x = _expand(x, (1, *t.shape), range(1, t.ndim + 1))
        elif d is not None:
            x = move_first(x, d)
            n = typeof(x).shape
            if len(n) < rank:              # a scalar for each index
                x = _expand(x, n + (1,) * (rank - len(n)), range(len(n)))
        out.append(x)
    return out


def _expand(x: Any, shape: tuple[int, ...], dims: Sequence[int]) -> Any:
    return OPS["broadcast_in_dim"].bind(x, shape=shape, broadcast_dimensions=tuple(dims),
                                        sharding=None)


# -- programs --------------------------------------------------------------------------------------

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
    return traced_once(program, key, run, types, out_dims, mesh=mesh, capture_type=capture_type)


def traced_once(program: Program, key: tuple[Any, ...], f: Callable[..., list[Any]],
                types: Sequence[ArrayType], details: Any, *, mesh: AbstractMesh | None = None,
                capture_type: Callable[[ArrayType], ArrayType] = lambda t: t
                ) -> tuple[Program, list[Any], Any]:
    """The program of f, which is made out of `program`: (program, captured values, details).

    Made once for the key, the types and the context; `details` is what f tells besides.
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
        meshes, captured = new.memo.get("meshes", ()), [x for _, x in new.consts]
        new = new.replace(invars=[*new.constvars, *new.invars], consts=())
        new.memo["meshes"] = meshes
    if own:
        program.memo[key] = (new, captured, details)
    return new, captured, details


def replay(axis: MappedAxis, program: Program, operands: Sequence[Any], dims: Dims
           ) -> list[tuple[Any, int | None]]:
    """Bind a program's equations, batched, in the current interpreter: (result, dim) pairs."""
    env: dict[Var, tuple[Any, int | None]] = dict(
        zip(program.invars, zip(operands, dims, strict=True), strict=True))
    env.update((v, (x, None)) for v, x in program.consts)
    for m in program.memo.get("meshes", ()):
        record_mesh(m)

    def read(atom: Atom) -> tuple[Any, int | None]:
        if isinstance(atom, Literal):
            return (atom.val.item() if atom.aval.weak_type else atom.val), None
        return env[atom]

    builder = current_builder()
    saved, context = builder.location if builder else None, STATE.abstract_mesh
    try:
        for eqn in program.eqns:
            if builder is not None:
                builder.location = eqn.location.under("batch")
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


def uses_axis(axis: MappedAxis, op: Op, params: dict[str, Any]) -> bool:
    """Whether an equation depends on the mapped axis by name."""
    return axis.name is not None and axis.name in axis_names_of(op, params)


# -- calls, and ops that speak of shardings --------------------------------------------------------

def _call(name: str) -> None:
    @rule(name)
    def batch(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Sequence[ArrayType],
              *, jaxpr: Program, **params: Any) -> Batched:
        """One call stays one call, of the batched program."""
        program, captured, out = batch_program(axis, jaxpr, [typeof(x) for x in operands], dims)
        return OPS[name].bind(*captured, *operands, jaxpr=program, **params), out


_call("jit")
_call("checkpoint")


@rule("reshard")
def _batch_reshard(axis: MappedAxis, operands: Sequence[Any], dims: Dims,
                   types: Sequence[ArrayType], *, dst_sharding: Any) -> Batched:
    (x,), (dim,) = operands, dims
    wider = insert_dim(dst_sharding, typeof(x).ndim - 1, dim, axis.entry_on(dst_sharding.mesh))
    return [OPS["reshard"].bind(x, dst_sharding=wider)], [dim]


@rule("sharding_constraint")
def _batch_constraint(axis: MappedAxis, operands: Sequence[Any], dims: Dims,
                      types: Sequence[ArrayType], *, sharding: Any) -> Batched:
    """Over Auto axes the mapped dimension is left open, or gets the axes of spmd_axis_name."""
    (x,), (dim,) = operands, dims
    mesh, spec = sharding.mesh, sharding.spec
    if axis.spmd and set(axis.spmd) & set(spec.axes()):
        fail(ValueError, f"vmap spmd_axis_name {axis.spmd} cannot appear in "
             f"with_sharding_constraint spec, but got spec {spec}", code="spmd-axis",
             help="the mapped dimension has that axis already: leave it out of the spec")
    entry: Any = axis.entry_on(mesh)
    if mesh.auto_axes:
        entry = axis.spmd or UNCONSTRAINED
    wider = insert_dim(sharding, typeof(x).ndim - 1, dim, entry)
    return [OPS["sharding_constraint"].bind(x, sharding=wider)], [dim]
