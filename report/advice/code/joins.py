"""Rewrites of the user's code that work on each operand of a concatenation, instead of its result.

    NAME                  instead of                            written
    reduce parts first    reducing a concatenation              reducing each part, then the results
    products of parts     a product along a concatenation       the products of the parts, added up

A value is traced back to the concatenation through every op that works on the parts one by one, by
its factor rule. Where all of it is reduced, parts flattened for the concatenation are taken as they
were before.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from ....ir.op import OPS
from ....ir.program import Atom, Equation, Literal
from ....ir.rewriting.rewrite import Match, Rewrite
from ....ir.rules.factor import PASS, REDUCE
from ....ir.rules.rule import ELEMENTWISE, FactorRule
from .rewrites import REDUCTIONS, CodeChange, MadeOf, fit, parts_of_operands
from .weights import cut

_MOST = 1024            # parts
_COMBINED = {"reduce_sum": "add", "reduce_max": "max", "reduce_min": "min"}


class Parts(MadeOf[tuple[list[Atom], int]]):
    """Computes from parts what a program computes from their concatenation: for each value its
    parts, and the dimension along which they are joined.

    ends: where the parts end in their dimension, once the concatenation has been met. flat: whether
    parts that were flattened for the concatenation are taken as they were before.
    """
    MOST = 24

    def __init__(self, m: Match, flat: bool) -> None:
        super().__init__(m)
        self.flat = flat
        self.ends: tuple[int, ...] = ()

    def made(self, eqn: Equation) -> tuple[list[Atom], int] | None:
        """The parts of what an equation computes, from the parts of its operands; None if there are
        none.
        """
        if eqn.op.name == "concatenate":
            return self.of_concatenation(eqn)
        found = None if eqn.op.multiple_results else self.factor(eqn)
        if found is None or found[0].factors[found[1]].kind != PASS:
            return None
        rule, f = found
        to = next((d for d, own in enumerate(rule.results[0]) if own == (f,)), None)
        values = None if to is None else self.of_parts(eqn, rule, f)
        return None if values is None or to is None else (values, to)

    def reduced(self, eqn: Equation) -> Atom | None:
        """What an equation computes from parts if it reduces them: the combined results of the
        parts.
        """
        found = self.factor(eqn)
        if found is None or found[0].factors[found[1]].kind != REDUCE:
            return None
        rule, f = found
        how = f"reduce_{rule.factors[f].operator}"
        values = self.of_parts(eqn, rule, f) if how in REDUCTIONS else None
        if values is None:
            return None
        total, *others = values
        for value in others:
            total = self.m.emit(OPS[_COMBINED[how]], total, value)
        return total

    def of_concatenation(self, eqn: Equation) -> tuple[list[Atom], int] | None:
        d = eqn.params["dimension"]
        ends = tuple(accumulate([a.aval.shape[d] for a in eqn.invars]))
        if self.ends not in ((), ends) or not 1 < len(ends) <= _MOST:
            return None
        self.ends = ends
        parts = [*eqn.invars]
        if self.flat:
            if eqn.outvars[0].aval.ndim != 1:
                return None
            makers = [self.m.maker(a) for a in parts]
            parts = [e.invars[0] if e is not None and e.op.name == "reshape" else a
                     for a, e in zip(parts, makers, strict=True)]
        return parts, d

    def factor(self, eqn: Equation) -> tuple[FactorRule, int] | None:
        """The rule of an equation, and the factor along which its operands are in parts."""
        parts, rule = parts_of_operands(eqn, self.of)
        if rule is None:
            return None
        own = {rule.operands[i][p[1]] for i, p in enumerate(parts) if p is not None}
        if len(own) != 1 or len(f := own.pop()) != 1 or rule.factors[f[0]].blocked:
            return None
        return rule, f[0]

    def of_parts(self, eqn: Equation, rule: FactorRule, f: int) -> list[Atom] | None:
        """The equation applied to each part along a factor."""
        operands: list[list[Atom]] = []
        for a, dims in zip(eqn.invars, rule.operands, strict=True):
            part, at = self.of(a), [d for d, own in enumerate(dims) if f in own]
            if part is not None and at == [part[1]]:
                operands.append(part[0])
            elif part is not None or len(at) > 1 or at and dims[at[0]] != (f,):
                return None
            else:
                own = self.part_of(a, at)
                if own is None:
                    return None
                operands.append(own)
        return [self.applied(eqn, rule, f, own) for own in zip(*operands, strict=True)]

    def part_of(self, a: Atom, at: Sequence[int]) -> list[Atom] | None:
        """For each part of the other operands, the corresponding part of a value that is not a
        concatenation.
        """
        if not at:
            return [a] * len(self.ends)
        if not self.flat:
            return [cut(self.m, a, at[0], start, end) for start, end in zip(
                (0, *self.ends), self.ends, strict=False)]
        eqn = None if isinstance(a, Literal) else self.m.maker(a)
        if eqn is None or eqn.op.name != "broadcast_in_dim" or eqn.invars[0].aval.shape:
            return None
        return [eqn.invars[0]] * len(self.ends)

    def applied(self, eqn: Equation, rule: FactorRule, f: int, operands: Sequence[Atom]) -> Atom:
        """The equation with these operands."""
        if self.flat and eqn.op.rule == ELEMENTWISE:
            shape = max((a.aval.shape for a in operands), key=len)
            whole = [a if a.aval.shape == shape or isinstance(a, Literal) else
                     self.m.full(a, shape) for a in operands]
            return self.m.emit(eqn.op, *whole, **eqn.params)
        if self.flat:
            axes = tuple(range(operands[0].aval.ndim))
            return self.m.emit(eqn.op, *operands, **{**eqn.params, "axes": axes})
        size = next(a.aval.shape[d] for a, dims in zip(operands, rule.operands, strict=True)
                        for d, own in enumerate(dims) if own == (f,))
        shapes = tuple([tuple([size if own == (f,) else n for n, own in zip(
            v.aval.shape, dims, strict=True)]) for v, dims in zip(
                eqn.outvars, rule.results, strict=True)])
        params = eqn.params if eqn.op.resize is None else eqn.op.resize(
            eqn.params, tuple([a.aval.shape for a in operands]), shapes)
        return self.m.emit(eqn.op, *operands, **params)


def _reduced_first(m: Match) -> Atom | None:
    """The reduction of what is computed from joined parts: of each part, then of all."""
    if "concatenate" not in m.program.op_names:
        return None
    for flat in (True, False):
        if flat and (m.eqn.op.name not in _COMBINED or m.eqn.invars[0].aval.ndim != 1):
            continue
        value = Parts(m, flat).reduced(m.eqn)
        if value is not None:
            return fit(m, value)
    return None


def _change(name: str, pattern: str, made: Callable, why: str, words: str) -> CodeChange:
    return CodeChange(Rewrite(name, pattern, made, why=why), words)


JOINS: tuple[CodeChange, ...] = (
    _change("reduce parts first", "out = reduce_sum|reduce_max|reduce_min value {axes}",
            _reduced_first, "parts are reduced where they are, and none is moved to be joined",
            "reduce each part by itself instead of what joins them"),
    _change("products of parts", "out = dot_general|conv_general_dilated x y", _reduced_first,
            "parts stay where they are, and their products are added",
            "add up products of each part instead of joining parts for one"),
)
