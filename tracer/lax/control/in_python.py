"""Runs loops and branches in Python, item by item, under `disable_jit`.

Predicates must be concrete then; where they are traced (under vmap, say) the caller stages as
usual.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....ir.diagnostics.errors import ConcretizationTypeError
from ....ir.values.array import Array
from ...staging.tracer import Tracer
from ...trees import tree
from ..shape import stack
from ..slicing import index_in_dim

STAGED = object()
"""What the functions here give where a value that decides is traced."""


def known(x: Any) -> Any:
    """The value of a scalar, or STAGED."""
    if isinstance(x, Tracer):
        x = x._known()
        return STAGED if x is None else x
    return x.item() if isinstance(x, Array) else x      # type: ignore[attr-defined]


def while_in_python(cond_fun: Callable[..., Any], body_fun: Callable[..., Any], value: Any) -> Any:
    """`while_loop` as a loop of Python."""
    try:
        while cond_fun(value):
            value = body_fun(value)
    except ConcretizationTypeError:
        return STAGED
    return value


def scan_in_python(f: Callable[..., Any], carry: Any, xs: Sequence[Any], xs_tree: Any, length: int,
                   reverse: bool) -> Any:
    """`scan` as a loop of Python over leaves `xs`."""
    if length == 0:
        raise ValueError("zero-length scan is not supported in disable_jit() mode because the "
                         "output type is unknown.")
    results = []
    for i in reversed(range(length)) if reverse else range(length):
        items = [index_in_dim(x, i, keepdims=False) for x in xs]
        carry, y = f(carry, tree.unflatten(xs_tree, items))
        results.append(y)
    if reverse:
        results.reverse()
    ys = tree.map(lambda *parts: stack(list(parts)), *results)
    return carry, ys
