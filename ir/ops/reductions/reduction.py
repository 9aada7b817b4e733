"""Reductions along dimensions: sums, products, maxima and logic.

A reduction of a split dimension leaves a partial result on each device; which reducers the lowering
can finish with a collective is given by the factor kind (`k:sum`, `k:max`, ...). On Explicit axes
the axis just disappears from the type, unless `out_sharding` of `reduce_sum` keeps the sum pending.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...dtypes import issubdtype, long_name, loop_dtype
from ...facts import MAY_BE_NAN
from ...inference.pending import refuse
from ...inference.unreduced import is_pending, refuse_pending
from ...kernels.staged_reductions import reducer_of
from ...op import OPS, Op, Sample, defop
from ...rules.factor import REDUCE
from ...rules.rule import Pattern
from ...shardings.sharding import named_sharding_abstract
from ...spec import spec_from_entries
from ...support.caches import cached
from ...types import ArrayType, Entries, Shape, short_list
from ..derivatives import (
    broadcast,
    convert,
    cotangent_type,
    div,
    eq,
    mul,
    reduce_sum,
    reshard_like,
    restore_dims,
    type_of,
)
from ..elementwise.declaration import values
from .cumulative import product_of_others

Axes = tuple[int, ...]
F32, I32, C64 = np.float32, np.int32, np.complex64


# -- shared by all --------------------------------------------------------------------------------

def remaining_dims(shape: Sequence[Any], axes: Axes) -> tuple[Any, ...]:
    return tuple([n for d, n in enumerate(shape) if d not in axes])


def _check_axes(x: ArrayType, axes: Axes) -> None:
    if len(axes) == 1 and 0 <= axes[0] < len(x.shape):
        return
    if len(axes) != len(set(axes)):
        fail(ValueError, f"duplicate value in 'axes' of reduction: {axes}", code="axis-range",
             help="name each dimension once")
    if not all(0 <= a < x.ndim for a in axes):
        fail(ValueError, f"reduction axes {axes} contains out-of-bounds indices for {x}.",
             code="axis-range", help=f"the operand has {x.ndim} dimensions, counted from 0")


def check_number(name: str, x: ArrayType) -> None:
    """Raise JAX's TypeError for booleans and keys."""
    if x.dtype.kind not in "iufc" and not issubdtype(x.dtype, np.number):
        fail(TypeError, f"{name} does not accept dtype {long_name(x.dtype)}. Accepted dtypes are "
             "subtypes of number.", code="dtype-not-accepted",
             help="convert first, with `astype`")


def _rule(operator: str) -> Callable[..., Pattern]:
    def rule(operand_shapes: tuple[Shape, ...], result_shapes: tuple[Shape, ...], *, axes: Axes,
             **params: Any) -> Pattern:
        return _pattern(len(operand_shapes[0]), axes, operator)
    return rule


@cached(4096, "rules of reductions")
def _pattern(ndim: int, axes: Axes, operator: str) -> Pattern:
    names = [f"k{d}" if d in axes else f"b{d}" for d in range(ndim)]
    reduced = (REDUCE, operator, False, ())
    return Pattern([names], [remaining_dims(names, axes)], {names[a]: reduced for a in axes})


def _explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape], params: dict[str, Any]
              ) -> list[Entries]:
    return [remaining_dims(types[0].entries, params["axes"])]


def shifted(axes: Sequence[int], dim: int) -> tuple[Axes, int]:
    """Axes of an op and the place of the batch in its result, for a batch dimension `dim`."""
    moved = tuple(a + (a >= dim) for a in axes)
    return moved, dim - sum(a < dim for a in moved)


def _batch(name: Callable[[], Op]) -> Callable[..., Any]:
    def batch(operands: Sequence[Any], dims: Sequence[int], size: int, *, axes: Axes, **params: Any
              ) -> tuple[list[Any], list[int]]:
        moved, out_dim = shifted(axes, dims[0])
        return [name().bind(operands[0], axes=moved, **params)], [out_dim]
    return batch


def _positions(lead: int, axes: Axes) -> Axes:
    return tuple(lead + a for a in axes)


# -- sums -----------------------------------------------------------------------------------------

def _sum_infer(x: ArrayType, *, axes: Axes, out_sharding: Any = None) -> tuple[Shape, Any]:
    _check_axes(x, axes)
    check_number("reduce_sum", x)
    return remaining_dims(x.shape, axes), x.dtype


