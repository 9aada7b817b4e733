"""Names of variables in the text of a program: the user's where they are known.

Parameters take the names of the function's arguments, results that of the variable that the user
bound the value to (`Var.name`). Names made up by the printer have a `%`, which no Python name has:
`%a` is a value without a name, `h%1` another value named `h`, such as a second layout of it. The
part after the `%` is made up anew for each text and means nothing. No name is used twice, and the
same program always has the same names. Code made for execution does not contain them.
"""
from __future__ import annotations

import re
from collections.abc import Iterator

from ..program import Program, Var
from .value_printer import RESERVED, is_name


class Names(dict[Var, str]):
    """Variable -> its name in the text. A variable that nothing binds is marked as such."""

    def __missing__(self, var: Var) -> str:
        return f"unbound_{_as_name(var.name) or 'variable'}"


def name_variables(program: Program, named: bool = True) -> Names:
    """A name for each variable: the user's (if `named`), else the next of %a, %b, %c, ..."""
    wishes: list[tuple[Var, str | None]] = []
    offset = len(program.invars) - len(program.arg_names)   # captured values come first
    for i, var in enumerate(program.invars):
        given = program.arg_names[i - offset] if i >= offset else None
        wishes.append((var, var.name or given))
    names = Names()
    for i, (var, _) in enumerate(program.consts):
        if var.name:
            wishes.append((var, var.name))
        else:
            names[var] = f"%c{i}"
    for eqn in program.eqns:
        wishes.extend([(var, var.name) for var in eqn.outvars])
    used: set[str] = set(RESERVED)
    count: dict[str, int] = {}
    letters = _letters()
    for var, wish in wishes:
        name = base = _as_name(wish) if named else ""
        if not name:
            name = next(letters)
        elif name in used:
            number = count[base] = count.get(base, 0) + 1
            name = f"{base}%{number}"
        used.add(name)
        names[var] = name
    return names


def given_name(name: str) -> str | None:
    """What of a name in a text is the user's: `h` of `h%1`, nothing of `%a`."""
    return name.partition("%")[0] or None


def dotted(text: str) -> str:
    """`d.h` for `d["h"]`, `d['h']` and `d.h`."""
    return re.sub(r"\W+", ".", text, flags=re.ASCII).strip(".")


def _as_name(text: str | None) -> str:
    """`params.w` for `params['w']`."""
    if not text or is_name(text):
        return text or ""
    name = dotted(text)
    return f"_{name}" if name[:1].isdigit() else name


def _letters() -> Iterator[str]:
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    words: list[str] = [f"%{letter}" for letter in alphabet]
    while True:
        yield from words
        words = [w + letter for w in words for letter in alphabet]
