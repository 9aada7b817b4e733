"""Donated arguments: which of them a call may overwrite."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...runtime.arrays.array import ArrayImpl
from ...tracer.staging.signature import Arguments


def donated(arguments: Arguments, args: Any, kwargs: Any, leaves: Sequence[Any],
            results: Sequence[Any]) -> tuple[list[int], list[str]]:
    """Which leaves give their buffers to results, and the types of those that nobody can use."""
    gone: list[int] = []
    if not arguments.donate_nums and not arguments.donate_names:
        return gone, []
    spare = [(r.aval.shape, r.aval.dtype) for r in results]
    others: list[int] = []
    given = arguments.donated(args, kwargs)
    for i, (x, gives) in enumerate(zip(leaves, given, strict=True)):
        if not gives or not isinstance(x, ArrayImpl):
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
    return gone, unusable
