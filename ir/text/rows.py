"""A program as rows, one for each equation, for views that show something beside each."""
from __future__ import annotations

from collections.abc import Iterator

from ..program import Equation, Program
from ..support.collector import collector_paused
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
