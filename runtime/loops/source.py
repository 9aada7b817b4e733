"""Loops written out as source: the calls of the body stand in a `for` or `while` of Python.

So an iteration on small arrays costs the numpy calls of its body, and neither a call of a function
nor lists of what goes in and comes out. A loop is written out after a few iterations, for which
its body is followed call by call.

    def run(head, made, carry, order, each, places):
        try:
            v0, = head
            v1, v2, = carry
            y0, = places
            for i, (v3,) in zip(order, each):
                v4 = f0(v1, v3)             # numpy.add
                y0[i] = v4
                v1, v2, = v2, v4; v4 = None
            return [v1, v2]
        ...
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.kernels.dynamic_slices import clamped
from ..calls.rows import SliceAt, is_written
from ..layout import Reshaped
from ..plans import plan as plans
from ..plans.generated import Lines, Writer, inline, recording_of
from ..plans.plan import Plan
from .buffers import Buffers, own_copy, room
from .precomputed import Precomputed, added, all_counts, counted, with_rank


class _Counters:
    """Carried integers that only count iterations: `i + 1`, which nobody else reads.

    They are not counted one by one, but said when the loop is over. read: slots that are not to be
    left alone, for another reason.
    """

    def __init__(self, plan: Plan, carry: Sequence[int], read: Sequence[int] = ()) -> None:
        readers = Counter(s for call in plan.calls for s in call.inputs)
        readers.update((*plan.outputs, *read))
        by_result = {call.outputs[0]: call for call in plan.calls if len(call.outputs) == 1}
        self.steps: dict[int, Any] = {}             # what is added, by slot of the carry
        gone: set[int] = set()
        for x, o in zip(carry, plan.outputs, strict=False):
            step = added(by_result.get(o), x, plan.constants)
            if step is not None and readers[x] == readers[o] == 1:
                self.steps[x] = step
                gone.add(o)
        kept = [(call, ends) for call, ends in zip(plan.calls, plan.dead, strict=True)
                if gone.isdisjoint(call.outputs)]
        self.calls = [call for call, _ in kept]
        self.dead = [ends for _, ends in kept]

    def finish(self, w: Writer, lines: Lines, times: str) -> None:
        _finish(self.steps, w, lines, times)


def _finish(steps: dict[int, Any], w: Writer, lines: Lines, times: str) -> None:
    """Say what counters came to. steps: what an iteration adds, by slot."""
    for x, step in steps.items():
        w.line(f"{lines.slot(x)} = {w.name(counted, 'f')}({lines.slot(x)}, {times}, "
               f"{w.name(step)})")


def _unpack(w: Writer, lines: Lines, slots: Sequence[int], source: str) -> None:
    """What a loop is given, by slot; as numbers what is reckoned with as such."""
    if not slots:
        return
    w.line(f"{lines.unpack(slots)}= {source}")
    numbers: set[int] = set()
    for call in lines.calls:
        recording = recording_of(call)
        if recording is not None and not any([shape for shape, _ in recording.values]):
            numbers.update(call.inputs)
    for s in slots:
        if s in numbers and s not in lines.constants:
            w.line(f"{lines.slot(s)} = {lines.slot(s)}[()]")


def _buffers(w: Writer, lines: Lines, carry: Sequence[int], outputs: Sequence[int]
             ) -> list[tuple[str, str]]:
    """Let the body's results be written to memory that is taken here, before the loop. Gives what
    is to be called otherwise when an iteration ends."""
    buffers = Buffers(lines.calls, lines.dead, carry, outputs, lines.constants, lines.implied,
                      lines.letter)
    lines.write_into(buffers.into, buffers.own)
    for x, (shape, dtype) in buffers.own.items():
        w.line(f"{lines.slot(x)} = {w.name(own_copy, 'f')}({lines.slot(x)}, {shape}, "
               f"{w.name(dtype)})")
    for j, (shape, dtype) in enumerate(buffers.rooms):
        w.line(f"b{j} = {w.name(room, 'f')}({shape}, {w.name(dtype)})")
    return buffers.moves


def _carried(w: Writer, lines: Lines, carry: Sequence[int], outputs: Sequence[int],
             ended: Sequence[int], steps: Mapping[int, Any], moves: Sequence[tuple[str, str]]
             ) -> None:
    """Let what came out go into the next iteration. ended: other slots that nobody reads now.
    moves: what else gets a name, and what it was called."""
    moved = [(x, o) for x, o in zip(carry, outputs, strict=True)
             if x != o and x not in steps]
    if moved:
        names = [(lines.slot(x), lines.slot(o)) for x, o in moved] + [*moves]
        w.line(f"{', '.join([to for to, _ in names])}, = {', '.join([of for _, of in names])},")
    gone = {*(o for _, o in moved), *ended}.difference(carry, lines.fixed)
    if not moved:
        w.line("pass")
    lines.drop(sorted(gone))


def _returned(lines: Lines, carry: Sequence[int]) -> str:
    return f"return [{', '.join(map(lines.slot, carry))}]"


def scan_function(plan: Plan, head: int, carry: int, each: int, copied: Sequence[int],
                  scalars: Sequence[int], length: int, buffered: bool
                  ) -> Callable[..., list[Any]] | None:
    """The function of fixed arguments, what is made of them, carry, order, items, places, and of
    those items that are scalars the arrays of all.

    head, carry, each: how many inputs of the body are of these kinds; the rest is what was made
    before. copied: numbers of outputs that go to places. scalars: numbers of items that are
    scalars. length: how many iterations there are. buffered: whether there is to be memory for the
    results (runtime/loops/buffers.py): then all that is given lies in row-major order. None if the
    body is too long.
    """
    if len(plan.calls) >= plans.LONG:
        return None
    inputs = list(plan.inputs)
    fixed, carried = inputs[:head], inputs[head:head + carry]
    items, made = inputs[head + carry:head + carry + each], inputs[head + carry + each:]
    w = Writer()
    precomputed = Precomputed(plan, [*fixed, *made], carried, [items[n] for n in scalars],
                        length)
    lines = Lines(w, precomputed.calls, precomputed.dead, plan.outputs, plan.constants, "v",
                  [*fixed, *made])
    for slots, source in ((fixed, "head"), (made, "made"), (carried, "carry")):
        _unpack(w, lines, slots, source)
    if copied:
        w.line("".join(f"y{n}, " for n in copied) + "= places")
    _write_ahead(w, lines, precomputed, {items[n]: k for k, n in enumerate(scalars)})
    moves = _buffers(w, lines, carried, plan.outputs) if buffered else []
    targets, sources = [f"({lines.unpack(items)})" if items else "_"], ["each"]
    given = _write_given(w, lines, precomputed, plan.outputs)
    if given:
        targets.append(f"({''.join([f'{name}, ' for name, _ in given])})")
        sources.append(f"zip({', '.join([values for _, values in given])})")
    w.line(f"for i, {', '.join(targets)} in zip(order, {', '.join(sources)}):")
    w.indent += "    "
    lines.write()
    for n in copied:
        w.line(f"y{n}[i] = {lines.slot(plan.outputs[n])}")
    _carried(w, lines, carried, plan.outputs[:carry], [plan.outputs[n] for n in copied],
             precomputed.steps, moves)
    w.indent = w.indent[:-4]
    _finish(precomputed.steps, w, lines, "len(order)")
    w.line(_returned(lines, carried))
    return w.function("head, made, carry, order, each, places, scalars")


def _write_ahead(w: Writer, lines: Lines, precomputed: Precomputed, numbers: Mapping[int, int]
                 ) -> None:
    """The calls for all iterations at once. numbers: of items, among the arrays of all scalars."""
    for s in precomputed.sources:
        if s in numbers:
            w.line(f"u{s} = scalars[{numbers[s]}]")
        else:
            w.line(f"u{s} = {w.name(all_counts, 'f')}({lines.slot(s)}, len(order), "
                   f"{w.name(precomputed.counters[s])})")
        if precomputed.rank:
            w.line(f"u{s} = {w.name(with_rank, 'f')}(u{s}, {precomputed.rank})")
    there = set(precomputed.sources)
    for call in precomputed.ahead:
        there.update(call.outputs)
        operands = [f"u{s}" if s in there else lines.slot(s) for s in call.inputs]
        if type(call.function) is SliceAt:
            w.line(f"u{call.outputs[0]} = {w.name(call.function.all, 'f')}({', '.join(operands)})",
                   call.eqn)
            continue
        if type(call.function) is Reshaped:
            w.line(f"u{call.outputs[0]} = {operands[0]}")
            continue
        assert call.kernel is not None and call.kernel.recording is not None
        inline(w, call.kernel.recording, operands, f"u{call.outputs[0]}", call.eqn, None, many=True)


def _write_given(w: Writer, lines: Lines, precomputed: Precomputed, outputs: Sequence[int]
                 ) -> list[tuple[str, str]]:
    """What iterations are given of what was computed for all: what it is called, and all of it.

    Where parts are taken or changed at it, it is a number of Python, which is inside.
    """
    starts: dict[int, set[int | None]] = {s: set() for s in precomputed.given}
    others = set(outputs)
    for call in precomputed.calls:
        known = call.function.starts() if is_written(call) else ()      # type: ignore
        places = {i for i, _ in known}
        for i, last in known:
            if call.inputs[i] in starts:
                starts[call.inputs[i]].add(last)
        others.update([s for i, s in enumerate(call.inputs) if i not in places])
    found: list[tuple[str, str]] = []
    for s, lasts in starts.items():
        if precomputed.rank:
            w.line(f"u{s} = u{s}.reshape({(-1, *precomputed.shapes.get(s, ()))})")
        if s in others or not lasts:
            found.append((lines.slot(s), f"u{s}"))
        else:
            lines.fixed.add(s)
        for last in lasts:
            name = lines.indices[s, last] = f"{lines.slot(s)}_{'' if last is None else last}"
            values = f"u{s}" if last is None else f"{w.name(clamped, 'f')}(u{s}, {last})"
            found.append((name, f"{values}.tolist()"))
    return found


def while_function(test: Plan, body: Plan, before: int, head: int, carry: int, buffered: bool
                   ) -> Callable[..., list[Any]] | None:
    """The function of fixed arguments of test and body, what is made before, and the carry.

    before, head: how many fixed arguments the test has, and the body. The body runs first, and
    then again for as long as the test holds. buffered: as above. None if they are too long.
    """
    if len(test.calls) + len(body.calls) >= plans.LONG:
        return None
    asked, fixed = list(test.inputs), list(body.inputs)
    w = Writer()
    carried, made = fixed[head:head + carry], fixed[head + carry:]
    used = {x for x, s in zip(carried, asked[before:], strict=True)
            if s in test.outputs or any(s in call.inputs for call in test.calls)}
    counters = _Counters(body, carried, list(used))
    lines = Lines(w, counters.calls, counters.dead, body.outputs, body.constants, "v",
                  [*fixed[:head], *made])
    asking = Lines(w, test.calls, test.dead, test.outputs, test.constants, "u", asked[:before])
    for owner, slots, source in ((asking, asked[:before], "asked"), (lines, fixed[:head], "head"),
                                 (lines, made, "made"), (lines, carried, "carry")):
        _unpack(w, owner, slots, source)
    moves = _buffers(w, lines, carried, body.outputs) if buffered else []
    if counters.steps:
        w.line("n = 0")
    w.line("while True:")
    w.indent += "    "
    lines.write()
    if counters.steps:
        w.line("n += 1")
    _carried(w, lines, carried, body.outputs, (), counters.steps, moves)
    if carried:
        w.line(f"{asking.unpack(asked[before:])}= {lines.unpack(carried)}")
    asking.write()
    w.line(f"if not {asking.slot(test.outputs[0])}: break")
    left = [s for s in asked[before:] if s not in asking.constants]
    if left:
        w.line(" = ".join(map(asking.slot, left)) + " = None")
    w.indent = w.indent[:-4]
    counters.finish(w, lines, "n")
    w.line(_returned(lines, carried))
    return w.function("asked, head, made, carry")
