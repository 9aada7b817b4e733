"""Rewrites of the user's code that work on each device's block before the exchange.

    NAME                   instead of                                 written
    smaller first          computing less from a gathered value       computing it, then the gather
    narrow first           casting such a value, or what was sent,    the cast, then the exchange
                           to fewer bits
    take first             taking some of what is computed of a sum   some of what each device adds,
                           over devices or of what is sent on,        or sends, then the exchange
                           element by element

What is computed from a gather is traced back through every op along whose factor blocks can be
worked on one by one, or with totals or rows of others, with values that are equal on all devices.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....ir.meshes.mesh_axes import group_size
from ....ir.op import OPS
from ....ir.program import Atom, Equation, Literal, Var
from ....ir.rewriting.rewrite import Match, Rewrite
from ....ir.rules.factor import PASS, REDUCE
from ....ir.rules.rule import FactorRule
from ....partitioner.choice.costs import can_split_into
from ....partitioner.factors import rule_info
from .on_blocks import OnBlocks, own_place, varying_alike
from .rewrites import (
    REDUCTIONS,
    Before,
    CodeChange,
    MadeOf,
    fit,
    is_elementwise,
    over,
    parts_of_operands,
    varying_as,
)
from .varying_axes import is_invariant

GATHERS = ("all_gather", "all_gather_invariant")
SUMS = ("psum", "psum_invariant")
_SENT = (*SUMS, "pmax", "pmin", "ppermute")


def behind(m: Match) -> list[Equation]:
    """The equations by which a value is computed from an exchange or a concatenation, as far as the
    rewrites look through them.
    """
    found: dict[Var, Equation] = {}
    waiting = list(m.eqn.invars)
    while waiting and len(found) < MadeOf.MOST:
        a = waiting.pop()
        eqn = None if isinstance(a, Literal) or a in found else m.maker(a)
        if eqn is None or isinstance(a, Literal) or eqn.op.subprograms:
            continue
        found[a] = eqn
        if eqn.op.collective is None:
            waiting += eqn.invars
    known = any(e.op.collective is not None or e.op.name == "concatenate" for e in found.values())
    return list(found.values()) if known else []


class Blocks(MadeOf[tuple[Atom, int]]):
    """Computes from blocks what a program computes from gathered values, by the factor rules of the
    equations in between: for each value its block, and the dimension along which blocks lie.

    gather: the gather, once one has been met (all are over the same axes). cut: the values that
    all devices have of which blocks have been taken, each with its dimension and the size of a
    block. equals: by such a value, what `equal` found. exchanges: do blocks read others, as those
    of a scan or of windows do? Then it takes more than the same expression of a block.
    """

    def __init__(self, m: Match, gather: Equation | None = None) -> None:
        super().__init__(m)
        self.gather = gather
        self.cut: list[tuple[Atom, int, int]] = []
        self.equals: dict[Atom, Atom] = {}
        self.exchanges = False

    def made(self, eqn: Equation) -> tuple[Atom, int] | None:
        """The block of what an equation computes, from the blocks of its operands; None if there is
        none.
        """
        if eqn.op.name in GATHERS:
            return self.gathered(eqn)
        if eqn.op.name == "pvary":
            block = self.of(eqn.invars[0])
            return None if block is None else (self.m.emit(eqn.op, block[0], **eqn.params),
                                               block[1])
        if eqn.op.multiple_results:
            return None
        found = self.factor(eqn)
        if found is None:
            return None
        rule, f = found
        (dims,) = rule.results
        to = next((d for d, own in enumerate(dims) if own[:1] == (f,)), None)
        if to is None or rule.factors[f].kind != PASS and not self.exchanged(eqn, rule, f):
            return None
        values = self.of_blocks(eqn, rule, f)
        return None if values is None else (values[0], to)

    def reduced(self, eqn: Equation) -> tuple[Atom, str] | None:
        """What an equation computes from blocks if it reduces them, or takes what some of them
        have, and how: sum, max or min.
        """
        found = self.factor(eqn)
        if found is None:
            return None
        (rule, f), how = found, f"reduce_{found[0].factors[found[1]].operator}"
        if rule.factors[f].kind != REDUCE and not (
                rule.factors[f].leaves_sum and self.exchanged(eqn, rule, f)):
            return None
        values = self.of_blocks(eqn, rule, f) if how in REDUCTIONS else None
        return None if values is None else (values[0], how)

    def factor(self, eqn: Equation) -> tuple[FactorRule, int] | None:
        """The rule of an equation, and the factor along which its operands are in blocks."""
        if self.m.program.op_names.isdisjoint(GATHERS):
            return None
        parts, rule = parts_of_operands(eqn, self.of)
        if rule is None:
            return None
        # of several, such as the rows and columns of a product, the first; others stay whole
        f = next((f for i, p in enumerate(parts) if p is not None
                  for f in rule.operands[i][p[1]][:1]), None)
        if f is None:
            return None
        factor = rule.factors[f]
        return None if factor.blocked or factor.size % self.count else (rule, f)

    def exchanged(self, eqn: Equation, rule: FactorRule, f: int) -> bool:
        """Does the op itself exchange what blocks along a factor need of each other?"""
        factor = rule.factors[f]
        if factor.kind == PASS or factor.kind == REDUCE and f"reduce_{factor.operator}" in (
                REDUCTIONS):
            return False
        shapes = [a.aval.shape for a in (*eqn.invars, *eqn.outvars)]
        return eqn.op.localize is not None and not any(
            n % self.count for shape, dims in zip(shapes, (*rule.operands, *rule.results),
                                                  strict=True)
            for n, own in zip(shape, dims, strict=True) if f in own) and can_split_into(
                rule_info(rule), shapes, f, self.count)

    def of_blocks(self, eqn: Equation, rule: FactorRule, f: int) -> list[Atom] | None:
        """The results of the equation applied to blocks along a factor."""
        operands: list[Atom] = []
        for a, dims in zip(eqn.invars, rule.operands, strict=True):
            cut = [d for d, own in enumerate(dims) if f in own]
            own = None if len(cut) > 1 or any(dims[d][0] != f for d in cut) else self.part(
                a, cut[0] if cut else None)
            if own is None:
                return None
            operands.append(own)
        shapes = [tuple([n // (self.count if f in own else 1) for n, own in zip(
            v.aval.shape, dims, strict=True)]) for v, dims in zip(
                eqn.outvars, rule.results, strict=True)]
        if self.exchanged(eqn, rule, f):
            assert self.gather is not None and eqn.op.localize is not None
            self.exchanges = True
            values = eqn.op.localize(OnBlocks(self.m, self.gather.axes, eqn, rule, f, operands,
                                              shapes))
        else:
            operands = varying_alike(self.m, operands)
            params = eqn.params if eqn.op.resize is None else eqn.op.resize(
                eqn.params, tuple([a.aval.shape for a in operands]), tuple(shapes))
            made = self.m.emit(eqn.op, *operands, **params)
            values = made if eqn.op.multiple_results else [made]
        return values if [v.aval.shape for v in values] == shapes else None

    def part(self, a: Atom, d: int | None) -> Atom | None:
        """The block of an operand along a dimension (None: the whole operand); None if there is
        none.
        """
        block = self.of(a)
        if block is not None and d is not None:
            return block[0] if block[1] == d else None
        return self.block_of_equal(a, d)

    @property
    def count(self) -> int:
        """How many blocks there are."""
        assert self.gather is not None
        return group_size(self.gather.invars[0].aval.mesh, self.gather.axes)

    def gathered(self, eqn: Equation) -> tuple[Atom, int] | None:
        params, x = eqn.params, eqn.invars[0]
        if params.get("axis_index_groups") is not None or (
                self.gather is not None and self.gather.axes != eqn.axes):
            return None
        self.gather, d = eqn, params["all_gather_dimension"]
        if not params["tiled"]:              # the dimension of which each device has one element
            one = (*x.aval.shape[:d], 1, *x.aval.shape[d:])
            x = self.m.emit(OPS["reshape"], x, new_sizes=one, dimensions=None, sharding=None)
        return x, d

    def block_of_equal(self, a: Atom, d: int | None) -> Atom | None:
        """The block along a dimension (None: the whole value) of a value that is the same on all
        devices; None if it is not.
        """
        eqn = None if isinstance(a, Literal) else self.m.maker(a)
        if d is not None and eqn is not None and eqn.op.name == "pvary":
            x = self.block_of_equal(eqn.invars[0], d)
            return None if x is None else self.m.emit(eqn.op, x, **eqn.params)
        if not self.same(a):
            return None
        if d is None:
            return self.equal(a)
        shape = tuple([n // self.count if k == d else n for k, n in enumerate(a.aval.shape)])
        if eqn is not None and eqn.op.name == "broadcast_in_dim":
            x, at = eqn.invars[0], eqn.params["broadcast_dimensions"]
            if d not in at or x.aval.shape[at.index(d)] == 1:
                return self.m.emit(eqn.op, self.equal(x), **{**eqn.params, "shape": shape})
        return self.own(a, d, shape)

    def equal(self, a: Atom) -> Atom:
        """A value that all devices have, of what is reduced of blocks where it is reduced of what
        is gathered.
        """
        if a not in self.equals:
            self.equals[a] = a
            eqn = None if isinstance(a, Literal) or len(self.equals) > self.MOST else (
                self.m.maker(a))
            if eqn is not None and not eqn.op.multiple_results and (
                    eqn.op.collective is None and not eqn.op.subprograms):
                self.equals[a] = self._equal(a, eqn)
        return self.equals[a]

    def _equal(self, a: Atom, eqn: Equation) -> Atom:
        found = self.reduced(eqn)
        if found is not None and self.gather is not None:
            return over(self.m, REDUCTIONS[found[1]], found[0], self.gather.axes)
        operands = [self.equal(v) for v in eqn.invars]
        if all(now is v for now, v in zip(operands, eqn.invars, strict=True)):
            return a
        return self.m.emit(eqn.op, *varying_alike(self.m, operands), **eqn.params)

    def own(self, a: Atom, d: int, shape: tuple[int, ...]) -> Atom:
        """Each device's own block, along a dimension, of a value that all devices have."""
        assert self.gather is not None
        self.cut.append((a, d, shape[d]))
        start = own_place(self.m, self.gather.axes, shape[d], bool(a.aval.manual.varying))
        first = varying_as(self.m, np.int32(0), start)
        return self.m.emit(OPS["dynamic_slice"], a, *[start if k == d else first for k in range(
            a.aval.ndim)], slice_sizes=shape)

    def same(self, atom: Atom) -> bool:
        """Is a value the same on all devices of the gather?"""
        assert self.gather is not None
        return is_invariant(atom, self.gather.axes, self.m.program, self.m.maker)


