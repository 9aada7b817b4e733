"""Replaces a chain of slice writes, each of which copies the whole array, by one concatenation.

The gradient of `w[i]` for many i is a sum of arrays that are zero except for one row each, and a
concatenation of slices is a chain of ops that each write some rows over a copy of the rest
(ir/ops/movement/placing.py). Run one after the other, each of n slices copies the whole array.
"""
from __future__ import annotations

from collections.abc import Iterable

from ...ir.ops.communication.collective import pvary_p
from ...ir.ops.elementwise.convert import convert_element_type_p
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.padding import pad_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom, Equation, Literal
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites
from ...ir.shardings.normalized import unsharded
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import array_type

MOST = 1024             # slices of one array


class Rows(NamedTuple):
    """Rows `low` to `high` of an array: those of `source` from `start` on, or zeros if it is None.
    """
    low: int
    high: int
    source: Atom | None
    start: int = 0

    def part(self, low: int, high: int) -> Rows:
        return Rows(low, high, self.source, self.start + low - self.low)


def _dimension(m: Match, x: Atom) -> int | None:
    """The dimension along which an array is concatenated or padded with zeros, if it is."""
    eqn = m.maker(x)
    if eqn is None or eqn.op is concatenate_p:
        return None if eqn is None else eqn.params["dimension"]
    if eqn.op is not pad_p or not _is_zero(eqn.invars[1]):
        return None
    padded = [(d, c) for d, c in enumerate(eqn.params["padding_config"]) if any(c)]
    (d, (low, high, inside)), *others = padded or [(0, (-1, 0, 0))]
    return None if others or inside or low < 0 or high < 0 else d


def _rows(m: Match, x: Atom, d: int) -> list[Rows]:
    """The parts of an array along a dimension, in order."""
    eqn, n = m.maker(x), x.aval.shape[d]
    if eqn is not None and eqn.op is concatenate_p and eqn.params["dimension"] == d:
        found, low = [], 0
        for a in eqn.invars:
            high = low + a.aval.shape[d]
            _, _, source, start = _slice(m, a, d)
            found.append(Rows(low, high, source, start))
            low = high
        return found
    if eqn is not None and eqn.op is pad_p and _dimension(m, x) == d:
        low = eqn.params["padding_config"][d][0]
        high = low + eqn.invars[0].aval.shape[d]
        return [Rows(0, low, None), Rows(low, high, eqn.invars[0]), Rows(high, n, None)]
    return [_slice(m, x, d)]


def _slice(m: Match, x: Atom, d: int) -> Rows:
    """An array as rows of the array of which it is a slice, or as zeros."""
    eqn, shape = m.maker(x), x.aval.shape
    if eqn is None or eqn.op not in (slice_p, pvary_p, broadcast_in_dim_p):
        return Rows(0, shape[d], x)
    if eqn.op is slice_p and eqn.params["strides"] is None:
        (source,) = eqn.invars
        if all([k == d or n == shape[k] for k, n in enumerate(source.aval.shape)]):
            return Rows(0, shape[d], source, eqn.params["start_indices"][d])
    while eqn is not None and eqn.op is pvary_p:
        eqn = m.maker(eqn.invars[0])
    return Rows(0, shape[d], None if eqn is not None and _repeats_zero(eqn) else x)


def _is_zero(x: Atom) -> bool:
    return isinstance(x, Literal) and not x.aval.shape and bool(x.val == 0)


def _repeats_zero(eqn: Equation) -> bool:
    return eqn.op is broadcast_in_dim_p and _is_zero(eqn.invars[0])


def _sum(m: Match) -> Atom | None:
    """The sum of two arrays, each of which is zero where the other is not."""
    d = _dimension(m, m.x)
    if d is None or d != _dimension(m, m.y):
        return None
    both = [r for x in (m.x, m.y) for r in _rows(m, x, d) if r.source is not None]
    return _concatenated(m, d, both)


def _placed(m: Match) -> Atom | None:
    """Rows written over those of an array."""
    d, low = m.dimension, m.low
    high = low + m.limit - m.start
    rows = _rows(m, m.base, d) if m.alone(("base",)) else [_slice(m, m.base, d)]
    rest = [r.part(a, b) for r in rows if r.source is not None
            for a, b in ((r.low, min(r.high, low)), (max(r.low, high), r.high)) if a < b]
    return _concatenated(m, d, [*rest, Rows(low, high, m.source, m.start)])


def _concatenated(m: Match, d: int, rows: Iterable[Rows]) -> Atom | None:
    """The concatenation of these rows, with zeros between them; None if rows overlap."""
    (out,), parts, at = m.eqn.outvars, [], 0
    shape, t = out.aval.shape, out.aval
    full = sorted([r for r in rows if r.low < r.high], key=lambda r: r.low)
    if len(full) > MOST or any([a.high > b.low for a, b in zip(full, full[1:], strict=False)]):
        return None
    for r in [*full, Rows(shape[d], shape[d], None)]:
        if r.low > at:
            zero = Literal(t.dtype.type(0), array_type(
                (), t.dtype, t.weak_type, unsharded(0, t.mesh), memory_space=t.memory_space))
            parts.append(m.emit(
                broadcast_in_dim_p, zero, shape=(*shape[:d], r.low - at, *shape[d + 1:]),
                broadcast_dimensions=(), sharding=None))
        at, source = r.high, r.source
        if source is not None and source.aval.shape[d] != r.high - r.low:
            begin, end = [0] * len(shape), list(shape)
            begin[d], end[d] = r.start, r.start + r.high - r.low
            source = m.emit(slice_p, source, start_indices=tuple(begin), limit_indices=tuple(end),
                            strides=None)
        if source is not None:
            parts.append(source)
    if not t.weak_type and all([part.aval.weak_type for part in parts]):
        parts[0] = m.emit(convert_element_type_p, parts[0], new_dtype=t.dtype, weak_type=False,
                          sharding=None)            # the array written over was strong
    missing = t.varying.difference(*[part.aval.varying for part in parts])
    if missing:                                     # or varied over more axes
        parts[0] = m.emit(pvary_p, parts[0], axes=tuple(sorted(missing)))
    return m.emit(concatenate_p, *parts, dimension=d)


JOIN_SLICES = Rewrites(
    Rewrite("sum-of-padded", "out = add|add_any x y", _sum, single_use=("x", "y"),
            why="arrays that are zero elsewhere are concatenated, which copies each of them once"),
    Rewrite("placed-rows", "out = place source base {dimension, start, limit, low}", _placed,
            why="rows are concatenated with the rest, which is then copied once for all of them"),
    also_drops=(broadcast_in_dim_p, concatenate_p, pad_p, pvary_p, slice_p))
