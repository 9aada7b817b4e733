"""Wording of messages, such as the name under which the user imported the package; durations."""
from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ..support.lazy import lazy_pattern
from .location import PACKAGE, STANDS_BETWEEN

# What JAX's texts call things by, and its documentation.
_NUMPY, _PACKAGE = re.compile(r"\bjax\.numpy\."), re.compile(r"\bjax\.(?=[A-Za-z])")
_LINK = lazy_pattern(r":?\s*(?:[Ss]ee (?:an explanation at |the documentation at )?)?"
                   r"https://(?:docs\.jax\.dev|jax\.readthedocs\.io|github\.com/[\w-]+/jax)\S*"
                   r"(?: for more[^.\n]*)?\.?")


def duration(t: float) -> str:
    """A duration: "12.3 us"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if t >= scale:
            return f"{t / scale:.3g} {unit}"
    return f"{t / 1e-9:.3g} ns" if t else "0 s"


def in_names_of(module: Mapping[str, Any]) -> Callable[[object], str]:
    """A function of texts: JAX's words as a module says them. module: its globals.

    A program that is written for `jax` (see as_jax) says them as JAX does.
    """
    package, numpy = PACKAGE, ""
    for name, value in module.items():
        if isinstance(value, ModuleType):
            if "__stands_for__" in value.__dict__:
                return lambda text: _LINK.sub("", str(text))
            stands_for = value.__name__
            if stands_for == PACKAGE:
                package = name
            elif stands_for == f"{PACKAGE}.numpy":
                numpy = name
    numpy = numpy or f"{package}.numpy"

    def spoken(text: object) -> str:
        text = _LINK.sub("", str(text))
        text = _NUMPY.sub(f"{numpy}.", text)
        return _PACKAGE.sub(f"{package}.", text)

    return spoken


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the user's line that is at work, however deep below it the caller is."""
    level, frame, between = 2, sys._getframe(1), STANDS_BETWEEN
    while frame is not None and between[frame.f_globals.get("__name__", "")]:
        level, frame = level + 1, frame.f_back      # type: ignore[assignment]
    if frame is not None:
        message = in_names_of(frame.f_globals)(message)
    warnings.warn(message, category, stacklevel=level)
