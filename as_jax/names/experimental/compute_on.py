"""`compute_on`: which unit of a device runs a computation.

A simulated device has one unit, so only the name is checked.
"""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ....driver.execution.transfer import device_put
from ....tracer.trees import tree

__all__ = ["compute_on", "compute_on2"]
_KINDS = ("device", "device_host", "tpu_sparsecore")


@contextlib.contextmanager
def compute_on(compute_type: str) -> Iterator[None]:
    """A block that shall run on a kind of unit, which changes nothing here."""
    _check(compute_type)
    yield


def compute_on2(f: Callable[..., Any] | None = None, *, compute_type: str, out_memory_spaces: Any,
                compiler_options: Any = None) -> Any:
    """`f`, which shall run on a kind of unit; its results are put into memory spaces.

    out_memory_spaces: a `memory.Space`, or a tree prefix of them for the results.
    """
    if f is None:
        return functools.partial(compute_on2, compute_type=compute_type,
                                 out_memory_spaces=out_memory_spaces)
    _check(compute_type)

    def wrapped(*args: Any) -> Any:
        leaves, treedef = tree.flatten(f(*args))
        results = tree.unflatten(treedef, leaves)
        spaces = tree.broadcast_prefix(out_memory_spaces, results, name="compute_on")
        return tree.unflatten(treedef, [device_put(x, s)
                                        for x, s in zip(leaves, spaces, strict=True)])

    return wrapped


def _check(compute_type: Any) -> None:
    if not isinstance(compute_type, str):
        raise TypeError("`compute_on`'s compute_type argument must be a string.")
    if compute_type not in _KINDS and not compute_type.startswith("gpu_stream:"):
        raise ValueError(f"Invalid compute type {compute_type}: there are {', '.join(_KINDS)} and "
                         "gpu_stream:#")
