"""What there is to show at the lines of a file: from explanations to places in a text.

Positions are those of the protocol: lines and columns from 0, columns in units of UTF-16.
"""
from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import Diagnostic
from ...ir.source.wording import duration
from ...report.warnings.waste import Waste
from ...report.words import quantity
from .targets import Names

Range = list[int]                        # line, column, end line, end column
_Root = tuple[str, int, str]             # an annotation, its place, the argument that it is of

ERROR, WARNING, NOTE = 1, 2, 3           # severities of the protocol
_STEPS = 6                               # of the path of an axis that are shown
_TYPES = 3                               # of a name that is several values


class Text:
    """A file's lines, for positions in them."""

    def __init__(self, source: str) -> None:
        self.lines = source.split("\n")

    def column(self, line: int, column: int) -> int:
        """A column in characters as one of the protocol; line: from 1."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return len(text[:column].encode("utf-16-le")) // 2

    def range(self, line: int, column: int, end_line: int, end_column: int) -> Range:
        """A span, its lines from 1, as a range of the protocol."""
        return [line - 1, self.column(line, column), end_line - 1,
                self.column(end_line, end_column)]

    def whole(self, line: int) -> Range:
        """A line without its indentation."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return self.range(line, len(text) - len(text.lstrip()), line, len(text.rstrip()))


class Findings:
    """What is shown of one file; `data` is plain."""

    def __init__(self, path: str, source: str) -> None:
        self.path, self.text = path, Text(source)
        self.names = Names(source)
        self.problems: list[dict[str, Any]] = []
        self._forget_programs()

    def without_programs(self) -> Findings:
        """Findings of the same file that know nothing of programs yet; problems are the same."""
        other = copy.copy(self)
        other._forget_programs()
        return other

    def _forget_programs(self) -> None:
        self._types: dict[tuple[int, ...], dict[str, None]] = {}      # by the place of a name
        self._hovers: dict[tuple[int, ...], dict[str, None]] = {}
        self._causes: dict[tuple[int, ...], dict[tuple[Any, ...], None]] = {}
        self._moved: dict[int, dict[str, None]] = {}

    def data(self) -> dict[str, Any]:
        """All findings as plain data, with ranges of the protocol."""
        span = self.text.range
        return {
            "hints": [{"at": span(*at)[2:], "label": ": " + _type_union(types)}
                      for at, types in self._types.items()],
            "lenses": [{"line": line - 1, "titles": list(titles)}
                       for line, titles in sorted(self._moved.items())],
            "hovers": [{"range": span(*at), "text": "\n\n".join(said)}
                       for at, said in self._hovers.items()],
            "causes": [{"range": span(*at), "targets": [{"path": p, "range": list(r)}
                                                        for p, r in targets]}
                       for at, targets in self._causes.items()],
            "problems": self.problems}

    def add(self, data: dict[str, Any]) -> None:
        """What is known of one program: `source_data`, or `type_data` or `moved_data` alone."""
        paths = AxisPaths(data)
        own = {n for n, f in enumerate(data["files"]) if f["path"] == self.path}
        for n, v in enumerate(data.get("values", ())):
            place = data["places"][v["place"]] if v["place"] >= 0 else None
            if place is None:
                at = self.names.parameter(data["name"], v["name"]) if v["inside"] < 0 else None
            elif place[0] in own and "transpose" not in place[6]:    # which has no name there
                at = self.names.target(v["name"], place[1]) if v["name"] else None
            else:
                continue
            if at is not None:
                self._types.setdefault(at, {})[data["types"][v["type"]]["text"]] = None
            for where in (at, tuple(place[1:5]) if place else None):
                if where is not None:
                    self._hovers.setdefault(where, {})[paths.hover(n)] = None
                    self._lead(where, data, self._roots(paths, n))
        for c in data.get("collectives", ()):
            place = data["places"][c["place"]] if c["place"] >= 0 else None
            if place is None or place[0] not in own:
                continue
            where = tuple(place[1:5])
            self._moved.setdefault(place[1], {})[_lens(c)] = None
            self._hovers.setdefault(where, {})[_collective(c)] = None
            self._lead(where, data, [("", -1, name) for name in c.get("arguments", ())])

    def wasted(self, warnings: Sequence[Waste]) -> None:
        """Warnings of a program that are about lines of the file."""
        for w in warnings:
            at = w.source
            if at.file == self.path and at.line:
                self.problem(self.text.range(at.line, at.column, at.end_line, at.end_column),
                             w.text + (f"\nfix: {w.fix}" if w.fix else ""), WARNING, w.kind)

    def _roots(self, paths: AxisPaths, n: int) -> Iterator[_Root]:
        """Where the axes of a value come from."""
        for step in paths.data["values"][n]["from"]:
            root = paths.root(step)
            if root is not None:
                yield root

    def _lead(self, where: tuple[int, ...], data: dict[str, Any],
              roots: Iterable[_Root]) -> None:
        """Note the places that a finding at `where` leads to: annotations, or the parameters of
        arguments.
        """
        for _, place, argument in roots:
            target: tuple[str, tuple[int, ...]] | None = None
            if place >= 0:
                file, line, column, end_line, end_column, *_ = data["places"][place]
                path = data["files"][file]["path"]
                target = path, tuple(self.text.range(line, column, end_line, end_column)
                                     if path == self.path else
                                     [line - 1, column, end_line - 1, end_column])
            elif argument:
                parameter = argument.partition("[")[0].partition(".")[0]
                at = self.names.parameter(data["name"], parameter)
                if at is not None:
                    target = self.path, tuple(self.text.range(*at))
            if target is not None:
                self._causes.setdefault(where, {})[target] = None

    def problem(self, where: Range, text: str, severity: int, code: str = "",
                fixes: Sequence[dict[str, Any]] = ()) -> None:
        found = {"range": where, "message": text, "severity": severity, "code": code,
                 "fixes": list(fixes)}
        if found not in self.problems:
            self.problems.append(found)

    def failed(self, error: BaseException, message: str) -> None:
        """Why the file, or a function of it, could not be looked at."""
        diagnostic = getattr(error, "diagnostic", None)
        if isinstance(error, SyntaxError) and error.lineno:
            first = max(0, (error.offset or 1) - 1)
            end = error.end_lineno or error.lineno, max(first + 1, (error.end_offset or 0) - 1)
            self.problem(self.text.range(error.lineno, first, *end), error.msg, ERROR, "syntax")
        elif isinstance(diagnostic, Diagnostic) and diagnostic.location.file == self.path:
            at = diagnostic.location
            self.problem(self.text.range(at.line, at.column, at.end_line, at.end_column),
                         _message_text(diagnostic), ERROR, diagnostic.code,
                         [self._fix(f) for f in diagnostic.fixes if f.file == self.path])
        else:
            line = _own_line(error, self.path)
            self.problem(self.text.whole(line or 1), message, ERROR if line else NOTE)

    def _fix(self, fix: Any) -> dict[str, Any]:
        """A change of the file as a title and edits."""
        cost = "" if fix.received_bytes is None else f" ({quantity(fix.received_bytes, 'B')})"
        edits = [{"range": self.text.range(fix.line, fix.column, fix.end_line, fix.end_column),
                  "text": fix.text}]
        if fix.imports:
            first = self.names.first_import
            edits.append({"range": [first, 0, first, 0],
                          "text": "".join(f"{line}\n" for line in fix.imports)})
        return {"title": fix.text.strip().split("\n")[0] + cost, "edits": edits}


