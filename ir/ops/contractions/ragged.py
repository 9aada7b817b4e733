"""ragged_dot_general: a product in which one dimension of lhs is divided into groups.

    rows    lhs [m, k], rhs [g, k, n], sizes [g] -> [m, n]: consecutive rows meet their own matrix
    columns lhs [m, k], rhs [k, n], sizes [g] -> [g, m, n]: the contraction is summed group by group
    batch   an ordinary product with batch dimensions

Rows (columns) beyond the sum of the sizes give (count as) zero. Free and batch dimensions that are
not ragged pass through; the ragged one and the groups must be whole.
"""
from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ...diagnostics.diagnostic import fail
from ...dtypes import issubdtype
from ...kernels.device_dimensions import is_common, lead_sizes, without_common
from ...kernels.matrices.gemm import contract
from ...op import LinearOperand, Op, Sample, defop
from ...param_types import register_param_type
from ...support.named_tuple import NamedTuple
from ...types import ArrayType, Shape, short_list
from ..derivatives import batch_first, convert, type_of
from ..rules import (
    batch_axes,
    call,
    cotangent_sharding,
    insert_axes,
    permutation_inverse,
    reject,
    rule_text,
    shifted,
)
from .dot_general import compute_dtype, dot_labels
from .dot_typing import check_dot, dot_dtype, dot_pending, free_dims

Dims = tuple[int, ...]


@register_param_type
class RaggedDotDimensionNumbers(NamedTuple):
    """dot_general's dimension numbers, the ragged dimension of lhs, the group dimension of rhs."""
    dot_dimension_numbers: tuple[tuple[Dims, Dims], tuple[Dims, Dims]]
    lhs_ragged_dimensions: Dims
    rhs_group_dimensions: Dims


class RaggedDotMode(enum.Enum):
    RAGGED_NONCONTRACTING = 1
    RAGGED_CONTRACTING = 2
    RAGGED_BATCH = 3


ROWS, COLUMNS, BATCH = RaggedDotMode


def ragged_mode(lhs_ndim: int, n: RaggedDotDimensionNumbers) -> RaggedDotMode:
    (lc, _), (lb, _) = n.dot_dimension_numbers
    (ragged,) = n.lhs_ragged_dimensions
    return COLUMNS if ragged in lc else BATCH if ragged in lb else ROWS


def _prefix(lhs_ndim: int, n: RaggedDotDimensionNumbers) -> Dims:
    """Dimensions of lhs for each index of which the group sizes may differ."""
    (lc, _), (lb, _) = n.dot_dimension_numbers
    (ragged,) = n.lhs_ragged_dimensions
    mode = ragged_mode(lhs_ndim, n)
    if mode is BATCH:
        return tuple(lb[:lb.index(ragged)])
    dims = tuple(lc) if mode is COLUMNS else free_dims(lhs_ndim, lc, lb)
    return (*lb, *dims[:dims.index(ragged)])


def _infer(lhs: ArrayType, rhs: ArrayType, sizes: ArrayType, *,
           ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, precision: Any,
           preferred_element_type: Any, group_offset: Any, out_sharding: Any) -> tuple:
    """Check the dimension numbers of the mode; the result has the labels of `_labels`."""
    n, name, types = ragged_dot_dimension_numbers, "ragged_dot_general", [lhs, rhs, sizes]

    def bad(message: str) -> NoReturn:
        reject(TypeError, types, message, "`lax.ragged_dot` multiplies the rows of "
               "each group, which group_sizes counts, by a matrix of their own")

    if group_offset is not None:
        fail(NotImplementedError, "Unimplemented group_offset support.", code="not-implemented",
             help="leave group_offset out, and slice the groups that count")
    if len(n.lhs_ragged_dimensions) != 1:
        bad(f"{name} expects exactly one lhs ragged dimension.")
    for dims, t, what, side in ((n.lhs_ragged_dimensions, lhs, "lhs ragged dimension", "lhs"),
                                (n.rhs_group_dimensions, rhs, "rhs group dimension", "rhs")):
        for d in dims:
            if not 0 <= d < t.ndim:
                bad(f"{name} requires {what} numbers to be nonnegative and less than the number of "
                    f"axes of the {side} value, got {d} for {side} of rank {t.ndim}.")
    mode = ragged_mode(lhs.ndim, n)
    (_, rc), (_, rb) = n.dot_dimension_numbers
    if sizes.ndim == 0:
        bad("expected rank of group_sizes to be >=1.")
    count = sizes.shape[-1]
    expected = (*(lhs.shape[d] for d in _prefix(lhs.ndim, n)), count)
    if sizes.ndim != 1 and sizes.shape != expected:
        bad(f"expected group_sizes to have shape {expected}, got {sizes.shape}.")
    if mode is not ROWS and n.rhs_group_dimensions:
        bad(f"{name} requires zero group dimensions in the rhs when lhs ragged dimension is "
            "contracting or batch.")
    if mode is ROWS:
        if len(n.rhs_group_dimensions) != 1:
            bad(f"{name} requires exactly one rhs group dimension when lhs ragged dimension is "
                "noncontracting.")
        group = n.rhs_group_dimensions[0]
        if group in rb or group in rc:
            bad(f"{name} requires rhs group dimension numbers to be distinct from contracting and "
                "batch dimensions.")
        if rhs.shape[group] != count:
            bad(f"expected rhs group dimension size to be {count}, got {rhs.shape[group]}.")
    check_dot(lhs, rhs, n.dot_dimension_numbers)
    if not issubdtype(sizes.dtype, np.integer):
        bad(f"{name} requires that group_sizes.dtype is subtype of np.integer.")
    left, right, out = _labels(lhs.ndim, rhs.ndim, n)
    known = dict(zip(left, lhs.shape, strict=True)) | dict(zip(right, rhs.shape, strict=True))
    shape = tuple(known.get(x, count) for x in out)
    return shape, dot_dtype("lax.ragged_dot_general", lhs, rhs, preferred_element_type)


