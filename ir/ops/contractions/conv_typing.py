"""Types of convolutions: shapes, dtypes, the factor rule, Explicit axes.

The dimension numbers say which dimension of the operands and the result has which role.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...dtypes import issubdtype
from ...inference.unreduced import is_pending, refuse_pending
from ...kernels.windows import Padding, halo, output_size, passes, spread_size
from ...op import Op
from ...param_types import register_param_type
from ...rules.rule import FactorRule, make_rule
from ...shardings.sharding import NamedSharding
from ...support.named_tuple import NamedTuple
from ...types import ArrayType, Entries, Shape, short_list
from ..elementwise.declaration import check_same_dtypes
from ..rules import reject, resized_entries, rule_text


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


def infer_conv(lhs: ArrayType, rhs: ArrayType, *, window_strides: tuple[int, ...], padding: Padding,
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

def conv_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
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


def conv_entries(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
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
