"""Interleaving: the rows of several parts in turn, instead of one part after the other.

A dimension may be made of parts: two batches, or queries, keys and values in one weight. If it is
split, a device's block is not a block of each part, so a reader of one part has to exchange rows:

    q0 q1 q2 q3 k0 k1 k2 k3    over 2 devices: q0..q3 on one, k0..k3 on the other
    q0 q1 k0 k1 q2 q3 k2 k3    interleaved in groups of two: each device has its block of q and k

What is computed from such a value row by row, or by a reduction, has its rows in that order, too;
before any other equation they are brought back into the usual order.

`Interleave` is the change as data; reordering.py makes it, seeds.py finds where.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ....ir.program import Program, Var
from ....ir.source.location import UNKNOWN, Location
from ....ir.source.wording import numbered
from ....ir.support.named_tuple import NamedTuple
from ...reasons.causes import where
from ...reasons.value_paths import inner_programs
from ..code.lines.statements import Edit
from .reordering import NONE, Walk
from .row_order import Order, Rows
from .written import written

INTERLEAVED = "passed interleaved"      # attribute of a program: the `Interleaved` of each change


@dataclass(frozen=True)
class Interleave:
    """Interleave the rows of parts: those that a line joins, or those of arguments, by position.

    at: the place of the line, () for arguments. dim, group: the dimension, and the rows of a group.
    counts: how many groups of each part are side by side. inside: the program that it is proposed
    for. location: of the line, or where a reshape cuts arguments into the parts.
    """
    at: tuple
    arguments: tuple[int, ...]
    dim: int
    group: int
    counts: tuple[int, ...]
    name: str = field(default="", compare=False)
    location: Location = field(default=UNKNOWN, compare=False)
    inside: Program | None = field(default=None, repr=False, compare=False)

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of the user's lines that make it; none if they cannot be told. (Arguments
        have to be passed with their rows in that order.)
        """
        walks: list[Walk] = []
        if self.inside is not None:
            self.made(self.inside, walks)
        return written([r for walk in walks for r in walk.replaced]) if all(
            walk.alone for walk in walks) else ()

    @property
    def text(self) -> str:
        if self.at:
            at = f" at {numbered('line', 'lines', [self.location.line])}" if (
                self.location.line) else ""
            return (f"join rows of the {len(self.counts)} parts side by side (stacked behind "
                    f"dimension {self.dim}), instead of one part behind the other,{at}")
        return self.text_for(self.name)

    def text_for(self, names: str) -> str:
        """The text, of several arguments."""
        return (f"keep {names} with rows of the {len(self.counts)} parts of dimension {self.dim} "
                "side by side, instead of one part behind the other")

    def of(self, arguments: Sequence[int]) -> Interleave:
        """This change, made to other arguments."""
        return Interleave(self.at, tuple(arguments), self.dim, self.group, self.counts, self.name,
                          self.location, self.inside)

    def made(self, program: Program, walks: list[Walk] | None = None) -> Program:
        """The program with the change. Its attribute `INTERLEAVED` says which arguments and results
        have interleaved rows. walks: where the walks over it are entered.
        """
        order, walks = Order(self.counts), [] if walks is None else walks
        if self.at:
            return _interleaved(program, self, order, walks)
        kept: dict[Var, Rows] = {program.invars[i]: {self.dim: self.group} for i in self.arguments}
        while True:
            walk = Walk(program, order, kept)
            walk.run()
            if not walk.pulled:
                break
            kept = _united(kept, walk.pulled)
        like = {(v.aval.shape, *rows.items()) for v, rows in kept.items()}
        results = {i: rows for i, a in enumerate(program.outvars)
                   if (rows := walk.rows_of(a)) and (a.aval.shape, *rows.items()) in like}
        new = walk.done([results.get(i, NONE) for i in range(len(program.outvars))])
        walks.append(walk)
        arguments = {i: kept[v] for i, v in enumerate(program.invars) if v in kept}
        new.attributes[INTERLEAVED] = (*program.attributes.get(INTERLEAVED, ()),
                                       Interleaved(order, arguments, results))
        return new


class Interleaved(NamedTuple):
    """The arguments and results of a program whose rows are interleaved, by position."""
    order: Order
    arguments: dict[int, Rows]
    results: dict[int, Rows]


def _united(one: Mapping[Var, Rows], other: Mapping[Var, Rows]) -> dict[Var, Rows]:
    return {v: {**one.get(v, NONE), **other.get(v, NONE)} for v in (*one, *other)}


def _interleaved(program: Program, change: Interleave, order: Order, walks: list[Walk]) -> Program:
    """The program, nested ones included, with what a line joins side by side."""
    eqns, joins = [], {}
    for n, eqn in enumerate(program.eqns):
        new = {}
        for (_, name, j), inner in inner_programs(eqn, n):
            made = _interleaved(inner, change, order, walks)
            if made is not inner:
                held = new.get(name, eqn.params[name])
                new[name] = made if j < 0 else (*held[:j], made, *held[j + 1:])
        eqns.append(eqn.replace(params={**eqn.params, **new}) if new else eqn)
        if eqn.op.name == "concatenate" and where(eqn.location) == change.at and (
                eqn.params["dimension"] == change.dim and tuple(
                    [a.aval.shape[change.dim] for a in eqn.invars]) == tuple(
                        [c * eqn.outvars[0].aval.shape[change.dim] // order.total
                         for c in change.counts])):
            joins[n] = {change.dim: change.group}
    if not joins and all(a is b for a, b in zip(eqns, program.eqns, strict=True)):
        return program
    within = program.replace(eqns=eqns)
    if not joins:
        return within
    walk = Walk(within, order, {})
    walk.parameters = set()
    walk.run(joins)
    walks.append(walk)
    return walk.done([NONE] * len(within.outvars))
