"""Prices: what a layout of an equation costs, in bytes that each device receives.

Bytes on the wire are what is compared; the rest is put in their unit. Work that several devices
repeat is not free: a device computes about FLOPS_PER_BYTE operations in the time in which it
receives a byte, so a product is not computed everywhere to save a small exchange, while a small
tensor is. Equal bytes are decided by the number of exchanges, then by local work.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...ir.mesh import AbstractMesh
from ...ir.ops.communication.column_sort import elements_received
from ...ir.ops.communication.halo import Exchange
from ...ir.ops.communication.neighbours import plan_of
from ...ir.ops.communication.row_exchange_plan import joined, lacking
from ...ir.rule import HALO, ORDERED, REDUCE, SCAN
from ...ir.types import Entries, Shape
from ..factors import RuleInfo
from ..redistribution.effects import tile_count as parts_of

# Operations per byte received, dense bf16 over one-way bandwidth of all links: TPU v5e
# 197e12 / (4 x 45e9) = 1,094; v5p 459e12 / (6 x 90e9) = 850; H100 989e12 / 450e9 = 2,200
# (Google Cloud TPU system architecture pages; NVIDIA H100 data sheet).
FLOPS_PER_BYTE = 1000
EXCHANGE = 1e-3          # bytes that one more exchange counts, among plans of equal bytes
WORK = 1e-9              # bytes that one more element of local work counts


def block_elements(mesh: AbstractMesh, shape: Shape, entries: Entries) -> int:
    """Elements of one device's block."""
    n = math.prod(shape)
    for axes in entries:
        if axes:
            n //= parts_of(mesh, axes)
    return n


def inside(info: RuleInfo, shapes: Sequence[Shape], itemsizes: Sequence[int],
           parts: Mapping[int, int], blocks: Sequence[int], finish: Sequence[tuple[str, int]]
           ) -> tuple[float, int]:
    """The price of running an equation with its factors in so many `parts`, without any reshards.

    blocks: elements of each tensor's block. finish: (monoid, parts) of reductions that are finished
    at once. Counts what its blocks exchange (totals of scans, edges, partial maxima), and its local
    work; the bytes of the former are also given alone.
    """
    received = exchanges = 0
    if info.has_halos and info.operands:           # other operands with the factor are bases
        for f, devices in parts.items():
            rows, block = _halo(info, shapes, f, devices, 0)
            received += rows * (blocks[0] // max(block, 1)) * itemsizes[0]
            exchanges += bool(rows)
    if info.has_other_kinds:
        for local, itemsize in zip(blocks[info.operands:], itemsizes[info.operands:], strict=True):
            for _, devices in finish:
                received += 2 * (devices - 1) * local * itemsize // devices
                exchanges += 1
            for f, devices in parts.items():
                summary = _summary(info, f, local, devices)
                if summary:
                    received += (devices - 1) * summary * itemsize
                    exchanges += 1
    if info.is_product:
        # multiplications and additions of one device: two for each index of all factors
        flops = 2 * math.prod([f.size for f in info.factors]) // math.prod(parts.values())
    else:
        flops = max(blocks, default=0)
    price = received + flops / FLOPS_PER_BYTE + EXCHANGE * exchanges + WORK * sum(blocks)
    return price, received


def _halo(info: RuleInfo, shapes: Sequence[Shape], f: int, devices: int, operand: int
          ) -> tuple[int, int]:
    """Rows of an operand that a device receives for halo factor f, and the rows of its block."""
    factor = info.factors[f]
    dim = next((d for g, d, _ in info.places[operand] if g == f), None)
    if dim is None or not (factor.kind == HALO or factor.reach):
        return 0, 1
    block = shapes[operand][dim] // devices
    if factor.operator == "joined":
        return lacking(devices, *joined(devices, [s[dim] for s in shapes[:info.operands]])), block
    if not factor.reach:
        return block, block                    # mirrored: another block than its own
    plan = halo_plan(info, shapes, f, devices)
    return (plan.received if plan else 0), block


def possible(info: RuleInfo, shapes: Sequence[Shape], f: int, devices: int) -> bool:
    """Whether an emitter can work with factor f in so many parts, as far as sizes matter."""
    factor = info.factors[f]
    if not factor.splittable_over(devices):
        return False
    return not factor.reach or halo_plan(info, shapes, f, devices) is not None


def halo_plan(info: RuleInfo, shapes: Sequence[Shape], f: int, devices: int) -> Exchange | None:
    """The exchange of edges where halo factor f is in so many parts; None if there is none."""
    other = 1 if info.factors[f].kind == REDUCE else info.operands     # who reads the rows
    sizes = [shapes[t][d] for t in (0, other) for g, d, _ in info.places[t] if g == f]
    return plan_of(info.factors[f], devices, sizes[0], sizes[-1])


def _summary(info: RuleInfo, f: int, local: int, devices: int) -> int:
    """Elements of a result that each block tells all others where factor f is in so many parts.

    local: elements of the result's block.
    """
    factor = info.factors[f]
    if devices == 1:                           # an axis of one device: nobody to tell
        return 0
    if factor.kind == SCAN:                    # the block's total: one position along the factor
        return local * devices // max(factor.size, 1)
    if factor.operator == "columns":
        return elements_received(local, factor.size // devices, devices) // (devices - 1)
    if factor.kind == ORDERED:                 # its best elements, and their positions likewise
        return local
    if factor.kind == REDUCE and factor.operator in ("argmax", "argmin"):
        return 2 * local                       # its best element and the position of that
    return 0
