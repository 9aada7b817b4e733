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

How a group is evaluated is in runtime/plans/blocked.py. Here is decided which calls are one.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.kernels.elementwise.selection import is_zero
from ...ir.support.disjoint_sets import DisjointSets
from ..calls.call import Call, new_call, read_counts
from ..calls.symbolic import Kernel
from .blocked import BLOCK, Blocked, best_rows, is_one_step
from .tiling import Form, cuts, total_of

LARGE = BLOCK + 1               # elements from which a value is worth splitting into blocks
MOST = 64                       # calls in one group, at most
SINGLE = 4                      # times LARGE: a lone numpy call is split from this size on


class _Group:
    """Calls to be fused. rows: the numbers of rows into which all of them can be split. zeros:
    slots of the number zero.
    """

    def __init__(self, zeros: set[int]) -> None:
        self.zeros = zeros
        self.calls: list[Call] = []
        self.rows: list[int] = []
        self.made = set[int]()
        self.totals = set[int]()            # of these, which are complete after the last block

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
        parts = DisjointSets[int]()
        for call in self.calls:
            sizes = call.kernel.sizes           # type: ignore[union-attr]
            parts.join(call.outputs[0], *[s for s, size in zip(call.inputs, sizes, strict=False)
                                          if s in self.made or size >= LARGE])
        found: dict[int, list[Call]] = {}
        for call in self.calls:
            found.setdefault(parts.of(call.outputs[0]), []).append(call)
        return [one for part in found.values() for i in range(0, len(part), MOST)
                for one in _as_one(part[i:i + MOST], self.rows, readers, self.zeros)]


def fused(calls: Sequence[Call], outputs: Sequence[int], constants: Mapping[int, Any]
          ) -> list[Call]:
    """The calls, with those on large arrays fused; `outputs` are the slots read at the end.

    Members of a group need not be neighbours. A call between them that does not depend on the group
    moves before it; one that makes something small of its results, such as of a sum over the rows,
    moves after it.
    """
    readers = read_counts(calls, outputs)
    out: list[Call] = []
    zeros = {s for s, x in constants.items() if is_zero(x)}
    group = _Group(zeros)
    behind: list[Call] = []
    deferred: set[int] = set()              # slots that calls of `behind` write
    known = set(constants)

    def end() -> None:
        nonlocal group
        out.extend((*group.fused(readers), *behind))
        group = _Group(zeros)
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


def _as_one(calls: Sequence[Call], rows: Sequence[int], readers: Any, zeros: set[int]
            ) -> list[Call]:
    """The fused call of a group, followed by those of its results that are views of others."""
    inside = read_counts(calls)
    needed = {s for call in calls for s in call.outputs if readers[s] > inside[s]}
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
    if not computed or is_one_step(computed) and (
            large < SINGLE * LARGE or total_of(computed[0].recording, rows[0])):  # type: ignore
        return list(calls)
    return [_fused(needed_calls, needed, best_rows(rows, computed), zeros), *views]


def _fused(calls: Sequence[Call], needed: set[int], rows: int, zeros: set[int]) -> Call:
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
                       rows, tuple([n for (s, _), n in operands.items() if s in zeros]))
    return new_call((function, tuple([s for s, _ in operands]), tuple(results), True, None, None,
                     False))
