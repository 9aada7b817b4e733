"""Arrays that are put together slice by slice: one concatenation instead of a copy for each.

The gradient of `w[i]` for many i is a sum of arrays that are zero but for one row each, and a
concatenation of slices is a chain of ops that each write some rows over a copy of the rest
(ir/ops/movement/placing.py). One after the other, n slices take n times as long as all together. (A
pass, not a rewrite: which rows an array has of which others is followed along chains of any
length.)
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...ir.ops.communication.collective import pvary_p
from ...ir.ops.elementwise.convert import convert_element_type_p
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.padding import pad_p
from ...ir.ops.movement.placing import place_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.rewriting.unread import drop_dead
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import array_type, unsharded
from .equations import makes_zeros, of_shape, repeating

MOST = 1024             # slices of one array


class Rows(NamedTuple):
    """Rows from `low` up to `high`: those of `source` from `start` on; zeros if it is None."""
    low: int
    high: int
    source: Atom | None
    start: int

    def part(self, low: int, high: int) -> Rows:
        return Rows(low, high, self.source, self.start + low - self.low)


class RowMap(NamedTuple):
    """What an array has along a dimension, in order. many: whether it takes several equations."""
    dim: int
    rows: list[Rows]
    many: bool


def join_slices(program: Program) -> Program:
    """Let the program concatenate what it puts together slice by slice."""
    reads = Counter([a for e in program.eqns for a in e.invars if type(a) is Var])
    reads.update([a for a in program.outvars if type(a) is Var])
    known: dict[Atom, RowMap] = {}
    blank: set[Atom] = set()
    merged: set[Atom] = set()           # whose rows are among those of another one
    for eqn in program.eqns:
        name = eqn.op.name
        found: RowMap | None = None
        if eqn.op is pad_p:
            found = _padded(eqn)
        elif eqn.op is place_p:
            base = eqn.invars[1]
            below = known.get(base) if reads[base] == 1 else None     # type: ignore[index]
            found = _placed(eqn, below, base in blank)
            if below is not None and found is not None and found.dim == below.dim:
                merged.add(base)
        elif name in ("add", "add_any"):
            a, b = eqn.invars
            if a in known and b in known and a is not b and (
                    reads[a] == 1 == reads[b]):                       # type: ignore[index]
                found = _added(known[a], known[b])
                if found is not None:
                    merged |= {a, b}
        elif makes_zeros(eqn) or name == "pvary" and eqn.invars[0] in blank:
            blank.add(eqn.outvars[0])
        if found is not None and len(found.rows) <= MOST:
            known[eqn.outvars[0]] = found
    roots = {v for v, x in known.items() if x.many and v not in merged}
    if not roots:
        return program
    eqns: list[Equation] = []
    for eqn in program.eqns:
        out = eqn.outvars[0] if eqn.outvars else None
        if out in roots:
            _concatenate(eqns, eqn, known[out])                       # type: ignore[index]
        else:
            eqns.append(eqn)
    return drop_dead(program.replace(eqns=eqns))


def _padded(eqn: Equation) -> RowMap | None:
    """Of a `pad` with zeros at the ends of one dimension."""
    x, fill = eqn.invars
    config = eqn.params["padding_config"]
    dims = [d for d, c in enumerate(config) if any(c)]
    if type(fill) is not Literal or fill.val != 0 or len(dims) != 1:
        return None
    (d,) = dims
    low, high, inside = config[d]
    n = x.aval.shape[d]
    if inside or low < 0 or high < 0:
        return None
    rows = [Rows(0, low, None, 0), Rows(low, low + n, x, 0),
            Rows(low + n, low + n + high, None, 0)]
    return RowMap(d, [r for r in rows if r.low < r.high], False)


def _placed(eqn: Equation, below: RowMap | None, blank: bool) -> RowMap:
    """Of rows that are written over an array, whose rows are known or are its own."""
    source, base = eqn.invars
    d, start, limit, low = (eqn.params[k] for k in ("dimension", "start", "limit", "low"))
    high = low + limit - start
    rows = below.rows if below is not None and below.dim == d else [
        Rows(0, base.aval.shape[d], None if blank else base, 0)]
    cut = [p.part(a, b) for p in rows for a, b in (
        (p.low, min(p.high, low)), (max(p.low, high), p.high)) if a < b]
    if low < high:
        cut.append(Rows(low, high, source, start))
    return RowMap(d, sorted(cut, key=lambda p: p.low), True)


def _added(a: RowMap, b: RowMap) -> RowMap | None:
    """Of a sum of arrays of which all rows but those of one are zero."""
    if a.dim != b.dim:
        return None
    full = sorted([p for p in (*a.rows, *b.rows) if p.source is not None], key=lambda p: p.low)
    rows: list[Rows] = []
    at, end = 0, a.rows[-1].high
    for p in full:
        if p.low < at:
            return None                 # both have something there
        if p.low > at:
            rows.append(Rows(at, p.low, None, 0))
        rows.append(p)
        at = p.high
    if at < end:
        rows.append(Rows(at, end, None, 0))
    return RowMap(a.dim, rows, True)


def _concatenate(eqns: list[Equation], eqn: Equation, row_map: RowMap) -> None:
    """Append what computes the result of the equation from its rows."""
    (out,) = eqn.outvars
    d, parts = row_map.dim, []
    for p in row_map.rows:
        shape = _resized(out.aval.shape, d, p.high - p.low)
        if p.source is None:
            t = array_type(shape, out.aval.dtype, out.aval.weak_type,
                           unsharded(len(shape), out.aval.mesh),
                           memory_space=out.aval.memory_space)
            part = Var(t)
            zero = Literal(t.dtype.type(0), array_type((), t.dtype, t.weak_type,
                                                       unsharded(0, t.mesh),
                                                       memory_space=t.memory_space))
            eqns.append(repeating(zero, part, eqn.location))
            parts.append(part)
        elif p.source.aval.shape[d] == p.high - p.low:
            parts.append(p.source)
        else:
            part = Var(of_shape(p.source.aval, shape))
            begin, end = [0] * len(shape), list(shape)
            begin[d], end[d] = p.start, p.start + p.high - p.low
            eqns.append(Equation(slice_p, (p.source,), (part,), {
                "start_indices": tuple(begin), "limit_indices": tuple(end), "strides": None},
                eqn.location))
            parts.append(part)
    if not out.aval.weak_type and all([part.aval.weak_type for part in parts]):
        cast = Var(parts[0].aval.update(weak_type=False))       # what was written over was strong
        eqns.append(Equation(convert_element_type_p, (parts[0],), (cast,), {
            "new_dtype": cast.aval.dtype, "weak_type": False, "sharding": None}, eqn.location))
        parts[0] = cast
    missing = out.aval.varying.difference(*[part.aval.varying for part in parts])
    if missing:                             # of what was written over
        cast = Var(of_shape(out.aval, parts[0].aval.shape))
        eqns.append(Equation(pvary_p, (parts[0],), (cast,), {"axes": tuple(sorted(missing))},
                             eqn.location))
        parts[0] = cast
    eqns.append(Equation(concatenate_p, parts, (out,), {"dimension": d}, eqn.location))


def _resized(shape: Sequence[int], d: int, n: int) -> tuple[int, ...]:
    return (*shape[:d], n, *shape[d + 1:])
