"""The prices of bringing values from one layout to another, as the model has them in its tables.

A model asks for millions of them, of few kinds. What is not split otherwise in the other layout
does not take part, dimensions that all axes divide are alike whatever their sizes and order, and so
are mesh axes of one size, up to their names. So a sequence of collectives is planned once for all
that are alike, and then priced over the axes and for the bytes at hand.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ...ir.meshes.axes import parse_axis
from ...ir.meshes.mesh import AbstractMesh
from ...ir.meshes.mesh_axes import group_size
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Entries, Shape
from ...partitioner.choice.layouts import LayoutTable
from ...partitioner.cost.prices import Price, Prices, exchanges_of
from ...partitioner.redistribution.redistribute import plan

Axes = tuple[str, ...]


class _Change(NamedTuple):
    """What is different in another layout. dims: (size, axes before, axes after) of dimensions;
    finished, made: the axes of sums that are pending before, and after.
    """
    dims: tuple[tuple[int, Axes, Axes], ...]
    finished: frozenset[str]
    made: frozenset[str]


class Moves:
    """Prices of moves on one mesh, each found once. table: the layouts, by number."""

    def __init__(self, prices: Prices, table: LayoutTable) -> None:
        self.prices, self.mesh, self.table = prices, prices.mesh, table
        self._planned: dict[_Change, list[tuple[str, Axes, float]]] = {}
        self._priced: dict[tuple[_Change, Axes], list[tuple[Price, float]]] = {}
        self._known: dict[tuple[int, int, int], int] = {}

    def price(self, kind: int, source: int, target: int) -> int:
        """The price of bringing a value of a kind from one layout to another, by the plan for it:
        axes that leave different dimensions are not gathered at once.
        """
        if source == target:
            return 0
        key = kind, source, target
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._price(*key)
        return found

    def _price(self, kind: int, source: int, target: int) -> int:
        shape, itemsize = self.table.shapes[kind]
        (have, sums), (want, others) = (self.table.table[n] for n in (source, target))
        if sums == others and len(_moving(have, want)) < 2:
            return self.table.costs[kind, source, target]
        dims = _differing(self.mesh, shape, have, want, sums | others)
        stays = [a for own, other in zip(have, want, strict=True) if own == other for a in own]
        size = math.prod(shape) * itemsize / group_size(self.mesh, stays)
        axes = tuple(dict.fromkeys([
            *[a for _, *both in dims for own in both for a in own],
            *self.mesh.sort_axes(sums | others)]))
        return sum([price.of(share * size)
                    for price, share in self._exchanges(_Change(dims, sums, others), axes)])

    def _exchanges(self, change: _Change, axes: Axes) -> list[tuple[Price, float]]:
        """The collectives of a change that these axes take part in, in this order: the price of
        each, and the share of the value that its operand is.
        """
        names = _canonical(self.mesh, axes)
        alike = _Change(tuple([(n, _renamed(a, names), _renamed(b, names))
                               for n, a, b in change.dims]),
                        frozenset(_renamed(change.finished, names)),
                        frozenset(_renamed(change.made, names)))
        own = tuple(names)
        found = self._priced.get((alike, own))
        if found is None:
            back = {new: old for old, new in names.items()}
            found = self._priced[alike, own] = [
                (self.prices.exchange(kind, self.mesh.sort_axes(_renamed(moved, back))), share)
                for kind, moved, share in self._plan(alike)]
        return found

    def _plan(self, change: _Change) -> list[tuple[str, Axes, float]]:
        found = self._planned.get(change)
        if found is None:
            sizes, before, after = zip(*change.dims, strict=True) if change.dims else ((), (), ())
            moves = plan(self.mesh, sizes, before, after, change.finished, change.made).moves
            found = self._planned[change] = [
                (kind, axes, n / math.prod(sizes))
                for kind, axes, n in exchanges_of(self.mesh, sizes, moves, before)]
        return found


def _moving(have: Entries, want: Entries) -> set[str]:
    """The axes that are elsewhere in one of two layouts."""
    return {a for own, other in zip(have, want, strict=True) for a in {*own} ^ {*other}}


def _differing(mesh: AbstractMesh, shape: Shape, have: Entries, want: Entries,
               sums: frozenset[str]) -> tuple[tuple[int, Axes, Axes], ...]:
    """The dimensions that are split otherwise in another layout: size, and axes in both. What the
    axes divide however they split it moves alike, whatever its size and order of dimensions.
    """
    found = [(n, a, b) for n, a, b in zip(shape, have, want, strict=True) if a != b]
    axes = sums.union(*[a + b for _, a, b in found])
    parts = group_size(mesh, axes)
    if all([n % parts == 0 for n, _, _ in found]):
        found = sorted([(parts, a, b) for _, a, b in found],
                       key=lambda dim: (len(dim[1]), len(dim[2]), dim))
    return tuple(found)


def _canonical(mesh: AbstractMesh, axes: Sequence[str]) -> dict[str, str]:
    """For each axis another one of its size: those of the mesh in turn."""
    left: dict[int, list[str]] = {}
    for a, n in reversed(mesh.shape.items()):
        left.setdefault(n, []).append(a)
    return {a: left[mesh.shape[a]].pop() for a in axes}


def _renamed(axes: Iterable[str], names: Mapping[str, str]) -> Axes:
    """The axes, and parts of axes, by other names."""
    found = []
    for a in axes:
        if a not in names:
            base, before, size = parse_axis(a)
            found.append(f"{names[base]}:({before}){size}")
        else:
            found.append(names[a])
    return tuple(found)
