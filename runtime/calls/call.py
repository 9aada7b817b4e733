"""Calls: the elements of a plan, each with the slots that it reads and writes."""
from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from ...ir.program import Equation
from ...ir.support.named_tuple import NamedTuple
from .symbolic import Kernel, Recording

Function = Callable[..., Any]
_INPUTS, _KERNEL = itemgetter(1), itemgetter(5)


class Call(NamedTuple):
    """A call of a plan: the slots that it reads and writes, and the equation it comes from.

    kernel: how its one result is computed, if it has one. changes: whether it writes to operands.
    """
    function: Function
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    several: bool                   # the function returns a list, even of one
    eqn: Equation | None
    kernel: Kernel | None = None
    changes: bool = False

    @property
    def recording(self) -> Recording | None:
        """The numpy calls that it makes, if they are known."""
        return None if self.kernel is None or self.several else self.kernel.recording


def read_counts(calls: Iterable[Call], outputs: Iterable[int] = ()) -> Counter[int]:
    """How often each slot is read, by calls or as an output."""
    return Counter(chain(chain.from_iterable(map(_INPUTS, calls)), outputs))


def last_reads(calls: Sequence[Call], live: Iterable[int]) -> list[tuple[int, ...]]:
    """For each call the slots whose live range ends with it. live: those read at the end."""
    seen = set(live)
    dead: list[tuple[int, ...]] = []
    for _, read, made, _, _, _, _ in reversed(calls):
        last: tuple[int, ...] = ()
        for s in (*read, *made):
            if s not in seen:
                seen.add(s)
                last += (s,)
        dead.append(last)
    dead.reverse()
    return dead


def without_unread(calls: Sequence[Call], outputs: Iterable[int]) -> list[Call]:
    """The calls without those whose result is never read."""
    read = set(outputs)
    live: list[Call] = []
    for call in reversed(calls):
        if call.several or not read.isdisjoint(call.outputs):
            live.append(call)
            read.update(call.inputs)
    live.reverse()
    return live


def kernels(calls: Iterable[Call]) -> set[Kernel]:
    """The distinct kernels of these calls."""
    found = set(map(_KERNEL, calls))
    found.discard(None)
    return found


new_call: Callable[[tuple], Call] = functools.partial(tuple.__new__, Call)
"""`Call` from a tuple of its seven fields, in a third of the time."""