def _sum_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                  params: dict[str, Any]) -> list[Any]:
    """The axes of what remains; `out_sharding` may keep the sum pending over axes that split a
    summed dimension.
    """
    (x,), axes, wanted = types, params["axes"], params.get("out_sharding")
    if wanted is None:
        return [remaining_dims(x.entries, axes)]
    spec = x.sharding.spec
    unreduced = wanted.spec.unreduced
    summed = {a for d in axes for a in x.entries[d]} | spec.unreduced
    if not unreduced <= summed:
        fail(ShardingTypeError,
             "out_sharding's unreduced axes should be in operand's specs that were summed over. "
             f"Got operand={x!r}, axes={frozenset(axes)}, unreduced_spec={unreduced}",
             code="unreduced-operand", label=f"the operand is {short_list(types)}",
             help="a sum over a mesh axis stays pending only where that axis splits a summed "
                  "dimension")
    entries = wanted.spec.padded(len(shapes[0])).entries
    return [named_sharding_abstract(
        wanted.mesh, spec_from_entries(entries, unreduced or spec.unreduced, spec.reduced))]


def _sum_transpose(ct: Any, x: Any, *, axes: Axes, out_sharding: Any = None) -> list[Any]:
    want = cotangent_type(x.aval)
    kept = [d for d in range(want.ndim) if d not in axes]
    return [reshard_like(broadcast(ct, want, kept), want)]


def _sum_batch(operands: Sequence[Any], dims: Sequence[int], size: int, *, axes: Axes,
               out_sharding: Any = None) -> tuple[list[Any], list[int]]:
    """Sum the same dimensions, moved by one; the batch dimension keeps its axes in `out_sharding`.
    """
    moved, out_dim = shifted(axes, dims[0])
    if out_sharding is not None:
        spec = out_sharding.spec
        x = type_of(operands[0])
        entries = list(spec.padded(x.ndim - 1 - len(axes)).entries)
        entries.insert(out_dim, x.entries[dims[0]])
        out_sharding = named_sharding_abstract(
            out_sharding.mesh, spec_from_entries(tuple(entries), spec.unreduced, spec.reduced))
    return [reduce_sum_p.bind(operands[0], axes=moved, out_sharding=out_sharding)], [out_dim]


def _reduced(ufunc: np.ufunc, x: np.ndarray, positions: Axes) -> np.ndarray:
    reduce = reducer_of(ufunc, positions, x.shape, x.dtype) if type(x) is np.ndarray else None
    if reduce is not None:
        return reduce(x)
    found = ufunc.reduce(x, axis=positions, dtype=loop_dtype(x.dtype))
    return found.astype(x.dtype, copy=False)


def _sum(lead: int, x: np.ndarray, *, axes: Axes, out_sharding: Any = None) -> np.ndarray:
    return _reduced(np.add, x, _positions(lead, axes))


def _axes_samples(dtypes: Sequence[Any], low: float = -3, high: float = 3,
                  **params: Any) -> Callable[[], list[Sample]]:
    def make() -> list[Sample]:
        return [Sample((values((4, 6, 2), dtype, low, high),), {"axes": axes, **params},
                       grad=np.dtype(dtype).kind in "fc")
                for dtype in dtypes for axes in ((1,), (0, 2), (0, 1, 2), ())]
    return make


def declare_reduction(name: str, doc: str, kind: str, **fields: Any) -> Op:
    """Declare a reduction of this kind (of factor) along `axes`; fields: others of `defop`."""
    return defop(
        name, doc=doc, rule=_rule(kind), explicit=_explicit,
        batch=_batch(lambda: OPS[name]),
        **fields)


reduce_sum_p = defop(
    "reduce_sum",
    doc="The sum along `axes`, in the operand's dtype; sharded by `out_sharding` unless None.",
    infer=_sum_infer, rule=_rule("sum"), explicit=_sum_explicit, pending="keep",
    sharding_param="out_sharding",
    linear=((0,),), jvp="linear", transpose=_sum_transpose, batch=_sum_batch,
    evaluate=_sum,
    facts=(MAY_BE_NAN,),
    samples=_axes_samples((F32, I32, C64), out_sharding=None))


# -- products -------------------------------------------------------------------------------------

def _prod_infer(x: ArrayType, *, axes: Axes) -> tuple[Shape, Any]:
    _check_axes(x, axes)
    check_number("reduce_prod", x)
    return remaining_dims(x.shape, axes), x.dtype


