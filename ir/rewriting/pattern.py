"""The patterns of rewrites: equations in text, with names for values and params.

    total = psum_invariant x {axes=everywhere}
    out = all_slice total {axes, dimension}

is a pattern of two equations: the last is replaced, and the one before it computes its operand. `x`
is any value; a name that occurs twice is the same value. A number is a literal of this value,
`*rest` all remaining operands, `add|add_any` one of two ops. The two operands of ops that commute
may be in either order. A param in braces is named (`{axes}`
is short for `{axes=axes}`) or must be equal to what is written; params that are not mentioned may
be anything. A replacement has the same form, or is a value that the pattern names.
"""
from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..facts import COMMUTES
from ..op import OPS, Op
from ..support.lazy import lazy_pattern
from ..support.named_tuple import NamedTuple

_LINE = lazy_pattern(r"(\*?\w+) = ([\w|-]+)((?: +[^\s{]+)*)(?: *\{(.*)\})?")
_PARAM = lazy_pattern(r"(\w+)(?:=(.+))?")


class Named(NamedTuple):
    """A name in a pattern. rest: it matches all remaining operands."""
    name: str
    rest: bool = False


class Step(NamedTuple):
    """An equation of a pattern. operands, params: names, or what has to stand there."""
    result: Named
    ops: tuple[Op, ...]
    operands: tuple[Any, ...]
    params: tuple[tuple[str, Any], ...]


def read(text: str) -> tuple[Step, ...]:
    """The equations of a pattern. Raises ValueError where a line is none."""
    return tuple([_step(line.strip()) for line in text.strip().splitlines()])


def needed(text: str) -> Sequence[str]:
    """The names of the ops that the first equation of a pattern may be of; none is looked up."""
    return text.strip().splitlines()[0].split()[2].split("|")


def orders(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """The equations of a pattern as they stand, then with the operands of each op that commutes
    exchanged.
    """
    return itertools.product(*[
        (step, step._replace(operands=step.operands[::-1]))
        if len(step.operands) == 2 and all([COMMUTES in op.facts for op in step.ops]) else (step,)
        for step in steps])


def _step(line: str) -> Step:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"not an equation of a pattern: {line!r}")
    result, ops, operands, params = found.groups()
    return Step(_atom(result), tuple([OPS[name] for name in ops.split("|")]),
                tuple(map(_atom, operands.split())),
                tuple(map(_param, filter(None, re.split(r", *(?=\w+(?:=|,|$))", params or "")))))


def _atom(word: str) -> Any:
    name = word.removeprefix("*")
    return Named(name, name != word) if name.isidentifier() else ast.literal_eval(word)


def _param(text: str) -> tuple[str, Any]:
    found = _PARAM.fullmatch(text)
    if found is None:
        raise ValueError(f"not a param of a pattern: {text!r}")
    name, value = found[1], found[2] or found[1]
    known = {"True": True, "False": False, "None": None}
    if value in known:
        return name, known[value]
    return name, Named(value) if value.isidentifier() else ast.literal_eval(value)