def _labels(lhs_ndim: int, rhs_ndim: int, n: RaggedDotDimensionNumbers
            ) -> tuple[list[str], list[str], list[str]]:
    """Factor names as dot_general's, and "g" for the groups."""
    left, right, out = map(list, dot_labels(lhs_ndim, rhs_ndim, n.dot_dimension_numbers))
    for d in n.rhs_group_dimensions:
        out.remove(right[d])
        right[d] = "g"
    return left, right, ["g", *out] if ragged_mode(lhs_ndim, n) is COLUMNS else out


def _rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
          ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, **params: Any) -> str:
    """That of a product, with the ragged dimension and the groups whole."""
    n, lhs_ndim = ragged_dot_dimension_numbers, len(operands[0])
    left, right, out = _labels(lhs_ndim, len(operands[1]), n)
    mode = ragged_mode(lhs_ndim, n)
    ragged = left[n.lhs_ragged_dimensions[0]]
    whole = [] if mode is BATCH else [ragged, "g"]
    prefix = [left[d] for d in _prefix(lhs_ndim, n)] if len(operands[2]) > 1 else []
    kinds = [f"{x}:sum" for d in n.dot_dimension_numbers[0][0] if (x := left[d]) not in whole]
    return rule_text([left, right, [*prefix, "g"]], [out],
                     kinds + [f"{x}!:replicate" for x in whole or ["g"]])


def _explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
              params: dict[str, Any]) -> list[Any]:
    if params["out_sharding"] is None:
        fail(NotImplementedError, "Explicit sharding inference for ragged_dot_general is not "
             "currently implemented. Please specify out_sharding.", code="out-sharding",
             label=f"operands are {short_list(types)}", help="give `out_sharding`")
    return [params["out_sharding"]]


# -- derivatives and batching ---------------------------------------------------------------------

def _transpose(ct: Any, lhs: Any, rhs: Any, sizes: Any, *,
               ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, **params: Any) -> tuple:
    """The cotangent of lhs is a product by rows again; that of rhs is a product by columns, which
    gives a matrix for each group. Other modes have no transpose, as in JAX.
    """
    n = ragged_dot_dimension_numbers
    (lc, rc), (lb, rb) = n.dot_dimension_numbers
    l_ndim, r_ndim = type_of(lhs).ndim, type_of(rhs).ndim
    mode = ragged_mode(l_ndim, n)
    of_lhs = isinstance(lhs, LinearOperand)
    if mode is not ROWS:
        fail(NotImplementedError, f"Unimplemented grad_{'x' if of_lhs else 'y'}_dims for ragged "
             f"dot general in mode {mode.name}.", code="not-differentiable",
             help="write it as a dense product of masked operands: `jnp.einsum`")
    group = n.rhs_group_dimensions
    (ragged,) = n.lhs_ragged_dimensions
    l_free = free_dims(l_ndim, lc, lb)
    r_free = free_dims(r_ndim, (*rc, *group), rb)
    nb, nl = len(lb), len(l_free)
    batch = tuple(range(nb))
    if of_lhs:
        aval = lhs.aval
        by_rhs = tuple(lc[i] for i in sorted(range(len(rc)), key=rc.__getitem__))
        order = (*lb, *l_free, *by_rhs)
        numbers = RaggedDotDimensionNumbers(
            ((tuple(range(nb + nl, nb + nl + len(r_free))), r_free), (batch, tuple(rb))),
            (nb + l_free.index(ragged),), group)
        operands = (ct, rhs)
    else:
        aval = rhs.aval
        by_lhs = tuple(rc[i] for i in sorted(range(len(lc)), key=lc.__getitem__))
        order = (*group, *rb, *by_lhs, *r_free)
        numbers = RaggedDotDimensionNumbers(
            ((l_free, tuple(range(nb, nb + nl))), (tuple(lb), batch)), (ragged,), ())
        operands = (lhs, ct)
    wanted = cotangent_sharding(aval)
    if wanted is not None:
        parts = wanted.spec.partitions
        wanted = wanted.update(spec=wanted.spec.update(partitions=[parts[d] for d in order]))
    out = ragged_dot_general_p.bind(*operands, sizes, ragged_dot_dimension_numbers=numbers,
                                    **{**params, "out_sharding": wanted})
    out = convert(call("transpose", out, permutation=permutation_inverse(order)), aval.dtype)
    return (out, None, None) if of_lhs else (None, out, None)


