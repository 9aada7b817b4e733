"""Memory of the small arrays that a loop's body computes, taken once and used in every iteration.

numpy gives each result memory of its own, wherever there is some. A loop of a thousand iterations
needs no more than a few arrays: the result of a step may lie where a value was that nobody reads
any more. What is carried is copied before the first iteration, and then belongs to the loop like
all the rest. So the arrays stay in the nearest cache, and all of them begin where a cache line
does: elsewhere an operation on 16 KB takes half as long again.

numpy lets a result lie as its operands do. What is given here lies in row-major order, and so a
result is written to it where all that it is computed from lies so: sums are then added up in the
same order whether a loop is written out or not.

    v2 = own_copy(v2, (4096,), float32)     # carried
    b0 = room((4096,), float32)
    for ...:
        v5 = f0(v2, v0, v2)             # numpy.multiply: nobody reads v2 later
        v8 = f1(v5, v7, out=v2)
        v9 = f2(v8, b0)                 # v8 is read again
        ...
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from ...ir.support.buffer_pool import ALIGNED, at_line, empty
from ..calls.call import Call
from ..calls.ownership import FEWEST
from ..calls.recording import CALL, INDEX, TRANSPOSE
from ..plans.destinations import is_fresh
from ..plans.generated import recording_of

MOST = 1 << 16                  # bytes; larger arrays are computed block by block
SHORTEST = 8                    # iterations for which it pays

Key = tuple[tuple[int, ...], np.dtype]


class Buffers:
    """Where the results of a body's calls are written.

    carry: slots that are the first outputs of the iteration before; of other outputs nothing is
    kept but copies. constants: values of slots. implied: results that are not made as recorded.

    into: by slot of a result, the name of the memory it is written to. own: what is carried and
    written over, by slot, and what it is. rooms: what the other buffers are like, in order.
    moves: at the end of an iteration, what these and their memory are called.
    """

    def __init__(self, calls: Sequence[Call], dead: Sequence[tuple[int, ...]],
                 carry: Sequence[int], outputs: Sequence[int], constants: Mapping[int, Any],
                 implied: Set[int], letter: str) -> None:
        self.into: dict[int, str] = {}
        self.own: dict[int, Key] = {}
        self.rooms: list[Key] = []
        self.moves: list[tuple[str, str]] = []
        after = dict(zip(carry, outputs, strict=False))
        turned = _turned(calls, after, constants)
        roots: dict[int, Key] = {}
        for call in calls:
            key = _writable(call) if turned.isdisjoint((*call.inputs, *call.outputs)) else None
            if key is not None and constants.keys().isdisjoint(call.outputs) and (
                    implied.isdisjoint(call.outputs)):
                roots[call.outputs[0]] = key
        if roots:
            self._settle(calls, after, roots)
            self._allot(calls, dead, roots, after, letter)

    def _settle(self, calls: Sequence[Call], after: Mapping[int, int], roots: dict[int, Key]
                ) -> None:
        """Keep of the roots, and of what is carried, what nobody else has when an iteration ends.
        """
        own: dict[int, Key] = {}
        times = Counter(after.values())
        for x in after:
            key = _key_of(x, after, roots)
            if key is not None:
                own[x] = key
        while True:
            seen = _aliases(calls, {*roots, *own})
            lost: set[int] = set()
            for x, o in after.items():
                if x not in own:
                    lost |= seen.get(o, _NOBODY)
                elif o not in roots and o not in own or times[o] > 1:
                    lost |= {x, *seen.get(o, _NOBODY)}
            if lost.isdisjoint(roots) and lost.isdisjoint(own):
                break
            for s in lost:
                roots.pop(s, None)
                own.pop(s, None)
        self.own = own

    def _allot(self, calls: Sequence[Call], dead: Sequence[tuple[int, ...]], roots: dict[int, Key],
               after: Mapping[int, int], letter: str) -> None:
        """Choose memory for each root: of a value that is not read any more, or other."""
        seen = _aliases(calls, {*roots, *self.own})
        at = {x: f"{letter}{x}" for x in self.own}      # memory by what it is called at first
        keys = {at[x]: key for x, key in self.own.items()}
        holders = {x: {x} for x in self.own}            # who still shows a value's memory
        free: dict[Key, list[str]] = {}
        for call, ends in zip(calls, dead, strict=True):
            for s in call.outputs:
                for v in seen.get(s, _NOBODY):
                    holders.setdefault(v, set()).add(s)
            o = call.outputs[0] if call.outputs else None
            if o in roots:
                key = roots[o]
                dying = _written_over(call, ends, holders, at, keys, key)
                if dying is not None:
                    at[o] = at.pop(dying)
                    del holders[dying]
                elif free.get(key):
                    at[o] = free[key].pop()
                else:
                    at[o] = f"b{len(self.rooms)}"
                    keys[at[o]] = key
                    self.rooms.append(key)
                self.into[o] = at[o]
            for s in ends:
                for v in seen.get(s, _NOBODY):
                    if v in holders:
                        holders[v].discard(s)
                        if not holders[v]:
                            del holders[v]
                            memory = at.pop(v)
                            free.setdefault(keys[memory], []).append(memory)
        taken = {at[after[x]] for x in self.own}
        for key in dict.fromkeys(self.rooms):
            names = [f"b{j}" for j, k in enumerate(self.rooms) if k == key]
            left = [m for m, k in keys.items() if k == key and m not in taken]
            self.moves += zip([b for b in names if b in taken],
                              [m for m in left if m not in names], strict=True)


_NOBODY: frozenset[int] = frozenset()


def _turned(calls: Sequence[Call], after: Mapping[int, int], constants: Mapping[int, Any]
            ) -> set[int]:
    """The slots of arrays that may lie in another than row-major order, if none that is given does.
    """
    found = {s for s, x in constants.items() if not lies_in_order(x)}
    while True:
        for call in calls:
            if not _keeps_order(call, found):
                found.update(call.outputs)
        more = {x for x, o in after.items() if o in found} - found
        if not more:
            return found
        found |= more


def _keeps_order(call: Call, turned: Set[int]) -> bool:
    """Does the result lie in row-major order?"""
    kernel, recording = call.kernel, recording_of(call)
    if kernel is not None and sum([n > 1 for n in kernel.shapes[-1]]) < 2 or (
            hasattr(call.function, "into")):
        return True
    if call.changes:                            # the result lies where one of these does
        return turned.isdisjoint(call.inputs)
    return recording is not None and turned.isdisjoint(call.inputs) and all(
        [step.kind != TRANSPOSE and (step.kind != INDEX or all(map(_goes_up, step.function)))
         for step in recording.steps])


def _goes_up(index: Any) -> bool:
    return type(index) is not slice or index.step is None or index.step > 0


def lies_in_order(x: Any) -> bool:
    """Is x an array in row-major order, or one with no other?"""
    return isinstance(x, (np.ndarray, np.generic)) and (x.ndim < 2 or x.flags.c_contiguous)


def _writable(call: Call) -> Key | None:
    """Of a result that can be written to memory that is given, what it is."""
    recording = recording_of(call)
    if recording is None or not recording.steps:
        return None
    step, (shape, dtype) = recording.steps[-1], recording.values[recording.result]
    if step.kind != CALL or step.result != recording.result or not shape or (
            dtype.isbuiltin != 1 or dtype.hasobject):
        return None
    return (shape, dtype) if FEWEST <= math.prod(shape) * dtype.itemsize <= MOST else None


def _key_of(x: int, after: Mapping[int, int], roots: Mapping[int, Key]) -> Key | None:
    """What is carried as x, if it is always a root's, or another one carried of which that holds.
    """
    met = set()
    while x in after and x not in met:
        met.add(x)
        x = after[x]
    return roots.get(x)


def _aliases(calls: Sequence[Call], values: set[int]) -> dict[int, frozenset[int]]:
    """By slot, of which values it may show the memory."""
    seen = {v: frozenset((v,)) for v in values}
    for call in calls:
        if not call.changes and is_fresh(call):
            continue
        held = _NOBODY.union(*[seen.get(s, _NOBODY) for s in call.inputs])
        for s in call.outputs:
            if held and s not in values:
                seen[s] = held
    return seen


def _written_over(call: Call, ends: Sequence[int], holders: Mapping[int, set[int]],
                  at: Mapping[int, str], keys: Mapping[str, Key], key: Key) -> int | None:
    """An operand whose memory may take the result: nobody else shows it, or will read it."""
    recording = recording_of(call)
    if recording is None or len(recording.steps) != 1:
        return None
    return next((s for s in call.inputs if s in ends and s in at and keys[at[s]] == key
                 and holders[s] == {s}), None)


def room(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """A new array that begins where a cache line does."""
    size = math.prod(shape) * dtype.itemsize
    return empty(shape, dtype) if size >= ALIGNED else at_line(size).view(dtype).reshape(shape)


def own_copy(x: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """A copy of x in such an array."""
    new = room(shape, dtype)
    np.copyto(new, x)
    return new
