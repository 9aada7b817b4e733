"""Derivatives of scatters, written with scatters and gathers.

An overwriting scatter is linear in operand and updates together: overwritten elements get no
cotangent, and of several updates to one element only the last one does. Minimum and maximum share a
tangent equally among the extremal candidates.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...op import LinearOperand
from ...types import ArrayType, Shape
from ..derivatives import (
    convert,
    cotangent_type,
    explicit_sharding,
    full_like,
    reshard_like,
    type_of,
)
from ..gather_numbers import ScatterDimensionNumbers
from ..rules import call, zeros
from .common import window_dims
from .gather import gather_p

Params = dict[str, Any]


def slice_sizes_of(operand: Shape, updates: Shape, n: ScatterDimensionNumbers) -> tuple[int, ...]:
    """The window size in each operand dimension."""
    sizes = [1] * len(operand)
    windows = window_dims(len(operand), n.inserted_window_dims, n.operand_batching_dims)
    for d, at in zip(windows, n.update_window_dims, strict=True):
        sizes[d] = updates[at]
    return tuple(sizes)


def _gathered(x: Any, indices: Any, updates: ArrayType, params: Params, fill: Any = 0) -> Any:
    """The values of `x` at the places where a scatter with these params writes."""
    n = params["dimension_numbers"]
    return gather_p.bind(
        x, indices, dimension_numbers=n.as_gather(), fill_value=fill, mode=params["mode"],
        slice_sizes=slice_sizes_of(type_of(x).shape, updates.shape, n),
        unique_indices=params["unique_indices"], indices_are_sorted=params["indices_are_sorted"])


def transpose_sum(sign: int) -> Callable[..., tuple]:
    """The transpose of scatter-add, or of scatter-sub with sign -1: the cotangent, and its windows.
    """
    def transpose(ct: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> tuple:
        ct_updates = None
        if isinstance(updates, LinearOperand):
            ct_updates = reshard_like(_gathered(ct, indices, updates.aval, params),
                                      cotangent_type(updates.aval))
            if sign < 0:
                ct_updates = call("neg", ct_updates)
        return ct if isinstance(operand, LinearOperand) else None, None, ct_updates
    return transpose


def transpose_write(ct: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> tuple:
    """What was overwritten gets no cotangent; of overlapping updates only the last gets one."""
    ct_operand = ct_updates = None
    aval = type_of(updates)
    if isinstance(operand, LinearOperand):
        hole = cotangent_type(aval).update(dtype=ct.dtype)
        ct_operand = call("scatter", ct, indices, zeros(hole), **params)
    if isinstance(updates, LinearOperand):
        ct_updates = reshard_like(_gathered(ct, indices, aval, params), cotangent_type(aval))
        if not params["unique_indices"]:
            number = _numbered(aval)
            nobody = full_like(operand if not isinstance(operand, LinearOperand) else ct, -1,
                               np.int32)
            winner = reshard_like(
                _gathered(call("scatter", nobody, indices, number, **params), indices, aval,
                          params, fill=-1), aval)
            ct_updates = call("select_n", call("eq", winner, number), zeros(type_of(ct_updates)),
                              ct_updates)
    return ct_operand, None, ct_updates


def _numbered(aval: ArrayType) -> Any:
    """A different int32 in every element of an array of this type."""
    flat = call("iota", dtype=np.dtype(np.int32), shape=(aval.size,), dimension=0, sharding=None)
    out = call("reshape", flat, new_sizes=aval.shape, dimensions=None,
               sharding=explicit_sharding(aval))
    return call("pvary", out, axes=tuple(sorted(aval.varying))) if aval.varying else out


def jvp_mul_operand(g: Any, out: Any, operand: Any, indices: Any, updates: Any,
                    **params: Any) -> Any:
    return call("scatter-mul", g, indices, updates, **params)


def jvp_mul_updates(g: Any, out: Any, operand: Any, indices: Any, updates: Any,
                    **params: Any) -> Any:
    """The tangent of scatter-mul by its updates: those of the updates, times the operand where they
    go.
    """
    if not params["unique_indices"]:
        fail(NotImplementedError,
             "scatter_mul gradients are only implemented if `unique_indices=True`",
             code="not-differentiable",
             notes=("of several factors of one element each has the others in its derivative",),
             help="say that the indices differ, with `unique_indices`")
    base = full_like(operand, 0)
    return call("mul", operand, call("scatter-add", base, indices, g, **params))


def transpose_mul(ct: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> tuple:
    return call("scatter-mul", ct, indices, updates, **params), None, None


def jvp_extremal(op_name: str) -> Callable[..., tuple]:
    """The derivative of a scatter that takes minima or maxima."""
    def jvp(operands: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple:
        """Where several candidates are extremal, the mean of their tangents."""
        x, indices, updates = operands
        out = call(op_name, x, indices, updates, **params)
        g_x, _, g_updates = tangents
        target = _gathered(out, indices, type_of(updates), params, fill=None)
        hit = convert(call("eq", updates, target), type_of(updates).dtype)
        kept = call("eq", x, out)
        if g_x is not None:             # what is not written is kept, NaN too
            written = call("scatter-add", full_like(x, 0), indices, full_like(updates, 1), **params)
            kept = call("or", kept, call("eq", written, full_like(written, 0)))
        kept = convert(kept, type_of(x).dtype)
        counts = call("scatter-add", kept, indices, hit, **params)
        counts = call("max", counts, full_like(counts, 1))
        of_x, of_updates = (full_like(v, 0) if g is None else call("mul", which, g)
                            for v, which, g in ((x, kept, g_x), (updates, hit, g_updates)))
        total = call("scatter-add", of_x, indices, of_updates, **params)
        return out, call("div", total, counts)
    return jvp
