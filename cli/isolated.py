"""Runs functions in processes of their own, for commands that execute a user's file repeatedly.

The process begins as a copy of this one, so that nothing is loaded anew, and what the file does to
modules ends with it. Where processes cannot be copied it starts from nothing, and takes longer.
"""
from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

from ..ir.support.lazy import lazy_import

_multiprocessing = lazy_import("multiprocessing")
_connection = lazy_import("multiprocessing.connection")

_READY, _VALUE, _FAILED, _ENDED = "ready", "value", "failed", "ended"

A = TypeVar("A")
R = TypeVar("R")
Send = Callable[[Any], None]


class Died(RuntimeError):
    """The process ended without an answer."""


class Isolated:
    """A process, started ahead of time, that waits to run `function(argument, send)` once. send:
    gives a value to who waits here. prepare: called in it beforehand.
    """

    def __init__(self, function: Callable[[Any, Send], None],
                 prepare: Callable[[], None] | None = None) -> None:
        methods = _multiprocessing.get_all_start_methods()
        context = _multiprocessing.get_context("fork" if "fork" in methods else "spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_answer, args=(theirs, self._pipe, function, prepare), daemon=True)
        self._process.start()
        theirs.close()
        self._ready = False

    @property
    def is_ready(self) -> bool:
        """Is the process waiting for its argument?"""
        with contextlib.suppress(EOFError, ConnectionError):     # ended: `messages` says so
            while not self._ready and self._pipe.poll():
                self._ready = self._pipe.recv()[0] == _READY
        return self._ready

    def messages(self, argument: Any, seconds: float | None = None, until: Any = None
             ) -> Generator[Any, None, None]:
        """What the function reports about an argument, message by message as they arrive; messages
        are pickled.

        seconds: the longest wait for a message. until: a file; the iteration ends when it becomes
        readable, where the platform can tell. Raises TimeoutError after too long a wait, Died if
        the process ends by itself, and whatever the function raises.
        """
        others = [until] if until is not None and os.name == "posix" else []
        try:
            with self._died():
                self._pipe.send(argument)
            while True:
                with self._died():
                    ready = _connection.wait([self._pipe, *others], seconds)
                    if not ready:
                        raise TimeoutError(f"it took more than {seconds:g} s")
                    if self._pipe not in ready:
                        return
                    state, value = self._pipe.recv()
                if state == _READY:
                    continue
                if state == _ENDED:
                    return
                if state == _FAILED:
                    raise value
                yield value
        finally:
            self.end()

    @contextlib.contextmanager
    def _died(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError):
            self._process.join(5)
            raise Died(f"the process ended with status {self._process.exitcode}") from None

    def end(self) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.join(5)


def isolated(function: Callable[[A], R], argument: A, seconds: float | None = None) -> R:
    """The result of `function(argument)`, run in a process of its own; both are pickled.

    Raises TimeoutError after so many seconds, Died if the process ends by itself, and whatever the
    function raises.
    """
    with contextlib.closing(Isolated(functools.partial(_send_result, function)).messages(
            argument, seconds)) as results:
        return next(results)


def _send_result(function: Callable[[A], R], argument: A, send: Send) -> None:
    send(function(argument))


def _answer(pipe: Any, other_end: Any, function: Callable[[Any, Send], None],
            prepare: Callable[[], None] | None) -> None:
    """The life of the process: be prepared, take one argument, send the values of `function`, end.
    """
    other_end.close()                        # so that the end of who asks is seen here
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):                    # those of who asks: a file of users reads and prints
        with contextlib.suppress(OSError):
            os.dup2(nothing, stream)
    if prepare is not None:
        prepare()
    try:
        pipe.send((_READY, None))
        argument = pipe.recv()
    except (EOFError, ConnectionError):
        return
    try:
        function(argument, lambda value: _send(pipe, _VALUE, value))
        pipe.send((_ENDED, None))
    except Exception as error:
        _send(pipe, _FAILED, error)


def _send(pipe: Any, state: str, value: Any) -> None:
    try:
        pipe.send((state, value))
    except Exception as error:               # it cannot be pickled
        pipe.send((_FAILED, RuntimeError(f"{type(error).__name__}: {error}; {value}")))
