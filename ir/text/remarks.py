"""The comment at the end of an equation: what it costs, where it comes from, why it exists.

    # train.py:9:9-13 in layer
    # transpose of train.py:9:9-13 under attention/scores
    # all-reduce over X, 1,024 B received per device, train.py:9:9-13
    # because w is whole over X
    # of no line
    # train.py:9:9-13, result 0 asked for at train.py:12:9-40

File, line, columns (from 1, both included), function, scope, transformation and reason are read
back; the cost of a collective follows from the equation, so it is only shown. A file is named by
the end of its path that tells it from the others; the full paths stand below the program, as in
`file train.py = "/home/me/train.py"`. The function is left out where it is the program's own. Any
other comment means nothing. ir/text/folding.py breaks it into lines and joins these.
"""
from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ..op import Collective
from ..ops.communication.collective_kinds import equation_kind, received_bytes
from ..program import Equation, Var
from ..reasons import read_reason, reason_text
from ..source.location import UNKNOWN, Location, ParsedLocation
from ..support.lazy import lazy_pattern
from .placeholders import quote
from .value_printer import axis_text, unquote

_PLAIN_FILE = lazy_pattern(r'[^\s":,#=]+')
_PLAIN_WORD = lazy_pattern(r'[^\s",]+')
_PLAIN_TRANSFORM = lazy_pattern(r'[^\s",:]+')
_STRING = r'"(?:[^"\\]|\\.)*"'
_NO_LINE = "of no line"
_PLACE = (rf'(?:(?P<transform>[^\s",:]+|{_STRING}) of )?(?P<file>[^\s":,]+|{_STRING})'
          r":(?P<line>\d{1,9}):(?P<column>\d{1,9})"
          r"(?:-(?:(?P<end_line>\d{1,9}):)?(?P<end_column>\d{1,9}))?"
          rf'(?: in (?P<function>[^\s",]+|{_STRING}))?'
          rf'(?: under (?P<scope>[^\s",]+|{_STRING}))?')
_ANY_PLACE = re.sub(r"\?P<\w+>", "?:", _PLACE)
_ASKED = lazy_pattern(rf"result (\d{{1,9}}) asked for at ({_ANY_PLACE})(?:, |$)")
_WHERE = lazy_pattern(_PLACE)
_REMARK = lazy_pattern(
    r"#\s*(?:\S+ over [^#]*? received per device(?:, |$))?"
    rf"(?:(?:(?P<nowhere>{_NO_LINE})|{_PLACE})(?:, |$))?"
    rf"(?P<asked>(?:result \d+ asked for at {_ANY_PLACE}(?:, |$))*)"
    r"(?:because (?P<reason>.*))?")


class Files:
    """Short names of the files that a text mentions, each the end of a path."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}     # path -> label
        self.paths: dict[str, str] = {}      # label -> path

    def label(self, path: str) -> str:
        """The name of a file in this text."""
        label = self.labels.get(path)
        if label is None:
            parts = path.replace(os.sep, "/").split("/")
            label = parts[-1]
            for count in range(1, len(parts) + 1):
                label = "/".join(parts[-count:])
                if label not in self.paths:
                    break
            while label in self.paths:       # two spellings of one path
                label += "'"
            self.labels[path] = label
            self.paths[label] = path
        return label


def _word(text: str, plain: re.Pattern) -> str:
    return text if plain.fullmatch(text) and text.isprintable() else quote(text)


def file_word(label: str) -> str:
    """A file's label as a comment writes it."""
    return _word(label, _PLAIN_FILE)


def place_text(eqn: Equation, function: str, files: Files, requested: Mapping[Var, Location],
               located: bool = False) -> str:
    """What an equation costs and where it comes from; '' if there is nothing to say.

    requested: where the user constrains values. located: whether equations of this text have
    locations, so that one without says so; else the line of the text is taken for it when it is
    read.
    """
    parts = []
    if eqn.op.collective is not None:
        cost = _exchange_text(eqn, eqn.op.collective)
        if cost:
            parts.append(cost)
    place = eqn.location
    if place is not UNKNOWN:
        parts.append(_place_text(place, function, files))
    elif located:
        parts.append(_NO_LINE)
    for k, v in enumerate(eqn.outvars):
        if v in requested:
            parts.append(f"result {k} asked for at {_place_text(requested[v], function, files)}")
    return ", ".join(parts)


