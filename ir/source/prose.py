"""Text for people, within a width: wrapped sentences, and tables that drop columns."""
from __future__ import annotations

import re
from collections.abc import Sequence

from ..support.lazy import lazy_import

textwrap = lazy_import("textwrap")

_SOURCE = re.compile(r"\s*\d+ \| ")
_CARET = re.compile(r"\s*(?:\d+ )?\| +(\^+)")
_LABEL = re.compile(r"\s*(?:\d+\. |[-+>] |--> |[a-z]+(?: by)?: )?")
_COMMAND = re.compile(r"\s+shardtrace \w")
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""")
_HELP = re.compile(r"( *= help: ).*:$")       # the lines below are code
_LEAST = 20              # columns that are always there for words


def wrapped(text: str, width: int) -> str:
    """The text with lines of at most `width`, broken at blanks; a line goes on under its words.

    Lines of source with a caret below are cut to the part about the caret. A word that is longer
    stands out; so does code to be typed in, and commands go on after a backslash.

    >>> print(wrapped("because: dimension 1 is over model", 24))
    because: dimension 1 is
             over model
    """
    if width <= 0 or all(len(line) <= width for line in text.split("\n")):
        return text
    lines = text.split("\n")
    done: list[str] = []
    i = code = 0
    while i < len(lines):
        line = lines[i]
        caret = _CARET.match(lines[i + 1]) if i + 1 < len(lines) else None
        source = _SOURCE.match(line)
        code = code if code and line.startswith(" " * code) else 0
        if code or len(line) <= width and (caret is None or len(lines[i + 1]) <= width):
            done.append(line)
        elif _COMMAND.match(line):
            done += _command(line, width)
        elif source is not None:
            if caret is not None:
                done += _clipped(line, lines[i + 1], source.end(), caret.start(1), width)
                i += 1
            else:
                done.append(line[:width - 1] + "…")
        else:
            done += _folded(line, width)
        if not code and (shown := _HELP.match(line)):
            code = len(shown[1])
        i += 1
    return "\n".join(done)


def _folded(line: str, width: int) -> list[str]:
    label = _LABEL.match(line)
    deep = min(label.end() if label and label[0].strip() else len(line) - len(line.lstrip()) + 2,
               max(0, width - _LEAST))
    return textwrap.wrap(line, width, subsequent_indent=" " * deep, break_long_words=False,
                         break_on_hyphens=False, drop_whitespace=True) or [line]


def _command(line: str, width: int) -> list[str]:
    """A shell command on several lines, as it can be pasted."""
    indent = line[:len(line) - len(line.lstrip())]
    done = [indent.removesuffix(" ")]
    for word in _WORD.findall(line):
        if len(done[-1]) + len(word) + 3 > width and done[-1].strip():
            done[-1] += " \\"
            done.append(f"{indent}   ")
        done[-1] += f" {word}"
    return done


def _clipped(source: str, carets: str, start: int, caret: int, width: int) -> list[str]:
    """A line of source and the line of its caret, cut to the width."""
    room = width - start - 1
    skip = max(0, min(caret - start - room // 3, len(source) - start - room))
    shown = source[start + skip:]
    under = carets[start + skip:]
    if skip:
        shown, under = "…" + shown[1:], " " + under[1:]
    if len(shown) > room:
        shown = shown[:room - 1] + "…"
    marks, label = re.match(r"( *\^*) ?(.*)", under).groups()      # type: ignore[union-attr]
    marks = marks[:room]
    below: list[str] = []
    if len(marks) + 1 + len(label) <= room:
        marks = f"{marks} {label}".rstrip()
    else:                                   # under the carets, as far to the left as it must
        indent = " " * max(0, min(marks.find("^"), room - len(label)))
        below = textwrap.wrap(label, room, initial_indent=indent, subsequent_indent=indent,
                              break_long_words=False, break_on_hyphens=False)
    return [source[:start] + shown, carets[:start] + marks,
            *(carets[:start] + line for line in below)]


def columns_that_fit(rows: Sequence[Sequence[str]], width: int, drop: Sequence[int],
                     gap: int = 2) -> list[int]:
    """The columns of a table that have room; those of `drop` go first, in its order."""
    kept = list(range(len(rows[0])))
    widths = [max(len(line) for row in rows for line in row[i].split("\n")) for i in kept]
    for column in drop:
        if sum(widths[i] for i in kept) + gap * (len(kept) - 1) <= width:
            break
        kept.remove(column)
    return kept


def plain_table(rows: Sequence[Sequence[str]], width: int, drop: Sequence[int] = (),
                right: Sequence[int] = ()) -> str:
    """Rows, the names of the columns first, as aligned text; `right`: columns of numbers."""
    kept = columns_that_fit(rows, width, drop)
    widths = {i: max(len(row[i]) for row in rows) for i in kept}
    return "\n".join(["  ".join(row[i].rjust(widths[i]) if i in right else row[i].ljust(widths[i])
                                for i in kept).rstrip() for row in rows])
