"""Names of variables in the text of a program: the user's where they are known.

Parameters are called as the function's arguments, results as the variable that the user assigned
the expression to; other variables are a, b, c, ... No name is used twice, and the same program
always has the same names. They mean nothing: code made for execution does not contain them.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..program import Equation, Program, Var
from .pieces import RESERVED, is_name


class Names(dict[Var, str]):
    """Variable -> its name in the text. A variable that nothing binds is marked as such."""

    def __missing__(self, var: Var) -> str:
        return f"unbound_{_as_name(var.name) or 'variable'}"


def name_variables(program: Program) -> Names:
    """A name for each variable: the user's, else the next free of a, b, c, ..."""
    wishes: list[tuple[Var, str | None]] = []
    offset = len(program.invars) - len(program.arg_names)   # captured values come first
    for i, var in enumerate(program.invars):
        given = program.arg_names[i - offset] if i >= offset else None
        wishes.append((var, var.name or given))
    wishes.extend((var, var.name or f"c{i}") for i, (var, _) in enumerate(program.consts))
    for eqn, last in zip(program.eqns, _ends_of_expressions(program.eqns), strict=True):
        if len(eqn.outvars) == 1:
            var = eqn.outvars[0]
            wishes.append((var, var.name or (eqn.location.assigned_name() if last else None)))
        else:
            wishes.extend((var, var.name) for var in eqn.outvars)
    names = Names()
    used: set[str] = set(RESERVED)
    count: dict[str, int] = {}
    for var, wish in wishes:
        name = base = _as_name(wish) if wish else ""
        if not name:
            continue
        if name in used:
            number = count.get(base, 0)
            while name in used:
                number += 1
                name = f"{base}_{number}"
            count[base] = number
        used.add(name)
        names[var] = name
    letters = _letters()
    for var, _ in wishes:
        if var not in names:
            name = next(letters)
            while name in used:
                name = next(letters)
            names[var] = name
    return names


def _ends_of_expressions(eqns: Sequence[Equation]) -> list[bool]:
    """Which equations are the last that the user's expression led to.

    Those that a transformation made beside them (a tangent) are passed over.
    """
    out = [False] * len(eqns)
    following = None
    for i in range(len(eqns) - 1, -1, -1):
        place = eqns[i].location
        if not place.transform:
            span = (place.line, place.column, place.end_line, place.end_column, place.file)
            out[i] = span != following
            following = span
    return out


def _as_name(text: str | None) -> str:
    """`params_w` for `params['w']`."""
    if not text or is_name(text):
        return text or ""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return f"_{name}" if name[:1].isdigit() else name


def _letters() -> Iterator[str]:
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    yield from alphabet
    words: list[str] = list(alphabet)
    while True:
        words = [w + letter for w in words for letter in alphabet]
        yield from words
