"""Reductions over sliding windows (pooling): reduce_window_sum, _max and _min.

Dimensions without a window pass through; along the others windows reach into neighbouring blocks
(halo). The ops that derivatives of maxima need are in pooling_derivatives.py.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes import issubdtype
from ...facts import MAY_BE_NAN, UNEVEN, DeviceCost, Types
from ...inference.pending import refuse
from ...kernels.windows import (
    Padding,
    halo,
    output_size,
    padded,
    passes,
    phases,
    spread_size,
    transposed_padding,
    write_runs,
)
from ...op import OPS, LocalizeContext, Op, Sample, defop
from ...padded import Padded, PaddedContext
from ...support.buffer_pool import empty
from ...types import ArrayType, Entries, Shape
from ..communication.halo_exchange import rows_needed, split_halos
from ..derivatives import batch_first, scalar_like, type_of
from ..emitting import literal
from ..identities import extremum
from ..rules import call, reject, resized_entries, rule_text

BLOCK = 1 << 17                 # elements at a time
Ints = tuple[int, ...]
Params = dict[str, Any]


# -- what all of them share ------------------------------------------------------------------------

def window_shape(types: Sequence[ArrayType], shape: Shape, window_dimensions: Ints,
                 window_strides: Ints, padding: Padding, base_dilation: Ints,
                 window_dilation: Ints) -> Shape:
    if len(shape) != len(window_dimensions):
        reject(TypeError, types, "reduce_window got the wrong number of window_dimensions for "
               f"operand: got operand shape {shape} with window_dimensions {window_dimensions}.",
               help=f"give one for each of the {len(shape)} dimensions, 1 where windows are one "
                    "element wide")
    for name, value in (("window_strides", window_strides), ("base_dilation", base_dilation),
                        ("window_dilation", window_dilation)):
        if len(value) != len(window_dimensions):
            reject(TypeError, types, f"reduce_window got inconsistent {name} and "
                   f"window_dimensions: got {name} {value} and window_dimensions "
                   f"{window_dimensions}.", help="give one of each for every dimension")
    return tuple(map(output_size, shape, window_dimensions, window_strides, padding, base_dilation,
                     window_dilation))


def _kinds(dims: Sequence[str], params: Params, operands: int) -> list[str]:
    if operands > 1:       # elements are chosen by comparing operands: windows must be whole
        return [k.partition("(")[0] for k in _kinds(dims, params, 1)]
    ones = (1,) * len(dims)
    return [f"{name}:{halo(w, s, p, b, d)}" for name, w, s, p, b, d in zip(
        dims, params["window_dimensions"], params["window_strides"], params["padding"],
        params.get("base_dilation", ones), params.get("window_dilation", ones), strict=True)
        if not passes(w, s, p, b)]


def _rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], **params: Any) -> str:
    dims = [f"d{d}" for d in range(len(operands[0]))]
    return rule_text([dims] * len(operands), [dims], _kinds(dims, params, len(operands)))


def _tiles(d: int, n: int, params: Params) -> bool:
    """Do the windows along dimension d tile all of its n elements, side by side?"""
    w, ones = params["window_dimensions"][d], (1,) * (d + 1)
    return (w > 1 and params["window_strides"][d] == w and n > 0 and n % w == 0
            and tuple(params["padding"][d]) == (0, 0)
            and params.get("base_dilation", ones)[d] == params.get("window_dilation", ones)[d] == 1)


def factors(shape: Shape, windows: Shape, params: Params
             ) -> tuple[list[Any], list[str], list[str], dict[str, int]]:
    """Factors of what the windows are in and of the windows themselves, kinds, and sizes.

    Windows side by side are a dimension of their own, so that blocks cut between them; others are
    named as the dimension that they are in, of which they want all.
    """
    dims = [f"d{d}" for d in range(len(shape))]
    inside: list[Any] = list(dims)
    kinds, sizes = _kinds(dims, params, 2), {}
    for d, (n, name) in enumerate(zip(shape, dims, strict=True)):
        if _tiles(d, n, params):
            inside[d] = (name, f"w{d}")
            kinds.remove(f"{name}:halo")
            kinds.append(f"w{d}!:replicate")
            sizes |= {name: windows[d], f"w{d}": params["window_dimensions"][d]}
    return inside, dims, kinds, sizes


def window_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                    params: Params) -> list[Entries]:
    return [resized_entries("reduce_window", types[-1], shapes[0])]


def _batched(params: Params) -> Params:
    """Params for a new first dimension without a window."""
    extra = {"window_dimensions": 1, "window_strides": 1, "padding": (0, 0), "base_dilation": 1,
             "window_dilation": 1}
    return {k: (extra[k], *v) if k in extra else v for k, v in params.items()}


def batch_with(name: str) -> Callable[..., tuple]:
    def batch(operands: Sequence[Any], dims: Sequence[int | None], size: int,
              **params: Any) -> tuple:
        return [call(name, *batch_first(operands, dims, size), **_batched(params))], [0]
    return batch


# -- reduce_window_* -------------------------------------------------------------------------------

def _reduce_infer(x: ArrayType, **params: Any) -> tuple:
    return window_shape([x], x.shape, **params), x.dtype


def _sum_infer(x: ArrayType, **params: Any) -> tuple:
    if not issubdtype(x.dtype, np.number):
        reject(TypeError, [x], "operand to reduce_window_sum must have a number dtype, got "
               f"{x.dtype}", help="convert it with `astype` to int32")
    return _reduce_infer(x, **params)


def _sum_transpose(ct: Any, x: Any, *, window_dimensions: Ints, window_strides: Ints,
                   padding: Padding, base_dilation: Ints, window_dilation: Ints) -> tuple:
    """A sum over windows of the cotangent, spread by the strides and padded, with strides and base
    dilation exchanged.
    """
    t = type_of(ct)
    config = tuple(
        (*transposed_padding(*args), args[3] - 1) for args in zip(
            x.aval.shape, t.shape, window_dimensions, window_strides, padding, base_dilation,
            window_dilation, strict=True))
    ct = call("pad", ct, scalar_like(0, t), padding_config=config)
    ones = (1,) * len(config)
    return (call("reduce_window_sum", ct, window_dimensions=window_dimensions,
                 window_strides=base_dilation, padding=((0, 0),) * len(config), base_dilation=ones,
                 window_dilation=window_dilation),)


def _selected_tangent(select: str) -> Callable[..., Any]:
    def tangent(g: Any, out: Any, x: Any, **params: Any) -> Any:
        return call("select_and_gather_add", g, x, select_prim=select, **params)
    return tangent


def _reduce_with(ufunc: np.ufunc, start: Callable[[np.dtype], Any]) -> Callable[..., np.ndarray]:
    """The evaluator of a reduction over windows by a ufunc. start: its neutral element, by dtype.
    """
    def evaluate(lead: int, x: np.ndarray, *, window_dimensions: Ints, window_strides: Ints,
                 padding: Padding, base_dilation: Ints, window_dilation: Ints) -> np.ndarray:
        """Windows are products of intervals, so one dimension is reduced after the other; blocks of
        dimensions that have none are, too, so that what is between stays in the cache.
        """
        dtype = x.dtype
        sizes = window_shape([], x.shape[lead:], window_dimensions, window_strides, padding,
                             base_dilation, window_dilation)
        axis = next((d for d, n in enumerate(x.shape) if n > 1), x.ndim)
        if x.size > BLOCK and (axis < lead or passes(
                window_dimensions[axis - lead], window_strides[axis - lead], padding[axis - lead],
                base_dilation[axis - lead])):
            out = empty((*x.shape[:lead], *sizes), dtype)
            step = max(1, BLOCK * x.shape[axis] // x.size)
            for i in range(0, x.shape[axis], step):
                block = (*[slice(None)] * axis, slice(i, i + step))
                out[block] = evaluate(
                    lead, x[block], window_dimensions=window_dimensions,
                    window_strides=window_strides, padding=padding, base_dilation=base_dilation,
                    window_dilation=window_dilation)
            return out
        if max(base_dilation, default=1) > 1:
            out = empty((*x.shape[:lead], *sizes), dtype)
            out[...] = start(dtype)
            for phase in phases(x.shape[lead:], sizes, window_dimensions, window_strides, padding,
                                base_dilation, window_dilation):
                write_runs(out[(*[slice(None)] * lead, *phase.results)], evaluate(
                    lead, x, window_dimensions=tuple(
                        [len(range(w)[part]) for w, part in
                         zip(window_dimensions, phase.window, strict=True)]),
                    window_strides=phase.strides, padding=phase.padding,
                    base_dilation=(1,) * len(sizes), window_dilation=phase.dilation))
            return out
        x = padded(lead, x, start(dtype), padding, base_dilation)
        for d, (n, w, s, step) in enumerate(zip(sizes, window_dimensions, window_strides,
                                                window_dilation, strict=True)):
            axis = lead + d
            total = None
            for k in range(w):
                first = k * step
                part = x[(slice(None),) * axis + (
                    slice(first, first + (n - 1) * s + 1 if n else first, s),)]
                total = part if k == 0 else ufunc(total, part, out=None if k == 1 else total,
                                                  dtype=dtype if ufunc is np.add else None)
            if total is None:
                shape = (*x.shape[:axis], n, *x.shape[axis + 1:])
                total = np.full(shape, start(dtype), dtype)
            x = total
        return x
    return evaluate


def window_flops(operands: Types, results: Types, params: Params) -> float:
    """Each further element of a window is combined with the first."""
    elements = min(max(t.size for t in operands), results[0].size)
    return float(elements * max(1, math.prod(params["window_dimensions"]) - 1))


def _padded_with(start: Callable[[np.dtype], Any]) -> Callable[[PaddedContext], list[Padded]]:
    """Padding is neutral, and there are as many windows as are wanted."""
    def padded(context: PaddedContext) -> list[Padded]:
        (x,), params, own = context.operands, context.params, []
        padding = list(params["padding"])
        for d, ((low, high), w, s, b, dilation) in enumerate(zip(
                padding, params["window_dimensions"], params["window_strides"],
                params["base_dilation"], params["window_dilation"], strict=True)):
            size = context.sizes[0][d]
            if passes(w, s, (low, high), b) or not size:
                continue
            dtype = x.atom.aval.dtype
            x = context.masked(x, d, np.asarray(start(dtype)).astype(dtype)[()])
            if x.is_padded(d) or size != context.result_types[0].shape[d]:
                high = (size - 1) * s + spread_size(w, dilation) - low - spread_size(x.size(d), b)
            padding[d] = (low, high)
            own += [*context.rule.operands[0][d], *context.rule.results[0][d]]
        return context.by_factors([x], params={**params, "padding": tuple(padding)}, own=own)
    return padded


def _localize(name: str, start: Callable[[np.dtype], Any]
              ) -> Callable[[LocalizeContext], list[Any]]:
    """Windows of blocks extended by their neighbours' rows; beyond the edges rows are neutral."""
    def localize(context: LocalizeContext) -> list[Any]:
        (x,), params = context.operands, dict(context.params)
        dtype = context.operand_types[0].dtype
        padding = list(params["padding"])
        for d, axes in split_halos(context).items():
            rows = rows_needed(context, x, d, axes)
            whole = context.operand_types[0].shape[d]
            x = rows.masked(literal(start(dtype), dtype), (0, whole))
            padding[d] = (0, 0)
        return context.emit(OPS[name], [x], {**params, "padding": tuple(padding)})
    return localize


