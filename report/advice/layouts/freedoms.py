"""Dimensions that can only be split together, and layouts on which several arguments agree.

Several rows of a table of specs may be wrong at once, so that correcting one of them saves little:
all parameters of a hidden dimension should be split along it, and optimizer state like its
parameters. So arguments whose dimensions belong to one freedom are changed together, and one that
is laid out unlike most of them is suspect. Results that `out_shardings` asks for count as arguments
do: a gradient is laid out as its parameter.
"""
from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ....ir.meshes.mesh import AbstractMesh
from ....ir.passes import Requests
from ....ir.support.disjoint_sets import DisjointSets
from ....ir.support.named_tuple import NamedTuple
from ....ir.types import Entries
from ....partitioner.pipeline import Partitioned
from ....partitioner.propagation.graph import Graph
from ....partitioner.propagation.origins import origins_of
from .other_layouts import is_layout, merged, moved_to, without

_SMALL = 0.01       # share of the largest argument's elements below which one may be whole
_SEVERAL = 2        # arguments of a freedom that an axis splits, where another may lack it
_MOST = 0.5         # share of a freedom's arguments: an axis that splits as many should split all


class Given(NamedTuple):
    """An argument, or a result: its tensor, as numbered in propagation, and its layout."""
    tensor: int
    shape: tuple[int, ...]
    entries: Entries


