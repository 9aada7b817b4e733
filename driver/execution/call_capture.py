"""Observes what is traced: how commands learn which functions a file calls, and on what.

A watcher is a function of one `Traced` (from a jitted function) or `EagerCall` (from anything that
ran outside of one, such as an operation or a mapped function). It is called once per program,
before that runs, and may raise to end the run. Watchers are per thread; without one, the cost is
one test per program.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.program import Program
from ...ir.support.immutable import immutable
from ...ir.support.scopes import override


@immutable
class EagerCall:
    """A program that ran outside of jitted functions. specs: of its arguments, None where open."""
    program: Program
    specs: tuple[Any, ...]
    leaves: Sequence[Any] = ()


class _Watch(threading.local):
    watcher: Callable[[Any], None] | None = None


WATCH = _Watch()


def watching(watcher: Callable[[Any], None]) -> override:
    """Call `watcher` with what this thread traces within the block."""
    return override(WATCH, watcher=watcher)


def unwatched() -> override:
    """Within this block no trace is reported to the watcher."""
    return override(WATCH, watcher=None)
