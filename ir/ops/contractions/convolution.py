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

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...dtypes import issubdtype
from ...facts import MAY_BE_NAN, UNEVEN, DeviceCost, Types
from ...inference.unreduced import is_pending, refuse_pending
from ...kernels.device_dimensions import lead_sizes, without_common
from ...kernels.matrices.conv_products import by_products
from ...kernels.matrices.gemm import contract
from ...kernels.windows import Padding, halo, output_size, pad_array, passes, spread_size, windows
from ...op import LinearOperand, LocalizeContext, Op, Sample, defop
from ...padded import Padded, PaddedContext
from ...param_types import register_param_type
from ...rules.factor import REDUCE
from ...rules.rule import FactorRule, make_rule
from ...shardings.sharding import NamedSharding
from ...support.named_tuple import NamedTuple
from ...types import ArrayType, Entries, Shape, short_list
from ..communication.halo_exchange import Rows, rows_needed, split_halos
from ..elementwise.declaration import check_same_dtypes
from ..rules import permutation_inverse, reject, resized_entries, rule_text
from .conv_phases import by_phases
from .conv_transforms import batch_conv, transpose_kernel, transpose_operand
from .dot_general import compute_dtype
from .dot_typing import dot_pending

MAX_WINDOW_BYTES = 1 << 28       # of windows formed at once; larger batches are cut up


@register_param_type
class ConvDimensionNumbers(NamedTuple):
    """Dimensions of the operands and the result, by role.

    lhs_spec: (batch, feature, spatial...). rhs_spec: (out feature, in feature, spatial...).
    out_spec: (batch, feature, spatial...).
    """
    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


# -- shape and dtype -------------------------------------------------------------------------------

def _check_sizes(lhs: ArrayType, rhs: ArrayType, n: ConvDimensionNumbers,
                 window_strides: tuple[int, ...], feature_group_count: int,
                 batch_group_count: int) -> None:
    """Raise ValueError, with JAX's text, for operands and groups that do not go together."""
    types = [lhs, rhs]

    def bad(message: str) -> None:
        reject(ValueError, types, "conv_general_dilated " + message,
               f"dimension_numbers say where lhs has batch, features and windows ({n.lhs_spec}), "
               f"and rhs output features, input features and windows ({n.rhs_spec})")

    if lhs.ndim != rhs.ndim:
        bad("lhs and rhs must have the same number of dimensions, but got "
            f"{lhs.shape} and {rhs.shape}.")
    for word, count in (("feature", feature_group_count), ("batch", batch_group_count)):
        if count <= 0:
            bad(f"{word}_group_count must be a positive integer, got {count}.")
    (batch, features, *_), outputs = [lhs.shape[d] for d in n.lhs_spec], rhs.shape[n.rhs_spec[0]]
    if features % feature_group_count:
        bad("feature_group_count must divide lhs feature dimension size, but "
            f"{feature_group_count} does not divide {features}.")
    if features // feature_group_count != rhs.shape[n.rhs_spec[1]]:
        bad("lhs feature dimension size divided by feature_group_count must equal the rhs input "
            f"feature dimension size, but {features} // {feature_group_count} != "
            f"{rhs.shape[n.rhs_spec[1]]}.")
    if outputs % feature_group_count:
        bad("rhs output feature dimension size must be a multiple of feature_group_count, but "
            f"{outputs} is not a multiple of {feature_group_count}.")
    if batch % batch_group_count:
        bad("batch_group_count must divide lhs batch dimension size, but "
            f"{batch_group_count} does not divide {batch}.")
    if outputs % batch_group_count:
        bad("rhs output feature dimension size must be a multiple of batch_group_count, but "
            f"{outputs} is not a multiple of {batch_group_count}.")
    if batch_group_count > 1 and feature_group_count > 1:
        reject(ValueError, types, "At most one of batch_group_count and feature_group_count may be "
               f"> 1, got batch_group_count={batch_group_count} and feature_group_count="
               f"{feature_group_count}",
               help="give one of the two, and transpose the operands for the other")
    if len(n.rhs_spec) - 2 != len(window_strides):
        bad("window and window_strides must have the same number of dimensions, but got "
            f"{n.rhs_spec[2:]} and {window_strides}")


def _infer(lhs: ArrayType, rhs: ArrayType, *, window_strides: tuple[int, ...], padding: Padding,
           lhs_dilation: tuple[int, ...], rhs_dilation: tuple[int, ...],
           dimension_numbers: ConvDimensionNumbers, feature_group_count: int,
           batch_group_count: int, precision: Any, preferred_element_type: Any,
           out_sharding: Any) -> tuple:
    """Batch of lhs, output features of rhs, and a position for each place of the window."""
    n, types = dimension_numbers, [lhs, rhs]
    _check_sizes(lhs, rhs, n, window_strides, feature_group_count, batch_group_count)
    shape = [0] * lhs.ndim
    shape[n.out_spec[0]] = lhs.shape[n.lhs_spec[0]] // batch_group_count
    shape[n.out_spec[1]] = rhs.shape[n.rhs_spec[0]]
    for i, at in enumerate(n.out_spec[2:]):
        shape[at] = output_size(lhs.shape[n.lhs_spec[2 + i]], rhs.shape[n.rhs_spec[2 + i]],
                                window_strides[i], padding[i], lhs_dilation[i], rhs_dilation[i])
    check_same_dtypes("conv_general_dilated", types)
    dtype = lhs.dtype
    if preferred_element_type is not None:
        _check_preferred(types, dtype, np.dtype(preferred_element_type))
        dtype = np.dtype(preferred_element_type)
    return tuple(shape), dtype


