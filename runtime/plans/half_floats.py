"""bfloat16 and float16 inside a fused group: computed in float32, rounded like stored results.

An op on these dtypes computes in float32 and rounds once (runtime/numerics.py), and the next op
widens what it reads. Rounding within float32 takes two thirds of the time of both conversions for
bfloat16, a sixth for float16. So values stay float32 within a block, with the same numbers:

    v3 = multiply(v0.astype(f32), v1.astype(f32)).astype(f16)       v3 = rounded(multiply(v0, v1))
    v4 = maximum(v3.astype(f32), v0.astype(f32)).astype(f16)  ->    v4 = maximum(v3, v0)
    v5 = add(v4.astype(f32), v0.astype(f32)).astype(f16)            v5 = rounded(add(v4, v0))

Operands of the group are widened at its beginning, results narrowed at its end.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dtypes.table import BF16
from ...ir.kernels.elementwise import bfloat16, float16
from ...ir.kernels.elementwise.float16 import F16, F32
from ..calls.call import Call
from ..calls.symbolic import BITS, CALL, CAST, REDUCE, Kernel, Recording, Step
from ..numerics import EXACT, SIGNS
from .generated import inlined

# By dtype: functions that round a float32 computed from such values, and any float32.
_KINDS = {F16: (float16.rounded, float16.rounded), BF16: (bfloat16.rounded, bfloat16.renewed)}


def in_float32(calls: Sequence[Call], results: Sequence[int]) -> tuple[Sequence[Call], list[int]]:
    """The calls of a group with half-precision values held as float32, and the slots of its results
    then. Both unchanged if no call reads a rounded result of another, or some step looks at bits.
    """
    kernels = [call.kernel for call in calls if call.kernel is not None]
    made = {call.outputs[0]: kernel for call, kernel in zip(calls, kernels, strict=True)}
    inner = {s for call in calls for s in call.inputs if s in made and made[s].dtypes[-1] in _KINDS}
    wide = [_wide(kernel, call.outputs[0] in inner)
            for call, kernel in zip(calls, kernels, strict=True)] if inner else [None]
    if None in wide:
        return calls, list(results)
    fresh = 1 + max([s for call in calls for s in (*call.inputs, *call.outputs)])
    before: dict[int, Call] = {}
    for call, kernel in zip(calls, kernels, strict=True):
        read = _read(kernel)
        for i, s in enumerate(call.inputs):
            if i in read and kernel.dtypes[i] in _KINDS and s not in made and s not in before:
                before[s] = _cast(s, fresh + len(before), kernel.shapes[i], kernel.dtypes[i], F32)
    fresh += len(before)
    inside = [call._replace(kernel=kernel, inputs=tuple(
        [before[s].outputs[0] if s in before else s for s in call.inputs]))
        for call, kernel in zip(calls, wide, strict=True)]
    after = {s: _cast(s, fresh + i, made[s].shapes[-1], F32, made[s].dtypes[-1])
             for i, s in enumerate(results) if made[s].dtypes[-1] in _KINDS}
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
    step = Step(CAST, None, (0,), 1)
    kernel.set_recording(Recording(1, ((shape, given), (shape, dtype)), (step,), 1))
    return Call(inlined, (s,), (out,), False, None, kernel)


def _wide(kernel: Kernel, inner: bool) -> Kernel | None:
    """The kernel on float32, rounding its result if another call of the group reads it (inner);
    None if it does more than arithmetic and moves.
    """
    recording = kernel.recording
    assert recording is not None
    values = recording.values
    same: dict[int, int] = {}           # value to the one that replaces it
    # Value to the narrow dtype that represents it exactly.
    exact = {v: t for v, (_, t) in enumerate(values[:recording.operands]) if t in _KINDS}
    steps: list[Step] = []
    for step in recording.steps:
        v, out = step.operands[0], step.result
        dtype, reads = values[out][1], any(
            [type(v) is int and values[v][1] in _KINDS for v in step.operands])
        operands = tuple([_constant(v) if type(v) is not int else same.get(v, v)
                          for v in step.operands])
        if step.kind == CAST and reads and dtype == F32:
            exact[out] = values[v][1]
            same[out] = operands[0]
            continue
        if step.kind == CAST and dtype in _KINDS and values[v][1] == F32:
            if exact.get(v) == dtype or out == recording.result and not inner:
                same[out] = operands[0]
                continue
            step = Step(CALL, _KINDS[dtype][v < recording.operands], operands, out)
        elif (dtype in _KINDS or reads) and (
                step.kind in (BITS, REDUCE) or step.kind == CAST and dtype in _KINDS
                or step.kind == CALL and step.function not in SIGNS):
            return None
        if step.kind == CALL and step.function in EXACT:
            kinds = {exact.get(v) if type(v) is int else getattr(v, "dtype", None)
                     for v in step.operands}
            if len(kinds) == 1 and (kind := kinds.pop()) is not None:
                exact[out] = kind
        elif dtype in _KINDS:
            exact[out] = dtype
        steps.append(step._replace(operands=operands))
    new = Kernel(kernel.function, kernel.shapes, [_widened(t) for t in kernel.dtypes])
    new.set_recording(recording._replace(
        values=tuple([(shape, _widened(dtype)) for shape, dtype in values]),
        steps=tuple(steps), result=same.get(recording.result, recording.result)))
    return new


def _widened(dtype: np.dtype) -> np.dtype:
    return F32 if dtype in _KINDS else dtype


def _constant(x: Any) -> Any:
    return x.astype(F32) if getattr(x, "dtype", None) in _KINDS else x
