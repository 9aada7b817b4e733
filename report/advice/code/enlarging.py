"""A rewrite of the user's code that makes values larger behind a gather instead of before it.

    NAME                  instead of                            written
    enlarge behind        gathering repeated heads, or          the gather of what they are made of,
                          weights that are scaled from bytes    then that
"""
from __future__ import annotations

import re

from ....ir.program import Atom, Equation, Literal
from ....ir.rewriting.rewrite import Match, Rewrite
from ....ir.rules.factor import PASS
from ....ir.rules.rule import FactorRule
from .blocks import Blocks, size_of
from .lines.expressions import called_in, expression, whole_name, written
from .rewrites import CodeChange, MadeOf, fit

Operand = tuple[Atom, int | None]       # and the dimension along which blocks of it lie, if any


class _Wholes(Blocks):
    """Computes what a gather gives from gathers of smaller values, by the factor rules of the
    equations in between; the other operands are equal on all devices.

    least_of: by value and dimension, what `least` found. gathered_of: likewise, what is gathered.
    """

    def __init__(self, m: Match, gather: Equation) -> None:
        super().__init__(m, gather)
        self.least_of: dict[tuple[Atom, int], int] = {}
        self.gathered_of: dict[tuple[Atom, int], Atom] = {}

    def operands(self, a: Atom, d: int) -> tuple[Equation, FactorRule, list[Operand]] | None:
        """The equation that computes each block of a value along a dimension from blocks of its
        operands, its rule and these; None if there is no such one.
        """
        eqn = None if isinstance(a, Literal) else self.m.maker(a)
        if (eqn is None or eqn.op.rule is None or eqn.op.collective is not None or eqn.op.effect
                or eqn.op.multiple_results or eqn.op.subprograms or not eqn.invars):
            return None
        rule = eqn.op.factor_rule(tuple([v.aval.shape for v in eqn.invars]), (a.aval.shape,),
                                  eqn.params)
        f = next(iter(rule.results[0][d]), -1)
        if f < 0 or rule.factors[f].kind != PASS or rule.factors[f].blocked:
            return None
        found: list[Operand] = []
        for v, dims in zip(eqn.invars, rule.operands, strict=True):
            own = [k for k, factors in enumerate(dims) if f in factors]
            if len(own) > 1 or any(dims[k][0] != f for k in own) or not own and not self.same(v):
                return None
            found.append((v, own[0] if own else None))
        return (eqn, rule, found) if any(k is not None for _, k in found) else None

    def least(self, a: Atom, d: int) -> int:
        """The fewest bytes of one device that have to be gathered for a value."""
        if (a, d) not in self.least_of:
            self.least_of[a, d] = size_of(a)
            found = None if len(self.least_of) > MadeOf.MOST else self.operands(a, d)
            if found is not None:
                self.least_of[a, d] = min(size_of(a), sum(
                    self.least(v, k) for v, k in found[2] if k is not None))
        return self.least_of[a, d]

    def whole(self, a: Atom, d: int) -> Atom | None:
        """A value with the blocks of all devices along a dimension."""
        found = self.operands(a, d) if self.least(a, d) < size_of(a) else None
        if found is None:
            assert self.gather is not None
            if (a, d) not in self.gathered_of:
                self.gathered_of[a, d] = self.m.emit(self.gather.op, a, like=self.gather, **{
                    **self.gather.params, "all_gather_dimension": d})
            return self.gathered_of[a, d]
        eqn, _, operands = found
        made = [v if k is None else self.whole(v, k) for v, k in operands]
        values = [v for v in made if v is not None]
        if len(values) < len(made):
            return None
        values = self.varying_alike(values)
        shape = tuple([n * self.count if k == d else n for k, n in enumerate(a.aval.shape)])
        params = eqn.params if eqn.op.resize is None else eqn.op.resize(
            eqn.params, tuple([v.aval.shape for v in values]), (shape,))
        value = self.m.emit(eqn.op, *values, like=eqn, **params)
        return value if value.aval.shape == shape else None


def _wholes(m: Match) -> _Wholes | None:
    """What a gather can be computed from, if that is smaller, and not just of fewer bits."""
    gather, cast = m.eqn, m.maker(m.x)
    if not m.tiled or m.groups is not None:
        return None
    found = _Wholes(m, gather)
    least = found.least(m.x, m.d)
    if least >= size_of(m.x) or cast is not None and cast.op.name == "convert_element_type" and (
            least == size_of(cast.invars[0])):
        return None
    return found


def _enlarged_behind(m: Match) -> Atom | None:
    found = _wholes(m)
    value = None if found is None else found.whole(m.x, m.d)
    return None if value is None else fit(m, value)


def _enlarged_behind_code(m: Match) -> str:
    found, text, wide = _wholes(m), expression(m.eqn), called_in(m, m.x, m.eqn)
    if found is None or not wide or found.whole(m.x, m.d) is None or text.count(wide) != 1:
        return ""
    sources = [(called_in(m, a, m.eqn), d) for a, d in found.gathered_of]
    if len(sources) != 1 or sources[0][1] != m.d or not sources[0][0]:
        return ""
    source = sources[0][0]
    if wide == source or len(re.findall(whole_name(source), wide)) != 1:
        return ""
    return written(wide, whole_name(source), text.replace(wide, source))


ENLARGING: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "enlarge behind", "out = all_gather|all_gather_invariant x {all_gather_dimension=d, "
        "axis_index_groups=groups, tiled}", _enlarged_behind,
        why="what is smaller is exchanged"),
        "make values larger behind the exchange instead of before it", _enlarged_behind_code),
)
