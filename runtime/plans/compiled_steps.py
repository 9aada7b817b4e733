"""Elementwise calls of a block as loops that LLVM compiles, where `llvmlite` is installed.

Each call of numpy is a pass over the cache; in one loop the values between stay in registers of the
processor. Calls that have no such form (ir/kernels/elementwise/elements.py), reductions and views
remain, and loops are as few as these allow: what a call needs, and what calls after it need that do
not read its result, is computed in one loop before them.

    v2 = multiply(v0, v1)                   v3 = loop(v0, v1)           # v0 * v1 - 1
    v3 = subtract(v2, 1)                    v4 = exp(v3)
    v4 = exp(v3)                    ->      v6 = loop(v4, v1)           # v4 / (v1 + 1)
    v5 = add(v1, 1)
    v6 = divide(v4, v5)

The numbers are numpy's to the last bit, so that it may change from one run to the next who computes
them.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.kernels.compiled import COLUMN, FLAT, NUMBER, ROW, Loop, Value
from ...ir.kernels.elementwise.elements import KINDS, ROUNDED, bits_of, cast_of, element_of
from ...ir.kernels.elementwise.extremes import BY_CLIP, FEWEST
from ...ir.program import Equation
from ...ir.support.caches import module_table
from ...ir.support.named_tuple import NamedTuple
from ..calls.call import Call
from ..calls.symbolic import BITS, CALL, CAST, LOOP, MEMORY, REPEAT, WHERE, Step, constant

SHORT = 64                      # elements of a row up to which rows that lie apart are copied
Steps = list[tuple[Step, Equation | None]]

_LOOPS = module_table("runtime.plans.compiled_steps._LOOPS",
                      "compiled loops, by what they compute", 1024)


class LoopCall:
    """A loop over values of a shape, the first `split` dimensions of which are rows; called with
    what it reads, of these forms and dtypes, then with memory for its results, each in one piece.
    Returns the last of these.
    """

    __slots__ = ("columns", "loop", "reads", "repeats", "rows", "shape", "split")

    def __init__(self, loop: Loop, forms: Sequence[str], dtypes: Sequence[np.dtype],
                 shape: tuple[int, ...], split: int) -> None:
        self.loop, self.shape, self.split = loop, shape, split
        self.rows, self.columns = math.prod(shape[:split]), math.prod(shape[split:])
        ones = (1,) * len(shape)
        whole = {FLAT: shape, ROW: (*ones[:split], *shape[split:]),
                 COLUMN: (*shape[:split], *ones[split:]), NUMBER: ()}
        self.reads = [(form, dtype, math.prod(whole[form]), whole[form])
                      for form, dtype in zip(forms, dtypes, strict=True)]
        self.repeats = not {ROW, COLUMN}.isdisjoint(forms)

    def __call__(self, *arrays: Any) -> Any:
        """Run the loop on arrays of these forms; the last one is the result, which it fills."""
        given, strides, apart = list(arrays), [], self.repeats
        for i, (form, dtype, size, whole) in enumerate(self.reads):
            x, stride = arrays[i], self.columns
            if form != NUMBER and x.size != size:               # repeated within
                x = np.broadcast_to(x, whole)
            if type(x) is not np.ndarray or not x.flags.c_contiguous:
                found = self._rows_apart(x) if form == FLAT else None
                if found is None:
                    given[i] = np.ascontiguousarray(x, dtype)
                else:
                    stride, apart = found, True
            strides.append(stride)
        rows, columns = (self.rows, self.columns) if apart else (1, math.prod(self.shape))
        self.loop.over(rows, columns, *given, strides=strides)
        return arrays[-1]

    def _rows_apart(self, x: np.ndarray) -> int | None:
        """How many elements apart the rows of an array lie, each contiguous; None if they are
        short or lie otherwise.
        """
        if self.columns < SHORT:
            return None
        apart, expected = None, x.itemsize
        for d in range(x.ndim - 1, -1, -1):
            if x.shape[d] == 1:
                continue
            if d < self.split and apart is None:
                apart = expected = x.strides[d]
            if x.strides[d] != expected:
                return None
            expected *= x.shape[d]
        return None if apart is None or apart % x.itemsize else apart // x.itemsize


class InLoops:
    """Puts the elementwise steps of a block (registers.py) into loops.

    shape: of the values that loops compute. repeated: by value, what it repeats.
    """

    def __init__(self, block: Any, shape: tuple[int, ...]) -> None:
        self.values, self.repeated, self.shape = block.values, block.repeated, shape
        splits = range(len(shape) - 1, -1, -1)
        self.split = max(splits, key=lambda k: (
            len(self._joining(block.steps, k)), math.prod(shape[k:]) >= SHORT))
        self.elements = self._joining(block.steps, self.split)

    def _joining(self, steps: Steps, split: int) -> dict[int, Any]:
        """By result, how elements of it are computed, if the first `split` dimensions are rows."""
        found = {}
        for step, _ in steps:
            if self.values[step.result][0] == self.shape and all(
                    [self._form(v, split) for v in step.operands if type(v) is int]):
                element = self._element(step)
                if element is not None:
                    found[step.result] = element
        return found

    def _form(self, v: int, split: int) -> str | None:
        """What a loop reads of a value; None if it cannot."""
        shape, dtype = self.values[self.repeated.get(v, v)]
        if dtype not in KINDS:
            return None
        if shape == self.shape:
            return FLAT
        if math.prod(shape) == 1:
            return NUMBER
        ones = [n == 1 for n in shape]
        if len(shape) != len(self.shape):
            return None
        return COLUMN if all(ones[split:]) else ROW if all(ones[:split]) else None

    def _element(self, step: Step) -> Any:
        """How an element of a step's result is computed from those of its operands."""
        dtypes = [self.values[v][1] if type(v) is int else None for v in step.operands]
        out = self.values[step.result][1]
        if step.kind == CALL:
            function = element_of(step.function, dtypes, out)
            if function is not None and step.function in BY_CLIP and math.prod(
                    self._shape(step.operands[0])) == 1:
                return lambda x, y: function(y, x)          # as `clip` has them
            return function
        if step.kind == WHERE and dtypes[0] is not None and out in KINDS:
            return lambda which, x, y: which.select(x, y)
        if step.kind in (CAST, BITS) and dtypes[0] is not None:
            return (cast_of if step.kind == CAST else bits_of)(dtypes[0], out)
        return None

    def _shape(self, operand: Any) -> tuple[int, ...]:
        return self.values[self.repeated.get(operand, operand)][0] if type(operand) is int else ()

    def _reads(self, step: Step) -> list[int]:
        """What a step in a loop reads."""
        return [self.repeated.get(v, v) for v in step.operands if type(v) is int]

    def steps(self, steps: Steps, results: Sequence[int]) -> Steps:
        """The steps, with loops in place of those that can be in one."""
        mine = {step.result: (step, eqn) for step, eqn in steps if step.result in self.elements}
        others = [(step, eqn) for step, eqn in steps if step.result not in mine]
        read = _operands(others).union(results)
        out: Steps = []
        waiting = {*mine}
        inside = set[int]()                         # what the next loop computes,
        behind: Steps = []                          # and what comes after it

        def end() -> None:
            if inside:
                later = {v for w in waiting for v in self._reads(mine[w][0])}
                out.extend(self._loop([mine[v] for v in sorted(inside)],
                                      inside.intersection(read | later)))
            out.extend(behind)
            inside.clear()
            behind.clear()

        for step, eqn in [*others, (None, None)]:
            needed, ahead = set[int](), [*waiting.intersection(
                results if step is None else _operands([(step, eqn)]))]
            while ahead:
                v = ahead.pop()
                if v not in needed:
                    needed.add(v)
                    ahead.extend(waiting.intersection(self._reads(mine[v][0])))
            made = {other.result for other, _ in behind}
            if any([not made.isdisjoint(self._reads(mine[v][0])) for v in needed]):
                end()
            inside |= needed
            waiting -= needed
            if step is not None:
                behind.append((step, eqn))
        end()
        read = _operands(out).union(results)
        return [(step, eqn) for step, eqn in out if step.kind != REPEAT or step.result in read]

    def _loop(self, steps: Steps, results: set[int]) -> Steps:
        """These steps as one loop with these results, after memory for all of them but the last."""
        if sum([step.kind != BITS for step, _ in steps]) < 2 and all([
                step.kind == BITS or type(step.function) is np.ufunc
                for step, _ in steps]) and self.repeated.keys().isdisjoint(_operands(steps)):
            return steps                            # a call of numpy takes as long
        at: dict[int, int] = {}
        reads = [v for step, _ in steps for v in self._reads(step)]
        made = {step.result for step, _ in steps}
        for v in [*dict.fromkeys([v for v in reads if v not in made]),
                  *[step.result for step, _ in steps]]:
            at[v] = len(at)
        given = [v for v in at if v not in made]
        written = [v for v in at if v in results]
        body = tuple([(step.kind, step.function, self.values[step.result][1],
                       *[at[self.repeated.get(v, v)] if type(v) is int else self._constant(v, step)
                         for v in step.operands]) for step, _ in steps])
        forms = tuple([form for v in given if (form := self._form(v, self.split))])
        kinds = [KINDS[self.values[v][1]] for v in at]
        key = (body, *[(self.values[v][1], form) for v, form in zip(given, forms, strict=True)],
               *[at[v] for v in written])
        loop = _LOOPS.get(key)
        if loop is None:
            elements = [self.elements[step.result] for step, _ in steps]
            loop = _LOOPS[key] = Loop(
                _function(body, elements, [at[v] for v in written]),
                " ".join(kinds[:len(given)]), " ".join([kinds[at[v]] for v in written]), forms)
        call = LoopCall(loop, forms, [self.values[v][1] for v in given], self.shape, self.split)
        eqn = steps[-1][1]
        return [*[(Step(MEMORY, None, (), v), eqn) for v in written[:-1]],
                (Step(LOOP, call, (*given, *written[:-1]), written[-1]), eqn)]

    def _constant(self, operand: Any, step: Step) -> Any:
        """A constant as LLVM's type of number, and what it is, exactly."""
        dtypes = [self.values[v][1] for v in step.operands if type(v) is int]
        dtype = self.values[step.result][1] if step.kind == WHERE else dtypes[0]
        number = np.asarray(constant(operand), dtype)
        if dtype.kind not in "biuf":
            number = number.view(np.int16)
        return Constant(KINDS[dtype], number.dtype.str, number.tobytes())


