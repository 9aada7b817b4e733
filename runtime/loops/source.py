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

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.kernels.dynamic_slices import clamped
from ..calls.rows import SliceAt, is_written
from ..layout import Reshaped
from ..plans import plan as plans
from ..plans.generated import Lines, Writer, inline
from ..plans.plan import Plan
from .precomputed import Precomputed, all_counts, counted, with_rank


def _unpack(w: Writer, lines: Lines, slots: Sequence[int], source: str) -> None:
    """What a loop is given, by slot."""
    if not slots:
        return
    w.line(f"{lines.unpack(slots)}= {source}")
    for s in slots:
        if s in lines.used:                             # carried, and written over
            w.line(f"{lines.slot(s)} = {lines.slot(s)}.copy('K')")


def _carried(w: Writer, lines: Lines, carry: Sequence[int], outputs: Sequence[int],
             ended: Sequence[int], steps: Mapping[int, Any]) -> None:
    """Let what came out go into the next iteration. ended: other slots that nobody reads now."""
    moved = [(x, o) for x, o in zip(carry, outputs, strict=True)
             if x != o and x not in steps]
    if moved:
        names = [(lines.slot(x), lines.slot(o)) for x, o in moved]
        w.line(f"{', '.join([to for to, _ in names])}, = {', '.join([of for _, of in names])},")
    gone = {*(o for _, o in moved), *ended}.difference(carry, lines.fixed)
    if not moved:
        w.line("pass")
    lines.drop(sorted(gone))


def _returned(lines: Lines, carry: Sequence[int]) -> str:
    return f"return [{', '.join(map(lines.slot, carry))}]"


def scan_function(plan: Plan, head: int, carry: int, each: int, copied: Sequence[int],
                  scalars: Sequence[int], length: int) -> Callable[..., list[Any]] | None:
    """The function of fixed arguments, what is made of them, carry, order, items, places, and of
    those items that are scalars the arrays of all.

    head, carry, each: how many inputs of the body are of these kinds; the rest is what was made
    before. copied: numbers of outputs that go to places. scalars: numbers of items that are
    scalars. length: how many iterations there are. None if the body is too long.
    """
    if len(plan.calls) >= plans.LONG:
        return None
    inputs = list(plan.inputs)
    fixed, carried = inputs[:head], inputs[head:head + carry]
    items, made = inputs[head + carry:head + carry + each], inputs[head + carry + each:]
    w = Writer()
    precomputed = Precomputed(plan, [*fixed, *made], carried, [items[n] for n in scalars],
                        length)
    lines = Lines(w, precomputed.calls, plan.outputs, plan.constants, "v", [*fixed, *made],
                  carried)
    for slots, source in ((fixed, "head"), (made, "made"), (carried, "carry")):
        _unpack(w, lines, slots, source)
    if copied:
        w.line("".join(f"y{n}, " for n in copied) + "= places")
    _write_ahead(w, lines, precomputed, {items[n]: k for k, n in enumerate(scalars)})
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
             precomputed.steps)
    w.indent = w.indent[:-4]
    for x, step in precomputed.steps.items():       # what counters came to
        w.line(f"{lines.slot(x)} = {w.name(counted, 'f')}({lines.slot(x)}, len(order), "
               f"{w.name(step)})")
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
        inline(w, call.kernel.recording, operands, f"u{call.outputs[0]}", call.eqn)


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


def while_function(test: Plan, body: Plan, before: int, head: int, carry: int
                   ) -> Callable[..., list[Any]] | None:
    """The function of fixed arguments of test and body, what is made before, and the carry.

    before, head: how many fixed arguments the test has, and the body. The body runs first, and
    then again for as long as the test holds. None if they are too long.
    """
    if len(test.calls) + len(body.calls) >= plans.LONG:
        return None
    asked, fixed = list(test.inputs), list(body.inputs)
    w = Writer()
    carried, made = fixed[head:head + carry], fixed[head + carry:]
    lines = Lines(w, body.calls, body.outputs, body.constants, "v", [*fixed[:head], *made],
                  carried)
    asking = Lines(w, test.calls, test.outputs, test.constants, "u", asked[:before])
    for owner, slots, source in ((asking, asked[:before], "asked"), (lines, fixed[:head], "head"),
                                 (lines, made, "made"), (lines, carried, "carry")):
        _unpack(w, owner, slots, source)
    w.line("while True:")
    w.indent += "    "
    lines.write()
    _carried(w, lines, carried, body.outputs, (), {})
    if carried:
        w.line(f"{asking.unpack(asked[before:])}= {lines.unpack(carried)}")
    asking.write()
    w.line(f"if not {asking.slot(test.outputs[0])}: break")
    left = [s for s in asked[before:] if s not in asking.constants]
    if left:
        w.line(" = ".join(map(asking.slot, left)) + " = None")
    w.indent = w.indent[:-4]
    w.line(_returned(lines, carried))
    return w.function("asked, head, made, carry")