class Freedoms:
    """The freedoms of a program's arguments, without those that one argument has twice.

    given: the arguments by position and, by ~position, the results that `out_shardings` asks for.
    """

    def __init__(self, graph: Graph, mesh: AbstractMesh, given: Mapping[int, Given]) -> None:
        self.mesh, self.given = mesh, given
        of_tensor: dict[int, list[int]] = {}
        for i, one in given.items():
            of_tensor.setdefault(one.tensor, []).append(i)
        self.places: list[list[tuple[int, int]]] = []       # (position, dimension) pairs
        for places in together(graph):
            count = Counter([t for t, _ in places])
            own = [(i, d) for t, d in places if count[t] == 1 for i in of_tensor.get(t, ())]
            self.places += [own] if own else []

    def along(self, axis: str) -> Iterator[dict[int, Entries]]:
        """For each freedom, new layouts for the arguments that an axis does not split along it yet.
        """
        for places in self.places:
            found = {i: moved_to(self.mesh, self.given[i].shape, self.given[i].entries, axis, d)
                     for i, d in places}
            yield {i: new for i, new in found.items() if new is not None}

    @functools.cached_property
    def idle(self) -> tuple[str, ...]:
        """The axes of the mesh that split no argument."""
        used = {a for one in self.given.values() for e in one.entries for a in e}
        return tuple([a for a in self.mesh.axis_names if a not in used])

    def unsplit(self, axis: str) -> Iterator[dict[int, Entries]]:
        """For each freedom that no axis splits, the largest first, the layouts of its arguments
        with an axis along it, if all can have it.
        """
        found = []
        for places, counts in zip(self.places, self.counts, strict=True):
            if not +counts:
                new = {i: moved_to(self.mesh, self.given[i].shape, self.given[i].entries, axis, d)
                       for i, d in places}
                layouts = {i: one for i, one in new.items() if one is not None}
                if len(layouts) == len(new):
                    found.append(layouts)
        return iter(sorted(found, key=lambda new: -sum(math.prod(self.given[i].shape)
                                                       for i in new)))

    def splits_whole(self, new: Mapping[int, Entries]) -> bool:
        """Do new layouts of arguments only add axes along one freedom, that of all of them, which
        nothing splits now?
        """
        for places, counts in zip(self.places, self.counts, strict=True):
            dims = {i: d for i, d in places if i >= 0}
            if not +counts and dims.keys() == new.keys():
                return all(own[d] and (*own[:d], (), *own[d + 1:]) == self.given[i].entries
                           for i, own in new.items() for d in [dims[i]])
        return False

    def axes_of(self, i: int) -> frozenset[str]:
        """The axes that split at least half of the arguments in a freedom of an argument, or of a
        result.
        """
        return frozenset([a for d in range(len(self.given[i].shape)) for a, part in
                          self.parts.get((i, d), {}).items() if part >= _MOST])

    def instead(self, axis: str, axes: tuple[str, ...]) -> Iterator[dict[int, Entries]]:
        """For each freedom, the same layouts with an axis instead of others, where these split
        arguments.
        """
        for places in self.places:
            found = {}
            for i, d in places:
                _, shape, entries = self.given[i]
                bare = without(entries, axes)
                new = moved_to(self.mesh, shape, bare, axis, d) if bare != entries else None
                if new is not None:
                    found[i] = new
            yield found

    def consensus(self, moved: bool = False) -> Iterator[dict[int, Entries]]:
        """Two proposals of layouts for the arguments that are laid out unlike most others; moved:
        only for those that keep their axes, on other dimensions.

        An argument is split over the axes that split at least half of the arguments in one of its
        freedoms. If there are none, it keeps its own axes, each along the freedom in which the axis
        splits the largest share of the other arguments. Among equally good dimensions the first
        proposal takes the first, the second one the last. Small arguments that are whole stay
        whole.
        """
        for turn in (1, -1):
            found: dict[int, Entries] = {}
            for i, (_, shape, entries) in self.given.items():
                if self._is_small(i):
                    continue
                dims = range(len(shape))[::turn]
                best = {a: max([(self.parts.get((i, d), {}).get(a, 0.0), a in entries[d], -n, d)
                                for n, d in enumerate(dims)], key=_largest)
                        for a in self.mesh.axis_names} if dims else {}
                axes = [a for a, (p, *_) in best.items() if p >= _MOST] or [
                    a for e in entries for a in e if a in best]
                new = tuple([tuple([a for a in axes if best[a][-1] == d])
                             for d in range(len(shape))])
                if new != entries and is_layout(self.mesh, shape, new) and not (
                        moved and {a for e in new for a in e} != {a for e in entries for a in e}):
                    found[i] = new
            yield found

    def lacking(self) -> Iterator[dict[int, Entries]]:
        """For each freedom and axis, new layouts for arguments that lack the axis, along which it
        splits most of the others, if these are several. Small arguments that are whole stay whole.
        """
        for places, counts in zip(self.places, self.counts, strict=True):
            for a, n in counts.items():
                if n < _SEVERAL or n <= _MOST * len(places):
                    continue
                found = {i: moved_to(self.mesh, self.given[i].shape, self.given[i].entries, a, d)
                         for i, d in places if not self._is_small(i)
                         and not any(a in e for e in self.given[i].entries)}
                if layouts := {i: new for i, new in found.items() if new is not None}:
                    yield layouts

    def alone(self) -> Iterator[dict[int, Entries]]:
        """For each freedom, new layouts for arguments that have axes along a dimension which no
        other argument shares, where these split at least half of those of the freedom: such as of
        inputs that are split along positions, whose targets are split along the batch.
        """
        for places, counts in zip(self.places, self.counts, strict=True):
            common = [a for a, n in counts.items() if n >= _MOST * len(places)]
            found: dict[int, Entries] = {}
            for i, d in places:
                _, shape, own = self.given[i]
                new = own
                for a in common:
                    if any(a in e and len(self.places[self.place_of[i, other]]) == 1
                           for other, e in enumerate(own) if (i, other) in self.place_of):
                        new = moved_to(self.mesh, shape, new, a, d) or new
                if new != own:
                    found[i] = new
            if found:
                yield found

    def _is_small(self, i: int) -> bool:
        """Is an argument whole, and so small that whoever needs its blocks cuts them for nothing?
        """
        _, shape, entries = self.given[i]
        return math.prod(shape) < _SMALL * self._most and not any(entries)

    @functools.cached_property
    def _most(self) -> int:
        """The elements of the largest argument."""
        return max([math.prod(one.shape) for one in self.given.values()], default=0)

    @functools.cached_property
    def parts(self) -> dict[tuple[int, int], dict[str, float]]:
        """(position, dimension) -> axis -> the share of the arguments of that freedom which it
        splits along it. Where an argument is alone it says less than several others which the axis
        splits all along another dimension of it.
        """
        found: dict[tuple[int, int], dict[str, float]] = {}
        for places, counts in zip(self.places, self.counts, strict=True):
            found.update(dict.fromkeys(places, {a: n / len(places) for a, n in counts.items()}))
        for (i, d), axes in found.items():
            if len(self.places[self.place_of[i, d]]) == 1:
                found[i, d] = {a: _MOST if any(
                    self._splits_others(i, e, a) for e in range(len(self.given[i].shape))) else part
                    for a, part in axes.items()}
        return found

    def _splits_others(self, i: int, d: int, axis: str) -> bool:
        """Does an axis split all others along a dimension of an argument, which are several?"""
        f = self.place_of.get((i, d), -1)
        others = len(self.places[f]) - 1 if f >= 0 else 0
        return others >= _SEVERAL and axis not in self.given[i].entries[d] and (
            self.counts[f][axis] == others)

    def unlike_with(self, new: Mapping[int, Entries], least: int) -> set[int]:
        """The arguments that, with these new layouts, more axes split along freedoms in which those
        axes split few of the others (of at least `least`); without those that are laid out as most
        others of their kind then, such as a gradient as its parameter.
        """
        counts: dict[int, Counter[str]] = {}        # by freedom, if not those of now
        for i, own in new.items():
            for d, axes in enumerate(own):
                f = self.place_of.get((i, d), -1)
                if f >= 0:
                    split = counts[f] = counts.get(f) or self.counts[f].copy()
                    split.subtract(self.given[i].entries[d])
                    split.update(axes)
        return {i for i, own in new.items() if i in self.given
                and self._unlike_axes(i, own, counts, least)
                > self._unlike_axes(i, self.given[i].entries, {}, least)
                and not self._is_like_kind(i, own, new, least)}

    def _is_like_kind(self, i: int, own: Entries, new: Mapping[int, Entries], least: int) -> bool:
        """Is an argument laid out as most others (of at least `least`) of its kind?"""
        others = [new.get(j, self.given[j].entries) for j in self.kinds[i] if j != i]
        return len(others) >= (least if i >= 0 else 1) and (
            others.count(own) >= _MOST * len(others))

    @functools.cached_property
    def kinds(self) -> dict[int, list[int]]:
        """For each argument those that have its freedoms, in the same order."""
        found: dict[Any, list[int]] = {}
        for i, one in self.given.items():
            freedoms = tuple([self.place_of.get((i, d), -1) for d in range(len(one.shape))])
            found.setdefault(i if -1 in freedoms else freedoms, []).append(i)
        return {i: kind for kind in found.values() for i in kind}

    def _unlike_axes(self, i: int, entries: Entries, counts: Mapping[int, Counter[str]], least: int
                     ) -> int:
        """How many axes split an argument along freedoms in which they split few of the others.
        counts: of freedoms in which these are not those of now.
        """
        found = 0
        for d, axes in enumerate(entries):
            f = self.place_of.get((i, d), -1)
            others = len(self.places[f]) - 1 if f >= 0 else 0
            if others >= (least if i >= 0 else 1):      # a result alone with its argument
                split = counts.get(f, self.counts[f])
                found += sum(split[a] - 1 < _MOST * others for a in axes)
        return found

    def agree_more(self, new: Mapping[int, Entries]) -> bool:
        """Do these new layouts put axes along freedoms in which they split others, too, and are
        there then fewer freedoms in which an axis splits few?
        """
        none = Counter[str]()
        had: dict[int, Counter[str]] = {-1: none}
        has: dict[int, Counter[str]] = {-1: none}            # -1: what is in no freedom
        put: set[tuple[int, str]] = set()
        for i, own in new.items():
            for d, axes in enumerate(own):
                f, before = self.place_of.get((i, d), -1), self.given[i].entries[d]
                put.update([(f, a) for a in axes if a not in before])
                if f >= 0 and axes != before:
                    had[f] = self.counts[f]
                    has.setdefault(f, self.counts[f].copy()).update(axes)
                    has[f].subtract(before)
        return all(has[f][a] > 1 for f, a in put) and (
            len(self._unlike_in(has)) < len(self._unlike_in(had)))

    def joins(self, new: Mapping[int, Entries]) -> bool:
        """Do these new layouts only add axes, each along a freedom in which it splits all of the
        others, which are several?
        """
        for i, own in new.items():
            for d, axes in enumerate(own):
                before, f = self.given[i].entries[d], self.place_of.get((i, d), -1)
                places = self.places[f] if f >= 0 else []
                others = len(places) - sum(
                    n in new and new[n][at] != self.given[n].entries[at] for n, at in places)
                if axes[:len(before)] != before or any(
                        f < 0 or not _SEVERAL <= self.counts[f][a] == others
                        for a in axes[len(before):]):
                    return False
        return True

    def disagree_more(self, new: Mapping[int, Entries]) -> bool:
        """Do these new layouts put an axis that splits all arguments of a freedom now elsewhere in
        some of them, but not in others?
        """
        split = {(f, a): n for f, counts in enumerate(self.counts) for a, n in counts.items()
                 if n == len(self.places[f]) > 1}
        left = Counter([(f, a) for i, own in new.items()
                        for d, axes in enumerate(self.given[i].entries)
                        if (f := self.place_of.get((i, d), -1)) >= 0
                        for a in axes if a not in own[d] and any(a in e for e in own)])
        return any(0 < n < split[one] for one, n in left.items() if one in split)

    def _unlike_in(self, counts: Mapping[int, Counter[str]]) -> set[tuple[int, str]]:
        """The axes that split some arguments of a freedom, but few of the others. counts: by
        freedom, of the arguments that each axis splits.
        """
        return {(f, a) for f, split in counts.items() for a, n in split.items()
                if 0 < n < 1 + _MOST * (len(self.places[f]) - 1)}

    @functools.cached_property
    def counts(self) -> list[Counter[str]]:
        """For each freedom the number of its arguments that each axis splits along it."""
        return [Counter([a for i, d in places for a in self.given[i].entries[d]])
                for places in self.places]

    @functools.cached_property
    def place_of(self) -> dict[tuple[int, int], int]:
        """(position, dimension) -> the number of its freedom."""
        return {place: f for f, places in enumerate(self.places) for place in places}

    @functools.cached_property
    def unlike(self) -> frozenset[int]:
        """The arguments that an axis splits along a freedom in which it splits few others, or fewer
        than in another freedom of the argument.
        """
        return frozenset([
            i for (i, d), parts in self.parts.items() for a in self.given[i].entries[d]
            if parts[a] < max(_MOST, *[self.parts.get((i, other), {}).get(a, 0.0)
                                       for other in range(len(self.given[i].shape))])])


