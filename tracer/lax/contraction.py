"""Contractions of lax: dot_general and its special cases.

dimension_numbers = ((lhs contracting, rhs contracting), (lhs batch, rhs batch)). The result has the
batch dimensions, then what is left of lhs, then what is left of rhs.
"""
from __future__ import annotations

import operator
from typing import Any, NoReturn

import numpy as np

from ...ir.dtypes import canonicalize_dtype
from ...ir.ops.contractions.dot_general import dot_general_p
from ...ir.ops.contractions.precision import DotAlgorithm, DotAlgorithmPreset, Precision
from ...ir.ops.contractions.ragged import RaggedDotDimensionNumbers, ragged_dot_general_p
from ...ir.settings.context import config, x64_enabled
from .. import sharding_notes
from ..operands.rank_promotion import shape_of
from ..shardings.out_sharding import output_sharding
from ..staging.memoized import memoized

__all__ = [
    "DotAlgorithm", "DotAlgorithmPreset", "DotDimensionNumbers", "Precision", "PrecisionLike",
    "RaggedDotDimensionNumbers", "batch_matmul", "dot", "dot_general", "ragged_dot",
    "ragged_dot_general",
]
PrecisionLike = (str | Precision | tuple[str, str] | tuple[Precision, Precision] | DotAlgorithm
                 | DotAlgorithmPreset | None)
"""What `precision=` arguments accept."""
DotDimensionNumbers = tuple[tuple[Any, Any], tuple[Any, Any]]

_NAMES = {
    "highest": Precision.HIGHEST, "float32": Precision.HIGHEST, "high": Precision.HIGH,
    "bfloat16_3x": Precision.HIGH, "tensorfloat32": Precision.HIGH, "default": Precision.DEFAULT,
    "bfloat16": Precision.DEFAULT, "fastest": Precision.DEFAULT,
}


def _one_precision(p: Any) -> Precision | None:
    if p is None or isinstance(p, Precision):
        return p
    if isinstance(p, str) and p in _NAMES:
        return _NAMES[p]
    return _no_precision(p)


def _no_precision(p: Any) -> NoReturn:
    raise ValueError(
        "Precision argument must be one of:\n- None,\n- a string in "
        f"{[*_NAMES, None]},\n- a lax.Precision value,\n- a tuple of two lax.Precision values or "
        "strings,\n- a lax.DotAlgorithmPreset or the name of one of these presets,\n- a "
        f"lax.DotAlgorithm value;\nbut got {p!r}.")


def canonicalize_precision(precision: Any) -> Any:
    """A precision argument as None, a pair of Precision, or an algorithm (a preset or not).

    None means the setting `jax_default_matmul_precision`.
    """
    if precision is None:
        precision = config.read("jax_default_matmul_precision")
        if precision is None:
            return None
    if isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)):
        return precision
    if isinstance(precision, str) and precision in DotAlgorithmPreset.__members__:
        return DotAlgorithmPreset[precision]
    if isinstance(precision, (tuple, list)):
        if len(precision) != 2:
            _one_precision(precision)
        lhs, rhs = (_one_precision(p) for p in precision)
        if isinstance(precision[0], str) is not isinstance(precision[1], str):
            _no_precision(precision)
        return None if lhs is None and rhs is None else (
            lhs or Precision.DEFAULT, rhs or Precision.DEFAULT)
    both = _one_precision(precision)
    return None if both is None else (both, both)


def element_type(dtype: Any) -> Any:
    return None if dtype is None else canonicalize_dtype(np.dtype(dtype), x64_enabled())


def _dims(dims: Any) -> tuple[int, ...]:
    return tuple(operator.index(d) for d in dims)


