"""`typing.NamedTuple` whose annotations stay text.

`typing.NamedTuple` compiles the annotation of each field when the class is made, which takes most
of the time that this takes.
"""
from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple"]

_MADE = ("__annotations__", "__module__", "__qualname__")

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    class _Making(type):
        """Turns a class with annotated fields into a `collections.namedtuple` with its methods."""
        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body.get("__annotations__", {})
            made = collections.namedtuple(
                name, fields, defaults=[body[f] for f in fields if f in body],
                module=body["__module__"])
            made.__annotations__ = made.__new__.__annotations__ = fields
            made.__qualname__ = body["__qualname__"]
            for key, value in body.items():
                if key not in _MADE and key not in fields:
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Making):
        """A tuple whose items have names: the annotations of the class."""
