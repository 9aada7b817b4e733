"""Alternative specs for an operand, and the bytes that each would move."""
from __future__ import annotations

import math

from ...ir.types import ArrayType, Entries


def other_entries(aval: ArrayType, others: list[ArrayType]) -> list[Entries]:
    """Specs that an operand could be brought to, given the types of the others."""
    if not aval.mesh.axis_names and not any(o.mesh.axis_names for o in others):
        return []
    entries, rank = aval.entries, aval.ndim
    found: list[Entries] = []
    found += [aligned_entries(aval, other) for other in others]
    mesh = aval.mesh if aval.mesh.axis_names else next(o.mesh for o in others if o.mesh.axis_names)
    own = [a for e in entries for a in e]
    for axis in own:
        less = tuple(tuple(a for a in e if a != axis) for e in entries)
        found.append(less)
        found += [_added(less, d, axis) for d in range(rank)]
    foreign = dict.fromkeys(a for o in others for e in o.entries for a in e if a not in own)
    found += [_added(entries, d, axis) for axis in foreign for d in range(rank)]
    pending = sorted(aval.spec.unreduced)
    if pending:                                  # the sum finished, on every device or in parts
        found = [entries] + [_added(entries, d, axis) for axis in pending for d in range(rank)]
    found.append(((),) * rank)
    sizes = dict(mesh.shape)
    return [e for e in dict.fromkeys(found) if (e != entries or pending) and all(
        n % math.prod(sizes[a] for a in axes) == 0
        for n, axes in zip(aval.shape, e, strict=True)) and _distinct(e)]


def aligned_entries(aval: ArrayType, other: ArrayType) -> Entries:
    """The spec that fits another operand's, dimensions aligned at the end as in broadcasting."""
    tail = min(aval.ndim, other.ndim)
    sizes = dict(other.mesh.shape)
    shared = tuple(axes if n > 1 and n % math.prod(sizes[a] for a in axes) == 0 else ()
                   for axes, n in zip(other.entries[other.ndim - tail:],
                                      aval.shape[aval.ndim - tail:], strict=True))
    return aval.entries[:aval.ndim - tail] + shared


def _added(entries: Entries, dim: int, axis: str) -> Entries:
    return (*entries[:dim], (*entries[dim], axis), *entries[dim + 1:])


def _distinct(entries: Entries) -> bool:
    used = [a for e in entries for a in e]
    return len(used) == len(set(used))


def received(aval: ArrayType, target: Entries) -> int:
    """About how many bytes a device receives when a value is brought to `target`."""
    sizes = dict(aval.mesh.shape)
    local = aval.size * getattr(aval.dtype, "itemsize", 4)
    had = 1.0 / math.prod(sizes[a] for a in aval.spec.unreduced)
    for before, after in zip(aval.entries, target, strict=True):
        local //= math.prod(sizes.get(a, 1) for a in after)
        if after[:len(before)] != before:
            kept = 0
            while kept < min(len(before), len(after)) and before[kept] == after[kept]:
                kept += 1
            had /= math.prod(sizes[a] for a in before[kept:])
    return int(local * (1 - had))
