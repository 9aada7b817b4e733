"""HTML for notebooks: one look for programs, tables and reprs.

Colours are the notebook's own (`currentColor`), so that dark pages work; what is wider than the
page scrolls.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from .lazy import lazy_import

_html = lazy_import("html")

_SCROLLS = "max-width:100%;overflow-x:auto"
_CELL = ("text-align:left;vertical-align:top;padding:2px 8px;color:inherit;background:transparent;"
         "border:1px solid color-mix(in srgb, currentColor 25%, transparent)")
FAINT = "opacity:.65"                                  # comments
LOUD = "color:light-dark(#b00,#f77)"                   # what communicates


def escaped(text: str) -> str:
    """Text as HTML, line breaks kept."""
    return _html.escape(text).replace("\n", "<br>")


def page(body: str) -> str:
    """What a notebook shows of a value."""
    return f"<div style='{_SCROLLS};color:inherit;background:transparent'>{body}</div>"


def code(lines: Iterable[str]) -> str:
    """Lines of HTML as they stand, in one width of character; long ones scroll."""
    return (f"<pre style='{_SCROLLS};white-space:pre;color:inherit;background:transparent'>"
            + "\n".join(lines) + "</pre>")


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts."""
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag} style='{_CELL}'>{escaped(c)}</{tag}>"
                                for c in cells) + "</tr>"
    return ("<table style='border-collapse:collapse'>" + line(heads, "th")
            + "".join(line(row, "td") for row in rows) + "</table>")


def listed(texts: Iterable[str]) -> str:
    """Points."""
    return "<ul>" + "".join(f"<li>{escaped(text)}</li>" for text in texts) + "</ul>"
