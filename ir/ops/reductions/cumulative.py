"""Cumulative reductions: sums, products, maxima, minima and log-sum-exps of prefixes.

All are scans with one combining operator, and their factor kind says which (`k:scan(sum)`): a split
scan is a local one and an exchange of block totals. Explicit typing wants the axis unsharded.

The derivatives of all but the sum are those of a scan of values and tangents as a tree of pairs,
JAX's, so that ties, infinities and NaN are shared out as there.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...dtypes import iinfo, issubdtype, long_name, loop_dtype
from ...facts import MAY_BE_NAN, READS_FUSED, DeviceCost, Sizes, Types
from ...op import OPS, Evaluator, LocalizeContext, Op, Sample, defop
from ...types import ArrayType, Entries, Shape, short_list
from ..derivatives import (
    add,
    const,
    convert,
    eq,
    exp,
    in_place,
    is_complex,
    log1p,
    lt,
    max_,
    min_,
    mul,
    ne,
    real,
    select_n,
    shift,
    slice_along,
    sub,
    type_of,
    whole_along,
    zeros_like,
)
from ..elementwise.declaration import values
from ..emitting import Emitting

F32, I32, C64 = np.float32, np.int32, np.complex64
Arrays = tuple[Any, ...]          # of one shape


def _infer(name: str, accepted: type[np.generic] = np.number) -> Callable[..., Any]:
    def infer(x: ArrayType, *, axis: int, reverse: bool) -> tuple[Shape, Any]:
        if axis < 0:
            fail(ValueError, "XLA operations do not allow negative axes", code="axis-range",
                 help=f"count from the front: axis={axis + x.ndim}")
        if axis >= x.ndim:
            fail(ValueError, f"axis {axis} is out of bounds for array of shape {x.shape}",
                 code="axis-range", help=f"the operand has {x.ndim} dimensions, counted from 0")
        if not issubdtype(x.dtype, accepted) and not x.entries[axis]:    # `_explicit` comes first
            fail(TypeError, f"{name} does not accept dtype {long_name(x.dtype)}. Accepted dtypes "
                 f"are subtypes of {accepted.__name__}.", code="dtype-not-accepted",
                 help="convert first, with `astype`")
        return x.shape, x.dtype
    return infer


def _rule(kind: str) -> Callable[..., str]:
    def rule(operand_shapes: tuple[Shape, ...], result_shapes: tuple[Shape, ...], *, axis: int,
             reverse: bool) -> str:
        names = " ".join("k" if d == axis else f"b{d}" for d in range(len(operand_shapes[0])))
        return f"{names} -> {names} | k:scan({kind})"
    return rule


def _explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape], params: dict[str, Any]
              ) -> list[Entries]:
    (x,), axis = types, params["axis"]
    if x.entries[axis]:
        fail(ShardingTypeError, "Input should be unsharded over the axis being reduced. Got input "
             f"type={x} and axis={axis}", code="axis-sharded",
             label=f"the operand is {short_list(types)}",
             notes=(f"each element of a `{op.name}` depends on all elements before it",),
             help=f"`reshard` the operand so that dimension {axis} is whole")
    return [x.entries]


# -- derivatives and batching ---------------------------------------------------------------------

def associative_scan(combine: Callable[..., Arrays], parts: Arrays, axis: int) -> Arrays:
    """Arrays combined with all that is before them along `axis`, in a tree of pairs."""
    n = type_of(parts[0]).shape[axis]
    if n < 2:
        return parts
    odd = associative_scan(combine, combine(_part(parts, axis, 0, n - 1, 2),
                                            _part(parts, axis, 1, n, 2)), axis)
    first = _part(parts, axis, 0, 1)
    even = first if n == 2 else _concatenated(first, combine(
        _part(odd, axis, 0, (n - 1) // 2), _part(parts, axis, 2, n, 2)), axis)
    return tuple(add(_spread(x, axis, 0, n), _spread(y, axis, 1, n))
                 for x, y in zip(even, odd, strict=True))


def _part(parts: Arrays, axis: int, start: int, end: int, stride: int = 1) -> Arrays:
    params = slice_along(type_of(parts[0]).shape, axis, start, end, stride)
    return tuple(OPS["slice"].bind(x, **params) for x in parts)


def _concatenated(before: Arrays, after: Arrays, axis: int) -> Arrays:
    return tuple(OPS["concatenate"].bind(x, y, dimension=axis)
                 for x, y in zip(before, after, strict=True))


def _spread(x: Any, axis: int, start: int, n: int) -> Any:
    """Zeros of size n along `axis`, with x at every other place from `start` on."""
    t = type_of(x)
    end = n - start - (2 * t.shape[axis] - 1)
    config = tuple((start, end, 1) if d == axis else (0, 0, 0) for d in range(t.ndim))
    return OPS["pad"].bind(x, const(0, x), padding_config=config)


def product_of_others(x: Any, axis: int) -> Any:
    """At each element, the product of the others along `axis`; right also where some are zero."""
    x = whole_along(x, axis)
    before, after = (shift(cumprod_p.bind(x, axis=axis, reverse=reverse), axis,
                           -1 if reverse else 1, 1) for reverse in (False, True))
    return mul(before, after)


def _jvp(op: Callable[[], Op], combine: Callable[..., tuple[Any, Any, Any]]
         ) -> Callable[..., Any]:
    """combine: (x, y) -> (what is made of them, how that depends on x, and on y)."""
    def pairs(before: Arrays, after: Arrays) -> Arrays:
        (x, g), (y, h) = before, after
        out, a, b = combine(x, y)
        return out, add(mul(g, a), mul(h, b))

    def jvp(operands: Sequence[Any], tangents: Sequence[Any], *, axis: int, reverse: bool
            ) -> tuple[Any, Any]:
        (x,), (g,) = operands, tangents
        out = op().bind(x, axis=axis, reverse=reverse)
        if g is None:
            return out, None
        parts: Arrays = tuple(whole_along(v, axis) for v in (x, g))
        if reverse:
            parts = tuple(OPS["rev"].bind(v, dimensions=(axis,)) for v in parts)
        tangent = associative_scan(pairs, parts, axis)[1]
        return out, OPS["rev"].bind(tangent, dimensions=(axis,)) if reverse else tangent
    return jvp


def _choice(of: Callable[[Any, Any], Any]) -> Callable[[Any, Any], tuple[Any, Any, Any]]:
    """Which of the two was taken; half of each where they are equal."""
    def combine(x: Any, y: Any) -> tuple[Any, Any, Any]:
        out = of(x, y)
        from_x, from_y = (convert(eq(v, out), out.dtype) for v in (x, y))
        half = mul(const(0.5, out), mul(from_x, from_y))
        return out, sub(from_x, half), sub(from_y, half)
    return combine


def _log_sum(x: Any, y: Any) -> tuple[Any, Any, Any]:
    """The slopes are those of `logaddexp`, with infinity in place of itself."""
    out = logaddexp(x, y)
    top, first, second = (_without_infinity(v) for v in (out, x, y))
    return out, exp(sub(first, top)), exp(sub(second, top))


def logaddexp(x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y)), of complex numbers by the one whose real part is larger."""
    less = lt(*(real(v) if is_complex(v) else v for v in (x, y)))
    larger, smaller = select_n(less, x, y), select_n(less, y, x)
    gap = sub(smaller, larger)
    found = add(larger, log1p(exp(gap)))
    return select_n(ne(gap, gap), found, add(x, y))              # infinities, and NaN


