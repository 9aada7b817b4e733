"""Sub-axes: splits a mesh axis where a reshape cuts a dimension at a size the axis does not fit.

64 rows over an axis of 8 become 4 x 16: the first dimension takes the sub-axis `X:(1)4`, the second
`X:(2)2`, and no data moves. Propagation works with whole axes. Where it leaves some over at the
border between two factors, these axes are split there, everywhere in the program, and propagation
runs once more on the sub-axes; so an axis never occurs both whole and split. Arguments and results
that nobody asked to lay out that way have whole axes, as in Shardy.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from ...ir.meshes.axes import axis_factor, format_sub_axis
from ...ir.meshes.mesh import AbstractMesh
from ...ir.types import Entries
from ..factors import Axes
from .graph import Graph
from .step import Layout

Cuts = dict[str, tuple[int, ...]]        # mesh axis -> products of its parts, from 1 to its size


def cuts_wanted(graph: Graph, cuts: Cuts) -> Cuts:
    """The cuts so far, extended by those at which axes are left over at a border between factors.
    """
    mesh = graph.mesh
    infos = {kind.info for kind in graph.kinds}
    if None in infos:
        return cuts              # the body of a shard_map names whole axes
    if all([info.simple for info in infos]):  # type: ignore[union-attr]
        return cuts              # no borders
    held = frozenset().union(*{layout.blocked for layout in graph.layouts}, *set(graph.pending))
    wanted: dict[str, set[int]] = {a: set(products) for a, products in cuts.items()}
    for kind, tensors in zip(graph.kinds, graph.tensors, strict=True):
        info = kind.info
        assert info is not None
        if info.simple:
            continue             # no borders
        for t, dims in zip(tensors, info.maps, strict=True):
            if t < 0:
                continue
            for split, axes in zip(dims, graph.layouts[t].entries, strict=True):
                if len(split) < 2 or not axes:
                    continue
                sizes = [info.factors[f].size for f in split]
                for base, product in _borders(axes, sizes, mesh):
                    known = wanted.setdefault(base, {1, mesh.shape[base]})
                    if base not in held and all(max(c, product) % min(c, product) == 0
                                                for c in known):
                        known.add(product)
    return {a: tuple(sorted(products)) for a, products in wanted.items() if len(products) > 2}


def cuts_given(graph: Graph) -> Cuts:
    """The cuts named by the initial layouts: parts of axes that the user wrote."""
    mesh = graph.mesh
    found: dict[str, set[int]] = {}
    for entries in dict.fromkeys([layout.entries for layout in graph.layouts]):
        for axes in entries:
            for a in axes:
                if a not in mesh.shape:
                    base, pre, n, _ = axis_factor(a, mesh.shape)
                    found.setdefault(base, {1, mesh.shape[base]}).update((pre, pre * n))
    return {a: tuple(sorted(products)) for a, products in found.items()
            if all(y % x == 0 for x, y in itertools.pairwise(sorted(products)))}


def _borders(axes: Axes, sizes: list[int], mesh: AbstractMesh) -> list[tuple[str, int]]:
    """Where to cut an axis that does not fit the rest of a factor."""
    i, rest = 0, sizes[0]
    for axis in axes:
        base, pre, n, _ = axis_factor(axis, mesh.shape)
        while rest == 1 and i < len(sizes) - 1:
            i += 1
            rest = sizes[i]
        if rest % n:
            common = math.gcd(rest, n)
            return [(base, pre * common)] if 1 < common < n else []
        rest //= n
    return []


def parts_of(axis: str, cuts: Cuts, mesh: AbstractMesh) -> Axes:
    """The names of the parts of an axis, or of a part of one."""
    base, pre, n, _ = axis_factor(axis, mesh.shape)
    inside = [c for c in cuts.get(base, ()) if pre <= c <= pre * n]
    if len(inside) < 3:
        return (axis,)
    return tuple(format_sub_axis(base, a, b // a)
                 for a, b in zip(inside, inside[1:], strict=False))


def cut_graph(graph: Graph, layouts: list[Layout], cuts: Cuts) -> None:
    """Set the graph's layouts to these, in parts of axes."""
    names: dict[str, Axes] = {}

    def parts(a: str) -> Axes:
        if a not in names:
            names[a] = parts_of(a, cuts, graph.mesh)
        return names[a]

    def cut(axes: Axes) -> Axes:
        return tuple([part for a in axes for part in parts(a)])

    graph.layouts = [Layout(old.shape, tuple(map(cut, old.entries)), old.open, old.blocked)
                     if any(old.entries) else old for old in layouts]
    graph.roots = {t: {(d, part): root for (d, a), root in roots.items() for part in parts(a)}
                   for t, roots in graph.roots.items()}


def whole_axes(entries: Entries, cuts: Cuts, mesh: AbstractMesh) -> Entries:
    """The leading axes of each dimension whose parts are all there."""
    out = []
    for axes in entries:
        whole: Axes = ()
        while len(whole) < len(axes):
            base = axis_factor(axes[len(whole)], mesh.shape)[0]
            parts = parts_of(base, cuts, mesh)
            if axes[len(whole):len(whole) + len(parts)] != parts:
                break
            whole += parts
        out.append(whole)
    return tuple(out)


def open_ends(graph: Graph, ends: Mapping[int, None], cuts: Cuts) -> None:
    """Give whole axes to arguments and results that the user left open."""
    for t in ends:
        old = graph.layouts[t]
        if t not in graph.asked:
            graph.layouts[t] = Layout(old.shape, whole_axes(old.entries, cuts, graph.mesh),
                                      old.open, old.blocked)
