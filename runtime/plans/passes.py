"""The passes over the calls of a plan, in order.

Loop invariants are hoisted first; large calls are fused before results are assigned to the memory
of operands. None of the passes is needed for correct results.
"""
from __future__ import annotations

from collections.abc import Sequence

from ...ir.passes import Pass
from ..calls.call import Call, kernels
from ..calls.indexed import by_index
from . import tiled_fusion
from .draft import Draft, Traits, is_recording, run_passes
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


def _hoisted(d: Draft) -> Draft:
    """What depends on fixed inputs alone goes into a draft of its own."""
    if d.loop is None:
        return d
    fixed, again = d.loop
    known = {*fixed, *d.constants}
    before: list[Call] = []
    rest: list[Call] = []
    for call in d.calls:
        if known.issuperset(call[1]) and not again(call):
            before.append(call)
            known.update(call[2])
        else:
            rest.append(call)
    if not before:
        return d
    read = {*d.outputs, *[s for call in rest for s in call[1]]}
    passed = [s for call in before for s in call[2] if s in read]
    first = run_passes(PLANNED, Draft(before, passed, d.constants, traits(before)))
    return d._replace(calls=rest, before=first)


def _indexed(d: Draft) -> Draft:
    return d.of(by_index(d.calls, d.outputs)) if d.loop is not None or d.traits.changes else d


def _ordered(d: Draft) -> Draft:
    return d.of(ordered(d.calls, d.outputs)) if d.traits.permutes else d


def _fused(d: Draft) -> Draft:
    return d.of(tiled_fusion.fused(d.calls, d.outputs)) if d.traits.large else d


PLANNED: tuple[Pass, ...] = (
    Pass("hoist-invariants", "", _hoisted,
         "what all iterations of a loop compute alike is computed before the first"),
    Pass("index-parts", "", _indexed, "parts of arrays at starts are indexed by numbers"),
    Pass("order-products", "", _ordered,
         "a product and the transpose that reads it are one product"),
    Pass("fuse", "", _fused, "calls on large arrays are made block by block"),
    WRITE_OVER)
