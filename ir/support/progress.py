"""Progress of long work, reported to whatever displays it; nothing is displayed here.

Work that may take seconds says so with `steps` or `counted`. What shows it is entered in `SHOWN`
(driver/progress_bars.py); where nothing is, this costs a test per piece of work.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Work(Protocol):
    """A piece of work under way."""

    def advance(self, n: int = 1) -> None:
        """`n` more steps are done."""

    def end(self) -> None:
        """It is done, or was given up."""


class _Silent:
    def advance(self, n: int = 1) -> None:
        pass

    def end(self) -> None:
        pass


SILENT = _Silent()
# What shows work: of its text and its number of steps (None: not known), or None to show nothing.
SHOWN: list[Callable[[str, int | None], Work | None]] = []


@contextlib.contextmanager
def steps(text: str, total: int | None = None) -> Iterator[Work]:
    """A task of `total` steps; call the result after each."""
    work = SHOWN[-1](text, total) if SHOWN else None
    if work is None:
        yield SILENT
        return
    try:
        yield work
    finally:
        work.end()


def counted(items: Iterable[T], text: str, total: int | None = None) -> Iterable[T]:
    """The items, each counted as a step when it is done; they are to be gone through at once."""
    if not SHOWN:
        return items
    if total is None and hasattr(items, "__len__"):
        total = len(items)  # type: ignore[arg-type]
    work = SHOWN[-1](text, total)
    return items if work is None else _counted(items, work)


def _counted(items: Iterable[T], work: Work) -> Iterator[T]:
    try:
        for item in items:
            yield item
            work.advance()
    finally:
        work.end()
