"""Functions of lax that read and write at many positions: gather, and the family of scatter.

Positions are integer arrays whose last dimension holds one position; dimension numbers say which
dimensions of the operand it indexes.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.dtypes import iinfo, issubdtype
from ...ir.op import Op
from ...ir.ops.elementwise.arithmetic import add_p, rem_p
from ...ir.ops.elementwise.comparison import gt_p, lt_p
from ...ir.ops.elementwise.declaration import NUMBER, check_accepted
from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.indexing.gather import GatherDimensionNumbers, GatherScatterMode, gather_p
from ...ir.ops.indexing.scatter import (
    scatter_add_p,
    scatter_max_p,
    scatter_min_p,
    scatter_mul_p,
    scatter_p,
    scatter_sub_p,
)
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.reductions.reduction import reduce_max_p
from ...ir.values.typeof import typeof
from .. import sharding_notes
from ..operands.dtype_promotion import convert, dtype_name
from ..operands.rank_promotion import shape_of
from ..staging.constants import as_array
from .control.loops import fori_loop
from .creation import full_like
from .shape import broadcast, expand_dims

__all__ = [
    "GatherDimensionNumbers", "GatherScatterMode", "gather", "index_take", "scatter", "scatter_add",
    "scatter_apply", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub",
]
_INT32 = np.dtype("int32")


def gather_fill_value(dtype: Any) -> Any:
    """What a gather outside of its operand gives: NaN, or the extreme value of an integer type."""
    if issubdtype(dtype, np.inexact):
        return np.nan
    if issubdtype(dtype, np.signedinteger):
        return int(iinfo(dtype).min)
    if issubdtype(dtype, np.unsignedinteger):
        return int(iinfo(dtype).max)
    if dtype == np.dtype(bool):
        return True
    return int(np.iinfo("uint32").max)


@sharding_notes.indexed
def gather(operand, start_indices, dimension_numbers, slice_sizes, *, unique_indices=False,
           indices_are_sorted=False, mode=None, fill_value=None):
    """The slices of `operand` at the positions in the last dimension of `start_indices`.

    dimension_numbers: a `GatherDimensionNumbers`, which dimension of the result is what.
    slice_sizes:
    the sizes of a slice. mode: what happens outside of the operand, see `GatherScatterMode`; None
    promises that nothing is there. fill_value: for the mode that fills; NaN by default, or the
    extreme integer. `x[i]` and `jnp.take` are easier to write.

    >>> numbers = st.lax.GatherDimensionNumbers((1,), (0,), (0,))
    >>> st.lax.gather(jnp.array([[1, 2], [3, 4]]), jnp.array([[1], [0]]), numbers, (1, 2))
    Array([[3, 4],
           [1, 2]], dtype=int32)
    """
    mode = (GatherScatterMode.PROMISE_IN_BOUNDS if mode is None
            else GatherScatterMode.from_any(mode))
    if mode is GatherScatterMode.FILL_OR_DROP:
        if fill_value is None:
            fill_value = gather_fill_value(dtype_name(operand))
    else:
        fill_value = None
    return gather_p.bind(operand, start_indices, dimension_numbers=dimension_numbers,
                         slice_sizes=tuple(map(int, slice_sizes)),
                         unique_indices=bool(unique_indices),
                         indices_are_sorted=bool(indices_are_sorted), mode=mode,
                         fill_value=fill_value)


_COMBINES = {scatter_add_p: "add", scatter_sub_p: "sub", scatter_mul_p: "mul"}


def check_combines(op: Op, operand: Any) -> None:
    """Raise TypeError where the op that a scatter combines elements with does not take them."""
    name = _COMBINES.get(op)
    if name is not None:
        check_accepted(name, typeof(operand), NUMBER, 0)


_SCATTERED = "\n".join(("", "", *(sharding_notes.INDENT + line for line in (
    "dimension_numbers: a `ScatterDimensionNumbers`. Where positions repeat, all updates count; of",
    "those that replace it is not defined which one stays. mode: what happens outside of the",
    "operand, see `GatherScatterMode`. `x.at[i].set(v)`, `x.at[i].add(v)` are easier to write."))))


def _scatter(name: str, op: Op, what: str, *example: str) -> Callable[..., Any]:
    """A public function of the scatter family. what, example: of its docstring, what happens at the
    positions and lines that show it.
    """
    def f(operand, scatter_indices, updates, dimension_numbers, *, indices_are_sorted=False,
          unique_indices=False, mode=None):
        mode = (GatherScatterMode.FILL_OR_DROP if mode is None
                else GatherScatterMode.from_any(mode))
        check_combines(op, operand)
        return op.bind(operand, scatter_indices, updates, dimension_numbers=dimension_numbers,
                       indices_are_sorted=bool(indices_are_sorted),
                       unique_indices=bool(unique_indices), mode=mode)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = sharding_notes.with_example(
        f"`operand` with its slices at the positions in `scatter_indices` {what}.{_SCATTERED}",
        "numbers = st.lax.ScatterDimensionNumbers((), (0,), (0,))", *example)
    return f


scatter = _scatter(
    "scatter", scatter_p, "replaced by `updates`",
    ">>> st.lax.scatter(jnp.zeros(3), jnp.array([[2]]), jnp.ones(1), numbers)",
    "Array([0., 0., 1.], dtype=float32)")
scatter_add = _scatter(
    "scatter_add", scatter_add_p, "plus `updates`",
    ">>> st.lax.scatter_add(jnp.zeros(3), jnp.array([[0], [0], [2]]), jnp.ones(3), numbers)",
    "Array([2., 0., 1.], dtype=float32)")
scatter_sub = _scatter(
    "scatter_sub", scatter_sub_p, "minus `updates`",
    ">>> st.lax.scatter_sub(jnp.zeros(3), jnp.array([[0], [0], [2]]), jnp.ones(3), numbers)",
    "Array([-2.,  0., -1.], dtype=float32)")
scatter_mul = _scatter(
    "scatter_mul", scatter_mul_p, "times `updates`",
    ">>> st.lax.scatter_mul(jnp.ones(3), jnp.array([[0], [0]]), jnp.array([2.0, 3.0]), numbers)",
    "Array([6., 1., 1.], dtype=float32)")
scatter_min = _scatter(
    "scatter_min", scatter_min_p, "and `updates`, whichever is less",
    ">>> st.lax.scatter_min(jnp.zeros(3), jnp.array([[0], [0]]), jnp.array([2.0, -1.0]), numbers)",
    "Array([-1.,  0.,  0.], dtype=float32)")
scatter_max = _scatter(
    "scatter_max", scatter_max_p, "and `updates`, whichever is greater",
    ">>> st.lax.scatter_max(jnp.zeros(3), jnp.array([[0], [0]]), jnp.array([2.0, -1.0]), numbers)",
    "Array([2., 0., 0.], dtype=float32)")


def scatter_apply(operand, scatter_indices, func, dimension_numbers, *, update_shape=(),
                  indices_are_sorted=False, unique_indices=False, mode=None):
    """operand with an elementwise function applied to the slices at these positions.

    To elements that several positions name it is applied several times. update_shape: what the
    shape of updates would be, see `scatter`.
    """
    zeros = full_like(operand, 0, dtype=_INT32)
    ones = broadcast(np.int32(1), tuple(update_shape))
    times = scatter_add(zeros, scatter_indices, ones, dimension_numbers,
                        indices_are_sorted=indices_are_sorted, unique_indices=unique_indices,
                        mode=mode)
    return applied(func, operand, times, unique_indices)


def applied(func: Any, x: Any, times: Any, once: bool) -> Any:
    """x with func applied to each element so many times. once: no count is above 1."""
    dtype = dtype_name(x)

    def where(more: Any, x: Any) -> Any:
        return select_n_p.bind(more, x, convert(as_array(func(x)), dtype))

    zero = np.int32(0)
    if once:
        return where(gt_p.bind(times, zero), x)
    most = reduce_max_p.bind(times, axes=tuple(range(len(shape_of(times)))))
    return fori_loop(zero, most, lambda i, x: where(lt_p.bind(i, times), x), x)


def index_take(src, idxs, axes):
    """Slices of src at position idxs[i] of dimension axes[i], along a new first dimension.

    idxs: arrays of rank 1 and of one size; positions count modulo the size of the dimension.
    """
    axes = tuple(axes)
    if not axes:
        return src
    columns = [expand_dims(i, (1,)) for i in idxs]
    indices = columns[0] if len(columns) == 1 else concatenate_p.bind(*columns, dimension=1)
    sizes = list(shape_of(src))
    dtype = typeof(indices).dtype
    lengths = broadcast(np.array([sizes[a] for a in axes], dtype), shape_of(indices)[:1])
    rest = rem_p.bind(indices, lengths)
    indices = select_n_p.bind(lt_p.bind(rest, full_like(rest, 0)), rest,
                              add_p.bind(rest, lengths))
    for a in axes:
        sizes[a] = 1
    offsets = tuple(range(1, len(sizes) - len(axes) + 1))
    numbers = GatherDimensionNumbers(offset_dims=offsets, collapsed_slice_dims=axes,
                                     start_index_map=axes)
    return gather(src, indices, numbers, sizes)


