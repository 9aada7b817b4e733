"""Exit statuses of `shardtrace`, and the errors that end it with one.

    0  fine
    1  the answer is no: over the budget, different, not formatted, a warning, wrong results
    2  the command cannot be carried out as it was given: options, files, text that does not parse
    3  the user's program failed: it raised, or cannot be traced, partitioned or run
"""
from __future__ import annotations

import linecache
import sys
import traceback
from types import TracebackType

from ..ir.diagnostics.errors import DumpError
from ..ir.source.location import PACKAGE

FINE, FINDING, USAGE, FAILED = 0, 1, 2, 3
INTERRUPTED = 130


class Problem(Exception):
    """Ends the command with a message. status: the exit status. error: what the user's program
    raised, if that is why.
    """

    def __init__(self, message: str, status: int = USAGE, error: BaseException | None = None
                 ) -> None:
        super().__init__(message)
        self.status, self.error = status, error


def failure(error: BaseException, doing: str) -> Problem:
    """The user's program raised: its message, and the innermost line of the user's code."""
    if isinstance(error, DumpError):
        return Problem(str(error), error=error)
    text = str(error) or type(error).__name__
    where = user_line(error.__traceback__)
    lines = [f"{doing} failed: {type(error).__name__}: {text}"]
    if where and "-->" not in text:
        lines.append(where)
    notes = [n for n in getattr(error, "__notes__", ()) if isinstance(n, str)]
    return Problem("\n".join([*lines, *(f"  {n}" for n in notes)]), FAILED, error)


def user_line(trace: TracebackType | None) -> str:
    """`  --> train.py:12 in `step`` with the line, of the innermost frame that is the user's."""
    found = ""
    for frame, line in traceback.walk_tb(trace):
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] in (PACKAGE, "importlib", "runpy", "_frozen_importlib",
                                      "_frozen_importlib_external"):
            continue
        code = frame.f_code
        if code.co_filename.startswith("<") or _is_library(code.co_filename):
            continue
        text = linecache.getline(code.co_filename, line).strip()
        inside = f" in `{code.co_name}`" if code.co_name != "<module>" else ""
        found = f"  --> {code.co_filename}:{line}{inside}\n      {text}"
    return found


def _is_library(file: str) -> bool:
    return any(part in file for part in ("site-packages", "dist-packages")) or (
        file.startswith(sys.base_prefix + "/lib"))
