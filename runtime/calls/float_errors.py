"""Silences numpy's warnings of overflow, division by zero and invalid operations.

`numpy.errstate` does the same but takes longer than a small computation. numpy keeps the setting in
a context variable; the value to put there is found by observing what `errstate` changes.
"""
from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
R = TypeVar("R")


def _found() -> tuple[contextvars.ContextVar[Any], Any] | None:
    """numpy's context variable, and its value with all errors ignored."""
    before = contextvars.copy_context()
    with np.errstate(all="ignore"):
        inside = contextvars.copy_context()
    changed = [(var, value) for var, value in inside.items() if before.get(var) is not value]
    return changed[0] if len(changed) == 1 else None


def _with_errstate(f: Callable[[T], R], x: T) -> R:
    with np.errstate(all="ignore"):
        return f(x)


def _made() -> Callable[[Callable[[T], R], T], R]:
    found = _found()
    if found is None:
        return _with_errstate
    variable, quiet = found

    def silently(f: Callable[[T], R], x: T) -> R:
        before = variable.get()
        try:
            try:
                variable.set(quiet)
                return f(x)
            finally:
                variable.set(before)
        except BaseException:
            variable.set(before)            # an interrupt may have come into the first
            raise

    return silently


silently = _made()
"""`silently(f, x)` is `f(x)`, in which no ufunc warns or raises."""
