"""Types of contractions: shape, dtype, Explicit axes, and sums that are left pending."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...dtypes import ALL_DTYPES, finfo, iinfo, issubdtype
from ...op import Op
from ...shardings.sharding import NamedSharding
from ...source.wording import warn
from ...support.caches import cached
from ...types import ArrayType, Entries, Shape, short_list
from ..rules import (
    reject,
)

Dims = tuple[int, ...]
DotNumbers = tuple[tuple[Dims, Dims], tuple[Dims, Dims]]   # contracting, batch; lhs and rhs of each


def free_dims(ndim: int, contracting: Sequence[int], batch: Sequence[int]) -> Dims:
    """Dimensions that only one operand has."""
    return tuple([d for d in range(ndim) if d not in contracting and d not in batch])


def check_dot(lhs: ArrayType, rhs: ArrayType, numbers: DotNumbers) -> None:
    """Raise JAX's TypeError unless the dimension numbers fit the operands."""
    contracting, batch = numbers
    types = [lhs, rhs]
    for side, t, c, b in (("lhs", lhs, contracting[0], batch[0]),
                          ("rhs", rhs, contracting[1], batch[1])):
        if not all(0 <= d < t.ndim for d in (*c, *b)):
            reject(TypeError, types,
                   f"dot_general requires {side} dimension numbers to be nonnegative and less than "
                   f"the number of axes of the {side} value, got {side}_batch of {b} and "
                   f"{side}_contracting of {c} for {side} of rank {t.ndim}",
                   help=f"{side} has {t.ndim} dimensions, counted from 0; `jnp.einsum` names them"
                        " by letters")
    if len(batch[0]) != len(batch[1]):
        reject(TypeError, types, f"dot_general requires equal numbers of lhs_batch and rhs_batch "
               f"dimensions, got lhs_batch {batch[0]} and rhs_batch {batch[1]}.",
               help="pair them: dimension_numbers=((lhs_contracting, rhs_contracting), "
                    "(lhs_batch, rhs_batch))")
    for word, pair in (("batch", batch), ("contracting", contracting)):
        for side, dims in zip(("lhs", "rhs"), pair, strict=True):
            if len(set(dims)) != len(dims):
                reject(TypeError, types, f"dot_general requires {side} {word} dimensions to be "
                       f"distinct, got {side}_{word} {dims}.", help="name each dimension once")
    for side, c, b in (("lhs", contracting[0], batch[0]), ("rhs", contracting[1], batch[1])):
        if set(c) & set(b):
            reject(TypeError, types, f"dot_general requires {side} batch dimensions to be "
                   f"disjoint from contracting dimensions, got {side}_batch {b} and "
                   f"{side}_contracting {c}.",
                   help="a dimension is either kept (batch) or summed (contracting); "
                        "`jnp.einsum` names them by letters")
    for text, (a, b) in (("lhs batch dimensions and rhs batch dimensions to have the same shape",
                          batch), ("contracting dimensions to have the same shape", contracting)):
        sizes = tuple(lhs.shape[d] for d in a), tuple(rhs.shape[d] for d in b)
        if sizes[0] != sizes[1]:
            reject(TypeError, types, f"dot_general requires {text}, got {sizes[0]} and {sizes[1]}.",
                   help="`jnp.swapaxes` or `reshape` brings dimensions that belong together to "
                        "one size")


def result_shape(lhs: Shape, rhs: Shape, numbers: DotNumbers) -> Shape | None:
    """The shape of the result; None where `check_dot` has to see whether the numbers fit."""
    (lc, rc), (lb, rb) = numbers
    m, n, batched = len(lhs), len(rhs), len(lb)
    if len(lc) != len(rc) or batched != len(rb):
        return None
    left, right = {*lb, *lc}, {*rb, *rc}
    if len(left) != batched + len(lc) or len(right) != len(left):
        return None
    for d, e in zip((*lb, *lc), (*rb, *rc), strict=True):
        if not (0 <= d < m and 0 <= e < n and lhs[d] == rhs[e]):
            return None
    shape = [lhs[d] for d in range(m) if d not in left]
    shape += [rhs[d] for d in range(n) if d not in right]
    return (*[lhs[d] for d in lb], *shape) if batched else tuple(shape)


_NUMBERS = frozenset(ALL_DTYPES)


@cached(1024)
def dtype_rank(dtype: np.dtype) -> tuple:
    """Order of dtypes in a product of two: complex, exponent, mantissa, bits, signed."""
    part = np.real(np.zeros((), dtype)).dtype if issubdtype(dtype, np.complexfloating) else dtype
    floating = issubdtype(part, np.floating)
    return (issubdtype(dtype, np.complexfloating), finfo(part).maxexp if floating else -1,
            finfo(part).nmant if floating else -1, bits(part),
            not issubdtype(part, np.unsignedinteger))


def bits(dtype: np.dtype) -> int:
    if dtype == np.bool_:
        return 1
    return finfo(dtype).bits if issubdtype(dtype, np.inexact) else iinfo(dtype).bits


def dot_dtype(name: str, lhs: ArrayType, rhs: ArrayType, preferred: Any) -> np.dtype:
    """The result dtype, as XLA has it: the wider operand's, or the preferred one."""
    if lhs.dtype is rhs.dtype and lhs.dtype in _NUMBERS and preferred in (None, lhs.dtype):
        return lhs.dtype
    a, b = dtype_rank(lhs.dtype), dtype_rank(rhs.dtype)
    if a == b and lhs.dtype != rhs.dtype:
        reject(TypeError, [lhs, rhs], f"{name} argument type error: {lhs.dtype}, {rhs.dtype}",
               help="convert one operand with `astype`; `jnp.matmul` promotes its operands")
    dtype = lhs.dtype if a >= b else rhs.dtype
    if preferred is None or dtype == preferred:
        return dtype
    preferred = np.dtype(preferred)
    if not issubdtype(dtype, np.floating) and bits(preferred) < bits(dtype):
        reject(TypeError, [lhs, rhs], "`preferred_element_type` must not be narrower than the "
               f"original type, got preferred_element_type of {preferred} for result type of "
               f"{dtype}.",
               help="leave preferred_element_type out, and convert the result with `astype`")
    return preferred


