"""Batching: an op on values that carry one more dimension.

`batch_op` binds an op, in the current interpreter, to operands of which some have a mapped
dimension. Most ops need no rule: an elementwise op takes the dimension along, any other op takes it
in front. An op that does neither declares `batch`. Ops that hold programs, name mesh axes, or have
shardings among their params have rules here and in the modules of this folder, because these need
to know the axis that is mapped (`MappedAxis`).

On a mesh with Explicit axes a mapped dimension that is split over axes stays split over them in
every batched value: what a rule leaves otherwise is resharded.
"""
from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.facts import POSITION
from ...ir.meshes.mesh import AbstractMesh, empty_abstract_mesh
from ...ir.op import OPS, Op
from ...ir.ops.derivatives import batch_first, move_first
from ...ir.ops.rules import insert_axes
from ...ir.program import Program, subprograms_in
from ...ir.shardings.normalized import insert_dim
from ...ir.shardings.sharding import named_sharding_abstract
from ...ir.spec import UNCONSTRAINED, spec_from_entries
from ...ir.support.caches import in_memo
from ...ir.support.immutable import immutable, replace
from ...ir.support.registry import Registry
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from .rule_memo import place_of

Dims = Sequence[int | None]
Batched = tuple[list[Any], Dims]      # results, and the mapped dimension of each


@immutable
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


rule = Registry()
"""op name -> rule(axis, operands, dims, types, **params); `types`: of the unbatched results."""
named_rule = Registry()
"""As `rule`, for collectives that name the mapped axis; dims may all be None."""


# -- types and dimensions --------------------------------------------------------------------------

def batched_type(t: ArrayType, dim: int, axis: MappedAxis) -> ArrayType:
    """The type of a value of type `t` for each index of the axis, stacked along `dim`."""
    key = ("batched", dim, axis.size, axis.entry, axis.mesh)
    found = t.memo.get(key)
    if found is None:
        mesh = t.mesh if t.mesh.axis_names else axis.mesh
        entries = (*t.entries[:dim], axis.entry_on(mesh), *t.entries[dim:])
        found = t.memo[key] = t.update(
            shape=(*t.shape[:dim], axis.size, *t.shape[dim:]),
            sharding=named_sharding_abstract(mesh, spec_from_entries(
                entries, t.spec.unreduced, t.spec.reduced)))
    return found


@in_memo
def element_type(t: ArrayType, dim: int) -> ArrayType:
    """The type of one element along `dim` of a value of type `t`."""
    return t.update(
        shape=t.shape[:dim] + t.shape[dim + 1:],
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
        return frozenset().union(*[program_axis_names(p) for _, p in subprograms_in(op, params)])
    if op.collective is not None or POSITION in op.facts:
        named = params.get("axes", params.get("axis_name", ()))
        return frozenset(named if isinstance(named, tuple) else (named,))
    return frozenset()


@in_memo
def program_axis_names(program: Program) -> frozenset[Hashable]:
    """The axis names that a program's collectives use."""
    return frozenset().union(*(axis_names_of(e.op, e.params) for e in program.eqns))


def uses_axis(axis: MappedAxis, op: Op, params: dict[str, Any]) -> bool:
    """Whether an equation depends on the mapped axis by name."""
    return axis.name is not None and axis.name in axis_names_of(op, params)


def batch_op(axis: MappedAxis, op: Op, operands: Sequence[Any], dims: Dims,
             params: dict[str, Any], types: Sequence[ArrayType]) -> Batched:
    """Bind an op whose operand i has the mapped dimension dims[i] (None: it is not mapped).

    types: of the results without the mapped dimension. Returns the results and their dims.
    """
    place = place_of(axis, op, operands, dims, params, types)
    if place is None:
        return _batched(axis, op, operands, dims, params, types)
    repeated = place.repeated()
    if repeated is not None:
        return repeated
    results, out = _batched(axis, op, operands, dims, params, types)
    place.keep(results, out)
    return results, out


def _batched(axis: MappedAxis, op: Op, operands: Sequence[Any], dims: Dims,
             params: dict[str, Any], types: Sequence[ArrayType]) -> Batched:
    """`batch_op`, by the rule of the op."""
    if axis.name is not None and op.name in named_rule and axis.name in axis_names_of(op, params):
        results, out = named_rule[op.name](axis, operands, dims, types, **params)
    elif op.name in rule:
        results, out = rule[op.name](axis, operands, dims, types, **params)
    elif op.batch is not None:
        results, out = op.batch(operands, dims, axis.size, **params)
    elif op.subprograms:
        return fail(NotImplementedError, f"Batching rule for '{op.name}' not implemented",
                    code="not-batchable",
                    help="map over it with `lax.map`, which runs it for one element at a time")
    else:
        results, out = _default(axis, op, operands, dims, params, types)
    return [typed(x, d, t, axis) for x, d, t in zip(results, out, types, strict=True)], list(out)


def _default(axis: MappedAxis, op: Op, operands: Sequence[Any], dims: Dims,
             params: dict[str, Any], types: Sequence[ArrayType]) -> Batched:
    """By the factor rule: an elementwise op is bound with the mapped dimension where it is; any
    other with the dimension first, where its rule takes one more.
    """
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
        requested = params[op.sharding_param]
        params = {**params, op.sharding_param: insert_axes(
            requested, at, axis.entry_on(requested.mesh), types[0].ndim)}
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


# -- ops that speak of shardings -------------------------------------------------------------------

@rule("reshard")
def _batch_reshard(axis: MappedAxis, operands: Sequence[Any], dims: Sequence[int],
                   types: Sequence[ArrayType], *, dst_sharding: Any) -> Batched:
    (x,), (dim,) = operands, dims
    wider = insert_dim(dst_sharding, typeof(x).ndim - 1, dim, axis.entry_on(dst_sharding.mesh))
    return [OPS["reshard"].bind(x, dst_sharding=wider)], [dim]


@rule("sharding_constraint")
def _batch_constraint(axis: MappedAxis, operands: Sequence[Any], dims: Sequence[int],
                      types: Sequence[ArrayType], *, sharding: Any, **priority: int) -> Batched:
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
    return [OPS["sharding_constraint"].bind(x, sharding=wider, **priority)], [dim]
