"""Halo exchange: how slices, paddings and windows along a split dimension get their rows.

`rows_needed` fetches the source rows from which a device computes its part of the result, by the
slices and permutations that halo_plan.py plans. Rows beyond the ends of the source are zero;
`masked` fills them otherwise.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...op import LocalizeContext
from ...program import Atom
from ...rules.factor import HALO, Factor
from ..emitting import INT32, Emitting, literal
from .halo_plan import Exchange, Piece, exchange
from .row_exchange_plan import plain


def plan_of(factor: Factor, devices: int, source: int, result: int, permutes: bool = False
            ) -> Exchange | None:
    """The exchange for a halo factor split over so many devices, given the whole sizes. permutes:
    as of `exchange`.
    """
    if not factor.reach or source % devices or result % devices:
        return None
    part = result // devices
    valid = None if factor.operator == "ring" else factor.valid or (0, source)
    step, lowest = part * factor.stride, factor.offset
    highest = lowest + (part - 1) * factor.stride + factor.reach - 1
    apart, offset = factor.spread, lowest + factor.spread - 1           # to round up
    if step % apart == 0:
        lowest, highest = offset // apart, highest // apart
        return exchange(devices, source // devices, step // apart, lowest, highest - lowest + 1,
                        valid, permutes)
    if factor.stride != 1:
        return None
    rows = max([(i + highest) // apart - (i + offset) // apart + 1
                for i in range(0, devices * step, step)])
    return exchange(devices, source // devices, step, offset, rows, valid, permutes, apart)


def split_halos(context: LocalizeContext) -> dict[int, tuple[str, ...]]:
    """The dimensions of the first operand that are split halo factors, with their axes."""
    found = {}
    for d, dims in enumerate(context.rule.operands[0]):
        factor = context.rule.factors[dims[0]] if len(dims) == 1 else None
        if factor is not None and (factor.kind == HALO or factor.reach):
            axes = context.axes_of_factor.get(dims[0], ())
            if axes:
                found[d] = axes
    return found


class Rows:
    """The rows that this device needs along one dimension. first: an int32 scalar, the first of
    them in the whole source; count: how many; devices: along the axes."""

    def __init__(self, out: Emitting, x: Atom, dim: int, axes: tuple[str, ...], factor: Factor,
                 source: int, result: int) -> None:
        plan = plan_of(factor, out.size(axes), source, result, out.context.permutes)
        assert plan is not None, f"no exchange for {factor} over {axes}"
        self.out, self.dim, self.axes, self.plan, self.factor = out, dim, axes, plan, factor
        self.ring = factor.operator == "ring"
        self.index = out.context.block_offset(axes, 1)
        self.devices = out.size(axes)
        self.count = plan.rows
        self.x = self._assembled(x)

    @property
    def first(self) -> Atom:
        """int32: the source row of the first row."""
        plan, out = self.plan, self.out
        if plan.apart == 1:
            return self._affine(plan.step, plan.offset)
        lift = max(-plan.first(0), 0)                   # the division is of positive numbers
        row = out.call("div", self._affine(plan.step, plan.offset + lift * plan.apart),
                       literal(plan.apart, INT32))
        return out.call("sub", row, literal(lift, INT32)) if lift else row

    @property
    def lead(self) -> int | Atom:
        """Where the first position that this device wants is among the rows, put as far apart as
        they lie, after `spread - 1` empty positions: a number, or int32 where devices differ.
        """
        plan, out, spread = self.plan, self.out, self.factor.spread
        if plan.apart == 1:
            return self.factor.offset + spread - 1 - plan.offset * spread
        lift = max(-plan.first(0), 0)
        return out.call("rem", self._affine(plan.step, plan.offset + lift * plan.apart),
                        literal(plan.apart, INT32))

    def from_lead(self, x: Atom, dim: int, count: int) -> Atom:
        """`count` positions from `lead` on, along a dimension of x."""
        lead = self.lead
        return (self.out.part(x, dim, lead, lead + count) if isinstance(lead, int)
                else self.out.part_from(x, dim, lead, count))

    def masked(self, fill: Any, valid: tuple[int, int]) -> Atom:
        """The rows, with `fill` (a rank-0 atom) in place of those that are not source rows
        `valid[0]` to `valid[1]` (not included)."""
        out, shape, plan = self.out, self.x.aval.shape, self.plan
        last = plan.first(self.devices - 1) + self.count
        if valid[0] <= plan.first(0) and last <= valid[1]:
            return self.x
        places = out.call("add", out.iota((self.count,), 0),
                          out.broadcast(self.first, (self.count,), ()))
        places = out.minus(places, literal(valid[0], INT32))
        inside = out.broadcast(out.inside(places, valid[1] - valid[0]), shape, (self.dim,))
        return out.select(inside, self.x, out.broadcast(fill, shape, ()))

    # -- int32 scalars of the device ---------------------------------------------------------------
    def _affine(self, factor: int, offset: int) -> Atom:
        x = self.index
        if factor != 1:
            x = self.out.call("mul", x, literal(factor, INT32))
        return self.out.call("add", x, literal(offset, INT32)) if offset else x

    def _home(self) -> tuple[Atom, Atom]:
        """The block in which the needed rows begin, and the row of it; both counted on from a
        multiple of the block, so that the division is of positive numbers."""
        plan, out = self.plan, self.out
        lift = -(-abs(plan.offset) // plan.block) if plan.offset < 0 else 0
        first = self._affine(plan.step, plan.offset + lift * plan.block)
        block = literal(plan.block, INT32)
        home = out.call("sub", out.call("div", first, block), literal(lift, INT32))
        return home, out.call("rem", first, block)

    # -- pieces ------------------------------------------------------------------------------------
    def _assembled(self, x: Atom) -> Atom:
        """The rows of this device, from what it has and what it receives; exactly those wanted, in
        order.
        """
        plan, out = self.plan, self.out
        if plan.direct:
            return out.call("exchange_rows", x, axis_name=self.axes, axis_size=out.size(self.axes),
                            dimension=self.dim, parts=(plan.block,), wanted=plain(plan.direct))
        if plan.halos:
            return self._between_halos(x)
        if plan.shared:
            return self._from_shared(x)
        pieces = [self._piece(x, t, piece) for t, piece in enumerate(plan.pieces)]
        if len(pieces) == 1:
            return pieces[0]
        buffer = out.call("concatenate", *pieces, dimension=self.dim)
        skipped = plan.block - plan.pieces[0].width
        if plan.aligned is not None:
            start = plan.aligned - skipped
            return out.part(buffer, self.dim, start, start + plan.rows)
        _, begin = self._home()
        return self._rows_from(buffer, out.call("sub", begin, literal(skipped, INT32)), plan.rows)

    def _between_halos(self, x: Atom) -> Atom:
        """The rows out of the block and its halos, with zeros where there are no such."""
        plan, out, pieces = self.plan, self.out, []
        first, *_, last = (*plan.halos, plan.halos[-1])
        begins = [i * (plan.step - plan.block) + plan.offset for i in (0, self.devices - 1)]
        start = first.distance * plan.block + first.start
        end = last.distance * plan.block + last.end
        lacking = max(start - min(begins), 0), max(max(begins) + plan.rows - end, 0)
        for halo in plan.halos:
            pieces.append(out.part(x, self.dim, halo.start, halo.end))
            if halo.distance:
                pairs = tuple([(i + halo.distance, i) for i in range(self.devices)
                               if 0 <= i + halo.distance < self.devices])
                pieces[-1] = out.call("ppermute", pieces[-1], axis_name=self.axes, perm=pairs)
        edges = [[out.full(0, self._shape(x, n), x.aval.dtype)] if n else [] for n in lacking]
        pieces = [*edges[0], *pieces, *edges[1]]
        buffer = pieces[0] if len(pieces) == 1 else out.call(
            "concatenate", *pieces, dimension=self.dim)
        at = plan.offset - start + lacking[0]
        if plan.step == plan.block:
            return out.part(buffer, self.dim, at, at + plan.rows)
        return self._rows_from(buffer, self._affine(plan.step - plan.block, at), plan.rows)

    def _from_shared(self, x: Atom) -> Atom:
        """The rows out of the blocks that they lie in, which are this device's own but for what
        comes by the permutations.
        """
        plan, out, zero = self.plan, self.out, literal(0, x.aval.dtype)
        last = plan.first(self.devices - 1) + plan.rows
        ends = plan.first(0) < 0 or last > self.devices * plan.block
        received = []
        for each in plan.shared:
            got = out.call("ppermute", out.part(x, self.dim, each.start, each.end),
                           axis_name=self.axes, perm=each.pairs)
            config = [(0, 0, 0)] * len(x.aval.shape)
            config[self.dim] = (each.start, plan.block - each.end, 0)
            received.append(got if each.end - each.start == plan.block else out.call(
                "pad", got, zero, padding_config=tuple(config)))
        blocks = []
        for t in range(len(plan.shared[0].takers)):
            block = x
            if ends:                            # zeros where no device has rows
                own = [i for i in range(self.devices) if plan.first(i) // plan.block + t == i]
                block = out.full(0, x.aval.shape, x.aval.dtype)
                block = out.select(self._is_one_of(own), x, block) if own else block
            for each, got in zip(plan.shared, received, strict=True):
                if each.takers[t]:
                    block = out.select(self._is_one_of(each.takers[t]), got, block)
            blocks.append(block)
        buffer = blocks[0] if len(blocks) == 1 else out.call(
            "concatenate", *blocks, dimension=self.dim)
        return self._rows_from(buffer, self._home()[1], plan.rows)

    def _is_one_of(self, devices: Sequence[int]) -> Atom:
        """bool: is this device one of these?"""
        found = [self.out.call("eq", self.index, literal(i, INT32)) for i in devices]
        while len(found) > 1:
            found = [*found[2:], self.out.call("or", found[0], found[1])]
        return found[0]

    def _rows_from(self, x: Atom, start: Atom, count: int) -> Atom:
        return self.out.part_from(x, self.dim, start, count)

    def _piece(self, x: Atom, t: int, piece: Piece) -> Atom:
        """One piece of the buffer that rows are cut from: the rows of block t after the home block,
        selected from this device's own block where that is the one, else received.
        """
        own = None if piece.own == "none" else self._own_part(x, piece)
        if piece.own == "all" and own is not None:
            return own
        received = (self._received(x, piece) if piece.rounds
                    else self.out.full(0, self._shape(x, piece.width), x.aval.dtype))
        if own is None:
            return received
        home, _ = self._home()
        block = self.out.call("add", home, literal(t, INT32))
        if self.ring:
            devices = literal(self.out.size(self.axes), INT32)
            block = self.out.call("rem", block, devices)
        is_own = self.out.call("eq", block, self.index)
        return self.out.select(is_own, own, received)

    def _shape(self, x: Atom, rows: int) -> tuple[int, ...]:
        return tuple(rows if d == self.dim else n for d, n in enumerate(x.aval.shape))

    def _own_part(self, x: Atom, piece: Piece) -> Atom:
        plan = self.plan
        if len(plan.pieces) == 1:
            if plan.aligned is not None:
                return self.out.part(x, self.dim, plan.aligned, plan.aligned + piece.width)
            return self._rows_from(x, self._home()[1], piece.width)
        start = plan.block - piece.width if piece.at_end else 0
        return self.out.part(x, self.dim, start, start + piece.width)

    def _received(self, x: Atom, piece: Piece) -> Atom:
        """The rows of a piece that come from other devices: a permutation in each round, of which
        this device takes that of its turn, and zeros for rows that nobody sends.
        """
        out = self.out
        total: Atom | None = None
        for each in piece.rounds:
            slope, start = each.start
            if slope:
                sent = self._rows_from(x, self._affine(slope, start), piece.sent)
            else:
                sent = out.part(x, self.dim, start, start + piece.sent)
            got = out.call("ppermute", sent, axis_name=self.axes, perm=each.pairs)
            if total is None:
                total = got
            else:
                _, begin = self._home()
                here = out.call("eq", out.call("div", begin, literal(self.plan.step, INT32)),
                                literal(each.turn, INT32))
                total = out.select(here, got, total)
        assert total is not None
        missing = piece.width - piece.sent
        if not missing:
            return total
        nothing = out.full(0, self._shape(x, missing), x.aval.dtype)
        parts = [nothing, total] if piece.at_end else [total, nothing]
        return out.call("concatenate", *parts, dimension=self.dim)


def rows_needed(context: LocalizeContext, x: Atom, dim: int, axes: Sequence[str],
                positions: int | None = None) -> Rows:
    """The rows of block `x` of the first operand that this device needs along `dim`.

    positions: of the whole result that read them; None where they are those of its `dim`.
    """
    factor = context.rule.factors[context.rule.operands[0][dim][0]]
    if positions is None:
        positions = context.result_types[0].shape[dim]
    return Rows(Emitting(context), x, dim, tuple(axes), factor,
                context.operand_types[0].shape[dim], positions)
