"""pad: elements before, behind and between those of an array; negative padding cuts off."""
from __future__ import annotations

import numpy as np

from ..support.buffer_pool import empty
from .device_dimensions import lead_sizes, with_lead

# For each dimension: elements before, behind, and between neighbours.
Config = tuple[tuple[int, int, int], ...]


def pad_array(lead: int, x: np.ndarray, value: np.ndarray, *,
              padding_config: Config) -> np.ndarray:
    source: list[slice] = []
    target: list[slice] = []
    shape = []
    for n, (lo, hi, inner) in zip(x.shape[lead:], padding_config, strict=True):
        step = inner + 1
        size = lo + hi + (n + (n - 1) * inner if n else 0)
        first = -(lo // step) if lo < 0 else 0          # first element at or after the start
        last = min(n, -(-(size - lo) // step)) if size > lo else first
        last = max(first, last)
        source.append(slice(first, last))
        start = lo + first * step
        target.append(slice(start, start + (last - first - 1) * step + 1, step) if last > first
                      else slice(0, 0, 1))
        shape.append(size)
    kept = x[(slice(None),) * lead + tuple(source)]
    if kept.shape[lead:] == tuple(shape):
        return kept if lead == 0 else with_lead(kept, lead, lead_sizes(lead, (x, value)))
    sizes = lead_sizes(lead, (x, value))
    out = empty(sizes + tuple(shape), x.dtype)
    fill = value.reshape(value.shape[:lead] + (1,) * len(shape))
    where = [slice(None)] * out.ndim
    for d, part in enumerate(target, lead):
        if part.step > 1:
            out[tuple(where)] = fill
            break
        for beside in (slice(0, part.start), slice(part.stop, None)):
            out[(*where[:d], beside, *where[d + 1:])] = fill
        where[d] = part                         # what is beside it is filled
    out[(slice(None),) * lead + tuple(target)] = kept
    return out
