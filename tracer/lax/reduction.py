"""Functions of lax that combine elements along dimensions: reduce, scan along a dimension, sort."""
from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.api_boundary import inner
from ...ir.diagnostics.diagnostic import fail
from ...ir.dtypes import iinfo, issubdtype
from ...ir.op import Op
from ...ir.ops.elementwise.arithmetic import neg_p
from ...ir.ops.reductions.cumulative import cumlogsumexp_p, cummax_p, cummin_p, cumprod_p, cumsum_p
from ...ir.ops.reductions.positions import argmax_p, argmin_p
from ...ir.ops.reductions.reduce import reduce_p
from ...ir.ops.reductions.reduction import (
    reduce_and_p,
    reduce_max_p,
    reduce_min_p,
    reduce_or_p,
    reduce_prod_p,
    reduce_sum_p,
    reduce_xor_p,
)
from ...ir.ops.reductions.sorting import sort_p, top_k_p
from ...ir.types import array_type
from ...ir.values.array import Array
from ...ir.values.typeof import typeof
from .. import sharding_notes
from ..operands.dtype_promotion import convert, dtype_name, user_dtype
from ..operands.rank_promotion import shape_of
from ..operands.shape_arguments import canonical_axes, canonical_axis
from ..shardings.out_sharding import output_sharding
from ..staging.staging import trace_to_program
from ..staging.tracer import Tracer
from ..trees import tree
from . import elementwise

__all__ = [
    "approx_max_k", "approx_min_k", "argmax", "argmin", "cumlogsumexp", "cummax", "cummin",
    "cumprod", "cumsum", "reduce", "reduce_and", "reduce_max", "reduce_min", "reduce_or",
    "reduce_prod", "reduce_sum", "reduce_xor", "sort", "sort_key_val", "top_k",
]


def _axes(axes: Any) -> tuple[int, ...]:
    return tuple(int(a) for a in axes)


@sharding_notes.reduction
def reduce_sum(operand, axes, *, out_sharding=None):
    """Sum over dimensions. out_sharding: of the result; it may leave the sum over a sharded
    dimension pending with `P(..., unreduced={axis})`."""
    axes = _axes(axes)
    ndim = len(shape_of(operand)) - len(axes)
    return reduce_sum_p.bind(operand, axes=axes,
                             out_sharding=output_sharding(out_sharding, "reduce_sum", ndim))


@sharding_notes.reduction
def reduce_prod(operand, axes):
    """The product of the elements over the dimensions `axes`, which the result lacks."""
    return reduce_prod_p.bind(operand, axes=_axes(axes))


@sharding_notes.reduction
def reduce_max(operand, axes):
    """The maximum of the elements over the dimensions `axes`, which the result lacks."""
    return reduce_max_p.bind(operand, axes=_axes(axes))


@sharding_notes.reduction
def reduce_min(operand, axes):
    """The minimum of the elements over the dimensions `axes`, which the result lacks."""
    return reduce_min_p.bind(operand, axes=_axes(axes))


def reduce_and(operand, axes):
    """The bitwise and of the elements over the dimensions `axes`; logical for bool."""
    return reduce_and_p.bind(operand, axes=_axes(axes))


def reduce_or(operand, axes):
    """The bitwise or of the elements over the dimensions `axes`; logical for bool."""
    return reduce_or_p.bind(operand, axes=_axes(axes))


def reduce_xor(operand, axes):
    """The bitwise exclusive or of the elements over the dimensions `axes`; logical for bool."""
    return reduce_xor_p.bind(operand, axes=_axes(axes))


@sharding_notes.reduction
def argmax(operand, axis, index_dtype):
    """Position of the first maximum along a dimension, as an integer type."""
    return _arg_reduce(argmax_p, operand, axis, index_dtype)


@sharding_notes.reduction
def argmin(operand, axis, index_dtype):
    """Position of the first minimum along a dimension, as an integer type."""
    return _arg_reduce(argmin_p, operand, axis, index_dtype)


def _arg_reduce(op: Op, operand: Any, axis: int, index_dtype: Any) -> Array:
    return op.bind(operand, axes=(int(axis),), index_dtype=user_dtype(index_dtype, op.name))


# -- reduction by a Python function ----------------------------------------------------------------

def extreme(dtype: Any, highest: bool) -> Any:
    """The greatest or least value of a dtype, infinities included; complex numbers are ordered by
    their real parts."""
    if issubdtype(dtype, np.inexact):
        return dtype.type(np.inf if highest else -np.inf)
    if dtype == np.dtype(bool):
        return np.bool_(highest)
    if issubdtype(dtype, np.integer):
        return dtype.type(iinfo(dtype).max if highest else iinfo(dtype).min)
    raise TypeError(f"{dtype} has no greatest or least value")


