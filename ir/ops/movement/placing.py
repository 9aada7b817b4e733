"""place and roll: rows of one array over rows of another, at positions known while tracing.

Concatenations of slices (a shift, a roll, a stencil) become chains of these before propagation
(partitioner/preparation/to_place.py): base and source are then split alike, and a device needs only
the rows that cross the border of its block. A source of another size than the base is held whole,
and each device writes those of its rows that lie in its block.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...facts import REARRANGED, SPLICED
from ...inference.pending import refuse
from ...kernels.device_dimensions import lead_sizes, with_lead
from ...op import LocalizeContext, Sample, defop
from ...padded import Padded, PaddedContext
from ...types import ArrayType, Shape
from ..communication.halo_exchange import rows_needed, split_halos
from ..derivatives import in_front, in_place
from ..emitting import INT32, Emitting, literal
from ..rules import reject, rule_text


def _infer(source: ArrayType, base: ArrayType, *, dimension: int, start: int, limit: int, low: int
           ) -> tuple:
    d = dimension
    rest = [s[:d] + s[d + 1:] for s in (source.shape, base.shape)]
    fits = (rest[0] == rest[1] and 0 <= start <= limit <= source.shape[d]
            and 0 <= low and low + limit - start <= base.shape[d])
    if not fits or source.dtype != base.dtype:
        reject(TypeError, [source, base], f"place of rows {start} to {limit} of dimension {d} at "
               f"row {low} does not fit: {source} over {base}")
    return base.shape, base.dtype, base.weak_type


def _rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *, dimension: int, start: int,
          limit: int, low: int) -> str:
    """A halo along the dimension if source and base have one size there; else the source is whole,
    and each device writes the rows of its block.
    """
    dims = [f"d{d}" for d in range(len(results[0]))]
    source = list(dims)
    if operands[0][dimension] == results[0][dimension]:
        kinds = [f"d{dimension}:halo({start - low},1,1,{start},{limit})"]
    else:
        source[dimension] = "s"
        kinds = [f"d{dimension}:indexed(own)", "s!:replicate"]
    return rule_text([source, dims], [dims], kinds)


def _evaluate(lead: int, source: np.ndarray, base: np.ndarray, *, dimension: int, start: int,
              limit: int, low: int) -> np.ndarray:
    out = np.array(with_lead(base, lead, lead_sizes(lead, (source, base))))
    front = (slice(None),) * (lead + dimension)
    out[(*front, slice(low, low + limit - start))] = source[(*front, slice(start, limit))]
    return out


def _padded(context: PaddedContext) -> list[Padded]:
    """Rows keep their places, whatever follows the last."""
    source, base = context.operands
    d, along = context.params["dimension"], context.rule.results[0][context.params["dimension"]]
    if source.shape[d] != base.shape[d]:
        source = context.cut(source, d)
    (result,) = context.by_factors([source, base], safe=along)
    if result.is_padded(d) and base.size(d) == result.size(d):
        result = Padded(result.atom, result.shape,
                        (*result.fills[:d], base.fills[d], *result.fills[d + 1:]))
    return [result]


def _localize(context: LocalizeContext) -> list[Any]:
    """Each device writes those rows of the source that lie in its block of the base, found by their
    place; of a split source the neighbours' rows are fetched.
    """
    out = Emitting(context)
    source, base = context.operands
    d, start, limit, low = (context.params[k] for k in ("dimension", "start", "limit", "low"))
    axes = context.axes_of_factor.get(context.rule.operands[1][d][0], ())
    if not axes:
        return context.emit(place_p, [source, base], context.params)
    shape, count = base.aval.shape, limit - start
    offset = context.block_offset(axes, shape[d])
    places = out.call("add", out.iota((shape[d],), 0), out.broadcast(offset, (shape[d],), ()))
    places = out.minus(places, literal(low, INT32))
    if d in split_halos(context):
        rows = source if start == low else rows_needed(context, source, d, axes).x
    elif count == 1:                        # wherever it goes
        rows = out.broadcast(out.without(out.part(source, d, start, limit), d), shape,
                             [e for e in range(len(shape)) if e != d])
    else:
        highest = out.full(limit - 1, (), INT32)
        rows = out.rows(source, d, out.call(
            "clamp", literal(start, INT32),
            out.call("add", places, out.full(start, places.aval.shape, INT32)), highest))
    inside = (out.inside(places, count) if low else                   # else none is before it
              out.call("lt", places, out.full(count, places.aval.shape, INT32)))
    mask = out.broadcast(inside, shape, (d,))
    return [out.select(mask, rows, base)]


def _samples() -> list[Sample]:
    def sample(source: Sequence[int], base: Sequence[int], **params: int) -> Sample:
        x, y = (np.arange(np.prod(s), dtype=np.float32).reshape(s) for s in (source, base))
        return Sample((x, -1 - y), params, grad=False)
    return [
        sample((4, 6), (4, 6), dimension=1, start=0, limit=5, low=1),
        sample((4, 6), (4, 6), dimension=0, start=3, limit=4, low=0),
        sample((12, 2), (12, 2), dimension=0, start=2, limit=12, low=0),
        sample((1, 6), (4, 6), dimension=0, start=0, limit=1, low=3),
        sample((3, 6), (8, 6), dimension=0, start=1, limit=3, low=3),
    ]


def _roll_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *, dimension: int,
               shift: int) -> str:
    dims = [f"d{d}" for d in range(len(results[0]))]
    n = results[0][dimension]
    return rule_text([dims], [dims], [f"d{dimension}:halo({-shift % n if n else 0},1,1,ring)"])


def _roll_padded(context: PaddedContext) -> list[Padded]:
    """All rows further on, and those that come in at the beginning over them."""
    (x,), d = context.operands, context.params["dimension"]
    size = max(x.size(d), context.sizes[0][d])
    if size == x.shape[d]:
        return context.by_factors()
    for e in range(len(x.shape)):
        if e != d:
            x = context.resized(x, e, max(x.size(e), context.sizes[0][e]))
    n = x.shape[d]
    shift = context.params["shift"] % n
    rest = context.moved(x, d, -shift, size)
    front = context.moved(x, d, n - shift, size)
    fills = (*x.fills[:d], None, *x.fills[d + 1:])
    return [Padded(context.call("place", front, rest, dimension=d, start=0, limit=shift, low=0),
                   x.shape, fills)]


def _roll_localize(context: LocalizeContext) -> list[Any]:
    (x,), d = context.operands, context.params["dimension"]
    for axes in split_halos(context).values():
        return [rows_needed(context, x, d, axes).x]
    return context.emit(roll_p, [x], context.params)


roll_p = defop(
    "roll", doc="The rows of x, each `shift` further on, the last ones in front.",
    infer=lambda x, *, dimension, shift: (x.shape, x.dtype), rule=_roll_rule, pending=refuse,
    linear=((0,),), jvp="linear",
    transpose=lambda ct, x, *, dimension, shift: [
        roll_p.bind(ct, dimension=dimension, shift=-shift)],
    batch=in_place("roll", "dimension"),
    evaluate=lambda lead, x, *, dimension, shift: np.roll(x, shift, lead + dimension),
    arithmetic=False, facts=(REARRANGED, SPLICED), padded=_roll_padded, localize=_roll_localize,
    jax="roll_rows",
    samples=lambda: [
        Sample((np.arange(24, dtype=np.float32).reshape(4, 6),), {"dimension": d, "shift": s},
               grad=False)
        for d, s in ((0, 1), (0, -1), (1, 4), (1, 3), (0, 7))])

place_p = defop(
    "place", doc="Operand 1 with rows start to limit of operand 0 written from row low on.",
    infer=_infer, rule=_rule, pending=refuse,
    batch=in_front("place", "dimension"),
    evaluate=_evaluate, arithmetic=False, facts=(REARRANGED, SPLICED), padded=_padded,
    localize=_localize,
    jax="place_rows",
    samples=_samples)
