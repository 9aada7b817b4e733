"""`watch` and `lsp`: explain a file whenever it is saved, on the terminal or in an editor."""
from __future__ import annotations

import argparse
import contextlib
import io
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from ...ir.diagnostics.extras import is_installed
from ...ir.support.lazy import lazy_import
from ..isolated import Died, isolated
from ..output import Output
from ..problems import FINE, Problem
from ..targets import is_python, parts_of
from . import explain

_EVERY = 0.2             # seconds between looks at the files
_CLEAR = "\x1b[2J\x1b[3J\x1b[H"


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of `watch`."""
    explain.add_telling(sub)
    sub.set_defaults(html=None)


def add_server_options(sub: argparse.ArgumentParser) -> None:
    """The options of `lsp`, which editors and the server itself give."""
    sub.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    sub.add_argument("--stdio", action="store_true", help=argparse.SUPPRESS)


def watch(options: argparse.Namespace) -> int:
    """Explain the target each time that a Python file of its folder changes, until Ctrl-C."""
    path = parts_of(options.target)[0] if is_python(options.target) else Path(options.target)
    if not path.exists():
        raise Problem(f"there is no file {path}")
    out = Output(options)
    on_terminal = sys.stdout.isatty()
    if on_terminal and options.color == "auto":
        options.color = "always"             # what is explained is explained in another process
    given_width, seen = options.width, None
    with _until_interrupted() as goes_on:
        while goes_on():
            now = _stamps(path)
            if now == seen:
                time.sleep(_EVERY)
                continue
            seen = now
            options.width = given_width or Output(options).width
            try:
                text = isolated(_explained, options)
            except Died as problem:
                text = f"shardtrace watch: {problem}"
            if on_terminal:
                out.as_it_is_written(_CLEAR)
            out.as_it_is_written(f"{text.rstrip()}\n\n{path.name} as of {time.strftime('%X')}; "
                                 "Ctrl-C ends this\n")
    return FINE


@contextlib.contextmanager
def _until_interrupted() -> Iterator[Callable[[], bool]]:
    """Whether to go on, until Ctrl-C. It also ends what it does not interrupt: Python drops an
    exception that it raises in a finalizer, or while a process is copied.
    """
    count = 0

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        raise KeyboardInterrupt
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: count == 0
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, before)


def _explained(options: argparse.Namespace) -> str:
    """What `explain` prints of the target."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            explain.explain(options)
        except Problem as problem:
            Output(options).text(f"shardtrace explain: {problem}")
        except Exception as problem:
            Output(options).text(f"shardtrace explain: {type(problem).__name__}: {problem}")
    return said.getvalue()


def _stamps(path: Path) -> dict[Path, tuple[int, int]]:
    """When the file, and the Python files beside it, were written, and how long they are."""
    found = {}
    for file in (path, *path.resolve().parent.glob("*.py")):
        with contextlib.suppress(OSError):   # it is being written
            status = file.stat()
            found[file] = status.st_mtime_ns, status.st_size
    return found


# -- lsp -------------------------------------------------------------------------------------------

_features = lazy_import("..editor.features", __package__)
_worker = lazy_import("..editor.worker", __package__)


def lsp(options: argparse.Namespace) -> int:
    """Serve an editor over standard input and output, until it ends that."""
    if options.worker:
        return _worker.serve()
    if not is_installed("pygls"):
        raise Problem("the language server needs pygls, which is not installed: "
                      "pip install 'shardtrace[lsp]'")
    _features.make_server().start_io()
    return FINE
