"""In-place results: calls write over operands whose live range ends there.

An operand that is read for the last time lends its memory to the result, if it was computed in this
plan and no view of it is live. So a partial update happens in place, and a chain of small calls
stays in the cache. What a loop carries may be overwritten in every iteration, since it is copied
before the first one.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.kernels.elementwise.extremes import BY_CLIP
from ...ir.passes import Pass
from ..calls.call import Call, new_call
from ..calls.symbolic import CALL, VIEWS, Recording
from .draft import Draft

FEWEST = 1 << 10                # bytes from which an array is worth writing over


def _writer(call: Call) -> tuple[Any, tuple[int, ...]] | None:
    """For a call that is one ufunc: a function, and the slots that it takes before `out`."""
    recording = call.recording
    if recording is None or len(recording.steps) != 1:
        return None
    (step,) = recording.steps
    if step.kind != CALL or not all(type(v) is int for v in step.operands):
        return None
    # `out` is passed by position: as a keyword, numpy would warn.
    return BY_CLIP.get(step.function, step.function), tuple(call.inputs[v] for v in step.operands)


def over_operands(calls: Sequence[Call], outputs: Sequence[int], writable: Mapping[int, int],
                  small: bool = False) -> tuple[Sequence[Call], list[int]]:
    """The calls, their results written over operands, and the parameters so overwritten.

    writable: parameters that may be overwritten, each with its value in the next iteration. small:
    also consider calls whose arrays are small.
    """
    used: list[int] = []
    able = [i for i, call in enumerate(calls) if call.kernel is not None and (
            call.kernel.changes or small and call.kernel.sizes[-1] >= FEWEST)
            or writable and not writable.keys().isdisjoint(call.inputs) or is_group(call)]
    if not able:
        return calls, used
    memory = _Memory(calls, outputs, writable)
    out = list(calls)
    for i in able:
        call = calls[i]
        if is_group(call):
            dying = [k for k, s in enumerate(call[1]) if s not in writable and memory.is_free(s, i)]
            if dying:
                out[i] = new_call((call.function.overwriting(dying), *call[1:6], True))
            continue
        changed = _overwriting(call)
        if changed is None:
            continue
        function, operands, inputs = changed
        elementwise = inputs is not call.inputs
        x = next((x for x in operands if memory.is_free(x, i, elementwise)), None)
        if x is not None:
            out[i] = call._replace(function=function, changes=True) if not elementwise else (
                call._replace(function=function, kernel=None, changes=True, inputs=(*inputs, x)))
            if x in writable:
                used.append(x)
    return out, used


def _overwriting(call: Call) -> tuple[Any, Sequence[int], tuple[int, ...]] | None:
    """(function, candidates, inputs) for a call that can write its result over an operand: one of
    the candidates. `inputs` are those of the call if the function overwrites its first operand;
    else the overwritten operand has to be appended to them.
    """
    if call.kernel is not None and not call.kernel.shapes[-1]:
        return None                             # numpy's scalars cannot be written over
    over = getattr(call.function, "over", None)
    if over is not None:
        return over, call.inputs[:1], call.inputs
    made = _writer(call)
    if made is None:
        return None
    assert call.kernel is not None
    *shapes, shape = call.kernel.shapes
    *dtypes, dtype = call.kernel.dtypes
    like = [s for s, given, kind in zip(call.inputs, shapes, dtypes, strict=True)
            if given == shape and kind == dtype]
    return (made[0], like, tuple([*made[1]])) if like else None


class _Memory:
    """The memory of the values of some calls, and whether it may be overwritten.

    writable: parameters of a loop's body, whose memory belongs to the plan as long as their next
    value is a new array that nothing else returns.
    """

    def __init__(self, calls: Sequence[Call], outputs: Sequence[int], writable: Mapping[int, int]
                 ) -> None:
        self.calls = calls
        self.makers = {s: call for call in calls for s in call[2]}
        self.given = set(outputs)
        self.readers: dict[int, list[int]] = {}     # positions of calls, in order
        for i, call in enumerate(calls):
            for s in call[1]:
                self.readers.setdefault(s, []).append(i)
        once = len(self.given) == len(outputs)
        self.writable = {x for x, o in writable.items()
                      if (once or outputs.count(o) == 1) and self._is_new(o)
                      and not any([s in self.given for s, _ in self._views(o) if s != o])}

    def is_free(self, x: int, i: int, often: bool = False) -> bool:
        """May the call at position i overwrite slot x?

        It may if x is an array of its own, call i is the last reader of it and of all its views,
        and reads it once (often: any number of times).
        """
        if not (x in self.writable or self._is_new(x)) or self.readers[x][-1] != i:
            return False
        return (often or self.readers[x].count(i) == 1) and all(
            [s not in self.given and (not at or at[-1] < i or s == x)
             for s, at in self._views(x, i)])

    def _is_new(self, s: int) -> bool:
        return s in self.makers and is_fresh(self.makers[s])

    def _views(self, x: int, but: int = -1) -> list[tuple[int, Sequence[int]]]:
        """The slots that may share memory with x, each with the positions of the calls that read
        it. but: the position of a call to be skipped, as it makes no view.
        """
        found: list[tuple[int, Sequence[int]]] = [(x, self.readers.get(x, ()))]
        seen = {x}
        for _, places in found:
            for k in places:
                call = self.calls[k]
                if k != but and not seen.issuperset(call.outputs) and not is_fresh(call):
                    new = [s for s in call.outputs if s not in seen]
                    seen.update(new)
                    found += [(s, self.readers.get(s, ())) for s in new]
        return found


def is_group(call: Call) -> bool:
    """Is it a group of fused calls, which can write its results over operands?"""
    return hasattr(call.function, "overwriting")


def is_fresh(call: Call) -> bool:
    """Are the results new arrays, which share memory with no other value?"""
    function, kernel = call.function, call.kernel
    if call.changes:
        return True
    if kernel is None:
        return is_group(call) or hasattr(function, "over") or hasattr(function, "fresh")
    if kernel.fresh is None:
        recording = kernel.recording
        kernel.fresh = hasattr(function, "over") or hasattr(function, "fresh") or (
            recording is not None and _computes(recording))
    return kernel.fresh


def _computes(recording: Recording) -> bool:
    """Is the result computed, rather than a view?"""
    return any(s.result == recording.result and s.kind not in VIEWS for s in recording.steps)


def _over_operands(d: Draft) -> Draft:
    calls, used = over_operands(d.calls, d.outputs, d.next_values, d.small)
    return d.of(calls, used=used)


WRITE_OVER = Pass("write-over", "", _over_operands,
                  "results are written over operands that are read for the last time")