def _smaller_first(m: Match) -> Atom | None:
    """What is computed from a gathered value, computed from the block and gathered then."""
    blocks = Blocks(m)
    found = blocks.made(m.eqn)
    gather = blocks.gather
    if found is None or gather is None or blocks.exchanges or (
            size_of(m.eqn.outvars[0]) >= size_of(gather.outvars[0])):
        return None
    value, d = found
    return fit(m, m.emit(gather.op, value, like=gather, **{
        **gather.params, "all_gather_dimension": d, "tiled": True}))


class _Taken(MadeOf[Atom]):
    """Takes, where the program does of a value, of what this is computed of by element: of what
    devices add where it is summed over them.
    """

    def made(self, eqn: Equation) -> Atom | None:
        """What is taken of the result of an equation; None if it is not made of a sum."""
        m, op = self.m, eqn.op
        if op.name in _SENT:
            alike = len(eqn.invars) == 1 and eqn.params.get("axis_index_groups") is None and all(
                is_invariant(a, eqn.axes, m.program, m.maker) for a in m.eqn.invars[1:])
            return m.emit(op, self.taken(eqn.invars[0]), like=eqn, **eqn.params) if alike else None
        if not is_elementwise(eqn):
            return None
        parts = [self.of(a) if a.aval.shape == eqn.outvars[0].aval.shape else None
                 for a in eqn.invars]
        if all(part is None for part in parts):
            return None
        return m.emit(op, *[self.taken(a) if part is None else part for part, a in zip(
            parts, eqn.invars, strict=True)], **eqn.params)

    def taken(self, a: Atom) -> Atom:
        """What is taken of a value, repeated as the value that it is combined with needs it."""
        m, shape, params = self.m, self.m.value.aval.shape, self.m.eqn.params
        repeated = [own != n for own, n in zip(a.aval.shape, shape, strict=False)]
        if not a.aval.shape:
            return a
        if any(repeated) and m.eqn.op.name == "slice":      # all of a dimension that it repeats
            params = {**params, **{name: tuple([at if again else n for again, n in zip(
                repeated, params[name], strict=True)]) for name, at in (
                    ("start_indices", 0), ("limit_indices", 1))}}
        elif any(repeated):
            a = m.emit(OPS["broadcast_in_dim"], a, shape=shape, sharding=None,
                       broadcast_dimensions=tuple(range(len(shape))))
        return m.emit(m.eqn.op, a, *m.eqn.invars[1:], **params)


