"""What a command prints: JSON, or text that has colours on a terminal and none when piped.

Lines fit the terminal, or 80 columns where there is none; `COLUMNS` and `--width` say otherwise.

Every JSON answer is one object with `"schema"` (a number that grows when a field changes or goes)
and `"command"`; docs/cli.md lists the fields of each.
"""
from __future__ import annotations

import argparse
import io
import json
import math
import re
import shutil
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..ir.diagnostics.diagnostic import visible
from ..ir.source.prose import wrapped
from ..ir.support.lazy import lazy_import

_console = lazy_import("rich.console")
_markdown = lazy_import("rich.markdown")
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
    r"(?P<code>`[^`\n]+(\n +[^`\n]+)?`)",          # which may go on in the next line
    r"(?P<removed>^\s*- .*$)", r"(?P<added>^\s*\+ .*$)"))


class EscapingStream(io.TextIOBase):
    """A stream that writes what a terminal would act upon as escapes, to another."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(visible(text))

    def flush(self) -> None:
        self.stream.flush()


class Output:
    """Where a command's answer goes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.command: str = options.verb
        self.as_json: bool = getattr(options, "json", False)
        self.color: str = getattr(options, "color", "auto")
        self.width: int = getattr(options, "width", None) or shutil.get_terminal_size().columns

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
        """Text, with places, amounts and carets coloured on a terminal; long lines go on below."""
        self.as_it_is(wrapped(text, self.width))

    def as_it_is(self, text: str) -> None:
        """Text whose lines are not to be broken."""
        text = visible(text)
        if not self.is_rich:
            print(text)
            return
        shown = _text.Text(text)
        for pattern in _PATTERNS:
            shown.highlight_regex(pattern, style_prefix="st.")
        self.console().print(shown, soft_wrap=True)

    def as_it_is_written(self, text: str) -> None:
        """Text with what a terminal acts upon, which this command itself has written."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def program(self, text: str) -> None:
        """A program, which is printed for this width and reads back."""
        self.as_it_is(text.rstrip())

    def markdown(self, text: str) -> None:
        """A page in Markdown."""
        self.renderable(_markdown.Markdown(text))

    def renderable(self, made: Any) -> None:
        """Something that rich lays out."""
        self.console().print(made)

    def console(self, stream: Any = None) -> Any:
        """Where rich prints: on standard output, or another stream."""
        return _console.Console(
            file=stream, theme=_theme.Theme(_STYLES), width=self.width, highlight=False,
            force_terminal=True if self.color == "always" else None)


def _plain(value: Any) -> Any:
    """A value as JSON has it: numbers that are not finite become null, arrays lists."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return value
