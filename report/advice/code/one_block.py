"""Rewrites of the user's code where a device reads one block of what it gathers.

    NAME                  instead of                            written
    own first             each device's block of what is made   what is made of its own block
                          of a gather
    smaller of one block  something smaller made of the one     the same made by the device that has
    first                 block that all read of a gather       it, and given to all

What is read as it is gathered is `one block` of rewrites.py.
"""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ....ir.program import Atom, Equation, Literal
from ....ir.rewriting.rewrite import Match, Rewrite
from .blocks import BETWEEN, GATHERS, Blocks, size_of
from .rewrites import CodeChange, broadcast, by_device, fit, own_part, sources
from .shard_map_bodies import axis_names


def _own_first(m: Match) -> Atom | None:
    """Of what is made of a gather, each device's own block, made of that block."""
    blocks = Blocks(m)
    maker = m.maker(m.value)
    found = None if maker is None or maker.op.name in GATHERS else blocks.of(m.value)
    if found is None or blocks.gather is None or (
            found[0].aval.shape != m.eqn.outvars[0].aval.shape):
        return None
    block, d = found
    n, names = blocks.count, axis_names(blocks.gather)
    for dim, a in enumerate(m.eqn.invars[1:]):
        start = by_device(m, a, n, names)
        wanted = np.arange(n) * block.aval.shape[d] if dim == d else 0
        if start is None or (start != wanted).any():
            return None
    return fit(m, block)


@dataclass
class _OneBlock:
    """Makes of each device's own block what is made of the one block that all read of a gather.
    read: gather and device, once they have been met; known: by value what is made so, None of
    what is not.
    """
    m: Match
    read: tuple[Equation, int] | None = None
    known: dict[Atom, Atom | None] = field(default_factory=dict)

    def of(self, a: Atom) -> Atom | None:
        if a not in self.known:
            self.known[a] = None
            eqn = None if isinstance(a, Literal) or len(self.known) > BETWEEN else self.m.maker(a)
            self.known[a] = None if eqn is None else self.made(eqn)
        return self.known[a]

    def made(self, eqn: Equation) -> Atom | None:
        """What an equation makes of the own block; None if it reads what devices have otherwise."""
        if eqn.op.name in ("slice", "dynamic_slice"):
            gather = self.m.maker(eqn.invars[0])
            if gather is not None and gather.op.name in GATHERS:
                return self.taken(eqn, gather)
        if (eqn.op.collective is not None or eqn.op.effect or eqn.op.subprograms
                or eqn.op.multiple_results):
            return None
        parts = [self.of(a) for a in eqn.invars]
        if not any(p is not None for p in parts) or self.read is None:
            return None
        same = Blocks(self.m, self.read[0]).same
        if not all(p is not None or same(a) for p, a in zip(parts, eqn.invars, strict=True)):
            return None
        return self.m.emit(eqn.op, *[a if p is None else p for p, a in zip(
            parts, eqn.invars, strict=True)], **eqn.params)

    def taken(self, eqn: Equation, gather: Equation) -> Atom | None:
        found = sources(self.m, eqn, gather)
        if found is None or len(set(found[0])) != 1:
            return None
        read = gather, found[0][0]
        if self.read not in (None, read):
            return None
        self.read = read
        return own_part(self.m, eqn, gather, found[1])


def _one_smaller_first(m: Match) -> Atom | None:
    """What is made of one device's block, made there, and only that given to all."""
    if m.program.op_names.isdisjoint(GATHERS):
        return None
    blocks = _OneBlock(m)
    value = blocks.made(m.eqn)
    if value is None or blocks.read is None:
        return None
    gather, block = blocks.read
    if size_of(m.eqn.outvars[0]) >= size_of(gather.invars[0]):
        return None
    return fit(m, broadcast(m, value, block, axis_names(gather)))


ONE_BLOCK: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "own first", "out = dynamic_slice value *starts", _own_first,
        why="what each device takes is made of its own block, and nothing is exchanged"),
        "compute each device's own block of its own block instead of gathering", lambda m: ""),
    CodeChange(Rewrite(
        "smaller of one block first",
        "out = dot_general|reduce_sum|reduce_max|reduce_min *operands", _one_smaller_first,
        why="what is smaller is given to all"),
        "compute what is smaller of the one block that is read, and exchange that instead",
        lambda m: ""),
)
