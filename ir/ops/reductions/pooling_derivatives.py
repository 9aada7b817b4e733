"""The derivatives of pooling by maxima: select_and_gather_add, and select_and_scatter_add.

The tangent of a maximum is the tangent at the position of the maximum (select_and_gather_add); its
transpose puts a cotangent there (select_and_scatter_add). Of equal elements the first counts, as in
XLA, which also says what becomes of NaN (`_selected`).
"""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...facts import DeviceCost, Sizes, Types
from ...kernels.device_dimensions import lead_sizes, with_lead
from ...kernels.elementwise.selection import selected
from ...kernels.windows import (
    Padding,
    halo,
    padded,
    spread_size,
    windows,
)
from ...op import LocalizeContext, Op, Sample, defop
from ...padded import Padded, PaddedContext
from ...rules.factor import HALO, Factor
from ...rules.rule import FactorRule, make_rule
from ...types import ArrayType, Entries, Shape
from ..communication.halo_exchange import Rows, rows_needed, split_halos
from ..derivatives import type_of
from ..elementwise.declaration import check_same_dtypes
from ..emitting import INT32, Emitting, literal
from ..identities import extremum
from ..rules import call, reject, rule_text
from .pooling import (
    Ints,
    Params,
    arange,
    batch_with,
    factors,
    window_explicit,
    window_flops,
    window_params,
    window_shape,
)

FEW = 64                        # elements of a window that are looked at one after the other


def _gather_infer(tangents: ArrayType, x: ArrayType, *, select_prim: str, **params: Any) -> tuple:
    types = [tangents, x]
    if tangents.shape != x.shape:
        reject(TypeError, types, "select_and_gather_add tangents and operand shapes must match, "
               f"got {tangents.shape} and {x.shape}.",
               help="give tangents of the operand's shape")
    check_same_dtypes("select_and_gather_add", types)
    return window_shape(types, x.shape, **params), x.dtype


def _gather_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], **params: Any
                 ) -> FactorRule:
    inside, windows, kinds, sizes = factors(operands[1], results[0], params)
    return make_rule(rule_text([inside, inside], [windows], kinds), operands, results, sizes)


def _gather_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                     params: Params) -> list[Entries]:
    tangents, x = types
    if tangents.entries != x.entries:
        fail(ShardingTypeError, "select_and_gather_add tangents and operand shardings must match, "
             f"got {tangents.sharding} and {x.sharding}.", code="sharding-conflict",
             help="`reshard` one to the spec of the other")
    return window_explicit(op, types, shapes, params)


def _gather_transpose(ct: Any, tangents: Any, x: Any, *, select_prim: str, window_dimensions: Ints,
                      window_strides: Ints, padding: Padding, base_dilation: Ints,
                      window_dilation: Ints) -> tuple:
    """Put each cotangent at the position of its window's maximum: `select_and_scatter_add`, with
    base dilation as interior padding of x.
    """
    if any(d != 1 for d in window_dilation):
        fail(NotImplementedError, "VJP not implemented for select_and_gather (MaxPool) with window "
             f"dilation, got window_dilation={window_dilation}.", code="not-differentiable",
             help="take the windows with `lax.conv_general_dilated_patches`, which has "
                  "rhs_dilation, then their maximum")
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


def _selected(lead: int, x: np.ndarray, select: str, window: Ints, strides: Ints, padding: Padding,
              base_dilation: Ints, window_dilation: Ints, skip_padding: bool = False
              ) -> tuple[np.ndarray, np.ndarray | None]:
    """Flat position in its window of the element that each window selects; if padding is not
    compared (skip_padding), also where that is a number no better than what a window starts from.

    An element stays selected while it compares `select` with the next: NaN never stays before
    another, so what follows the last NaN decides.
    """
    neutral = extremum(x.dtype, select == "le")
    spread = padded(lead, x, neutral, padding, base_dilation)
    views = windows(spread, window, strides, window_dilation)
    if math.prod(window) <= FEW:
        real = None if not skip_padding else windows(
            padded(lead, np.ones(x.shape, bool), False, padding, base_dilation), window, strides,
            window_dilation)
        return _compared(views, real, select, window, neutral)
    flat = _flat_windows(views, window)
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
    if not skip_padding:
        return at, None
    at_neutral = np.take_along_axis(flat, at[..., None], -1)[..., 0] == neutral
    return at, at_neutral & ~nan.any(-1)


