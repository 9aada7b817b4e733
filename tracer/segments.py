"""Segment reductions, of rows of an array by group: `jax.ops.segment_sum` and its kin.

Each is one scatter into rows of the reduction's neutral element. With `out_sharding` it runs with
the Explicit axes Auto, so that rows split over devices may be reduced where they are; a sum may be
left pending (`P(unreduced={...})`), and no data moves then.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.dtypes import finfo, iinfo, issubdtype
from ..ir.op import Op
from ..ir.ops.indexing.scatter import scatter_add_p, scatter_max_p, scatter_min_p, scatter_mul_p
from ..ir.values.array import Array
from . import lax
from .jnp.indexing.indexed_update import scatter_update
from .jnp.reductions import reduce as reductions
from .lax.creation import filled_as
from .operands.dtype_promotion import check_arraylike, convert
from .sharding_notes import INDENT, with_example
from .shardings.auto_mode import in_auto_mode
from .shardings.out_sharding import canonicalize_sharding
from .staging.constants import as_array, concrete_value
from .staging.tracer import Tracer


def _neutral(op: Op, dtype: np.dtype) -> Any:
    """What the reduction of no row is."""
    if op in (scatter_add_p, scatter_mul_p):
        return dtype.type(op is scatter_mul_p)
    largest = op is scatter_min_p
    if dtype == np.dtype(bool):
        return np.bool_(largest)
    if issubdtype(dtype, np.integer):
        return dtype.type(iinfo(dtype).max if largest else iinfo(dtype).min)
    if finfo(dtype).max == np.inf or not np.isinf(np.array(np.inf).astype(dtype)):
        return dtype.type(finfo(dtype).max if largest else finfo(dtype).min)
    return dtype.type(np.inf if largest else -np.inf)


_ARGUMENTS = "\n".join(("", "", *(INDENT + line for line in (
    "data: [n, ...]. segment_ids: int [n], the group of each row. num_segments: of the result's",
    "rows, needed while tracing; by default the largest id + 1. Rows with other ids are left out",
    "(see mode). bucket_size: rows are reduced in groups of this size first. out_sharding: of the",
    "result. Raises ValueError for num_segments below 0. Source: `jax.ops`."))))


def _segments(name: str, op: Op, reducer: Callable[..., Array], doc: str, *example: str
              ) -> Callable[..., Array]:
    """A public function of the family, by its scatter. reducer: reduces the results of buckets.
    doc, example: of its docstring.
    """
    def f(data, segment_ids, num_segments=None, indices_are_sorted=False, unique_indices=False,
          bucket_size=None, mode=None, out_sharding=None):
        sharding = canonicalize_sharding(out_sharding, name)
        if sharding is not None and sharding.spec.unreduced and op is not scatter_add_p:
            raise NotImplementedError(f"unreduced for {name.removeprefix('segment_')} is not yet "
                                      "supported: only a sum can be left pending")
        check_arraylike(name, data, segment_ids)
        data, ids = as_array(data), as_array(segment_ids)
        count = _count(name, num_segments, ids)
        neutral = _neutral(op, data.dtype)
        rest = data.shape[1:] if ids.ndim else data.shape

        def scattered(lead: tuple[int, ...], index: Any, data: Any) -> Array:
            out = filled_as((*lead, count, *rest), convert(neutral, data.dtype))
            return scatter_update(op, out, index, data, indices_are_sorted, unique_indices, mode,
                                  False)

        if bucket_size is None:
            return in_auto_mode(lambda data, ids: scattered((), ids, data), sharding, data, ids)
        if sharding is not None:
            raise NotImplementedError(f"{name} with both bucket_size and out_sharding")
        which = np.arange(ids.shape[0], dtype=np.int32) // np.int32(bucket_size)
        out = scattered((-(-ids.size // bucket_size),), (which, ids), data)
        return lax.convert_element_type(reducer(out, axis=0), data.dtype)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = with_example(doc + _ARGUMENTS, "import shardtrace.numpy as jnp",
                             ">>> from shardtrace import ops", f">>> {example[0]}", *example[1:])
    return f


def _count(name: str, num_segments: Any, ids: Any) -> int:
    """How many groups there are: as many as asked for, else up to the largest id."""
    if num_segments is None:
        known = concrete_value(ids, f"{name}; pass num_segments=")
        return int(known.max()) + 1 if known.size else 0
    if isinstance(num_segments, Tracer):
        num_segments._concrete(f"{name}() `num_segments` argument.")
    count = operator.index(num_segments)
    if count < 0:
        raise ValueError("num_segments must be non-negative.")
    return count


segment_sum = _segments(
    "segment_sum", scatter_add_p, reductions.sum,
    "Sums of the rows of data with the same id; the sum may be left unreduced.",
    "ops.segment_sum(jnp.arange(5), jnp.array([0, 0, 1, 1, 2]))",
    "Array([1, 5, 4], dtype=int32)")
segment_prod = _segments(
    "segment_prod", scatter_mul_p, reductions.prod,
    "Products of the rows of data with the same id; 1 where there is none.",
    "ops.segment_prod(jnp.arange(6), jnp.array([0, 0, 1, 1, 2, 2]))",
    "Array([ 0,  6, 20], dtype=int32)")
segment_max = _segments(
    "segment_max", scatter_max_p, reductions.max,
    "Maxima of the rows of data with the same id; the least value where there is none.",
    "ops.segment_max(jnp.arange(6), jnp.array([0, 0, 1, 1, 2, 2]))",
    "Array([1, 3, 5], dtype=int32)")
segment_min = _segments(
    "segment_min", scatter_min_p, reductions.min,
    "Minima of the rows of data with the same id; the greatest value where there is none.",
    "ops.segment_min(jnp.arange(6), jnp.array([0, 0, 1, 1, 2, 2]))",
    "Array([0, 2, 4], dtype=int32)")
