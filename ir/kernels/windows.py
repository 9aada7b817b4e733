"""Padding, and sliding windows: sizes, paddings of their transposes, views of arrays as windows.

A window of size w and dilation d covers (w - 1) d + 1 elements of an operand whose elements are
first spread by the base dilation b and padded by (lo, hi); the results lie stride s apart:

    result[o] = sum_k spread[o s + k d - lo]

Only every b-th position of `spread` holds an element of the operand. The results whose windows have
elements at the same places form a *phase*: they are windows over the operand itself, of those
places alone, so that no zero is multiplied or added.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..support.buffer_pool import empty
from ..support.named_tuple import NamedTuple
from ..types import Shape
from .device_dimensions import with_lead

RUN = 1 << 9                     # bytes of a run of elements up to which it is written as one

# For each dimension: elements before, after, and between neighbours.
Config = tuple[tuple[int, int, int], ...]


def pad_array(lead: int, x: np.ndarray, value: np.ndarray, *,
              padding_config: Config) -> np.ndarray:
    return padding_of(lead, (x.shape, value.shape), (x.dtype, value.dtype),
                      {"padding_config": padding_config})(x, value)


def padding_of(lead: int, shapes: Sequence[Shape], dtypes: Sequence[np.dtype],
               params: Mapping[str, Config]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """`pad_array` of a value and a number of these shapes."""
    devices = tuple([max(shape[d] for shape in shapes) for d in range(lead)])
    source, target, sizes = [slice(None)] * lead, [slice(None)] * lead, list(devices)
    for n, (lo, hi, inner) in zip(shapes[0][lead:], params["padding_config"], strict=True):
        step = inner + 1
        size = lo + hi + (n + (n - 1) * inner if n else 0)
        first = -(lo // step) if lo < 0 else 0          # first element at or after the start
        last = min(n, -(-(size - lo) // step)) if size > lo else first
        last = max(first, last)
        source.append(slice(first, last))
        start = lo + first * step
        target.append(slice(start, start + (last - first - 1) * step + 1, step) if last > first
                      else slice(0, 0, 1))
        sizes.append(size)
    kept, places, shape = tuple(source), tuple(target), tuple(sizes)
    if all([part.stop - part.start == n for part, n in
            zip(kept[lead:], shape[lead:], strict=True)]):
        return lambda x, value: x[kept] if lead == 0 else with_lead(x[kept], lead, devices)
    filled = []                                         # parts that have no element of x
    for d in range(lead, len(shape)):
        part, before = places[d], places[:d]            # what is next to it is filled
        if part.step > 1:
            filled.append(before)
            break
        filled += [(*before, slice(*ends)) for ends in ((0, part.start), (part.stop, shape[d]))
                   if ends[0] < ends[1]]
    number, dtype = (*shapes[1][:lead], *[1] * (len(shape) - lead)), dtypes[0]

    def pad(x: np.ndarray, value: np.ndarray) -> np.ndarray:
        out = empty(shape, dtype)
        fill = value.reshape(number)
        for beside in filled:
            out[beside] = fill
        out[places] = x[kept]
        return out
    return pad


Padding = tuple[tuple[int, int], ...]


def spread_size(n: int, dilation: int) -> int:
    return (n - 1) * dilation + 1 if n > 0 else 0


def output_size(n: int, window: int, stride: int, padding: tuple[int, int], base_dilation: int,
                window_dilation: int) -> int:
    """Number of windows along a dimension of size n."""
    room = sum(padding) + spread_size(n, base_dilation) - spread_size(window, window_dilation)
    return room // stride + 1 if room >= 0 else 0


def transposed_padding(n: int, out: int, window: int, stride: int, padding: tuple[int, int],
                       base_dilation: int, window_dilation: int) -> tuple[int, int]:
    """Padding with which windows over the results give back a dimension of size n.

    The results are spread by the stride, and the windows (reversed) lie base_dilation apart.
    """
    reach = spread_size(window, window_dilation)
    lo = reach - 1 - padding[0]
    hi = spread_size(n, base_dilation) + reach - 1 - lo - spread_size(out, stride)
    return lo, hi


class Phase(NamedTuple):
    """Results that see elements at the same places of their windows, in each dimension.

    results, window: which of the results and which places. The others are of the windows over the
    operand as it is; negative padding crops it.
    """
    results: tuple[slice, ...]
    window: tuple[slice, ...]
    strides: tuple[int, ...]
    padding: Padding
    dilation: tuple[int, ...]


def phases(sizes: Sequence[int], results: Sequence[int], window: Sequence[int],
           strides: Sequence[int], padding: Padding, base: Sequence[int], dilation: Sequence[int]
           ) -> Iterator[Phase]:
    """The phases of the results of windows; those that see no element are left out."""
    for phase in itertools.product(*[_phases(*args) for args in zip(
            sizes, results, window, strides, [lo for lo, _ in padding], base, dilation,
            strict=True)]):
        yield Phase(*zip(*phase, strict=True))          # type: ignore[arg-type]


def _phases(n: int, results: int, window: int, stride: int, lo: int, base: int, dilation: int
            ) -> Iterator[tuple[slice, slice, int, tuple[int, int], int]]:
    """Of one dimension of size n."""
    step, apart = base // math.gcd(stride, base), base // math.gcd(dilation, base)
    strides, dilations = step * stride // base, apart * dilation // base
    for p in range(min(step, results)):
        for k in range(min(apart, window)):
            first = p * stride + k * dilation - lo
            if first % base == 0:
                before, count = -(first // base), len(range(p, results, step))
                reach = spread_size(len(range(k, window, apart)), dilations)
                yield (slice(p, None, step), slice(k, None, apart), strides,
                       (before, (count - 1) * strides + reach - before - n), dilations)


def passes(window: int, stride: int, padding: tuple[int, int], base_dilation: int = 1) -> bool:
    """Is a dimension left as it is?"""
    return window == 1 and stride == 1 and tuple(padding) == (0, 0) and base_dilation == 1


def halo(window: int, stride: int, padding: tuple[int, int], base_dilation: int = 1,
         window_dilation: int = 1, spread: int = 1) -> str:
    """The kind of a factor along which windows reach to neighbours, in rule text.

    spread: a base dilation between whose elements there is nothing, i.e. zeros of a sum.
    """
    if base_dilation != 1 or window < 1:
        return "halo"
    apart = f"/{spread}" if spread != 1 else ""
    return f"halo({-padding[0]},{spread_size(window, window_dilation)},{stride}{apart})"


def padded(lead: int, x: np.ndarray, value: Any, padding: Sequence[tuple[int, int]],
           base_dilation: Sequence[int]) -> np.ndarray:
    """`x` spread and padded with the number `value` in its last len(padding) dimensions."""
    config = ((0, 0, 0),) * (x.ndim - lead - len(padding)) + tuple(
        (lo, hi, d - 1) for (lo, hi), d in zip(padding, base_dilation, strict=True))
    return pad_array(lead, x, np.full((1,) * lead, value, x.dtype), padding_config=config)


def windows(x: np.ndarray, window: Sequence[int], stride: Sequence[int],
            dilation: Sequence[int]) -> np.ndarray:
    """A view [..., results, windows] of an array whose last len(window) dimensions are padded."""
    front, local = x.shape[:x.ndim - len(window)], x.shape[x.ndim - len(window):]
    steps = x.strides[x.ndim - len(window):]
    out: Shape = tuple(output_size(n, w, s, (0, 0), 1, d)
                       for n, w, s, d in zip(local, window, stride, dilation, strict=True))
    return np.lib.stride_tricks.as_strided(
        x, front + out + tuple(window),
        x.strides[:len(front)] + tuple(t * s for t, s in zip(steps, stride, strict=True))
        + tuple(t * d for t, d in zip(steps, dilation, strict=True)), writeable=False)


def write_runs(target: np.ndarray, source: np.ndarray) -> None:
    """`numpy.copyto` of arrays of one shape and dtype. A run of few elements is copied as one, of
    so many bytes: numpy takes longer to begin with a run than to copy it."""
    d, run = source.ndim, source.itemsize
    while d and source.strides[d - 1] == run == target.strides[d - 1]:
        d -= 1
        run *= source.shape[d]
    if source.size and source.itemsize < run <= RUN and source.dtype == target.dtype:
        source, target = (x.reshape(*x.shape[:d], -1).view(f"V{run}") for x in (source, target))
    np.copyto(target, source)
