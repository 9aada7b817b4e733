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

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dtypes.table import BF16
from ...ir.kernels.elementwise import bfloat16, float16
from ...ir.kernels.elementwise.float16 import F16, F32
from ..calls.call import Call
from ..calls.symbolic import BITS, CALL, CAST, REDUCE, VIEWS, WHERE, Recording, Step
from ..numerics import EXACT, SIGNS

_BOOL = np.dtype(np.bool_)
_MOVES = VIEWS - {BITS} | {WHERE}
# By dtype: functions that round a float32 computed from such values, and any float32.
HALVES = {F16: (float16.rounded, float16.rounded), BF16: (bfloat16.rounded, bfloat16.renewed)}


def rounded_slots(calls: Sequence[Call], results: Sequence[int], excess: bool) -> set[int] | None:
    """The slots of a group whose half-precision values are rounded, of those that are held as
    float32; None if no call reads such a value of another, or some step looks at bits.

    excess: whether values that only the group reads are left unrounded.
    """
    made = {call.outputs[0]: call.kernel.dtypes for call in calls}      # type: ignore[union-attr]
    inner = {s for call in calls for s in call.inputs if s in made and made[s][-1] in HALVES}
    if not inner or any([_is_narrow(step, call.recording.values)        # type: ignore[union-attr]
                         for call in calls
                         for step in call.recording.steps]):            # type: ignore[union-attr]
        return None
    return {s for s in inner if not excess or s in results or made[s][-1] not in made[s][:-1]}


def _is_narrow(step: Step, values: Sequence[tuple[tuple[int, ...], np.dtype]]) -> bool:
    """Does a step compute in a narrow dtype, or look at bits of it?"""
    made, given = values[step.result][1], [values[v][1] for v in step.operands if type(v) is int]
    if made not in HALVES and HALVES.keys().isdisjoint(given):
        return False
    if step.kind == CALL:
        return step.function not in SIGNS
    return step.kind in (BITS, REDUCE) or (
        step.kind == CAST and made in HALVES and given not in ([_BOOL], [F32]))


class InFloat32:
    """Appends the steps of calls to a block (registers.py), narrow floats held as float32.

    exact: values to the narrow dtype that represents them exactly.
    """

    def __init__(self, block: Any) -> None:
        self.block = block
        self.exact: dict[int, np.dtype] = {}

    def append(self, recording: Recording, given: Sequence[int], rounds: bool) -> int:
        """Append a call on these values; returns its result. rounds: whether that is rounded."""
        at = dict(enumerate(given))
        for step in recording.steps:
            at[step.result] = self._step(step, recording, at, given)
        out, dtype = at[recording.result], recording.values[recording.result][1]
        return self._rounded(out, dtype, given) if rounds and dtype in HALVES else out

    def _step(self, step: Step, recording: Recording, at: dict[int, int], given: Sequence[int]
              ) -> int:
        """Append a step of a call, in float32 where it computes in half precision; its result."""
        (shape, dtype), first = recording.values[step.result], step.operands[0]
        operands = tuple([self._wide(at[v] if type(v) is int else v) for v in step.operands])
        narrow = dtype in HALVES
        if step.kind == CAST and type(first) is int and (
                narrow and recording.values[first][1] == F32
                or dtype == F32 and recording.values[first][1] in HALVES):
            if narrow and step.result != recording.result:
                return self._rounded(operands[0], dtype, given)
            return operands[0]
        out = self.block.emit(step, operands, shape, F32 if narrow else dtype)
        if step.kind in _MOVES or step.function in EXACT:
            kinds = {self.exact.get(x) if type(x) is int else getattr(v, "dtype", None)
                     for v, x in zip(step.operands, operands, strict=True)
                     if step.kind != WHERE or v is not first}
            if len(kinds) == 1 and (kind := kinds.pop()) is not None:
                self.exact[out] = kind
        elif narrow:
            self.exact[out] = dtype
        return out

    def _wide(self, v: Any) -> Any:
        """A value or constant as float32, if it is a narrow float."""
        if type(v) is not int:
            return v.astype(F32) if getattr(v, "dtype", None) in HALVES else v
        shape, dtype = self.block.values[v]
        if dtype not in HALVES:
            return v
        out = self.block.emit(Step(CAST, None, (v,), -1), (v,), shape, F32)
        self.exact[out] = dtype
        if self.block.is_zero(v):
            self.block.zeros.add(out)
        return out

    def _rounded(self, v: int, dtype: np.dtype, given: Sequence[int]) -> int:
        """A float32 value rounded to a narrow dtype; `given` are those not computed just now."""
        if self.exact.get(v) == dtype:
            return v
        function = HALVES[dtype][v in given or v in self.exact]
        out = self.block.emit(Step(CALL, function, (v,), -1), (v,), self.block.values[v][0], F32)
        self.exact[out] = dtype
        return out

    def narrowed(self, v: int, dtype: np.dtype) -> int:
        """The value in the dtype that it was computed for."""
        if dtype not in HALVES or self.block.values[v][1] == dtype:
            return v
        return self.block.emit(Step(CAST, None, (v,), -1), (v,), self.block.values[v][0], dtype)
