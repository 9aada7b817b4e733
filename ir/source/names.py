"""What the user's code calls a value that it has bound to several names."""
from __future__ import annotations


class Name(str):
    """The first name of a value that the user's code bound to several. others: the rest."""

    __slots__ = ("others",)
    others: tuple[str, ...]


def other_names(name: str | None) -> tuple[str, ...]:
    """What else the user's code calls the value with this name."""
    return name.others if type(name) is Name else ()
