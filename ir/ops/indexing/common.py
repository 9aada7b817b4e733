"""What gather and scatter share: checks of dimension numbers, factors, positions of windows.

`../gather_numbers.py` says what the dimensions of a gather are called.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import issubdtype
from ...support.named_tuple import NamedTuple
from ...types import ArrayType, Shape
from ..gather_numbers import GatherDimensionNumbers
from ..rules import reject

# -- checks ----------------------------------------------------------------------------------------

INDEX_INSTEAD = {
    "gather": "an index, or `jnp.take`, writes the dimension numbers itself",
    "scatter": "an update through `at` writes the dimension numbers itself"}


class Checks:
    """The checks of dimension lists that gather and scatter share, with JAX's texts."""

    def __init__(self, op: str, types: Sequence[ArrayType]) -> None:
        self.op, self.types = op, types

    def fail(self, message: str) -> None:
        reject(TypeError, self.types, message, INDEX_INSTEAD[self.op])

    def sorted_unique(self, dims: Sequence[int], name: str) -> None:
        if any(a > b for a, b in zip(dims, dims[1:], strict=False)):
            self.fail(f"{name} in {self.op} op must be sorted; got {dims}")
        self.unique(dims, name)

    def unique(self, dims: Sequence[int], name: str) -> None:
        if len(set(dims)) != len(dims):
            self.fail(f"{name} in {self.op} op must not repeat; got: {dims}.")

    def in_range(self, dims: Sequence[int], rank: int, name: str) -> None:
        for d in dims:
            if not 0 <= d < rank:
                self.fail(f"Invalid {name} set in {self.op} op; valid range is [0, {rank}); got: "
                          f"{d}.")

    def operand_dims(self, numbers: Any, operand: ArrayType, indices: ArrayType, left_out: str,
                     indexed: str, indices_name: str) -> None:
        """Check, of dimension numbers, the dimensions of the operand that windows leave out, those
        that the indices position, and those that are batched, along with ones of the indices."""
        what, name = self.op.capitalize(), "operand_batching_dims"
        dims, indices_dims = numbers.operand_batching_dims, getattr(numbers, indices_name)
        for each in (left_out, name):
            self.sorted_unique(getattr(numbers, each), each)
            self.in_range(getattr(numbers, each), operand.ndim, each)
        for each in (left_out, indexed):
            given = getattr(numbers, each)
            if set(given) & set(dims):
                self.fail(f"{each} and {name} in {self.op} op must be disjoint; got: {given} and "
                          f"{dims}.")
        self.unique(indices_dims, indices_name)
        self.in_range(indices_dims, indices.ndim, indices_name)
        if indices.ndim - 1 in indices_dims:
            self.fail(f"{what} op cannot have the index vector dimension as a batching dimension; "
                      f"got {indices_dims}.")
        if len(dims) != len(indices_dims):
            self.fail(f"{what} op requires equal numbers of {name} and {indices_name}, got {dims} "
                      f"and {indices_dims}.")
        a = tuple(operand.shape[d] for d in dims)
        b = tuple(indices.shape[d] for d in indices_dims)
        if a != b:
            self.fail(f"{what} op requires operand batching dimensions and indices batching "
                      f"dimensions to have the same shape, got {a} and {b}.")


def check_index_dtype(types: Sequence[ArrayType], indices: ArrayType) -> None:
    if not issubdtype(indices.dtype, np.integer):
        reject(ValueError, types, "indices must have an integer type",
               help="convert them with `astype` to int32")


def window_dims(ndim: int, collapsed: Sequence[int], batching: Sequence[int]) -> list[int]:
    """Operand dimensions whose windows are dimensions of the result (of the updates)."""
    return [d for d in range(ndim) if d not in collapsed and d not in batching]


# -- the factor rule -------------------------------------------------------------------------------