def _compared(views: np.ndarray, real: np.ndarray | None, select: str, window: Ints, neutral: Any
              ) -> tuple[np.ndarray, np.ndarray | None]:
    """What `_selected` gives, comparing one element of all windows after the other. real: which
    elements are compared, if not all.
    """
    stays, better, number = ((np.greater_equal, np.maximum, np.fmax) if select == "ge" else
                             (np.less_equal, np.minimum, np.fmin))
    at = np.zeros(views.shape[:views.ndim - len(window)], np.int8)
    best = views[(..., *(0,) * len(window))].copy()
    nan = None if real is None else np.isnan(best)
    for k, place in [*enumerate(np.ndindex(window))][1:]:
        here = views[(..., *place)].copy()      # once: of rows that lie apart each call takes long
        stay = stays(best, here)
        if nan is not None:
            stay |= np.equal(real[(..., *place)], False)            # type: ignore[index]
            best = selected(stay, best, here)
            nan |= np.isnan(here)
        elif k < math.prod(window) - 1:
            best = better(here, number(best, here))     # that is `here` where either is NaN
        at = selected(stay, at, np.int8(k))
    return at, None if nan is None else (best == neutral) & ~nan


def _gather_evaluate(lead: int, tangents: np.ndarray, x: np.ndarray, *, select_prim: str,
                     window_dimensions: Ints, window_strides: Ints, padding: Padding,
                     base_dilation: Ints, window_dilation: Ints) -> np.ndarray:
    """Find the position of each window's extreme, and read the tangent there; 0 for windows of
    padding.
    """
    at, none = _selected(lead, x, select_prim, window_dimensions, window_strides, padding,
                         base_dilation, window_dilation, skip_padding=True)
    assert none is not None
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
    transpose=_gather_transpose, batch=batch_with("select_and_gather_add"),
    evaluate=_gather_evaluate, cost=DeviceCost(window_flops),
    samples=lambda: [
        Sample((-arange(8, 6), arange(8, 6)),
               {"select_prim": "ge", **window_params((2, 2), (2, 2), ((0, 0), (0, 0)))}),
        Sample((-arange(4, 6), arange(4, 6)),
               {"select_prim": "ge", **window_params((2, 3), (1, 2), ((0, 1), (1, 1)))}),
        Sample((-arange(3, 4), arange(3, 4)),
               {"select_prim": "le", **window_params((2, 2), (2, 1), ((1, 0), (0, 0)), (2, 1))}),
    ])


def _scatter_infer(source: ArrayType, x: ArrayType, *, select_prim: str, window_dimensions: Ints,
                   window_strides: Ints, padding: Padding) -> tuple:
    types = [source, x]
    if len(window_dimensions) != len(window_strides):
        reject(TypeError, types, "select_and_scatter got inconsistent window_strides and "
               f"window_dimensions: got window_strides {window_strides} and window_dimensions "
               f"{window_dimensions}.", help="give one stride for every dimension")
    ones = (1,) * x.ndim
    expected = window_shape(types, x.shape, window_dimensions, window_strides, padding, ones, ones)
    if source.shape != expected:
        reject(TypeError, types, "select_and_scatter_add source must have the shape of the "
               f"windows, {expected}, got {source.shape}.",
               help="give a source with one element for each window")
    check_same_dtypes("select_and_scatter_add", types)
    return x.shape, x.dtype


