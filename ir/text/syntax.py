"""Errors in the text of a program: where, what was expected, and which mistake it probably is.

A rule of the parser that refuses something raises `Mistake`, with the offset in the text; the
parser generator raises its own errors, whose set of expected terminals is put into words here.
Both become a `ProgramSyntaxError` that shows the line with a caret.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ..diagnostics.diagnostic import Diagnostic
from ..diagnostics.errors import ProgramSyntaxError
from ..source.location import Location


class Mistake(Exception):
    """What is wrong at `start` (an offset in the text), over `length` characters."""

    def __init__(self, message: str, start: int | None, length: int = 1, *, label: str = "",
                 help: str = "") -> None:
        super().__init__(message)
        self.message, self.start, self.length, self.label, self.help = (
            message, start or 0, length, label, help)


class TextLocation(Location):
    """A place in a program's text, which need not be a file."""

    __slots__ = ("lines",)
    lines: list[str]

    def source_line(self, line: int | None = None) -> str:
        n = self.line if line is None else line
        return self.lines[n - 1] if 0 < n <= len(self.lines) else ""


def text_location(filename: str, lines: list[str], line: int, column: int, length: int,
                  function: str = "") -> TextLocation:
    """The place at a line (from 1) and column (from 0) of a text given as its lines."""
    place = TextLocation(None, span=(filename, line, column, line, column + length, function))
    place.lines = lines
    return place


def syntax_error(text: str, filename: str, mistake: Mistake) -> ProgramSyntaxError:
    """The exception for a mistake, with `.filename`, `.line` and `.column` (both from 1)."""
    start = min(mistake.start, len(text))
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1)
    lines = text.split("\n")
    if line > len(lines) or (line == len(lines) > 1 and not lines[-1]):
        line = max(1, len(lines) - 1)          # at the end of the text: after its last line
        column = len(lines[line - 1])
    where = text_location(filename, lines, line, column, max(1, mistake.length))
    diagnostic = Diagnostic(mistake.message, "syntax", where, mistake.label,
                            help=(mistake.help,) if mistake.help else ())
    error = ProgramSyntaxError(diagnostic.render())
    error.diagnostic = diagnostic
    error.filename, error.line, error.column = filename, line, column + 1
    return error


# -- errors of the grammar -------------------------------------------------------------------------

_WORDS = {
    "NAME": "a name", "SYMBOL": "the program's name, such as `@layer`", "TYPE": "a type",
    "END": "the end of the line", "PARAMS": "params in `[...]`", "LITERAL": "a literal",
    "MESH": "a mesh such as `(X=2, Y=4)`", "STRING": "a string", "ELEMENTS": "numbers",
    "WORD": "a word", "NUMBER": "a number", "AXIS": "a mesh axis", "SLOT": "a nested program",
    "FILE": "a file", "DEVICES": "a list of devices", "WEAK": "`~`", "DASHED": "",
    "$END": "the end of the text",
}

# What probably happened: what could have come, what came instead (None: anything, "": the end of
# the text) and what came before -> message and help.
_LIKELY: tuple[tuple[set[str], str | None, str, str, str], ...] = (
    ({"RETURN"}, "}", "", "a program ends with `return`, which is missing here",
     "write `return` and the results before `}`"),
    ({"RETURN"}, "", "", "the text ends within a program", "close it with `return ...` and `}`"),
    ({"RBRACE"}, "", "", "the text ends within a program", "close it with `}`"),
    ({"RBRACE"}, None, "", "`return` is the last line of a program",
     "move equations before `return`, or close the program with `}`"),
    ({"TYPE"}, None, "", "a type is expected here",
     "a type is written `f32[8@X,4]`, a scalar `f32[]`"),
    ({"COLON", "PARAMS"}, "=", "", "the result of an equation needs its type",
     "write `name: f32[8,4] = op operands`"),
    ({"SYMBOL", "LEVEL"}, None, "=", "the result of an equation needs its type",
     "write `name: f32[8,4] = op operands`; a nested program begins `param = @name(...)`"),
    ({"PARAMS", "END"}, "[", "", "params begin with `[` but do not end",
     "close them with `]`"),
    ({"END", "NAME", "LITERAL"}, None, "", "an operand is a name, or a literal with its type",
     "operands are separated by spaces; a literal is written `2.0:f32[]`"),
    ({"PROGRAM", "LEVEL"}, None, "", "a text begins with `mesh`, `level` or `program`",
     "the smallest program: `program @f(x: f32[]) -> f32[] {`, `return x`, `}` on three lines"),
)


def grammar_mistake(error: UnexpectedInput, text: str, terminals: Mapping[str, str],
                    offset: int = 0) -> Mistake:
    """Words for an error of the parser generator.

    terminals: those that are fixed words, with the word. offset: of the part that was being read.
    """
    start = len(text)
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        start = error.token.start_pos or 0
    elif isinstance(error, UnexpectedCharacters):
        start = error.pos_in_stream
    found = text[start:].split("\n")[0]
    state: Any = error.state
    expected = {name for name in state.parse_conf.states[state.position] if name.isupper()}
    token = found.split(" ")[0]
    length = max(1, len(token))
    label = _expectation(expected, terminals)
    before = text[:start].rstrip()
    for names, beginning, end, message, help in _LIKELY:
        if names <= expected and before.endswith(end) and (beginning is None or (
                found.startswith(beginning) if beginning else not found)):
            return Mistake(message, offset + start, length, label=label, help=help)
    message = f"unexpected `{token}`" if token else "the text ends too early"
    return Mistake(message, offset + start, length, label=label)


def _expectation(expected: set[str], terminals: Mapping[str, str]) -> str:
    words = {f"`{terminals[name]}`" if name in terminals else _WORDS.get(name, name.lower())
             for name in expected}
    listed = sorted(words - {""})
    if len(listed) > 6:
        return ""
    return "expected " + " or ".join([", ".join(listed[:-1]), listed[-1]] if listed[1:] else listed)