def _taken_first(m: Match) -> Atom | None:
    """What is taken of values that are summed over devices, taken of each before."""
    value = None if m.program.op_names.isdisjoint(_SENT) or (
        size_of(m.eqn.outvars[0]) >= size_of(m.value)) else _Taken(m).of(m.value)
    return None if value is None else fit(m, value)


def scattered(m: Match, x: Atom, like: Equation, d: int) -> Atom:
    """A sum over the devices of an exchange, of which each has its own block along a dimension."""
    return m.emit(OPS["reduce_scatter"], x, like=like, axis_index_groups=None,
                  axis_name=like.axes, axis_size=group_size(x.aval.mesh, like.axes), tiled=True,
                  scatter_dimension=d)


def sent_before(m: Match, names: Sequence[str]) -> tuple[Equation, Atom] | None:
    """The exchange, by one of these ops, from which a value is computed element by element, and
    what is computed so of what it sends; None if there is none.
    """
    sent = next((e for e in behind(m) if e.op.name in names), None)
    if sent is None or sent.op.name == "ppermute" and sent.outvars[0] is not m.value and (
            len(sent.params["perm"]) < group_size(sent.invars[0].aval.mesh, sent.axes)):
        return None                     # the others receive zeros
    x = Before(m, sent.axes, lambda e: e.op is sent.op and e.params == sent.params).of(m.value)
    return None if x is None else (sent, x)


