"""`reduce`: reductions by any associative computation of scalars, of several operands at once.

The computation is a program of scalars. It is run on whole arrays, element by element, halving the
reduced dimension each time: by the evaluator on numpy arrays, by the derivative and batching rules
on traced ones. What `lax.reduce` recognises as a sum, maximum, ... with its identity as initial
value becomes `reduce_sum`, `reduce_max`, ... instead; those partition better.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...builder import ProgramBuilder
from ...diagnostics.diagnostic import fail
from ...dtypes import compute_dtype
from ...facts import MAY_BE_NAN
from ...inference import pending
from ...kernels.key_data import storage_dtype
from ...meshes.mesh import empty_abstract_mesh
from ...op import OPS, Op, Sample, defop
from ...program import Level, Literal, Program, Var
from ...shardings.sharding import named_sharding_abstract
from ...spec import spec_from_entries
from ...types import ArrayType, Entries, Shape, array_type
from ..derivatives import (
    batch_first,
    broadcast,
    broadcast_like,
    has_tangent,
    move_first,
    push_forward,
    slice_along,
    type_of,
    whole_along,
    zeros_like,
)
from ..elementwise.declaration import values

Axes = tuple[int, ...]
F32 = np.float32


# -- the computation ------------------------------------------------------------------------------

def _halves(operands: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    count = len(operands) // 2
    return operands[:count], operands[count:]


def run(program: Program, arguments: Sequence[Any], apply: Callable[..., Sequence[Any]],
        literal: Callable[[Literal], Any]) -> list[Any]:
    """Results of a program: apply(op, operands, params, result types) -> results runs an equation.

    Calls of other programs are entered. Raises TypeError at other ops that hold programs.
    """
    values_of: dict[Var, Any] = dict(zip(program.invars, arguments, strict=True))
    for var, value in program.consts:
        values_of[var] = literal(Literal(value, var.aval))

    def read(atom: Any) -> Any:
        return literal(atom) if isinstance(atom, Literal) else values_of[atom]

    for eqn in program.eqns:
        operands = [read(a) for a in eqn.invars]
        inner = [eqn.params[name] for name in eqn.op.subprograms]
        if eqn.op.evaluate is None and not inner or inner and (
                len(inner) > 1 or len(inner[0].invars) != len(operands)
                or eqn.op.evaluate is not None):
            fail(TypeError, f"the computation of a reduce may not contain `{eqn.op.name}`",
                 code="reduce-computation", location=eqn.location,
                 help="write it with elementwise functions and `jnp.where`")
        if inner:
            results = run(inner[0], operands, apply, literal)
        else:
            results = apply(eqn.op, operands, eqn.params, [v.aval for v in eqn.outvars])
        values_of.update(zip(eqn.outvars, results, strict=True))
    return [read(a) for a in program.outvars]


def monoid(program: Program) -> str | None:
    """The name of the op that a computation of one operand consists of, such as "max"."""
    if len(program.eqns) != 1 or len(program.invars) != 2 or program.consts:
        return None
    (eqn,) = program.eqns
    same = set(eqn.invars) == set(program.invars) and program.outvars == eqn.outvars
    return eqn.op.name if same else None


# -- typing ---------------------------------------------------------------------------------------

def _infer(*types: ArrayType, jaxpr: Program, dimensions: Axes) -> list[tuple]:
    """Operands of one shape, each with a scalar of its dtype; the results lack the reduced
    dimensions.
    """
    operands, inits = _halves(types)
    if any(t.shape for t in inits):
        fail(ValueError, f"reduce found non-scalar initial value: {[t.shape for t in inits]}",
             code="shape-mismatch",
             help="give a scalar of the operand's dtype for each")
    if any(t.shape != operands[0].shape for t in operands):
        fail(TypeError, "reduce operands must have equal shapes, got "
             f"{', '.join(str(t.shape) for t in operands)}", code="shape-mismatch",
             help="`jnp.broadcast_arrays` brings them to one shape")
    if [t.dtype for t in operands] != [t.dtype for t in inits]:
        fail(TypeError, "reduce operand dtypes should match corresponding initial value dtypes, "
             f"got operands={list(operands)} and initial_values={list(inits)}",
             code="dtype-mismatch", help="give initial values of the operands' dtypes")
    if not all(0 <= d < operands[0].ndim for d in dimensions):
        fail(ValueError, f"reduction axes {dimensions} contains out-of-bounds indices for "
             f"{operands[0]}.", code="axis-range",
             help=f"the operands have {operands[0].ndim} dimensions, counted from 0")
    return [(_without_dims(t.shape, dimensions), t.dtype, t.weak_type and i.weak_type)
            for t, i in zip(operands, inits, strict=True)]


def _without_dims(shape: Sequence[Any], axes: Axes) -> tuple[Any, ...]:
    return tuple(n for d, n in enumerate(shape) if d not in axes)


def _rule(operand_shapes: tuple[Shape, ...], result_shapes: tuple[Shape, ...], *, jaxpr: Program,
          dimensions: Axes) -> str:
    """A reduction of its kind where the computation is a known idempotent one; else the reduced
    dimensions must be whole.
    """
    # The initial value takes part once on every device, which only idempotent monoids allow.
    name = monoid(jaxpr)
    kind = name if name in ("max", "min", "and", "or") else "replicate"
    names = [f"k{d}" if d in dimensions else f"b{d}" for d in range(len(operand_shapes[0]))]
    count = len(operand_shapes) // 2
    left = ", ".join([" ".join(names)] * count + [""] * count)
    right = ", ".join([" ".join(_without_dims(names, dimensions))] * count)
    return f"{left} -> {right} | {' '.join(f'k{d}:{kind}' for d in dimensions)}"


def _explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape], params: dict[str, Any]
              ) -> list[Entries]:
    return [_without_dims(t.entries, params["dimensions"]) for t in _halves(types)[0]]


# -- derivatives and batching ---------------------------------------------------------------------

def _fold(operands: Sequence[Any], inits: Sequence[Any], dimensions: Axes, batched: bool,
          combine: Callable[[Sequence[Any], Sequence[Any]], list[Any]]) -> list[Any]:
    """The reduction written with ops on whole arrays; combine(xs, ys) runs the computation.

    batched: the first dimension is a batch, which initial values of rank 1 have too.
    """
    operands = list(operands)
    for axis in sorted(dimensions, reverse=True):
        operands = [whole_along(x, axis) for x in operands]
        n = type_of(operands[0]).shape[axis]
        if n == 0:
            shape = _without(type_of(operands[0]), dimensions)
            return [broadcast(i, shape.update(dtype=i.dtype), range(type_of(i).ndim))
                    for i in inits]
        rest = []
        while n > 1:
            half = n // 2
            if n % 2:
                rest.append([_part(x, axis, n - 1, n) for x in operands])
            operands = combine([_part(x, axis, 0, half) for x in operands],
                               [_part(x, axis, half, 2 * half) for x in operands])
            n = half
        for cells in rest:
            operands = combine(operands, cells)
        operands = [OPS["squeeze"].bind(x, dimensions=(axis,)) for x in operands]
    target = type_of(operands[0])
    filled = [i if t.ndim == target.ndim else
              broadcast(i, target.update(dtype=t.dtype, weak_type=False), range(t.ndim))
              for i, t in zip(inits, map(type_of, inits), strict=True)]
    return combine(filled, operands)


def _without(t: ArrayType, dimensions: Axes) -> ArrayType:
    sharding = named_sharding_abstract(
        t.mesh, spec_from_entries(_without_dims(t.entries, dimensions)))
    return t.update(shape=_without_dims(t.shape, dimensions), sharding=sharding, weak_type=False)


def _part(x: Any, axis: int, start: int, limit: int) -> Any:
    return OPS["slice"].bind(x, **slice_along(type_of(x).shape, axis, start, limit))


def _on_arrays(op: Op, operands: Sequence[Any]) -> Sequence[Any] | None:
    """Operands for an op of the computation applied to arrays; None if it only shapes a scalar."""
    if op.rule != "... -> ..." and len(operands) == 1:
        return None
    if op.explicit == "join":       # elementwise ops take scalars along with arrays
        return operands
    largest = max(operands, key=lambda x: type_of(x).ndim)
    return [broadcast_like(x, largest) for x in operands]


def _apply(op: Op, operands: Sequence[Any], params: dict[str, Any], types: Sequence[ArrayType]
           ) -> list[Any]:
    on_arrays = _on_arrays(op, operands)
    if on_arrays is None:
        return list(operands)
    out = op.bind(*on_arrays, **params)
    return list(out) if op.multiple_results else [out]


def _apply_dual(op: Op, pairs: Sequence[tuple[Any, Any]], params: dict[str, Any],
                types: Sequence[ArrayType]) -> list[tuple[Any, Any]]:
    operands = _on_arrays(op, [x for x, _ in pairs])
    if operands is None:
        return list(pairs)
    tangents = [None if t is None else broadcast_like(t, x)
                for x, (_, t) in zip(operands, pairs, strict=True)]
    return list(zip(*push_forward(op, operands, tangents, params), strict=True))


def _jvp(operands: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Program, dimensions: Axes
         ) -> tuple[list[Any], list[Any]]:
    """One reduction of primals and tangents together, by the derivative of the computation."""
    count = len(operands) // 2
    moving = [has_tangent(x.dtype) for x in operands[:count]]

    def combine(xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
        # Lists of primals and then of the tangents of those that have some.
        results = run(jaxpr, [*_pairs(xs), *_pairs(ys)], _apply_dual, lambda a: (_scalar(a), None))
        outs = [broadcast_like(v, x) for (v, _), x in zip(results, xs, strict=False)]
        return outs + [zeros_like(v) if t is None else broadcast_like(t, v)
                       for v, (_, t), m in zip(outs, results, moving, strict=True) if m]

    def _pairs(xs: Sequence[Any]) -> list[tuple[Any, Any]]:
        rest = iter(xs[count:])
        return [(x, next(rest) if m else None) for x, m in zip(xs, moving, strict=False)]

    def with_tangents(part: slice) -> list[Any]:
        xs, ts = operands[part], tangents[part]
        return [*xs, *(zeros_like(x) if t is None else t
                       for x, t, m in zip(xs, ts, moving, strict=True) if m)]

    out = _fold(with_tangents(slice(count)), with_tangents(slice(count, None)), dimensions, False,
                combine)
    return out[:count], [t for _, t in _pairs(out)]


def _scalar(atom: Literal) -> Any:
    return np.asarray(atom.val, atom.aval.dtype)[()]


def _batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *, jaxpr: Program,
           dimensions: Axes) -> tuple[list[Any], list[int]]:
    """One more dimension of the operands. If initial values have it too, they are no scalars any
    more, and the reduction is written out.
    """
    count = len(operands) // 2
    moved = tuple(d + 1 for d in dimensions)
    inits = [x if d is None else move_first(x, d)
             for x, d in zip(operands[count:], dims[count:], strict=True)]
    if all(d is None for d in dims[:count]):
        model = next(x for x, d in zip(inits, dims[count:], strict=True) if d is not None)
        arrays = batch_first([*operands[:count], model], [*dims[:count], 0], size)[:count]
    else:
        arrays = batch_first(operands[:count], dims[:count], size)
    if all(d is None for d in dims[count:]):
        outs = reduce_p.bind(*arrays, *inits, jaxpr=jaxpr, dimensions=moved)
    else:
        def combine(xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
            results = run(jaxpr, [*xs, *ys], _apply, _scalar)
            return [broadcast_like(v, x) for v, x in zip(results, ys, strict=True)]
        outs = _fold(arrays, inits, moved, True, combine)
    return list(outs), [0] * count


# -- meaning --------------------------------------------------------------------------------------

def _evaluate(lead: int, *arrays: np.ndarray, jaxpr: Program, dimensions: Axes
              ) -> list[np.ndarray]:
    """Combine the two halves of the reduced rows until one is left; odd rows, and the initial
    values, are combined with it at the end.
    """
    operands, inits = _halves(arrays)
    places = tuple(lead + d for d in dimensions)
    columns = [_columns(x, places) for x in np.broadcast_arrays(*operands)]
    rank = columns[0].ndim - 1
    inits = [v.reshape(v.shape + (1,) * (rank - v.ndim)) for v in inits]

    def combine(xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
        return run(jaxpr, [*xs, *ys], _apply_to_arrays, _array_of_rank(np.ndim(ys[0])))

    rest = []
    n = columns[0].shape[0]
    while n > 1:
        half = n // 2
        if n % 2:
            rest.append([c[n - 1] for c in columns])
        columns = combine([c[:half] for c in columns], [c[half:2 * half] for c in columns])
        n = half
    if not n:
        return [np.broadcast_to(i, c.shape[1:]) for i, c in zip(inits, columns, strict=True)]
    for cells in ([c[0] for c in columns], *rest):
        inits = combine(inits, cells)
    return inits


def _columns(x: np.ndarray, places: Axes) -> np.ndarray:
    """x with the reduced dimensions first, as one."""
    others = [d for d in range(x.ndim) if d not in places]
    count = math.prod(x.shape[d] for d in places)
    return x.transpose(*places, *others).reshape(count, *(x.shape[d] for d in others))


def _apply_to_arrays(op: Op, cells: Sequence[np.ndarray], params: dict[str, Any],
                     types: Sequence[ArrayType]) -> list[np.ndarray]:
    if op.arithmetic:
        cells = [c.astype(compute_dtype(c.dtype), copy=False) for c in cells]
    assert op.evaluate is not None
    # The computation is of scalars, so every dimension is one of devices.
    out = op.evaluate(np.ndim(cells[0]), *cells, **params)
    return [np.asarray(v).astype(storage_dtype(t.dtype), copy=False)
            for v, t in zip(out if op.multiple_results else [out], types, strict=True)]


def _array_of_rank(rank: int) -> Callable[[Literal], np.ndarray]:
    return lambda atom: np.asarray(atom.val, atom.aval.dtype).reshape((1,) * rank)


# -- the op ---------------------------------------------------------------------------------------

def _program(name: str, *equations: tuple[str, tuple[int, ...]], count: int = 1) -> Program:
    """A computation of float32 scalars for samples; operands are numbered from the parameters."""
    scalar = array_type((), np.dtype(np.float32))
    builder = ProgramBuilder(empty_abstract_mesh, Level.TRACED)
    variables = [Var(scalar) for _ in range(2 * count)]
    for op, operands in equations:
        variables += builder.emit(OPS[op], [variables[i] for i in operands])
    return Program(name, variables[:2 * count], builder.eqns, variables[-count:])


def _samples() -> list[Sample]:
    x, y, low = values((4, 6), F32, -3, 3), values((4, 6), F32, 0.5, 2, 1), np.array(-9.0, F32)
    largest = _program("largest", ("max", (0, 1)))
    # a + b + a * b, which is (1 + a) * (1 + b) - 1; and the product
    both = _program("both", ("mul", (0, 2)), ("add", (0, 2)), ("add", (4, 5)), ("mul", (1, 3)),
                    count=2)
    return [
        Sample((x, low), {"jaxpr": largest, "dimensions": (1,)}, grad=False),
        Sample((x, y, np.array(0.0, F32), np.array(1.0, F32)),
               {"jaxpr": both, "dimensions": (0, 1)}, grad=False)]


reduce_p = defop(
    "reduce",
    doc="Operands reduced along `dimensions` by the scalar program `jaxpr`, from initial values.",
    infer=_infer, multiple_results=True, rule=_rule, explicit=_explicit, pending=pending.refuse,
    jvp=_jvp, batch=_batch,
    evaluate=_evaluate, arithmetic=False,
    facts=(MAY_BE_NAN,),
    samples=_samples)