def widest(calls: Sequence[Call]) -> tuple[int, ...] | None:
    """The largest shape among the values of calls, which loops compute; None if it is small."""
    shape = max([value[0] for call in calls for value in call.recording.values],  # type: ignore
                key=math.prod)
    return shape if math.prod(shape) >= FEWEST else None


def is_one_step(step: Step) -> bool:
    """Is it one step in a loop, though several calls of numpy elsewhere?"""
    return step.kind == WHERE or step.function in ROUNDED


def _operands(steps: Steps) -> set[int]:
    """The values that steps read."""
    return {v for step, _ in steps for v in step.operands if type(v) is int}


class Constant(NamedTuple):
    """A number in a loop. kind: LLVM's type of it. dtype, data: numpy's, and its bytes."""
    kind: str
    dtype: str
    data: bytes


def _function(body: Sequence[Any], elements: Sequence[Any], results: Sequence[int]) -> Any:
    """The function of a loop's elements (ir/kernels/compiled.py)."""
    def function(*given: Value) -> list[Value]:
        values = list(given)
        for (_, _, _, *operands), element in zip(body, elements, strict=True):
            values.append(element(*[
                values[v] if type(v) is int else
                given[0].number(np.frombuffer(v.data, v.dtype)[0], v.kind) for v in operands]))
        return [values[v] for v in results]
    return function


def in_loops(block: Any, shape: tuple[int, ...]) -> bool:
    """Put the steps of a block that compute values of this shape into loops, if LLVM compiles them;
    say whether it does.
    """
    steps = InLoops(block, shape).steps(block.steps, block.results)
    loops = [step.function.loop for step, _ in steps if step.kind == LOOP]
    if not loops or not all([loop.compiled(wait=True) for loop in loops]):
        return False
    block.steps = steps
    for step, _ in steps:
        block.share(step)
    return True
