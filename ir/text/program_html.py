"""A program for a notebook: its text, with names of ops, comments and collectives set apart."""
from __future__ import annotations

import html
import itertools
import re

from ..support.html import FAINT, LOUD, code

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