def brief_place(eqn: Equation, files: Files) -> str:
    """The file and line of an equation."""
    place = eqn.location
    return "" if place is UNKNOWN else f"{file_word(files.label(place.file))}:{place.line}"


def because_text(eqn: Equation) -> str:
    """Why an equation exists, as a comment writes it after `because`."""
    reason = reason_text(eqn.reason)
    if reason and (reason != reason.strip() or not reason.isprintable() or reason[0] == '"'):
        reason = quote(reason)
    return reason


def _place_text(place: Location, function: str, files: Files) -> str:
    """A location in a remark: file, line and columns, with transformation, function and scope."""
    line, column, end_line, end_column = (
        place.line, place.column, place.end_line, place.end_column)
    text = f"{file_word(files.label(place.file))}:{line}:{column + 1}"
    if end_line != line:
        text += f"-{end_line}:{end_column}"
    elif end_column != column:
        text += f"-{end_column}"
    if place.transform:
        text = f"{_word(place.transform, _PLAIN_TRANSFORM)} of {text}"
    name = place.function
    if name != function:
        text += f" in {_word(name, _PLAIN_WORD)}"
    return f"{text} under {_word(place.scope, _PLAIN_WORD)}" if place.scope else text


def _exchange_text(eqn: Equation, collective: Collective) -> str:
    """`all-reduce over X, 1,024 B received per device`; '' where these axes are not the mesh's."""
    try:
        axes, received = collective.axes(eqn.params), received_bytes(eqn)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError):   # not verified, perhaps
        return ""
    over = ",".join(map(axis_text, axes))
    return f"{equation_kind(eqn) or eqn.op.name} over {over}, {received:,} B received per device"


class Remark:
    """What a comment says: the file by its label, the rest as in `Location`."""

    __slots__ = ("file", "nowhere", "place", "reason", "requested", "scope", "span", "transform")

    def __init__(self, match: re.Match, function: str) -> None:
        group = match.groupdict()
        self.reason = read_reason(_unword(group.get("reason") or ""))
        self.requested = [(int(m[1]), Remark(_WHERE.fullmatch(m[2]), function))     # type: ignore
                          for m in _ASKED.finditer(group.get("asked") or "")]
        self.place: Location | None = None
        self.nowhere = group.get("nowhere") is not None
        self.file = None
        if group["file"] is not None:
            self.file = _unword(group["file"])
            self.transform = _unword(group["transform"] or "")
            self.scope = _unword(group["scope"] or "")
            line, column = int(group["line"]), int(group["column"]) - 1
            end_line = int(group["end_line"] or line)
            end_column = int(group["end_column"] or column)
            name = group["function"]
            self.span = (line, column, end_line, end_column,
                         function if name is None else _unword(name))

    def location(self, paths: dict[str, str], folder: str = "") -> Location:
        """The location, files being named in full by `paths`: one for all with this comment.

        folder: where the text is.
        """
        if self.file is None:
            return UNKNOWN
        if self.place is None:
            line, column, end_line, end_column, function = self.span
            place = ParsedLocation(None, span=(paths.get(self.file, self.file), line, column,
                                               end_line, end_column, function))
            place.folder = folder
            place = place.under(self.transform) if self.transform else place
            self.place = place.within(self.scope)
        return self.place


def _unword(text: str) -> str:
    return unquote(text) if text[:1] == '"' else text


def read_remark(comment: str, function: str) -> Remark | None:
    """What a comment (with `#`) says, or None if it is not of this form."""
    match = _REMARK.fullmatch(comment)
    return None if match is None else Remark(match, function)
