"""Reductions over sliding windows (pooling), and the two ops that their derivatives need.

reduce_window_sum, _max and _min reduce each window. The tangent of a maximum is the tangent at the
position of the maximum (select_and_gather_add), its transpose puts a cotangent there
(select_and_scatter_add); of equal elements the first counts, as in XLA, which also says what
becomes of NaN (`_chosen`). Dimensions without a window pass
through, along the others windows reach to neighbouring blocks (halo).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...dtypes import issubdtype
from ...inference.pending import refuse
from ...kernels.device_dimensions import lead_sizes, with_lead
from ...kernels.windows import (
    Padding,
    halo,
    output_size,
    padded,
    passes,
    spread_size,
    transposed_padding,
    windows,
)
from ...op import OPS, LocalizeContext, Op, Sample, defop
from ...padded import Padded, PaddedContext
from ...rule import FactorRule, make_rule
from ...types import ArrayType, Entries, Shape
from ..communication.halo_exchange import rows_needed, split_halos
from ..derivatives import batch_first, type_of
from ..elementwise.declaration import check_same_dtypes
from ..emitting import literal
from ..identities import extremum
from ..rules import call, reject, resized_entries, rule_text

Ints = tuple[int, ...]
Params = dict[str, Any]


# -- what all of them share ------------------------------------------------------------------------

def _window_shape(types: Sequence[ArrayType], shape: Shape, window_dimensions: Ints,
                  window_strides: Ints, padding: Padding, base_dilation: Ints,
                  window_dilation: Ints) -> Shape:
    if len(shape) != len(window_dimensions):
        reject(TypeError, types, "reduce_window got the wrong number of window_dimensions for "
               f"operand: got operand shape {shape} with window_dimensions {window_dimensions}.")
    for name, value in (("window_strides", window_strides), ("base_dilation", base_dilation),
                        ("window_dilation", window_dilation)):
        if len(value) != len(window_dimensions):
            reject(TypeError, types, f"reduce_window got inconsistent {name} and "
                   f"window_dimensions: got {name} {value} and window_dimensions "
                   f"{window_dimensions}.")
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
    """Do the windows along dimension d lie side by side and cover all of its n elements?"""
    w, ones = params["window_dimensions"][d], (1,) * (d + 1)
    return (w > 1 and params["window_strides"][d] == w and n > 0 and n % w == 0
            and tuple(params["padding"][d]) == (0, 0)
            and params.get("base_dilation", ones)[d] == params.get("window_dilation", ones)[d] == 1)


def _factors(shape: Shape, windows: Shape, params: Params
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


def _explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
              params: Params) -> list[Entries]:
    return [resized_entries("reduce_window", types[-1], shapes[0])]


def _batched(params: Params) -> Params:
    """Params for a new first dimension without a window."""
    extra = {"window_dimensions": 1, "window_strides": 1, "padding": (0, 0), "base_dilation": 1,
             "window_dilation": 1}
    return {k: (extra[k], *v) if k in extra else v for k, v in params.items()}


def _batch_with(name: str) -> Callable[..., tuple]:
    def batch(operands: Sequence[Any], dims: Sequence[int | None], size: int,
              **params: Any) -> tuple:
        return [call(name, *batch_first(operands, dims, size), **_batched(params))], [0]
    return batch


# -- reduce_window_* -------------------------------------------------------------------------------

def _reduce_infer(x: ArrayType, **params: Any) -> tuple:
    return _window_shape([x], x.shape, **params), x.dtype


def _sum_infer(x: ArrayType, **params: Any) -> tuple:
    if not issubdtype(x.dtype, np.number):
        reject(TypeError, [x], "operand to reduce_window_sum must have a number dtype, got "
               f"{x.dtype}")
    return _reduce_infer(x, **params)


def _sum_transpose(ct: Any, x: Any, *, window_dimensions: Ints, window_strides: Ints,
                   padding: Padding, base_dilation: Ints, window_dilation: Ints) -> tuple:
    t = type_of(ct)
    config = tuple(
        (*transposed_padding(*args), args[3] - 1) for args in zip(
            x.aval.shape, t.shape, window_dimensions, window_strides, padding, base_dilation,
            window_dilation, strict=True))
    ct = call("pad", ct, np.zeros((), t.dtype), padding_config=config)
    ones = (1,) * len(config)
    return (call("reduce_window_sum", ct, window_dimensions=window_dimensions,
                 window_strides=base_dilation, padding=((0, 0),) * len(config), base_dilation=ones,
                 window_dilation=window_dilation),)


def _chosen_tangent(select: str) -> Callable[..., Any]:
    def tangent(g: Any, out: Any, x: Any, **params: Any) -> Any:
        return call("select_and_gather_add", g, x, select_prim=select, **params)
    return tangent


def _reduce_with(ufunc: np.ufunc, start: Callable[[np.dtype], Any]) -> Callable[..., np.ndarray]:
    def evaluate(lead: int, x: np.ndarray, *, window_dimensions: Ints, window_strides: Ints,
                 padding: Padding, base_dilation: Ints, window_dilation: Ints) -> np.ndarray:
        """Windows are products of intervals, so one dimension is reduced after the other."""
        dtype = x.dtype
        sizes = _window_shape([], x.shape[lead:], window_dimensions, window_strides, padding,
                              base_dilation, window_dilation)
        x = padded(lead, x, start(dtype), padding, base_dilation)
        for d, (n, w, s, step) in enumerate(zip(sizes, window_dimensions, window_strides,
                                                window_dilation, strict=True)):
            axis = lead + d
            total = None
            for k in range(w):
                first = k * step
                part = x[(slice(None),) * axis + (
                    slice(first, first + (n - 1) * s + 1 if n else first, s),)]
                total = (part if total is None else ufunc(total, part, dtype=dtype)
                         if ufunc is np.add else ufunc(total, part))
            if total is None:
                shape = (*x.shape[:axis], n, *x.shape[axis + 1:])
                total = np.full(shape, start(dtype), dtype)
            x = total
        return x
    return evaluate


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
    """Windows of blocks with the rows of their neighbours; what is no row at all is neutral."""
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


def _arange(*shape: int) -> np.ndarray:
    n = int(np.prod(shape))
    return (np.arange(n) * 7 % n).astype(np.float32).reshape(shape)


def _params(window: Ints, strides: Ints, padding: Padding, base: Ints | None = None,
            dilation: Ints | None = None) -> Params:
    ones = (1,) * len(window)
    return {"window_dimensions": window, "window_strides": strides, "padding": padding,
            "base_dilation": base or ones, "window_dilation": dilation or ones}


def _samples() -> list[Sample]:
    return [
        Sample((_arange(4, 6),), _params((2, 3), (1, 2), ((0, 1), (1, 1)))),
        Sample((_arange(2, 5),), _params((1, 2), (1, 1), ((0, 0), (0, 0)))),
        Sample((_arange(5, 4),), _params((2, 2), (2, 1), ((1, 0), (0, 2)), (2, 1), (1, 2))),
    ]


def _reduce_window(name: str, doc: str, *, infer: Callable[..., Any] = _reduce_infer,
                   function: np.ufunc, identity: Callable[[np.dtype], Any], **fields: Any) -> Op:
    """Declare the reduction of each window; `identity` is what the padding holds, by dtype."""
    return defop(
        name, doc=doc, infer=infer, rule=_rule, explicit=_explicit, pending=refuse,
        batch=_batch_with(name),
        evaluate=_reduce_with(function, identity), padded=_padded_with(identity),
        localize=_localize(name, identity),
        samples=_samples, **fields)


reduce_window_sum_p = _reduce_window(
    "reduce_window_sum", "The sum of each window.", infer=_sum_infer,
    linear=((0,),), jvp="linear", transpose=_sum_transpose,
    function=np.add, identity=lambda dtype: 0)
reduce_window_max_p = _reduce_window(
    "reduce_window_max", "The largest element of each window.",
    jvp=(_chosen_tangent("ge"),),
    function=np.maximum, identity=lambda dtype: extremum(dtype, False))
reduce_window_min_p = _reduce_window(
    "reduce_window_min", "The smallest element of each window.",
    jvp=(_chosen_tangent("le"),),
    function=np.minimum, identity=lambda dtype: extremum(dtype, True))


# -- select_and_gather_add -------------------------------------------------------------------------

def _gather_infer(tangents: ArrayType, x: ArrayType, *, select_prim: str, **params: Any) -> tuple:
    types = [tangents, x]
    if tangents.shape != x.shape:
        reject(TypeError, types, "select_and_gather_add tangents and operand shapes must match, "
               f"got {tangents.shape} and {x.shape}.")
    check_same_dtypes("select_and_gather_add", types)
    return _window_shape(types, x.shape, **params), x.dtype


def _gather_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], **params: Any
                 ) -> FactorRule:
    inside, windows, kinds, sizes = _factors(operands[1], results[0], params)
    return make_rule(rule_text([inside, inside], [windows], kinds), operands, results, sizes)


def _gather_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                     params: Params) -> list[Entries]:
    tangents, x = types
    if tangents.entries != x.entries:
        fail(ShardingTypeError, "select_and_gather_add tangents and operand shardings must match, "
             f"got {tangents.sharding} and {x.sharding}.", code="sharding-conflict")
    return _explicit(op, types, shapes, params)


def _gather_transpose(ct: Any, tangents: Any, x: Any, *, select_prim: str, window_dimensions: Ints,
                      window_strides: Ints, padding: Padding, base_dilation: Ints,
                      window_dilation: Ints) -> tuple:
    if any(d != 1 for d in window_dilation):
        fail(NotImplementedError, "VJP not implemented for select_and_gather (MaxPool) with window "
             f"dilation, got window_dilation={window_dilation}.", code="not-differentiable")
    spread = any(d != 1 for d in base_dilation)
    if spread:
        t = type_of(x)
        value = np.asarray(extremum(t.dtype, select_prim == "le"), t.dtype)
        x = call("pad", x, value, padding_config=tuple((0, 0, d - 1) for d in base_dilation))
    out = call("select_and_scatter_add", ct, x, select_prim=select_prim,
               window_dimensions=window_dimensions, window_strides=window_strides, padding=padding)
    if spread:
        shape = type_of(out).shape
        out = call("slice", out, start_indices=(0,) * len(shape), limit_indices=shape,
                   strides=base_dilation)
    return out, None


def _flat_windows(views: np.ndarray, window: Ints) -> np.ndarray:
    """Windows with their elements in one last dimension."""
    return views.reshape(*views.shape[:views.ndim - len(window)], math.prod(window))


def _chosen(lead: int, x: np.ndarray, select: str, window: Ints, strides: Ints, padding: Padding,
            base_dilation: Ints, window_dilation: Ints, skip_padding: bool = False
            ) -> tuple[np.ndarray, np.ndarray]:
    """Flat position in its window of the element that each window selects; where it is a number
    that is no better than what a window starts from.

    An element stays selected while it compares `select` with the next: NaN never stays before
    another, so what follows the last NaN decides. skip_padding: padding is not compared.
    """
    neutral = extremum(x.dtype, select == "le")
    spread = padded(lead, x, neutral, padding, base_dilation)
    flat = _flat_windows(windows(spread, window, strides, window_dilation), window)
    best = np.argmax if select == "ge" else np.argmin
    at = best(flat, -1)
    nan = np.isnan(flat) if x.dtype.kind not in "biu" else np.zeros((), bool)
    if nan.any():
        size = flat.shape[-1]
        last = np.where(nan.any(-1), size - 1 - np.argmax(nan[..., ::-1], -1), -1)
        later = np.arange(size) > last[..., None]
        if skip_padding:
            real = padded(lead, np.ones(x.shape, bool), False, padding, base_dilation)
            later &= _flat_windows(windows(real, window, strides, window_dilation), window)
        following = best(np.where(later, flat, np.asarray(neutral, x.dtype)), -1)
        taken = np.take_along_axis(later, following[..., None], -1)[..., 0]
        first = np.where(later.any(-1), np.argmax(later, -1), np.maximum(last, 0))
        at = np.where(taken, following, first)
    at_neutral = np.take_along_axis(flat, at[..., None], -1)[..., 0] == neutral
    return at, at_neutral & ~nan.any(-1)


def _gather_evaluate(lead: int, tangents: np.ndarray, x: np.ndarray, *, select_prim: str,
                     window_dimensions: Ints, window_strides: Ints, padding: Padding,
                     base_dilation: Ints, window_dilation: Ints) -> np.ndarray:
    at, none = _chosen(lead, x, select_prim, window_dimensions, window_strides, padding,
                       base_dilation, window_dilation, skip_padding=True)
    views = windows(padded(lead, tangents, 0, padding, base_dilation), window_dimensions,
                    window_strides, window_dilation)
    views = _flat_windows(views, window_dimensions)
    devices = lead_sizes(lead, (tangents, x))
    found = np.take_along_axis(with_lead(views, lead, devices),
                               with_lead(at, lead, devices)[..., None], -1)[..., 0]
    return np.where(none, np.zeros((), found.dtype), found)


select_and_gather_add_p = defop(
    "select_and_gather_add",
    doc="Operand 0 where operand 1 has the largest (select_prim ge) or smallest (le) element of "
        "each window.",
    infer=_gather_infer, rule=_gather_rule, explicit=_gather_explicit,
    linear=((0,),),
    jvp=(lambda g, out, t, x, **params: select_and_gather_add_p.bind(g, x, **params), None),
    transpose=_gather_transpose, batch=_batch_with("select_and_gather_add"),
    evaluate=_gather_evaluate,
    samples=lambda: [
        Sample((-_arange(8, 6), _arange(8, 6)),
               {"select_prim": "ge", **_params((2, 2), (2, 2), ((0, 0), (0, 0)))}),
        Sample((-_arange(4, 6), _arange(4, 6)),
               {"select_prim": "ge", **_params((2, 3), (1, 2), ((0, 1), (1, 1)))}),
        Sample((-_arange(3, 4), _arange(3, 4)),
               {"select_prim": "le", **_params((2, 2), (2, 1), ((1, 0), (0, 0)), (2, 1))}),
    ])


# -- select_and_scatter_add ------------------------------------------------------------------------

def _scatter_infer(source: ArrayType, x: ArrayType, *, select_prim: str, window_dimensions: Ints,
                   window_strides: Ints, padding: Padding) -> tuple:
    types = [source, x]
    if len(window_dimensions) != len(window_strides):
        reject(TypeError, types, "select_and_scatter got inconsistent window_strides and "
               f"window_dimensions: got window_strides {window_strides} and window_dimensions "
               f"{window_dimensions}.")
    ones = (1,) * x.ndim
    expected = _window_shape(types, x.shape, window_dimensions, window_strides, padding, ones, ones)
    if source.shape != expected:
        reject(TypeError, types, "select_and_scatter_add source must have the shape of the "
               f"windows, {expected}, got {source.shape}.")
    check_same_dtypes("select_and_scatter_add", types)
    return x.shape, x.dtype


def _scatter_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], **params: Any
                  ) -> FactorRule:
    inside, windows, kinds, sizes = _factors(operands[1], operands[0], params)
    halos = {k.removesuffix(":halo") for k in kinds if k.endswith(":halo")}
    source = [f"t{name}" if name in halos else name for name in windows]
    kinds += [f"{t}!:replicate" for t in source if t.startswith("t")]
    return make_rule(rule_text([source, inside], [inside], kinds), operands, results, sizes)


def _scatter_transpose(ct: Any, source: Any, x: Any, **params: Any) -> tuple:
    ones = (1,) * type_of(x).ndim
    return call("select_and_gather_add", ct, x, base_dilation=ones, window_dilation=ones,
                **params), None


def _scatter_evaluate(lead: int, source: np.ndarray, x: np.ndarray, *, select_prim: str,
                      window_dimensions: Ints, window_strides: Ints,
                      padding: Padding) -> np.ndarray:
    local = x.shape[lead:]
    ones = (1,) * len(local)
    devices = lead_sizes(lead, (source, x))
    at, _ = _chosen(lead, x, select_prim, window_dimensions, window_strides, padding, ones, ones)
    at = with_lead(at, lead, devices)
    spread = [spread_size(n, 1) + lo + hi for n, (lo, hi) in zip(local, padding, strict=True)]
    within = np.unravel_index(at, window_dimensions)
    rank = at.ndim
    position = 0
    for d, n in enumerate(devices):
        position = position * n + np.arange(n).reshape((-1,) + (1,) * (rank - d - 1))
    for d, (n, s) in enumerate(zip(spread, window_strides, strict=True)):
        start = np.arange(at.shape[lead + d]) * s
        position = position * n + start.reshape((-1,) + (1,) * (len(spread) - d - 1)) + within[d]
    out = np.zeros((*devices, *spread), source.dtype)
    np.add.at(out.reshape(-1), np.broadcast_to(position, at.shape).reshape(-1),
              with_lead(source, lead, devices).reshape(-1))
    return padded(lead, out, 0, [(-lo, -hi) for lo, hi in padding], ones)


select_and_scatter_add_p = defop(
    "select_and_scatter_add",
    doc="Zeros with the elements of operand 0 added where operand 1 has the largest (select_prim "
        "ge) or smallest (le) element of the corresponding window.",
    infer=_scatter_infer, rule=_scatter_rule,
    explicit=lambda op, types, shapes, params: [types[1].entries],
    linear=((0,),),
    jvp=(lambda g, out, s, x, **params: select_and_scatter_add_p.bind(g, x, **params), None),
    transpose=_scatter_transpose, batch=_batch_with("select_and_scatter_add"),
    evaluate=_scatter_evaluate,
    samples=lambda: [
        Sample((_arange(4, 3), _arange(8, 6)),
               {"select_prim": "ge", "window_dimensions": (2, 2), "window_strides": (2, 2),
                "padding": ((0, 0), (0, 0))}),
        Sample((_arange(3, 3), _arange(4, 6)),
               {"select_prim": "ge", "window_dimensions": (2, 2), "window_strides": (1, 2),
                "padding": ((0, 0), (0, 0))}),
        Sample((_arange(4, 3), _arange(4, 6)),
               {"select_prim": "le", "window_dimensions": (2, 3), "window_strides": (1, 2),
                "padding": ((0, 1), (1, 1))}),
    ])
