"""Suggestions for misspelt words: the nearest of the known ones."""
from __future__ import annotations

from collections.abc import Iterable

from .lazy import lazy_import

difflib = lazy_import("difflib")


def close_match(word: object, known: Iterable[object]) -> str:
    """`did you mean `train_step`?` for a word that is none of the known ones, or ''."""
    found = difflib.get_close_matches(str(word), [str(k) for k in known], 1, 0.6)
    return f"did you mean `{found[0]}`?" if found else ""


def none_such(word: object, known: Iterable[object], what: str) -> str:
    """`there is no WHAT `x`; did you mean `y`?`, or all that there are if none is near."""
    names = [str(k) for k in known]
    hint = close_match(word, names)
    if not hint:
        hint = f"there are {', '.join(names[:24])}" if names else "there are none"
        hint += ", ..." if len(names) > 24 else ""
    return f"there is no {what} `{word}`; {hint}"
