"""Fuses calls on large arrays into cache-sized tiles, evaluated one after the other.

An elementwise call, or a reduction of the last dimensions, computes each row of its result from the
same row of its operands. Neighbouring calls of a plan that can all be split into the same number of
rows become one `Blocked` call, which runs them block of rows by block of rows, large ones on all
cores. A softmax over 4096 x 1024 is one such call, of 4096 rows:

    v1 = maximum.reduce(v0, 1)              for each block of v0, with result o0:
    v2 = v1.reshape((4096, 1))                  v1 = maximum.reduce(v0, 1)
    v3 = subtract(v0, v2)                       v2 = v1.reshape((256, 1))
    v4 = exp(v3)                        ->      v3 = subtract(v0, v2)
    v5 = add.reduce(v4, 1)                      v4 = exp(v3, v3)
    v6 = v5.reshape((4096, 1))                  ...
    v7 = divide(v4, v6)                         v7 = divide(v4, v6, out=o0)

A block makes the numpy calls of the ops' own evaluators (runtime/calls/symbolic.py) on the same
numbers, written out as a function with registers of its own (runtime/plans/registers.py).
"""
from __future__ import annotations

import copy
import math
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from ...ir.program import Equation
from ...ir.settings.context import config
from ...ir.support.buffer_pool import empty
from ...ir.support.caches import module_table
from ...ir.support.threads import in_parallel, share_count
from ..calls.call import Call, new_call, read_counts
from ..calls.symbolic import CAST, REDUCE, VIEWS, WHERE, Kernel
from .half_floats import in_float32
from .registers import Body, written_out
from .tiling import Form, Forms, cuts, total_of

BLOCK = 1 << 16                 # elements of the largest value in a block
WIDER = 2                       # times larger are blocks of which each thread has four:
FEW = 2                         # each of so many threads, where there are totals
LARGE = BLOCK + 1               # elements from which a value is worth splitting into blocks
MOST = 64                       # calls in one group, at most
SINGLE = 4                      # times LARGE: a lone numpy call is split from this size on
LOOP = 1 << 9                   # elements of a row that numpy should not copy into its buffer


