"""Tiling of a call: into which numbers of independent rows its operands and result can be split.

For `x.sum(-1)` with x [4096, 1024], a block holds `Form(True, (1024,))` of the operand and
`Form(True, ())` of the result: some number of rows, each of that shape. An operand that is the same
for all rows, such as a bias, is passed whole. `x.sum(0)` gives a total, `Form(False, (1024,))` for
each block, and what all blocks give is reduced once more.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Shape
from ..calls.symbolic import (
    BITS,
    CALL,
    CAST,
    NOT_ASKED,
    REDUCE,
    REPEAT,
    RESHAPE,
    WHERE,
    Kernel,
    Recording,
    Step,
)

LONGEST_ROW = 1 << 16           # elements of a row, at most


class Form(NamedTuple):
    """What a block holds of a value: some rows of this shape (is_rows), or one array of this shape:
    the same for every block, or what a block contributes to a total.
    """
    is_rows: bool
    shape: Shape

    def of(self, rows: int) -> Shape:
        """The shape of the value in a block of `rows` rows."""
        return (rows, *self.shape) if self.is_rows else self.shape


Forms = tuple[Form | None, ...]         # one for each value of a recording; None if it is not read


def leading(shape: Shape, rows: int) -> int:
    """How many leading dimensions have `rows` elements together; 0 if no number of them does.

    >>> from shardtrace.runtime.plans.tiling import leading
    >>> leading((4, 8, 3), 32), leading((32,), 32), leading((4, 6), 8)
    (2, 1, 0)
    """
    count = 1
    for d, n in enumerate(shape):
        count *= n
        if count == rows:
            return d + 1
    return 0


def _by_rows(shape: Shape, rows: int) -> Form | None:
    k = leading(shape, rows)
    return Form(True, shape[k:]) if k else None


def _broadcast(shape: Shape, out: Shape, rows: int) -> Form | None:
    """The form of an operand that numpy broadcasts to the shape `out`."""
    k = leading(out, rows)
    if not shape or len(shape) != len(out):
        return None if shape else Form(False, ())
    if shape[:k] == out[:k]:
        return Form(True, shape[k:])
    return Form(False, (1, *shape[k:])) if all([n == 1 for n in shape[:k]]) else None


def forms_of(recording: Recording, rows: int) -> Forms | None:
    """What a block of rows holds of each value, worked out from the result backwards; None if the
    call cannot be split into `rows` rows.
    """
    values = recording.values
    forms: list[Form | None] = [None] * len(values)

    def ask(v: Any, form: Form) -> bool:
        if type(v) is not int:                  # a constant
            return True
        if forms[v] is None:
            forms[v] = form
        return forms[v] == form

    total = total_of(recording, rows)
    shape = values[recording.result][0]
    whole = Form(False, shape) if total else _by_rows(shape, rows)
    if whole is None:
        return None
    forms[recording.result] = whole
    for step in reversed(recording.steps):
        out, shape = forms[step.result], values[step.result][0]
        if out is None:
            return None
        for v in step.operands:
            if type(v) is not int:
                continue
            given, form = values[v][0], None
            if step.kind in (CALL, WHERE, CAST, BITS, REPEAT):
                form = (_broadcast(given, shape, rows) if out.is_rows
                        else out if given == shape else None)
            elif step.kind == RESHAPE:
                form = _by_rows(given, rows) if out.is_rows else Form(False, given)
            elif step is total or (step.kind == REDUCE and out.is_rows
                                   and leading(given, rows) <= min(step.axes)):
                form = _by_rows(given, rows)
            if form is None or not ask(v, form):
                return None
    return tuple(forms)


def total_of(recording: Recording | None, rows: int) -> Step | None:
    """The reduction, of all rows, that gives the result; None if none does."""
    if not recording or not recording.steps:
        return None
    last = recording.steps[-1]
    if last.kind != REDUCE or last.result != recording.result:
        return None
    k = leading(recording.values[last.operands[0]][0], rows)
    return last if k and {*range(k)}.issubset(last.axes) else None


class Cuts:
    """How the call of a kernel can be split into rows.

    forms: by number of rows, the forms of its values. is_view: it computes nothing. several:
    threads may share it.
    """

    __slots__ = ("_recording", "forms", "is_view", "several")

    def __init__(self, kernel: Kernel) -> None:
        self._recording = recording = kernel.recording
        self.forms: dict[int, Forms] = {}
        self.is_view = recording is not None and recording.is_view
        steps = () if recording is None else recording.steps
        # A function that is no ufunc makes many short calls, and threads would wait between them.
        self.several = not any([hasattr(step.function, "elementwise") for step in steps])
        if recording is None:
            return
        widest = max(recording.values, key=lambda value: math.prod(value[0]))[0]
        for k in range(1, len(widest) + 1):
            rows = math.prod(widest[:k])
            if rows > 1 and kernel.elements <= rows * LONGEST_ROW and rows not in self.forms:
                forms = forms_of(recording, rows)
                if forms is not None:
                    self.forms[rows] = forms

    def loop(self, rows: int) -> float:
        """Elements of the shortest row along which numpy repeats an operand; 0 where it converts
        one.
        """
        return min(self._repeated_rows(self.forms[rows]), default=math.inf)

    def _repeated_rows(self, forms: Forms) -> Iterator[int]:
        assert self._recording is not None
        values = self._recording.values
        for step in self._recording.steps:
            form, given = forms[step.result], [v for v in step.operands if type(v) is int]
            if step.kind == REPEAT or step.kind == CALL and any(
                    [forms[v] != form and values[v][0] for v in given]):
                yield form.shape[-1] if form is not None and form.shape else 0
            elif step.kind == REDUCE and values[given[0]][1] != values[step.result][1]:
                yield 0


def cuts(kernel: Kernel) -> Cuts:
    if kernel.cut is NOT_ASKED:
        kernel.cut = Cuts(kernel)
    return kernel.cut
