"""The passes over the calls of a plan, in order.

Fusion comes first, memory of operands for results last. Results are right without any pass.
"""
from __future__ import annotations

from collections.abc import Sequence

from ...ir.passes import Pass, pipeline
from ..calls.call import Call, kernels, read_counts
from ..calls.symbolic import TRANSPOSE, Kernel
from . import tiled_fusion
from .draft import Draft
from .in_place import WRITE_OVER


def ordered(calls: Sequence[Call], outputs: Sequence[int]) -> Sequence[Call]:
    """The calls, with each product and the transpose that alone reads it merged into one call.

    With its operands exchanged, a product gives its transpose directly, in row-major order, which
    later calls read faster. A gradient is often a product and its transpose.
    """
    products = {c.outputs[0]: i for i, c in enumerate(calls)
                if c.kernel is not None and c.kernel.permutes}
    if not products:
        return calls
    found = [i for i, c in enumerate(calls) if len(c[1]) == 1 and c[1][0] in products
             and c.kernel is not None]
    if not found:
        return calls
    reads = read_counts(calls, outputs)
    out: list[Call | None] = list(calls)
    for i in found:
        call = calls[i]
        if reads[call.inputs[0]] != 1:
            continue
        assert call.kernel is not None
        recording = call.kernel.recording
        at = products[call.inputs[0]]
        product = out[at]
        if (recording is None or product is None or len(recording.steps) != 1
                or recording.steps[0].kind != TRANSPOSE):
            continue
        assert product.kernel is not None
        kernel = _permuted(product.kernel, recording.steps[0].function, call.kernel)
        if kernel is not None:
            out[at] = product._replace(function=kernel.function, outputs=call.outputs,
                                       kernel=kernel)
            out[i] = None
    return [c for c in out if c is not None]


def _permuted(product: Kernel, order: tuple[int, ...], transpose: Kernel) -> Kernel | None:
    """The kernel of the product with its dimensions in this order, or None."""
    if order not in product.orders:
        function = product.function.permuted(order)  # type: ignore[attr-defined]
        product.orders[order] = None if function is None else Kernel(
            function, (*product.shapes[:-1], transpose.shapes[-1]), product.dtypes)
    return product.orders[order]


def _fused(d: Draft) -> Draft:
    if any([kernel.elements >= tiled_fusion.LARGE for kernel in kernels(d.calls)]):
        return d.of(tiled_fusion.fused(d.calls, d.outputs, d.constants))
    return d


PLANNED = pipeline(
    Pass("order-products", "", lambda d: d.of(ordered(d.calls, d.outputs)),
         "a product and the transpose that reads it are one product"),
    Pass("fuse", "", _fused, "calls on large arrays are evaluated block by block"),
    WRITE_OVER)
