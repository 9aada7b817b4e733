"""dot_general: the product of two arrays over pairs of batch and contracting dimensions.

    b i k, b j k -> b i j | k:sum

Typing over Explicit axes is JAX's: the result takes the operands' axes; a contraction that both
sides split is ambiguous (a sum over devices, or a pending one) and wants `out_sharding`. The
evaluator is one matrix product wherever an operand is common to all devices (see gemm.py).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes import is_narrow_float
from ...facts import MAY_BE_NAN, DeviceCost
from ...kernels.device_dimensions import lead_sizes, without_common
from ...kernels.matrices.gemm import contract, prepared
from ...op import Evaluator, LinearOperand, Sample, defop
from ...rules.rule import SUMMED, Pattern
from ...shardings.sharding import NamedSharding, named_sharding_abstract
from ...spec import spec_from_entries
from ...support.caches import cached, in_memo
from ...types import ArrayType, Shape
from ..derivatives import convert, move_first, type_of
from ..elementwise.convert import cast
from ..rules import (
    batch_axes,
    call,
    cotangent_sharding,
    insert_axes,
    names,
    permutation_inverse,
    shifted,
)
from .dot_typing import (
    DotNumbers,
    bits,
    check_dot,
    dot_dtype,
    dot_explicit,
    dot_pending,
    dtype_rank,
    free_dims,
    result_shape,
)

# -- shape and dtype -------------------------------------------------------------------------------


def _infer(lhs: ArrayType, rhs: ArrayType, *, dimension_numbers: DotNumbers, precision: Any,
           preferred_element_type: Any, out_sharding: Any) -> tuple:
    shape = result_shape(lhs.shape, rhs.shape, dimension_numbers)
    if shape is None:
        check_dot(lhs, rhs, dimension_numbers)
        (lc, rc), (lb, rb) = dimension_numbers
        shape = (*[lhs.shape[d] for d in lb],
                 *[lhs.shape[d] for d in free_dims(lhs.ndim, lc, lb)],
                 *[rhs.shape[d] for d in free_dims(rhs.ndim, rc, rb)])
    return shape, dot_dtype("lax.dot_general", lhs, rhs, preferred_element_type)


# -- the factor rule -------------------------------------------------------------------------------

@cached(4096)
def dot_labels(lhs_ndim: int, rhs_ndim: int, numbers: DotNumbers
               ) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """A factor name for every dimension of lhs, rhs and result."""
    (lc, rc), (lb, rb) = numbers
    lf, rf = free_dims(lhs_ndim, lc, lb), free_dims(rhs_ndim, rc, rb)
    lhs, rhs = [""] * lhs_ndim, [""] * rhs_ndim
    for prefix, a, b in (("b", lb, rb), ("k", lc, rc)):
        for name, d, e in zip(names(prefix, len(a)), a, b, strict=True):
            lhs[d] = rhs[e] = name
    for dims, side, prefix in ((lf, lhs, "i"), (rf, rhs, "j")):
        for name, d in zip(names(prefix, len(dims)), dims, strict=True):
            side[d] = name
    out = (*(lhs[d] for d in lb), *(lhs[d] for d in lf), *(rhs[d] for d in rf))
    return tuple(lhs), tuple(rhs), out


def _rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
          dimension_numbers: DotNumbers, **params: Any) -> Pattern:
    return _pattern(len(operands[0]), len(operands[1]), dimension_numbers)


@cached(4096, "rules of products")
def _pattern(lhs_ndim: int, rhs_ndim: int, numbers: DotNumbers) -> Pattern:
    lhs, rhs, out = dot_labels(lhs_ndim, rhs_ndim, numbers)
    return Pattern([lhs, rhs], [out], dict.fromkeys([lhs[d] for d in numbers[0][0]], SUMMED))


# -- Explicit axes ---------------------------------------------------------------------------------


dot_pending.on_any_mesh = "reduced"  # type: ignore[attr-defined]


# -- derivatives and batching ---------------------------------------------------------------------

def _cotangent(ct: Any, x: ArrayType, y: Any, swapped: bool, numbers: DotNumbers,
               params: dict[str, Any]) -> Any:
    """The cotangent of the operand of type `x`, `y` being the other one.

    swapped: `x` is the right operand. The result is typed with the operand's sharding, so a sum
    over devices that the derivative needs is made here, or left pending for a reduced operand.
    """
    mesh, rank = type_of(ct).sharding.mesh, len(type_of(y).shape)
    dimension_numbers, wanted, permutation = _cotangent_plan(x, mesh, rank, swapped, numbers)
    params["out_sharding"] = wanted
    out = dot_general_p.bind(ct, y, dimension_numbers=dimension_numbers, **params)
    if permutation is not None:
        out = call("transpose", out, permutation=permutation)
    return convert(out, x.dtype)


@in_memo
def _cotangent_plan(x: ArrayType, mesh: Any, rank: int, swapped: bool, numbers: DotNumbers
                    ) -> tuple[DotNumbers, NamedSharding | None, tuple[int, ...] | None]:
    """Dimension numbers and sharding of the product that gives a cotangent, and the permutation
    after it (None where there is none).

    mesh: of the given cotangent. rank: of the other operand.
    """
    (xc, yc), (xb, yb) = numbers
    x_free = free_dims(x.ndim, xc, xb)
    y_free = free_dims(rank, yc, yb)
    nb, nx, ny = len(xb), len(x_free), len(y_free)
    batch = tuple(range(nb))
    of_y = tuple(range(nb, nb + ny)) if swapped else tuple(range(nb + nx, nb + nx + ny))
    by_y = tuple(xc[i] for i in sorted(range(len(yc)), key=yc.__getitem__))
    order = (*xb, *x_free, *by_y)
    wanted = cotangent_sharding(x)
    if wanted is None and mesh.explicit_axes:      # x knew of no mesh: its cotangent is whole
        wanted = named_sharding_abstract(mesh, spec_from_entries(((),) * x.ndim))
    permuted = order != tuple(range(len(order)))
    if wanted is not None and permuted:
        spec = wanted.spec
        wanted = named_sharding_abstract(wanted.mesh.abstract_mesh, spec_from_entries(
            [spec.entries[d] for d in order], spec.unreduced, spec.reduced))
    return (((of_y, y_free), (batch, tuple(yb))), wanted,
            permutation_inverse(order) if permuted else None)


def _transpose(ct: Any, lhs: Any, rhs: Any, *, dimension_numbers: DotNumbers,
               **params: Any) -> tuple:
    if isinstance(lhs, LinearOperand):
        return _cotangent(ct, lhs.aval, rhs, False, dimension_numbers, params), None
    (lc, rc), (lb, rb) = dimension_numbers
    return None, _cotangent(ct, rhs.aval, lhs, True, ((rc, lc), (rb, lb)), params)


def _batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *,
           dimension_numbers: DotNumbers, out_sharding: Any, **params: Any) -> tuple:
    """The new dimension is a batch dimension if both operands have it; otherwise a free dimension
    of the one that has it.
    """
    (lc, rc), (lb, rb) = dimension_numbers
    axes = batch_axes(operands, dims)
    lhs, rhs = (x if d is None else move_first(x, d) for x, d in zip(operands, dims, strict=True))
    in_lhs, in_rhs = (int(d is not None) for d in dims)
    lc, lb = shifted(lc, in_lhs), shifted(lb, in_lhs)
    rc, rb = shifted(rc, in_rhs), shifted(rb, in_rhs)
    if in_lhs and in_rhs:
        lb, rb, at = (0, *lb), (0, *rb), 0
    elif in_lhs:
        at = len(lb)                                        # the first free dimension of lhs
    else:
        at = type_of(lhs).ndim - len(lc)                    # the first free dimension of rhs
    rank = type_of(lhs).ndim + type_of(rhs).ndim - 2 * len(lc) - len(lb) - 1
    return [dot_general_p.bind(
        lhs, rhs, dimension_numbers=((lc, rc), (lb, rb)),
        out_sharding=insert_axes(out_sharding, at, axes, rank), **params)], [at]


# -- evaluation ------------------------------------------------------------------------------------

@cached(1024)
def compute_dtype(a: np.dtype, b: np.dtype, result: Any) -> np.dtype:
    """The dtype in which a product of these operands is computed for this result."""
    wide = a if dtype_rank(a) >= dtype_rank(b) else b
    if result is not None and bits(np.dtype(result)) > bits(wide):
        wide = np.dtype(result)
    return np.dtype(np.float32) if is_narrow_float(wide) else wide


def dot(lead: int, lhs: np.ndarray, rhs: np.ndarray, numbers: DotNumbers, dtype: np.dtype,
        summed: Sequence[int] = ()) -> np.ndarray:
    """The product, computed in `dtype`, with device dimensions in front.

    summed: device dimensions over which the products are summed at once (a contraction followed by
    an all-reduce is one product over devices and contracting dimensions); they have size 1 then.
    """
    left, right, out = dot_labels(lhs.ndim - lead, rhs.ndim - lead, numbers)
    if not lead:
        return contract(lhs, left, rhs, right, out, dtype)
    devices = lead_sizes(lead, (lhs, rhs))
    lhs, left_own = without_common(lhs, lead)
    rhs, right_own = without_common(rhs, lead)
    here = [d for d in range(lead) if devices[d] != 1 and d not in summed]
    result = contract(lhs, [*left_own, *left], rhs, [*right_own, *right], [*here, *out], dtype)
    front = tuple(1 if d in summed else n for d, n in enumerate(devices))
    return result.reshape(front + result.shape[len(here):])


def _evaluate(lead: int, lhs: np.ndarray, rhs: np.ndarray, *, dimension_numbers: DotNumbers,
              precision: Any, preferred_element_type: Any, out_sharding: Any) -> np.ndarray:
    if (lhs.dtype != rhs.dtype and preferred_element_type is not None
            and np.dtype(preferred_element_type).kind in "iu"):
        lhs, rhs = cast(lhs, preferred_element_type), cast(rhs, preferred_element_type)
    dtype = compute_dtype(lhs.dtype, rhs.dtype, preferred_element_type)
    out = dot(lead, lhs, rhs, dimension_numbers, dtype)
    return out if preferred_element_type is None else out.astype(preferred_element_type, copy=False)


def _prepared(lead: int, shapes: Sequence[Shape], dtypes: Sequence[np.dtype],
              params: dict[str, Any]) -> Callable[..., np.ndarray] | None:
    """The product of arrays of these shapes, device dimensions included, decided once."""
    numbers, wanted = params["dimension_numbers"], params["preferred_element_type"]
    dtype = compute_dtype(dtypes[0], dtypes[1], wanted)
    if any(t != dtype for t in dtypes) or (wanted is not None and wanted != dtype):
        return None
    left, right, out = dot_labels(len(shapes[0]) - lead, len(shapes[1]) - lead, numbers)
    if not lead:
        return prepared(shapes[0], left, shapes[1], right, out, dtype)
    own = [[d for d in range(lead) if shape[d] != 1] for shape in shapes]
    here = sorted({*own[0], *own[1]})
    a, b = (tuple(shape[d] for d in (*dims, *range(lead, len(shape))))
            for shape, dims in zip(shapes, own, strict=True))
    product = prepared(a, (*own[0], *left), b, (*own[1], *right), (*here, *out), dtype)
    if product is None or len(here) == lead:
        return product
    front = tuple(max(shape[d] for shape in shapes) for d in range(lead))

    def with_front(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        z = product(x, y)
        return z.reshape(front + z.shape[len(here):])
    return with_front


# -- cost -----------------------------------------------------------------------------------------

def _orders(position: int, operand: ArrayType, params: dict[str, Any]) -> list[list[int]]:
    """Batch dimensions first, then free ones and contracted ones; of the second operand, contracted
    ones before free ones. One of each lie in either order, as do two free ones of the result.
    """
    contracted, batch = params["dimension_numbers"]
    dims = [d for d, n in enumerate(operand.shape) if n > 1]
    if position == 2:
        lead = [d for d in dims if d < len(batch[0])]
        groups = [[d] for d in dims if d >= len(batch[0])]
    else:
        lead, summed = ([d for d in of[position] if d in dims] for of in (batch, contracted))
        free = [d for d in dims if d not in lead and d not in summed]
        groups = [free, summed] if position == 0 else [summed, free]
    found = [[*lead, *(d for g in groups for d in g)]]
    if len(groups) == 2 and all([len(g) == 1 for g in groups]) and (
            position == 2 or {*batch[position]} == {*range(len(batch[position]))}):
        found.append([*lead, *groups[1], *groups[0]])
    return found


# -- the op ---------------------------------------------------------------------------------------

def _sample(a: Shape, b: Shape, numbers: DotNumbers) -> Sample:
    x = np.linspace(-1, 1, int(np.prod(a)), dtype=np.float32).reshape(a)
    y = np.linspace(2, -1, int(np.prod(b)), dtype=np.float32).reshape(b)
    return Sample((x, y), {"dimension_numbers": numbers, "precision": None,
                           "preferred_element_type": None, "out_sharding": None})


dot_general_p = defop(
    "dot_general",
    doc="Batch dimensions, then free dimensions of both operands; the product is summed over the "
        "contracting ones.",
    infer=_infer, rule=_rule, explicit=dot_explicit, pending=dot_pending,
    sharding_param="out_sharding",
    linear=((0,), (1,)),
    jvp=(lambda g, out, lhs, rhs, **params: dot_general_p.bind(g, rhs, **params),
         lambda g, out, lhs, rhs, **params: dot_general_p.bind(lhs, g, **params)),
    transpose=_transpose, batch=_batch,
    evaluate=Evaluator(_evaluate, prepare=_prepared), facts=(MAY_BE_NAN,),
    cost=DeviceCost(orders=_orders),
    samples=lambda: [
        _sample((4, 6), (6, 2), (((1,), (0,)), ((), ()))),
        _sample((2, 4, 6), (2, 6, 3), (((2,), (1,)), ((0,), (0,)))),
        _sample((6, 2, 4), (3, 6, 2), (((0, 1), (1, 2)), ((), ()))),
        _sample((3, 2, 2), (2, 3, 2), (((0,), (1,)), ((2,), (0,)))),
        _sample((6,), (6,), (((0,), (0,)), ((), ()))),
        _sample((3, 2), (4,), (((), ()), ((), ()))),
    ])