def _largest(place: tuple[float, bool, int, int]) -> tuple[float, bool, int]:
    """A sort key for dimensions to put an axis on: where most arguments have it, or where it is
    already.
    """
    part, own, turn, _ = place
    return part, own and part < _MOST, turn


def freedoms_of(partitioned: Partitioned) -> Freedoms | None:
    """The freedoms of a program's arguments; None if the program has fewer than two arguments or
    did not come from propagation.
    """
    program, mesh = partitioned.resolved, partitioned.mesh
    origins = origins_of(program)
    if origins is None or len(program.invars) < 2:
        return None
    given = {i: Given(origins.tensors[v], v.aval.shape, merged(v.aval.entries, mesh))
             for i, v in enumerate(program.invars) if origins.tensors.get(v, -1) >= 0}
    said: Requests | None = partitioned.traced.attributes.get(Requests.KEY)
    if said is not None and not partitioned.traced.mesh.explicit_axes:
        given.update({~i: Given(t, asked.shape, merged(asked.entries, mesh)) for i, (t, asked) in
                      enumerate(zip(origins.solution.results, said.results, strict=True))
                      if asked is not None and t >= 0})
    return Freedoms(origins.solution.graph, mesh, given)


def together(graph: Graph) -> list[list[tuple[int, int]]]:
    """The dimensions of tensors that share a factor along which sharding flows, without those of
    size 1. Of a dimension with several factors only the first counts, since that is the one that is
    split. The slices that a loop reads or stacks share the dimension of its steps.
    """
    dims = [(t, d) for t, layout in enumerate(graph.layouts) if t not in graph.repeats
            for d, n in enumerate(layout.shape) if n > 1]
    known, classes = set(dims), DisjointSets[tuple[int, int]]()
    steps: dict[int, tuple[int, int]] = {}              # by loop
    for node in graph.nodes:
        own = [graph.repeats.get(t, t) for t in node.tensors]
        groups: list[list[tuple[int, int]]] = []
        if node.info is None:                   # the boundary of a shard_map
            (outer, body), rank = own, len(graph.layouts[own[0]].shape)
            groups = [[(outer, d), (body, d)] for d in range(rank)]
        else:
            if node.equation is not None and node.equation.op.subprograms and len(own) == 2 and (
                    graph.layouts[own[0]].shape[1:] == graph.layouts[own[1]].shape):
                groups = [[(own[0], 0), steps.setdefault(id(node.equation), (own[0], 0))]]
            for f in node.info.flowing:
                groups.append([(own[t], d) for t, d, _ in node.info.positions[f]
                               if own[t] >= 0 and node.info.maps[t][d][0] == f])
        for group in groups:
            inside = [x for x in group if x in known]
            if inside:
                classes.join(*inside)
    return classes.groups(dims)
