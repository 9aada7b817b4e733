"""Floating-point operations of an equation on the blocks of one device, counted as XLA counts them.

The count follows from the factors of the equation: a contraction does two operations for each index
of all its factors; any other op does one per element. Ops of which that is not true declare their
own count (ir/facts.py).
"""
from __future__ import annotations

import math

from ...ir.program import Equation
from .kinds import by_types, info_of


@by_types
def equation_flops(eqn: Equation) -> float:
    """Operations of an equation on the blocks of one device."""
    op = eqn.op
    if op.cost.flops is not None:
        return op.cost.flops(*eqn.types, eqn.params)
    if not op.arithmetic or op.subprograms or op.collective is not None:
        return 0.0
    read = max((math.prod(a.aval.shape) for a in eqn.invars), default=0)
    made = sum(math.prod(v.aval.shape) for v in eqn.outvars)
    info = info_of(eqn)
    if info.is_product:
        in_result = {f for place in info.places[info.operands:] for f, _, _ in place}
        return 2.0 * made * math.prod([
            f.size for i, f in enumerate(info.factors) if i not in in_result])
    return float(read - made if read > made else made)
