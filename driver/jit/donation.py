"""Donated arguments: which of them a call may overwrite."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import JaxRuntimeError
from ...runtime.arrays.array import ArrayImpl
from ...tracer.staging.signature import Arguments
from ..execution.executable import Executable


def donated(arguments: Arguments, args: Any, kwargs: Any, leaves: Sequence[Any],
            executable: Executable) -> tuple[list[int], list[str]]:
    """Which leaves give their buffers to results, and the types of those that no result can use.

    Raises JaxRuntimeError where one that does is passed to the call twice.
    """
    gone: list[int] = []
    if not arguments.donate_nums and not arguments.donate_names:
        return gone, []
    spare = [(t.shape, t.dtype) for t in executable.avals]
    others: list[int] = []
    given = arguments.donated(args, kwargs)
    for i, (x, gives) in enumerate(zip(leaves, given, strict=True)):
        if not gives or not executable.used[i] or not isinstance(x, ArrayImpl):
            continue
        if (x.aval.shape, x.aval.dtype) in spare:
            spare.remove((x.aval.shape, x.aval.dtype))
            gone.append(i)
        else:
            others.append(i)
    sizes = [math.prod(shape) for shape, _ in spare]      # a result of another shape, then
    unusable = []
    for i in others:
        size = leaves[i].aval.size
        if size in sizes:
            sizes.remove(size)
            gone.append(i)
        else:
            unusable.append(str(leaves[i].aval))
    if len({*map(id, leaves)}) < len(leaves):
        names = arguments.leaf_names(args, kwargs)
        for i in gone:
            for j, x in enumerate(leaves):
                if x is leaves[i] and j != i and executable.used[j]:
                    _refuse_twice(names[i], names[j],
                                  "donate the same buffer twice in" if j in gone else
                                  "use a buffer that was previously donated in the same call to"
                                  if i < j else
                                  "donate a buffer which is also used by the same call to")
    return gone, unusable


def _refuse_twice(given: str, other: str, what: str) -> None:
    fail(JaxRuntimeError, f"Attempt to {what} Execute(): `{given}` and `{other}` are one array",
         code="donated-twice", because=("a result may be written into the buffer of a donated "
                                        "argument while the other is still to be read",),
         help=f"pass a copy for `{given}` (`jnp.copy`), or do not donate it")