def _without_infinity(x: Any) -> Any:
    key = real(x) if is_complex(x) else x
    return select_n(eq(key, const(np.inf, key)), x, zeros_like(x))


def _sum_transpose(ct: Any, x: Any, *, axis: int, reverse: bool) -> list[Any]:
    return [cumsum_p.bind(ct, axis=axis, reverse=not reverse)]


# -- evaluation, on blocks too --------------------------------------------------------------------

def _evaluate(function: np.ufunc) -> Evaluator:
    """The evaluator of a scan by a ufunc's `accumulate`."""
    def evaluate(lead: int, x: np.ndarray, *, axis: int, reverse: bool) -> np.ndarray:
        place = lead + axis
        if reverse:
            x = np.flip(x, place)
        out = function.accumulate(x, axis=place, dtype=loop_dtype(x.dtype))
        out = out.astype(x.dtype, copy=False)
        return np.flip(out, place) if reverse else out

    def prepared(lead: int, shapes: Sequence[Shape], dtypes: Sequence[np.dtype],
                 params: dict[str, Any]) -> Callable[..., np.ndarray] | None:
        place, kind = lead + params["axis"], dtypes[0]
        if params["reverse"] or loop_dtype(kind) != kind:
            return None
        return lambda x: function.accumulate(x, place, kind)
    return Evaluator(evaluate, prepare=prepared)