def _narrow_first(m: Match) -> Atom | None:
    """What is cast to fewer bits than were exchanged, cast before that."""
    value = _smaller_first(m)
    found = None if value is not None else sent_before(m, ("all_to_all", "ppermute"))
    if found is None:
        return value
    sent, x = found
    return fit(m, m.emit(sent.op, m.emit(m.eqn.op, x, **m.eqn.params), like=sent, **sent.params)
               ) if size_of(m.eqn.outvars[0]) < size_of(sent.outvars[0]) else None


def size_of(v: Atom) -> int:
    return math.prod(v.aval.shape) * v.aval.dtype.itemsize


BLOCKS: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "narrow first", "out = convert_element_type value", _narrow_first,
        why="what is kept in fewer bits is exchanged in these"),
        "convert to fewer bits before the exchange instead of behind it"),
    CodeChange(Rewrite(
        "smaller first", "out = dot_general|conv_general_dilated|reduce_sum|reduce_max|reduce_min|"
        "slice|dynamic_slice|gather *operands", _smaller_first,
        why="what is smaller is exchanged"),
        "compute what is smaller of each block before the exchange instead of behind it"),
    CodeChange(Rewrite(
        "take first", "out = slice|dynamic_slice|gather value *starts", _taken_first,
        why="only what is read is exchanged"),
        "take what is read before the exchange instead of behind it"),
)
