"""Constant folding: calls whose operands are all constant run once, when the plan is made."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arrays.storage import base_of
from ...ir.passes import Pass
from ..calls.call import Call
from ..numerics import silently
from .draft import Draft

MOST = 1 << 16                  # bytes of a folded constant, at most


def folded(calls: Sequence[Call], constants: dict[int, Any]) -> tuple[dict[int, Any], list[Call]]:
    """The constants with the small results of calls on constants alone, and the calls left."""
    found, left = dict(constants), []
    changed = {s for call in calls if call.changes for s in call.inputs}
    for call in calls:
        if all(s in found for s in call.inputs) and changed.isdisjoint(call.outputs):
            given = [found[s] for s in call.inputs]
            if _is_small(call, given):
                value = silently(lambda f, given=given: f(*given), call.function)
                if base_of(value).nbytes <= MOST:
                    found[call.outputs[0]] = value
                    continue
        left.append(call)
    return found, left


def _is_small(call: Call, given: Sequence[Any]) -> bool:
    """Is the call free of side effects and, as far as is known, of large arrays?"""
    kernel = call.kernel
    if call.several or call.changes or not callable(call.function) or (
            call.eqn is not None and call.eqn.op.effect):
        return False
    if kernel is None:
        return bool(given) and all(x.nbytes <= MOST for x in given)
    return kernel.elements * kernel.dtypes[-1].itemsize <= MOST or (
        kernel.recording is not None and kernel.recording.is_view)


def _folded(d: Draft) -> Draft:
    constants, calls = folded(d.calls, d.constants)
    return d.of(calls, constants=constants)


FOLD_CONSTANTS = Pass("fold-constants", "", _folded,
                      "calls on constants alone run once, before the plan, if results are small")
