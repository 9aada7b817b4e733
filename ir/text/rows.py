"""A program for views: as rows, one for each equation, or as HTML for a notebook."""
from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator

from ..program import Equation, Program
from ..support.collector import collector_paused
from ..support.html import FAINT, LOUD, code
from .constants import short_constant_text
from .folding import WIDTH
from .names import name_variables
from .print import _Printer, programs_in
from .value_printer import Notation, mesh_text

_LONG = 60           # characters of a constant's value that are shown


def program_rows(program: Program) -> list[tuple[str, Equation | None]]:
    """The lines of a program's text, equations unbroken, each with the equation that it is of.

    This is to be read, not to be parsed: long constants are left out.
    """
    with collector_paused():
        printer = _Printer(False, lambda name, value, aval: "...", WIDTH)
        return list(_rows(printer, program, Notation(program.mesh), "", "program "))


def _rows(printer: _Printer, program: Program, notation: Notation, indent: str, prefix: str
          ) -> Iterator[tuple[str, Equation | None]]:
    """The lines of a program and of those that it holds, each with the equation it shows, or None.
    """
    names = name_variables(program)
    for line in printer._signature(program, names, notation, indent, prefix):
        yield line, None
    inner = indent + "  "
    for var, value in program.consts:
        text = short_constant_text(value, var.aval) or "..."
        yield (f"{inner}const {names[var].lstrip('%')}: {notation.type(var.aval)} = "
               f"{text if len(text) <= _LONG else '...'}"), None
    for eqn in program.eqns:
        yield inner + printer.equation(eqn, names, notation, program), eqn
        for label, body in programs_in(eqn.params):
            own, scope = notation, ""
            if body.mesh is not program.mesh:
                own, scope = Notation(body.mesh, notation), f"mesh {mesh_text(body.mesh)} "
            yield from _rows(printer, body, own, inner + "  ", f"{label} = {scope}")
    results = ", ".join([printer.atom(v, names, notation) for v in program.outvars])
    yield f"{inner}return {results}".rstrip(), None
    yield indent + "}", None


_REST = r"(.*?)((?:^|\s+)# .*)?$"
_LINE = re.compile(rf"(?:(\s*[^=#]*? = )([a-z][\w\-]*))?{_REST}")
_BELOW_RESULTS = re.compile(rf"(\s+)([a-z][\w\-]*){_REST}")
_COMMENT = re.compile(r"\s*# ")
_BYTES = " B received per device"


def program_html(text: str) -> str:
    """The text of a program as HTML; equations that communicate are coloured.

    >>> page = program_html("  a: f32[2] = sin x    # f.py:1:2")
    >>> "<b>sin</b>" in page, "# f.py:1:2</span>" in page
    (True, True)
    """
    lines = text.split("\n")
    shown = []
    for i, line in enumerate(lines):
        match = (_BELOW_RESULTS if i and lines[i - 1].endswith(" =") else _LINE).match(line)
        assert match is not None
        before, op, after, comment = match.groups()
        written = html.escape(before or "")
        if op:
            below = itertools.takewhile(_COMMENT.match, lines[i + 1:])
            loud = any(_BYTES in said for said in (comment or "", *below))
            written += f"<b{f' style={chr(39)}{LOUD}{chr(39)}' if loud else ''}>{op}</b>"
        written += html.escape(after or "")
        if comment:
            written += f"<span style='{FAINT}'>{html.escape(comment)}</span>"
        shown.append(written)
    return code(shown)
