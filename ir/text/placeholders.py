"""Placeholders, in a program read from text, for what text cannot hold.

A Python function is written by its name, an object of an unknown class by its repr; what is read
back equals the original, so that a program equals its own text, and can be checked, partitioned and
printed. Only running it needs the real thing, and says which one.
"""
from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from ..diagnostics.diagnostic import fail, visible
from ..support.lazy import lazy_import
from ..types import ArrayType

json = lazy_import("json")


def quote(text: str) -> str:
    """A string in double quotes, on one line."""
    return visible(json.dumps(text, ensure_ascii=False))


class NamedCallable:
    """Stands where a Python function stood, in a program that was read from text.

    Equal to any function of that name, so that a program equals its own text. Calling it raises
    NameError, saying which function to supply.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fail(NameError,
             f"the program calls the Python function {self.name!r}, of which its text has only the "
             "name", code="unnamed-function",
             help=f"give `parse_program` a function for {self.name!r} in `callables`")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NamedCallable):
            return self.name == other.name
        return callable(other) and callable_name(other) == self.name.partition("#")[0]

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"@python({quote(self.name)})"


class OpaqueValue:
    """Stands for an object in a param that has no text form; equal to one that prints the same."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return self.text == (other.text if isinstance(other, OpaqueValue) else opaque_text(other))

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"@value({quote(self.text)})"


def callable_name(f: Any) -> str:
    """`module:qualified name` of a function, or of the class of a callable object."""
    if isinstance(f, functools.partial):
        return callable_name(f.func)
    if not hasattr(f, "__qualname__"):
        f = type(f)
    return f"{getattr(f, '__module__', None) or ''}:{f.__qualname__}"


def opaque_text(value: Any) -> str:
    """repr() of an object, without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


class MissingConstant:
    """Stands for an array that the text left out; `digest` is its content hash."""

    __slots__ = ("aval", "digest", "name")

    def __init__(self, name: str, aval: ArrayType, digest: str) -> None:
        self.name, self.aval, self.digest = name, aval, digest

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        fail(LookupError,
             f"constant {self.name} ({self.aval.str_short(True)}) is not in the program's text, "
             "which holds only its content hash", code="missing-constant",
             help=f"give `parse_program` an array for {self.name!r} in `constants`, or dump the "
                  "program into a folder, SHARDTRACE_DUMP, which keeps its arrays in a file")
