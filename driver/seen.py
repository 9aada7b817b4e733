"""What is traced while somebody watches: how a file is asked which functions it calls, and on what.

A watcher is a function of one `Traced` (of a jitted function) or `Ran` (of what ran outside of any,
such as an operation or a mapped function). It is called once per program, before that runs, and may
raise to end the run. Watchers are per thread; without one this costs a test per traced program.
"""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..ir.immutable import immutable
from ..ir.program import Program


@immutable
class Ran:
    """A program that ran outside of jitted functions. specs: of its arguments, None where open."""
    program: Program
    specs: tuple[Any, ...]
    leaves: Sequence[Any] = ()


class _Watch(threading.local):
    watcher: Callable[[Any], None] | None = None


WATCH = _Watch()


@contextlib.contextmanager
def watching(watcher: Callable[[Any], None]) -> Iterator[None]:
    """Call `watcher` with what this thread traces within the block."""
    saved, WATCH.watcher = WATCH.watcher, watcher
    try:
        yield
    finally:
        WATCH.watcher = saved


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Nothing that is traced within the block is told."""
    saved, WATCH.watcher = WATCH.watcher, None
    try:
        yield
    finally:
        WATCH.watcher = saved
