"""Rewrites of the user's code that make values larger behind an exchange instead of before it.

    NAME                  instead of                            written
    enlarge behind        gathering repeated heads, or          the gather of what they are made of,
                          weights that are scaled from bytes    then that
    enlarge, sent on      sending repeated heads on, or           sending what they are made of on
                          exchanging wider numbers
    enlarge in steps      carrying repeated heads, or wider     carrying what they are made of, and
                          numbers, that steps send on           that in each step
"""
from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

from ....ir.ops.control.loop_operands import scan_operands
from ....ir.program import Atom, Equation, Literal, Var
from ....ir.rewriting.rewrite import Match, Rewrite
from ....ir.rules.factor import PASS
from ....ir.rules.rule import FactorRule
from .blocks import Blocks, size_of
from .lines.expressions import called_in, expression, whole_name, written
from .lines.statements import call_of
from .on_blocks import varying_alike
from .rewrites import CodeChange, MadeOf, fit
from .varying_axes import is_invariant

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
        values = varying_alike(self.m, values)
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
    found = _wholes(m)
    if found is None or found.whole(m.x, m.d) is None:
        return ""
    sources = [*found.gathered_of]
    return _written_behind(m, sources[0][0]) if len(sources) == 1 and sources[0][1] == m.d else ""


def _written_behind(m: Match, source: Atom) -> str:
    """What makes a value of its source, of the exchange of that; "" if it cannot be written so."""
    text, wide, own = expression(m.eqn), called_in(m, m.x, m.eqn), called_in(m, source, m.eqn)
    cast = call_of(wide, "astype")
    if not own and cast is not None and isinstance(cast.func, ast.Attribute):
        own = ast.get_source_segment(wide, cast.func.value) or ""
    if not own or wide == own or text.count(wide) != 1 or (
            len(re.findall(whole_name(own), wide)) != 1):
        return ""
    return written(wide, whole_name(own), text.replace(wide, own))


def _smaller(m: Match, a: Atom, is_given: Callable[[Atom], bool]) -> tuple[list[Equation], Atom]:
    """The equations, the last one first, by which a value is computed from the smallest one of
    which it is, and of what is given; and that one.
    """
    found: list[Equation] = []
    least, count = a, 0
    while len(found) < MadeOf.MOST and (eqn := m.maker(a)) is not None:
        own = [v for v in eqn.invars if not is_given(v)]
        if len(own) != 1 or eqn.op.collective is not None or eqn.op.effect or (
                eqn.op.multiple_results or eqn.op.subprograms):
            break
        found.append(eqn)
        (a,) = own
        if size_of(a) < size_of(least):
            least, count = a, len(found)
    return found[:count], least


def _is_to_all(send: Equation) -> bool:
    """Does every device get what another one had?"""
    return len(send.params["perm"]) == math.prod(map(
        send.invars[0].aval.mesh.axis_size, send.axes))


def _again(m: Match, chain: Sequence[Equation], a: Atom, source: Atom) -> Atom:
    """What equations, the last one first, make of another value in place of their source."""
    for eqn in reversed(chain):
        (at,) = [k for k, v in enumerate(eqn.invars) if v is source]
        given = [a if k == at else v for k, v in enumerate(eqn.invars)]
        a, source = m.emit(eqn.op, *given, like=eqn, **eqn.params), eqn.outvars[0]
    return a


def _made_larger(m: Match) -> tuple[list[Equation], Atom]:
    """The equations, the last one first, that make what is exchanged of something smaller, which
    can be done behind; and that one.
    """
    chain, source = _smaller(m, m.x, lambda a: is_invariant(a, m.eqn.axes, m.program, m.maker))
    return chain if m.eqn.op.name == "ppermute" and _is_to_all(m.eqn) or all(
        e.op.name == "convert_element_type" for e in chain) else [], source


def _enlarged_sent(m: Match) -> Atom | None:
    """What is exchanged of what a larger value is computed from."""
    chain, source = _made_larger(m)
    return fit(m, _again(m, chain, m.emit(m.eqn.op, source, **m.eqn.params), source)) if (
        chain) else None


def _enlarged_sent_code(m: Match) -> str:
    return _written_behind(m, _made_larger(m)[1])


def _enlarged_in_steps(m: Match) -> list[Atom] | None:
    """Of a scan whose steps only send on what is computed, before it, of something smaller."""
    body, (first, carries) = m.eqn.params["jaxpr"], scan_operands(m.eqn.params)
    made = {v: e for e in body.eqns for v in e.outvars}
    reads = Counter([a for e in body.eqns for a in e.invars] + [*body.outvars])
    chains: dict[int, list[Equation]] = {}
    given, invars, outvars = [*m.eqn.invars], [*body.invars], [*body.outvars]
    start: list[Equation] = []
    end: list[Equation] = []
    gone: set[Equation] = set()
    for j in range(carries):
        k, send = first + j, made.get(outvars[j])
        chain, source = _smaller(m, given[k], _is_literal)
        if not chain or send is None or send.op.name != "ppermute" or not _is_to_all(send) or (
                send.invars != (invars[k],) or reads[outvars[j]] > 1):
            continue
        chains[j], gone = chain, gone | {send}
        given[k] = source
        now: dict[Atom, Atom] = {given[k]: Var(given[k].aval, invars[k].name)}
        sent = Var(given[k].aval)
        end.append(send.with_operands((now[given[k]],), (sent,)))
        for eqn in reversed(chain):
            v = eqn.outvars[0]
            result = invars[k] if eqn is chain[0] else Var(v.aval)
            start.append(eqn.with_operands([now.get(a, a) for a in eqn.invars], (result,)))
            now[v] = result
        invars[k], outvars[j] = now[given[k]], sent
    if not chains:
        return None
    body = body.replace(invars=invars, outvars=outvars, eqns=[
        *start, *[e for e in body.eqns if e not in gone], *end])
    results = m.emit(m.eqn.op, *given, **{**m.eqn.params, "jaxpr": body})
    for j, chain in chains.items():
        results[j] = _again(m, chain, results[j], given[first + j])
    return results if [r.aval for r in results] == [v.aval for v in m.eqn.outvars] else None


def _is_literal(a: Atom) -> bool:
    return isinstance(a, Literal)


ENLARGING: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "enlarge behind", "out = all_gather|all_gather_invariant x {all_gather_dimension=d, "
        "axis_index_groups=groups, tiled}", _enlarged_behind,
        why="what is smaller is exchanged"),
        "make values larger behind the exchange instead of before it", _enlarged_behind_code),
    CodeChange(Rewrite(
        "enlarge, sent on", "out = ppermute|all_to_all|all_gather|all_gather_invariant x",
        _enlarged_sent, why="what is smaller is exchanged"),
        "make values larger behind the exchange instead of before it", _enlarged_sent_code),
    CodeChange(Rewrite(
        "enlarge in steps", "out = scan *operands", _enlarged_in_steps,
        why="what is smaller is sent on in each step"),
        "make what goes round larger in each step, instead of ahead of the loop, in the one"),
)
