"""Registers of a block: memory that the values of a fused group share, by live range.

A block of fused calls (runtime/plans/blocked.py) computes one value per numpy call. Here each
call is given the memory to write to: that of one of the group's results while it is free, or a
register, which is free again after the last read of its value. The registers of a thread are one
array from the pool, cut at cache lines, that lives as long as the run. So a block allocates
nothing, finds its memory in the cache, and threads hold no more than what is live.

    v3 = subtract(v0, v1)                   f0(v0, v1, out=r0)
    v4 = exp(v3)                    ->      f1(r0, out=r0)
    v5 = add.reduce(v4, 1)                  v5 = f2.reduce(r0, 1, c3)
    ...                                     ...
    v7 = divide(v4, v6)                     f4(r0, v6, out=o0)
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from ...ir.kernels.elementwise.selection import FEWEST as FEWEST_SELECTED
from ...ir.kernels.elementwise.selection import by_bits, has_bits, is_zero, or_zero, zero_or
from ...ir.program import Equation
from ...ir.support.buffer_pool import empty
from ...ir.support.caches import cached
from ...ir.support.lazy import lazy_import
from ...ir.support.named_tuple import NamedTuple
from ..calls.call import Call
from ..calls.symbolic import (
    BITS,
    CALL,
    CAST,
    LOOP,
    MEMORY,
    REDUCE,
    REPEAT,
    RESHAPE,
    VIEWS,
    WHERE,
    Step,
    constant,
    record,
)
from .generated import Writer, expression
from .half_floats import InFloat32, rounded_slots

_compiled_steps = lazy_import(".compiled_steps", __package__)      # after much computing

FEWEST = 1 << 10                # bytes from which a value is worth a register
_LINE, _BYTES = 64, np.dtype(np.uint8)
_WRITTEN = frozenset({CALL, CAST, REDUCE, LOOP, MEMORY})       # kinds that write to given memory

_recorded = cached(4096, "numpy calls of kernels, by shapes and dtypes")(record)


class Body(NamedTuple):
    """run: the function of operands, memory for results, and registers. size: bytes of the
    registers. places: where each begins in them, its shape and dtype.
    """
    run: Any
    size: int
    places: tuple[tuple[int, tuple[int, ...], np.dtype], ...]

    def registers(self) -> list[Any]:
        """New registers, for one thread."""
        memory = empty((self.size,), _BYTES)
        return [np.ndarray(shape, dtype, memory, first) for first, shape, dtype in self.places]


class _Steps:
    """The numpy calls of a block, on values numbered from 0, the operands first."""

    def __init__(self, calls: Sequence[Call], results: Sequence[int] = (),
                 excess: bool = False, zeros: Sequence[int] = (), loops: bool = False) -> None:
        self.looped = _compiled_steps.widest(calls) if loops else None  # shape that loops compute
        self.zeros = set[int]()                     # values that are the number zero
        self.values: list[tuple[tuple[int, ...], np.dtype]] = []
        self.roots: list[int] = []                  # of each, the value whose memory it shares,
        self.whole: list[bool] = []                 # and whether all of it, in the same order
        self.steps: list[tuple[Step, Equation | None]] = []
        self.at: dict[int, int] = {}                # slot to value
        self.repeated: dict[int, int] = {}          # repeated value to what it repeats
        rounded, halves = rounded_slots(calls, results, excess), InFloat32(self)
        dtypes: dict[int, np.dtype] = {}
        self._operand_zeros = {*zeros}
        for call in calls:
            recording, (out,) = call.kernel.recording, call.outputs     # type: ignore[union-attr]
            assert recording is not None
            self.eqn, dtypes[out] = call.eqn, recording.values[recording.result][1]
            given = [self._slot(s, value) for s, value in
                     zip(call.inputs, recording.values[:recording.operands], strict=False)]
            self.at[out] = self._append(recording, given) if rounded is None else (
                halves.append(recording, given, out in rounded))
        self.results = [halves.narrowed(self.at[s], dtypes[s]) for s in results]
        if results:
            self._drop_unread()

    def _drop_unread(self) -> None:
        read = set(self.results)
        for step, _ in reversed(self.steps):
            if step.result in read:
                read.update([v for v in step.operands if type(v) is int])
        self.steps = [(step, eqn) for step, eqn in self.steps if step.result in read]

    def _slot(self, s: int, value: Any) -> int:
        if s not in self.at:
            self.at[s] = self._value(value)
            if s in self._operand_zeros:
                self.zeros.add(self.at[s])
        return self.at[s]

    def _value(self, value: Any) -> int:
        self.values.append(value)
        self.roots.append(len(self.roots))
        self.whole.append(True)
        return len(self.values) - 1

    def _append(self, recording: Any, given: Sequence[Any]) -> int:
        """Append the steps of a recording, on these values and constants; returns its result."""
        at = dict(enumerate(given))
        for step in recording.steps:
            at[step.result] = self.emit(
                step, tuple([at[v] if type(v) is int else v for v in step.operands]),
                *recording.values[step.result])
        return at[recording.result]

    def emit(self, step: Step, operands: tuple[Any, ...], shape: Any, dtype: np.dtype) -> int:
        """Append a step on these operands; returns its result."""
        if step.kind in (CALL, WHERE):      # numpy repeats by itself
            once = tuple([self.repeated.get(v, v) if type(v) is int else v for v in operands])
            if once != operands and shape == np.broadcast_shapes(
                    *[self.values[v][0] for v in once if type(v) is int]):
                operands = once
        inner = self._as_recording(step, operands, shape, dtype)
        if inner is not None:
            return self._append(inner, operands)
        out = self._value((shape, dtype))
        if step.kind == REPEAT and type(operands[0]) is int:
            self.repeated[out] = operands[0]
        step = step._replace(operands=operands, result=out)
        self.share(step)
        self.steps.append((step, self.eqn))
        return out

    def share(self, step: Step) -> None:
        """Note whose memory the result of a step is."""
        out, v = step.result, step.operands[0] if step.operands else None
        if step.kind in VIEWS and type(v) is int:
            self.roots[out] = self.roots[v]
            self.whole[out] = self.whole[v] and step.kind in (BITS, RESHAPE)
        else:
            self.roots[out], self.whole[out] = out, True

    def _as_recording(self, step: Step, operands: Sequence[Any], shape: Any, dtype: Any) -> Any:
        """The recording of a step that is not a single numpy call; None for one that is."""
        count, function = math.prod(shape), step.function
        if shape == self.looped and _compiled_steps.is_one_step(step):
            return None
        if step.kind == WHERE and count >= FEWEST_SELECTED and has_bits(dtype):
            function = (or_zero if self.is_zero(operands[2]) else
                        zero_or if self.is_zero(operands[1]) else by_bits)
        elif step.kind != CALL or type(function) is not FunctionType or (
                hasattr(function, "elementwise")):
            return None
        kinds = [self.values[v] if type(v) is int else (v.shape, v.dtype) for v in operands]
        return _recorded(function, (*[s for s, _ in kinds], shape), (*[t for _, t in kinds], dtype))

    def is_zero(self, operand: Any) -> bool:
        """Is an operand known to be zero?"""
        if type(operand) is not int:
            return is_zero(constant(operand))
        return self.roots[operand] in self.zeros


def written_out(calls: Sequence[Call], operands: int, results: Sequence[int],
                over: Mapping[int, int], excess: bool, zeros: Sequence[int],
                loops: bool = False) -> Body:
    """A block's calls as a function. operands: how many it reads. results: slots. over: result to
    the operand in whose memory it may be, by position. excess: see half_floats.py. zeros: operands
    that are zero. loops: whether LLVM may compile what it can (compiled_steps.py).
    """
    block = _Steps(calls, results, excess, zeros, loops)
    if block.looped and not _compiled_steps.in_loops(block, block.looped):
        block = _Steps(calls, results, excess, zeros)
    return _Registers(block, operands, over).body()


class _Registers:
    """Assigns memory to each value of a block: `o1` is that of a result, `r1` a register."""

    def __init__(self, block: _Steps, operands: int, over: Mapping[int, int]) -> None:
        self.block, self.operands, self.w = block, operands, Writer()
        roots, end = block.roots, len(block.steps)
        self.names = {block.at[s]: f"v{s}" for s in block.at if s < operands}
        self.ends = block.results
        self.last: dict[int, int] = {}              # root to the step that reads it last,
        self.overwritable: dict[int, bool] = {}           # and whether that may overwrite it
        makers: dict[int, int] = {}
        for i, (step, _) in enumerate(block.steps):
            makers.setdefault(roots[step.result], i)
            for v in step.operands:
                if type(v) is int:
                    again = self.last.get(roots[v]) == i
                    self.last[roots[v]] = i
                    self.overwritable[roots[v]] = self._may_overwrite(v, step) and (
                        not again or self.overwritable[roots[v]])
        self.last.update([(roots[v], end) for v in self.ends])
        self.over = {j: block.at[o] for j, o in over.items()}
        self.homes: dict[int, int] = {}             # root to the result that it becomes
        for j, v in enumerate(self.ends):
            root = roots[v]
            if root in makers and root not in self.homes and block.whole[v] and (
                    block.steps[makers[root]][0].kind in _WRITTEN
                    and self._is_free(j, makers[root])):
                self.homes[root] = j
        self.writes = {j: makers[root] for root, j in self.homes.items()}
        self.occupied: list[int | None] = [None] * len(self.ends)   # result to root in its memory
        self.sizes: list[int] = []                  # of registers
        self.free: list[int] = []                   # registers, the latest used last
        self.held: dict[int, int] = {}              # root to its register
        self.places: dict[Any, int] = {}            # (register, shape, dtype) to its number

    def _bytes(self, v: int) -> int:
        shape, dtype = self.block.values[v]
        return math.prod(shape) * dtype.itemsize

    def _place(self, i: int, step: Step) -> str | None:
        """The memory for the result of a step, as source; None if numpy has to allocate it."""
        v = step.result
        shape, dtype = self.block.values[v]
        if step.kind not in _WRITTEN:
            return None
        if v in self.homes:
            j = self.homes[v]
            same = self.block.values[self.ends[j]][0] == shape
            return self._result(j, dtype) if same else f"{self._result(j, dtype)}.reshape({shape})"
        over = {self.block.roots[x] for x in step.operands if type(x) is int
                and self.last[self.block.roots[x]] == i and self.overwritable[self.block.roots[x]]}
        for j, owner in enumerate(self.occupied):
            if (owner is None or owner in over) and self._may_live_in(j, step, i):
                self.occupied[j] = v
                return self._result(j, dtype)
        size = -(-self._bytes(v) // _LINE) * _LINE
        if size < FEWEST:
            return None
        register = next((self.held.pop(root) for root in sorted(over) if root in self.held), None)
        if register is None:
            register = self._register(size)
        self.held[v] = register
        return f"r{self.places.setdefault((register, shape, dtype), len(self.places))}"

    def _may_overwrite(self, x: int, step: Step) -> bool:
        """May a step write its result over this operand while it reads it?"""
        values, out = self.block.values, step.result
        return step.kind in (CALL, LOOP) and self.block.whole[x] and (
            values[x][0] == values[out][0]
            and values[x][1].itemsize == values[out][1].itemsize)

    def _may_live_in(self, j: int, step: Step, i: int) -> bool:
        """May the value of step i be in the memory of result j for as long as it lives?"""
        v = step.result
        (shape, dtype), (given, kind) = self.block.values[v], self.block.values[self.ends[j]]
        if shape != given or dtype.itemsize != kind.itemsize:
            return False
        if not self._is_free(j, i):
            return False
        last, end = self.last.get(v, i), self.writes.get(j)
        return last < len(self.block.steps) if end is None else (
            last < end or last == end and self.overwritable[v])

    def _is_free(self, j: int, i: int) -> bool:
        """May step i write into the memory of result j, which may be that of an operand?"""
        if j not in self.over:
            return True
        step, root = self.block.steps[i][0], self.over[j]
        end = self.last[root]
        return i > end or i == end and all([
            self._may_overwrite(x, step) for x in step.operands
            if type(x) is int and self.block.roots[x] == root])

    def _result(self, j: int, dtype: np.dtype) -> str:
        same = self.block.values[self.ends[j]][1] == dtype
        return f"o{j}" if same else f"o{j}.view({self.w.name(dtype)})"

    def _register(self, size: int) -> int:
        fits = [(self.sizes[k], -n) for n, k in enumerate(self.free) if self.sizes[k] >= size]
        if fits:
            return self.free.pop(-min(fits)[1])
        self.sizes.append(size)
        return len(self.sizes) - 1

    def body(self) -> Body:
        """The function, and the layout of its registers."""
        w, block = self.w, self.block
        lines: list[tuple[str, Equation | None]] = []
        for i, (step, eqn) in enumerate(block.steps):
            args = [self.names[v] if type(v) is int else w.name(constant(v)) for v in step.operands]
            place = self._place(i, step)
            name = self.names[step.result] = f"t{i}" if place is None or "." in place else place
            text = self._written(step, args, place)
            if step.kind == CAST and place not in (None, name):
                text += f"; {name} = {place}"       # np.copyto returns nothing
            elif place != name:
                text = f"{name} = {text}"
            lines.append((text, eqn))
            for v in step.operands:
                if type(v) is int and self.last[block.roots[v]] == i:
                    self._release(block.roots[v])
            if block.roots[step.result] not in self.last:
                self._release(step.result)
        for count, given in ((self.operands, "arguments"), (len(self.ends), "memory"),
                             (len(self.places), "registers")):
            if count:
                letter = "o" if given == "memory" else "v" if given == "arguments" else "r"
                w.line("".join([f"{letter}{k}, " for k in range(count)]) + f"= {given}")
        for text, eqn in lines:
            w.line(text, eqn)
        for j, v in enumerate(self.ends):
            if self.homes.get(block.roots[v]) != j:
                w.line(f"{w.name(np.copyto, 'f')}(o{j}, {self.names[v]})")
        starts = [sum(self.sizes[:k]) for k in range(len(self.sizes) + 1)]
        return Body(w.function("arguments, memory, registers"), starts[-1],
                    tuple([(starts[k], shape, dtype) for k, shape, dtype in self.places]))

    def _written(self, step: Step, args: Sequence[str], place: str | None) -> str:
        """The source of a step with this memory for its result."""
        if step.kind not in (LOOP, MEMORY):
            return expression(self.w, step, args, self.block.values, place)
        if place is None:
            shape, dtype = self.block.values[step.result]
            place = f"{self.w.name(np.empty, 'f')}({shape}, {self.w.name(dtype)})"
        return place if step.kind == MEMORY else (
            f"{self.w.name(step.function, 'f')}({', '.join([*args, place])})")

    def _release(self, root: int) -> None:
        """Free the memory of this root, whose live range has ended."""
        if root in self.held:
            self.free.append(self.held.pop(root))
        elif root in self.occupied:
            self.occupied[self.occupied.index(root)] = None