def _prod_jvp(operands: Sequence[Any], tangents: Sequence[Any], *, axes: Axes
              ) -> tuple[Any, Any]:
    (x,), (tangent,) = operands, tangents
    out = reduce_prod_p.bind(x, axes=axes)
    if tangent is not None:
        for axis in sorted(axes, reverse=True):
            tangent = reduce_sum(mul(tangent, product_of_others(x, axis)), (axis,))
            x = reduce_prod_p.bind(x, axes=(axis,))
    return out, tangent


def _prod(lead: int, x: np.ndarray, *, axes: Axes) -> np.ndarray:
    return np.multiply.reduce(x, axis=_positions(lead, axes), dtype=x.dtype)


reduce_prod_p = declare_reduction(
    "reduce_prod", "The product along `axes`, in the operand's dtype.", "prod",
    infer=_prod_infer, pending="iterated",
    jvp=_prod_jvp,
    evaluate=_prod,
    facts=(MAY_BE_NAN,),
    samples=_axes_samples((F32, I32, C64)))


# -- maxima ---------------------------------------------------------------------------------------

def _infer(x: ArrayType, *, axes: Axes) -> tuple[Shape, Any]:
    _check_axes(x, axes)
    return remaining_dims(x.shape, axes), x.dtype


def _selected_partial(g: Any, out: Any, x: Any, *, axes: Axes) -> Any:
    """The tangent of the element that was chosen; the mean of theirs where several are equal."""
    chosen = convert(eq(x, restore_dims(out, x, axes)), g.dtype)
    return div(reduce_sum(mul(g, chosen), axes), reduce_sum(chosen, axes))


def _lowest(dtype: np.dtype) -> Any:
    if dtype.kind == "b":
        return False
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _highest(dtype: np.dtype) -> Any:
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def _folded(function: np.ufunc, identity: Callable[[np.dtype], Any]) -> Callable[..., Any]:
    def evaluate(lead: int, x: np.ndarray, *, axes: Axes) -> np.ndarray:
        positions = _positions(lead, axes)
        if x.size:
            return _reduced(function, x, positions)
        return function.reduce(x, axis=positions, initial=identity(x.dtype))
    return evaluate


reduce_max_p = declare_reduction(
    "reduce_max", "The maximum along `axes`; NaN if there is one; -inf of no elements.", "max",
    infer=_infer, pending="iterated",
    jvp=(_selected_partial,),
    evaluate=_folded(np.maximum, _lowest),
    samples=_axes_samples((F32, I32, bool)))
reduce_min_p = declare_reduction(
    "reduce_min", "The minimum along `axes`; NaN if there is one; inf of no elements.", "min",
    infer=_infer, pending="iterated",
    jvp=(_selected_partial,),
    evaluate=_folded(np.minimum, _highest),
    samples=_axes_samples((F32, I32, bool)))


# -- logic ----------------------------------------------------------------------------------------

def _logical_infer(x: ArrayType, *, axes: Axes) -> tuple[Shape, Any, bool]:
    if not issubdtype(x.dtype, np.bool_) and not issubdtype(x.dtype, np.integer):
        fail(TypeError, "logical reduction requires operand dtype bool or int, got "
             f"{long_name(x.dtype)}.", code="dtype-not-accepted",
             help="compare it with 0 first")
    _check_axes(x, axes)
    return remaining_dims(x.shape, axes), x.dtype, False


def _logical_pending(op: Op, types: Sequence[ArrayType], params: dict[str, Any],
                     unreduced: Sequence[frozenset[str]], reduced: Sequence[frozenset[str]]
                     ) -> NoReturn:
    if len(params["axes"]) < types[0].ndim and is_pending(types[0]):
        refuse_pending(op.name, types)
    refuse(op, types, params, unreduced, reduced)


def _bitwise(function: np.ufunc) -> Callable[..., Any]:
    def evaluate(lead: int, x: np.ndarray, *, axes: Axes) -> np.ndarray:
        return _reduced(function, x, _positions(lead, axes))
    return evaluate


def _logical(name: str, doc: str, kind: str, function: np.ufunc) -> Op:
    return declare_reduction(
        name, doc, kind, infer=_logical_infer, pending=_logical_pending,
        jvp="zero",
        evaluate=_bitwise(function),
        samples=_axes_samples((bool, I32), -99, 99))


reduce_and_p = _logical(
    "reduce_and", "The bits that are set everywhere along `axes`; of booleans, whether all.", "and",
    np.bitwise_and)
reduce_or_p = _logical(
    "reduce_or", "The bits that are set somewhere along `axes`; of booleans, whether any.", "or",
    np.bitwise_or)
reduce_xor_p = _logical(
    "reduce_xor", "The bits that are set an odd number of times along `axes`.", "xor",
    np.bitwise_xor)



