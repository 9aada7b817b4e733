"""Costs of running an equation on blocks, and of a reshard, at the prices of cost/prices.py."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.column_sort import edge_elements, elements_received
from ...ir.ops.communication.halo_exchange import plan_of
from ...ir.ops.communication.halo_plan import Exchange
from ...ir.ops.communication.row_exchange_plan import concatenated_rows, lacking
from ...ir.rules.factor import HALO, ORDERED, REDUCE, SCAN
from ...ir.support.caches import cached
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Entries, Shape
from ..cost.prices import Price, Prices, exchanges_of
from ..factors import Axes, RuleInfo
from ..redistribution.effects import tile_count as parts_of
from ..redistribution.redistribute import plan

TIE = 1024               # the weight of local work where strategies cost the same otherwise

Pending = frozenset[str]         # axes over which a value is an unfinished sum
Layout = tuple[Entries, Pending]


def block_elements(mesh: AbstractMesh, shape: Shape, entries: Entries) -> int:
    """Elements of one device's block."""
    n = math.prod(shape)
    for axes in entries:
        if axes:
            n //= parts_of(mesh, axes)
    return n


PriceOf = Callable[[str, Axes], Price]       # of a collective of a kind, over axes


class Split(NamedTuple):
    """A rule split over mesh axes, for values of certain kinds.

    shapes, itemsizes: of the tensors. axes_of: mesh axes of each factor. parts: the number of
    blocks of each factor. blocks: elements of each tensor's block.
    """
    info: RuleInfo
    shapes: Sequence[Shape]
    itemsizes: Sequence[int]
    axes_of: Mapping[int, Axes]
    parts: Mapping[int, int]
    blocks: Sequence[int]


