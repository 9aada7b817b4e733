"""Dimensions that can only be split together, and layouts in which those of arguments agree.

Several rows of a table of specs may be wrong at once, such that to put one of them right saves
little: all parameters of a hidden dimension are to be split along it, and the slots of an optimizer
as its parameters. So arguments that have dimensions of one freedom are changed together.
"""
from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...ir.meshes.mesh import AbstractMesh
from ...ir.types import Entries
from ...partitioner.propagation.graph import Graph
from .changes import Change, rows
from .other_layouts import moved_to


class Given(NamedTuple):
    """An argument: its tensor, as propagation numbers it, and its layout."""
    tensor: int
    shape: tuple[int, ...]
    entries: Entries


class Agreements:
    """Changes after which the arguments of a program agree. given: by position; changed: of one,
    laid out otherwise, the change, with all that are like it.
    """

    def __init__(self, graph: Graph, mesh: AbstractMesh, given: Mapping[int, Given],
                 changed: Callable[[int, Entries], tuple[Change, ...]]) -> None:
        self.graph, self.mesh, self.given, self.changed = graph, mesh, given, changed

    @functools.cached_property
    def freedoms(self) -> list[list[tuple[int, int]]]:
        """The dimensions of each that arguments have, as position and dimension."""
        of_tensor: dict[int, list[int]] = {}
        for i, one in self.given.items():
            of_tensor.setdefault(one.tensor, []).append(i)
        found = [[(i, d) for t, d in places for i in of_tensor.get(t, ())]
                 for places in together(self.graph)]
        return [places for places in found if places]

    def of(self, axes: Sequence[str]) -> Iterator[tuple[Change, ...]]:
        """All of them that are changes of several rows, and of these axes."""
        seen: set[tuple[int, Entries]] = set()
        for new in (*self.like_most(), *(f for axis in axes for f in self.along(axis))):
            group: dict[Change, None] = {}
            for i, entries in new.items():
                if (i, entries) not in seen:
                    changes = self.changed(i, entries)
                    seen.update([(c.index, entries) for c in changes])
                    group.update(dict.fromkeys(changes))
            if len(rows(group)) > 1:
                yield tuple(group)

    def along(self, axis: str) -> Iterator[dict[int, Entries]]:
        """For each freedom the arguments that an axis does not split along it, with layouts in
        which it does.
        """
        for places in self.freedoms:
            dims: dict[int, list[int]] = {}
            for i, d in places:
                dims.setdefault(i, []).append(d)
            found = {i: moved_to(self.mesh, self.given[i].shape, self.given[i].entries, axis, d)
                     for i, (d, *more) in dims.items() if not more}
            yield {i: new for i, new in found.items() if new is not None}

    def like_most(self) -> Iterator[dict[int, Entries]]:
        """The arguments that have the freedoms of others and are laid out unlike most of them, as
        these: all of them. Where as many are laid out so as so, either way.
        """
        freedom = {place: n for n, places in enumerate(self.freedoms) for place in places}
        alike: dict[tuple, list[int]] = {}
        for i, one in self.given.items():
            alike.setdefault(tuple([freedom.get((i, d)) for d in range(len(one.shape))]),
                             []).append(i)
        for turn in (1, -1):
            found: dict[int, Entries] = {}
            for group in alike.values():
                layouts = Counter([self.given[i].entries for i in group[::turn]])
                most = max(layouts, key=lambda e: layouts[e])
                found.update({i: most for i in group if self.given[i].entries != most})
            yield found


def together(graph: Graph) -> list[list[tuple[int, int]]]:
    """The dimensions of tensors that share a factor along which sharding flows, those of size one
    left out. Of a dimension of several factors the first is what splits it.
    """
    leader: dict[tuple[int, int], tuple[int, int]] = {
        (t, d): (t, d) for t, layout in enumerate(graph.layouts) if t not in graph.repeats
        for d, n in enumerate(layout.shape) if n > 1}

    def find(x: tuple[int, int]) -> tuple[int, int]:
        while leader[x] != x:
            leader[x] = x = leader[leader[x]]
        return x

    for node in graph.nodes:
        own = [graph.repeats.get(t, t) for t in node.tensors]
        groups: list[list[tuple[int, int]]] = []
        if node.info is None:                   # the border of a shard_map
            (outer, body), rank = own, len(graph.layouts[own[0]].shape)
            groups = [[(outer, d), (body, d)] for d in range(rank)]
        else:
            for f in node.info.flowing:
                groups.append([(own[t], d) for t, d, _ in node.info.positions[f]
                               if own[t] >= 0 and node.info.maps[t][d][0] == f])
        for group in groups:
            known = [x for x in group if x in leader]
            for x in known[1:]:
                leader[find(x)] = find(known[0])
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for x in leader:
        found.setdefault(find(x), []).append(x)
    return list(found.values())