class AxisPaths:
    """The paths of the axes of one program, from values back to annotations."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self._roots: dict[tuple[int, str], _Root | None] = {}
        self._hovers: dict[int, str] = {}

    def _next(self, step: list[Any]) -> list[Any] | None:
        return next((s for s in self.data["values"][step[2]]["from"] if s[1] == step[1]), None)

    def root(self, step: list[Any] | None) -> _Root | None:
        """The annotation that an axis comes from."""
        passed: list[tuple[int, str]] = []
        found: _Root | None = None
        seen: set[tuple[int, str]] = set()
        while step is not None:
            if step[2] < 0:
                found = step[3], step[4], step[5]
                break
            key = step[2], step[1]
            if key in self._roots:
                found = self._roots[key]
                break
            if key in seen:
                break
            seen.add(key)
            passed.append(key)
            step = self._next(step)
        self._roots.update(dict.fromkeys(passed, found))
        return found

    def hover(self, n: int) -> str:
        """A value for a hover: its type, and where its axes come from."""
        said = self._hovers.get(n)
        if said is None:
            v = self.data["values"][n]
            t = self.data["types"][v["type"]]
            block = f", on a device `[{', '.join(map(str, t['block']))}]`" if v["from"] else ""
            said = self._hovers[n] = "\n".join([
                f"`{v['name'] or v['text'] or 'value'}: {t['text']}`{block}",
                *map(self._path, v["from"])])
        return said

    def _path(self, first: list[Any]) -> str:
        """The path of an axis in words: each op that it came through, and the annotation that it
        began at.
        """
        texts: list[str] = []
        step: list[Any] | None = first
        while step is not None and step[2] >= 0 and len(texts) < _STEPS:
            texts.append(f"{step[3]}{self._line(step[4])}")
            step = self._next(step)
        if step is not None and step[2] >= 0:
            texts.append("...")
        root = self.root(first)
        if root is not None:
            texts.append(f"{root[0]}{self._line(root[1])}")
        return f"- `{first[1]}` on dimension {first[0]}: from {', from '.join(texts)}"

    def _line(self, place: int) -> str:
        return f" (line {self.data['places'][place][1]})" if place >= 0 else ""


def _lens(c: dict[str, Any]) -> str:
    times = f" x {c['count']}" if c["count"] != 1 else ""
    return (f"{c['kind']} {', '.join(c['axes'])} {quantity(c['bytes'], 'B')}{times}, "
            f"{duration(c['time'] * c['count'])}")


def _collective(c: dict[str, Any]) -> str:
    lines = [f"**{c['heading']}**"]
    if "reasons" in c:
        lines += ["", c["verdict"], "", *(f"- {line}" for line in c["reasons"])]
    return "\n".join(lines)


def _type_union(types: dict[str, None]) -> str:
    shown = list(types)
    return " | ".join(shown[:_TYPES] + ["..."] * (len(shown) > _TYPES))


def _message_text(d: Diagnostic) -> str:
    """A diagnostic without the excerpt, which the editor shows itself."""
    return "\n".join([d.message, *([d.label] if d.label else []),
                      *(f"because: {text}" for text in d.because),
                      *(f"help: {text}" for text in d.help)])


def _own_line(error: BaseException, path: str) -> int:
    """The innermost line of the file that an error came through; 0 if none."""
    found, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            found = trace.tb_lineno
        trace = trace.tb_next
    return found or (_own_line(error.__cause__, path) if error.__cause__ else 0)