@sharding_notes.product
@memoized
def dot_general(lhs, rhs, dimension_numbers, precision=None, preferred_element_type=None, *,
                out_sharding=None):
    """The product of two arrays, summed over pairs of dimensions and batched over others.

    dimension_numbers: ((lhs contracted, rhs contracted), (lhs batch, rhs batch)), each a sequence
    of dimensions. The result has the batch dimensions, then the others of `lhs`, then those of
    `rhs`.
    precision: passes of a float32 product. preferred_element_type: the dtype in which to add and
    return. out_sharding: a PartitionSpec of the result, over Explicit axes.
    Raises TypeError where paired sizes differ.

    >>> numbers = (((2,), (1,)), ((0,), (0,)))
    >>> st.lax.dot_general(jnp.ones((8, 2, 3)), jnp.ones((8, 3, 4)), numbers).shape
    (8, 2, 4)
    """
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    numbers = ((_dims(lhs_contract), _dims(rhs_contract)), (_dims(lhs_batch), _dims(rhs_batch)))
    sharding = None
    if out_sharding is not None:
        ndim = (len(shape_of(lhs)) + len(shape_of(rhs)) - 2 * len(numbers[0][0])
                - len(numbers[1][0]))
        sharding = output_sharding(out_sharding, "dot_general", ndim)
    return dot_general_p.bind(lhs, rhs, dimension_numbers=numbers,
                              precision=canonicalize_precision(precision),
                              preferred_element_type=element_type(preferred_element_type),
                              out_sharding=sharding)


@sharding_notes.product
def dot(lhs, rhs, *, dimension_numbers=None, precision=None, preferred_element_type=None,
        out_sharding=None):
    """The product of two matrices, a matrix and a vector, or two vectors.

    With dimension_numbers it is `dot_general`, whose other arguments it has. Raises TypeError where
    sizes differ, ValueError for other ranks without dimension_numbers.

    >>> st.lax.dot(jnp.ones((2, 3)), jnp.ones((3, 4))).shape
    (2, 4)
    """
    if dimension_numbers is None:
        a, b = shape_of(lhs), shape_of(rhs)
        if not (1 <= len(a) <= 2 and 1 <= len(b) <= 2):
            raise ValueError(
                "jax.lax.dot: dimension_numbers must be specified when not performing simple "
                "un-batched matrix-matrix, matrix-vector, or vector-vector products; got "
                f"lhs_shape={a} rhs_shape={b}")
        if a[-1] != b[0]:
            raise TypeError(f"Incompatible shapes for dot: got {a} and {b}.")
        dimension_numbers = (((len(a) - 1,), (0,)), ((), ()))
    return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type,
                       out_sharding=out_sharding)


def batch_matmul(lhs, rhs, precision=None):
    """Matrix products over the last two dimensions, batched over all others.

    Raises ValueError for less than two dimensions or different ranks.
    """
    a, b = shape_of(lhs), shape_of(rhs)
    if min(len(a), len(b)) < 2:
        raise ValueError("Arguments to batch_matmul must be at least 2D, got "
                         f"{len(a)}, {len(b)}")
    if len(a) != len(b):
        raise ValueError(f"Arguments to batch_matmul must have same ndim, got {len(a)}, {len(b)}")
    batch = tuple(range(len(a) - 2))
    return dot_general(lhs, rhs, (((len(a) - 1,), (len(b) - 2,)), (batch, batch)), precision)


_RAGGED_ROWS = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def ragged_dot(lhs, rhs, group_sizes, precision=None, preferred_element_type=None,
               group_offset=None, out_sharding=None):
    """Consecutive groups of the rows of lhs [m, k], each times its own matrix of rhs [g, k, n].

    group_sizes: integers [g]. Rows beyond their sum give zeros.
    """
    return ragged_dot_general(lhs, rhs, group_sizes, _RAGGED_ROWS, precision,
                              preferred_element_type, group_offset, out_sharding)


def ragged_dot_general(lhs, rhs, group_sizes, ragged_dot_dimension_numbers, precision=None,
                       preferred_element_type=None, group_offset=None, out_sharding=None):
    """`dot_general` with one dimension of lhs divided into groups of the given sizes.

    ragged_dot_dimension_numbers: which one, and the dimension of rhs that numbers the groups.
    """
    numbers = ragged_dot_dimension_numbers
    sharding = None
    if out_sharding is not None:
        (contract, _), (batch, _) = numbers.dot_dimension_numbers
        ndim = (len(shape_of(lhs)) + len(shape_of(rhs)) - 2 * len(contract) - len(batch)
                - len(numbers.rhs_group_dimensions))
        if set(numbers.lhs_ragged_dimensions) & set(contract):
            ndim += 1
        sharding = output_sharding(out_sharding, "ragged_dot_general", ndim)
    return ragged_dot_general_p.bind(
        lhs, rhs, group_sizes, ragged_dot_dimension_numbers=numbers,
        precision=canonicalize_precision(precision),
        preferred_element_type=element_type(preferred_element_type), group_offset=group_offset,
        out_sharding=sharding)
