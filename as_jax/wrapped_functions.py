"""Functions wrapped by a stack of transformations, each applied to the one below."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["WrappedFun", "transformation", "transformation2", "wrap_init"]


class WrappedFun:
    """A function, with what transformations have put around it."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f = f
        self.__name__ = getattr(f, "__name__", type(f).__name__)

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Call the whole of it."""
        return self.f(*args, **kwargs)


def wrap_init(f: Callable[..., Any], params: dict[str, Any] | None = None, *,
              debug_info: Any = None) -> WrappedFun:
    """A function as one that transformations can wrap. params: keywords that it always gets."""
    return WrappedFun(functools.partial(f, **params) if params else f)


def transformation2(rule: Callable[..., Any]) -> Callable[..., WrappedFun]:
    """A transformation by `rule(function, *fixed, *args)`: a function of (function, *fixed)."""
    def transform(fun: WrappedFun, *fixed: Any) -> WrappedFun:
        return WrappedFun(lambda *args, **kwargs: rule(fun.call_wrapped, *fixed, *args, **kwargs))

    return transform


def transformation(rule: Callable[..., Any]) -> Callable[..., WrappedFun]:
    """As `transformation2`, by a generator that yields (args, kwargs), is sent the function's
    result, and yields the result of the whole."""
    def run(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        steps = rule(*args, **kwargs)
        inner_args, inner_kwargs = next(steps)
        try:
            return steps.send(fun(*inner_args, **inner_kwargs))
        finally:
            steps.close()

    return transformation2(run)
