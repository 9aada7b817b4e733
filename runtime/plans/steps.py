"""What a plan's function consists of: calls of numpy, as far as they are known, and constants.

An evaluator makes several numpy calls, or none that is left to do: what is computed of constants
alone is computed once, and each call that remains stands for itself, so that its memory can serve
the next (plans/destinations.py).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.passes import Pass
from ..calls.call import Call
from ..calls.float_errors import silently
from ..calls.recording import Kernel, Recording, constant
from .destinations import WRITE_INTO_MEMORY, WRITE_OVER
from .draft import Draft

MOST = 1 << 16                  # bytes of a constant that is computed once


def computed_before(calls: Sequence[Call], constants: dict[int, Any]
                    ) -> tuple[dict[int, Any], list[Call]]:
    """The constants, with what calls compute of constants alone, as far as it takes no memory; and
    the other calls."""
    found, left = dict(constants), []
    changed = {s for call in calls if call.changes for s in call.inputs}
    for call in calls:
        if all(s in found for s in call.inputs) and changed.isdisjoint(call.outputs):
            given = [found[s] for s in call.inputs]
            if _is_small(call, given):
                value = silently(lambda f, given=given: f(*given), call.function)
                if _held(value) <= MOST:
                    found[call.outputs[0]] = value
                    continue
        left.append(call)
    return found, left


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


def single_steps(calls: Sequence[Call], constants: dict[int, Any], new_slot: Callable[[], int]
                 ) -> list[Call]:
    """The calls, a call for each numpy call where those are known. constants: gets those that
    these read."""
    out: list[Call] = []
    for call in calls:
        recording = call.recording
        if recording is None or recording.result < recording.operands or _is_one(recording):
            out.append(call)
            continue
        at = dict(enumerate(call.inputs))
        for step in recording.steps:
            values, inputs = [], []
            for v in step.operands:
                if type(v) is int:
                    values.append(recording.values[v])
                    inputs.append(at[v])
                else:
                    slot, value = new_slot(), constant(v)
                    constants[slot] = value
                    values.append(((), np.asarray(value).dtype))
                    inputs.append(slot)
            count = len(inputs)
            at[step.result] = call.outputs[0] if step.result == recording.result else new_slot()
            values.append(recording.values[step.result])
            kernel = Kernel(inlined, *zip(*values, strict=True))
            kernel.set_recording(Recording(count, tuple(values), (
                step._replace(operands=tuple(range(count)), result=count),), count))
            out.append(Call(inlined, tuple(inputs), (at[step.result],), False, call.eqn, kernel))
    return out


def _is_one(recording: Recording) -> bool:
    """Is it one call of operands alone?"""
    return len(recording.steps) == 1 and all([type(v) is int for v in recording.steps[0].operands])


def inlined(*arrays: Any) -> Any:
    """The function of calls that are written out, which is never called."""
    raise AssertionError("the numpy calls stand in its place")


def _computed_before(d: Draft) -> Draft:
    constants, calls = computed_before(d.calls, d.constants)
    return d.of(calls, constants=constants)


def _single_steps(d: Draft) -> Draft:
    constants = d.constants.copy()
    return d.of(single_steps(d.calls, constants, d.new_slot), constants=constants)


WRITTEN: tuple[Pass, ...] = (
    Pass("compute-constants", "", _computed_before,
         "what depends on constants alone is one, as far as it takes no memory"),
    Pass("take-apart", "", _single_steps, "each call is one of numpy, where those are known"),
    WRITE_INTO_MEMORY, WRITE_OVER)
"""The passes over the calls of a plan that is written out as a function."""
