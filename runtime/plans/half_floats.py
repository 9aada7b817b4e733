"""float16 within a group of fused calls: held as float32, rounded as each call's result is.

An op on float16 computes in float32 and rounds once (runtime/numerics.py), and the next one widens
what it reads. To round within float32 takes a sixth of both (ir/kernels/float16.py), so in a block
values stay float32 from call to call, with the same numbers:

    v3 = multiply(v0.astype(f32), v1.astype(f32)).astype(f16)       v3 = rounded(multiply(v0, v1))
    v4 = add(v3.astype(f32), v0.astype(f32)).astype(f16)      ->    v4 = rounded(add(v3, v0))

What the group reads is widened at its beginning, what is read of it narrowed at its end.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.kernels.float16 import F16, F32, packed, rounded
from ..calls.call import Call
from ..calls.symbolic import BITS, CALL, CAST, REDUCE, Kernel, Recording, Step
from ..numerics import SIGNS
from .generated import inlined


def kept_wide(calls: Sequence[Call], results: Sequence[int]) -> tuple[Sequence[Call], list[int]]:
    """The calls of a group with float16 held as float32, and the slots of its results then; the
    same where no call reads what another one rounded, or something looks at its bits."""
    kernels = [call.kernel for call in calls if call.kernel is not None]
    made = {call.outputs[0]: kernel for call, kernel in zip(calls, kernels, strict=True)}
    wide = [_wide(kernel) for kernel in kernels]
    if None in wide or not any([s in made and made[s].dtypes[-1] == F16
                                for call in calls for s in call.inputs]):
        return calls, list(results)
    fresh = 1 + max([s for call in calls for s in (*call.inputs, *call.outputs)])
    before: dict[int, Call] = {}
    for call, kernel in zip(calls, kernels, strict=True):
        read = _read(kernel)
        for i, s in enumerate(call.inputs):
            if i in read and kernel.dtypes[i] == F16 and s not in made and s not in before:
                before[s] = _cast(s, fresh + len(before), kernel.shapes[i], F16, F32)
    fresh += len(before)
    inside = [call._replace(kernel=kernel, inputs=tuple(
        [before[s].outputs[0] if s in before else s for s in call.inputs]))
        for call, kernel in zip(calls, wide, strict=True)]
    after = {s: _cast(s, fresh + i, made[s].shapes[-1], F32, F16)
             for i, s in enumerate(results) if made[s].dtypes[-1] == F16}
    return [*before.values(), *inside, *after.values()], [
        after[s].outputs[0] if s in after else s for s in results]


def _read(kernel: Kernel) -> set[int]:
    """The operands that the numpy calls of a kernel read."""
    recording = kernel.recording
    assert recording is not None
    return {recording.result, *[v for step in recording.steps for v in step.operands
                                if type(v) is int]}


def _cast(s: int, out: int, shape: tuple[int, ...], given: np.dtype, dtype: np.dtype) -> Call:
    kernel = Kernel(inlined, (shape, shape), (given, dtype))
    step = Step(CALL, packed, (0,), 1) if dtype == F16 else Step(CAST, None, (0,), 1)
    kernel.set_recording(Recording(1, ((shape, given), (shape, dtype)), (step,), 1))
    return Call(inlined, (s,), (out,), False, None, kernel)


def _wide(kernel: Kernel) -> Kernel | None:
    """The same on float32, whose results are rounded; None if it does more than to compute."""
    recording = kernel.recording
    assert recording is not None
    half = [dtype == F16 for _, dtype in recording.values]
    same: dict[int, int] = {}           # what has become another value
    steps: list[Step] = []
    for step in recording.steps:
        v, out = step.operands[0], step.result
        reads = any([type(v) is int and half[v] for v in step.operands])
        operands = tuple([_constant(v) if type(v) is not int else same.get(v, v)
                          for v in step.operands])
        if step.kind == CAST and reads and recording.values[out][1] == F32:
            same[out] = operands[0]
            continue
        if step.kind == CAST and half[out] and recording.values[v][1] == F32:
            step = Step(CALL, rounded, operands, out)
        elif (half[out] or reads) and (
                step.kind in (BITS, REDUCE) or step.kind == CAST and half[out]
                or step.kind == CALL and step.function not in SIGNS):
            return None
        steps.append(step._replace(operands=operands))
    new = Kernel(kernel.function, kernel.shapes, [_widened(t) for t in kernel.dtypes])
    new.set_recording(recording._replace(
        values=tuple([(shape, _widened(dtype)) for shape, dtype in recording.values]),
        steps=tuple(steps), result=same.get(recording.result, recording.result)))
    return new


def _widened(dtype: np.dtype) -> np.dtype:
    return F32 if dtype == F16 else dtype


def _constant(x: Any) -> Any:
    return x.astype(F32) if getattr(x, "dtype", None) == F16 else x