def _scatter_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], **params: Any
                  ) -> FactorRule:
    inside, windows, kinds, sizes = factors(operands[1], operands[0], params)
    of_windows = zip(windows, params["window_dimensions"], params["window_strides"],
                     params["padding"], strict=True)
    for name, w, s, (low, _) in of_windows:             # a row reads the windows that it is in
        if f"{name}:halo" in kinds:
            kinds[kinds.index(f"{name}:halo")] = f"{name}:{halo(w, 1, (w - 1 - low, 0), spread=s)}"
    return make_rule(rule_text([windows, inside], [inside], kinds), operands, results, sizes)


def _scatter_transpose(ct: Any, source: Any, x: Any, **params: Any) -> tuple:
    ones = (1,) * type_of(x).ndim
    return call("select_and_gather_add", ct, x, base_dilation=ones, window_dilation=ones,
                **params), None


def _scatter_evaluate(lead: int, source: np.ndarray, x: np.ndarray, *, select_prim: str,
                      window_dimensions: Ints, window_strides: Ints,
                      padding: Padding) -> np.ndarray:
    """Find the position of each window's maximum, then add the sources there: for small windows one
    offset within the window at a time, otherwise by one `np.add.at`.
    """
    local = x.shape[lead:]
    ones = (1,) * len(local)
    devices = lead_sizes(lead, (source, x))
    at, _ = _selected(lead, x, select_prim, window_dimensions, window_strides, padding, ones, ones)
    at = with_lead(at, lead, devices)
    spread = [spread_size(n, 1) + lo + hi for n, (lo, hi) in zip(local, padding, strict=True)]
    out = np.zeros((*devices, *spread), source.dtype)
    back = [(-lo, -hi) for lo, hi in padding]
    if math.prod(window_dimensions) <= FEW:
        given = with_lead(source, lead, devices)
        apart = all(map(operator.le, window_dimensions, window_strides))
        # Backwards through windows is forwards through what they add to an element.
        for k, place in reversed([*enumerate(np.ndindex(window_dimensions))]):
            part = out[(..., *[slice(p, p + max(n * s - s + 1, 0), s) for p, n, s in zip(
                place, at.shape[lead:], window_strides, strict=True)])]
            found = selected(at == k, given, np.zeros((), given.dtype))
            if apart:                           # an element is of one window at most
                part[...] = found
            else:
                part += found
        return padded(lead, out, 0, back, ones)
    within = np.unravel_index(at, window_dimensions)
    rank = at.ndim
    position = 0
    for d, n in enumerate(devices):
        position = position * n + np.arange(n).reshape((-1,) + (1,) * (rank - d - 1))
    for d, (n, s) in enumerate(zip(spread, window_strides, strict=True)):
        start = np.arange(at.shape[lead + d]) * s
        position = position * n + start.reshape((-1,) + (1,) * (len(spread) - d - 1)) + within[d]
    np.add.at(out.reshape(-1), np.broadcast_to(position, at.shape).reshape(-1),
              with_lead(source, lead, devices).reshape(-1))
    return padded(lead, out, 0, back, ones)


def _scatter_flops(operands: Types, results: Types, params: Params) -> float:
    """Values and places of a window are compared, then one element is added."""
    source, further = operands[0], math.prod(params["window_dimensions"]) - 1
    return float(source.size * (further * (7 + source.ndim) + 1))


def _scatter_scratch(read: Sizes, written: Sizes, operands: Types, params: dict[str, Any]) -> int:
    """The positions of all elements, then each window's extreme with its own, in 32 bits."""
    source, x = operands
    return 4 * x.ndim * (x.size + source.size) + read[0]


def _scatter_padded(context: PaddedContext) -> list[Padded] | None:
    """Rows that are padding are selected by no window, and windows that are padding add nothing."""
    (source, x), params, own = context.operands, context.params, []
    padding = list(params["padding"])
    numbers = [np.asarray(n).astype(x.atom.aval.dtype)[()] for n in (
        0, extremum(x.atom.aval.dtype, params["select_prim"] == "le"))]
    for d, size in enumerate(context.sizes[0]):
        f = context.rule.results[0][d]
        if context.rule.factors[f[0]].kind != HALO:
            continue
        if not source.size(d):
            return None
        source = context.masked(source, d, numbers[0])
        x = context.masked(context.resized(x, d, size), d, numbers[1])
        low = padding[d][0]
        padding[d] = (low, _covered(params, d, source.size(d)) - low - size)
        own += f
    return context.by_factors([source, x], params={**params, "padding": tuple(padding)}, own=own)


