"""Results that are written where they belong: into memory of a loop, or over an operand that dies.

What an iteration of a scan gives is a row of a large array. A call that can write there does, and
nothing is copied. A buffer that a loop carries and changes in part (`dynamic_update_slice`), or
adds to, is the loop's own, and is changed where it is. Outside of loops, too, an op that changes a
part of its operand does so in place where the operand was computed here and nobody else reads it.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import chain
from typing import Any

from ..calls.call import Call, new_call, read_counts
from ..calls.recording import CALL, VIEWS, Recording
from ..calls.rows import Changed
from .blocks import Blocked
from .generated import BY_NAME


def into_memory(calls: Sequence[Call], wanted: Sequence[int], new_slot: Callable[[], int]
                ) -> tuple[list[Call], dict[int, int]]:
    """The calls, those that can writing what is wanted into memory that they are given.

    wanted: slots. Gives also, by slot of a result, the slot that its memory is to be in.
    """
    out = list(calls)
    memory: dict[int, int] = {}
    open_slots = set(wanted)
    for i, call in enumerate(calls):
        if open_slots.isdisjoint(call[2]):
            continue
        here = [s for s in call.outputs if s in open_slots]
        if isinstance(call.function, Blocked):
            slots = [new_slot() for _ in here]
            function = call.function.writing([call.outputs.index(s) for s in here])
            out[i] = call._replace(function=function, inputs=(*call.inputs, *slots), changes=True)
            memory.update(zip(here, slots, strict=True))
            continue
        made = _writer(call)
        if made is not None:
            function, inputs = made
            (s,), slot = here, new_slot()
            out[i] = call._replace(function=function, inputs=(*inputs, slot), kernel=None,
                                   changes=True)
            memory[s] = slot
    return out, memory


def _writer(call: Call) -> tuple[Any, tuple[int, ...]] | None:
    """A function of these slots and of the memory for the result of a call."""
    if call.several or call.kernel is None or not call.kernel.shapes[-1]:
        return None
    into = getattr(call.function, "into", None)
    if into is not None:
        return into, call.inputs
    recording = call.kernel.recording
    if recording is None or len(recording.steps) != 1:
        return None
    (step,) = recording.steps
    if (step.kind != CALL or step.function in BY_NAME
            or not all(type(v) is int for v in step.operands)):
        return None
    return step.function, tuple(call.inputs[v] for v in step.operands)


def over_operands(calls: list[Call], outputs: Sequence[int], owned: Mapping[int, int]
                  ) -> tuple[list[Call], list[int]]:
    """The calls, those that can writing their result over an operand that nobody else reads.

    owned: parameters that may be written over, each by one result only. Gives also those that are.
    """
    used: list[int] = []
    able = [i for i, (function, inputs, _, _, _, kernel, _) in enumerate(calls)
            if type(function) is Blocked or kernel is not None and kernel.changes
            or owned and not owned.keys().isdisjoint(inputs)]
    if not able:
        return calls, used
    makers = {s: call for call in calls for s in call[2]}
    if not owned and makers.keys().isdisjoint(chain.from_iterable([calls[i][1] for i in able])):
        return calls, used
    out = list(calls)
    reads = read_counts(calls)
    given = set(outputs)
    ends = {o: o for o in owned.values() if outputs.count(o) == 1 and not _is_viewed(
        calls, o, given)} if owned else {}          # slots, by what is written over them

    def is_own(s: int) -> bool:
        """Is it an array that is computed here, read once, and nobody else's?"""
        return s in makers and reads[s] == 1 and s not in given and is_fresh(makers[s])

    def is_made(s: int) -> bool:
        """The same, however often it is read."""
        return s in makers and s not in given and is_fresh(makers[s])

    def is_last(i: int, x: int) -> bool:
        """Has all that reads x, but the call at i, been done before, and left no view of it?"""
        if reads[x] == 1:
            return True
        if calls[i].inputs.count(x) > 1:
            return False
        left = {x}
        for k, call in enumerate(calls):
            if k == i or left.isdisjoint(call.inputs):
                continue
            if k > i:
                return False
            if not is_fresh(call):
                if not given.isdisjoint(call.outputs):
                    return False
                left.update(call.outputs)
        return True

    for i in reversed(able):
        call = calls[i]
        if type(call.function) is Blocked:
            dying = [k for k, s in enumerate(call[1]) if is_own(s)]
            if dying:
                out[i] = new_call((call.function.over(dying), *call[1:6], True))
            continue
        changed = _changed(call)
        if changed is not None:
            function, x, inputs = changed
            end = ends.get(call.outputs[0])
            if x not in given and (x in owned and owned[x] == end and is_last(i, x) or hasattr(
                    call.function, "over") and is_own(x) or type(call.function) is Changed
                    and is_made(x) and is_last(i, x)):
                out[i] = call._replace(function=function, inputs=inputs, kernel=None,
                                       changes=True)
                if x in owned:
                    used.append(x)
                elif end is not None:
                    ends[x] = end
    return out, used


def _is_viewed(calls: Sequence[Call], s: int, given: Set[int]) -> bool:
    """Is a result of the calls, of those in `given`, a view of what is in this slot?"""
    views = {s}
    for call in calls:
        if not views.isdisjoint(call.inputs) and not is_fresh(call):
            if not given.isdisjoint(call.outputs):
                return True
            views.update(call.outputs)
    return False


def _changed(call: Call) -> tuple[Any, int, tuple[int, ...]] | None:
    """A function that writes a call's result over an operand, this operand, and its inputs."""
    if call.kernel is not None and not call.kernel.shapes[-1]:
        return None                             # numpy's scalars cannot be written over
    over = getattr(call.function, "over", None)
    if over is not None:
        return over, call.inputs[0], call.inputs
    made = _writer(call)
    if made is None or hasattr(call.function, "into"):
        return None
    assert call.kernel is not None
    *shapes, shape = call.kernel.shapes
    *dtypes, dtype = call.kernel.dtypes
    x = next((s for s, given, kind in zip(call.inputs, shapes, dtypes, strict=True)
              if given == shape and kind == dtype and call.inputs.count(s) == 1), None)
    return None if x is None else (made[0], x, (*made[1], x))


def is_fresh(call: Call) -> bool:
    """Are the results arrays of their own, of which no other value is a view?"""
    function, kernel = call.function, call.kernel
    if call.changes:
        return True
    if kernel is None:
        return type(function) is Blocked or hasattr(function, "over") or hasattr(function, "into")
    if kernel.fresh is None:
        recording = kernel.recording
        kernel.fresh = hasattr(function, "over") or hasattr(function, "into") or (
            recording is not None and _computes(recording))
    return kernel.fresh


def _computes(recording: Recording) -> bool:
    """Is the result that of a step that computes?"""
    return any(s.result == recording.result and s.kind not in VIEWS for s in recording.steps)
