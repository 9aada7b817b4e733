"""Variadic collectives: several operands exchanged at once, each as it would be alone.

    a, b = variadic_psum_invariant[axes=('x',)] p q

is `psum_invariant` of p and of q, started once and without copying them into one array. They are
what the partitioner makes of exchanges that need not wait for each other, in per-device programs
alone (XLA: "all-reduce with a tuple of operands"). Params are those of the op for one operand;
those of `EACH` hold a tuple, with one entry per operand.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...op import Op, defop
from ...program import Equation
from ...reasons import Reason
from ...rules.rule import FactorRule
from ...types import ArrayType
from .collective import SCATTERS, all_gather_invariant_p, ppermute_p

Params = dict[str, Any]

EACH = frozenset(("all_gather_dimension", "scatter_dimension", "tiled"))
"""Params that each operand has of its own."""

MEMBERS = "exchanges that were combined"
"""Attribute of a program: by variadic exchange, the exchanges of its operands before, each with
its own line and reason."""


def _own_params(params: Params, count: int) -> Iterator[Params]:
    """The params of each operand."""
    for i in range(count):
        yield {k: v[i] if k in EACH else v for k, v in params.items()}


def _variadic(op: Op) -> Op:
    """Declare an op's exchange of several operands at once."""
    manual, collective = op.manual, op.collective
    assert manual is not None and collective is not None

    def inferred(*types: ArrayType, **params: Any) -> list[tuple]:
        return [(*op.infer(t, **own), t.weak_type)
                for t, own in zip(types, _own_params(params, len(types)), strict=True)]

    def rule(operands: tuple, results: tuple, **params: Any) -> FactorRule:
        each = [op.factor_rule((x,), (y,), own) for x, y, own in zip(
            operands, results, _own_params(params, len(operands)), strict=True)]
        before = [sum([len(r.factors) for r in each[:i]]) for i in range(len(each))]
        maps = [tuple([tuple([tuple([f + n for f in dim]) for dim in side])
                       for r, n in zip(each, before, strict=True) for side in of(r)])
                for of in (lambda r: r.operands, lambda r: r.results)]
        return FactorRule(maps[0], maps[1], tuple([f for r in each for f in r.factors]))

    return defop(
        f"variadic_{op.name}", doc=f"`{op.name}` of several operands, as one exchange.",
        infer=inferred, multiple_results=True, rule=rule,
        manual=lambda _, types, params: [
            manual(op, (t,), own)[0]
            for t, own in zip(types, _own_params(params, len(types)), strict=True)],
        arithmetic=op.arithmetic, collective=collective)


VARIADIC: dict[Op, Op] = {op: _variadic(op) for op in (
    *SCATTERS, *SCATTERS.values(), all_gather_invariant_p, ppermute_p)}
"""By op, that of several operands."""
_SINGLE = {several: op for op, several in VARIADIC.items()}


def combined(eqns: Sequence[Equation], reason: Reason) -> Equation:
    """One exchange instead of these, of one op and equal params, but for those of `EACH`."""
    first = eqns[0]
    params = {k: tuple([e.params[k] for e in eqns]) if k in EACH else v
              for k, v in first.params.items()}
    return Equation(VARIADIC[first.op], [e.invars[0] for e in eqns],
                    [e.outvars[0] for e in eqns], params, first.location, reason)


def split_variadic(eqn: Equation) -> Iterable[Equation]:
    """One exchange for each operand of a variadic collective; any other equation as it is."""
    op = _SINGLE.get(eqn.op)
    if op is None:
        return (eqn,)
    return [eqn.replace(op=op, invars=(a,), outvars=(v,), params=own) for a, v, own in zip(
        eqn.invars, eqn.outvars, _own_params(eqn.params, len(eqn.invars)), strict=True)]
