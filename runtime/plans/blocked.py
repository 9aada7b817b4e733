"""Blocked calls: a group of fused calls as one function, evaluated block of rows by block of rows.

Which calls are a group is decided in runtime/plans/tiled_fusion.py. A block makes the numpy calls
of the ops' own evaluators (runtime/calls/symbolic.py) on the same numbers, written out as a
function with registers of its own (runtime/plans/registers.py). Large groups run on all cores.
"""
from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.program import Equation
from ...ir.settings.context import config
from ...ir.support.buffer_pool import empty
from ...ir.support.caches import module_table
from ...ir.support.threads import in_parallel, share_count
from ..calls.call import Call
from ..calls.symbolic import CAST, REDUCE, VIEWS, WHERE, Kernel
from .registers import Body, written_out
from .tiling import Form, Forms, cuts, total_of

ENOUGH = 1 << 28                # elements of numpy calls, after which a group may be compiled
BLOCK = 1 << 16                 # elements of the largest value in a block
WIDER = 2                       # how much larger blocks are where each thread has four of them
FEW = 2                         # threads that this is asked for where there are totals
LOOP = 1 << 9                   # elements of a row that numpy should not copy into its buffer

# A plan that updates a hundred equal leaves has a hundred equal groups.
_BODIES = module_table("runtime.plans.blocked._BODIES",
                       "functions of fused calls, by the calls and the rows of a block", 1024)


def _in_block(kernel: Kernel, forms: Forms, rows: int) -> Kernel:
    """The kernel of a call on a block of `rows` rows."""
    recording = kernel.recording
    assert recording is not None
    values = tuple([(shape if form is None else form.of(rows), dtype)
                    for form, (shape, dtype) in zip(forms, recording.values, strict=True)])
    steps = []
    for step in recording.steps:
        if step.kind == REDUCE:             # its leading dimensions have become one, the rows
            v = step.operands[0]
            less = len(recording.values[v][0]) - len(values[v][0])
            step = step._replace(axes=tuple([a - less for a in step.axes if a >= less]))
        steps.append(step)
    shapes = [*[shape for shape, _ in values[:recording.operands]], values[recording.result][0]]
    made = Kernel(kernel.function, shapes, kernel.dtypes)
    made.set_recording(recording._replace(values=values, steps=tuple(steps)))
    return made


