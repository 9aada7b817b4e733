"""Types of scatters: operands that fit, the factor rule, and Explicit axes."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...op import Op
from ...types import ArrayType, Entries, Shape, short_list
from ..elementwise.declaration import check_same_dtypes
from ..gather_numbers import GatherScatterMode, ScatterDimensionNumbers
from ..rules import rule_text
from .common import Checks, check_index_dtype, factor_dims, window_dims
from .scatter_derivatives import (
    slice_sizes_of,
)

Params = dict[str, Any]


def query_dims(n: ScatterDimensionNumbers, rank: int) -> list[int]:
    """Dimensions of the updates that are queries, in the order of the indices' dimensions."""
    return [d for d in range(rank) if d not in n.update_window_dims]


def scatter_infer(operand: ArrayType, indices: ArrayType, updates: ArrayType, *,
                  dimension_numbers: ScatterDimensionNumbers, indices_are_sorted: bool,
                  unique_indices: bool, mode: GatherScatterMode) -> tuple:
    """Check the dimension numbers, and that windows fit the operand and updates the indices; the
    result is as the operand.
    """
    n = dimension_numbers
    types = [operand, indices, updates]
    check = Checks("scatter", types)
    check_index_dtype(types, indices)
    check_same_dtypes("scatter", [operand, updates])
    if indices.ndim == 0:
        check.fail("Scatter index leaf dimension must be within [0, rank(indices) + 1). "
                   "rank(indices) is 0 and scatter index leaf dimension is -1.")
    last = indices.ndim - 1
    rank = last + len(n.update_window_dims)
    if updates.ndim != rank:
        check.fail(f"Updates tensor must be of rank {rank}; got {updates.ndim}.")
    check.sorted_unique(n.update_window_dims, "update_window_dims")
    check.in_range(n.update_window_dims, updates.ndim, "update_window_dims")
    check.operand_dims(n, operand, indices, "inserted_window_dims", "scatter_dims_to_operand_dims",
                       "scatter_indices_batching_dims")
    window = (len(n.update_window_dims) + len(n.inserted_window_dims)
              + len(n.operand_batching_dims))
    if operand.ndim != window:
        check.fail(f"Scatter op has window of size {window}; doesn't match operand of rank "
                   f"{operand.ndim}.")
    if len(n.scatter_dims_to_operand_dims) != indices.shape[last]:
        check.fail(f"Scatter op has {len(n.scatter_dims_to_operand_dims)} elements in "
                   f"scatter_dims_to_operand_dims and the bound of dimension index_vector_dim="
                   f"{last} of indices is {indices.shape[last]}. These two numbers must be equal")
    for i, d in enumerate(n.scatter_dims_to_operand_dims):
        if not 0 <= d < operand.ndim:
            check.fail("Invalid scatter_dims_to_operand_dims mapping; domain is [0, "
                       f"{operand.ndim}), got: {i}->{d}.")
    check.unique(n.scatter_dims_to_operand_dims, "scatter_dims_to_operand_dims")
    windows = window_dims(operand.ndim, n.inserted_window_dims, n.operand_batching_dims)
    for at, d in zip(n.update_window_dims, windows, strict=True):
        if updates.shape[at] > operand.shape[d]:
            check.fail("Bounds of the window dimensions of updates must not exceed the bounds of "
                       "the corresponding dimensions of operand. For dimension "
                       f"{at}, updates bound is {updates.shape[at]}, operand bound is "
                       f"{operand.shape[d]}.")
    for at, size in zip(query_dims(n, updates.ndim), indices.shape[:-1], strict=True):
        if updates.shape[at] != size:
            check.fail("Bounds of the scatter dimensions of updates must be the same as the bounds "
                       "of the corresponding dimensions of scatter indices. For scatter dimension "
                       f"{at}, updates bound is {updates.shape[at]}, indices bound is {size}.")
    return operand.shape, operand.dtype, operand.weak_type


def rule_with(query_kind: str) -> Callable[..., str]:
    """The factor rule of a scatter. query_kind: the kind of queries, `replicate` or a reduction."""
    def rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
             dimension_numbers: ScatterDimensionNumbers, **params: Any) -> str:
        n = dimension_numbers
        operand, indices, updates, kinds = factor_dims(
            operands[0], operands[1], slice_sizes_of(operands[0], operands[2], n), n.as_gather())
        kinds = [f"{k}(own)" if k[0] in "ck" else k for k in kinds]
        kinds += [f"{q}:{query_kind}" for q in indices[:-1] if q.startswith("q")]
        return rule_text([operand, indices, updates], [operand], kinds)
    return rule


def scatter_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                     params: Params) -> list[Entries]:
    """The result is split as the operand. Windows must be split alike in operand and updates; what
    is written in part must be whole, and so must the indices.
    """
    operand, indices, updates = types
    n = params["dimension_numbers"]
    queries = query_dims(n, updates.ndim)
    batching = [(d, q, queries[q]) for d, q in zip(
        n.operand_batching_dims, n.scatter_indices_batching_dims, strict=True)]
    windows = list(zip(window_dims(operand.ndim, n.inserted_window_dims, n.operand_batching_dims),
                       n.update_window_dims, strict=True))
    in_step = all(len({e for e in (operand.entries[d], indices.entries[q], updates.entries[u])
                       if e}) <= 1 for d, q, u in batching)
    alike = all(operand.entries[d] == updates.entries[u]
                and (not operand.entries[d] or operand.shape[d] == updates.shape[u])
                for d, u in windows)
    whole = (all(not operand.entries[d] for d in n.inserted_window_dims)
             and not indices.entries[-1]
             and all(not indices.entries[q] and not updates.entries[u]
                     for q, u in enumerate(queries) if q not in n.scatter_indices_batching_dims))
    if not (in_step and alike and whole):
        fail(ShardingTypeError,
             "Use `.at[...].set/add/mul/...(out_sharding=)` to provide output PartitionSpec for "
             "the scatter update as out sharding could not be resolved unambiguously (or would "
             f"require collectives on inputs). Got operand={operand!r}, indices={indices!r}, "
             f"updates={updates!r}", code="scatter-sharding",
             label=f"operand, indices and updates are {short_list(types)}",
             notes=("a dimension that is written in part must be whole, and so must the indices",),
             help="say how the result is split, with `out_sharding`")
    entries = list(operand.entries)
    for d, q, u in batching:
        entries[d] = entries[d] or indices.entries[q] or updates.entries[u]
    return [tuple(entries)]
