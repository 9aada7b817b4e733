"""Waste in a partitioned program: for each kind how much, at which line, and what to do about it.

    silent-replication   an unplaced array is held whole on every device
    padding              a dimension was padded so that its axes divide it
    redundant-compute    several devices compute the same equation on the same values
    idle-axis            a mesh axis splits nothing at all
    gather-then-slice    all readers of a gathered value slice it again
    repeated-gather      the same value is gathered several times
    loop-invariant       a collective in a loop has the same operand in every iteration

A warning is given if the waste is at least a hundredth of the program's bytes or operations
(`LEAST`); some kinds are always reported.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

from ..analysis import Analysis
from .equations import gathers, invariant, redundant
from .layouts import dropped_constraints, idle_axes, padding, silent_replication
from .waste import Waste

KINDS = ("idle-axis", "silent-replication", "padding", "redundant-compute", "gather-then-slice",
         "repeated-gather", "loop-invariant")

_SEARCHES = (silent_replication, dropped_constraints, padding, idle_axes, redundant, gathers,
             invariant)


def warnings_of(e: Analysis) -> tuple[Waste, ...]:
    """The warnings of an explained program, the largest of each kind first."""
    found = [waste for search in _SEARCHES for waste in found_by(search, e)]
    return tuple(sorted(found, key=lambda w: (
        KINDS.index(w.kind), -w.wasted_bytes, -w.wasted_flops)))


def found_by(search: Callable[[Analysis], Iterator[Waste]], e: Analysis) -> tuple[Waste, ...]:
    """What one search finds, which is made once."""
    found = e.known_warnings.get(search.__name__)
    if found is None:
        found = e.known_warnings[search.__name__] = tuple(search(e))
    return found
