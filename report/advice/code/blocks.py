"""Rewrites of the user's code that work on each device's block before the exchange.

    NAME                  instead of                              written
    reduce first, between a reduction of what a gather is made to the same of the block, then psum
    narrow first          fewer bits of what that is made to      the gather of the same of it

What is computed from a gather is traced back element by element, through reshapes that preserve
blocks, and with values that are equal for all blocks and on all devices.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field

from ....ir.op import OPS
from ....ir.program import Atom, Equation, Literal, Var
from ....ir.rewriting.rewrite import Match, Rewrite
from ....ir.rules.rule import ELEMENTWISE
from .rewrites import REDUCTIONS, CodeChange, fit, over
from .shard_map_bodies import axis_names

_BETWEEN = 16            # equations from a value back to the gather that it is made of
_GATHERS = ("all_gather", "all_gather_invariant")
_SUMS = ("psum", "psum_invariant", "pmax", "pmin")


def behind(m: Match) -> list[Equation]:
    """The equations that a value is made by from a gather, as far as they are looked through."""
    found: dict[Var, Equation] = {}
    waiting = list(m.eqn.invars[:1])
    while waiting and len(found) < _BETWEEN:
        a = waiting.pop()
        eqn = None if isinstance(a, Literal) or a in found else m.maker(a)
        if eqn is None or isinstance(a, Literal):
            continue
        if eqn.op.name in _GATHERS:
            found[a] = eqn
        elif eqn.op.rule == ELEMENTWISE or eqn.op.name in ("reshape", "pvary"):
            found[a] = eqn
            waiting += eqn.invars
    return list(found.values()) if any(e.op.name in _GATHERS for e in found.values()) else []


@dataclass
class _Blocks:
    """Makes of blocks what is made of a gather. gather: that gather, once it has been met; known:
    by value the same of the block, and the dimension along which blocks lie; None of other values.
    """
    m: Match
    gather: Equation | None = None
    known: dict[Atom, tuple[Atom, int] | None] = field(default_factory=dict)

    def of(self, a: Atom) -> tuple[Atom, int] | None:
        if a not in self.known:
            eqn = None if isinstance(a, Literal) or len(self.known) > _BETWEEN else self.m.maker(a)
            self.known[a] = None if eqn is None else self.made(eqn)
        return self.known[a]

    def made(self, eqn: Equation) -> tuple[Atom, int] | None:
        if eqn.op.name in _GATHERS:
            return self.gathered(eqn)
        if eqn.op.name == "reshape":
            block = self.of(eqn.invars[0])
            return None if block is None else self.reshaped(eqn, *block)
        if eqn.op.rule != ELEMENTWISE and eqn.op.name != "pvary":
            return None
        parts = [self.of(a) for a in eqn.invars]
        found = {p[1] for p in parts if p is not None}
        if len(found) != 1:
            return None
        (d,) = found
        shape = next(p[0].aval.shape for p in parts if p is not None)
        operands = [self.alike(a, shape, d) if p is None else p[0]
                    for a, p in zip(eqn.invars, parts, strict=True)]
        given = [a for a in operands if a is not None]
        return None if len(given) < len(operands) else (
            self.m.emit(eqn.op, *given, **eqn.params), d)

    def gathered(self, eqn: Equation) -> tuple[Atom, int] | None:
        params, x = eqn.params, eqn.invars[0]
        if self.gather not in (None, eqn) or params["axis_index_groups"] is not None:
            return None
        self.gather, d = eqn, params["all_gather_dimension"]
        if not params["tiled"]:              # the dimension of which each device has one element
            one = (*x.aval.shape[:d], 1, *x.aval.shape[d:])
            x = self.m.emit(OPS["reshape"], x, new_sizes=one, dimensions=None, sharding=None)
        return x, d

    def reshaped(self, eqn: Equation, x: Atom, d: int) -> tuple[Atom, int] | None:
        before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
        major = math.prod(before[:d])
        # the dimension that is gathered stays one, or is the major part of one
        to = next((k for k, size in enumerate(after) if math.prod(after[:k]) == major
                   and size % before[d] == 0), None)
        if to is None or eqn.params["dimensions"] is not None:
            return None
        n = before[d] // x.aval.shape[d]
        sizes = tuple([size // n if k == to else size for k, size in enumerate(after)])
        return self.m.emit(eqn.op, x, **{**eqn.params, "new_sizes": sizes}), to

    def alike(self, a: Atom, shape: tuple[int, ...], d: int) -> Atom | None:
        """A value that is the same for all blocks, of a shape; None if it is not."""
        eqn = None if isinstance(a, Literal) else self.m.maker(a)
        if not a.aval.shape:
            return a if self.same(a) else None
        if eqn is None:
            return None
        if eqn.op.name == "pvary":
            x = self.alike(eqn.invars[0], shape, d)
            return None if x is None else self.m.emit(eqn.op, x, **eqn.params)
        if eqn.op.name != "broadcast_in_dim" or eqn.params.get("sharding") is not None:
            return None
        x, at = eqn.invars[0], eqn.params["broadcast_dimensions"]
        if d in at and x.aval.shape[at.index(d)] != 1 or not self.same(x):
            return None
        return self.m.emit(eqn.op, x, **{**eqn.params, "shape": shape})


    def same(self, atom: Atom) -> bool:
        """Is a value the same on all devices of the gather: a result of exchanges among these, or
        computed from such and numbers?
        """
        assert self.gather is not None
        axes, waiting = {*axis_names(self.gather)}, [atom]
        for _ in range(_BETWEEN):
            if not waiting:
                break
            a = waiting.pop()
            if isinstance(a, Literal):
                continue
            eqn = self.m.maker(a)
            if eqn is None or eqn.op.effect or eqn.op.subprograms or not eqn.invars:
                return False
            if eqn.op.name not in (*_GATHERS, *_SUMS):
                waiting += eqn.invars
            elif eqn.params.get("axis_index_groups") is not None or not axes <= {*axis_names(eqn)}:
                return False
        return not waiting


def _reduced_first_between(m: Match) -> Atom | None:
    """The same made of the block, reduced, and only that exchanged."""
    blocks = _Blocks(m)
    found = blocks.of(m.eqn.invars[0])
    if found is None or blocks.gather is None or found[1] not in m.axes:
        return None
    part = m.emit(m.eqn.op, found[0], **m.eqn.params)
    return fit(m, over(m, REDUCTIONS[m.eqn.op.name], part, blocks.gather.params["axis_name"]))


def _narrow_first(m: Match) -> Atom | None:
    blocks = _Blocks(m)
    found = blocks.of(m.eqn.invars[0])
    gather = blocks.gather
    if found is None or gather is None or found[1] != gather.params["all_gather_dimension"] or (
            m.eqn.outvars[0].aval.dtype.itemsize >= gather.invars[0].aval.dtype.itemsize):
        return None
    narrow = m.emit(m.eqn.op, found[0], **m.eqn.params)
    return fit(m, m.emit(gather.op, narrow, like=gather, **{**gather.params, "tiled": True}))


BLOCKS: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "reduce first, between", "out = reduce_sum|reduce_max|reduce_min value {axes}",
        _reduced_first_between,
        why="parts are reduced where they are, and only their results exchanged"),
        "reduce before the exchange instead of gathering", lambda m: ""),
    CodeChange(Rewrite(
        "narrow first", "out = convert_element_type value", _narrow_first,
        why="what is kept in fewer bits is exchanged in these"),
        "convert to fewer bits before the exchange instead of behind it", lambda m: ""),
)
