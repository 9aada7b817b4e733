"""Whole numbers that a program finds in several steps and numpy in one.

`x // 7` of integers is traced as a quotient truncated and a remainder that says whether to subtract
one; the integer part of a float as its floor or its ceiling, by its sign.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.op import Op
from ...ir.ops.elementwise.arithmetic import ceil_p, div_p, floor_p, rem_p, sign_p, sub_p
from ...ir.ops.elementwise.bitwise import and_p
from ...ir.ops.elementwise.comparison import lt_p, ne_p
from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.elementwise.whole_numbers import floor_div_p, trunc_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from .equations import makers
from .inline_calls import needed

Made = Mapping[Var, Equation]


def round_integers(program: Program) -> Program:
    """Find whole numbers in one step where the program takes several."""
    made = makers(program.eqns)
    eqns = []
    changed = False
    for eqn in program.eqns:
        one = _quotient(eqn, made) or _integer_part(eqn, made) if _chooses(eqn) else None
        changed = changed or one is not None
        eqns.append(one or eqn)
    return program.replace(eqns=needed(eqns, program.outvars)) if changed else program


def _chooses(eqn: Equation) -> bool:
    return eqn.op is select_n_p and len(eqn.invars) == 3


def _quotient(eqn: Equation, made: Made) -> Equation | None:
    """The quotient rounded down, if the equation chooses that; by a number other than 0."""
    which, quotient, less = eqn.invars
    given = _operands(quotient, div_p, made)
    if given is None:
        return None
    x, y = given
    if (not isinstance(y, Literal) or y.aval.shape or y.aval.dtype.kind != "i" or not y.val
            or not _is(less, sub_p, (quotient, 1), made)):
        return None
    differ, inexact = _operands(which, and_p, made) or (which, which)
    signs = _operands(differ, ne_p, made)
    rest = _operands(inexact, ne_p, made)
    if (signs is None or rest is None or not _is(signs[0], sign_p, (x,), made)
            or not _is(signs[1], sign_p, (y,), made)
            or not _is(rest[0], rem_p, (x, y), made) or not _same(rest[1], 0)):
        return None
    return Equation(floor_div_p, (x, y), eqn.outvars, {}, eqn.location)


def _integer_part(eqn: Equation, made: Made) -> Equation | None:
    """The integer part of a float, if the equation chooses between floor and ceiling by sign."""
    which, down, up = eqn.invars
    given = _operands(down, floor_p, made)
    if given is None or not _is(up, ceil_p, given, made) or not _is(
            which, lt_p, (given[0], 0), made):
        return None
    return Equation(trunc_p, given, eqn.outvars, {}, eqn.location)


def _operands(atom: Atom, op: Op, made: Made) -> Sequence[Atom] | None:
    """The operands of the equation that computes a value, if that is one of this op."""
    eqn = None if isinstance(atom, Literal) else made.get(atom)
    return eqn.invars if eqn is not None and eqn.op is op else None


def _is(atom: Atom, op: Op, operands: Sequence[Atom | int], made: Made) -> bool:
    """Is the value what the op gives for these operands? (An integer stands for a literal.)"""
    found = _operands(atom, op, made)
    return found is not None and all(map(_same, found, operands))


def _same(atom: Atom, other: Atom | int) -> bool:
    if not isinstance(atom, Literal):
        return atom is other
    value = other.val if isinstance(other, Literal) else other
    return not isinstance(value, Var) and not atom.aval.shape and bool(atom.val == value)
