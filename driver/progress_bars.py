"""Progress bars on a terminal, for work of more than two seconds; they disappear when it is done.

rich draws them on standard error, and is loaded with the first one. Nothing is shown if standard
error is not a terminal, with `config.update("shardtrace_progress", False)` or
SHARDTRACE_PROGRESS=0, or from threads other than the main one.
"""
from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from ..ir.diagnostics.diagnostic import visible
from ..ir.settings.context import config
from ..ir.support import progress
from ..ir.support.lazy import lazy_import

_rich_progress = lazy_import("rich.progress")
_console = lazy_import("rich.console")
_markup = lazy_import("rich.markup")

DELAY = 2.0         # seconds before anything is shown
BRIEF = 0.5         # seconds that a piece of work inside of another is not shown for


class Bars:
    """The bars of the work that is under way, one below the other."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._under_way: list[Bar] = []
        self._timer: threading.Timer | None = None
        self._display: Any = None

    def begin(self, text: str, total: int | None) -> Bar | None:
        """A bar for a piece of work; None where nothing is shown."""
        if not (config.read("shardtrace_progress") and _is_terminal()
                and threading.current_thread() is threading.main_thread()):
            return None
        with self._lock:
            bar = Bar(self, text, total)
            self._under_way.append(bar)
            if self._display is None and self._timer is None:
                self._timer = threading.Timer(DELAY, self._show)
                self._timer.daemon = True
                self._timer.start()
        return bar

    def _show(self) -> None:
        """Begin to draw, if there is work under way still."""
        with self._lock:
            if not self._under_way or self._display is not None:
                return
            columns = _rich_progress.Progress.get_default_columns()
            self._display = _rich_progress.Progress(
                *columns, _rich_progress.MofNCompleteColumn(), transient=True,
                console=_console.Console(stderr=True))
            for bar in self._under_way:
                self._draw(bar)
            self._display.start()

    def _draw(self, bar: Bar) -> None:
        """Show a bar, unless the work has only just begun: short work would only flicker."""
        if time.monotonic() - bar.begun > BRIEF:
            text = _markup.escape(visible(bar.text))
            bar.task = self._display.add_task(text, total=bar.total, completed=bar.done)

    def advance(self, bar: Bar, n: int) -> None:
        with self._lock:
            bar.done += n
            if self._display is None:
                return
            if bar.task is None:
                self._draw(bar)
            else:
                self._display.update(bar.task, completed=bar.done)

    def end(self, bar: Bar) -> None:
        """Remove a bar, and the display with the last one."""
        with self._lock:
            if bar in self._under_way:
                self._under_way.remove(bar)
            if self._display is not None and bar.task is not None:
                self._display.remove_task(bar.task)
            if self._under_way:
                return
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            display, self._display = self._display, None
        if display is not None:
            display.stop()


class Bar:
    """A piece of work with its bar, if that is shown by now."""

    __slots__ = ("bars", "begun", "done", "task", "text", "total")

    def __init__(self, bars: Bars, text: str, total: int | None) -> None:
        self.bars, self.text, self.total = bars, text, total
        self.done = 0
        self.begun = time.monotonic()
        self.task: Any = None

    def advance(self, n: int = 1) -> None:
        self.bars.advance(self, n)

    def end(self) -> None:
        self.bars.end(self)


BARS = Bars()


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def install() -> None:
    """Show progress bars for all work that reports progress."""
    if BARS.begin not in progress.SHOWN:
        progress.SHOWN.append(BARS.begin)


@contextlib.contextmanager
def bars(enabled: bool) -> Iterator[None]:
    """Progress within the block, or none."""
    with config.override(shardtrace_progress=enabled and config.shardtrace_progress):
        yield
