"""Errors with a place, a reason and a way out, in one form.

A rule or pass that refuses something calls `fail(ErrorClass, message, ...)`: it builds a
`Diagnostic`, renders it under the message, and raises. The first line is the message (JAX's key
phrase where JAX has one); below come the user's line with a caret, why, and what to do:

    ShardingTypeError: add got incompatible shardings for broadcasting: ('x', None), ('y', None).
      --> train.py:10:9 in `layer`
       |
    10 |     y = h + b.T
       |         ^^^^^^^ f32[64@X,16] and f32[64@Y,16]
       |
       = help: bring both operands to one spec: `y = h + reshard(b.T, P('X', None))`
"""
from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..source.location import UNKNOWN, Location, capture, is_ours
from ..support.immutable import immutable, replace
from ..support.lazy import lazy_pattern

if TYPE_CHECKING:
    from ..meshes.mesh import AbstractMesh
    from ..spec import PartitionSpec

_UNPRINTED = lazy_pattern(r"[^\n\t -~]")
WIDEST = 240             # characters of a source line that are shown
LONGEST = 4_000          # of a message


def visible(text: str) -> str:
    """The text with characters that a terminal acts upon written as escapes: `\\x1b`."""
    if text.isprintable():
        return text
    return _UNPRINTED.sub(lambda m: m[0] if m[0].isprintable() else
                          m[0].encode("unicode_escape").decode("ascii"), text)


def clipped(text: str, most: int = LONGEST) -> str:
    """The text, or its beginning and how much there is more."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} more characters)"


def shown_part(source: str, column: int, end: int) -> tuple[str, int, int]:
    """What is shown of a source line, and the columns there of the carets under it."""
    most = max(len(source), WIDEST)
    column, end = min(column, most), min(end, most)
    first = 0 if len(source) <= WIDEST else max(0, column - WIDEST // 2)
    shown = source[first:first + WIDEST]
    return shown, column - first, min(end - first, WIDEST)


@immutable
class Label:
    """A span with a word about it; the secondary labels of a diagnostic."""
    location: Location
    text: str


@immutable
class Fix:
    """A change of the user's source with which the expression type-checks.

    file, and the span that is replaced (lines from 1, columns from 0, in characters); text: what
    stands there instead. imports: lines that the file needs besides. result: the type of the
    expression after the change. received_bytes: that each device receives to evaluate it, None if
    that is not known.
    """
    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    imports: tuple[str, ...] = ()
    result: str = ""
    received_bytes: int | None = None

    def apply(self, source: str) -> str:
        """The text of the file with the change made."""
        lines = source.split("\n")
        self._replace(lines)
        if self.imports:
            lines[(at := _first_import(source)):at] = self.imports
        return "\n".join(lines)

    def shown(self, lines: Sequence[str], first: int, last: int) -> str:
        """The imports, and the text that replaces lines `first` to `last`."""
        changed, count = list(lines), len(lines)
        self._replace(changed)
        block = changed[first - 1:last + len(changed) - count]
        indent = block[0][:len(block[0]) - len(block[0].lstrip())]
        return "\n".join((*self.imports, *(line.removeprefix(indent) for line in block)))

    def _replace(self, lines: list[str]) -> None:
        head = lines[self.line - 1][:self.column]
        tail = lines[self.end_line - 1][self.end_column:]
        lines[self.line - 1:self.end_line] = (head + self.text + tail).split("\n")


def _first_import(source: str) -> int:
    """The number of lines above the first import of a file, those `from __future__` aside."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return 0
    behind = 0
    for node in body:
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if isinstance(node, ast.Import | ast.ImportFrom) and not future:
            return node.lineno - 1
        if future or node is body[0] and ast.get_docstring(ast.Module(body, [])) is not None:
            behind = node.end_lineno or node.lineno
    return behind


@immutable
class Remedy:
    """What would help in words, and how it is written: shown as code where that has been tried.

    role: the part of the failing call that is changed: its "init", "body", "true_fun", "false_fun",
    "items", the number of an operand, "operand" (any), "index"; or what is done to the whole:
    "mesh" (specs get one), "update" (an assignment becomes one), "numpy" (a function becomes ours),
    "static NAME" (an argument, where the function is jitted). parts: for each part of it that
    changes its path, what is written there and a spec for that: in `{lax.pcast}(@, 'x')` the `@`
    is the code that stands there now, `{lax.pcast}` the name that the user has for that function,
    `$` the spec. The path of a function leads into what it returns; parts of an operand are several
    ways.
    """
    what: str
    role: str
    parts: tuple[tuple[tuple[Any, ...], str, PartitionSpec | None], ...] = ()
    mesh: AbstractMesh | None = None

    def __str__(self) -> str:
        return self.what


