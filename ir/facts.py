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

PERMUTED = "permuted"
"""The result is the operand with its dimensions in another order: that of `permutation`."""

READS_FUSED = "reads fused"
"""Runs in one kernel with what computes its operands, as elementwise ops and reductions do."""

BRANCHES = "branches"
"""Runs one of the programs that it holds; other ops run all of theirs."""

_IMPLIED = {IDENTITY: (BITCAST, VIEW), BITCAST: (VIEW,)}
_KNOWN = frozenset((IDENTITY, BITCAST, VIEW, CHEAP, EXACT, TRANSCENDENTAL, GENERATED, REARRANGED,
                    IN_PLACE, FRESH, PERMUTED, READS_FUSED, BRANCHES))


def facts_of(named: Iterable[str]) -> frozenset[str]:
    """These facts and what they imply. Raises ValueError for one that there is not."""
    found = frozenset(named)
    if not found <= _KNOWN:
        raise ValueError(f"facts {sorted(found - _KNOWN)}: known ones are {sorted(_KNOWN)}")
    return found.union(*[_IMPLIED.get(fact, ()) for fact in found])