# A plan that updates a hundred equal leaves has a hundred equal groups.
_BODIES = module_table("runtime.plans.tiled_fusion._BODIES",
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
    to return. rows: how many rows all values of the group have.

    A total is reduced from what the blocks contribute, in their order. Their size then does not
    depend on the number of cores, so that the total does not. Where numpy repeats an operand it
    copies it into a buffer, which is made no longer than a row.
    """

    __slots__ = ("_bodies", "_buffer", "_calls", "_excess", "_forms", "_kernels", "_operands",
                 "_overwritten", "_results", "_rows", "_size", "_threads", "_totals")

    def __init__(self, calls: Sequence[Call], forms: Sequence[Forms], operands: Sequence[Form],
                 results: Sequence[int], rows: int) -> None:
        self._calls, self._forms, self._operands = calls, forms, operands
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
        if self._threads == 1 and not self._totals and _is_one_step(calls) and not any(
                [step.kind in (CAST, WHERE) for step in calls[0].recording.steps]):  # type: ignore
            self._size = rows               # nothing to keep in the cache
        loop = min([c.loop(rows) for c in found], default=0)
        self._buffer = int(min(loop // 16 * 16, np.getbufsize())) if LOOP <= loop < np.inf else 0
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
        rows, threads, size = self._rows, self._threads, self._size
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
        """The kernel that makes a slot."""
        return self._kernels[s - len(self._operands)]

    def _memory(self, j: int) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and dtype of what the blocks write: a result, or what each contributes to it."""
        kernel = self._made(self._results[j])
        blocks = (-(-self._rows // self._size),) if j in self._totals else ()
        return (*blocks, *kernel.shapes[-1]), kernel.dtypes[-1]

    def _by_rows(self, s: int, x: Any) -> Any:
        form = self._forms[s - len(self._operands)]
        recording = self._kernels[s - len(self._operands)].recording
        return x.reshape(form[recording.result].of(self._rows))         # type: ignore[union-attr]

    def _body(self, rows: int) -> Body:
        body = self._bodies.get(rows)
        if body is None:
            key = (rows, self._rows, self._excess, *self._results, *self._kernels,
                   *self._overwritten.items(),
                   *[(call.inputs, call.outputs) for call in self._calls])
            body = _BODIES.get(key)
            if body is None:
                calls = [call._replace(kernel=_in_block(kernel, forms, rows))
                         for call, kernel, forms in zip(self._calls, self._kernels, self._forms,
                                                        strict=True)]
                wide, results = in_float32(calls, self._results, self._excess)
                body = _BODIES[key] = written_out(wide, len(self._operands), results,
                                                  self._overwritten)
            self._bodies[rows] = body
        return body


def _reads_while_writing(call: Any, same: set[int]) -> bool:
    """Does the call read one of these slots while it is already writing its result?"""
    return not same.isdisjoint(call.inputs) and not call.kernel.recording.ends_in_call


class _Group:
    """Calls to be fused. rows: the numbers of rows into which all of them can be split."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.rows: list[int] = []
        self.made = set[int]()
        self.totals = set[int]()            # of these, which are complete behind the last block

    def join(self, call: Call, kernel: Kernel) -> bool:
        """Add a call and return True, if it can be split into rows as the group is.

        Refused, too, is a call that reads nothing of the group and would force shorter rows on it.
        """
        found = cuts(kernel).forms
        if not self.calls:
            self.rows = list(found)
        rows = [n for n in self.rows if n in found and all(
            [form is None or form.is_rows for s, form in
             zip(call.inputs, found[n], strict=False) if s in self.made])]
        if not rows or not self.totals.isdisjoint(call.inputs) or (
                min(rows) > min(self.rows) and self.made.isdisjoint(call.inputs)):
            return False
        self.rows = rows
        if total_of(kernel.recording, rows[0]):
            self.totals.update(call.outputs)
        self.calls.append(call)
        self.made.update(call.outputs)
        return True

    def fused(self, readers: Any) -> list[Call]:
        """The calls in fused form, one group for each set that shares large arrays.

        Fusing unrelated calls, such as the updates of two leaves, gains nothing; kept apart, the
        updates of a hundred equal leaves are a hundred equal groups, compiled once.
        """
        part_of: dict[int, int] = {}            # slot to the last slot of its part
        parts: dict[int, list[int]] = {}        # that to all slots of the part
        for call in self.calls:
            (out,), made = call.outputs, self.made
            sizes = call.kernel.sizes           # type: ignore[union-attr]
            part_of[out], parts[out] = out, [out]
            for s, size in zip(call.inputs, sizes, strict=False):
                if s not in made and size < LARGE:
                    continue
                mine, other = part_of[out], part_of.get(s)
                if other is None:
                    part_of[s] = mine
                    parts[mine].append(s)
                elif other != mine:
                    if len(parts[other]) > len(parts[mine]):        # the shorter goes to the other
                        mine, other = other, mine
                    part_of.update(dict.fromkeys(parts[other], mine))
                    parts[mine] += parts.pop(other)
        found: dict[int, list[Call]] = {}
        for call in self.calls:
            found.setdefault(part_of[call.outputs[0]], []).append(call)
        return [one for part in found.values() for i in range(0, len(part), MOST)
                for one in _as_one(part[i:i + MOST], self.rows, readers)]


def fused(calls: Sequence[Call], outputs: Sequence[int], constants: Iterable[int]) -> list[Call]:
    """The calls, with those on large arrays fused; `outputs` are the slots read at the end.

    Members of a group need not be neighbours. A call between them that does not depend on the group
    moves before it; one that makes something small of its results, such as of a sum over the rows,
    moves behind it.
    """
    readers = read_counts(calls, outputs)
    out: list[Call] = []
    group = _Group()
    behind: list[Call] = []
    deferred: set[int] = set()              # slots that calls of `behind` write
    known = set(constants)

    def end() -> None:
        nonlocal group
        out.extend((*group.fused(readers), *behind))
        group = _Group()
        behind.clear()
        deferred.clear()

    for call in calls:
        kernel = call.kernel
        waits = not deferred.isdisjoint(call.inputs)
        reads = waits or not group.made.isdisjoint(call.inputs)
        if kernel is None or call.several or call.changes:
            # A call on constants alone moves before the group, which stays open.
            if (known.issuperset(call.inputs) and call.eqn is not None
                    and not call.eqn.op.effect and not call.eqn.op.subprograms):
                known.update(call.outputs)
            else:
                end()
            out.append(call)
            continue
        large = kernel.elements >= LARGE
        if not waits and (large or reads) and group.join(call, kernel):
            continue
        if not reads and (not large or cuts(kernel).is_view):
            out.append(call)                    # may run before the group
            known.update(call.outputs if known.issuperset(call.inputs) else ())
        elif reads and kernel.recording is not None and math.prod(kernel.shapes[-1]) < LARGE:
            behind.append(call)
            deferred.update(call.outputs)
        else:
            end()
            if not large or not group.join(call, kernel):
                out.append(call)
    end()
    return out


def _as_one(calls: Sequence[Call], rows: Sequence[int], readers: Any) -> list[Call]:
    """The fused call of a group, followed by those of its results that are views of others."""
    inside = read_counts(calls)
    needed = {s for call in calls for s in call.outputs if readers[s] > inside[s]}
    calls = _deduplicated(calls, needed)
    views: list[Call] = []
    needed_calls: list[Call] = []
    read: set[int] = set()
    for call in reversed(calls):
        s = call.outputs[0]
        if s in needed and cuts(call.kernel).is_view:          # type: ignore[arg-type]
            views.append(call)
            needed.update(call.inputs)
            needed.discard(s)
            if s not in read:
                continue
        if s in needed or s in read:
            needed_calls.append(call)
            read.update(call.inputs)
    needed_calls.reverse()
    views.reverse()
    computed = [call for call in needed_calls if not cuts(call.kernel).is_view]   # type: ignore[arg-type]
    large = computed[0].kernel.elements if computed else 0      # type: ignore[union-attr]
    if not computed or _is_one_step(computed) and (
            large < SINGLE * LARGE or total_of(computed[0].recording, rows[0])):  # type: ignore
        return list(calls)
    return [_fused(needed_calls, needed, _best(rows, computed)), *views]


def _deduplicated(calls: Sequence[Call], outside: Container[int]) -> list[Call]:
    """The calls without those that repeat an earlier one: within a block, its value is still in a
    register. outside: slots that other calls read.
    """
    first: dict[Any, int] = {}
    same: dict[int, int] = {}
    out: list[Call] = []
    for call in calls:
        (s,), inputs = call.outputs, tuple([same.get(x, x) for x in call.inputs])
        how: Any = call.recording
        if any([type(v) is not int for step in how.steps for v in step.operands]):
            how = call.kernel               # it has constants: 0.0 and -0.0 compare equal
        other = first.setdefault((how, inputs), s)
        if other != s and s not in outside:
            same[s] = other
        else:
            out.append(call if inputs == call.inputs else call._replace(inputs=inputs))
    return out


def _is_one_step(calls: Sequence[Call]) -> bool:
    """Is this a single call that makes at most one numpy call other than views?"""
    if len(calls) > 1:
        return False
    steps = calls[0].kernel.recording.steps         # type: ignore[union-attr]
    return sum([step.kind not in VIEWS for step in steps]) < 2


def _best(rows: Sequence[int], calls: Sequence[Call]) -> int:
    """The smallest number of rows for which blocks fit BLOCK, so that the most dimensions stay
    whole.
    """
    widest = max([call.kernel.elements for call in calls])      # type: ignore[union-attr]
    small = [n for n in rows if n * BLOCK >= widest]
    return min(small) if small else max(rows)


def _fused(calls: Sequence[Call], needed: set[int], rows: int) -> Call:
    """One `Blocked` call in place of these.

    Slots are renumbered from 0 (operands, once for each form in which they are read, then the
    result of each call), so that equal groups have equal source.
    """
    forms = [cuts(call.kernel).forms[rows] for call in calls]     # type: ignore[arg-type]
    made = {call.outputs[0] for call in calls}
    operands: dict[tuple[int, Form], int] = {}
    for call, its in zip(calls, forms, strict=True):
        for s, form in zip(call.inputs, its, strict=False):
            if s not in made and form is not None:
                operands.setdefault((s, form), len(operands))
    at = {call.outputs[0]: len(operands) + i for i, call in enumerate(calls)}
    members = [call._replace(
        inputs=tuple([at[s] if s in made else 0 if form is None else operands[s, form]
                      for s, form in zip(call.inputs, its, strict=False)]),
        outputs=(at[call.outputs[0]],)) for call, its in zip(calls, forms, strict=True)]
    results = [call.outputs[0] for call in calls if call.outputs[0] in needed]
    function = Blocked(members, forms, [form for _, form in operands], [at[s] for s in results],
                       rows)
    return new_call((function, tuple([s for s, _ in operands]), tuple(results), True, None, None,
                     False))
