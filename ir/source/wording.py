"""The wording of messages: the name under which the user imported the package, durations."""
from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..support.lazy import lazy_pattern
from .location import PACKAGE, STANDS_BETWEEN

# What JAX's texts call things by, and its documentation.
_NUMPY, _PACKAGE = re.compile(r"\bjax\.numpy\."), re.compile(r"\bjax\.(?=[A-Za-z])")
_LINK = lazy_pattern(r":?\s*(?:[Ss]ee (?:an explanation at |the documentation at )?)?"
                   r"https://(?:docs\.jax\.dev|jax\.readthedocs\.io|github\.com/[\w-]+/jax)\S*"
                   r"(?: for more[^.\n]*)?\.?")
# What optree says of pytrees, and JAX.
_OF_PYTREES: Sequence[tuple[re.Pattern[str], Any]] = [(re.compile(p), words) for p, words in (
    (r"\bPyTreeSpec\(", "PyTreeDef("), (r"\bCustomTreeNode\(", "CustomNode("),
    (r", (?:none_is_leaf=\w+, )?namespace='\w+'\)", ")"),
    (r"Expected an instance of (?:collections\.)?(\w+)(?:, [\w., ]*?)?, got ",
     lambda m: f"Expected {'named tuple' if m[1] == 'namedtuple' else m[1]}, got "),
    (r"\b(list|tuple) arity mismatch; expected: (\d+), got: (\d+);",
     lambda m: f"{m[1].title()} arity mismatch: {m[3]} != {m[2]};"),
    (r"node type mismatch; expected type: (.*?), got type: .*?; value:",
     r"node type mismatch: expected type: \1, value:"),
    (r"namedtuple type mismatch; expected type: (.*?), got type: .*?; tuple:",
     r"Named tuple type mismatch: expected type: \1, tuple:"),
    (r"dictionary key mismatch; expected key\(s\): (\[.*?\]), got key\(s\): (\[.*?\])[^;]*; .*",
     r"Dict key mismatch; expected keys: \1; present keys: \2."))]


def duration(t: float) -> str:
    """A duration: "12.3 us"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if t >= scale:
            return f"{t / scale:.3g} {unit}"
    return f"{t / 1e-9:.3g} ns" if t else "0 s"


def numbered(one: str, many: str, numbers: Sequence[int], most: int = 64) -> str:
    """`rank 3`, `ranks 0, 1 and 4`; of more than `most`, the first ones."""
    names = [str(n) for n in numbers]
    if len(names) > most:
        names = [*names[:most - 2], f"{len(names) - most + 2} more"]
    if len(names) == 1:
        return f"{one} {names[0]}"
    return f"{many} {', '.join(names[:-1])} and {names[-1]}"


def in_names_of(module: Mapping[str, Any]) -> Callable[[object], str]:
    """A function of texts: JAX's words as a module says them. module: its globals.

    A program that is written for `jax` (see as_jax) says them as JAX does.
    """
    package, numpy = PACKAGE, ""
    for name, value in module.items():
        if isinstance(value, ModuleType):
            if "__stands_for__" in value.__dict__:
                return _plain
            stands_for = value.__name__
            if stands_for == PACKAGE:
                package = name
            elif stands_for == f"{PACKAGE}.numpy":
                numpy = name
    numpy = numpy or f"{package}.numpy"

    def spoken(text: object) -> str:
        text = _plain(text)
        text = _NUMPY.sub(f"{numpy}.", text)
        return _PACKAGE.sub(f"{package}.", text)

    return spoken


def of_pytrees(text: str) -> str:
    """A text about pytrees in JAX's words."""
    for pattern, words in _OF_PYTREES:
        text = pattern.sub(words, text)
    return text


def _plain(text: object) -> str:
    return of_pytrees(_LINK.sub("", str(text)))


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the user's line that is at work, however deep below it the caller is."""
    message, level = as_the_user_says(message)
    warnings.warn(message, category, stacklevel=level)


def as_the_user_says(message: str) -> tuple[str, int]:
    """JAX's words as the user's module that is at work says them; how far up from the caller it
    is, as `stacklevel` counts."""
    level, frame, between = 1, sys._getframe(1), STANDS_BETWEEN
    while frame is not None and between[frame.f_globals.get("__name__", "")]:
        level, frame = level + 1, frame.f_back      # type: ignore[assignment]
    if frame is not None:
        message = in_names_of(frame.f_globals)(message)
    return message, level


def mismatch(a: Any, b: Any) -> str:
    """What differs between two types: `, so the dtypes do not match`, as JAX says it."""
    found = [text for text, differs in (
        ("the dtypes do not match", a.dtype != b.dtype),
        ("the shapes do not match", a.shape != b.shape),
        ("the manual axis types do not match", a.manual is not b.manual)) if differs]
    if not found:
        return ""
    return ", so " + (found[0] if len(found) == 1 else
                      ", ".join(found[:-1]) + ", and " + found[-1])
