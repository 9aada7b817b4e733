"""Joint axes: mesh axes that a program always uses together are treated as one axis.

If a batch is over ("data", "fsdp") everywhere, these are one axis of as many devices. The number of
candidate strategies is exponential in the number of axes, so strategies are searched on a mesh
whose joint axes are merged.
"""
from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Any

from ...ir.meshes.axes import axis_factor, format_sub_axis, parse_axis
from ...ir.meshes.mesh import AbstractMesh
from ...ir.program import Program
from ...ir.types import ArrayType, Entries

Row = tuple[str, ...]


def joint_axes(program: Program) -> tuple[Row, ...]:
    """The rows of axes that every value of the program has all together, in this order, or not at
    all.
    """
    sizes = program.mesh.shape
    if len(sizes) < 2:
        return ()
    types = _types(program)
    for t in types:
        for axes in t.entries:
            if axes[1:]:
                break
        else:
            continue
        break
    else:
        return ()                       # no dimension is split over several axes
    layouts = {(t.entries, t.sharding.spec.unreduced) for t in types}
    lists = {axes for entries, _ in layouts for axes in entries if axes}
    return rows_of(program.mesh, lists, {pending for _, pending in layouts if pending})


def rows_of(mesh: AbstractMesh, lists: Collection[Row], sums: Collection[frozenset[str]]
            ) -> tuple[Row, ...]:
    """The rows of axes that all these lists have in one piece, and all these sets as a whole.

    Parts of axes, and axes that have parts, are left alone.
    """
    if all([len(axes) == 1 for axes in lists]):
        return ()
    after: dict[Any, set[Any]] = {}       # axis to the one after it, None for none
    before: dict[Any, set[Any]] = {}
    for axes in lists:
        for a, b in pairwise((None, *axes, None)):
            after.setdefault(a, set()).add(b)
            before.setdefault(b, set()).add(a)
    sizes = mesh.shape
    parts = {axis_factor(a, sizes)[0] for a in after if a is not None and a not in sizes}
    follower: dict[str, str] = {}
    for a, (b, *others) in after.items():
        if (a in sizes and b in sizes and not others and len(before[b]) == 1
                and parts.isdisjoint((a, b))
                and all([(a in pending) == (b in pending) for pending in sums])):
            follower[a] = b
    rows = []
    for a in follower.keys() - set(follower.values()):
        row = [a]
        while row[-1] in follower:
            row.append(follower[row[-1]])
        rows.append(tuple(row))
    return tuple(sorted(rows, key=lambda row: mesh.axis_positions[row[0]]))


def _types(program: Program) -> set[ArrayType]:
    """The types of a program's values, nested ones included."""
    found = {*[v.aval for v in program.invars], *program.result_types}
    if program.consts:
        found.update([v.aval for v, _ in program.consts])
    if program.holds_programs:
        for _, _, nested in program.subprograms():
            found |= _types(nested)
    return found


class JointAxes:
    """A mesh with each of these rows merged into one axis, and the names on both sides."""

    __slots__ = ("_sizes", "mesh", "name_of", "rows")

    def __init__(self, mesh: AbstractMesh, rows: tuple[Row, ...]) -> None:
        self._sizes = mesh.shape
        self.rows = {f"({','.join(map(str, row))})": row for row in rows}
        self.name_of = {a: name for name, row in self.rows.items() for a in row}
        names: dict[Any, list[str]] = {}
        for a in mesh.axis_names:
            names.setdefault(self.name_of.get(a, a), []).append(a)
        self.mesh = AbstractMesh(
            tuple([math.prod([mesh.shape[a] for a in row]) for row in names.values()]),
            tuple(names), tuple([mesh.axis_type(row[0]) for row in names.values()]))

    def in_joint_axes(self, entries: Entries, pending: frozenset[str]
                      ) -> tuple[Entries, frozenset[str]]:
        """A layout with the axis names of `mesh`."""
        name_of = self.name_of
        return (tuple([tuple(dict.fromkeys([name_of.get(a, a) for a in axes]))
                       for axes in entries]),
                frozenset([name_of.get(a, a) for a in pending]))

    def spelled(self, axes: Iterable[str]) -> Row:
        """Axes of `mesh`, or parts of them, by the original names.

        Raises ValueError for a part of a row that is not made of parts of its axes: the first half
        of an axis of 3 and one of 2.
        """
        out: Row = ()
        for name in axes:
            row = self.rows.get(name)
            if row is None:
                base, pre, size = parse_axis(name)
                whole = self.rows.get(base)
                row = (name,) if whole is None or size is None else self._parts(whole, pre, size)
            out += row
        return out

    def _parts(self, row: Row, pre: int, size: int) -> Row:
        """The parts of a row's axes that make up its part `:(pre)size`."""
        out: Row = ()
        start = 1                       # into how many parts the axes before it cut the row
        for axis in row:
            stop = start * self._sizes[axis]
            first, last = max(start, pre), min(stop, pre * size)
            if first < last:
                if first % start or last % first or stop % last:
                    raise ValueError(f"no parts of {row} are the part :({pre}){size} of them")
                whole = (first, last) == (start, stop)
                out += (axis if whole else format_sub_axis(axis, first // start, last // first),)
            start = stop
        return out
