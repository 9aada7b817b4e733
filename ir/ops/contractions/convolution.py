"""conv_general_dilated: convolution with strides, dilations of both sides, and groups.

    (g c) is the input feature, (g o) the output feature of g feature groups:
    n (g c) s, (g o) c r -> n (g o) s | c:sum s:halo r!:replicate

With batch groups g divides the batch instead. A spatial dimension without a window (size 1, stride
1, no padding) passes through, others need a halo. Semantics are those of XLA's ConvGeneralDilated;
the evaluator forms the windows and contracts (conv_products.py, gemm.py), dilated images phase by
phase (conv_phases.py).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...facts import MAY_BE_NAN, UNEVEN, DeviceCost, Types
from ...kernels.device_dimensions import lead_sizes, without_common
from ...kernels.matrices.conv_products import by_products
from ...kernels.matrices.gemm import contract
from ...kernels.windows import Padding, pad_array, spread_size, windows
from ...op import LinearOperand, LocalizeContext, Sample, defop
from ...padded import Padded, PaddedContext
from ...rules.factor import REDUCE
from ...types import ArrayType, Shape
from ..communication.halo_exchange import Rows, rows_needed, split_halos
from ..rules import permutation_inverse
from .conv_phases import by_phases
from .conv_transforms import batch_conv, transpose_kernel, transpose_operand
from .conv_typing import ConvDimensionNumbers, conv_entries, conv_rule, infer_conv
from .dot_general import compute_dtype
from .dot_typing import dot_pending

MAX_WINDOW_BYTES = 1 << 28       # of windows formed at once; larger batches are cut up


# -- derivatives ----------------------------------------------------------------------------------

def _transpose(ct: Any, lhs: Any, rhs: Any, **params: Any) -> tuple:
    if isinstance(lhs, LinearOperand):
        return transpose_operand(conv_general_dilated_p, ct, lhs.aval, rhs, params), None
    return None, transpose_kernel(conv_general_dilated_p, ct, lhs, rhs.aval, params)


# -- evaluation, on blocks too --------------------------------------------------------------------

@by_phases
def _evaluate(lead: int, lhs: np.ndarray, rhs: np.ndarray, *, window_strides: tuple[int, ...],
              padding: Padding, lhs_dilation: tuple[int, ...], rhs_dilation: tuple[int, ...],
              dimension_numbers: ConvDimensionNumbers, feature_group_count: int,
              batch_group_count: int, precision: Any, preferred_element_type: Any,
              out_sharding: Any) -> np.ndarray:
    """Form windows of lhs as a view, and contract them with the kernel: one product over features
    and window, batched over groups.
    """
    n, fg, bg = dimension_numbers, feature_group_count, batch_group_count
    dtype = compute_dtype(lhs.dtype, rhs.dtype, preferred_element_type)
    devices = lead_sizes(lead, (lhs, rhs))
    front = range(lead)
    x = _spread(lead, lhs, n.lhs_spec, padding, lhs_dilation)
    x = x.transpose(*front, *(lead + d for d in n.lhs_spec))
    k = rhs.transpose(*front, *(lead + d for d in n.rhs_spec))
    own, (batch, features, *_) = x.shape[:lead], x.shape[lead:]
    groups = (bg, batch // bg, features) if bg > 1 else (batch, fg, features // fg)
    x = x.reshape(*own, *groups, *x.shape[lead + 2:])
    k = k.reshape(*k.shape[:lead], fg * bg, k.shape[lead] // (fg * bg), *k.shape[lead + 1:])
    x, x_own = without_common(
        windows(x, k.shape[lead + 3:], window_strides, rhs_dilation), lead)
    k, k_own = without_common(k, lead)
    spatial = range(len(window_strides))
    results, inner = [f"s{i}" for i in spatial], [f"r{i}" for i in spatial]
    x_labels = [*x_own, *("gnc" if bg > 1 else "ngc"), *results, *inner]
    k_labels = [*k_own, "g", "o", "c", *inner]
    varying = [d for d in front if devices[d] != 1]
    if not varying and bg == 1 and dtype.kind in "fc":
        out = by_products(x.astype(dtype, copy=False), k.astype(dtype, copy=False), dtype)
    else:
        out_labels = [*varying, "n", "g", "o", *results]
        out = _in_chunks(x, x_labels.index("n"), out_labels.index("n"),
                         lambda part: contract(part, x_labels, k, k_labels, out_labels, dtype))
    n_size, g_size, o_size, *sizes = out.shape[len(varying):]
    out = out.reshape(*devices, n_size, g_size * o_size, *sizes)
    out = out.transpose(*front, *(lead + d for d in permutation_inverse(n.out_spec)))
    return out if preferred_element_type is None else out.astype(preferred_element_type, copy=False)


def _spread(lead: int, x: np.ndarray, spec: Sequence[int], padding: Padding,
            dilation: Sequence[int]) -> np.ndarray:
    """`x` padded and dilated in its spatial dimensions, which lie where they did."""
    config = [(0, 0, 0)] * (x.ndim - lead)
    for d, (lo, hi), n in zip(spec[2:], padding, dilation, strict=True):
        config[d] = (lo, hi, n - 1)
    if all(c == (0, 0, 0) for c in config):
        return x
    return pad_array(lead, x, np.zeros((1,) * lead, x.dtype), padding_config=tuple(config))


def _in_chunks(views: np.ndarray, at: int, out_at: int, product: Any) -> np.ndarray:
    """`product(views)`, in pieces along dimension `at` where the windows would be too large."""
    n = views.shape[at]
    pieces = min(n, -(-views.size * views.itemsize // MAX_WINDOW_BYTES))
    if pieces <= 1:
        return product(views)
    cuts = [n * i // pieces for i in range(pieces + 1)]
    whole = (slice(None),) * at
    return np.concatenate([product(views[(*whole, slice(a, b))])
                           for a, b in zip(cuts, cuts[1:], strict=False)], out_at)


def _flops(operands: Types, results: Types, params: dict[str, Any]) -> float:
    """Two for each element of a window that lies on an element of the image."""
    lhs, rhs, out = (t.shape for t in (*operands, *results))
    numbers = params["dimension_numbers"]
    met = 1
    for i, (low, _) in enumerate(params["padding"]):
        size, window = lhs[numbers.lhs_spec[i + 2]], rhs[numbers.rhs_spec[i + 2]]
        places = (np.arange(out[numbers.out_spec[i + 2]])[:, None] * params["window_strides"][i]
                  + np.arange(window) * params["rhs_dilation"][i] - low)
        spread = params["lhs_dilation"][i]
        met *= int(((places >= 0) & (places % spread == 0) & (places < size * spread)).sum())
    batch, features = (out[numbers.out_spec[d]] for d in (0, 1))
    return 2.0 * met * batch * features * rhs[numbers.rhs_spec[1]]


def _orders(position: int, operand: ArrayType, params: dict[str, Any]) -> list[list[int]]:
    """Images lie as batch, space, features; kernels as space, in features, out features."""
    first, last, *space = params["dimension_numbers"][position]
    return [[*space, last, first] if position == 1 else [first, *space, last]]


def _resize(params: dict[str, Any], operands: Sequence[Shape],
            results: Sequence[Shape]) -> dict[str, Any]:
    """A block has as many groups as its sizes say."""
    n = params["dimension_numbers"]
    if params["feature_group_count"] > 1:
        groups = operands[0][n.lhs_spec[1]] // max(1, operands[1][n.rhs_spec[1]])
        return {**params, "feature_group_count": max(1, groups)}
    if params["batch_group_count"] > 1:
        groups = operands[0][n.lhs_spec[0]] // max(1, results[0][n.out_spec[0]])
        return {**params, "batch_group_count": max(1, groups)}
    return params


def _padded(context: PaddedContext) -> list[Padded]:
    """Padding is zeros, as what the windows see beyond the ends; there are as many windows as are
    wanted of the result."""
    (lhs, rhs), params = context.operands, context.params
    n, padding = params["dimension_numbers"], list(params["padding"])
    own = []
    for i, (low, high) in enumerate(padding):
        d, k, o = n.lhs_spec[2 + i], n.rhs_spec[2 + i], n.out_spec[2 + i]
        lhs = context.masked(lhs, d, np.zeros((), lhs.atom.aval.dtype)[()])
        rhs = context.masked(rhs, k, np.zeros((), rhs.atom.aval.dtype)[()])
        reach = spread_size(rhs.size(k), params["rhs_dilation"][i])
        windows = (context.sizes[0][o] - 1) * params["window_strides"][i] + reach
        if context.sizes[0][o] and (lhs.is_padded(d) or rhs.is_padded(k)
                                    or context.sizes[0][o] != context.result_types[0].shape[o]):
            high = windows - low - spread_size(lhs.size(d), params["lhs_dilation"][i])
        padding[i] = (low, high)
        own += [*context.rule.operands[0][d], *context.rule.operands[1][k],
                *context.rule.results[0][o]]
    return context.by_factors([lhs, rhs], params={**params, "padding": tuple(padding)}, own=own)


def _localize(context: LocalizeContext) -> list[Any]:
    """Where a spatial dimension is split: the block with its neighbours' rows. Beyond the edges
    rows are zero, as padding is.
    """
    (lhs, rhs), params = context.operands, context.params
    params = _resize(params, context.local_operand_shapes, context.local_result_shapes)
    n, padding = params["dimension_numbers"], list(params["padding"])
    cuts: list[tuple[Rows, int, int]] = []
    for d, axes in split_halos(context).items():
        i = n.lhs_spec.index(d) - 2
        factor = context.rule.factors[context.rule.operands[0][d][0]]
        positions = (context.operand_types[1].shape[n.rhs_spec[2 + i]] if factor.kind == REDUCE
                     else context.result_types[0].shape[n.out_spec[2 + i]])
        rows = rows_needed(context, lhs, d, axes, positions=positions)
        lhs, padding[i] = rows.x, (0, 0)
        if factor.spread > 1:                   # the windows begin and end between rows
            count, low, lead = positions // rows.devices, factor.spread - 1, rows.lead
            covered = (count - 1) * factor.stride + factor.reach
            if isinstance(lead, int):
                low -= lead
            else:                               # on each device elsewhere: cut what is before it
                covered += low
                cuts.append((rows, n.out_spec[2 + i], count))
            padding[i] = (low, covered - low - spread_size(rows.count, factor.spread))
    made = context.emit(conv_general_dilated_p, [lhs, rhs], {**params, "padding": tuple(padding)})
    for rows, d, count in cuts:
        made = [rows.from_lead(made[0], d, count)]
    return made


# -- the op ---------------------------------------------------------------------------------------

def _sample(lhs: Shape, rhs: Shape, strides: tuple = (1, 1), padding: Padding = ((0, 0), (0, 0)),
            lhs_dilation: tuple = (1, 1), rhs_dilation: tuple = (1, 1), features: int = 1,
            batches: int = 1, numbers: ConvDimensionNumbers | None = None) -> Sample:
    same = tuple(range(len(lhs)))
    x = np.linspace(-1, 1, int(np.prod(lhs)), dtype=np.float32).reshape(lhs)
    k = np.linspace(1, -0.5, int(np.prod(rhs)), dtype=np.float32).reshape(rhs)
    return Sample((x, k), {
        "window_strides": strides, "padding": padding, "lhs_dilation": lhs_dilation,
        "rhs_dilation": rhs_dilation,
        "dimension_numbers": numbers or ConvDimensionNumbers(same, same, same),
        "feature_group_count": features, "batch_group_count": batches, "precision": None,
        "preferred_element_type": None, "out_sharding": None})


conv_general_dilated_p = defop(
    "conv_general_dilated",
    doc="Convolution (cross-correlation) of operand 0 with the kernel, operand 1.",
    infer=infer_conv, rule=conv_rule, explicit=conv_entries, pending=dot_pending,
    sharding_param="out_sharding",
    linear=((0,), (1,)),
    jvp=(lambda g, out, lhs, rhs, **params: conv_general_dilated_p.bind(g, rhs, **params),
         lambda g, out, lhs, rhs, **params: conv_general_dilated_p.bind(lhs, g, **params)),
    transpose=_transpose,
    batch=lambda operands, dims, size, **params: batch_conv(
        conv_general_dilated_p, operands, dims, size, params),
    evaluate=_evaluate, facts=(UNEVEN, MAY_BE_NAN), cost=DeviceCost(_flops, orders=_orders),
    resize=_resize, padded=_padded, localize=_localize,
    samples=lambda: [
        _sample((2, 3, 5, 4), (4, 3, 2, 3)),
        _sample((2, 4, 5, 5), (6, 2, 3, 2), (2, 1), ((1, 2), (0, 1)), features=2),
        _sample((4, 3, 4, 5), (6, 3, 2, 2), (1, 2), ((1, 0), (1, 1)), batches=2),
        _sample((1, 5, 6, 2), (2, 3, 2, 4), (1, 2), ((1, -1), (2, 2)), (2, 1), (1, 2),
                numbers=ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))),
        _sample((2, 4, 6, 1), (4, 4, 1, 1)),
    ])
