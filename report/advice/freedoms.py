"""Dimensions that can only be split together, and layouts in which those of arguments agree.

Several rows of a table of specs may be wrong at once, such that to put one of them right saves
little: all parameters of a hidden dimension are to be split along it, and the slots of an optimizer
as its parameters. So arguments that have dimensions of one freedom are changed together, and one
that is laid out unlike most of these is suspect.
"""
from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping

from ...ir.meshes.mesh import AbstractMesh
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Entries
from ...partitioner.pipeline import Partitioned
from ...partitioner.propagation.graph import Graph
from ...partitioner.propagation.origins import origins_of
from .other_layouts import is_layout, merged, moved_to


class Given(NamedTuple):
    """An argument: its tensor, as propagation numbers it, and its layout."""
    tensor: int
    shape: tuple[int, ...]
    entries: Entries


class Freedoms:
    """The freedoms that arguments of a program have. given: these, by position."""

    def __init__(self, graph: Graph, mesh: AbstractMesh, given: Mapping[int, Given]) -> None:
        self.mesh, self.given = mesh, given
        of_tensor: dict[int, list[int]] = {}
        for i, one in given.items():
            of_tensor.setdefault(one.tensor, []).append(i)
        found = [[(i, d) for t, d in places for i in of_tensor.get(t, ())]
                 for places in together(graph)]
        self.places = [places for places in found if places]    # position and dimension

    def along(self, axis: str) -> Iterator[dict[int, Entries]]:
        """For each freedom the arguments that an axis does not split along it, with layouts in
        which it does, and nothing else of them.
        """
        for places in self.places:
            dims: dict[int, list[int]] = {}
            for i, d in places:
                dims.setdefault(i, []).append(d)
            found = {i: moved_to(self.mesh, self.given[i].shape, self.given[i].entries, axis, d)
                     for i, (d, *more) in dims.items() if not more}
            yield {i: new for i, new in found.items() if new is not None}

    def consensus(self) -> Iterator[dict[int, Entries]]:
        """All arguments that are laid out unlike most along one of their freedoms, as these. Where
        as many are split so as so, either way, but not whole.
        """
        for turn in (1, -1):
            most: dict[tuple[int, int], tuple[str, ...]] = {}
            for places in self.places:
                counts = Counter([self.given[i].entries[d] for i, d in places[::turn]])
                most.update(dict.fromkeys(places, max(counts, key=lambda e: (counts[e], e != ()))))
            found: dict[int, Entries] = {}
            for i, (_, shape, entries) in self.given.items():
                new = tuple([most.get((i, d), own) for d, own in enumerate(entries)])
                if new != entries and is_layout(self.mesh, shape, new):
                    found[i] = new
            yield found

    @functools.cached_property
    def unlike(self) -> frozenset[int]:
        """The arguments that are split, along one of their freedoms, unlike most."""
        one, other = self.consensus()
        return frozenset([i for i in one.keys() & other.keys() if any(self.given[i].entries)])


def freedoms_of(partitioned: Partitioned) -> Freedoms | None:
    """Those of a program's arguments; None if it does not come from propagation."""
    origins, mesh = origins_of(partitioned.resolved), partitioned.mesh
    return None if origins is None else Freedoms(origins.solution.graph, mesh, {
        i: Given(origins.tensors[v], v.aval.shape, merged(v.aval.entries, mesh))
        for i, v in enumerate(partitioned.resolved.invars) if origins.tensors.get(v, -1) >= 0})


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
