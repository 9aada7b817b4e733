"""Costs of running an equation on blocks, and of a reshard, in bytes that each device receives.

Bytes received are compared; other costs are expressed in that unit. Redundant computation is not
free: a device performs about FLOPS_PER_BYTE operations in the time in which it receives a byte, so
a large product is not replicated to avoid a small exchange, whereas a small elementwise operation
is. Ties in bytes are broken by the number of exchanges, then by local work.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...ir.mesh import AbstractMesh
from ...ir.ops.communication.column_sort import elements_received
from ...ir.ops.communication.halo_exchange import plan_of
from ...ir.ops.communication.halo_plan import Exchange
from ...ir.ops.communication.row_exchange_plan import joined, lacking
from ...ir.rule import HALO, ORDERED, REDUCE, SCAN
from ...ir.types import Entries, Shape
from ..factors import Axes, RuleInfo
from ..redistribution.effects import tile_count as parts_of
from ..redistribution.redistribute import least_received, plan

# Operations per byte received, dense bf16 over one-way bandwidth of all links: TPU v5e
# 197e12 / (4 x 45e9) = 1,094; v5p 459e12 / (6 x 90e9) = 850; H100 989e12 / 450e9 = 2,200
# (Google Cloud TPU system architecture pages; NVIDIA H100 data sheet).
FLOPS_PER_BYTE = 1000
EXCHANGE = 1e-3          # bytes that one more exchange counts, among plans of equal bytes
WORK = 1e-9              # bytes that one more element of local work counts

Pending = frozenset[str]         # axes over which a value is an unfinished sum
Layout = tuple[Entries, Pending]


def block_elements(mesh: AbstractMesh, shape: Shape, entries: Entries) -> int:
    """Elements of one device's block."""
    n = math.prod(shape)
    for axes in entries:
        if axes:
            n //= parts_of(mesh, axes)
    return n


def compute_cost(info: RuleInfo, shapes: Sequence[Shape], itemsizes: Sequence[int],
                 parts: Mapping[int, int], blocks: Sequence[int], finish: Sequence[tuple[str, int]]
                 ) -> tuple[float, int]:
    """The cost of running an equation with its factors in so many `parts`, without any reshards;
    and the bytes that its blocks exchange, alone.

    blocks: elements of each tensor's block. finish: (monoid, parts) of reductions finished at once.
    Counts exchanges between blocks (totals of scans, halos, partial maxima) and local work.
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
    cost = received + flops / FLOPS_PER_BYTE + EXCHANGE * exchanges + WORK * sum(blocks)
    return cost, received


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


def can_split_into(info: RuleInfo, shapes: Sequence[Shape], f: int, devices: int) -> bool:
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


def reshard_cost(mesh: AbstractMesh, shape: Shape, itemsize: int, source: Layout, target: Layout
                 ) -> float:
    """The cost of a reshard, without making a plan for it.

    For a partial sum it may be slightly too high: the sum is assumed to be finished directly in the
    wanted layout.
    """
    if source == target:
        return 0.0
    if source[1] == target[1]:
        received: float = least_received(mesh, shape, source[0], target[0])
        return received * itemsize + EXCHANGE * (received > 0)
    received, exchanges = _finished(mesh, shape, source, target)
    return received * itemsize + EXCHANGE * exchanges


def _finished(mesh: AbstractMesh, shape: Shape, source: Layout, target: Layout
              ) -> tuple[float, int]:
    """Elements received, and exchanges, where a partial sum is finished, or a value becomes one."""
    finish, have = source[1] - target[1], source[0]
    start = target[1] - source[1]
    if start:                               # a value becomes a sum: free along minor axes
        whole = tuple([_without_tail(axes, start) for axes in have])
        if finish or not start.isdisjoint({a for axes in whole for a in axes}):
            steps = plan(mesh, shape, have, target[0], source[1], target[1])
            return steps.received, steps.exchanges
        moved = least_received(mesh, shape, whole, target[0])
        return moved, moved > 0
    wanted = target[0]
    cut, placed = [*have], {a for axes in have for a in axes}
    if have != wanted:
        # blocks that the target wants are cut first, and sums are scattered to them or elsewhere
        used = placed
        for d, (own, want) in enumerate(zip(have, wanted)):  # noqa: B905 (speed)
            if (want != own and want[:len(own)] == own
                    and used.isdisjoint(want[len(own):])):
                cut[d] = want
                placed = placed.union(want)
    summed = scattered = 1
    homes = {a: d for d, axes in enumerate(wanted) for a in axes}
    waiting: Sequence[str] = [a for a in finish if a not in placed]
    if len(waiting) > 1:
        waiting = mesh.sort_axes(waiting)
    dims = range(len(shape)) if waiting else ()
    for a in waiting:
        for d in (homes[a], *dims) if a in homes else dims:
            if shape[d] % parts_of(mesh, (*cut[d], a)) == 0:
                cut[d] += (a,)
                break
        else:
            summed *= parts_of(mesh, (a,))
    for a in finish:
        scattered *= parts_of(mesh, (a,))
    scattered //= summed
    reached = tuple(cut)
    local = block_elements(mesh, shape, reached)
    moved = 0 if reached == wanted else least_received(mesh, shape, reached, wanted)
    received = local * (scattered - 1) + 2 * local * (summed - 1) / summed + moved
    exchanges = (scattered > 1) + (summed > 1) + (moved > 0)
    if moved:
        away = [a for a in finish if a not in homes]
        if [tuple([a for a in axes if a not in away]) for axes in reached] == list(wanted):
            exchanges -= 1                      # scattered and gathered again: an all-reduce
    return received, exchanges


def _without_tail(axes: Axes, gone: Pending) -> Axes:
    count = len(axes)
    while count and axes[count - 1] in gone:
        count -= 1
    return axes[:count]
