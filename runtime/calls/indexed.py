"""Slices and updates at scalar starts: in loops, one line of source each.

An iteration often reads or updates one row or element of an array, and working out where it is
takes longer than the computation. Here a dynamic slice and the squeeze after it are one indexing
expression, and a scatter of one window is one assignment, with Python integers as indices.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.kernels.device_dimensions import copied
from ...ir.kernels.dynamic_slices import Place, Window
from ...ir.support.named_tuple import NamedTuple
from ..layout import Reshaped
from .call import Call, read_counts, without_unread
from .symbolic import REPEAT, RESHAPE


class SliceAt(NamedTuple):
    """A part of its first operand, at the starts that follow. drops: its dimensions, of size 1."""
    places: tuple[Place, ...]
    drops: bool

    def write(self, w: Any, call: Call, operands: Sequence[str], target: str,
              constants: Mapping[int, Any]) -> None:
        """Write the slice as lines of source. constants: by slot."""
        index, _ = _index(self, w, call, operands, constants, True)
        w.line(f"{target} = {operands[0]}[{index}]", call.eqn)


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
    own: bool

    @property
    def over(self) -> UpdateAt:
        return self._replace(own=True)

    def write(self, w: Any, call: Call, operands: Sequence[str], target: str,
              constants: Mapping[int, Any]) -> None:
        """Write the update as lines of source. constants: by slot."""
        changed, *_, values = operands
        if not self.own:
            w.line(f"{target} = {w.name(copied, 'f')}({changed})", call.eqn)
            changed = target
        index, checks = _index(self, w, call, operands, constants, self.clips)
        test = f"if {' and '.join(checks)}: " if checks else ""
        part = f"{changed}[{index}]"
        if self.shape is not None:
            values = f"{values}.reshape({self.shape})"
        if self.ufunc is None:
            w.line(f"{test}{part} = {values}", call.eqn)
        elif self.number:
            w.line(f"{test}{part} = {w.name(self.ufunc, 'f')}({part}, {values})", call.eqn)
        else:
            name = w.fresh()
            w.line(f"{test}{w.name(self.ufunc, 'f')}({name} := {part}, {values}, out={name})",
                   call.eqn)
        if target != changed:
            w.line(f"{target} = {changed}")


def _index(function: SliceAt | UpdateAt, w: Any, call: Call, operands: Sequence[str],
           constants: Mapping[int, Any], clips: bool) -> tuple[str, list[str]]:
    """(the index of a part, what has to hold for it to be there), as source. clips: whether starts
    outside are moved inside; the lines that do so are written.
    """
    checks: list[str] = []
    index: dict[int, str] = {}
    for i, d, last, size in function.places:
        start = constants.get(call.inputs[i + 1])
        if start is not None:
            name = str(min(max(start.item(), 0), last) if clips else start.item())
        else:
            name = w.fresh()
            w.line(f"{name} = {operands[i + 1]}.item()", call.eqn)
            if clips:
                w.line(f"{name} = 0 if {name} < 0 else {name} if {name} < {last} else {last}")
        index[d] = name if function.drops else f"{name}:{name} + {size}"
        if not clips:
            checks.append(f"0 <= {name} <= {last}")
    return ", ".join([index.get(d, ":") for d in range(max(index) + 1)]), checks


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
        elif call.changes or hasattr(call.function, "over"):
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
    return taken._replace(function=SliceAt(places, True), outputs=call.outputs)


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
                        None if shape == given else shape, not part, call.changes)
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
