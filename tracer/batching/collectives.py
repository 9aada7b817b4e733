"""Collectives over a vmapped axis: the exchange between indices is an op along a dimension.

`psum(x, 'i')` under `vmap(..., axis_name='i')` is a sum over the mapped dimension, `all_gather` is
the array itself, `ppermute` an indexing. Axes besides the mapped one are left to whoever binds
them: a sum over two axes is a sum over each in turn; the functions in
lax/communication/parallel.py take other collectives apart before they get here, so these name one
axis.
Source: JAX's `vmap` and its rules for collectives.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.op import OPS
from ...ir.ops.derivatives import (
    explicit_sharding,
    move_first,
    scalar_like,
    strong,
    whole_along,
)
from ...ir.ops.gather_numbers import GatherDimensionNumbers, GatherScatterMode
from ...ir.types import ArrayType, array_type
from ...ir.values.typeof import typeof
from .rules import (
    Batched,
    Dims,
    MappedAxis,
    batched_type,
    move_dim,
    named_rule,
    spread,
)

Types = Sequence[ArrayType]


def _no_groups(groups: Any) -> None:
    if groups is not None:
        fail(NotImplementedError, "axis_index_groups not supported in vmap collectives. Please "
             "open a feature request!", code="axis-index-groups",
             help="`reshape` the mapped dimension into groups and vmap over both")


def _reshape(x: Any, shape: Sequence[int]) -> Any:
    return OPS["reshape"].bind(x, new_sizes=tuple(shape), dimensions=None, sharding=None)


def _sum_over(x: Any, dim: int | None, axis: MappedAxis) -> Any:
    if dim is None:
        return OPS["mul"].bind(x, scalar_like(axis.size, x))
    return OPS["reduce_sum"].bind(x, axes=(dim,), out_sharding=None)


def _whole_first(x: Any, dim: int | None, axis: MappedAxis) -> Any:
    """x with the mapped dimension first and, as every index sees all others, not split."""
    if dim is None:
        x, dim = spread(x, 0, axis), 0
    return move_first(whole_along(x, dim), dim)


# -- reductions ------------------------------------------------------------------------------------

def _rest(name: str, x: Any, axis: MappedAxis, axes: Sequence[Any]) -> Batched:
    others = tuple(a for a in axes if a != axis.name)
    if others:
        x = OPS[name].bind(x, axes=others, axis_index_groups=None)
    return [x], [None]


@named_rule("psum")
def _psum(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types, *, axes: Any,
          axis_index_groups: Any) -> Batched:
    _no_groups(axis_index_groups)
    return _rest("psum", strong(_sum_over(operands[0], dims[0], axis)), axis, axes)


def _extreme(name: str, reduction: str) -> None:
    @named_rule(name)
    def batch(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types, *, axes: Any,
              axis_index_groups: Any) -> Batched:
        _no_groups(axis_index_groups)
        (x,), (dim,) = operands, dims
        if dim is not None:
            x = strong(OPS[reduction].bind(x, axes=(dim,)))
        return _rest(name, x, axis, axes)


_extreme("pmax", "reduce_max")
_extreme("pmin", "reduce_min")


@named_rule("axis_index")
def _axis_index(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types,
                **params: Any) -> Batched:
    t = batched_type(array_type((), np.dtype(np.int32)), 0, axis)
    return [OPS["iota"].bind(dtype=t.dtype, shape=t.shape, dimension=0,
                             sharding=explicit_sharding(t))], [0]


# -- exchanges -------------------------------------------------------------------------------------

@named_rule("all_gather")
def _all_gather(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types, *,
                all_gather_dimension: int, tiled: bool, axis_index_groups: Any,
                **params: Any) -> Batched:
    _no_groups(axis_index_groups)
    x = move_dim(_whole_first(operands[0], dims[0], axis), 0, all_gather_dimension)
    return [_reshape(x, types[0].shape) if tiled else x], [None]


@named_rule("reduce_scatter")
def _reduce_scatter(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types, *,
                    scatter_dimension: int, tiled: bool, axis_index_groups: Any,
                    **params: Any) -> Batched:
    """The sum over the mapped dimension; a dimension of the result becomes the mapped one."""
    _no_groups(axis_index_groups)
    x, d = _sum_over(operands[0], dims[0], axis), scatter_dimension
    x = whole_along(x, d)
    if tiled:
        shape = types[0].shape
        x = _reshape(x, (*shape[:d], axis.size, *shape[d:]))
    return [x], [d]


@named_rule("all_to_all")
def _all_to_all(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types, *,
                split_axis: int, concat_axis: int, tiled: bool, axis_index_groups: Any,
                **params: Any) -> Batched:
    """The split dimension becomes the mapped one, and the mapped one the concatenated."""
    _no_groups(axis_index_groups)
    x = _whole_first(operands[0], dims[0], axis)              # [source, ..., split, ...]
    x = whole_along(x, split_axis + 1)
    shape = typeof(x).shape
    if tiled:
        at = split_axis + 1
        x = _reshape(x, (*shape[:at], axis.size, shape[at] // axis.size, *shape[at + 1:]))
    x = move_dim(x, split_axis + 1, 0)                        # [target, source, ...]
    x = move_dim(x, 1, concat_axis + 1)
    if tiled:
        x = _reshape(whole_along(x, concat_axis + 2), (axis.size, *types[0].shape))
    return [x], [0]


@named_rule("ppermute")
def _ppermute(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types, *,
              perm: tuple[tuple[int, int], ...], **params: Any) -> Batched:
    """A gather along the mapped dimension: what index i receives is what its source has."""
    if sorted(s for s, _ in perm) != list(range(axis.size)):
        fail(AssertionError, "Permutation doesn't match the axis size!", code="permutation",
             label=f"the vmapped axis {axis.name!r} has size {axis.size}",
             help="under vmap every index must send once and receive once")
    x = _whole_first(operands[0], dims[0], axis)
    sources = np.zeros((axis.size, 1), np.int32)
    for source, target in perm:
        sources[target] = source
    rest = typeof(x).shape[1:]
    numbers = GatherDimensionNumbers(
        offset_dims=tuple(range(1, len(rest) + 1)), collapsed_slice_dims=(0,),
        start_index_map=(0,))
    return [OPS["gather"].bind(
        x, sources, dimension_numbers=numbers, slice_sizes=(1, *rest), indices_are_sorted=False,
        unique_indices=True, mode=GatherScatterMode.PROMISE_IN_BOUNDS, fill_value=None)], [0]
