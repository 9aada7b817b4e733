"""Prices: what a layout of an equation costs, in bytes that each device receives.

Bytes on the wire are what is compared; the rest is put in their unit. Work that several devices
repeat is not free: a device computes about FLOPS_PER_BYTE operations in the time in which it
receives a byte, so a product is not computed everywhere to save a small exchange, while a small
tensor is. Equal bytes are decided by the number of exchanges, then by local work.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

from ..ir.halo import Exchange
from ..ir.mesh import AbstractMesh
from ..ir.ops.column_sort import elements_received
from ..ir.ops.neighbours import plan_of
from ..ir.row_exchange import joined, lacking
from ..ir.rule import HALO, ORDERED, REDUCE, SCAN
from ..ir.types import Entries, Shape
from .factors import Axes, RuleInfo

# Operations per byte received, dense bf16 over one-way bandwidth of all links: TPU v5e
# 197e12 / (4 x 45e9) = 1,094; v5p 459e12 / (6 x 90e9) = 850; H100 989e12 / 450e9 = 2,200
# (Google Cloud TPU system architecture pages; NVIDIA H100 data sheet).
FLOPS_PER_BYTE = 1000
EXCHANGE = 1e-3          # bytes that one more exchange counts, among plans of equal bytes
WORK = 1e-9              # bytes that one more element of local work counts


@functools.lru_cache(maxsize=4096)
def parts_of(mesh: AbstractMesh, axes: Axes) -> int:
    """Into how many parts these axes cut a dimension."""
    return math.prod(map(mesh.axis_size, axes))


def block_elements(mesh: AbstractMesh, shape: Shape, entries: Entries) -> int:
    """Elements of one device's block."""
    n = math.prod(shape)
    for axes in entries:
        if axes:
            n //= parts_of(mesh, axes)
    return n


def inside(mesh: AbstractMesh, info: RuleInfo, shapes: Sequence[Shape], itemsizes: Sequence[int],
           axes_of: Mapping[int, Axes], layouts: Sequence[Entries],
           finish: Sequence[tuple[str, Axes]]) -> tuple[float, int]:
    """The price of running an equation with its factors over `axes_of`, without any reshards.

    Counts what its blocks exchange (totals of scans, edges, partial maxima), and its local work;
    the bytes of the former are also given alone.
    """
    received = exchanges = elements = most = 0
    for i, (shape, entries) in enumerate(zip(shapes, layouts, strict=True)):
        local = block_elements(mesh, shape, entries)
        elements += local
        most = max(most, local)
        if i >= info.operands:
            for _, axes in finish:
                size = math.prod(map(mesh.axis_size, axes))
                received += 2 * (size - 1) * local * itemsizes[i] // size
                exchanges += 1
            for f, axes in axes_of.items() if info.has_other_kinds else ():
                summary = _summary(mesh, info, f, local, axes)
                if summary:
                    size = math.prod(map(mesh.axis_size, axes))
                    received += (size - 1) * summary * itemsizes[i]
                    exchanges += 1
        elif info.has_halos and i == 0:            # other operands with the factor are bases
            for f, axes in axes_of.items():
                rows, block = _halo(mesh, info, shapes, f, axes, i)
                received += rows * (local // max(block, 1)) * itemsizes[i]
                exchanges += bool(rows)
    flops = _product_flops(mesh, info, axes_of) if info.is_product else most
    price = received + flops / FLOPS_PER_BYTE + EXCHANGE * exchanges + WORK * elements
    return price, received


def _product_flops(mesh: AbstractMesh, info: RuleInfo, axes_of: Mapping[int, Axes]) -> int:
    """Multiplications and additions of one device: two for each index of all factors."""
    n = 2 * math.prod(f.size for f in info.factors)
    for axes in axes_of.values():
        for a in axes:
            n //= mesh.axis_size(a)
    return n


def _halo(mesh: AbstractMesh, info: RuleInfo, shapes: Sequence[Shape], f: int, axes: Axes,
          operand: int) -> tuple[int, int]:
    """Rows of an operand that a device receives for halo factor f, and the rows of its block."""
    factor = info.factors[f]
    dim = next((d for g, d, _ in info.places[operand] if g == f), None)
    if dim is None or not (factor.kind == HALO or factor.reach):
        return 0, 1
    devices = math.prod(map(mesh.axis_size, axes))
    block = shapes[operand][dim] // devices
    if factor.operator == "joined":
        return lacking(devices, *joined(devices, [s[dim] for s in shapes[:info.operands]])), block
    if not factor.reach:
        return block, block                    # mirrored: another block than its own
    plan = halo_plan(mesh, info, shapes, f, axes)
    return (plan.received if plan else 0), block


def possible(mesh: AbstractMesh, info: RuleInfo, shapes: Sequence[Shape], f: int, axes: Axes
             ) -> bool:
    """Whether an emitter can work with factor f split over `axes`, as far as sizes matter."""
    factor = info.factors[f]
    if not factor.splittable_over(math.prod(map(mesh.axis_size, axes))):
        return False
    return not factor.reach or halo_plan(mesh, info, shapes, f, axes) is not None


def halo_plan(mesh: AbstractMesh, info: RuleInfo, shapes: Sequence[Shape], f: int, axes: Axes
              ) -> Exchange | None:
    """The exchange of edges where halo factor f is split over `axes`; None if there is none."""
    other = 1 if info.factors[f].kind == REDUCE else info.operands     # who reads the rows
    sizes = [shapes[t][d] for t in (0, other) for g, d, _ in info.places[t] if g == f]
    return plan_of(info.factors[f], math.prod(map(mesh.axis_size, axes)), sizes[0], sizes[-1])


def _summary(mesh: AbstractMesh, info: RuleInfo, f: int, local: int, axes: Axes) -> int:
    """Elements of a result that each block tells all others where factor f is split.

    local: elements of the result's block.
    """
    factor = info.factors[f]
    if factor.kind == SCAN:                    # the block's total: one position along the factor
        return local * math.prod(map(mesh.axis_size, axes)) // max(factor.size, 1)
    if factor.operator == "columns":
        n = math.prod(map(mesh.axis_size, axes))
        return elements_received(local, factor.size // n, n) // (n - 1)
    if factor.kind == ORDERED:                 # its best elements, and their positions likewise
        return local
    if factor.kind == REDUCE and factor.operator in ("argmax", "argmin"):
        return 2 * local                       # its best element and the position of that
    return 0
