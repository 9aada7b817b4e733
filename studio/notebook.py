"""The IPython extension: `%load_ext shardtrace`, then `%%shardtrace` at the top of a cell.

The cell runs as usual. Below it its lines are shown, each with the types of its values and the
collectives that it causes; also the lines of other cells whose functions it calls.
"""
from __future__ import annotations

import argparse
import functools
import shlex
from typing import Any, NoReturn

from ..ir.source.wording import duration
from ..ir.support.html import FAINT, LOUD, code, page
from ..ir.support.lazy import lazy_import
from ..partitioner.cost.hardware import hardware_names
from ..report.explanation import Explanation
from ..report.views.data import source_data
from ..report.views.page import page_of
from ..report.words import quantity
from .captured_programs import CapturedPrograms

_html = lazy_import("html")
_display = lazy_import("IPython.display")

_MOST = 3                # types shown of a line
_NAME = "shardtrace"


def load_ipython_extension(ipython: Any) -> None:
    """What `%load_ext shardtrace` calls."""
    ipython.register_magic_function(functools.partial(_cell, ipython), "cell", _NAME)


def unload_ipython_extension(ipython: Any) -> None:
    """What `%unload_ext shardtrace` calls."""
    ipython.magics_manager.magics["cell"].pop(_NAME, None)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"%%{_NAME}: {message}")


def _options(line: str) -> argparse.Namespace:
    parser = _Parser(prog=f"%%{_NAME}", add_help=False)
    parser.add_argument("--hardware", choices=hardware_names())
    parser.add_argument("--page", metavar="FILE.html")
    return parser.parse_args(shlex.split(line))


def _cell(ipython: Any, line: str, cell: str) -> None:
    """Run a cell and show types and collectives beside its lines.

    --hardware H: the device that times are modelled for. --page FILE.html: also write the page of
    what is explained.
    """
    options = _options(line)
    seen = CapturedPrograms()
    with seen.watching():
        ran = ipython.run_cell(cell)
    if not ran.success:                      # IPython has printed why
        return
    explained = seen.explanations(options.hardware)
    if options.page:
        write_page(explained, options.page)
    _display.display(_display.HTML(cell_html(explained, cell)))


def write_page(explained: list[Explanation], path: str) -> None:
    """The page of several explanations as a file."""
    text = page_of([e.view() for e in explained], "notebook",
                   "\n\n".join(str(e) for e in explained))
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)


def cell_html(explained: list[Explanation], cell: str) -> str:
    """The lines of a cell, and of others that its programs come from, with what is known of them;
    then the explanations themselves.
    """
    if not explained:
        return page("<i>no jitted function ran in this cell</i>")
    notes: dict[str, dict[int, dict[str, str]]] = {}        # by file and line, with the style
    lines: dict[str, list[str]] = {}
    for e in explained:
        data = source_data(e)
        for f in data["files"]:
            lines.setdefault(f["path"], f["lines"])
        for path, line, text, style in _noted(data):
            notes.setdefault(path, {}).setdefault(line, {}).setdefault(text, style)
    own = next((p for p, text in lines.items() if "\n".join(text).strip() == cell.strip()), "")
    # cells have no file of their own; other files are in the explanations
    shown = [p for p in notes if p == own or "ipykernel" in p or p.startswith("<ipython")]
    parts = [_lines(lines[p], notes[p]) for p in sorted(shown, key=lambda p: p != own)]
    for e in explained:
        n = len(e.collectives)
        said = (f"{e.name}: {n} collective{'s' * (n != 1)}, {quantity(e.received_bytes, 'B')} "
                f"received, {duration(e.time)}, {quantity(e.peak_bytes, 'B')} held")
        parts.append(f"<details><summary>{_html.escape(said)}</summary>{e._repr_html_()}</details>")
    return page("".join(parts))


def _noted(data: dict[str, Any]) -> Any:
    """The notes on lines: file, line, text, style."""
    shown: dict[tuple[int, int], int] = {}
    for v in data["values"]:
        if v["place"] < 0 or not v["name"]:
            continue
        file, line, *_, transform = data["places"][v["place"]]
        if "transpose" in transform or shown.get((file, line), 0) == _MOST:
            continue
        shown[file, line] = shown.get((file, line), 0) + 1
        yield (data["files"][file]["path"], line,
               f"{v['name']}: {data['types'][v['type']]['text']}", FAINT)
    for c in data["collectives"]:
        if c["place"] >= 0:
            file, line, *_ = data["places"][c["place"]]
            yield data["files"][file]["path"], line, c["heading"], LOUD


def _lines(text: list[str], notes: dict[int, dict[str, str]]) -> str:
    """Lines followed by their notes, aligned."""
    while text and not text[-1].strip():
        text = text[:-1]
    width = max((len(line) for n, line in enumerate(text, 1) if n in notes), default=0)
    width = min(72, width)
    shown = []
    for n, line in enumerate(text, 1):
        said = "".join(f"  <span style='{style}'>{_html.escape(note)}</span>"
                       for note, style in notes.get(n, {}).items())
        line = _html.escape(line.ljust(width) if said else line)
        shown.append(f"<span style='{FAINT}'>{n:>3}</span>  {line}{said}")
    return code(shown)
