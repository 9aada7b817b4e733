"""Silences numpy's warnings of overflow, division by zero and invalid operations.

`numpy.errstate` does the same but takes longer than a small computation. numpy keeps the setting in
a context variable; the value to put there is found by observing what `errstate` changes.
"""
from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import numpy as np

_usual = contextvars.copy_context()
with np.errstate(all="ignore"):
    (_setting, _quiet), = [(var, value) for var, value in contextvars.copy_context().items()
                           if _usual.get(var) is not value]


def silently(f: Callable[[Any], Any], x: Any) -> Any:
    """`f(x)`, in which no ufunc warns or raises."""
    before = _setting.get()
    try:
        try:
            _setting.set(_quiet)
            return f(x)
        finally:
            _setting.set(before)
    except BaseException:
        _setting.set(before)                # an interrupt may have come into the first
        raise