def _covered(params: Params, d: int, count: int) -> int:
    """Rows from the first of so many windows along dimension d to the last."""
    return (count - 1) * params["window_strides"][d] + params["window_dimensions"][d]


def _scatter_localize(context: LocalizeContext) -> list[Any]:
    """A block is in windows of its own and of its neighbours': it takes what is added there, and
    all rows of these windows, to see what they select.
    """
    (source, x), params, out = context.operands, dict(context.params), Emitting(context)
    padding, cut = list(params["padding"]), [(0, 0, 0)] * x.aval.ndim
    dtype, whole = x.aval.dtype, context.operand_types[1].shape
    differ: list[tuple[Rows, int, int]] = []
    for d, axes in split_halos(context).items():
        windows, block = rows_needed(context, source, d, axes), x.aval.shape[d]
        w, s = params["window_dimensions"][d], params["window_strides"][d]
        covered, lead = _covered(params, d, windows.count), windows.lead
        # the first window begins w - s + lead rows before the block, on some devices up to w - 1
        before, more = (w - s + lead, 0) if isinstance(lead, int) else (w - 1, s - 1)
        count = max(covered + more, block)
        wanted = Factor("", whole[d], HALO, offset=-before, reach=count - block + 1)
        rows = Rows(out, x, d, axes, wanted, whole[d], whole[d])
        neutral = literal(extremum(dtype, params["select_prim"] == "le"), dtype)
        source, x = windows.x, rows.masked(neutral, (0, whole[d]))
        padding[d], cut[d] = (0, covered - count), (-before, block + before - count, 0)
        if not isinstance(lead, int):
            x = out.part_from(x, d, out.call("sub", literal(s - 1, INT32), lead), covered)
            padding[d], cut[d] = (0, 0), (s - w, block + w - 1 - covered, 0)
            differ.append((windows, d, block))
    made = context.emit(select_and_scatter_add_p, [source, x], {
        **params, "padding": tuple(padding)})
    if any(map(any, cut)):
        made = [out.call("pad", made[0], literal(0, dtype), padding_config=tuple(cut))]
    for windows, d, block in differ:
        made = [windows.from_lead(made[0], d, block)]
    return made


select_and_scatter_add_p = defop(
    "select_and_scatter_add",
    doc="Zeros with the elements of operand 0 added where operand 1 has the largest (select_prim "
        "ge) or smallest (le) element of the corresponding window.",
    infer=_scatter_infer, rule=_scatter_rule,
    explicit=lambda op, types, shapes, params: [types[1].entries],
    linear=((0,),),
    jvp=(lambda g, out, s, x, **params: select_and_scatter_add_p.bind(g, x, **params), None),
    transpose=_scatter_transpose, batch=batch_with("select_and_scatter_add"),
    evaluate=_scatter_evaluate, cost=DeviceCost(_scatter_flops, scratch=_scatter_scratch),
    padded=_scatter_padded, localize=_scatter_localize,
    samples=lambda: [
        Sample((arange(4, 3), arange(8, 6)),
               {"select_prim": "ge", "window_dimensions": (2, 2), "window_strides": (2, 2),
                "padding": ((0, 0), (0, 0))}),
        Sample((arange(3, 3), arange(4, 6)),
               {"select_prim": "ge", "window_dimensions": (2, 2), "window_strides": (1, 2),
                "padding": ((0, 0), (0, 0))}),
        Sample((arange(4, 3), arange(4, 6)),
               {"select_prim": "le", "window_dimensions": (2, 3), "window_strides": (1, 2),
                "padding": ((0, 1), (1, 1))}),
    ])
