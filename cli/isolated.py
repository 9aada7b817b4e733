"""Run functions in processes of their own, for what executes files of users again and again.

The process begins as a copy of this one, so that nothing is loaded anew, and what the file does to
modules ends with it. Where processes cannot be copied it starts from nothing, and takes longer.
"""
from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from ..ir.support.lazy import lazy_import

_multiprocessing = lazy_import("multiprocessing")

_VALUE, _FAILED, _ENDED = "value", "failed", "ended"

A = TypeVar("A")
R = TypeVar("R")


class Died(RuntimeError):
    """The process ended without an answer."""


def isolated(function: Callable[[A], R], argument: A, seconds: float | None = None) -> R:
    """`function(argument)`, both of which can be pickled, as its result. Raises TimeoutError after
    so many seconds, Died where the process ends by itself, and what the function raises.
    """
    return next(isolated_each(functools.partial(_once, function), argument, seconds))


def isolated_each(function: Callable[[A], Iterable[R]], argument: A, seconds: float | None = None
                  ) -> Iterator[R]:
    """What `function(argument)` yields, one by one as it comes, at most so many seconds apart."""
    methods = _multiprocessing.get_all_start_methods()
    context = _multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    receive, send = context.Pipe(False)
    process = context.Process(target=_answer, args=(send, function, argument), daemon=True)
    process.start()
    send.close()
    try:
        while True:
            if not receive.poll(seconds):
                raise TimeoutError(f"it took more than {seconds:g} s")
            state, value = receive.recv()
            if state == _ENDED:
                return
            if state == _FAILED:
                raise value
            yield value
    except EOFError:
        process.join(5)
        raise Died(f"the process ended with status {process.exitcode}") from None
    finally:
        receive.close()
        process.kill()
        process.join(5)


def _once(function: Callable[[A], R], argument: A) -> Iterator[R]:
    yield function(argument)


def _answer(send: Any, function: Callable[[A], Iterable[R]], argument: A) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):                    # those of who asks: a file of users reads and prints
        with contextlib.suppress(OSError):
            os.dup2(nothing, stream)
    try:
        for value in function(argument):
            _send(send, _VALUE, value)
        send.send((_ENDED, None))
    except Exception as error:
        _send(send, _FAILED, error)


def _send(send: Any, state: str, value: Any) -> None:
    try:
        send.send((state, value))
    except Exception as error:               # it cannot be pickled
        send.send((_FAILED, RuntimeError(f"{type(error).__name__}: {error}; {value}")))