def factor_dims(operand: Shape, indices: Shape, slice_sizes: Sequence[int],
                n: GatherDimensionNumbers) -> tuple[list[str], list[str], list[str], list[str]]:
    """Factor names of operand, indices and windows-with-queries, and kinds; for gather and scatter.

    Names: e batching, w whole window, c collapsed, k and s a partial window in the operand and in
    the result, q query, v index vector.
    """
    kinds: list[str] = []
    of_operand = [""] * len(operand)
    of_indices = [f"q{d}" for d in range(len(indices) - 1)] + ["v"]
    kinds.append("v!:replicate")
    for i, (d, q) in enumerate(zip(n.operand_batching_dims, n.start_indices_batching_dims,
                                   strict=True)):
        of_operand[d] = of_indices[q] = f"e{i}"
    windows = []
    for d in range(len(operand)):
        if d in n.operand_batching_dims:
            continue
        if d in n.collapsed_slice_dims:
            of_operand[d] = f"c{d}"
            kinds.append(f"c{d}:indexed")
        elif slice_sizes[d] == operand[d]:
            of_operand[d] = f"w{d}"
            windows.append(f"w{d}")
        else:
            of_operand[d] = f"k{d}"
            windows.append(f"s{d}")
            kinds += [f"k{d}:indexed", f"s{d}!:replicate"]
    next_window, next_query = iter(windows), iter(of_indices[:-1])
    of_result = [next(next_window) if d in n.offset_dims else next(next_query)
                 for d in range(len(n.offset_dims) + len(indices) - 1)]
    return of_operand, of_indices, of_result, kinds


# -- evaluation ------------------------------------------------------------------------------------

class Windows(NamedTuple):
    """Where windows lie in an operand seen as (devices, addressed dimensions, whole windows).

    addressed: operand dimensions that are indexed; whole: those taken whole. partial: those of
    `addressed` that are window dimensions. index: one array per addressed dimension, of rank
    devices + queries + partial, positions moved inside; where only starts were asked for, of size 1
    in the partial ones. inside: of rank devices + queries, which windows were inside to begin with
    (None if all were).
    """
    addressed: tuple[int, ...]
    whole: tuple[int, ...]
    partial: tuple[int, ...]
    index: list[np.ndarray]
    inside: np.ndarray | None


def locate(lead: int, shape: Sequence[int], indices: np.ndarray, n: GatherDimensionNumbers,
           slice_sizes: Sequence[int], starts_only: bool = False) -> Windows:
    """The windows that `indices` address in an operand of this local shape."""
    windows = window_dims(len(shape), n.collapsed_slice_dims, n.operand_batching_dims)
    whole = tuple(d for d in windows if slice_sizes[d] == shape[d])
    partial = tuple(d for d in windows if slice_sizes[d] != shape[d])
    addressed = tuple(d for d in range(len(shape)) if d not in whole)
    queries = indices.ndim - lead - 1
    if indices.dtype.kind == "u" and indices.dtype.itemsize == 8:
        indices = np.minimum(indices, np.iinfo(np.int64).max)
    indices = indices.astype(np.int64, copy=False)
    starts: dict[int, np.ndarray] = {}
    inside: np.ndarray | None = None
    for k, d in enumerate(n.start_index_map):
        at, bound = indices[..., k], shape[d] - slice_sizes[d]
        within = (at >= 0) & (at <= bound)
        if not within.all():
            inside = within if inside is None else inside & within
            at = np.clip(at, 0, max(bound, 0))
        starts[d] = at
    index = []
    for d in addressed:
        if d in n.operand_batching_dims:
            q = n.start_indices_batching_dims[n.operand_batching_dims.index(d)]
            at = np.arange(shape[d]).reshape((-1,) + (1,) * (queries - q - 1 + len(partial)))
        else:
            at = starts.get(d)
            at = (np.zeros((1,) * (lead + queries + len(partial)), np.int64) if at is None
                  else at.reshape(at.shape + (1,) * len(partial)))
            if d in partial and not starts_only:
                step = np.arange(slice_sizes[d])
                at = at + step.reshape((-1,) + (1,) * (len(partial) - 1 - partial.index(d)))
        index.append(at)
    return Windows(addressed, whole, partial, index, inside)


def linear_index(index: Sequence[np.ndarray], sizes: Sequence[int]) -> np.ndarray:
    """Positions in row-major order of dimensions of these sizes."""
    out: Any = np.zeros((), np.int64)
    for at, n in zip(index, sizes, strict=True):
        out = out * n + at
    return out


def query_order(lead: int, queries: int, partial: Sequence[int], whole: Sequence[int],
                offset_dims: Sequence[int], windows: Sequence[int]) -> tuple[int, ...]:
    """The permutation from (devices, queries, partial, whole) to a gather's result."""
    order = [*partial, *whole]
    place = {d: lead + queries + order.index(w)
             for d, w in zip(offset_dims, windows, strict=True)}
    rest = iter(range(lead, lead + queries))
    return tuple(range(lead)) + tuple(
        place[d] if d in place else next(rest) for d in range(queries + len(order)))
