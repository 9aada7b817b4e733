"""Rules of `custom_vjp` that read and write references passed to their function.

The rule runs in the backward pass. The backward pass of traced code (a jitted function, the body of
a loop, a `checkpoint`) is a program, made once, which would capture the references as they were
then. So while a derivative is taken of code that calls such a function, the code is differentiated
once more in Python, as under `disable_jit`, where the rule finds the references themselves.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ...ir.settings.context import STATE, config
from .frames import all_frames


class NotInPython(BaseException):
    """A derivative is being taken of something traced that has such a rule. No Exception: it is for
    `in_python`, around the derivative."""


class _Mode(threading.local):
    in_python = False


_MODE = _Mode()


def runs_in_python() -> bool:
    """Whether a function is called instead of traced: a derivative is taken a second time."""
    return _MODE.in_python


def in_python(derivative: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`derivative(*args, **kwargs)`, in Python where it must be."""
    if _MODE.in_python:
        return derivative(*args, **kwargs)
    try:
        return derivative(*args, **kwargs)
    except NotInPython:
        pass
    _MODE.in_python = True
    try:
        with config.override(jax_disable_jit=True):
            return derivative(*args, **kwargs)
    finally:
        _MODE.in_python = False


def note_rule() -> None:
    """A function with such a rule is called: what is traced around it is notified, or given up."""
    for frame in all_frames():
        frame.has_rules = True
    if not _follow("outer"):
        refuse_traced_rule()


def refuse_traced_rule() -> None:
    """Raise `NotInPython` where what has such a rule is traced within a derivative."""
    if not _MODE.in_python and (_follow("outer") or _follow("parent")):
        raise NotInPython


def _follow(link: str) -> bool:
    """Whether the interpreter, or one that this link leads to, records for a derivative."""
    interpreter: Any = STATE.interpreter
    while interpreter is not None:
        if getattr(interpreter, "for_derivative", False):
            return True
        interpreter = getattr(interpreter, link, None)
    return False