def dot_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                 params: dict[str, Any]) -> list[Entries | NamedSharding]:
    """The policy of products: batch, free lhs and free rhs dimensions keep their axes. Contracting
    dimensions must be whole, unless `out_sharding` says what becomes of the sum.
    """
    lhs, rhs = types
    (lc, rc), (lb, rb) = params["dimension_numbers"]
    wanted = params["out_sharding"]
    split_left, split_right = lhs.sharding.spec.partitions, rhs.sharding.spec.partitions
    left = tuple([split_left[d] for d in lc])
    right = tuple([split_right[d] for d in rc])
    if wanted is not None:
        if wanted.spec.unreduced:
            _check_unreduced(types, left, right, wanted)
        return [wanted]
    left_batch = tuple([split_left[d] for d in lb]) if lb else ()
    right_batch = tuple([split_right[d] for d in rb]) if rb else ()
    if left_batch != right_batch or left != right or left.count(None) != len(left):
        _check_consistent(types, left, right, left_batch, right_batch, lc, len(shapes[0]))
    lf, rf = free_dims(len(split_left), lc, lb), free_dims(len(split_right), rc, rb)
    return [(*[lhs.entries[d] for d in (*lb, *lf)], *[rhs.entries[d] for d in rf])]


def _check_consistent(types: Sequence[ArrayType], left: tuple, right: tuple, left_batch: tuple,
                      right_batch: tuple, contracting: Dims, ndim: int) -> None:
    """Raise unless specs of paired dimensions go together; warn where the result loses one."""
    lhs = types[0]
    label = f"operands are {short_list(types)}"
    fix = "bring one operand to the other's spec with `reshard`"
    if _differ(left_batch, right_batch):
        fail(ShardingTypeError,
             "dot_general requires lhs batch dimensions and rhs batch dimensions to have the "
             f"consistent sharding, got {left_batch} and {right_batch}.",
             code="sharding-conflict", label=label, help=fix)
    if _differ(left, right):
        fail(ShardingTypeError,
             "dot_general requires contracting dimensions to have consistent sharding, got "
             f"{left} and {right}.", code="sharding-conflict", label=label, help=fix)
    if any(a is not None and b is not None for a, b in zip(left, right, strict=True)):
        axes = ", ".join(repr(a) for d in contracting for a in lhs.entries[d])
        fail(ShardingTypeError,
             "Contracting dimensions are sharded and it is ambiguous how the output should be "
             "sharded. Please specify the output sharding via the `out_sharding` parameter. Got "
             f"lhs_contracting_spec={left} and rhs_contracting_spec={right}",
             code="ambiguous-contraction", label=label,
             notes=(f"each device along {axes} would hold a part of the sum",),
             help="say with `out_sharding` how the result is split (functions such as `matmul` and "
                  f"`einsum` take it); with {axes} as `unreduced` the sum is finished later")
    if any(a is None and b is not None for a, b in zip(left_batch, right_batch, strict=True)):
        warn(
            f"dot_general of {short_list(types)}: the lhs batch dimensions are not split as the "
            "rhs ones are, and the result follows lhs. Reshard lhs to the batch spec of rhs to "
            "keep the result split.")


def _differ(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return any(a is not None and b is not None and a != b
               for a, b in zip(left, right, strict=True))


def _check_unreduced(types: Sequence[ArrayType], left: tuple, right: tuple,
                     wanted: NamedSharding) -> None:
    """Refuse an `out_sharding` with unreduced axes other than those that split the contracting
    dimensions of both operands.
    """
    label = f"operands are {short_list(types)}"
    if left != right:
        fail(ShardingTypeError,
             "lhs and rhs contracting dims should be sharded identically when out_sharding "
             "provided to dot_general mentions unreduced_axes. Got "
             f"lhs_contracting_spec={left}, rhs_contracting_spec={right}",
             code="unreduced-result", label=label,
             help="`reshard` one operand so that both are split alike along what is contracted")
    summed = frozenset(a for p in left if p is not None
                       for a in (p if isinstance(p, tuple) else (p,)))
    if wanted.spec.unreduced != summed:
        fail(ShardingTypeError,
             "out_sharding's unreduced axes should be equal to the contracting specs. Got "
             f"unreduced axes={wanted.spec.unreduced} and contracting spec={left}",
             code="unreduced-result", label=label,
             help=f"write unreduced={{{', '.join(map(repr, sorted(summed)))}}} in out_sharding"
             if summed else "leave `unreduced` out of out_sharding: each device has the whole sum")


def dot_pending(op: Op, types: Sequence[ArrayType], params: dict[str, Any],
                unreduced: Sequence[frozenset], reduced: Sequence[frozenset]) -> tuple:
    """A pending sum cannot enter a product; that an operand is reduced does not show in it."""
    if any(unreduced):
        lhs, rhs = types[:2]
        fail(ShardingTypeError,
             f"lhs or rhs passed to {op.name} cannot be unreduced. Got lhs={lhs!r} and rhs={rhs!r}",
             code="unreduced-operand", label=f"operands are {short_list(types)}",
             help="finish the sum first, with `reshard` to a spec without `unreduced`")
    return frozenset(), frozenset()
