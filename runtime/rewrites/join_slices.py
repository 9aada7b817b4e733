"""Replaces a chain of slice writes, each of which copies the whole array, by one concatenation.

The gradient of `w[i]` for many i is a sum of arrays that are zero except for one row each, and a
concatenation of slices is a chain of ops that each write some rows over a copy of the rest
(ir/ops/movement/placing.py). Run one after the other, each of n slices copies the whole array.

While only one equation of the chain reads such a result, it is represented by rows of other arrays;
only the last result is written, so that n slices take time proportional to n.
"""
from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence

from ...ir.builder import ProgramBuilder
from ...ir.op import Op
from ...ir.ops.communication.collective import pvary_p
from ...ir.ops.derivatives import slice_along
from ...ir.ops.elementwise.arithmetic import add_any_p, add_p
from ...ir.ops.elementwise.convert import convert_element_type_p
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.padding import pad_p
from ...ir.ops.movement.placing import place_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.rewriting.unread import without_unread
from ...ir.shardings.normalized import unsharded
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import array_type

_SUMS = frozenset((add_p, add_any_p))
_PIECES = frozenset((broadcast_in_dim_p, concatenate_p, pad_p, pvary_p, slice_p))
_LOW, _HIGH = operator.attrgetter("low"), operator.attrgetter("high")


class Rows(NamedTuple):
    """Rows `low` to `high` of an array: those of `source` from `start` on."""
    low: int
    high: int
    source: Atom
    start: int = 0

    def part(self, low: int, high: int) -> Rows:
        return Rows(low, high, self.source, self.start + low - self.low)


class _Pending(NamedTuple):
    """An array that no equation computes yet: rows along a dimension, in order, with zeros between
    them. eqn: the one whose result it is. at: the position of that in the program.
    """
    dim: int
    rows: list[Rows]
    eqn: Equation
    at: int


def join_slices(program: Program) -> Program:
    """The pass: arrays put together slice by slice are concatenations."""
    ops = program.ops
    if place_p in ops or pad_p in ops and not ops.isdisjoint(_SUMS):
        return _Joining(program).program()
    return program


