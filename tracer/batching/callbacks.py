"""Callbacks under vmap: one call for each index, or one for all of them.

Debug callbacks are called for each index in turn, with one equation for each. Pure callbacks follow
their `vmap_method`; "sequential" ones, and io callbacks, are called in a loop. Source: the batching
rules of JAX's callbacks.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.op import OPS, Op
from ...ir.ops.control.callback import (
    debug_callback_p,
    debug_print_p,
    io_callback_p,
    pure_callback_p,
)
from ...ir.ops.derivatives import move_first, slice_along, whole_along
from ...ir.types import ArrayType, array_type
from ...ir.values.typeof import typeof
from ..lax.control.loops import scan
from .rules import Batched, Dims, MappedAxis, rule

Types = Sequence[ArrayType]


def _item(x: Any, dim: int, i: int) -> Any:
    """x[i] along dimension `dim`."""
    x = whole_along(x, dim)
    row = OPS["slice"].bind(x, **slice_along(typeof(x).shape, dim, i, i + 1))
    return OPS["squeeze"].bind(row, dimensions=(dim,))


def _batch_debug(op: Op) -> None:
    @rule(op.name)
    def batch(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types,
              **params: Any) -> Batched:
        for i in range(axis.size):
            op.bind(*(x if d is None else _item(x, d, i)
                      for x, d in zip(operands, dims, strict=True)), **params)
        return [], []


_batch_debug(debug_print_p)
_batch_debug(debug_callback_p)


def _in_loop(op: Op, operands: Sequence[Any], dims: Dims, unroll: int, params: dict[str, Any]
             ) -> Batched:
    """A scan over the mapped operands, whose body closes over the others."""
    items = [move_first(whole_along(x, d), d) for x, d in zip(operands, dims, strict=True)
             if d is not None]

    def one(_: Any, rows: Sequence[Any]) -> tuple[Any, Any]:
        given = iter(rows)
        return (), tuple(op.bind(*(x if d is None else next(given) for x, d in
                                   zip(operands, dims, strict=True)), **params))

    results = list(scan(one, (), tuple(items), unroll=unroll)[1])
    return results, [0] * len(results)


@rule("io_callback")
def _batch_io(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types, *,
              ordered: bool, **params: Any) -> Batched:
    if ordered:
        raise ValueError("Cannot `vmap` ordered IO callback.")
    return _in_loop(io_callback_p, operands, dims, 1, {**params, "ordered": False})


@rule("pure_callback")
def _batch_pure(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types, *,
                vmap_method: str | None, result_avals: tuple[ArrayType, ...], **params: Any
                ) -> Batched:
    """One call with stacked arrays, or a loop over the indices, as `vmap_method` says."""
    params = {**params, "vmap_method": vmap_method}
    if vmap_method in ("sequential", "sequential_unrolled"):
        unroll = axis.size if vmap_method == "sequential_unrolled" else 1
        return _in_loop(pure_callback_p, operands, dims, unroll,
                        {**params, "result_avals": result_avals})
    if vmap_method is None:
        fail(NotImplementedError, "vmap is only supported for the pure_callback primitive when "
             "vmap_method is one of 'sequential', 'sequential_unrolled', 'expand_dims', "
             "'broadcast_all', or 'legacy_vectorized'. Got vmap_method=None.", code="vmap-method",
             help="with the `vmap_method` 'sequential' it is called once for each index")
    moved = [x if d is None else move_first(whole_along(x, d), d)
             for x, d in zip(operands, dims, strict=True)]
    if vmap_method != "legacy_vectorized":
        size = axis.size if vmap_method == "broadcast_all" else 1
        moved = [_with_first(x, size) if d is None else x
                 for x, d in zip(moved, dims, strict=True)]
    wider = tuple(array_type((axis.size, *t.shape), t.dtype) for t in result_avals)
    results = pure_callback_p.bind(*moved, result_avals=wider, **params)
    return list(results), [0] * len(results)


def _with_first(x: Any, size: int) -> Any:
    shape = typeof(x).shape
    return OPS["broadcast_in_dim"].bind(
        x, shape=(size, *shape), broadcast_dimensions=tuple(range(1, len(shape) + 1)),
        sharding=None)
