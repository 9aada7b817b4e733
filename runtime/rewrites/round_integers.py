"""Whole numbers that a program finds in several steps and numpy in one.

`x // 7` of integers is traced as a quotient truncated and a remainder that says whether to subtract
one; the integer part of a float as its floor or its ceiling, by its sign.
"""
from __future__ import annotations

from ...ir.program import Literal
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites


def _is_number(m: Match) -> bool:
    """Is what is divided by an integer other than 0?"""
    return isinstance(m.y, Literal) and m.y.aval.dtype.kind == "i" and bool(m.y.val)


ROUND_INTEGERS = Rewrites(
    Rewrite("floor-quotients", """
        quotient = div x y
        sign = sign x
        other_sign = sign y
        differ = ne sign other_sign
        rest = rem x y
        inexact = ne rest 0
        below = and differ inexact
        less = sub quotient 1
        out = select_n below quotient less
        """, "out = floor_div x y", where=_is_number,
            why="numpy rounds a quotient down in one pass over memory instead of nine"),
    Rewrite("integer-parts", """
        down = floor x
        up = ceil x
        negative = lt x 0
        out = select_n negative down up
        """, "out = trunc x",
            why="numpy has the integer part of a float in one pass instead of four"),
)
