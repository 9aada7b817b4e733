"""The passes over the calls of a plan, in order.

Large calls are fused before results are assigned to the memory of operands. None of the passes is
needed for correct results.
"""
from __future__ import annotations

from collections.abc import Sequence

from ...ir.passes import Pass
from ..calls.call import Call, kernels
from ..calls.indexed import by_index
from . import tiled_fusion
from .draft import Draft, Traits, is_recording
from .in_place import WRITE_OVER
from .products import ordered


def traits(calls: Sequence[Call]) -> Traits:
    """What there is to do for passes over these calls."""
    changes = permutes = large = is_recording()
    for kernel in kernels(calls):
        changes |= kernel.changes
        permutes |= kernel.permutes
        large |= kernel.elements >= tiled_fusion.LARGE
    return Traits(changes, permutes, large)


def _indexed(d: Draft) -> Draft:
    return d.of(by_index(d.calls, d.outputs)) if d.loop or d.traits.changes else d


def _ordered(d: Draft) -> Draft:
    return d.of(ordered(d.calls, d.outputs)) if d.traits.permutes else d


def _fused(d: Draft) -> Draft:
    return d.of(tiled_fusion.fused(d.calls, d.outputs)) if d.traits.large else d


PLANNED: tuple[Pass, ...] = (
    Pass("index-parts", "", _indexed, "parts of arrays at starts are indexed by numbers"),
    Pass("order-products", "", _ordered,
         "a product and the transpose that reads it are one product"),
    Pass("fuse", "", _fused, "calls on large arrays are made block by block"),
    WRITE_OVER)
