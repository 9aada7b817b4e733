"""How products get their operands and give their results.

A gradient is often a product and its transpose. With the operands exchanged the product gives it at
once, and in row-major order, in which all that follows reads it faster. What the products of all
iterations of a loop read is copied into one piece before the loop.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from .calls import Call
from .recording import TRANSPOSE, Kernel


def ordered(calls: Sequence[Call], outputs: Sequence[int]) -> list[Call]:
    """The calls, a product and the transpose that alone reads it made one call."""
    products = {c.outputs[0]: i for i, c in enumerate(calls) if hasattr(c.function, "permuted")}
    if not products:
        return list(calls)
    reads = Counter(s for c in calls for s in c.inputs)
    reads.update(outputs)
    out: list[Call | None] = list(calls)
    for i, call in enumerate(calls):
        at = products.get(call.inputs[0]) if len(call.inputs) == 1 else None
        if at is None or call.kernel is None or reads[call.inputs[0]] != 1:
            continue
        recording = call.kernel.recording
        product = out[at]
        if (recording is None or product is None or len(recording.steps) != 1
                or recording.steps[0].kind != TRANSPOSE):
            continue
        function = product.function.permuted(recording.steps[0].function)  # type: ignore[attr-defined]
        if function is not None:
            assert product.kernel is not None
            shapes = (*product.kernel.shapes[:-1], call.kernel.shapes[-1])
            kernel = Kernel(function, shapes, product.kernel.dtypes)
            out[at] = product._replace(function=function, outputs=call.outputs, kernel=kernel)
            out[i] = None
    return [c for c in out if c is not None]


def in_one_piece(passed: Sequence[int], calls: Sequence[Call], new_slot: Callable[[], int]
                 ) -> tuple[list[Call], list[Call]]:
    """Calls that copy, where they do not lie so yet, values that products read; and the others.

    passed: slots of values, computed before, that some of the calls read.
    """
    known = set(passed)
    copies: dict[int, Call] = {}
    out: list[Call] = []
    for call in calls:
        if hasattr(call.function, "permuted") and not known.isdisjoint(call.inputs):
            for s in call.inputs:
                if s in known and s not in copies:
                    copies[s] = Call(np.ascontiguousarray, (s,), (new_slot(),), False, call.eqn)
            call = call._replace(inputs=tuple(
                copies[s].outputs[0] if s in copies else s for s in call.inputs))
        out.append(call)
    return list(copies.values()), out