def compute_cost(price: PriceOf, prices: Prices, split: Split, finish: Sequence[tuple[str, Axes]]
                 ) -> tuple[int, int]:
    """(cost of running an equation split so, without reshards; bytes that its blocks exchange).

    finish: (monoid, axes) of reductions finished at once. Counts exchanges between blocks (totals
    of scans, halos, partial maxima) and local work.
    """
    info, shapes, itemsizes, axes_of, parts, blocks = split
    received = cost = 0
    summaries: dict[int, int] = {}
    if info.has_halos and info.operands:           # other operands with the factor are bases
        for f, devices in parts.items():
            rows, block, exchanges = _halo(info, shapes, f, devices, 0)
            moved = rows * (blocks[0] // max(block, 1)) * itemsizes[0]
            received += moved
            one = price("collective-permute", axes_of[f])
            cost += one.of(moved) + max(0, exchanges - 1) * one.fixed
    if info.has_other_kinds:
        for local, itemsize in zip(blocks[info.operands:], itemsizes[info.operands:], strict=True):
            for _, axes in finish:
                devices = next(parts[f] for f in parts if axes_of[f] == axes)
                received += 2 * (devices - 1) * local * itemsize // devices
                cost += price("all-reduce", axes).of(local * itemsize)
            for f, devices in parts.items():
                if info.factors[f].operator == "columns" and devices > 1:
                    rows = info.factors[f].size // devices
                    received += elements_received(local, rows, devices) * itemsize
                    cost += 2 * price("all-to-all", axes_of[f]).of(local * itemsize)
                    cost += price("collective-permute", axes_of[f]).of(
                        edge_elements(local, rows, devices) * itemsize)
                    continue
                summaries[f] = summaries.get(f, 0) + _summary(info, f, local, devices) * itemsize
        for f, summary in summaries.items():         # one exchange for all results
            received += (parts[f] - 1) * summary
            cost += price("all-gather", axes_of[f]).of(summary)
    sizes = [n * itemsize for n, itemsize in zip(blocks, itemsizes, strict=True)]
    flops = 0
    if info.is_product:
        # multiplications and additions of one device: two for each index of all factors
        flops = 2 * math.prod([f.size for f in info.factors]) // math.prod(parts.values())
    return cost + local_cost(prices, flops, itemsizes[0] if itemsizes else 1, sizes), received


def local_cost(prices: Prices, flops: int, itemsize: int, sizes: Sequence[int]) -> int:
    """The cost of local work: operations of a product, and blocks of these sizes in bytes.

    Elementwise work is fused with what makes and reads its values, so for other equations the
    largest block counts.
    """
    total = sum(sizes)
    moved = total if flops else max(sizes, default=0)
    return prices.computation(flops, itemsize, moved) + int(total * prices.traffic) // TIE


def _halo(info: RuleInfo, shapes: Sequence[Shape], f: int, devices: int, operand: int
          ) -> tuple[int, int, int]:
    """For halo factor f: (rows of an operand that a device receives, rows of its block, number of
    exchanges).
    """
    factor = info.factors[f]
    dim = next((d for g, d, _ in info.places[operand] if g == f), None)
    if dim is None or not (factor.kind == HALO or factor.reach):
        return 0, 1, 0
    block = shapes[operand][dim] // devices
    if factor.operator == "joined":
        sizes = [s[dim] for s in shapes[:info.operands]]
        return lacking(devices, *concatenated_rows(devices, sizes)), block, 1
    if not factor.reach:
        return block, block, 1                 # mirrored: another block than its own
    plan = halo_plan(info, shapes, f, devices)
    return (plan.received, block, plan.exchanges) if plan else (0, block, 0)


def can_split_into(info: RuleInfo, shapes: Sequence[Shape], f: int, devices: int) -> bool:
    """Can an emitter work with factor f in so many parts, as far as sizes matter?"""
    factor = info.factors[f]
    if not factor.splittable_over(devices):
        return False
    return not factor.reach or halo_plan(info, shapes, f, devices) is not None


def halo_plan(info: RuleInfo, shapes: Sequence[Shape], f: int, devices: int) -> Exchange | None:
    """The exchange of edge rows for halo factor f in so many parts; None if it needs none."""
    other = 1 if info.factors[f].kind == REDUCE else info.operands     # who reads the rows
    sizes = [shapes[t][d] for t in (0, other) for g, d, _ in info.places[t] if g == f]
    return plan_of(info.factors[f], devices, sizes[0], sizes[-1])


def _summary(info: RuleInfo, f: int, local: int, devices: int) -> int:
    """Elements of a result that each block sends to all others when factor f is in so many parts.

    local: elements of the result's block.
    """
    factor = info.factors[f]
    if devices == 1:                           # an axis of one device exchanges nothing
        return 0
    if factor.kind == SCAN:                    # the block's total: one position along the factor
        return local * devices // max(factor.size, 1)
    if factor.kind == ORDERED:                 # its best elements, and their positions likewise
        return local
    if factor.kind == REDUCE and factor.operator in ("argmax", "argmin"):
        return 2 * local                       # its best element and the position of that
    return 0


class Transfer(NamedTuple):
    """A change of layout without sums, for values of any size.

    units: what dimensions are rounded up to. fixed, slope: its price, once and for each byte of the
    whole value. gathered: the same if what moves is gathered first, where that is another way.
    """
    units: tuple[int, ...]
    fixed: int
    slope: float
    gathered: tuple[int, float] | None = None

    def of(self, shape: Shape, itemsize: int) -> int:
        whole = itemsize
        for n, unit in zip(shape, self.units):  # noqa: B905 (speed)
            whole *= n if n % unit == 0 else -(-n // unit) * unit
        cost = self.fixed + int(self.slope * whole)
        if self.gathered is not None:
            fixed, slope = self.gathered
            cost = min(cost, fixed + int(slope * whole))
        return cost


def transfer(price: PriceOf, mesh: AbstractMesh, source: Entries, target: Entries) -> Transfer:
    """The price of the change between two layouts, without a plan.

    Blocks are cut along new axes, which is free; axes that change their dimension are exchanged
    (all-to-all), and those that go away are gathered; or all of these are gathered, and then blocks
    are cut. Plans are no cheaper than that except with parts of axes; for these one is made, on
    dimensions that all axes divide.
    """
    units: tuple[int, ...] = ()
    moving: set[str] = set()                    # from here on the dimension differs
    gathers: list[Axes] = []
    whole = True
    tiles = 1
    for have, want in zip(source, target):  # noqa: B905 (speed)
        if have == want:
            n = parts_of(mesh, have) if have else 1
            units += (n,)
            tiles *= n
            continue
        k = 0
        for a, b in zip(have, want):  # noqa: B905 (speed)
            if a != b:
                break
            k += 1
        gone = have[k:]
        if gone:
            moving.update(gone)
            gathers.append(gone)
        n = parts_of(mesh, have)
        tiles *= n
        units += (math.lcm(n, parts_of(mesh, want)),)
        whole = whole and not any([":" in a for a in have + want])
    if not whole:
        return _planned(price, mesh, source, target, units)
    old = {a for axes in source for a in axes}
    new = {a for axes in target for a in axes}
    fixed, slope = 0, 0.0
    gathered = None if moving.isdisjoint(new) else _gathered(price, mesh, gathers, tiles)
    for a in new - old:
        tiles *= parts_of(mesh, (a,))
    for kind, some in (("all-to-all", moving & new), ("all-gather", moving - new)):
        if some:
            axes: Axes = tuple(some) if len(some) == 1 else mesh.sort_axes(some)
            one = price(kind, axes)
            fixed += one.fixed
            slope += one.slope / tiles
    return Transfer(units, fixed, slope, gathered)


def _gathered(price: PriceOf, mesh: AbstractMesh, gathers: list[Axes], tiles: int
              ) -> tuple[int, float]:
    """(fixed price, price for each byte of the whole) of gathering these axes one after the other.
    tiles: into how many the value is split before.
    """
    fixed, slope = 0, 0.0
    for axes in gathers:
        one = price("all-gather", axes)
        fixed, slope = fixed + one.fixed, slope + one.slope / tiles
        tiles //= parts_of(mesh, axes)
    return fixed, slope


def _planned(price: PriceOf, mesh: AbstractMesh, source: Entries, target: Entries,
             units: tuple[int, ...]) -> Transfer:
    """The price of the planned change between two layouts."""
    split = [(have, want) for have, want in zip(source, target) if have or want]  # noqa: B905 (speed)
    fixed, slope = 0, 0.0
    for kind, axes, share in _exchanged(mesh, *zip(*split, strict=True)):
        one = price(kind, axes)
        fixed += one.fixed
        slope += one.slope * share
    return Transfer(units, fixed, slope)


@cached(1 << 14, "what is exchanged between two layouts")
def _exchanged(mesh: AbstractMesh, source: Entries, target: Entries
               ) -> tuple[tuple[str, Axes, float], ...]:
    """The collectives of the planned change between two layouts, without the dimensions that
    neither splits, and of each operand the share of the whole value.
    """
    shape = tuple([parts_of(mesh, a) * parts_of(mesh, b)
                   for a, b in zip(source, target, strict=True)])
    moves, whole = plan(mesh, shape, source, target).moves, math.prod(shape)
    return tuple([(kind, axes, n / whole) for kind, axes, n in exchanges_of(
        mesh, shape, moves, source)])


def sum_cost(price: PriceOf, mesh: AbstractMesh, shape: Shape, itemsize: int, source: Layout,
             target: Layout, moved: Callable[[Layout, Layout], int]) -> int:
    """The cost of a reshard that finishes or makes a partial sum, where possible without a plan.

    It may be slightly too high: the sum is assumed to be finished directly in the wanted layout.
    moved: the cost of a change between layouts that are sums over the same axes.
    """
    finish, have = source[1] - target[1], source[0]
    if target[1] - source[1]:
        return _cost_of_starting(price, mesh, shape, itemsize, source, target, moved)
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
    summed: Axes = ()
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
            summed += (a,)
    reached = tuple(cut)
    local = block_elements(mesh, shape, reached) * itemsize
    cost = 0 if reached == wanted else moved((reached, target[1]), target)
    block = local * parts_of(mesh, tuple(finish.difference(summed)))
    for axes in cut:                        # onto each dimension in an exchange of its own
        scattered = finish.intersection(axes)
        if scattered:
            cost += price("reduce-scatter", mesh.sort_axes(scattered)).of(block)
            block //= parts_of(mesh, tuple(scattered))
    if summed:
        cost += price("all-reduce", summed).of(local)
    if cost and have == wanted:                 # of few bytes one sum takes less than two steps
        return min(cost, price("all-reduce", mesh.sort_axes(finish)).of(
            block_elements(mesh, shape, have) * itemsize))
    return cost


def _cost_of_starting(price: PriceOf, mesh: AbstractMesh, shape: Shape, itemsize: int,
                      source: Layout, target: Layout, moved: Callable[[Layout, Layout], int]
                      ) -> int:
    """The cost of making a value a partial sum, which is free along minor axes; as for `sum_cost`.
    """
    finish, start, have = source[1] - target[1], target[1] - source[1], source[0]
    whole = tuple([_without_tail(axes, start) for axes in have])
    if finish or not start.isdisjoint({a for axes in whole for a in axes}):
        moves = plan(mesh, shape, have, target[0], source[1], target[1]).moves
        return sum([price(kind, axes).of(n * itemsize)
                    for kind, axes, n in exchanges_of(mesh, shape, moves, have)])
    return moved((whole, target[1]), target)


def _without_tail(axes: Axes, gone: Pending) -> Axes:
    count = len(axes)
    while count and axes[count - 1] in gone:
        count -= 1
    return axes[:count]