def _check_preferred(types: Sequence[ArrayType], dtype: np.dtype, preferred: np.dtype) -> None:
    """Refuse a result of another kind or signedness than the operands, or a narrower one."""
    problem = ""
    if preferred.itemsize < dtype.itemsize:
        problem = "`preferred_element_type` must not be narrower than the original type."
    if not (issubdtype(dtype, np.integer) and issubdtype(preferred, np.floating)):
        if any(issubdtype(dtype, kind) and not issubdtype(preferred, kind)
               for kind in (np.integer, np.floating, np.complexfloating)):
            problem = ("Input type is incompatible with `preferred_element_type`. The compatible "
                       "combinations of (input_type, preferred_element_type) are (integral, "
                       "integral), (integral, floating), (floating, floating), (complex, complex.")
        elif issubdtype(dtype, np.signedinteger) and not issubdtype(preferred, np.signedinteger):
            problem = "`preferred_element_type` must have the same signedness as the original type."
    if problem:
        reject(TypeError, types, problem,
               "leave preferred_element_type out, and convert the result with `astype`")


# -- the factor rule and Explicit axes -------------------------------------------------------------

def _rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
          window_strides: tuple[int, ...], padding: Padding, lhs_dilation: tuple[int, ...],
          rhs_dilation: tuple[int, ...], dimension_numbers: ConvDimensionNumbers,
          feature_group_count: int, batch_group_count: int, **params: Any) -> FactorRule:
    """The rule in the module's docstring, for these sizes. A window that is larger than the result,
    as in the derivative by a kernel, is a sum over a split factor, and the result is the whole.
    """
    n, rank = dimension_numbers, len(operands[0])
    lhs: list[Any] = [""] * rank
    rhs: list[Any] = [""] * rank
    out: list[Any] = [""] * rank
    groups = feature_group_count * batch_group_count
    kinds = ["c:sum"]
    of_output = ("g", "o") if groups > 1 else "o"
    lhs[n.lhs_spec[0]] = ("g", "n") if batch_group_count > 1 else "n"
    lhs[n.lhs_spec[1]] = ("g", "c") if feature_group_count > 1 else "c"
    rhs[n.rhs_spec[0]], rhs[n.rhs_spec[1]] = of_output, "c"
    out[n.out_spec[0]], out[n.out_spec[1]] = "n", of_output
    for i in range(rank - 2):
        window = operands[1][n.rhs_spec[2 + i]]
        lhs[n.lhs_spec[2 + i]] = out[n.out_spec[2 + i]] = f"s{i}"
        size = results[0][n.out_spec[2 + i]]
        if window > size > 0 and lhs_dilation[i] == 1:      # the gradient of a kernel: few sums
            lhs[n.lhs_spec[2 + i]] = rhs[n.rhs_spec[2 + i]] = f"r{i}"
            reach = spread_size(size, window_strides[i])
            kinds += [f"r{i}:sum({-padding[i][0]},{reach},{rhs_dilation[i]})", f"s{i}!:replicate"]
            continue
        rhs[n.rhs_spec[2 + i]] = f"r{i}"
        kinds.append(f"r{i}!:replicate")
        if not passes(window, window_strides[i], padding[i], lhs_dilation[i]):
            kinds.append(f"s{i}:" + halo(window, window_strides[i], padding[i], 1, rhs_dilation[i],
                                         lhs_dilation[i]))
    sizes = {"n": results[0][n.out_spec[0]], "c": operands[1][n.rhs_spec[1]],
             "o": results[0][n.out_spec[1]] // groups}
    if groups > 1:
        sizes["g"] = groups
    return make_rule(rule_text([lhs, rhs], [out], kinds), operands, results, sizes)


def _explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
              params: dict[str, Any]) -> list[Entries | NamedSharding]:
    """Axes of batch and spatial dimensions of lhs go to the result; a split kernel, or split
    features, would have to be summed and need `out_sharding`.
    """
    if params["out_sharding"] is not None:
        return [params["out_sharding"]]
    lhs, rhs = types
    n = params["dimension_numbers"]
    if is_pending(lhs) or is_pending(rhs):
        refuse_pending(op.name, types)
    split = any(rhs.mesh.axis_size(a) > 1 for axes in rhs.entries for a in axes)
    if split or lhs.entries[n.lhs_spec[1]]:
        fail(ShardingTypeError,
             "Please specify the output sharding via `out_sharding` parameter of "
             "`conv_general_dilated`", code="ambiguous-contraction",
             label=f"operands are {short_list(types)}",
             notes=("the kernel must be whole, and so must the features of the operand",),
             help="say how the result is split, with `out_sharding`")
    by_role = [shapes[0][d] for d in n.out_spec]
    arranged = [0] * lhs.ndim
    for d, size in zip(n.lhs_spec, by_role, strict=True):
        arranged[d] = size
    kept = resized_entries("conv_general_dilated", lhs, tuple(arranged))
    entries: list[Any] = [()] * lhs.ndim
    for role, d in enumerate(n.out_spec):
        entries[d] = kept[n.lhs_spec[role]]
    return [tuple(entries)]


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
    infer=_infer, rule=_rule, explicit=_explicit, pending=dot_pending,
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