class Blocked:
    """One function that computes a group of fused calls, a block of rows at a time.

    calls: on slots numbered from 0, the operands first. operands: their forms. results: the slots
    to return. rows: how many rows all values of the group have. zeros: operands that are the number
    zero.

    Once numpy has computed for long, elementwise calls become compiled loops (compiled_steps.py).

    A total is reduced from what the blocks contribute, in their order. Their size then does not
    depend on the number of cores, so that the total does not. Where numpy repeats an operand it
    copies it into a buffer, which is made no longer than a row.
    """

    __slots__ = ("_bodies", "_buffer", "_calls", "_excess", "_forms", "_kernels", "_loops",
                 "_operands", "_overwritten", "_results", "_rows", "_runs", "_size", "_threads",
                 "_totals", "_zeros")

    def __init__(self, calls: Sequence[Call], forms: Sequence[Forms], operands: Sequence[Form],
                 results: Sequence[int], rows: int, zeros: tuple[int, ...]) -> None:
        self._calls, self._forms, self._operands, self._zeros = calls, forms, operands, zeros
        self._results, self._rows = results, rows
        self._excess = config.read("shardtrace_allow_excess_precision")
        self._kernels: list[Kernel] = [call.kernel for call in calls]   # type: ignore[misc]
        elements = [k.elements for k in self._kernels]
        found = [cuts(kernel) for kernel in self._kernels]
        self._threads = share_count(sum(elements)) if all([c.several for c in found]) else 1
        self._totals = {j: step for j, s in enumerate(results)
                        if (step := total_of(self._made(s).recording, rows))}
        most, threads = max(elements, default=1), FEW if self._totals else self._threads
        wide = threads > 1 and min(WIDER, most // (4 * threads * BLOCK)) or 1
        self._size = min(rows, max(1, wide * BLOCK * rows // most))
        if self._threads == 1 and not self._totals and is_one_step(calls) and not any(
                [step.kind in (CAST, WHERE) for step in calls[0].recording.steps]):  # type: ignore
            self._size = rows               # nothing to keep in the cache
        loop = min([c.loop(rows) for c in found], default=0)
        self._buffer = int(min(loop // 16 * 16, np.getbufsize())) if LOOP <= loop < np.inf else 0
        self._loops = False             # may LLVM compile it? after so many runs
        self._runs = -(-ENOUGH // sum([n * len(k.recording.steps)         # type: ignore[union-attr]
                                       for n, k in zip(elements, self._kernels, strict=True)]))
        self._overwritten: dict[int, int] = {}      # result to the operand it is written over
        self._bodies: dict[int, Any] = {}           # by rows of a block

    @property
    def equations(self) -> tuple[Equation, ...]:
        """The equations that the group computes."""
        return tuple(dict.fromkeys([call.eqn for call in self._calls if call.eqn is not None]))

    def overwriting(self, operands: Sequence[int]) -> Blocked:
        """A copy of this function that may write its results over these operands (given by
        position).
        """
        other = copy.copy(self)
        other._overwritten, other._bodies = self._replaceable(operands), {}
        return other

    def _replaceable(self, operands: Sequence[int]) -> dict[int, int]:
        """For each result that can take the memory of an operand, that operand: neither it nor a
        view of it is read once the result is being written.
        """
        found: dict[int, int] = {}
        makers = {call.outputs[0]: i for i, call in enumerate(self._calls)}
        for o in operands:
            same, reads = {o}, list[int]()
            for i, call in enumerate(self._calls):
                if not same.isdisjoint(call.inputs):
                    reads.append(i)
                    if cuts(self._kernels[i]).is_view:
                        same.update(call.outputs)
            first, place = self._kernels[reads[0]], self._calls[reads[0]].inputs.index(o)
            for j, s in enumerate(self._results):
                kernel = self._made(s)
                if j not in found and j not in self._totals and self._operands[o].is_rows and (
                        makers[s] >= reads[-1]
                        and not _reads_while_writing(self._calls[makers[s]], same)
                        and kernel.shapes[-1] == first.shapes[place]
                        and kernel.dtypes[-1].itemsize == first.dtypes[place].itemsize):
                    found[j] = o
                    break
        return found

    def __call__(self, *arrays: Any) -> list[Any]:
        """Compute the results of the group, block by block, on several threads where it has them.
        """
        rows, threads, size = self._rows, self._threads, self._size
        self._runs -= 1
        if not self._runs:
            self._loops, self._bodies = True, {}
        given = [x.reshape(form.of(rows)) if form.shape or form.is_rows else x
                 for x, form in zip(arrays, self._operands, strict=True)]
        over = {j: arrays[o] for j, o in self._overwritten.items() if arrays[o].flags.carray}
        results = [over[j].view(dtype) if j in over else empty(shape, dtype)
                   for j, (shape, dtype) in enumerate(map(self._memory, range(len(self._results))))]
        memory = [x if j in self._totals else self._by_rows(s, x)
                  for j, (s, x) in enumerate(zip(self._results, results, strict=True))]
        starts = iter(range(0, rows, size))
        # Written here, so that no two threads write the same one.
        bodies = {n: self._body(n) for n in {size, rows % size or size}}

        def work() -> None:
            """Compute the blocks that no other thread has begun."""
            before = np.setbufsize(self._buffer) if self._buffer else 0    # of this thread
            held: dict[int, Any] = {}
            try:
                for start in starts:
                    end = min(start + size, rows)
                    body = bodies[end - start]
                    registers = held.get(end - start)
                    if registers is None:
                        registers = held[end - start] = body.registers()
                    body.run([x[start:end] if form.is_rows else x
                              for x, form in zip(given, self._operands, strict=True)],
                             [x[start // size, ...] if j in self._totals else x[start:end]
                              for j, x in enumerate(memory)], registers)
            finally:
                if before:
                    np.setbufsize(before)
        if threads > 1 and size < rows:
            in_parallel([work] * threads)
        else:
            work()
        for j, step in self._totals.items():
            results[j] = step.function.reduce(results[j], 0, results[j].dtype)
        return results

    def _made(self, s: int) -> Kernel:
        """The kernel whose result a slot is."""
        return self._kernels[s - len(self._operands)]

    def _memory(self, j: int) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and dtype of what the blocks write: a result, or what each contributes to it."""
        kernel = self._made(self._results[j])
        blocks = (-(-self._rows // self._size),) if j in self._totals else ()
        return (*blocks, *kernel.shapes[-1]), kernel.dtypes[-1]

    def _by_rows(self, s: int, x: Any) -> Any:
        form, recording = self._forms[s - len(self._operands)], self._made(s).recording
        return x.reshape(form[recording.result].of(self._rows))         # type: ignore[union-attr]

    def _body(self, rows: int) -> Body:
        """The calls for a block of so many rows, written out as a function, which equal groups
        share.
        """
        body = self._bodies.get(rows)
        if body is None:
            key = (rows, self._rows, self._excess, self._zeros, self._loops, *self._results,
                   *self._kernels, *self._overwritten.items(),
                   *[(call.inputs, call.outputs) for call in self._calls])
            body = _BODIES.get(key)
            if body is None:
                calls = [call._replace(kernel=_in_block(kernel, forms, rows))
                         for call, kernel, forms in zip(self._calls, self._kernels, self._forms,
                                                        strict=True)]
                body = _BODIES[key] = written_out(calls, len(self._operands), self._results,
                                                  self._overwritten, self._excess, self._zeros,
                                                  self._loops)
            self._bodies[rows] = body
        return body


def _reads_while_writing(call: Any, same: set[int]) -> bool:
    """Does the call read one of these slots while it is already writing its result?"""
    return not same.isdisjoint(call.inputs) and not call.kernel.recording.ends_in_call


def is_one_step(calls: Sequence[Call]) -> bool:
    """Is this a single call that makes at most one numpy call other than views?"""
    if len(calls) > 1:
        return False
    steps = calls[0].kernel.recording.steps         # type: ignore[union-attr]
    return sum([step.kind not in VIEWS for step in steps]) < 2


def best_rows(rows: Sequence[int], calls: Sequence[Call]) -> int:
    """The smallest number of rows for which blocks fit BLOCK, so that the most dimensions stay
    whole.
    """
    widest = max([call.kernel.elements for call in calls])      # type: ignore[union-attr]
    small = [n for n in rows if n * BLOCK >= widest]
    return min(small) if small else max(rows)
