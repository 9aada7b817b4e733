"""Which arrays of a plan are its own: computed before it runs, or free to be written over.

An array is new where an op computes it element by element or reduces to it, and nobody else knows
it as long as only such ops read it. The memory of one that is read for the last time then serves
for the result: what a chain of small ops touches stays in cache.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .call import Call
from .float_errors import silently
from .recording import CALL, VIEWS

FEWEST = 1 << 10                # bytes of an array that is worth writing over
MOST = 1 << 16                  # bytes of a constant that is computed once


def is_new(call: Call) -> bool:
    """Is the result an array that nobody else has? (Not so of a scalar, which is no array.)"""
    kernel = call.kernel
    recording = None if kernel is None or call.several else kernel.recording
    if recording is None or recording.result < recording.operands:
        return False
    steps = {step.result: step for step in recording.steps}
    return bool(recording.values[recording.result][0]) and (
        steps[recording.result].kind not in VIEWS)


def folded(calls: Sequence[Call], constants: dict[int, Any]) -> dict[int, Any]:
    """The constants, with what calls compute of constants alone, as far as it takes no memory."""
    found = dict(constants)
    changed = {s for call in calls if call.changes for s in call.inputs}
    for call in calls:
        if all(s in found for s in call.inputs) and changed.isdisjoint(call.outputs):
            given = [found[s] for s in call.inputs]
            if _is_small(call, given):
                value = silently(lambda f, given=given: f(*given), call.function)
                if _held(value) <= MOST:
                    found[call.outputs[0]] = value
    return found


def _is_small(call: Call, given: Sequence[Any]) -> bool:
    """Does the call do nothing that is large, as far as can be known, or seen outside?"""
    kernel = call.kernel
    if call.several or call.changes or (call.eqn is not None and call.eqn.op.effect):
        return False
    if kernel is None:
        return bool(given) and all(x.nbytes <= MOST for x in given)
    return kernel.elements * kernel.dtypes[-1].itemsize <= MOST or (
        kernel.recording is not None and kernel.recording.is_view)


def _held(x: Any) -> int:
    """Bytes of the memory that an array is a view of."""
    while type(getattr(x, "base", None)) is np.ndarray:
        x = x.base
    return x.nbytes


def in_place(calls: Sequence[Call], dead: Sequence[tuple[int, ...]], outputs: Sequence[int],
             constants: dict[int, Any], carried: Mapping[int, int]) -> dict[int, int]:
    """For results that may be written over an operand: the slot of the operand.

    carried: of a loop's body, slots and what they are in the next iteration; a new array, then,
    where they may be written over, and a copy in the first.
    """
    new = [is_new(call) and call.outputs[0] not in constants for call in calls]
    own = {call.outputs[0] for call, is_own in zip(calls, new, strict=True) if is_own}
    own.update(carried)
    for call, is_own in zip(calls, new, strict=True):
        if not is_own and constants.keys().isdisjoint(call.outputs):
            own.difference_update(call.inputs)
    own.difference_update([x for x, o in carried.items() if o in carried or o not in own
                           or outputs.count(o) > 1])
    own.difference_update(outputs)
    found: dict[int, int] = {}
    for call, ends, is_own in zip(calls, dead, new, strict=True):
        kernel = call.kernel
        if not is_own or kernel is None or kernel.recording is None:
            continue
        steps, like = kernel.recording.steps, (kernel.shapes[-1], kernel.dtypes[-1])
        if (len(steps) != 1 or steps[0].kind != CALL
                or math.prod(like[0]) * like[1].itemsize < FEWEST):
            continue
        for s, shape, dtype in zip(call.inputs, kernel.shapes, kernel.dtypes, strict=False):
            if s in ends and s in own and (shape, dtype) == like:
                found[call.outputs[0]] = s
                break
    return found