def known_reduction(computation: Callable[..., Any], init: Any, dtype: Any) -> Op | None:
    """The reduction op that `computation` from `init` is, if it is a known one."""
    if isinstance(init, Tracer):
        return None
    value = np.asarray(init)
    is_bool = dtype == np.dtype(bool)
    computation = inner(computation)
    if computation is elementwise.add and value == 0:
        return reduce_sum_p
    if computation is elementwise.mul and value == 1:
        return reduce_prod_p
    if computation is elementwise.max or computation is elementwise.min:
        highest = computation is elementwise.min
        if not issubdtype(dtype, np.complexfloating) and value == extreme(dtype, highest):
            return reduce_min_p if highest else reduce_max_p
        return None
    if computation is elementwise.bitwise_or and value == 0:
        return reduce_or_p
    if computation is elementwise.bitwise_and and value == (True if is_bool else -1):
        return reduce_and_p
    if computation is elementwise.bitwise_xor and value == 0:
        return reduce_xor_p
    return None


def reduce(operands, init_values, computation, dimensions, out_sharding=None):
    """Combine the elements along dimensions with an associative function of two scalars (pytrees).

    operands, init_values: pytrees of one structure; the initial values must be neutral. Known
    functions such as `lax.add` from 0 give their own reduction op. out_sharding: for sums only.
    """
    flat, treedef = tree.flatten(operands)
    inits, init_tree = tree.flatten(init_values)
    if treedef != init_tree:
        raise ValueError("Operands must have the same tree structure as init_values: "
                         f"{treedef} vs. {init_tree}")
    if len(flat) != len(inits):
        raise ValueError("Must have same total number of operands as init_values: "
                         f"{len(flat)} vs. {len(inits)}")
    ndim = len(shape_of(flat[0]))
    axes = canonical_axes(tuple(dimensions), ndim)
    if len(flat) == 1 and tree.structure(operands) == tree.structure(0):
        dtype = dtype_name(flat[0])
        op = known_reduction(computation, inits[0], dtype)
        if op is not None:
            weak = typeof(flat[0]).weak_type and typeof(inits[0]).weak_type
            if op is reduce_sum_p:
                out = reduce_sum(flat[0], axes, out_sharding=out_sharding)
            elif out_sharding is not None:
                raise NotImplementedError("out_sharding of lax.reduce is for sums only")
            else:
                out = op.bind(flat[0], axes=axes)
            return convert(out, dtype, weak)
    if out_sharding is not None:
        raise NotImplementedError("out_sharding of lax.reduce is for sums only")
    operand_types = [typeof(x) for x in flat]
    if any(t.dtype != dtype_name(i) for t, i in zip(operand_types, inits, strict=True)):
        fail(TypeError, "reduce operand dtypes should match corresponding initial value dtypes, "
             f"got operands={operand_types} and initial_values={[typeof(i) for i in inits]}",
             code="dtype-mismatch", help="give the initial value the dtype of the operand")
    program = scalar_program(computation, treedef, [t.dtype for t in operand_types])
    out = reduce_p.bind(*flat, *inits, jaxpr=program, dimensions=axes)
    return tree.unflatten(treedef, out)


def scalar_program(f: Callable[..., Any], treedef: Any, dtypes: list[Any]) -> Any:
    """`f(a, b)` of scalars (pytrees) as a program of 2n scalar parameters and n results."""
    n = len(dtypes)

    def flat_f(*args: Any) -> list[Any]:
        a, b = tree.unflatten(treedef, args[:n]), tree.unflatten(treedef, args[n:])
        out, out_tree = tree.flatten(f(a, b))
        if out_tree != treedef:
            raise TypeError("the reduction function must return a pytree of the structure of the "
                            f"operands, {treedef}, got {out_tree}")
        return [convert(x, d) for x, d in zip(out, dtypes, strict=True)]

    types = [array_type((), d) for d in dtypes] * 2
    program, captured = trace_to_program(
        flat_f, types, name=getattr(f, "__name__", "computation"))
    if captured:
        raise ValueError("Reduction computations may not use values of an enclosing trace")
    return program


# -- along a dimension -----------------------------------------------------------------------------

def _cumulative(op: Op, doc: str) -> Callable[..., Array]:
    """A public cumulative function, by its op. doc: how its docstring begins."""
    def f(operand, axis=0, reverse=False):
        if axis < 0:
            raise ValueError("XLA operations do not allow negative axes")
        shape = shape_of(operand)
        if axis >= len(shape):
            raise ValueError(f"axis {axis} is out of bounds for array of shape {shape}")
        return op.bind(operand, axis=int(axis), reverse=bool(reverse))

    f.__name__ = f.__qualname__ = op.name
    f.__doc__ = f"{doc} of all elements up to each along `axis` (from each on, if `reverse`)."
    return sharding_notes.ordered(f)