class _Joining:
    """One walk over a program. made: by value, the equation that computes it. pending: arrays that
    are not written yet. written: the replacement of each equation.
    """

    def __init__(self, program: Program) -> None:
        self.source = program
        self.made: dict[Atom, Equation] = {}
        self.pending: dict[Atom, _Pending] = {}
        self.written: list[Sequence[Equation]] = []
        self.reads = Counter([a for eqn in program.eqns for a in eqn.invars])
        self.reads.update(program.outvars)

    def program(self) -> Program:
        """The program after the walk; itself where nothing is put together slice by slice."""
        changed = False
        for at, eqn in enumerate(self.source.eqns):
            found = (self.placed(eqn) if eqn.op is place_p else
                     self.sum(eqn) if eqn.op in _SUMS else None)
            if found is None:
                for a in eqn.invars:
                    self.write(a)
                self.written.append((eqn,))
            else:
                changed = True
                self.pending[eqn.outvars[0]] = _Pending(*found, eqn, at)
                self.written.append(())
            for v in eqn.outvars:
                self.made[v] = eqn
        if not changed:
            return self.source
        outvars = self.source.outvars
        for a in outvars:
            self.write(a)
        return self.source.replace(eqns=without_unread(
            [eqn for eqns in self.written for eqn in eqns], outvars, _PIECES))

    # -- what arrays are made of -------------------------------------------------------------------

    def maker(self, x: Atom) -> Equation | None:
        return None if x.__class__ is Literal else self.made.get(x)

    def dimension(self, x: Atom) -> int | None:
        """The dimension along which an array is concatenated or padded with zeros, if it is."""
        if x in self.pending:
            return self.pending[x].dim
        eqn = self.maker(x)
        if eqn is None or eqn.op is concatenate_p:
            return None if eqn is None else eqn.params["dimension"]
        if eqn.op is not pad_p or not _is_zero(eqn.invars[1]):
            return None
        padded = [(d, c) for d, c in enumerate(eqn.params["padding_config"]) if any(c)]
        (d, (low, high, inside)), *others = padded or [(0, (-1, 0, 0))]
        return None if others or inside or low < 0 or high < 0 else d

    def read_once(self, x: Atom) -> bool:
        """Is an array read once? One that is padded may be padded again for others."""
        return self.reads[x] == 1 or x in self.made and self.made[x].op is pad_p

    def rows(self, x: Atom, d: int) -> list[Rows]:
        """The rows of an array along a dimension, zeros left out; it is pending no longer."""
        if self.dimension(x) != d:
            return self.slice(x, d)
        if x in self.pending:
            return self.pending.pop(x).rows
        eqn = self.made[x]
        if eqn.op is pad_p:
            source, low = eqn.invars[0], eqn.params["padding_config"][d][0]
            n = source.aval.shape[d]
            return [Rows(low, low + n, source)] if n else []
        found, low = [], 0
        for a in eqn.invars:
            found += [r._replace(low=low, high=low + r.high) for r in self.slice(a, d)]
            low += a.aval.shape[d]
        return found

    def slice(self, x: Atom, d: int) -> list[Rows]:
        """An array as rows of the array of which it is a slice, or as zeros."""
        self.write(x)
        eqn, n = self.maker(x), x.aval.shape[d]
        if eqn is not None and eqn.op is slice_p and eqn.params["strides"] is None:
            (source,) = eqn.invars
            if all([k == d or m == x.aval.shape[k] for k, m in enumerate(source.aval.shape)]):
                return [Rows(0, n, source, eqn.params["start_indices"][d])] if n else []
        while eqn is not None and eqn.op is pvary_p:
            eqn = self.maker(eqn.invars[0])
        zeros = eqn is not None and eqn.op is broadcast_in_dim_p and _is_zero(eqn.invars[0])
        return [Rows(0, n, x)] if n and not zeros else []

    # -- what is pending ---------------------------------------------------------------------------

    def sum(self, eqn: Equation) -> tuple[int, list[Rows]] | None:
        """The rows of a sum of two arrays, each of which is zero where the other is not."""
        x, y = eqn.invars
        d = self.dimension(x)
        if d is None or d != self.dimension(y) or not (self.read_once(x) and self.read_once(y)):
            return None
        before = self.pending.get(x), self.pending.get(y)
        less, more = sorted((self.rows(x, d), self.rows(y, d)), key=len)
        at = [bisect_left(more, r.low, key=_LOW) for r in less]
        if any([n and more[n - 1].high > r.low or n < len(more) and more[n].low < r.high
                for n, r in zip(at, less, strict=True)]):
            self.pending.update([(h.eqn.outvars[0], h) for h in before if h is not None])
            return None                                 # they stay pending
        for r in less:
            insort(more, r, key=_LOW)
        return d, more

    def placed(self, eqn: Equation) -> tuple[int, list[Rows]]:
        """The rows of an array over some of which others are written."""
        (source, base), params = eqn.invars, eqn.params
        d, low, start = params["dimension"], params["low"], params["start"]
        high = low + params["limit"] - start
        self.write(source)
        rows = self.rows(base, d) if self.read_once(base) else self.slice(base, d)
        first, last = bisect_right(rows, low, key=_HIGH), bisect_left(rows, high, key=_LOW)
        rows[first:last] = [
            *[r.part(r.low, low) for r in rows[first:last] if r.low < low],
            *[Rows(low, high, source, start)] * (low < high),
            *[r.part(high, r.high) for r in rows[first:last] if r.high > high]]
        return d, rows

    # -- what is written down ----------------------------------------------------------------------

    def write(self, x: Atom) -> None:
        """Write the pending updates of an array as a concatenation."""
        pending = self.pending.pop(x, None)
        if pending is None:
            return
        eqn, d = pending.eqn, pending.dim
        (out,), parts, at = eqn.outvars, [], 0
        t, shape = out.aval, out.aval.shape
        builder = ProgramBuilder(self.source.mesh, self.source.level)

        def emit(op: Op, *operands: Atom, **params: object) -> Var:
            return builder.emit(op, operands, params, location=eqn.location, reason=eqn.reason)[0]

        for r in [*pending.rows, None]:
            low, high = (shape[d], shape[d]) if r is None else (r.low, r.high)
            if low > at or r is None and not parts:
                zero = Literal(t.dtype.type(0), array_type(
                    (), t.dtype, t.weak_type, unsharded(0, t.mesh), memory_space=t.memory_space))
                parts.append(emit(
                    broadcast_in_dim_p, zero, shape=(*shape[:d], low - at, *shape[d + 1:]),
                    broadcast_dimensions=(), sharding=None))
            at = high
            if r is None:
                continue
            part = r.source
            if part.aval.shape[d] != high - low:
                part = emit(slice_p, part, **slice_along(shape, d, r.start, r.start + high - low))
            parts.append(part)
        if not t.weak_type and all([part.aval.weak_type for part in parts]):
            parts[0] = emit(convert_element_type_p, parts[0], new_dtype=t.dtype, weak_type=False,
                            sharding=None)              # the array written over was strong
        missing = t.varying.difference(*[part.aval.varying for part in parts])
        if missing:                                     # or varied over more axes
            parts[0] = emit(pvary_p, parts[0], axes=tuple(sorted(missing)))
        emit(concatenate_p, *parts, dimension=d)
        *eqns, last = builder.eqns
        assert last.outvars[0].aval == t, f"{eqn} would be {last.outvars[0].aval} instead of {t}"
        self.written[pending.at] = (*eqns, last.with_operands(last.invars, (out,)))


def _is_zero(x: Atom) -> bool:
    return isinstance(x, Literal) and not x.aval.shape and bool(x.val == 0)
