"""Flattening the arguments of functions, as libraries with tracers of their own do it."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...tracer.trees import tree_api
from ..wrapped_functions import WrappedFun

__all__ = ["debug_info", "flatten_fun", "flatten_fun_nokwargs", "safe_map"]


def safe_map(f: Callable[..., Any], *args: Iterable[Any]) -> list[Any]:
    """`list(map(f, *args))`, of iterables that are equally long."""
    return [f(*items) for items in zip(*args, strict=True)]


def debug_info(traced_for: str, fun: Callable[..., Any], args: Any, kwargs: Any, **_: Any) -> str:
    """What a function is traced for; programs here know their user's lines without it."""
    return f"{traced_for}: {getattr(fun, '__name__', fun)}"


def flatten_fun(f: WrappedFun, in_tree: Any) -> tuple[WrappedFun, Callable[[], Any]]:
    """(the function from leaves of (args, kwargs) to those of its result, the result's tree).

    The tree is known once the function has run.
    """
    def call(leaves: Any) -> Any:
        args, kwargs = tree_api.unflatten(in_tree, leaves)
        return f.call_wrapped(*args, **kwargs)

    return _flat(call)


def flatten_fun_nokwargs(f: WrappedFun, in_tree: Any) -> tuple[WrappedFun, Callable[[], Any]]:
    """As `flatten_fun`, for a tree of positional arguments alone."""
    return _flat(lambda leaves: f.call_wrapped(*tree_api.unflatten(in_tree, leaves)))


def _flat(call: Callable[[Any], Any]) -> tuple[WrappedFun, Callable[[], Any]]:
    trees: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        outs, out_tree = tree_api.flatten(call(leaves))
        trees.append(out_tree)
        return outs

    return WrappedFun(flat), lambda: trees[-1]
