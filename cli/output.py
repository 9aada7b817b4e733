"""What a command prints: JSON, or text that has colours on a terminal and none when piped.

Every JSON answer is one object with `"schema"` (a number that grows when a field changes or goes)
and `"command"`; docs/cli.md lists the fields of each.
"""
from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.lazy import lazy_import

_console = lazy_import("rich.console")
_table = lazy_import("rich.table")
_text = lazy_import("rich.text")
_theme = lazy_import("rich.theme")

SCHEMA = 1
_STYLES = {"st.caret": "bold red", "st.place": "cyan", "st.kind": "bold yellow",
           "st.amount": "green", "st.word": "bold", "st.code": "magenta",
           "st.removed": "red", "st.added": "green"}
_PATTERNS = tuple(re.compile(p, re.MULTILINE) for p in (
    r"(?P<caret>^\s*(\d+ )?\| +\^+.*$)",
    r"(?P<place>[\w./\\-]+\.(py|st):\d+(:\d+)?)",
    r"(?P<kind>\b(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)\b)",
    r"(?P<amount>(?<![\w.])[\d.,]+ (B|kB|MB|GB|TB|ns|us|ms|s|[kMGTPE]?FLOP)(?!\w))",
    r"(?P<word>^\s*(because|avoided by|less by|note|help|warning|fix):)",
    r"(?P<code>`[^`\n]+`)",
    r"(?P<removed>^\s*- .*$)", r"(?P<added>^\s*\+ .*$)"))


class Output:
    """Where a command's answer goes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.command: str = options.verb
        self.as_json: bool = getattr(options, "json", False)
        self.color: str = getattr(options, "color", "auto")

    @property
    def is_rich(self) -> bool:
        """Is it for a person at a terminal?"""
        if self.color == "auto":
            return not self.as_json and sys.stdout.isatty()
        return self.color == "always" and not self.as_json

    def json(self, data: Mapping[str, Any]) -> None:
        """One JSON object; numbers that JSON lacks (infinity) become null."""
        print(json.dumps({"schema": SCHEMA, "command": self.command, **_plain(data)}, indent=1))

    def text(self, text: str) -> None:
        """Text, with places, amounts and carets coloured on a terminal."""
        if not self.is_rich:
            print(text)
            return
        shown = _text.Text(text)
        for pattern in _PATTERNS:
            shown.highlight_regex(pattern, style_prefix="st.")
        self.console().print(shown, soft_wrap=True)

    def program(self, text: str) -> None:
        """A program as it is read back: what is piped is exactly the text."""
        self.text(text.rstrip())

    def renderable(self, made: Any) -> None:
        """Something that rich lays out."""
        self.console().print(made)

    def console(self) -> Any:
        width = None if sys.stdout.isatty() else 200
        return _console.Console(theme=_theme.Theme(_STYLES), width=width, highlight=False,
                                force_terminal=True if self.color == "always" else None)

    def table(self, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]],
              title: str = "") -> None:
        """Rows under (name, "left" or "right") columns."""
        if not self.is_rich:
            print(plain_table(columns, rows, title))
            return
        made = _table.Table(title=title or None, title_justify="left")
        for name, justify in columns:
            made.add_column(name, justify=justify)
        for row in rows:
            made.add_row(*(_text.Text(cell) for cell in row))
        self.renderable(made)


def plain_table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]],
                title: str = "") -> str:
    """The rows as aligned text, two blanks between columns."""
    cells = [[name for name, _ in columns], *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [title] if title else []
    for row in cells:
        parts = [cell.rjust(w) if side == "right" else cell.ljust(w)
                 for cell, w, (_, side) in zip(row, widths, columns, strict=True)]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return value
