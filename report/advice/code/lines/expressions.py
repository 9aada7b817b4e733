"""Values as the user calls them where an equation is written: names, and texts of expressions."""
from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from .....ir.program import Atom, Equation, Literal, Program, Var
from .....ir.rewriting.rewrite import Match
from .statements import as_operand, call_of, is_kept, module_of, rebound_name


def expression(eqn: Equation) -> str:
    return "" if eqn.location.transform else eqn.location.text()


def called(m: Match, atom: Atom) -> str:
    """A value in the user's code: a name, or the text of the expression."""
    if isinstance(atom, Var) and atom.name:
        base = re.fullmatch(r"(\w+?)_\d+", atom.name)
        line = m.eqn.location.source_line()
        return base[1] if base and not re.search(rf"\b{atom.name}\b", line) else atom.name
    made = m.maker(atom)
    return expression(made) if made is not None else ""


def called_in(m: Match, atom: Atom, eqn: Equation | None) -> str:
    """A value as it is called where an equation is written; "" if that does not read it by a name
    or expression: inside of a function an argument of the program has another name.
    """
    text = called(m, atom)
    said = "" if eqn is None else expression(eqn)
    return text if text and re.search(whole_name(text), said) else ""


class GatheredIn(NamedTuple):
    """A gather that the user calls, as an equation that reads its result is written. whole, part:
    how its result and its operand are called there; text: of its call.
    """
    gather: Equation
    whole: str
    part: str
    text: str

    def of(self, operand: str) -> str:
        """The call with another operand."""
        call = call_of(self.text)
        assert call is not None
        return (self.text[:call.args[0].col_offset] + operand
                + self.text[call.args[0].end_col_offset:])

    @property
    def module(self) -> str:
        """The module of the call, with a dot."""
        call = call_of(self.text)
        assert call is not None
        return module_of(call)


def without_pvary(m: Match, a: Atom) -> Atom:
    """A value before it is said to vary over more axes, if it is."""
    while (made := m.maker(a)) is not None and made.op.name == "pvary":
        a = made.invars[0]
    return a


def is_zeros(m: Match, a: Atom) -> bool:
    """Is a value a zero, or zeros that are repeated, on all devices?"""
    a = without_pvary(m, a)
    zero = a if isinstance(a, Literal) else m.constant_of(a)
    return zero is not None and zero.val == 0


def gathered_in(m: Match, value: Atom, name: str = "all_gather", read: Equation | None = None
                ) -> GatheredIn | None:
    """The gather, or other collective, that a value comes from, as it can be written where the
    matched equation is, or another one that reads it; None if there is none, or its operand is not
    called that there.
    """
    read = read or m.eqn
    gather = m.maker(without_pvary(m, value))
    text = "" if gather is None else expression(gather)
    call = call_of(text, name)
    if gather is None or call is None or not call.args:
        return None
    whole = called_in(m, gather.outvars[0], read)
    part = ast.get_source_segment(text, call.args[0]) or ""
    if not whole or not part or not is_kept(
            part, gather.location, read.location, bool(replaced_name(m.program, m.eqn, gather))):
        return None
    return GatheredIn(gather, whole, part, text)


def replaced_name(program: Program, read: Equation, collective: Equation) -> str:
    """The name of both operand and result of a collective that the user calls, as in
    `x = lax.psum(x, ...)`, where nothing but one equation reads the result: without that
    statement, it has the operand by this name. "" if that is not so.
    """
    readers, waiting = list[Equation](), [collective.outvars[0]]
    for v in waiting:
        if v in program.outvars:
            return ""
        found = [e for e in program.eqns if v in e.invars]
        waiting += [e.outvars[0] for e in found if e.op.name == "pvary"]
        readers += [e for e in found if e.op.name != "pvary"]
    return rebound_name(collective.location) if readers == [read] else ""


def whole_name(text: str) -> str:
    """A pattern of an expression where it is not part of a longer name."""
    return rf"(?<![\w.]){re.escape(text)}(?!\w)"


def written(text: str, pattern: str, part: str) -> str:
    """A text with an expression in place of what matches: in parentheses, if it has operators and
    what it replaces is no argument of a call by itself.
    """
    def put(found: re.Match[str]) -> str:
        before, after = text[:found.start()].rstrip()[-1:], text[found.end():].lstrip()[:1]
        return part if before in ("(", ",") and after in (")", ",") else as_operand(part)

    return re.sub(pattern, put, text)


def axes_text(axes: Sequence[Any]) -> str:
    """Mesh axes as code: a name, or a tuple of names."""
    names = tuple(map(str, axes))
    return repr(names[0] if len(names) == 1 else names).replace("'", '"')
