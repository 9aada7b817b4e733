"""named_scope and named_call: names of the user's for parts of a function.

    with named_scope("attention"):
        scores = q @ k.T                 # train.py:9:18-23 under attention

An equation's location carries the names of the scopes it was traced in, outermost first. They stand
in the comment of the program text and in reports of collectives.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any

from ...ir.source.location import SCOPES
from ...ir.support.scopes import override


class named_scope(ContextDecorator):
    """A context manager, or decorator, that puts `name` on what is traced within.

    Scopes nest: the names are joined by `/`. Raises TypeError where name is no string.

    >>> import shardtrace as st
    >>> def f(x):
    ...     with st.named_scope("scale"):
    ...         return x * 2
    >>> print(st.make_jaxpr(f)(1.0).eqns[0].location.scope)
    scale
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError("named_scope name argument must be a string.")
        self.name = name
        self._entered: list[override] = []

    def __enter__(self) -> None:
        outer = SCOPES.path
        scope = override(SCOPES, path=f"{outer}/{self.name}" if outer else self.name)
        self._entered.append(scope)
        scope.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._entered[-1].__exit__()
        self._entered.pop()


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """`fun` with all that it traces under `name` (default: its own).

    >>> import shardtrace as st
    >>> print(st.make_jaxpr(st.named_call(lambda x: x * 2, name="twice"))(1.0)
    ...       .eqns[0].location.scope)
    twice
    """
    if name is None:
        name = fun.__name__
    scope = name

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with named_scope(scope):
            return fun(*args, **kwargs)

    return wrapped


def without_scopes() -> override:
    """No scopes within the block: a program that is called from several places knows only its own.
    """
    return override(SCOPES, path="")
