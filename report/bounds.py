"""Lower bounds: for every change of layout, the number of elements that a device lacks.

A device that holds block A of a value and needs block B receives at least the elements of B that
are not in A. They are counted exactly, as intersections of boxes, for all devices over the axes
involved. Of a partial sum over n devices every block first takes in (n-1)/n of the addends, as in a
reduce-scatter, before anything beyond it is fetched.
Source: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..ir.meshes.mesh import AbstractMesh
from ..ir.meshes.mesh_axes import group_size
from ..ir.types import ArrayType, Entries

_MOST_DEVICES = 65_536


def reshard_bound(source: ArrayType, target: ArrayType) -> int:
    """Bytes that the busiest device must receive to bring a value from one layout to the other."""
    mesh, item = target.mesh, target.dtype.itemsize
    summed = source.sharding.spec.unreduced - target.sharding.spec.unreduced
    shape = target.shape
    if summed:
        n = group_size(mesh, summed)
        before = _block(mesh, shape, source.entries)
        after = _block(mesh, shape, target.entries)
        return int((before * (n - 1) / n + max(0, after - before / n)) * item)
    return missing(mesh, shape, source.entries, target.entries) * item


def _block(mesh: AbstractMesh, shape: Sequence[int], entries: Entries) -> int:
    return math.prod(-(-n // group_size(mesh, axes))
                     for n, axes in zip(shape, entries, strict=True))


def missing(mesh: AbstractMesh, shape: Sequence[int], source: Entries, target: Entries) -> int:
    """The elements of its `target` block that the worst-off device does not hold in `source`."""
    if source == target:
        return 0
    whole = {a for entries in (source, target) for e in entries for a in e}
    if _even(mesh, shape, source) and _even(mesh, shape, target) and not any(
            ":" in str(a) for a in whole):
        return _missing_of_even(mesh, shape, source, target)
    axes = mesh.sort_axes(whole)
    sizes = [mesh.axis_size(a) for a in axes]
    wanted = _block(mesh, shape, target)
    count = math.prod(sizes)
    if count > _MOST_DEVICES:
        return wanted - min(wanted, _block(mesh, shape, source)) // max(1, count)
    where = dict(zip(axes, np.unravel_index(np.arange(count), sizes), strict=True))
    common = np.ones(count, dtype=np.int64)
    own = np.ones(count, dtype=np.int64)
    for n, a, b in zip(shape, source, target, strict=True):
        low_a, high_a = _interval(n, a, where, mesh)
        low_b, high_b = _interval(n, b, where, mesh)
        common *= np.maximum(np.minimum(high_a, high_b) - np.maximum(low_a, low_b), 0)
        own *= np.maximum(high_b - low_b, 0)
    return int((own - common).max())


def _even(mesh: AbstractMesh, shape: Sequence[int], entries: Entries) -> bool:
    return all(n % group_size(mesh, axes) == 0
               for n, axes in zip(shape, entries, strict=True))


def _missing_of_even(mesh: AbstractMesh, shape: Sequence[int], source: Entries, target: Entries
                     ) -> int:
    """What `missing` gives for blocks of one size, without looking at devices.

    Along a dimension one block lies in the other if the axes of the one begin with those of the
    other. Otherwise they are split by different, independent axes somewhere, so that some device
    holds nothing of what it wants.
    """
    common = 1
    for n, a, b in zip(shape, source, target, strict=True):
        a, b = ([x for x in axes if mesh.axis_size(x) > 1] for axes in (a, b))
        least = min(len(a), len(b))
        if a[:least] != b[:least]:
            return _block(mesh, shape, target)
        common *= n // group_size(mesh, a if len(a) > least else b)
    return _block(mesh, shape, target) - common


def _interval(n: int, axes: Sequence[str], where: dict, mesh: AbstractMesh):
    """The positions [low, high) of every device's block of a dimension of size n."""
    index, parts = 0, 1
    for a in axes:
        size = mesh.axis_size(a)
        index, parts = index * size + where[a], parts * size
    block = -(-n // parts)
    low = np.minimum(np.asarray(index) * block, n)
    return low, np.minimum(low + block, n)
