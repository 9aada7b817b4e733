"""argmax and argmin: the positions of extreme elements along dimensions."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...dtypes import issubdtype, long_name
from ...facts import COUNTS, READS_FUSED, DeviceCost, Types
from ...kernels.reductions import WIDE, first_position
from ...op import OPS, LocalizeContext, Op, Sample
from ...padded import Padded, PaddedContext
from ...types import ArrayType, Shape
from ..elementwise.declaration import values
from ..emitting import INT32, Emitting
from .reduction import F32, I32, Axes, declare_reduction, remaining_dims

FEW = 1 << 13           # bytes that are soon copied
PIECE = 1 << 18         # bytes of an operand whose positions are found at once


def _position_infer(x: ArrayType, *, axes: Axes, index_dtype: Any) -> tuple[Shape, Any, bool]:
    (axis,) = axes
    if not 0 <= axis < x.ndim:
        fail(ValueError, f"Invalid axis {axis} for operand shape {x.shape}", code="axis-range",
             help=f"the operand has {x.ndim} dimensions, counted from 0")
    if x.shape[axis] < 1:
        fail(ValueError, "argmin and argmax require non-empty reduced dimension. "
             f"operand.shape={x.shape} axis={axis}", code="axis-range",
             help="give it at least one element there, or test `x.size` first")
    if not issubdtype(index_dtype, np.integer):
        fail(TypeError, f"index_dtype must be an integer type, but got {long_name(index_dtype)}",
             code="dtype-not-accepted", help="write index_dtype=np.int32")
    return remaining_dims(x.shape, axes), np.dtype(index_dtype), False


def _position(function: Callable[..., Any], extreme: np.ufunc) -> Callable[..., Any]:
    """The evaluator of argmax or argmin. Large arrays are searched part by part, in parts that stay
    in the cache. extreme: the ufunc of `first_position`.
    """
    def evaluate(lead: int, x: np.ndarray, *, axes: Axes, index_dtype: Any) -> np.ndarray:
        axis = lead + axes[0]
        # numpy copies an operand that is read-only, or whose last dimension is another one.
        if (axis == x.ndim - 1 and x.nbytes > FEW and x.flags.c_contiguous
                and x.dtype.isbuiltin == 1):
            return np.asarray(function(_writable(x), axis=axis)).astype(index_dtype)
        if x.nbytes <= PIECE or x.ndim == 1:
            found = None if axis == x.ndim - 1 else first_position(x, axis, extreme)
            return np.asarray(function(x, axis=axis) if found is None else found).astype(
                index_dtype)
        out = np.empty(x.shape[:axis] + x.shape[axis + 1:], index_dtype)
        cut = max((n, d) for d, n in enumerate(x.shape) if d != axis)[1]
        step = max(1, x.shape[cut] * PIECE // x.nbytes)
        if cut > axis:
            step = max(step, WIDE)
        whole = (slice(None),)
        for i in range(0, x.shape[cut], step):
            some = slice(i, i + step)
            part = x[whole * cut + (some,)]
            found = first_position(part, axis, extreme)
            out[whole * (cut - (cut > axis)) + (some,)] = (
                function(part, axis=axis) if found is None else found)
        return out
    return evaluate


class _Data:
    """What an array consists of, for another one on the same memory."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, array: np.ndarray, interface: dict[str, Any]) -> None:
        self.array, self.__array_interface__ = array, interface


def _writable(x: np.ndarray) -> np.ndarray:
    """x itself, marked writable even if it is read-only, for callers that do not write to it."""
    if x.flags.writeable:
        return x
    interface = x.__array_interface__
    return np.asarray(_Data(x, {**interface, "data": (interface["data"][0], False)}))


def _flops(operands: Types, results: Types, params: dict[str, Any]) -> float:
    """A value and its place are compared, and whether it is a number."""
    (x,), (out,) = operands, results
    return float((x.size - out.size) * (7 if x.dtype.kind in "iub" else 9))


def _position_padded(context: PaddedContext) -> list[Padded]:
    """Padding in front counts as rows. Where all others are as its, the first of these is found."""
    (x,), (d,) = context.given, context.params["axes"]
    low, dtype = x.lows[d] or 0, np.dtype(context.params["index_dtype"])
    if dtype.kind == "u":
        x, low = context.resized(x, d, x.size(d)), 0
    (result,) = context.by_factors([x])
    if not low:
        return [result]
    place = context.call("sub", result.atom, context.number(low, result.atom.aval))
    place = context.call("max", place, context.number(0, place.aval))
    return [Padded(place, result.shape, None, result.lows)]


def _position_localize(op: Callable[[], Op]) -> Callable[[LocalizeContext], list[Any]]:
    """The local form of a position: the best of each block's best; ties go to the first block."""
    def localize(context: LocalizeContext) -> list[Any]:
        out = Emitting(context)
        (axis,) = context.params["axes"]
        operand = context.operands[0]
        place = context.emit(op(), [operand], context.params)[0]
        axes = context.axes_of_factor.get(context.rule.operands[0][axis][0], ())
        if not axes:
            return [place]
        best = out.elements(operand, axis, place)
        offset = context.block_offset(axes, context.local_operand_shapes[0][axis])
        shape = place.aval.shape
        place = out.call("add", place, out.broadcast(
            out.convert(offset, place.aval.dtype), shape, ()))
        values, places = out.gathered(best, axes), out.gathered(place, axes)
        winner = context.emit(op(), [values], {"axes": (0,), "index_dtype": INT32})[0]
        winner = out.broadcast(winner, places.aval.shape, range(1, len(shape) + 1))
        is_winner = out.call("eq", out.iota(places.aval.shape, 0), winner)
        only = out.select(is_winner, places, out.full(0, places.aval.shape, places.aval.dtype))
        return [out.call("reduce_sum", only, axes=(0,), out_sharding=None)]
    return localize


def _position_samples() -> list[Sample]:
    return [Sample((values((4, 6), dtype, -9, 9),),
                   {"axes": (axis,), "index_dtype": np.dtype(I32)}, grad=False)
            for dtype in (F32, I32) for axis in (0, 1)]


def _extremal_position(name: str, doc: str, function: Any, ufunc: np.ufunc) -> Op:
    return declare_reduction(
        name, doc, name, infer=_position_infer, pending="indexed",
        jvp="zero",
        evaluate=_position(function, ufunc), facts=(READS_FUSED, COUNTS), cost=DeviceCost(_flops),
        padded=_position_padded, localize=_position_localize(lambda: OPS[name]),
        jax=f"lax.{name}_p.bind",
        samples=_position_samples)


argmax_p = _extremal_position(
    "argmax", "The first position of the maximum (or of NaN) along `axes`, which is one.",
    np.argmax, np.maximum)
argmin_p = _extremal_position(
    "argmin", "The first position of the minimum (or of NaN) along `axes`, which is one.",
    np.argmin, np.minimum)
