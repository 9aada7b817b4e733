"""Loops written out as source: the body's calls inside a Python `for` or `while`.

An iteration on small arrays then costs the numpy calls of its body, with no function call and no
lists of operands and results. The first few iterations are run call by call.

    def run(head, carry, order, each, places):
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

from collections.abc import Callable, Sequence
from typing import Any

from .generated import Lines, Writer
from .plan import Plan


def _unpack(w: Writer, lines: Lines, slots: Sequence[int], source: str) -> None:
    """Write what gives the slots their first values: copies of what will be overwritten."""
    if not slots:
        return
    w.line(f"{lines.unpack(slots)}= {source}")
    for s in slots:
        if s in lines.used:                             # carried, and written over
            w.line(f"{lines.slot(s)} = {lines.slot(s)}.copy('K')")


def _carried(w: Writer, lines: Lines, carry: Sequence[int], outputs: Sequence[int],
             ended: Sequence[int]) -> None:
    """Write what makes the outputs the next carry. ended: other slots that end here."""
    moved = [(x, o) for x, o in zip(carry, outputs, strict=True)
             if x != o]
    if moved:
        names = [(lines.slot(x), lines.slot(o)) for x, o in moved]
        w.line(f"{', '.join([to for to, _ in names])}, = {', '.join([of for _, of in names])},")
    gone = {*(o for _, o in moved), *ended}.difference(carry, lines.fixed)
    if not moved:
        w.line("pass")
    lines.drop(sorted(gone))


def _returned(lines: Lines, carry: Sequence[int]) -> str:
    return f"return [{', '.join(map(lines.slot, carry))}]"


def scan_function(plan: Plan, head: int, carry: int, copied: Sequence[int]
                  ) -> Callable[..., list[Any]]:
    """The loop of a scan as a function of (fixed arguments, carry, order, items, stacks).

    head, carry: how many inputs of the body are of these kinds; the rest are items. copied:
    positions of the outputs that are stored in the stacks.
    """
    inputs = list(plan.inputs)
    fixed, carried = inputs[:head], inputs[head:head + carry]
    items = inputs[head + carry:]
    w = Writer()
    lines = Lines(w, plan, "v", fixed, carried)
    for slots, source in ((fixed, "head"), (carried, "carry")):
        _unpack(w, lines, slots, source)
    if copied:
        w.line("".join(f"y{n}, " for n in copied) + "= places")
    w.line(f"for i, {f'({lines.unpack(items)})' if items else '_'} in zip(order, each):")
    w.indent += "    "
    lines.write()
    for n in copied:
        w.line(f"y{n}[i] = {lines.slot(plan.outputs[n])}")
    _carried(w, lines, carried, plan.outputs[:carry], [plan.outputs[n] for n in copied])
    w.indent = w.indent[:-4]
    w.line(_returned(lines, carried))
    return w.function("head, carry, order, each, places")


def while_function(test: Plan, body: Plan, before: int, head: int
                   ) -> Callable[..., list[Any]]:
    """The loop of a `while` as a function of (fixed arguments of the test, of the body, carry).

    before, head: how many fixed arguments the test and the body have. The body runs first, and then
    again for as long as the test holds.
    """
    asked, fixed = list(test.inputs), list(body.inputs)
    w = Writer()
    carried = fixed[head:]
    lines = Lines(w, body, "v", fixed[:head], carried)
    asking = Lines(w, test, "u", asked[:before])
    for owner, slots, source in ((asking, asked[:before], "asked"), (lines, fixed[:head], "head"),
                                 (lines, carried, "carry")):
        _unpack(w, owner, slots, source)
    w.line("while True:")
    w.indent += "    "
    lines.write()
    _carried(w, lines, carried, body.outputs, ())
    if carried:
        w.line(f"{asking.unpack(asked[before:])}= {lines.unpack(carried)}")
    asking.write()
    w.line(f"if not {asking.slot(test.outputs[0])}: break")
    left = [s for s in asked[before:] if s not in asking.constants]
    if left:
        w.line(" = ".join(map(asking.slot, left)) + " = None")
    w.indent = w.indent[:-4]
    w.line(_returned(lines, carried))
    return w.function("asked, head, carry")