cumsum = _cumulative(cumsum_p, "The sums")
cumprod = _cumulative(cumprod_p, "The products")
cummax = _cumulative(cummax_p, "The maximum")
cummin = _cumulative(cummin_p, "The minimum")
cumlogsumexp = _cumulative(cumlogsumexp_p, "The log of the sum of exp")


@sharding_notes.ordered
def sort(operand, dimension=-1, is_stable=True, num_keys=1):
    """operand sorted along a dimension; several arrays are sorted together by the first keys.

    Raises ValueError if num_keys is not between 1 and the number of arrays, TypeError for none.
    """
    if isinstance(operand, (tuple, list)):
        if not operand:
            raise TypeError("Sort requires at least one operand")
        if not 1 <= num_keys <= len(operand):
            raise ValueError(f"num_keys={num_keys} must be between 1 and len(operand)="
                             f"{len(operand)}")
        axis = canonical_axis(dimension, len(shape_of(operand[0])))
        return tuple(sort_p.bind(*operand, dimension=axis, is_stable=bool(is_stable),
                                 num_keys=int(num_keys)))
    axis = canonical_axis(dimension, len(shape_of(operand)))
    return sort_p.bind(operand, dimension=axis, is_stable=bool(is_stable), num_keys=1)[0]


def sort_key_val(keys, values, dimension=-1, is_stable=True):
    """keys sorted along a dimension, and values in the same order."""
    axis = canonical_axis(dimension, len(shape_of(keys)))
    k, v = sort_p.bind(keys, values, dimension=axis, is_stable=bool(is_stable), num_keys=1)
    return k, v


@sharding_notes.ordered
def top_k(operand, k, *, axis=-1):
    """The `k` greatest elements along a dimension, in descending order, and their positions.

    axis: the dimension, the last by default. Of equal elements the first counts as greater.
    Raises ValueError for a k greater than the size.

    >>> st.lax.top_k(jnp.array([1, 5, 3]), 2)
    [Array([5, 3], dtype=int32), Array([1, 2], dtype=int32)]
    """
    k = operator.index(k)
    if k < 0:
        raise ValueError(f"k argument to top_k must be nonnegative, got {k}")
    ndim = len(shape_of(operand))
    return list(top_k_p.bind(operand, k=k, axis=canonical_axis(axis, ndim)))


def approx_max_k(operand, k, reduction_dimension=-1, recall_target=0.95,
                 reduction_input_size_override=-1, aggregate_to_topk=True):
    """The k greatest elements along a dimension and their positions; here all of them are found.

    aggregate_to_topk: False for as many as an approximate search leaves to be sorted, of which the
    k greatest are the first; recall_target and reduction_input_size_override say how many that are.
    """
    count = _count(operand, k, reduction_dimension, recall_target, reduction_input_size_override,
                   aggregate_to_topk)
    return top_k(operand, count, axis=reduction_dimension)


def approx_min_k(operand, k, reduction_dimension=-1, recall_target=0.95,
                 reduction_input_size_override=-1, aggregate_to_topk=True):
    """The k least elements along a dimension and their positions, see `approx_max_k`."""
    count = _count(operand, k, reduction_dimension, recall_target, reduction_input_size_override,
                   aggregate_to_topk)
    values, positions = top_k(neg_p.bind(operand), count, axis=reduction_dimension)
    return [neg_p.bind(values), positions]


def _count(operand: Any, k: int, dimension: int, recall: float, whole_size: int, aggregate: bool
           ) -> int:
    """How many elements a search gives: k, or what XLA's reduction in tiles leaves of them."""
    if not issubdtype(dtype_name(operand), np.floating):
        raise ValueError("operand must be a floating type")
    if not 0 < recall <= 1:
        raise ValueError(f"recall_target out of range (0, 1]: {recall}")
    shape = shape_of(operand)
    size = shape[canonical_axis(dimension, len(shape))]
    tile = 1024 if len(shape) == 1 else 128
    if aggregate:
        return k
    if size <= tile or k > 1 and recall == 1:
        return size
    if k == 1:
        return tile
    wanted = max(int((1 - k) / math.log(recall)), tile)
    halvings = ((whole_size if whole_size >= 0 else size) // wanted).bit_length() - 1
    if halvings <= 0:
        return size
    halvings = min(halvings, (size // tile - 1).bit_length())
    tiles = math.ceil(size / tile)
    return min(size, math.ceil(tiles / 2 ** halvings) * tile)