Help = str | Remedy


@immutable
class Diagnostic:
    """What went wrong, where, because of what, and what would help.

    code: a short hyphenated name of the kind of mistake (`sharding-conflict`). fixes: changes that
    `help` shows, as data.
    """
    message: str
    code: str = ""
    location: Location = UNKNOWN
    label: str = ""
    others: tuple[Label, ...] = ()
    because: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    help: tuple[Help, ...] = ()
    fixes: tuple[Fix, ...] = ()

    def render(self) -> str:
        """The message, then the source excerpt with carets, then because, note and help."""
        lines = [clipped(self.message)]
        where = self.location
        known = where is not UNKNOWN and where.line > 0
        if known:
            width = len(str(max([where.line, *(o.location.line for o in self.others)])))
            pad = " " * width
            function = f" in `{where.function}`" if where.function not in ("", "<module>") else ""
            lines.append(f"{pad}--> {where}{function}")
            excerpt = list[str]()
            spans = [(where, "^", self.label), *((o.location, "-", o.text) for o in self.others)]
            spans.sort(key=lambda s: (s[0].line, s[1] != "^"))
            last = None
            for span, mark, text in spans:
                if span.file != where.file:
                    continue
                source = span.source_line()
                if not source and not text:
                    continue            # carets below nothing say nothing
                end = span.end_column if span.end_line == span.line else len(source)
                shown, column, end = shown_part(source, span.column, end)
                if span.line != last:
                    if last is not None and span.line > last + 1:
                        excerpt.append("...")
                    excerpt.append(f"{span.line:>{width}} | {shown}".rstrip())
                last = span.line
                carets = mark * max(1, end - column)
                excerpt.append(f"{pad} | {' ' * column}{carets} {clipped(text)}".rstrip())
            lines += [f"{pad} |", *excerpt, f"{pad} |"] if excerpt else []
        else:
            pad = ""
        for word, texts in (("because", self.because), ("note", self.notes), ("help", self.help)):
            for text in texts:
                first, *rest = clipped(str(text)).split("\n")
                lines.append(f"{pad} = {word}: {first}")
                lines.extend(f"{pad}   {' ' * len(word)}  {line}" for line in rest)
        return visible("\n".join(lines))


Adviser = Callable[[type[Exception], Diagnostic], Diagnostic]
ADVISERS: list[Adviser] = []     # add what the user's code tells (tracer/advice/advice.py)
# From a traced program to the bytes that its busiest device receives in a run, for `Fix`es
# (driver/analysis/fix_prices.py).
PRICES: list[Callable[[Any], int]] = []


def error(cls: type[Exception], message: str, *, code: str = "", location: Location | None = None,
          label: str = "", others: tuple[Label, ...] = (), because: tuple[str, ...] = (),
          notes: tuple[str, ...] = (), help: tuple[Help, ...] | Help = ()) -> Exception:
    """An exception of `cls` whose text is the rendered diagnostic, kept as `.diagnostic`.

    Without `location` the user's frame that led here is taken.
    """
    if isinstance(help, Help):
        help = (help,)
    diagnostic = Diagnostic(message, code, location or capture(), label, others, tuple(because),
                            tuple(notes), tuple(help))
    if location is None:                     # the mistake is where the user's code is now
        for adviser in ADVISERS:
            diagnostic = adviser(cls, diagnostic)
    exception = cls(diagnostic.render())
    exception.diagnostic = diagnostic  # type: ignore[attr-defined]
    return exception


def placed(exception: BaseException, location: Location | None) -> None:
    """Say of an error of the package's where the user's expression is of which it is one, if a rule
    ran apart from it; the first location given counts. None: its own place is right.
    """
    trace = exception.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not isinstance(exception, Exception) or "_placed" in exception.__dict__:
        return
    exception.__dict__["_placed"] = True
    if location is None or not location.line or not is_ours(
            trace.tb_frame.f_globals.get("__name__", "")):
        return
    diagnostic = getattr(exception, "diagnostic", None) or Diagnostic(str(exception))
    if exception.args == (diagnostic.render(),):
        diagnostic = replace(diagnostic, location=location)
        exception.args = (diagnostic.render(),)
        exception.__dict__["diagnostic"] = diagnostic


def fail(cls: type[Exception], message: str, **details) -> NoReturn:
    """Raise `error(cls, message, ...)`; see there."""
    raise error(cls, message, **details)
