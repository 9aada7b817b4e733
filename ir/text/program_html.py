"""A program for a notebook: its text, with names of ops, comments and collectives set apart."""
from __future__ import annotations

import html
import re

_EQUATION = re.compile(r"^(\s*[^=]*? = )([\w\-]+)(.*)$")
_BYTES = " B received per device"


def program_html(text: str) -> str:
    """The text of a program as HTML; equations that communicate are coloured.

    >>> page = program_html("  a: f32[2] = sin x    # f.py:1:2")
    >>> "<b>sin</b>" in page, "# f.py:1:2</span>" in page
    (True, True)
    """
    lines = []
    for line in text.split("\n"):
        code, mark, comment = line.partition("  # ")
        match = _EQUATION.match(code)
        shown = html.escape(code)
        if match is not None:
            before, op, after = match.groups()
            style = " style='color:#b00'" if _BYTES in comment else ""
            shown = f"{html.escape(before)}<b{style}>{op}</b>{html.escape(after)}"
        if mark:
            shown += f"<span style='color:#777'>{html.escape(mark + comment)}</span>"
        lines.append(shown)
    return f"<pre>{chr(10).join(lines)}</pre>"
