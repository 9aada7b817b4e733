"""bfloat16 and float16 inside a fused group: held as float32.

An op on these dtypes computes in float32 and rounds once (runtime/numerics.py), and the next op
widens what it reads. Within a group its values stay float32:

    v3 = multiply(v0.astype(f32), v1.astype(f32)).astype(f16)       v3 = multiply(v0, v1)
    v4 = maximum(v3.astype(f32), v0.astype(f32)).astype(f16)  ->    v4 = maximum(v3, v0)
    v5 = add(v4.astype(f32), v0.astype(f32)).astype(f16)            v5 = add(v4, v0)

Operands of the group are widened once, results narrowed at its end. Only where
`shardtrace_allow_excess_precision` is off is each value rounded that another call reads, to the
numbers that it would have by itself: within float32, which takes two thirds of the time of both
conversions for bfloat16, a sixth for float16.

Always rounded are results that the group reads, too, so that it computes with what others see, and
what comes from another dtype: a conversion that the user wrote.
"""
from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from ...ir.dtypes.table import BF16
from ...ir.kernels.elementwise import bfloat16, float16
from ...ir.kernels.elementwise.float16 import F16, F32
from ..calls.call import Call
from ..calls.symbolic import BITS, CALL, CAST, REDUCE, VIEWS, WHERE, Kernel, Recording, Step
from ..numerics import EXACT, SIGNS
from .generated import inlined

_BOOL = np.dtype(np.bool_)
_MOVES = VIEWS - {BITS} | {WHERE}
# By dtype: functions that round a float32 computed from such values, and any float32.
_KINDS = {F16: (float16.rounded, float16.rounded), BF16: (bfloat16.rounded, bfloat16.renewed)}


def in_float32(calls: Sequence[Call], results: Sequence[int], excess: bool
               ) -> tuple[Sequence[Call], list[int]]:
    """The calls of a group with half-precision values held as float32, and the slots of its results
    then. Both unchanged if no call reads such a value of another, or some step looks at bits.

    excess: whether values that only the group reads are left unrounded.
    """
    kernels = [call.kernel for call in calls if call.kernel is not None]
    made = {call.outputs[0]: kernel for call, kernel in zip(calls, kernels, strict=True)}
    inner = {s for call in calls for s in call.inputs if s in made and made[s].dtypes[-1] in _KINDS}
    rounded = {s for s in inner if not excess or s in results or _converts(made[s])}
    inexact: set[int] = set()
    wide = [_wide(call, kernel, made, call.outputs[0] in rounded, inexact)
            for call, kernel in zip(calls, kernels, strict=True)] if inner else [None]
    if None in wide:
        return calls, list(results)
    fresh = 1 + max([s for call in calls for s in (*call.inputs, *call.outputs)])
    after = {s: _narrowed(s, fresh + i, made[s])
             for i, s in enumerate(results) if made[s].dtypes[-1] in _KINDS}
    return [*[call._replace(kernel=kernel) for call, kernel in zip(calls, wide, strict=True)],
            *after.values()], [after[s].outputs[0] if s in after else s for s in results]


def _narrowed(s: int, out: int, made: Kernel) -> Call:
    """What gives the slot `s`, held as float32, in the dtype that it was made for."""
    shape, dtype = made.shapes[-1], made.dtypes[-1]
    kernel = Kernel(inlined, (shape, shape), (F32, dtype))
    kernel.set_recording(Recording(1, ((shape, F32), (shape, dtype)), (Step(CAST, None, (0,), 1),),
                                   1))
    return Call(inlined, (s,), (out,), False, None, kernel)


def _converts(kernel: Kernel) -> bool:
    """Has no operand the dtype of the result?"""
    return kernel.dtypes[-1] not in kernel.dtypes[:-1]


def _wide(call: Call, kernel: Kernel, made: Container[int], rounded: bool, inexact: set[int]
          ) -> Kernel | None:
    """The kernel of a call on float32, with its result rounded or not; None if it does more than
    arithmetic and moves. made: the slots that are held as float32, others are widened first.
    inexact: slots that hold more digits than their dtype has, to which its result may be added.
    """
    recording = kernel.recording
    assert recording is not None
    values = list(recording.values)
    # Value to the narrow dtype that represents it exactly.
    exact = {v: values[v][1] for v, s in enumerate(call.inputs)
             if values[v][1] in _KINDS and s not in inexact}
    narrow = [v for v, s in enumerate(call.inputs) if values[v][1] in _KINDS and s not in made]
    count = len(values)
    same = {v: count + i for i, v in enumerate(narrow)}     # value to the one that replaces it
    exact.update({same[v]: values[v][1] for v in narrow})
    steps = [Step(CAST, None, (v,), same[v]) for v in narrow]
    values += [(values[v][0], F32) for v in narrow]
    for step in recording.steps:
        v, out = step.operands[0], step.result
        dtype, given = values[out][1], values[v][1] if type(v) is int else None
        operands = tuple([_constant(v) if type(v) is not int else same.get(v, v)
                          for v in step.operands])
        narrows = step.kind == CAST and given == F32 and dtype in _KINDS
        if narrows and (out == recording.result or exact.get(v) == dtype) or (
                step.kind == CAST and given in _KINDS and dtype == F32):
            same[out] = operands[0]
            if v in exact:
                exact[out] = exact[v]
            continue
        if narrows:
            step = Step(CALL, _KINDS[dtype][v < recording.operands], operands, out)
        elif _is_narrow(step, values):
            return None
        if step.kind in _MOVES or step.function in EXACT:
            kinds = {exact.get(v) if type(v) is int else getattr(v, "dtype", None)
                     for v in step.operands[step.kind == WHERE:]}
            if len(kinds) == 1 and (kind := kinds.pop()) is not None:
                exact[out] = kind
        elif dtype in _KINDS:
            exact[out] = dtype
        steps.append(step._replace(operands=operands))
    last, dtype = same.get(recording.result, recording.result), kernel.dtypes[-1]
    if dtype in _KINDS and exact.get(last) != dtype and rounded:
        given = not recording.operands <= last < count
        steps.append(Step(CALL, _KINDS[dtype][given], (last,), len(values)))
        last = len(values)
        values.append(values[recording.result])
    elif dtype in _KINDS and exact.get(last) != dtype:
        inexact.add(call.outputs[0])
    new = Kernel(kernel.function, kernel.shapes, [_widened(t) for t in kernel.dtypes])
    new.set_recording(recording._replace(
        values=tuple([(shape, dtype if v in narrow else _widened(dtype))
                      for v, (shape, dtype) in enumerate(values)]),
        steps=tuple(steps), result=last))
    return new


def _is_narrow(step: Step, values: Sequence[tuple[tuple[int, ...], np.dtype]]) -> bool:
    """Does a step compute in a narrow dtype, or look at bits of it?"""
    made, given = values[step.result][1], [values[v][1] for v in step.operands if type(v) is int]
    if made not in _KINDS and _KINDS.keys().isdisjoint(given):
        return False
    if step.kind == CALL:
        return step.function not in SIGNS
    return step.kind in (BITS, REDUCE) or (
        step.kind == CAST and made in _KINDS and given != [_BOOL])


def _widened(dtype: np.dtype) -> np.dtype:
    return F32 if dtype in _KINDS else dtype


def _constant(x: Any) -> Any:
    return x.astype(F32) if getattr(x, "dtype", None) in _KINDS else x
