"""Results that are written where they belong: into memory of a loop, or over an operand that dies.

What an iteration of a scan gives is a row of a large array. A call that can write there does, and
nothing is copied. A buffer that a loop carries and changes in part (`dynamic_update_slice`), or
adds to, is the loop's own, and is changed where it is. Outside of loops, too, an op that changes a
part of its operand does so in place where the operand was computed here and nobody else reads it.

`x.at[i].set(x[j]).at[j].set(x[i])` reads of `x` what the first change writes over. Reads that can
come before it do, and a part that is used after it is copied; else all of the array would be.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import chain
from typing import Any

import numpy as np

from ...ir.support.buffer_pool import SMALLEST, empty
from ..calls.call import Call, new_call, read_counts
from ..calls.recording import CALL, VIEWS, Recording
from ..calls.rows import UpdateAt
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
                    call.function, "over") and is_own(x) or type(call.function) is UpdateAt
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


# -- reading before writing ------------------------------------------------------------------------

def copied(x: Any) -> Any:
    """The same numbers in memory of their own."""
    return x.copy() if x.nbytes < SMALLEST else copied_into(x, empty(x.shape, x.dtype))


def copied_into(x: Any, out: Any) -> Any:
    np.copyto(out, x)
    return out


copied.into = copied_into  # type: ignore[attr-defined]


def read_first(calls: list[Call], outputs: list[int], owned: Mapping[int, int],
               new_slot: Callable[[], int]) -> tuple[list[Call], list[int]]:
    """The calls and outputs of a loop's body, so that more parts can be changed in place.

    owned: parameters that may be written over, each by one result only.
    """
    changes = {call.inputs[0]: call for call in calls if type(call.function) is UpdateAt}
    for x, end in owned.items():
        while x in changes and x != end:
            change = changes[x]
            if x not in outputs:
                place = next(i for i, c in enumerate(calls) if c.outputs == change.outputs)
                calls, outputs = _before(calls, outputs, place, new_slot)
            x = change.outputs[0]
    return calls, outputs


def _before(calls: list[Call], outputs: list[int], place: int, new_slot: Callable[[], int]
            ) -> tuple[list[Call], list[int]]:
    """The same with what reads the operand of the change at `place` before it, if all can be."""
    early, change, late = calls[:place], calls[place], calls[place + 1:]
    x = change.inputs[0]
    moved = _needed(late, x)
    if moved:
        ahead = [late[i] for i in moved]
        after = [call for i, call in enumerate(late) if i not in moved]
        made = {*change.outputs, *[s for call in after for s in call.outputs]}
        if any([not made.isdisjoint(call.inputs) or _is_seen(call) for call in ahead]):
            return calls, outputs
        early, late = early + ahead, after
    views = {x}
    parts: dict[int, Call] = {}
    for call in early:
        if not views.isdisjoint(call.inputs) and not is_fresh(call):
            views.update(call.outputs)
            parts.update(dict.fromkeys(call.outputs, call))
    read = {*outputs, *[s for call in late for s in call.inputs]}
    names: dict[int, int] = {}
    assert change.kernel is not None
    whole = change.kernel.sizes[-1]
    for s in parts.keys() & read:
        kernel = parts[s].kernel
        if kernel is None or 2 * kernel.sizes[-1] > whole:
            return calls, outputs
        names[s] = new_slot()
    copies = [new_call((copied, (s,), (t,), False, parts[s].eqn, None, False))
              for s, t in names.items()]

    def renamed(slots: Sequence[int]) -> tuple[int, ...]:
        return tuple([names.get(s, s) for s in slots])

    change, *late = [call._replace(inputs=renamed(call.inputs)) for call in (change, *late)]
    return [*early, *copies, change, *late], list(renamed(outputs))


def _needed(calls: list[Call], x: int) -> dict[int, None]:
    """The places of the calls that read x, and of those that compute what they read besides; in
    order."""
    slots: set[int] = set()
    found = []
    for i in range(len(calls) - 1, -1, -1):
        if x in calls[i].inputs or not slots.isdisjoint(calls[i].outputs):
            slots.update(calls[i].inputs)
            found.append(i)
    return dict.fromkeys(reversed(found))


def _is_seen(call: Call) -> bool:
    """May somebody outside see in which order this and other calls run?"""
    return call.several or call.eqn is not None and bool(call.eqn.op.effect)
