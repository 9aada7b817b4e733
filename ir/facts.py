"""Facts about ops that passes, executors and cost models query: `CHEAP in op.facts`.

An op's declaration lists them (`facts=` of `defop`), so no stage keeps a list of op names.
"""
from __future__ import annotations

from collections.abc import Iterable

IDENTITY = "identity"
"""Each result is the operand at its place, under other claims, in another space, or to be kept."""

BITCAST = "bitcast"
"""The result has the bytes of the operand, in their order."""

VIEW = "view"
"""The result shares the memory of the operand, in most layouts of arrays."""

CHEAP = "cheap"
"""Takes about as long as it takes to read the operands from memory, and may be computed twice."""

EXACT = "exact"
"""Element by element, the same for one number and for many, to the last bit."""

TRANSCENDENTAL = "transcendental"
"""Counted apart from other arithmetic, as processors compute it on units of their own."""

GENERATED = "generated"
"""The result is computed where it is read, from indices or from a smaller operand."""

REARRANGED = "rearranged"
"""The result has elements of the operands, or fill, at other places."""

IN_PLACE = "in place"
"""The result may take the memory of an operand, though it is not computed element by element."""

FRESH = "fresh"
"""The result lies in memory of its own."""

TAKEN = "taken"
"""The result is a part of the first operand, which part its other operands and params say."""

PERMUTED = "permuted"
"""The result is the operand with its dimensions in another order: that of `permutation`."""

READS_FUSED = "reads fused"
"""Runs in one kernel with what computes its operands, as elementwise ops and reductions do."""

BRANCHES = "branches"
"""Runs one of the programs that it holds; other ops run all of theirs."""

PER_DEVICE = "per device"
"""The program that it holds is that of one device, and sees its blocks."""

POSITION = "position"
"""The result is the device's position along mesh axes, those of `axis_name`."""

LAYOUT = "layout"
"""Says how its operand is laid out, and computes nothing."""

SPLICED = "spliced"
"""Which operand an element comes from, or whether it is fill, depends on its place."""

BY_PLACE = "by place"
"""Elements depend on their places in the array, so that those of a longer one are others."""

REPEATS = "repeats"
"""Along dimensions that no operand has, the operand is repeated."""

UNEVEN = "uneven"
"""A dimension of the result has more or fewer rows than that of the operand it comes from, so that
axes may divide only one of them; or its layout is given, whether axes divide it or not."""

_IMPLIED = {IDENTITY: (BITCAST, VIEW), BITCAST: (VIEW,)}
_KNOWN = frozenset((IDENTITY, BITCAST, VIEW, CHEAP, EXACT, TRANSCENDENTAL, GENERATED, REARRANGED,
                    IN_PLACE, FRESH, TAKEN, PERMUTED, READS_FUSED, BRANCHES, PER_DEVICE,
                    POSITION, LAYOUT, SPLICED, BY_PLACE, REPEATS, UNEVEN))


def facts_of(named: Iterable[str]) -> frozenset[str]:
    """These facts and what they imply. Raises ValueError for an unknown one."""
    found = frozenset(named)
    if not found <= _KNOWN:
        raise ValueError(f"facts {sorted(found - _KNOWN)}: known ones are {sorted(_KNOWN)}")
    return found.union(*[_IMPLIED.get(fact, ()) for fact in found])