_BLOCK = 16                    # elements that a compiler scans one after the other


def _flops(operands: Types, results: Types, params: dict[str, Any]) -> float:
    (x,) = operands
    n = x.shape[params["axis"]]
    return float(x.size // max(n, 1) * _running(n))


def _running(n: int) -> int:
    """Operations of running sums of n elements: within blocks, over the blocks, and of both."""
    if n <= _BLOCK:
        return n * (n - 1)
    return n * _BLOCK + _running(-(-n // _BLOCK))


def _scratch(read: Sizes, written: Sizes, operands: Types, params: dict[str, Any]) -> int:
    """The operand, padded to whole blocks."""
    n = operands[0].shape[params["axis"]]
    return read[0] * -(-n // _BLOCK) * _BLOCK // n if n > _BLOCK and n % _BLOCK else 0


def _in_parts(operands: Types, params: dict[str, Any]) -> bool:
    """Does it scan several blocks?"""
    return operands[0].shape[params["axis"]] > _BLOCK


def _localize(op: Callable[[], Op], combine: str, identity: Callable[[np.dtype], Any]
              ) -> Callable[[LocalizeContext], list[Any]]:
    """A scan of blocks: scan each, exchange the totals, combine each block with those before it.

    combine: the op of two arrays, "" where only the scan itself can combine them.
    """
    def localize(context: LocalizeContext) -> list[Any]:
        out = Emitting(context)
        axis, reverse = context.params["axis"], context.params["reverse"]
        local = context.emit(op(), list(context.operands), context.params)[0]
        axes = context.axes_of_factor.get(context.rule.operands[0][axis][0], ())
        if not axes:
            return [local]
        n, dtype = context.local_operand_shapes[0][axis], context.operand_types[0].dtype
        if n == 0:
            return [local]
        edge = out.part(local, axis, 0, 1) if reverse else out.part(local, axis, n - 1, n)
        totals = out.gathered(edge, axes)
        shape = totals.aval.shape
        me = out.broadcast(context.block_offset(axes, 1), shape, ())
        before = out.call("gt" if reverse else "lt", out.iota(shape, 0), me)
        totals = out.select(before, totals, out.full(identity(dtype), shape, dtype))
        whole = context.emit(op(), [totals], {"axis": 0, "reverse": False})[0]
        carry = out.without(out.part(whole, 0, shape[0] - 1, shape[0]), 0)
        rank = len(local.aval.shape)
        carry = out.broadcast(carry, local.aval.shape, range(rank))
        if combine:
            return [out.call(combine, carry, local)]
        shape = (1, *local.aval.shape)
        rows = [out.broadcast(x, shape, range(1, rank + 1)) for x in (carry, local)]
        pair = context.emit(op(), [out.call("concatenate", *rows, dimension=0)],
                            {"axis": 0, "reverse": False})[0]
        return [out.without(out.part(pair, 0, 1, 2), 0)]
    return localize


def _extreme(lowest: bool) -> Callable[[np.dtype], Any]:
    def of(dtype: np.dtype) -> Any:
        if issubdtype(dtype, np.integer):
            return iinfo(dtype).min if lowest else iinfo(dtype).max
        return -np.inf if lowest else np.inf
    return of


def _samples(dtypes: Sequence[Any]) -> Callable[[], list[Sample]]:
    return lambda: [
        Sample((values((4, 6), dtype, -2, 2),), {"axis": axis, "reverse": reverse},
               grad=np.dtype(dtype).kind in "fc")
        for dtype in dtypes for axis, reverse in ((0, False), (1, True), (1, False))]


# -- the ops --------------------------------------------------------------------------------------

def _cumulative(name: str, doc: str, kind: str, *, accepted: Any = np.number, combine: str,
                identity: Callable[[np.dtype], Any], **fields: Any) -> Op:
    """Declare the running reduction of this kind (of factor).

    accepted: the operand's dtypes. combine: the op that merges two elements, "" where this op alone
    can. identity: what it leaves alone, by dtype. fields: others of `defop`.
    """
    def op() -> Op:
        return OPS[name]

    return defop(
        name, doc=doc, infer=_infer(name, accepted), rule=_rule(kind), explicit=_explicit,
        pending="indexed",
        batch=in_place(name, "axis"), facts=(READS_FUSED, MAY_BE_NAN),
        cost=DeviceCost(_flops, scratch=_scratch, in_parts=_in_parts),
        localize=_localize(op, combine, identity),
        **fields)


cumsum_p = _cumulative(
    "cumsum", "The sums of all elements up to each one along `axis`, or from it if `reverse`.",
    "sum",
    linear=((0,),), jvp="linear", transpose=_sum_transpose,
    evaluate=_evaluate(np.add), combine="add", identity=lambda dtype: 0,
    samples=_samples((F32, I32, C64)))
cumprod_p = _cumulative(
    "cumprod", "The products of all elements up to each one along `axis`.", "prod",
    jvp=_jvp(lambda: cumprod_p, lambda x, y: (mul(x, y), y, x)),
    evaluate=_evaluate(np.multiply), combine="mul", identity=lambda dtype: 1,
    samples=_samples((F32, I32, C64)))
cummax_p = _cumulative(
    "cummax", "The maxima of all elements up to each one along `axis`.", "max",
    jvp=_jvp(lambda: cummax_p, _choice(max_)),
    evaluate=_evaluate(np.maximum), combine="max", identity=_extreme(True),
    samples=_samples((F32, I32)))
cummin_p = _cumulative(
    "cummin", "The minima of all elements up to each one along `axis`.", "min",
    jvp=_jvp(lambda: cummin_p, _choice(min_)),
    evaluate=_evaluate(np.minimum), combine="min", identity=_extreme(False),
    samples=_samples((F32, I32)))


def _log_sum_exp(lead: int, x: np.ndarray, *, axis: int, reverse: bool) -> np.ndarray:
    """Real numbers by a scan with a running maximum, complex ones element by element."""
    if x.dtype.kind != "c":
        return _scan_log_sum_exp(lead, x, axis=axis, reverse=reverse)
    place = lead + axis
    parts = np.moveaxis(np.flip(x, place) if reverse else x, place, 0)
    out = np.empty_like(parts)
    for i, part in enumerate(parts):
        out[i] = part if i == 0 else _log_add_exp(out[i - 1], part)
    out = np.moveaxis(out, 0, place)
    return np.flip(out, place) if reverse else out


def _log_add_exp(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    swap = np.real(x) < np.real(y)
    larger, smaller = np.where(swap, y, x), np.where(swap, x, y)
    return larger + np.log1p(np.exp(smaller - larger))


_scan_log_sum_exp = _evaluate(np.logaddexp).function

cumlogsumexp_p = _cumulative(
    "cumlogsumexp", "The log of the sum of exp of all elements up to each one along `axis`.",
    "logaddexp", accepted=np.inexact,
    jvp=_jvp(lambda: cumlogsumexp_p, _log_sum),
    evaluate=_log_sum_exp, combine="", identity=lambda dtype: -np.inf,
    samples=_samples((F32,)))
