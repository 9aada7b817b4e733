"""Arrays of a loop that are changed in part: what is read of them is read before.

`x.at[i].set(x[j]).at[j].set(x[i])` reads of `x` what the first change writes over. Reads that can
come before it do, and a part that is used after it is copied; else all of the array would be.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.support.buffer_pool import SMALLEST, empty
from ..calls.call import Call, new_call
from ..calls.rows import Changed
from .destinations import is_fresh

Calls = list[Call]


def copied(x: Any) -> Any:
    """The same numbers in memory of their own."""
    return x.copy() if x.nbytes < SMALLEST else copied_into(x, empty(x.shape, x.dtype))


def copied_into(x: Any, out: Any) -> Any:
    np.copyto(out, x)
    return out


copied.into = copied_into  # type: ignore[attr-defined]


def read_first(calls: Calls, outputs: list[int], owned: Mapping[int, int],
               new_slot: Callable[[], int]) -> tuple[Calls, list[int]]:
    """The calls and outputs of a loop's body, so that more parts can be changed in place.

    owned: parameters that may be written over, each by one result only.
    """
    changes = {call.inputs[0]: call for call in calls if type(call.function) is Changed}
    for x, end in owned.items():
        while x in changes and x != end:
            change = changes[x]
            if x not in outputs:
                place = next(i for i, c in enumerate(calls) if c.outputs == change.outputs)
                calls, outputs = _before(calls, outputs, place, new_slot)
            x = change.outputs[0]
    return calls, outputs


def _before(calls: Calls, outputs: list[int], place: int, new_slot: Callable[[], int]
            ) -> tuple[Calls, list[int]]:
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


def _needed(calls: Calls, x: int) -> dict[int, None]:
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