def _batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *,
           ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, out_sharding: Any,
           **params: Any) -> tuple:
    """The new dimension is a batch dimension of all operands; sizes that do not have it stay as
    they are if they are one list for all.
    """
    n = ragged_dot_dimension_numbers
    (lc, rc), (lb, rb) = n.dot_dimension_numbers
    axes = batch_axes(operands, dims)
    lhs, rhs, sizes = batch_first(operands, dims, size)
    numbers = RaggedDotDimensionNumbers(
        ((shifted(lc), shifted(rc)), ((0, *shifted(lb)), (0, *shifted(rb)))),
        shifted(n.lhs_ragged_dimensions), shifted(n.rhs_group_dimensions))
    t, s = type_of(lhs), type_of(sizes)
    if dims[2] is None and type_of(operands[2]).ndim == 1:
        sizes = operands[2]
    elif s.ndim == 2:           # the same sizes for all the prefix that the unbatched op had
        shape = (*(t.shape[d] for d in _prefix(t.ndim, numbers)), s.shape[-1])
        sizes = call("broadcast_in_dim", sizes, shape=shape, sharding=None,
                     broadcast_dimensions=(0, len(shape) - 1))
    at = 1 if ragged_mode(t.ndim, numbers) is COLUMNS else 0
    rank = len(_labels(t.ndim, type_of(rhs).ndim, numbers)[2]) - 1
    return [ragged_dot_general_p.bind(
        lhs, rhs, sizes, ragged_dot_dimension_numbers=numbers,
        out_sharding=insert_axes(out_sharding, at, axes, rank), **params)], [at]


# -- evaluation ------------------------------------------------------------------------------------

def _evaluate(lead: int, lhs: np.ndarray, rhs: np.ndarray, sizes: np.ndarray, *,
              ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, precision: Any,
              preferred_element_type: Any, group_offset: Any, out_sharding: Any) -> np.ndarray:
    """A product for each group if all devices have the same sizes; otherwise one product with lhs
    masked for each group.
    """
    n = ragged_dot_dimension_numbers
    dtype = compute_dtype(lhs.dtype, rhs.dtype, preferred_element_type)
    left, right, out = _labels(lhs.ndim - lead, rhs.ndim - lead, n)
    mode = ragged_mode(lhs.ndim - lead, n)
    sizes = np.maximum(sizes, 0)
    ragged = left[n.lhs_ragged_dimensions[0]]

    def product(x: _Labelled, y: _Labelled, labels: list) -> np.ndarray:
        devices = lead_sizes(lead, (x.array, y.array))
        a, a_own = without_common(x.array, lead)
        b, b_own = without_common(y.array, lead)
        here = [d for d in range(lead) if devices[d] != 1]
        result = contract(a, [*a_own, *x.labels], b, [*b_own, *y.labels], [*here, *labels], dtype)
        return result.reshape(devices + result.shape[len(here):])

    if mode is BATCH:
        result = product(_Labelled(lhs, left), _Labelled(rhs, right), out)
    elif sizes.ndim - lead == 1 and is_common(sizes, lead):
        ends = np.cumsum(sizes.reshape(-1).astype(np.int64))
        result = _by_group(lead, _Labelled(lhs, left), _Labelled(rhs, right), out, n, ends, dtype,
                           product)
    else:
        prefix = [left[d] for d in _prefix(lhs.ndim - lead, n)] if sizes.ndim - lead > 1 else []
        marked = lhs[..., None] * _members(lead, sizes, prefix, left, ragged,
                                           lhs.shape[lead + left.index(ragged)])
        result = product(_Labelled(marked, [*left, "g"]), _Labelled(rhs, right), out)
    return (result if preferred_element_type is None
            else result.astype(preferred_element_type, copy=False))