def arange(*shape: int) -> np.ndarray:
    n = int(np.prod(shape))
    return (np.arange(n) * 7 % n).astype(np.float32).reshape(shape)


def window_params(window: Ints, strides: Ints, padding: Padding, base: Ints | None = None,
                  dilation: Ints | None = None) -> Params:
    ones = (1,) * len(window)
    return {"window_dimensions": window, "window_strides": strides, "padding": padding,
            "base_dilation": base or ones, "window_dilation": dilation or ones}


def _samples() -> list[Sample]:
    return [
        Sample((arange(4, 6),), window_params((2, 3), (1, 2), ((0, 1), (1, 1)))),
        Sample((arange(2, 5),), window_params((1, 2), (1, 1), ((0, 0), (0, 0)))),
        Sample((arange(5, 4),), window_params((2, 2), (2, 1), ((1, 0), (0, 2)), (2, 1), (1, 2))),
    ]


def _reduce_window(name: str, doc: str, *, infer: Callable[..., Any] = _reduce_infer,
                   function: np.ufunc, identity: Callable[[np.dtype], Any],
                   facts: Sequence[str] = (UNEVEN,), **fields: Any) -> Op:
    """Declare the reduction of each window; `identity` is what the padding holds, by dtype."""
    return defop(
        name, doc=doc, infer=infer, rule=_rule, explicit=window_explicit, pending=refuse,
        batch=batch_with(name),
        evaluate=_reduce_with(function, identity), facts=facts, cost=DeviceCost(window_flops),
        padded=_padded_with(identity), localize=_localize(name, identity),
        jax=f"lax.{name}_p.bind",
        samples=_samples, **fields)


reduce_window_sum_p = _reduce_window(
    "reduce_window_sum", "The sum of each window.", infer=_sum_infer,
    linear=((0,),), jvp="linear", transpose=_sum_transpose,
    function=np.add, identity=lambda dtype: 0, facts=(UNEVEN, MAY_BE_NAN))
reduce_window_max_p = _reduce_window(
    "reduce_window_max", "The largest element of each window.",
    jvp=(_selected_tangent("ge"),),
    function=np.maximum, identity=lambda dtype: extremum(dtype, False))
reduce_window_min_p = _reduce_window(
    "reduce_window_min", "The smallest element of each window.",
    jvp=(_selected_tangent("le"),),
    function=np.minimum, identity=lambda dtype: extremum(dtype, True))




