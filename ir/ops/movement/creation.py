"""Ops without operands: iota (indices along a dimension) and empty.

Nothing is moved to make a sharded iota: each device counts its own block and adds where it starts.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import issubdtype, long_name
from ...facts import CHEAP, COUNTS, GENERATED
from ...op import OPS, LocalizeContext, Op, Sample, defop
from ...shardings.sharding import NamedSharding
from ...types import ArrayType, Entries, Shape
from ..rules import reject, rule_text

# -- iota ------------------------------------------------------------------------------------------


def _iota_infer(*, dtype: Any, shape: Shape, dimension: int, sharding: Any) -> tuple:
    if not issubdtype(dtype, np.number):
        reject(TypeError, [], f"iota does not accept dtype {long_name(dtype)}. Accepted dtypes are "
               "subtypes of integer, floating, complexfloating.",
               help="make it of integers and convert it with `astype`")
    if not 0 <= dimension < len(shape):
        reject(ValueError, [], "iota dimension must be between 0 and len(shape), got "
               f"dimension={dimension} for shape={tuple(shape)}",
               help=f"the shape has {len(shape)} dimensions, counted from 0")
    return tuple(shape), dtype


def _private_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], **params: Any) -> str:
    return rule_text([], [[f"d{d}" for d in range(len(results[0]))]])


def _created_as(key: str):
    def explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                 params: dict[str, Any]) -> list[Entries | NamedSharding]:
        wanted = params[key]
        return [((),) * len(shapes[0]) if wanted is None else wanted]
    return explicit


def _iota_evaluate(lead: int, *, dtype: Any, shape: Shape, dimension: int,
                   sharding: Any) -> np.ndarray:
    sizes = [1] * len(shape)
    sizes[dimension] = shape[dimension]
    counted = np.arange(shape[dimension]).astype(dtype).reshape(sizes)
    return np.broadcast_to(counted, (1,) * lead + tuple(shape))


def _iota_localize(context: LocalizeContext) -> list[Any]:
    """Along the split dimension alone, then broadcast: one addition for each index."""
    params = context.params
    shape, dimension = context.local_result_shapes[0], params["dimension"]
    axes = context.result_entries[0][dimension]
    if not axes:
        return context.emit(iota_p, [], {**params, "shape": shape, "sharding": None})
    line = shape[dimension:dimension + 1]
    counted = context.emit(iota_p, [], {
        **params, "shape": line, "dimension": 0, "sharding": None})
    start = context.block_offset(axes, shape[dimension])
    if params["dtype"] != np.dtype(np.int32):
        start = context.emit(OPS["convert_element_type"], [start], {
            "new_dtype": params["dtype"], "weak_type": False, "sharding": None})[0]
    counted = context.emit(OPS["add"], [*counted, start], {})
    return counted if shape == line else context.emit(OPS["broadcast_in_dim"], counted, {
        "shape": shape, "broadcast_dimensions": (dimension,), "sharding": None})


iota_p = defop(
    "iota", doc="The index along `dimension` at each element.",
    infer=_iota_infer, rule=_private_rule, explicit=_created_as("sharding"),
    sharding_param="sharding",
    jvp="zero",
    evaluate=_iota_evaluate, arithmetic=False, facts=(CHEAP, GENERATED, COUNTS),
    resize=lambda params, operands, results: {**params, "shape": results[0]},
    localize=_iota_localize,
    jax="lax.broadcasted_iota",
    samples=lambda: [
        Sample((), {"dtype": np.dtype(np.int32), "shape": (3, 4), "dimension": 1,
                    "sharding": None}),
        Sample((), {"dtype": np.dtype(np.float32), "shape": (4, 2), "dimension": 0,
                    "sharding": None}),
    ])


# -- empty -----------------------------------------------------------------------------------------

empty_p = defop(
    "empty", doc="An array whose elements may be anything (zeros here).",
    infer=lambda *, shape, dtype, out_sharding: (tuple(shape), np.dtype(dtype)), rule=_private_rule,
    explicit=_created_as("out_sharding"), sharding_param="out_sharding",
    jvp="zero",
    evaluate=lambda lead, *, shape, dtype, out_sharding: np.zeros((1,) * lead + tuple(shape),
                                                                  dtype),
    arithmetic=False, facts=(GENERATED,),
    resize=lambda params, operands, results: {**params, "shape": results[0]},
    jax="jnp.zeros",
    samples=lambda: [Sample((), {"shape": (2, 3), "dtype": np.dtype(np.float32),
                                 "out_sharding": None})])
