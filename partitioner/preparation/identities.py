"""Arithmetic that changes nothing, or that works on more elements than necessary.

Derivatives multiply by the ones that they start from, the derivative of a subtracted broadcast is
the sum of negated elements, and a triangle's mask adds the number of its diagonal to those of rows.
XLA's algebraic simplifier removes the same.
"""
from __future__ import annotations

from ...ir.program import Program
from ...ir.rewriting.inside import inside
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites

IDENTITIES = frozenset(("mul", "div", "neg", "iota"))
"""Without these ops there is nothing to do."""


def _is_result(m: Match) -> bool:
    """Has `x` the type of the result?"""
    return m.x.aval == m.eqn.outvars[0].aval


_REWRITES = Rewrites(
    *[Rewrite(name, pattern, "x", why="x times or over one is x", where=_is_result)
      for name, pattern in (
          ("times-one", "out = mul x 1"), ("over-one", "out = div x 1"),
          ("times-ones", "ones = broadcast_in_dim 1\nout = mul x ones"),
          ("over-ones", "ones = broadcast_in_dim 1\nout = div x ones"))],
    Rewrite("numbers-plus-zero", "numbers = iota\nout = add numbers 0", lambda m: m.numbers,
            why="the main diagonal of a mask is no diagonal further on",
            where=lambda m: m.numbers.aval == m.eqn.outvars[0].aval),
    Rewrite("negated-twice", "once = neg x\nout = neg once", "x", where=_is_result,
            why="x is what its negation is the negation of"),
    Rewrite("sum-of-negated", "negated = neg x\nout = reduce_sum negated {axes, out_sharding}",
            "sum = reduce_sum x {axes, out_sharding}\nout = neg sum", single_use=("negated",),
            why="a sum has fewer elements than what it adds",
            where=lambda m: m.x.aval == m.negated.aval))


PLUS_ZERO = Rewrite("plus-zero", "out = add x 0", "x", why="x plus zero is x", where=_is_result)
"""What XLA removes besides: sums of Python's begin with zero."""


def drop_identities(program: Program) -> Program:
    """The program, nested ones included, without arithmetic that changes nothing.

    Bits stay as they are but for the sign of zeros and NaNs.
    """
    return _REWRITES(inside(program, drop_identities))
