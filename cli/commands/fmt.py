"""`fmt`: programs in their canonical form, as dumps have it.

What a program says does not change: `fmt` reads the text and prints the program. Constants stay
as they are written, and comments stay at the lines that they stand by.
"""
from __future__ import annotations

import argparse
import difflib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...ir.diagnostics.diagnostic import visible
from ...ir.diagnostics.errors import ShardtraceError
from ...ir.fingerprint import programs_equal
from ...ir.program import Program
from ...ir.source.location import UNKNOWN
from ...ir.text.folding import unfold_comment
from ...ir.text.parse import decoded, load_program, parse_program
from ...ir.text.print import print_program
from ...ir.text.remarks import read_remark
from ...report.reasons.value_paths import inner_programs
from ..output import Output
from ..problems import FINDING, Problem
from ..targets import standard_input

_LINE = re.compile(r"""((?:[^"'#\n]|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')*)(#.*)?""")
_KEY = re.compile(r"\s*((?:const\s+)?%?[A-Za-z_]\w*(?:[.%]\w+)*|@|\}|\))")
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_CONST = re.compile(r"^\s*const\s+(%?[A-Za-z_]\w*(?:\.\w+)*(?:%\d+)?)\s*:[^=]*=\s*("
                    rf"\[[\[\],\s\w.+-]*\]|[a-z]\w+\s+{_STRING}(?:[\s\\]+{_STRING})*(?:\s*:\s*\w+)?"
                    r"|.*?)[ \t]*$", re.MULTILINE)
_WITHIN = re.compile(r'(")[\s\\]*\n\s*"|\s*\n\s*')


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of `fmt`."""
    sub.add_argument("files", nargs="+", metavar="FILE",
                     help="programs in text form, directories of them, or - for standard input")
    sub.add_argument("--check", action="store_true",
                     help="change nothing; exit status 1 where a file is not formatted")
    sub.add_argument("--diff", action="store_true", help="change nothing; print what would change")


def fmt(options: argparse.Namespace) -> int:
    """Format files in place, or standard input to standard output."""
    out = Output(options)
    rows: list[dict[str, Any]] = []
    for path in _files(options.files):
        name = "<stdin>" if path is None else str(path)
        try:
            text = standard_input() if path is None else decoded(path.read_bytes(), name)
            text = text.replace("\r\n", "\n")
            new = formatted(text, path)
        except (ShardtraceError, ValueError, TypeError, KeyError) as error:
            raise Problem(f"{name}: {type(error).__name__}: {error}") from error
        changed = new != text
        rows.append({"file": name, "changed": changed})
        if options.diff and changed and not out.as_json:
            lines = difflib.unified_diff(text.splitlines(), new.splitlines(), name, name,
                                         lineterm="")
            out.as_it_is("\n".join(lines))
        if options.check or options.diff:
            if changed and not out.as_json and not options.diff:
                out.text(f"{name} is not formatted")
        elif path is None:
            rows[-1]["text"] = new
            if not out.as_json:
                print(visible(new), end="")
        elif changed:
            path.write_text(new, encoding="utf-8")
            if not out.as_json:
                out.text(f"{name} formatted")
    if out.as_json:
        out.json({"files": rows})
    return FINDING if options.check and any(r["changed"] for r in rows) else 0


def _files(names: list[str]) -> Iterator[Path | None]:
    """The files that are named, those in folders included; None for standard input."""
    for name in names:
        path = Path(name)
        if name == "-":
            yield None
        elif path.is_dir():
            yield from sorted(p for p in path.rglob("*.st") if p.is_file())
        elif path.exists():
            yield path
        else:
            raise Problem(f"there is no file {name}")


def formatted(text: str, path: Path | None = None) -> str:
    """The canonical text of the program that a text describes. path: the file it is in."""
    if path is None:
        program = parse_program(text, filename="<stdin>")
    else:
        program = load_program(path)
    bare = _without_own_lines(program, "<stdin>" if path is None else str(path))
    code = "\n".join([_LINE.match(line)[1] for line in text.splitlines()])  # type: ignore[index]
    written = iter([(m[1], _in_one_line(m[2])) for m in _CONST.finditer(code)])

    def constant(name: str, value: Any, aval: Any) -> str:
        given, said = next(written)
        # Names that are made up, `%c`, are made up anew.
        assert given.startswith("%") or given == name, f"constant {name} is written as {given}"
        return said

    new = with_comments(text, print_program(bare, constant=constant))
    folder = None if path is None else path.parent
    if folder is None and not programs_equal(parse_program(new, filename="<stdin>"), program):
        raise ValueError("the formatted text would be another program; this is a mistake of fmt's")
    return new


def _in_one_line(constant: str) -> str:
    """A constant as it was before it was broken into lines: strings become one."""
    return _WITHIN.sub(lambda m: "" if m[1] else " ", constant)


def _without_own_lines(program: Program, file: str) -> Program:
    """The program without locations in the text itself, which equations without any are given."""
    eqns = []
    for n, eqn in enumerate(program.eqns):
        params = dict(eqn.params)
        for (_, name, k), inner in inner_programs(eqn, n):
            new = _without_own_lines(inner, file)
            held = params[name]
            params[name] = new if k < 0 else (*held[:k], new, *held[k + 1:])
        where = UNKNOWN if eqn.location.file == file else eqn.location
        eqns.append(eqn.replace(params=params, location=where))
    return program.replace(eqns=tuple(eqns))


# -- comments --------------------------------------------------------------------------------------

def with_comments(old: str, new: str) -> str:
    """The new text with the comments of the old one that are not its own remarks."""
    kept = list(_comments(old))
    if not kept:
        return new
    lines = new.split("\n")
    at = 0
    out: list[str] = []
    for key, comments in kept:
        found = next((i for i in range(at, len(lines)) if key and _key(lines[i]) == key), None)
        if found is None:
            found = at if key else len(lines) - 1
        out += lines[at:found]
        indent = re.match(r"\s*", lines[found])[0] if found < len(lines) else ""  # type: ignore[index]
        out += [indent + c for c in comments]
        at = found
    return "\n".join([*out, *lines[at:]])


def _comments(text: str) -> Iterator[tuple[str, list[str]]]:
    """(what the line begins with that they belong to, comments), in order."""
    pending: list[str] = []
    rows = [match.groups() for line in text.splitlines() if (match := _LINE.match(line))]
    own = 0                                       # rows below an equation that are its remark
    for i, (code, comment) in enumerate(rows):
        if own:
            own -= 1
            continue
        if code.strip():
            below = itertools.takewhile(lambda row: row[1] and not row[0].strip(), rows[i + 1:])
            remark, own = unfold_comment([comment or "", *(row[1] for row in below)])
            if read_remark(remark, "") is None:
                own = 0
            else:
                own, comment = own - 1, None
        if comment:
            pending.append(comment.rstrip())
        if code.strip() and pending:
            yield _key(code), pending
            pending = []
    if pending:
        yield "", pending


def _key(line: str) -> str:
    match = _KEY.match(line)
    return re.sub(r"\s+", " ", match[1]) if match else ""