class _Labelled(NamedTuple):
    """An array with a label for each dimension after the devices'."""
    array: np.ndarray
    labels: list


def _by_group(lead: int, x: _Labelled, y: _Labelled, out: list, n: RaggedDotDimensionNumbers,
              ends: np.ndarray, dtype: np.dtype, product: Any) -> np.ndarray:
    """One product per group, on slices, where the groups are the same on all devices."""
    (lhs, left), (rhs, right) = x, y
    ragged, mode = left[n.lhs_ragged_dimensions[0]], ragged_mode(len(left), n)
    known = dict(zip(left, lhs.shape[lead:], strict=True))
    known |= dict(zip(right, rhs.shape[lead:], strict=True))
    known.setdefault("g", len(ends))
    result = np.zeros(lead_sizes(lead, (lhs, rhs)) + tuple(known[x] for x in out), dtype)
    start = 0
    for g, end in enumerate(ends):
        end = min(int(end), known[ragged])
        if end > start:
            part = _take(lhs, lead + left.index(ragged), slice(start, end))
            if mode is ROWS:
                matrix = np.take(rhs, g, lead + right.index("g"))
                labels = [x for x in right if x != "g"]
                _take(result, lead + out.index(ragged), slice(start, end))[...] = product(
                    _Labelled(part, left), _Labelled(matrix, labels), out)
            else:
                other = _take(rhs, lead + right.index(ragged), slice(start, end))
                _take(result, lead, g)[...] = product(
                    _Labelled(part, left), _Labelled(other, right), out[1:])
        start = max(start, end)
    return result


def _take(x: np.ndarray, axis: int, index: Any) -> np.ndarray:
    return x[(slice(None),) * axis + (index,)]


def _members(lead: int, sizes: np.ndarray, prefix: list, left: list, ragged: str,
             n: int) -> np.ndarray:
    """Which group each index along the ragged dimension is in: [devices, lhs dimensions, g]."""
    ends = np.cumsum(sizes.astype(np.int64), -1)
    place = np.arange(n)[:, None]
    inside = (place >= (ends - sizes)[..., None, :]) & (place < ends[..., None, :])
    labels = [*prefix, ragged]
    order = sorted(range(len(labels)), key=lambda i: left.index(labels[i]))
    inside = inside.transpose(*range(lead), *(lead + i for i in order), inside.ndim - 1)
    shape = list(inside.shape[:lead]) + [1] * len(left) + [sizes.shape[-1]]
    for k, i in enumerate(order):
        shape[lead + left.index(labels[i])] = inside.shape[lead + k]
    return inside.reshape(shape)


# -- the op ---------------------------------------------------------------------------------------

def _sample(a: Shape, b: Shape, sizes: Any, numbers: RaggedDotDimensionNumbers,
            grad: bool = True) -> Sample:
    x = np.linspace(-1, 1, int(np.prod(a)), dtype=np.float32).reshape(a)
    y = np.linspace(2, -1, int(np.prod(b)), dtype=np.float32).reshape(b)
    return Sample((x, y, np.asarray(sizes, np.int32)), {
        "ragged_dot_dimension_numbers": numbers, "precision": None,
        "preferred_element_type": None, "group_offset": None, "out_sharding": None}, grad)


def _samples() -> list[Sample]:
    rows = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    return [
        _sample((5, 2), (2, 2, 4), [3, 2], rows),
        _sample((5, 2), (3, 2, 4), [1, 0, 2], rows),
        _sample((2, 4, 3), (3, 2, 3, 2), [[1, 2, 1], [0, 3, 1]],
                RaggedDotDimensionNumbers((((2,), (2,)), ((0,), (1,))), (1,), (0,))),
        _sample((2, 5), (5, 3), [3, 2],
                RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), (1,), ()), grad=False),
    ]


ragged_dot_general_p = defop(
    "ragged_dot_general",
    doc="A product whose lhs has a dimension divided into groups of the sizes in operand 2.",
    infer=_infer, rule=_rule, explicit=_explicit, pending=dot_pending,
    sharding_param="out_sharding",
    linear=((0,), (1,)), passes_sums="never",
    jvp=(lambda g, out, lhs, rhs, sizes, **params: ragged_dot_general_p.bind(
            g, rhs, sizes, **params),
         lambda g, out, lhs, rhs, sizes, **params: ragged_dot_general_p.bind(
            lhs, g, sizes, **params), None),
    transpose=_transpose, batch=_batch,
    evaluate=_evaluate,
    samples=_samples)
