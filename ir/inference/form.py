"""Checks the form of an equation against its op: number of operands, names and classes of params.

The form follows from the signatures of `infer`, `evaluate` and `rule`: a param annotated with
`axis: int` must be an integer. Malformed equations, which a hand-written program may contain, are
refused here, so that rules and evaluators need not check.
"""
from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import Any, Union

import numpy as np

from ..diagnostics.diagnostic import clipped
from ..op import Op
from ..support.caches import cached
from ..support.lazy import lazy_import

_BEYOND = 1 << 63        # what numpy's whole numbers hold

inspect = lazy_import("inspect")


def misfit(op: Op, count: int, params: Mapping[str, Any]) -> str:
    """What keeps an equation with `count` operands from the form of its op; "" if nothing does."""
    wrong = _unbound(op, count, tuple(params))
    if wrong or not params:
        return wrong
    hints = _hints(op)
    for name, value in params.items():
        for hint in hints.get(name, ()):
            if not fits(value, hint):
                said = hint.__name__ if isinstance(hint, type) else str(hint)
                return f"param {name} of `{op.name}` is of type {said}, not {clipped(repr(value))}"
    return ""


@cached(4096)
def _unbound(op: Op, count: int, names: tuple[str, ...]) -> str:
    """What is missing, or too much, for the functions that the op is made of."""
    wanted = getattr(op.infer, "operands", count)
    if count != wanted:
        return f"`{op.name}` takes {wanted} operands, not {count}"
    for function, lead in ((op.infer, 0), (op.evaluate, 1)):
        if function is None:
            continue
        signature = inspect.signature(function)
        kinds = signature.parameters.values()
        try:
            signature.bind(*(None,) * (lead + count), **dict.fromkeys(names))
            if not any(p.kind is p.VAR_POSITIONAL for p in kinds) and lead + count > sum(
                    p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty for p in kinds):
                raise TypeError("too many operands")
        except TypeError as problem:
            return (f"`{op.name}` with {count} operands and params "
                    f"{', '.join(names) or '(none)'}: {problem}")
    return ""


@cached(4096)
def _hints(op: Op) -> dict[str, list[Any]]:
    """The types of params, where they are declared."""
    hints: dict[str, list[Any]] = {}
    for function in (op.infer, op.evaluate, op.rule):
        notes = getattr(function, "__annotations__", {})
        if notes:
            code = inspect.unwrap(function).__code__
            first = code.co_argcount
            for name in code.co_varnames[first:first + code.co_kwonlyargcount]:
                hint = _type(function.__module__, notes.get(name, "Any"))
                known = hints.setdefault(name, [])
                if hint is not Any and hint not in known:
                    known.append(hint)
    return hints


@cached(4096)
def _type(module: str, note: str) -> Any:
    """What an annotation of a module names; Any where that is known to type checkers alone."""
    try:
        return eval(note, vars(sys.modules[module]))
    except NameError:
        return Any


def fits(value: Any, hint: Any) -> bool:
    """Is a value of the type that an annotation says? Names in tuples may be of any class: axes."""
    if hint is Any:
        return True
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint is int:
        return bool(isinstance(value, int | np.integer) and -_BEYOND <= value < _BEYOND)
    if hint.__class__ is type:
        return isinstance(value, hint)
    kind = Union if hint.__class__ is types.UnionType else getattr(hint, "__origin__", None)
    if kind is None:
        return not isinstance(hint, type) or isinstance(value, hint)
    parts = hint.__args__
    if kind is Union:
        for part in parts:
            if fits(value, part):
                return True
        return False
    if not isinstance(value, kind):
        return False
    if kind is not tuple or parts[0] is str:
        return True
    if parts[-1] is ...:
        parts = parts[:1] * len(value)
    if len(value) != len(parts):
        return False
    for item, part in zip(value, parts, strict=True):
        if not fits(item, part):
            return False
    return True
