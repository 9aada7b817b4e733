"""Blocks with the rows of their neighbours around them, where only windows of them are read.

A stencil concatenates what came from the one neighbour, its own block and what came from the other
one, and reads it at several offsets. Each window that is as long as a block is, on all devices
together, as many rows of the whole array, some rows further: a view of the array with its ends
lengthened. So the array is copied once, whatever the number of devices, and what is computed of
the windows stays in place.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.named_tuple import NamedTuple
from ...ir.ops.padding import pad_p
from ...ir.ops.slicing import slice_p
from ...ir.pool import empty
from ...ir.program import Atom, Equation, Var
from ..calls.recording import Kernel
from ..layout import Atoms, Layout, array_shape
from ..numerics import evaluator
from ..rewrites.equations import is_blank
from .workspace import Value

if TYPE_CHECKING:
    from .executor import Planner

Moves = Sequence[tuple[int, ...]]
Shape = tuple[int, ...]


class _Window(NamedTuple):
    """A slice that reads the lengthened blocks, and where it starts."""
    eqn: Equation
    starts: Shape


class _Around(NamedTuple):
    """How many zeros are around the lengthened blocks, along other dimensions."""
    low: Shape
    high: Shape


def plan_windows(p: Planner, eqn: Equation, source: Atom, group: Atoms, moves: Moves) -> bool:
    """Bind what reads a concatenation along a dimension, of a block of `source` and rows from
    elsewhere, if these are windows as long as the block; the concatenation itself is not computed.

    moves: (member, begin, end, owner, start) of rows that each member has from an owner along
    `group`; what is in none of them is zero.
    """
    (out,), d = eqn.outvars, eqn.params["dimension"]
    around, windows = _readers(p, out, d, source.aval.shape[d])
    if not windows:
        return False
    x = p.value_of(source)
    if not set(group) <= x.layout.atoms or x.layout.folded:
        return False
    rest = x.layout.without(set(group))
    split = tuple([(*axes, *group) if k == d else axes for k, axes in enumerate(rest.split)])
    layout = Layout(rest.stack, split)
    if rest.split[d] or any([axes and n for axes, n in zip(split, map(
            max, around.low, around.high), strict=True)]):
        return False
    block = source.aval.shape[d]
    ends = _ends(moves, block, out.aval.shape[d], p.atoms.count(group))
    if ends is None or not all([_is_whole(w, layout, d, source.aval.shape) for w in windows]):
        return False
    shape = array_shape(layout, x.aval.shape, p.atoms.size)
    at = len(layout.stack)
    low, high = list(around.low), list(around.high)
    low[d], high[d] = ends.low, ends.high
    long = (*shape[:at], *[n + a + b for n, a, b in zip(shape[at:], low, high, strict=True)])
    function = _lengthened(shape, long, at, d, tuple(low), ends)
    p.all_unread(eqn, (source,))
    slot = p.plan.call(function, (p.view(x, layout.stack, layout.split),), eqn)
    for w in windows:
        _bind(p, w, layout, long, slot, x)
    p.passed.update([*p.users_of(out), *[w.eqn for w in windows]])
    return True


def _readers(p: Planner, out: Var, d: int, block: int) -> tuple[_Around, list[_Window]]:
    """The windows of `block` rows that alone read a value, with zeros around it if there are any;
    no windows if anything else reads it."""
    none = (0,) * out.aval.ndim
    around = _Around(none, none)
    readers = p.users_of(out)
    if len(readers) == 1 and readers[0].op is pad_p:
        (pad,) = readers
        config = pad.params["padding_config"]
        if config[d] != (0, 0, 0) or any([a < 0 or b < 0 or c for a, b, c in config]) or (
                not is_blank(pad.invars[1], p.maker)):
            return around, []
        around = _Around(tuple([c[0] for c in config]),
                         tuple([c[1] for c in config]))
        readers = p.users_of(pad.outvars[0])
    found = []
    for e in readers:
        if e is None or e.op is not slice_p or (
                e.params["strides"] is not None and set(e.params["strides"]) != {1}) or (
                e.outvars[0].aval.shape[d] != block):
            return around, []
        found.append(_Window(e, e.params["start_indices"]))
    return around, found


class _Ends(NamedTuple):
    """How many rows are in front of the whole and behind it, and which those are: (place in the
    lengthened whole, first row of the whole, number); others are zero."""
    low: int
    high: int
    rows: tuple[tuple[int, int, int], ...]


def _ends(moves: Moves, block: int, rows: int, count: int) -> _Ends | None:
    """What is around the whole, if lengthened blocks of `rows` rows are windows of it.

    Row r of that of device m is then row m * block + r of the lengthened whole: between blocks
    the neighbour's own, in front of the first and behind the last anything.
    """
    own = [begin for m, begin, end, owner, _ in moves if m == owner and end - begin == block]
    low = own[0] if own else block + 1
    high = rows - block - low
    if len(own) != count or len(set(own)) != 1 or low > block or high > block:
        return None
    last, size = count - 1, block * count
    given, ends = [0] * count, []
    for m, begin, end, owner, start in moves:
        place, source = m * block + begin, owner * block + start
        if (m == 0 and end <= low) or (m == last and begin >= low + block):
            ends.append((place, source, end - begin))
        elif source != place - low:
            return None
        else:
            given[m] += end - begin
    wanted = [block + low * (m > 0) + high * (m < last) for m in range(count)]
    return _Ends(low, high, tuple(ends)) if given == wanted and size else None


def _is_whole(w: _Window, layout: Layout, d: int, shape: Shape) -> bool:
    """Does the window have all of the dimensions along which there are axes in place?"""
    return all([k == d or not axes or (w.starts[k] == 0 and m == n) for k, (axes, m, n) in
                enumerate(zip(layout.split, w.eqn.outvars[0].aval.shape, shape, strict=True))])


def _lengthened(shape: Shape, long: Shape, at: int, d: int, low: Shape, ends: _Ends
                ) -> Callable[[Any], Any]:
    """The function that puts zeros and `ends` around an array. low: what is in front of it."""
    front = (slice(None),) * at
    inner = [slice(a, a + n) for a, n in zip(low, shape[at:], strict=True)]
    gaps = []
    for k, (a, n, whole) in enumerate(zip(low, shape[at:], long[at:], strict=True)):
        for gap in (slice(0, a), slice(a + n, whole)):
            if gap.start < gap.stop:
                gaps.append((*front, *(slice(None),) * k, gap))
    index = (*front, *inner)
    copies = [((*front, *inner[:d], slice(place, place + n), *inner[d + 1:]),
               (*front, *(slice(None),) * d, slice(source, source + n)))
              for place, source, n in ends.rows]

    def lengthened(array: Any) -> Any:
        result = empty(long, array.dtype)
        for gap in gaps:
            result[gap] = np.zeros((), array.dtype)
        result[index] = array
        for to, there in copies:
            result[to] = array[there]
        return result

    return lengthened


def _bind(p: Planner, w: _Window, layout: Layout, long: Shape, slot: int, x: Value) -> None:
    """Let a window be rows of the lengthened whole."""
    (out,) = w.eqn.outvars
    shape = array_shape(layout, out.aval.shape, p.atoms.size)
    limits = tuple([a + n for a, n in zip(w.starts, shape[len(layout.stack):], strict=True)])
    params = {"start_indices": w.starts, "limit_indices": limits, "strides": None}
    dtype = x.kind.dtype
    function = evaluator(slice_p, len(layout.stack), params, [dtype], [dtype], [shape], [long])
    p.bind(out, layout, p.plan.call(function, (slot,), w.eqn,
                                    Kernel(function, (long, shape), (dtype, dtype))))


def _window(p: Planner, eqn: Equation) -> None:
    """A slice or a pad, if it is not among what is planned already."""
    if not p.passed or eqn not in p.passed:
        p.local(eqn)


STRATEGIES: dict[str, Callable[[Planner, Equation], None]] = {"pad": _window, "slice": _window}
