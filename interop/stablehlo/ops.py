"""Operations of StableHLO and CHLO that compute one result without a region."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.ops.contractions.conv_typing import ConvDimensionNumbers
from ...ir.ops.contractions.fft import FftType
from ...ir.ops.contractions.precision import Precision
from ...ir.ops.dialect import OPS
from ...ir.ops.gather_numbers import GatherDimensionNumbers, GatherScatterMode
from ...ir.ops.random.bit_generator import RandomAlgorithm
from ...ir.support.lazy import lazy_import
from ...tracer import lax
from ...tracer.lax import linalg
from .attributes import constant_of, python_of, shape_and_dtype, word_of
from .replay import Replay, rule

hlo = lazy_import("jaxlib.mlir.dialects.stablehlo")

# Operations that are the op of ours of this name, with no attributes that matter.
_SAME = {
    **{f"stablehlo.{name}": name for name in (
        "abs", "add", "atan2", "cbrt", "ceil", "complex", "floor", "imag", "is_finite", "log",
        "logistic", "not", "real", "rsqrt", "shift_left", "shift_right_arithmetic",
        "shift_right_logical", "sign", "sqrt", "tan", "tanh", "and", "or", "xor", "clamp")},
    **{f"chlo.{name}": name for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan", "erf", "erfc",
        "erf_inv", "lgamma", "digamma", "polygamma", "zeta", "bessel_i1e", "square")},
    "stablehlo.count_leading_zeros": "clz", "stablehlo.cosine": "cos", "stablehlo.divide": "div",
    "stablehlo.exponential": "exp", "stablehlo.exponential_minus_one": "expm1",
    "stablehlo.log_plus_one": "log1p", "stablehlo.maximum": "max", "stablehlo.minimum": "min",
    "stablehlo.multiply": "mul", "stablehlo.negate": "neg", "stablehlo.popcnt": "population_count",
    "stablehlo.power": "pow", "stablehlo.remainder": "rem", "stablehlo.sine": "sin",
    "stablehlo.subtract": "sub", "chlo.next_after": "nextafter", "chlo.mulhi": "mulhi",
}


@rule(*_SAME)
def _same(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return OPS[_SAME[op.name]].bind(*x)


def _attribute(op: Any, name: str, default: Any = None) -> Any:
    return python_of(op.attributes[name]) if name in op.attributes else default


def _pairs(values: Any) -> tuple[tuple[int, ...], ...]:
    return tuple([tuple(map(int, row)) for row in values])


# -- values ----------------------------------------------------------------------------------------

@rule("stablehlo.constant")
def _constant(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return constant_of(op)


@rule("stablehlo.iota")
def _iota(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    shape, dtype = shape_and_dtype(op.results[0].type)
    return OPS["iota"].bind(dtype=dtype, shape=shape, dimension=_attribute(op, "iota_dimension"),
                            sharding=None)


# -- elements --------------------------------------------------------------------------------------

@rule("stablehlo.compare")
def _compare(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    direction = word_of(op.attributes["comparison_direction"]).lower()
    total = "compare_type" in op.attributes and word_of(
        op.attributes["compare_type"]) == "TOTALORDER"
    if total and direction in ("gt", "ge"):
        return OPS["lt_to" if direction == "gt" else "le_to"].bind(x[1], x[0])
    if total and direction in ("lt", "le", "eq"):
        return OPS[f"{direction}_to"].bind(*x)
    return OPS[direction].bind(*x)


@rule("stablehlo.select")
def _select(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return OPS["select_n"].bind(x[0], x[2], x[1])


@rule("stablehlo.convert")
def _convert(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return lax.convert_element_type(x[0], shape_and_dtype(op.results[0].type)[1])


@rule("stablehlo.bitcast_convert")
def _bitcast(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return lax.bitcast_convert_type(x[0], shape_and_dtype(op.results[0].type)[1])


@rule("stablehlo.reduce_precision")
def _reduce_precision(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return lax.reduce_precision(x[0], _attribute(op, "exponent_bits"),
                                _attribute(op, "mantissa_bits"))


@rule("stablehlo.round_nearest_afz", "stablehlo.round_nearest_even")
def _round(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    even = op.name.endswith("even")
    return lax.round(x[0], lax.RoundingMethod(1 if even else 0))


@rule("chlo.conj")
def _conj(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return lax.conj(x[0])


@rule("chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf")
def _is_inf(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    value = lax.abs(x[0]) if op.name == "chlo.is_inf" else x[0]
    limit = -np.inf if op.name == "chlo.is_neg_inf" else np.inf
    return lax.eq(value, lax.full_like(value, limit))


@rule("stablehlo.optimization_barrier")
def _barrier(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return lax.optimization_barrier(tuple(x))


# -- shapes ----------------------------------------------------------------------------------------

@rule("stablehlo.broadcast_in_dim")
def _broadcast(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    shape, _ = shape_and_dtype(op.results[0].type)
    return lax.broadcast_in_dim(x[0], shape, _attribute(op, "broadcast_dimensions"))


@rule("stablehlo.reshape")
def _reshape(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """A reshape that only removes or inserts dimensions of size 1 is written as such: shardings
    pass through it.
    """
    (before, _), (after, _) = (shape_and_dtype(v.type) for v in (op.operands[0], op.results[0]))
    if [n for n in before if n != 1] == [n for n in after if n != 1]:
        gone, new = _ones(before, after)
        value = lax.squeeze(x[0], gone) if gone else x[0]
        return lax.expand_dims(value, new) if new else value
    return lax.reshape(x[0], after)


def _ones(before: Sequence[int], after: Sequence[int]) -> tuple[list[int], list[int]]:
    """The dimensions of size 1 that a shape loses, and those that another one gets for it."""
    i = j = 0
    gone, new = [], []
    while i < len(before) or j < len(after):
        if i < len(before) and j < len(after) and before[i] == after[j]:
            i, j = i + 1, j + 1
        elif i < len(before) and before[i] == 1:
            gone.append(i)
            i += 1
        else:
            new.append(j)
            j += 1
    return gone, new


@rule("stablehlo.transpose")
def _transpose(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return lax.transpose(x[0], _attribute(op, "permutation"))


@rule("stablehlo.reverse")
def _reverse(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return lax.rev(x[0], _attribute(op, "dimensions"))


@rule("stablehlo.concatenate")
def _concatenate(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return lax.concatenate(list(x), _attribute(op, "dimension"))


@rule("stablehlo.pad")
def _pad(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    low, high, interior = (_attribute(op, name) for name in (
        "edge_padding_low", "edge_padding_high", "interior_padding"))
    return lax.pad(x[0], x[1], list(zip(low, high, interior, strict=True)))


@rule("stablehlo.slice")
def _slice(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return lax.slice(x[0], *(_attribute(op, name) for name in (
        "start_indices", "limit_indices", "strides")))


@rule("stablehlo.dynamic_slice")
def _dynamic_slice(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return OPS["dynamic_slice"].bind(*x, slice_sizes=_attribute(op, "slice_sizes"))


@rule("stablehlo.dynamic_update_slice")
def _dynamic_update(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return OPS["dynamic_update_slice"].bind(*x)


@rule("stablehlo.gather")
def _gather(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """Positions that leave the operand are moved into it."""
    d = hlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    numbers = GatherDimensionNumbers(*map(tuple, (
        d.offset_dims, d.collapsed_slice_dims, d.start_index_map, d.operand_batching_dims,
        d.start_indices_batching_dims)))
    return lax.gather(x[0], with_last(x[1], d.index_vector_dim), numbers,
                      _attribute(op, "slice_sizes"), mode=GatherScatterMode.CLIP,
                      indices_are_sorted=_attribute(op, "indices_are_sorted", False))


def with_last(indices: Any, dimension: int) -> Any:
    """Positions whose components are the last dimension. dimension: which they are."""
    rank = len(np.shape(indices))
    if dimension == rank:
        return lax.expand_dims(indices, (rank,))
    if dimension == rank - 1:
        return indices
    return lax.transpose(indices, [d for d in range(rank) if d != dimension] + [dimension])


# -- contractions ----------------------------------------------------------------------------------

def _precision(op: Any) -> Any:
    if "precision_config" not in op.attributes:
        return None
    words = [word_of(a) for a in op.attributes["precision_config"]]
    return None if set(words) <= {"DEFAULT"} else tuple([Precision[w] for w in words])


@rule("stablehlo.dot_general")
def _dot_general(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    d = hlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    return lax.dot_general(x[0], x[1], (
        (tuple(d.lhs_contracting_dimensions), tuple(d.rhs_contracting_dimensions)),
        (tuple(d.lhs_batching_dimensions), tuple(d.rhs_batching_dimensions))),
        precision=_precision(op),
        preferred_element_type=shape_and_dtype(op.results[0].type)[1])


@rule("stablehlo.convolution")
def _convolution(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """`conv_general_dilated`, with the kernel reversed where the window is."""
    d = hlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    spatial = len(d.input_spatial_dimensions)
    numbers = ConvDimensionNumbers(
        (d.input_batch_dimension, d.input_feature_dimension, *d.input_spatial_dimensions),
        (d.kernel_output_feature_dimension, d.kernel_input_feature_dimension,
         *d.kernel_spatial_dimensions),
        (d.output_batch_dimension, d.output_feature_dimension, *d.output_spatial_dimensions))
    flipped = _attribute(op, "window_reversal", ())
    dims = [numbers.rhs_spec[2 + i] for i, f in enumerate(flipped) if f]
    ones = (1,) * spatial
    return lax.conv_general_dilated(
        x[0], lax.rev(x[1], dims) if dims else x[1], _attribute(op, "window_strides", ones),
        _pairs(_attribute(op, "padding", np.zeros((spatial, 2), int))),
        _attribute(op, "lhs_dilation", ones), _attribute(op, "rhs_dilation", ones), numbers,
        _attribute(op, "feature_group_count", 1), _attribute(op, "batch_group_count", 1),
        _precision(op), shape_and_dtype(op.results[0].type)[1])


@rule("stablehlo.fft")
def _fft(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return lax.fft(x[0], FftType[word_of(op.attributes["fft_type"])], _attribute(op, "fft_length"))


# -- linear algebra, random bits -------------------------------------------------------------------

@rule("stablehlo.cholesky")
def _cholesky(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    if _attribute(op, "lower", False):
        return linalg.cholesky(x[0], symmetrize_input=False)
    return adjoint(linalg.cholesky(adjoint(x[0]), symmetrize_input=False))


def adjoint(x: Any) -> Any:
    """The conjugate transpose of matrices."""
    n = len(np.shape(x))
    turned = lax.transpose(x, [*range(n - 2), n - 1, n - 2])
    return lax.conj(turned) if turned.dtype.kind == "c" else turned


@rule("stablehlo.triangular_solve")
def _triangular_solve(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    turn = word_of(op.attributes["transpose_a"])
    return linalg.triangular_solve(
        x[0], x[1], left_side=_attribute(op, "left_side"), lower=_attribute(op, "lower"),
        transpose_a=turn != "NO_TRANSPOSE", conjugate_a=turn == "ADJOINT",
        unit_diagonal=_attribute(op, "unit_diagonal"))


@rule("stablehlo.rng_bit_generator")
def _bits(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    algorithm = word_of(op.attributes["rng_algorithm"])
    shape, dtype = shape_and_dtype(op.results[1].type)
    return lax.rng_bit_generator(x[0], shape, dtype, RandomAlgorithm[f"RNG_{algorithm}"])


@rule("chlo.top_k", "mhlo.topk")
def _top_k(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return lax.top_k(x[0], _attribute(op, "k"))


@rule("stablehlo.batch_norm_inference")
def _batch_norm(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    value, scale, offset, mean, variance = x
    (shape, dtype), d = shape_and_dtype(op.results[0].type), _attribute(op, "feature_index")

    def wide(a: Any) -> Any:
        return lax.broadcast_in_dim(a, shape, (d,))
    spread = lax.add(variance, lax.full_like(variance, _attribute(op, "epsilon"), dtype=dtype))
    return lax.add(lax.mul(wide(scale), lax.mul(lax.sub(value, wide(mean)),
                                                wide(lax.rsqrt(spread)))), wide(offset))


@rule("stablehlo.rng", "stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv")
def _refused(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    fail(NotImplementedError, f"from_stablehlo: {op.name} has no result that is the same in every "
         "run", code="unknown-operation", location=replay.place,
         help="make it an argument of the program")
