"""Where an axis comes from: what a resolved program remembers of its propagation.

Propagation records, for every axis that it adds, the equation that propagated it and the tensor it
came from. Followed backward these records lead to an annotation: an argument's sharding, a
constraint, an explicit type. `vetoes` says what did not happen: which tensor had an axis, and what
blocked it. Both are data, for reports to render (report/propagation/, report/reasons/).
"""
from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from ...ir.passes import LayoutConstraints
from ...ir.program import Equation, Program, Var
from ...ir.source.location import UNKNOWN, Location
from ...ir.support.immutable import immutable
from ..factors import project
from .fixed_point import Solution
from .graph import Graph, Node

KEY = "origins"                         # attribute of a program
WHEN_ASKED = "origins, when asked for"  # or the function that solves the problem on demand


@immutable
class Step:
    """One step of an axis. text: "`mul` would have it from `x`, dimension 0"; location: of `mul`.
    """
    text: str
    location: Location = UNKNOWN


@immutable
class Origins:
    """What a resolved program remembers of its propagation. tensors: of its variables. pinned:
    values that the user wanted in the layout they have.
    """
    solution: Solution
    tensors: dict[Var, int]
    pinned: frozenset[Var] = frozenset()

    @functools.cached_property
    def _named(self) -> dict[int, Var]:
        """For each tensor its first variable."""
        return {t: v for v, t in reversed(self.tensors.items())}

    def name(self, tensor: int) -> str:
        """The name of a tensor in texts."""
        tensor = self.solution.graph.repeats.get(tensor, tensor)
        var = self._named.get(tensor)
        return f"`{var.name}`" if var is not None and var.name else "a value"

    def constraints(self) -> LayoutConstraints:
        """Values whose layout the user or a type determines; over Explicit axes these are all. The
        result of a `reshard` is none of them, if it has no tensor.
        """
        graph, tensors = self.solution.graph, self.tensors
        asked = graph.asked
        places = {v: asked[t].location for v, t in tensors.items()
                  if t in asked and asked[t].location.known} if asked else {}
        if graph.mesh.explicit_axes:
            return LayoutConstraints(None, places)
        constrained = {*asked, *[t for t, axes in enumerate(graph.pending) if axes]}
        fixed = self.pinned.union([v for v, t in tensors.items() if t in constrained])
        return LayoutConstraints(fixed, places)


def origins_of(program: Program) -> Origins | None:
    """What a RESOLVED program remembers; None if it does not come from propagation."""
    found: Origins | None = program.attributes.get(KEY)
    if found is None and WHEN_ASKED in program.attributes:
        found = program.attributes[KEY] = program.attributes[WHEN_ASKED]()
    return found


@immutable
class Veto:
    """An axis that an equation would have brought to a dimension of a value, and what forbade it.

    wanted: the tensor that has the axis, as a step. held: what forbade it, such as "dimension 1 of
    it is over x". location: where the user asked for it. source: the tensor that has the axis,
    and its dimension. equation: where the two meet.
    """
    dim: int
    axis: str
    wanted: Step
    held: str
    location: Location = UNKNOWN
    source: tuple[int, int] = (-1, -1)
    equation: Equation | None = None


def vetoes(program: Program, var: Var) -> tuple[Veto, ...]:
    """Axes that `var` of a resolved program might have but for something that held them off.

    The frontier of propagation: the neighbours of the value at the fixed point that have an axis
    which it has not, each with the first thing that forbids it. Empty for programs that did not
    come from propagation.
    """
    origins = origins_of(program)
    tensor = origins.tensors.get(var, -1) if origins else -1
    if origins is None or tensor < 0:
        return ()
    near = program.memo.get(_NEAR)
    if near is None:
        near = program.memo[_NEAR] = {}
        for node in origins.solution.graph.nodes:
            for t in set(node.tensors):
                near.setdefault(t, []).append(node)
    split = program.memo.setdefault(_SPLIT, {})
    found = [veto for node in near.get(tensor, ()) if node.info is not None
             for veto in _vetoes(origins, node, tensor, split)]
    return tuple(dict.fromkeys(found))


# of Program.memo
_NEAR, _SPLIT = "nodes by tensor", "axes of factors by node"


def _vetoes(origins: Origins, node: Node, tensor: int, split: dict[Node, list]) -> Iterator[Veto]:
    """`vetoes` of one equation: for each factor of the tensor, and each other tensor that has a
    further axis along it, that axis and what blocked it. split: axes of factors, by node.
    """
    graph, info = origins.solution.graph, node.info
    assert info is not None
    axes = split.get(node)
    if axes is None:
        layouts = [graph.layouts[t] if t >= 0 else None for t in node.tensors]
        axes = split[node] = [
            project(dims, info.factors, layout.entries, graph.size)[0] if layout else {}
            for dims, layout in zip(info.maps, layouts, strict=True)]
    for at, t in enumerate(node.tensors):
        if t != tensor:
            continue
        for f, dim, _ in info.places[at]:
            own = axes[at].get(f, ())
            for other, source in enumerate(node.tensors):
                theirs = axes[other].get(f, ()) if source != tensor else ()
                same = 0
                while same < min(len(own), len(theirs)) and own[same] == theirs[same]:
                    same += 1
                if same == len(theirs):
                    continue
                axis = theirs[same]
                name = origins.name(source)
                place = next(d for g, d, _ in info.places[other] if g == f)
                eqn = node.equation
                by = f"`{eqn.op.name}`" if eqn is not None else "the result"
                where = eqn.location if eqn is not None else UNKNOWN
                wanted = Step(f"{by} would have it from {name}, dimension {place}", where)
                held, location = _blocker(graph, node, axes, at, f, dim, axis, own[same:])
                yield Veto(dim, axis, wanted, held, location, (source, place), eqn)


def _blocker(graph: Graph, node: Node, axes: list, at: int, f: int, dim: int, axis: str,
          rest: tuple[str, ...]) -> tuple[str, Location]:
    """What keeps an axis from a dimension of the tensor at this position of an equation."""
    info, t = node.info, node.tensors[at]
    assert info is not None
    layout = graph.layouts[t]
    for d, held in enumerate(layout.entries):
        if axis in held:
            return f"dimension {d} of it is over {axis}", UNKNOWN
    if axis in layout.blocked:
        return f"its type says where {axis} is", UNKNOWN
    if not layout.open[dim]:
        root = graph.asked.get(t)
        return (f"{root.text} asks for it so", root.location) if root else ("it is fixed", UNKNOWN)
    if rest:
        return f"dimension {dim} of it is over {', '.join(layout.entries[dim])} first", UNKNOWN
    parts = math.prod(map(graph.size, (*layout.entries[dim], axis)))
    if layout.shape[dim] % parts:
        return (f"dimension {dim} of size {layout.shape[dim]} is not divisible by {parts}", UNKNOWN)
    if not info.flows[f] or not info.carries(f, at):
        return "the equation works along that dimension", UNKNOWN
    for other, found in enumerate(axes):
        for g, names in found.items():
            if g != f and axis in names:
                d = next(d for h, d, _ in info.places[other] if h == g)
                what = "operand" if other < info.operands else "result"
                k = other if other < info.operands else other - info.operands
                return f"{axis} splits dimension {d} of {what} {k} of the equation", UNKNOWN
    return "other dimensions came first", UNKNOWN
