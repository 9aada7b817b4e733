"""Waste in a partitioned program, each kind with its number, its line and what to do.

    silent-replication   an array that nobody placed is held whole on every device
    padding              a dimension that was padded so that its axes divide it
    redundant-compute    an equation that devices compute alike
    idle-axis            a mesh axis that splits nothing at all
    gather-then-slice    what is gathered is cut down again by all that read it
    repeated-gather      the same value is gathered several times
    loop-invariant       a collective in a loop whose operand is the same in every step

A warning is given from a hundredth of the program's bytes or operations upwards (`LEAST`), and for
what is waste in itself whatever its size.
"""
from __future__ import annotations

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
    if e.known_warnings is None:
        found = [waste for search in _SEARCHES for waste in search(e)]
        e.known_warnings = tuple(sorted(found, key=lambda w: (
            KINDS.index(w.kind), -w.wasted_bytes, -w.wasted_flops)))
    return e.known_warnings
