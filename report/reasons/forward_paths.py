"""The path of an axis from an argument to a value, in the direction in which the program computes.

Propagation goes both ways, and an axis may have come to a value from behind: from the update of a
parameter through its gradient, say. A user follows the path with the fewest steps against the
direction of the program and through its derivative, where there is one nearby.
"""
from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Iterator

from ...partitioner.propagation.graph import Node
from .causes import Step
from .value_names import Values

_SEEN = 80          # dimensions of values that are looked at for one path
_BACK = 20          # steps forward that a user rather follows than one back, or in a derivative
_Place = tuple[int, int]                # a tensor, as numbered in propagation, and a dimension


class ForwardPaths(Values):
    """Finds paths of axes through one partitioned program that go forward as far as possible."""

    @functools.cached_property
    def touching(self) -> dict[int, list[Node]]:
        """By tensor, the nodes of propagation that tie its layout to others."""
        found: dict[int, list[Node]] = {}
        for node in (self.origins.solution.graph.nodes if self.origins else ()):
            for t in dict.fromkeys(node.tensors):
                found.setdefault(t, []).append(node)
        return found

    def forward(self, root: int, tensor: int, dim: int, axis: str) -> list[Step] | None:
        """The steps back from a value to the tensor of an argument, the nearest to the value first;
        None if there is no short path. Each is to the tensor and dimension that it leads to.
        """
        assert self.origins is not None
        layouts = self.origins.solution.graph.layouts
        first = tensor, dim
        before: dict[_Place, tuple[_Place, Node] | None] = {}
        count = itertools.count()
        waiting: list[tuple[int, int, _Place, tuple[_Place, Node] | None]] = [
            (0, next(count), first, None)]
        while waiting and len(before) < _SEEN:
            cost, _, at, came = heapq.heappop(waiting)
            if at in before:
                continue
            before[at] = came
            if at[0] == root:
                return _steps(before, at)
            steps = self.known_steps.get(at)
            if steps is None:
                steps = self.known_steps[at] = [*self.steps_back(*at)]
            for node, place, price in steps:
                if place not in before and axis in layouts[place[0]].entries[place[1]]:
                    heapq.heappush(waiting, (cost + price, next(count), place, (at, node)))
        return None

    @functools.cached_property
    def known_steps(self) -> dict[_Place, list[tuple[Node, _Place, int]]]:
        """What `steps_back` has given: many paths lead through the same values."""
        return {}

    def steps_back(self, tensor: int, dim: int) -> Iterator[tuple[Node, _Place, int]]:
        """Where an axis of a value may come from by one node, and how far that is."""
        for node in self.touching.get(tensor, ()):
            if node.info is None:                   # the boundary of a shard_map
                places = [(n, t, dim) for n, t in enumerate(node.tensors) if t not in (tensor, -1)]
            else:
                of = [*zip(itertools.count(), node.tensors, node.info.places, strict=False)]
                factors = {f for _, t, own in of if t == tensor for f, at, _ in own if at == dim}
                places = [(n, t, at) for n, t, own in of if t not in (tensor, -1)
                          for f, at, _ in own if f in factors]
            eqn, ends = node.equation, _operands(node)
            back = eqn is not None and "transpose" in eqn.location.transform or (
                not is_boundary(node) and tensor not in node.tensors[ends:])
            for n, t, at in places:
                result = not is_boundary(node) and n >= ends
                yield node, (t, at), _BACK if back or result else 1


def _steps(before: dict[_Place, tuple[_Place, Node] | None], place: _Place) -> list[Step]:
    """The steps of a search that has come to a place."""
    found: list[Step] = []
    while (came := before[place]) is not None:
        at, node = came
        found.append(Step(node.equation, *place))
        place = at
    return found[::-1]


def is_boundary(node: Node) -> bool:
    """Does it tie values inside of a program to those outside, or to a result of all?"""
    return node.equation is None or bool(node.equation.op.subprograms)


def is_detour(node: Node, tensor: int) -> bool:
    """Does an axis come by a node from a result of its equation, or by a derivative?"""
    eqn = node.equation
    return eqn is not None and not is_boundary(node) and (
        tensor in node.tensors[_operands(node):] or "transpose" in eqn.location.transform)


def _operands(node: Node) -> int:
    return 1 if node.info is None else node.info.operands
