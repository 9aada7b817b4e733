"""Registries: tables in which functions enter themselves by name, `@rule("add", "sub")`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Registry(dict[str, Callable[..., Any]]):
    """Functions by name. Called with names it is a decorator that enters a function under these."""

    def __call__(self, *names: str) -> Callable[[F], F]:
        def enter(f: F) -> F:
            self.update(dict.fromkeys(names, f))
            return f
        return enter
