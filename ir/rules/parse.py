"""Reads the text of a factor rule."""
from __future__ import annotations

import re
from typing import Any

from ..support.caches import cached
from .factor import HALO, KINDS, PASS, REDUCE, REDUCERS, Split


class RuleError(ValueError):
    """A rule string that is malformed or does not fit the types it is applied to."""


_TOKEN = re.compile(r"\(|\)|\.\.\.|[A-Za-z_][A-Za-z_0-9]*|1|,")


@cached(1024)
def parse_rule(text: str) -> tuple[Any, Any, dict[str, tuple[str, str, bool, tuple[Any, ...]]]]:
    """Rule text -> (operand maps, result maps, kinds), factors still by name."""
    body, _, kind_text = text.partition("|")
    left, arrow, right = body.partition("->")
    if not arrow:
        raise RuleError(f"rule {text!r} has no `->`")
    kinds = {}
    for item in kinds_of(kind_text):
        name, colon, word = item.partition(":")
        blocked = name.endswith("!")
        name = name.rstrip("!")
        match = re.fullmatch(r"(\w+)(?:\(([^)]*)\))?", word) if colon else None
        if colon and not match:
            raise RuleError(f"kind {item!r} of rule {text!r}: write `factor:kind`")
        kind, argument = (match.group(1), match.group(2) or "") if match else (PASS, "")
        if kind in REDUCERS:
            kinds[name] = (REDUCE, kind, blocked, _window(argument))
        elif kind == HALO and argument and argument not in ("mirror", "joined"):
            ring = "ring" if argument.endswith(",ring") else ""
            kinds[name] = (HALO, ring, blocked, _window(argument.removesuffix(",ring")))
        elif kind in KINDS:
            kinds[name] = (kind, argument, blocked, ())
        else:
            raise RuleError(f"unknown kind {kind!r} in rule {text!r}; one of "
                            f"{', '.join(KINDS + REDUCERS)}")
    return _parse_side(left, text), _parse_side(right, text), kinds


def kinds_of(text: str) -> list[str]:
    """The `factor:kind` of what stands behind the bar, with spaces or commas between them."""
    return [item.rstrip(",") for item in text.split()]


def _window(text: str) -> tuple[Any, ...]:
    """`offset,reach,stride[/spread][,first,last]` as offset, reach, stride, valid, spread."""
    if not text:
        return ()
    offset, reach, stride, *valid = text.split(",")
    stride, _, spread = stride.partition("/")
    return (int(offset), int(reach), int(stride), tuple(map(int, valid)) or None, int(spread or 1))


def _parse_side(side: str, text: str) -> tuple:
    """One side of a rule as tensors of dimensions: a factor, a tuple of factors, or () for size
    one.
    """
    maps: list[tuple] = []
    current: list[Split] = []
    group: list[str] | None = None
    if _TOKEN.sub("", side).strip():
        raise RuleError(f"rule {text!r}: cannot read {_TOKEN.sub('', side).strip()!r}")
    for token in _TOKEN.findall(side):
        if token == ",":
            maps.append(tuple(current))
            current = []
        elif token == "(":
            if group is not None:
                raise RuleError(f"rule {text!r}: nested parentheses")
            group = []
        elif token == ")":
            if group is None:
                raise RuleError(f"rule {text!r}: unmatched `)`")
            current.append(group[0] if len(group) == 1 else tuple(group))
            group = None
        elif group is not None:
            group.append(token)
        else:
            current.append(() if token == "1" else token)
    if group is not None:
        raise RuleError(f"rule {text!r}: unmatched `(`")
    maps.append(tuple(current))
    return tuple(maps)
