"""Run a function in a process of its own, for what executes files of users again and again.

The process begins as a copy of this one, so that nothing is loaded anew, and what the file does to
modules ends with it. Where processes cannot be copied it starts from nothing, and takes longer.
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

from ..ir.support.lazy import lazy_import

_multiprocessing = lazy_import("multiprocessing")

A = TypeVar("A")
R = TypeVar("R")


class Died(RuntimeError):
    """The process ended without an answer."""


def isolated(function: Callable[[A], R], argument: A, seconds: float | None = None) -> R:
    """`function(argument)`, both of which can be pickled, as its result. Raises TimeoutError after
    so many seconds, Died where the process ends by itself, and what the function raises.
    """
    methods = _multiprocessing.get_all_start_methods()
    context = _multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    receive, send = context.Pipe(False)
    process = context.Process(target=_answer, args=(send, function, argument), daemon=True)
    process.start()
    send.close()
    try:
        if not receive.poll(seconds):
            raise TimeoutError(f"it took more than {seconds:g} s")
        is_fine, value = receive.recv()
    except EOFError:
        process.join(5)
        raise Died(f"the process ended with status {process.exitcode}") from None
    finally:
        receive.close()
        process.kill()
        process.join(5)
    if is_fine:
        return value
    raise value


def _answer(send: Any, function: Callable[[A], R], argument: A) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):                    # those of who asks: a file of users reads and prints
        with contextlib.suppress(OSError):
            os.dup2(nothing, stream)
    try:
        answer = True, function(argument)
    except Exception as error:
        answer = False, error
    try:
        send.send(answer)
    except Exception as error:               # it cannot be pickled
        send.send((False, RuntimeError(f"{type(error).__name__}: {error}; {answer[1]}")))
