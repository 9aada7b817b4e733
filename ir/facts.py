"""What passes, executors and cost models ask of an op: facts (`CHEAP in op.facts`), and its cost.

An op's declaration states both (`facts=` and `cost=` of `defop`), so no stage keeps a list of op
names.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .support.immutable import immutable
from .types import ArrayType

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

COMMUTES = "commutes"
"""The same with its two operands exchanged; of products of complex numbers but for rounding."""

TRANSCENDENTAL = "transcendental"
"""Counted apart from other arithmetic, as processors compute it on units of their own."""

RECOMPUTED = "recomputed"
"""Transcendental, and of real numbers computed again by XLA in each kernel that reads it."""

MAY_BE_NAN = "may be nan"
"""Results may be NaN though no operand is: `checkify` looks at them."""

GENERATED = "generated"
"""The result is computed where it is read, from indices or from a smaller operand."""

REARRANGED = "rearranged"
"""The result has elements of the operands, or fill, at other places."""

IN_PLACE = "in place"
"""The result may take the memory of an operand, though it is not computed element by element."""

UPDATED = "updated"
"""The result is the first operand with something written into it, in place."""

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

COUNTS = "counts"
"""The result is whole numbers of 0 or more: places in an array, or how many there are of something.
"""

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

WHOLE_IN_XLA = "whole in xla"
"""XLA's partitioner has no case for it, so that it runs on whole values there."""

_IMPLIED = {IDENTITY: (BITCAST, VIEW), BITCAST: (VIEW,), UPDATED: (IN_PLACE,), POSITION: (COUNTS,),
            RECOMPUTED: (TRANSCENDENTAL,)}
_KNOWN = frozenset((IDENTITY, BITCAST, VIEW, CHEAP, EXACT, COMMUTES, TRANSCENDENTAL, GENERATED,
                    REARRANGED, IN_PLACE, UPDATED, FRESH, TAKEN, PERMUTED, READS_FUSED, BRANCHES,
                    PER_DEVICE, POSITION, COUNTS, LAYOUT, SPLICED, BY_PLACE, REPEATS, UNEVEN,
                    MAY_BE_NAN, WHOLE_IN_XLA, RECOMPUTED))


def facts_of(named: Iterable[str]) -> frozenset[str]:
    """These facts and what they imply. Raises ValueError for an unknown one."""
    found = frozenset(named)
    if not found <= _KNOWN:
        raise ValueError(f"facts {sorted(found - _KNOWN)}: known ones are {sorted(_KNOWN)}")
    return found.union(*[_IMPLIED.get(fact, ()) for fact in found])


# -- cost on one device ---------------------------------------------------------------------------
Types = Sequence[ArrayType]          # of one device's blocks
Sizes = list[int]                    # bytes of one device's blocks


@immutable
class DeviceCost:
    """What cost models ask of an op beyond its factor rule and its facts. None: the default.

    flops: (operands, results, params) -> floating-point operations, counted as XLA counts them. By
      default two for each index of all factors of a product, one per element of any other op.
    traffic: (read, written, operands, params) -> bytes read from memory of each operand and written
      of each result, given those of whole blocks, which are the default.
    scratch: (read, written, operands, params) -> bytes held besides while the op runs; 0.
    in_parts: (operands, params) -> whether it makes parts of the size of its result, which what
      reads it puts together; False.
    orders: (position, type, params) -> the orders, from the major dimension to the minor one, in
      which it reads the operand at this position, or after those of all operands in which it
      writes its result; what lies otherwise is copied to the first one. By default any will do.
    is_packed: its operand is packed into blocks for the devices of a group, and its result is
      put together from those that they send.
    matrix_unit: its operations run at the rate of products, as those of linear algebra do.
    """
    flops: Callable[[Types, Types, dict[str, Any]], float] | None = None
    traffic: Callable[[Sizes, Sizes, Types, dict[str, Any]], tuple[Sizes, Sizes]] | None = None
    scratch: Callable[[Sizes, Sizes, Types, dict[str, Any]], int] | None = None
    in_parts: Callable[[Types, dict[str, Any]], bool] | None = None
    orders: Callable[[int, ArrayType, dict[str, Any]], Sequence[Sequence[int]]] | None = None
    is_packed: bool = False
    matrix_unit: bool = False


def window_traffic(read: Sizes, written: Sizes, operands: Types, params: dict[str, Any]
                   ) -> tuple[Sizes, Sizes]:
    """The traffic of an op that takes a part of its operand: it reads no more than it writes."""
    return [min(n, sum(written)) for n in read], written


def of_matrices(flops: Callable[[int, int], float]) -> DeviceCost:
    """The cost of an op on stacks of matrices, by the rows and columns of one.

    Source: Golub, Van Loan, "Matrix Computations".
    """
    def of_stack(operands: Types, results: Types, params: dict[str, Any]) -> float:
        *batch, m, n = operands[0].shape
        return math.prod(batch) * flops(m, n)
    return DeviceCost(of_stack, matrix_unit=True)
