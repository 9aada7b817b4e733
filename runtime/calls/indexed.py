"""Slices and updates at scalar starts: in loops, one line of source each.

An iteration often reads or updates one row or element of an array, and working out where it is
takes longer than the computation. Here a dynamic slice and the squeeze after it are one indexing
expression, and a scatter of one window is one assignment, with Python integers as indices.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.kernels.dynamic_slices import Place, Window
from ...ir.support.buffer_pool import empty
from ...ir.support.named_tuple import NamedTuple
from ..layout import Reshaped
from .call import Call, read_counts, without_unread
from .symbolic import REPEAT, RESHAPE, Kernel


class SliceAt(NamedTuple):
    """A part of its first operand, at the starts that follow. drops: its dimensions, of size 1."""
    places: tuple[Place, ...]
    drops: bool

    def __call__(self, x: Any, *starts: Any) -> Any:
        index = [slice(None)] * x.ndim
        for i, d, last, size in self.places:
            at = min(max(starts[i].item(), 0), last)
            index[d] = at if self.drops else slice(at, at + size)   # type: ignore[call-overload]
        return x[tuple(index)]


class UpdateAt(NamedTuple):
    """Replaces a part of an array; operands are the array, the starts, and the new values.

    drops: index the part without the sliced dimensions. shape: of the values as assigned; None if
    they have it. number: the part is one element. own: change the array itself rather than a copy.
    """
    places: tuple[Place, ...]
    drops: bool
    clips: bool
    ufunc: np.ufunc | None
    shape: tuple[int, ...] | None
    number: bool
    own: bool = False

    @property
    def over(self) -> UpdateAt:
        return self._replace(own=True)

    def __call__(self, x: Any, *rest: Any) -> Any:
        *starts, values = rest
        if not self.own:
            out = empty(x.shape, x.dtype)
            np.copyto(out, x)
            x = out
        index: list[Any] = [slice(None)] * x.ndim
        for i, d, last, size in self.places:
            at = starts[i].item()
            if not 0 <= at <= last:
                if not self.clips:
                    return x
                at = min(max(at, 0), last)
            index[d] = at if self.drops else slice(at, at + size)
        part, values = tuple(index), values if self.shape is None else values.reshape(self.shape)
        x[part] = values if self.ufunc is None else self.ufunc(x[part], values)
        return x


def has_source(call: Call) -> bool:
    """Can `write_source` write it as lines of source?"""
    function = call.function
    return type(function) is SliceAt or type(function) is UpdateAt and function.own


def write_source(w: Any, call: Call, operands: Sequence[str], target: str,
                 constants: Mapping[int, Any]) -> None:
    """Write the lines of a call of `SliceAt` or `UpdateAt`. constants: by slot."""
    function, eqn = call.function, call.eqn
    checks: list[str] = []
    index: dict[int, str] = {}
    for i, d, last, size in function.places:    # type: ignore[attr-defined]
        start = constants.get(call.inputs[i + 1])
        moves = type(function) is SliceAt or function.clips     # type: ignore[attr-defined]
        if start is not None:
            name = str(min(max(start.item(), 0), last) if moves else start.item())
        else:
            name = w.fresh()
            w.line(f"{name} = {operands[i + 1]}.item()", eqn)
            if moves:
                w.line(f"{name} = 0 if {name} < 0 else {name} if {name} < {last} else {last}")
        index[d] = name if function.drops else f"{name}:{name} + {size}"   # type: ignore
        if not moves:
            checks.append(f"0 <= {name} <= {last}")
    inside = ", ".join([index.get(d, ":") for d in range(max(index) + 1)])
    if type(function) is SliceAt:
        w.line(f"{target} = {operands[0]}[{inside}]", eqn)
        return
    x = f"{operands[0]}[{inside}]"
    values = operands[-1] if function.shape is None else f"{operands[-1]}.reshape({function.shape})"
    test = f"if {' and '.join(checks)}: " if checks else ""
    ufunc = None if function.ufunc is None else w.name(function.ufunc, "f")
    if ufunc is None:
        w.line(f"{test}{x} = {values}", eqn)
    elif function.number:
        w.line(f"{test}{x} = {ufunc}({x}, {values})", eqn)
    else:
        part = w.fresh()
        w.line(f"{test}{ufunc}({part} := {x}, {values}, out={part})", eqn)
    if target != operands[0]:
        w.line(f"{target} = {operands[0]}")


def by_index(calls: Sequence[Call], outputs: Sequence[int]) -> list[Call]:
    """The calls, with slices and updates at scalar starts as `SliceAt` and `UpdateAt`."""
    if not any([hasattr(call.function, "window") for call in calls]):
        return list(calls)
    makers = {s: call for call in calls for s in call.outputs}
    reads = read_counts(calls, outputs)
    out: list[Call] = []
    takes: dict[int, int] = {}              # slot of a slice to its position in `out`
    for call in calls:
        window, kernel = getattr(call.function, "window", None), call.kernel
        if window is None or kernel is None or not window.places:
            place = takes.get(call.inputs[0]) if len(call.inputs) == 1 else None
            made = None if place is None or reads[call.inputs[0]] != 1 else _with_squeeze(
                out[place], call)
            if place is None or made is None:
                out.append(call)
            else:
                out[place] = made
        elif hasattr(call.function, "over"):
            out.append(_as_update(call, window, makers) or call)
        else:
            x, *at = call.inputs
            takes[call.outputs[0]] = len(out)
            out.append(call._replace(function=SliceAt(window.places, False), inputs=(
                x, *_scalar_starts(at, kernel.shapes[1:], makers))))
    return without_unread(out, outputs)


def _with_squeeze(taken: Call, call: Call) -> Call | None:
    """A slice and a reshape that drops the sliced dimensions, of size 1, as one call."""
    assert taken.kernel is not None
    places, cut = taken.function.places, taken.kernel           # type: ignore[attr-defined]
    kernel = call.kernel
    dims = {place.dim for place in places}
    left = tuple([n for d, n in enumerate(cut.shapes[-1]) if d not in dims])
    if kernel is None or call.several or kernel.shapes[-1] != left or any(
            [place.size != 1 for place in places]) or not kernel.dtypes[-1].isbuiltin:
        return None
    recording = kernel.recording
    if recording is None or [step.kind for step in recording.steps] != [RESHAPE]:
        return None
    function = SliceAt(places, True)
    return taken._replace(function=function, outputs=call.outputs,
                          kernel=Kernel(function, (*cut.shapes[:-1], left), cut.dtypes))


def _as_update(call: Call, window: Window, makers: Mapping[int, Call]) -> Call | None:
    """The call as an `UpdateAt` with scalar starts; None if the starts cannot be had as scalars."""
    kernel = call.kernel
    assert kernel is not None
    if window.vector:
        starts = _scalars(call.inputs[1], makers, len(window.places) == 1)
        values, given = call.inputs[2], kernel.shapes[2]
    else:
        starts = _scalar_starts(call.inputs[2:], kernel.shapes[2:], makers)
        values, given = call.inputs[1], kernel.shapes[1]
    if starts is None:
        return None
    drops = all([place.size == 1 for place in window.places])
    sizes = {place.dim: place.size for place in window.places}
    part = [sizes.get(d, n) for d, n in enumerate(kernel.shapes[-1]) if not drops or d not in sizes]
    shape = (*given[:window.lead], *part[window.lead:])
    function = UpdateAt(window.places, drops, window.clips, window.ufunc,
                        None if shape == given else shape, not part)
    return call._replace(function=function, inputs=(call.inputs[0], *starts, values))


def _scalar_starts(slots: Sequence[int], shapes: Sequence[Any], makers: Mapping[int, Call]
                   ) -> list[int]:
    """The starts in these slots, each as the slot of a scalar if there is one."""
    found: list[int] = []
    for s, shape in zip(slots, shapes, strict=False):
        found += (_scalars(s, makers, True) or [s]) if shape else [s]
    return found


def _scalars(at: int, makers: Mapping[int, Call], single: bool) -> list[int] | None:
    """The slots of the scalars that an array of indices is made of. single: it holds just one."""
    call = makers.get(at)
    known: list[int] | None = None
    while call is not None and type(call.function) is Reshaped:
        (at,) = call.inputs
        call = makers.get(at)
        known = [at] if single else None
    if call is None or call.kernel is None or call.several:
        return known
    if call.eqn is not None and call.eqn.op.name == "concatenate":
        found = [_scalars(s, makers, False) for s in call.inputs]
        return [s for one in found for s in one or ()] if all(found) else known
    recording = call.kernel.recording
    if len(call.inputs) != 1 or call.kernel.shapes[0] or recording is None or not all(
            [step.kind in (RESHAPE, REPEAT) for step in recording.steps]):
        return known
    return list(call.inputs)
