"""The propagation problem of a program: integer tables of tensors and of nodes between them.

Every variable with dimensions, of the program and of the programs inside it, is one tensor; every
equation, call edge and result is one node, a factor rule over tensors. program_graph.py reads a
program into these tables.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.meshes.mesh import AbstractMesh, AxisType
from ...ir.program import Atom, Equation, Var
from ...ir.rules.rule import make_rule
from ...ir.source.location import UNKNOWN, Location
from ...ir.spec import UNCONSTRAINED
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType, Entries
from ..factors import RuleInfo, rule_info
from ..policy import OWN, Policy
from .divisibility import rounded_up
from .step import Layout

_EMPTY: frozenset[str] = frozenset()


class Root(NamedTuple):
    """Where an axis comes from, if nothing propagated it: "argument `x`", "its type", ...
    argument: its position, -1 of anything else.
    """
    text: str
    location: Location = UNKNOWN
    argument: int = -1


class Kind:
    """What nodes have in common; one object for each case in a graph.

    info: factor rule, or None at the boundary of a shard_map. widens: it is a broadcast that
    repeats elements, whatever its rule. structural: as in RuleInfo, or it is visited as if it were.
    operands: how many there are. repeated: operands broadcast to the shape of the result
    beforehand, as (position, kind of the broadcast, type after it).
    """

    __slots__ = ("info", "operands", "repeated", "structural", "widens")

    def __init__(self, info: RuleInfo | None, widens: bool = False,
                 repeated: tuple[tuple[int, Kind, ArrayType], ...] = (), structural: bool = False
                 ) -> None:
        self.info, self.widens, self.repeated = info, widens, repeated
        self.structural = structural or info is not None and info.kind == "structural"
        self.operands = 1 if info is None else info.operands


class Node(NamedTuple):
    """A place where layouts meet.

    info: factor rule, or None at the boundary of a shard_map; `prefix` is then the manual axes of
    each dimension of the outer tensor (tensors[0]; the inner one is tensors[1]).
    """
    info: RuleInfo | None
    tensors: tuple[int, ...]
    equation: Equation | None
    prefix: Entries = ()


class Graph:
    """Tables built from a program; propagation changes `layouts`.

    kinds, tensors, equations: of the nodes, in order. prefixes: of those that are boundaries.
    index: variable -> tensor; tensors of rank 0 have no entry. pending: axes over which a tensor is
    an unfinished sum. roots: where the axes come from that a tensor starts with. asked: tensors
    closed by a constraint. uses: how many equations read a tensor. priority: tensors whose axes
    spread later than others'. uneven: sizes do not matter, see `rounded_up`. repeats:
    from the tensor of a broadcast operand to that of the operand.
    """

    def __init__(self, mesh: AbstractMesh, uneven: bool = False, policy: Policy = OWN) -> None:
        self.mesh, self.uneven, self.policy = mesh, uneven, policy
        self.size = mesh.axis_size
        self.kinds: list[Kind] = []
        self.tensors: list[tuple[int, ...]] = []
        self.equations: list[Equation | None] = []
        self.prefixes: dict[int, Entries] = {}
        self.layouts: list[Layout] = []
        self.pending: list[frozenset[str]] = []
        self.roots: dict[int, dict[tuple[int, str], Root]] = {}
        self.uses: list[int] = []
        self.index: dict[Var, int] = {}
        self.asked: dict[int, Root] = {}
        self.priority: dict[int, int] = {}
        self.repeats: dict[int, int] = {}
        self.starts: dict[tuple[ArrayType, frozenset[str]], Any] = {}      # see `start`
        self.blocked: dict[tuple[AbstractMesh, frozenset[str]], frozenset[str]] = {}
        self.known: dict[Any, Kind] = {}        # by instance and types, or by rule

    # -- tensors -------------------------------------------------------------------------------

    def tensor(self, aval: ArrayType, manual: frozenset[str], location: Location) -> int:
        """A new tensor, laid out as its type says; Auto axes are open."""
        start, uses = self.starts.get((aval, manual)), self.uses
        if start is None:
            start = self.starts[aval, manual] = self.start(aval, manual)
        layout, pending, axes = start
        t = len(uses)
        self.layouts.append(layout)
        self.pending.append(pending)
        uses.append(0)
        if axes:
            self.roots[t] = dict.fromkeys(axes, Root("its type", location))
        return t

    def root(self, t: int, dim: int, axis: str) -> Root | None:
        """The origin of an axis that a tensor starts with; None if it does not."""
        return self.roots[t].get((dim, axis)) if t in self.roots else None

    def start(self, aval: ArrayType, manual: frozenset[str]
              ) -> tuple[Layout, frozenset[str], tuple[tuple[int, str], ...]]:
        """(layout, pending axes, (dim, axis) pairs) of a value of this type before propagation."""
        own, entries = aval.mesh, aval.entries
        key = own, manual
        if key not in self.blocked:
            self.blocked[key] = manual.union(self.mesh.explicit_axes if own.empty else [
                n for n, t in zip(own.axis_names, own.axis_types, strict=True)
                if t is not AxisType.Auto])
        shape = (rounded_up(aval.shape, self.mesh, self.policy.splits_few) if self.uneven
                 else aval.shape)
        return (Layout(shape, entries, (True,) * len(entries), self.blocked[key]),
                aval.sharding.spec.unreduced,
                tuple([(d, a) for d, axes in enumerate(entries) for a in axes]))

    def define(self, var: Var, manual: frozenset[str], location: Location = UNKNOWN) -> int:
        index = self.index
        if not var.aval.shape:
            return -1
        if var not in index:
            index[var] = self.tensor(var.aval, manual, location)
        return index[var]

    def of(self, atom: Atom) -> int:
        """The tensor of an operand; -1 if it has no dimensions."""
        index = self.index
        return index[atom] if atom in index else -1  # type: ignore[index]

    def constrain(self, t: int, entries: Sequence[Any], root: Root) -> None:
        """Close a tensor on these entries; UNCONSTRAINED dimensions stay as they are."""
        old = self.layouts[t]
        new = tuple([have if axes is UNCONSTRAINED else axes
                     for have, axes in zip(old.entries, entries, strict=True)])
        opened = tuple([was and axes is UNCONSTRAINED
                        for was, axes in zip(old.open, entries, strict=True)])
        self.roots[t] = {(d, a): self.root(t, d, a) or root
                         for d, axes in enumerate(new) for a in axes}
        self.layouts[t] = Layout(old.shape, new, opened, old.blocked)
        self.asked[t] = root

    # -- nodes ---------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Node]:
        """The nodes one by one, for reports."""
        return [self.node(i) for i in range(len(self.kinds))]

    def node(self, i: int) -> Node:
        return Node(self.kinds[i].info, self.tensors[i], self.equations[i],
                    self.prefixes.get(i, ()))

    def add(self, kind: Kind, tensors: tuple[int, ...], equation: Equation | None) -> None:
        self.kinds.append(kind)
        self.tensors.append(tensors)
        self.equations.append(equation)

    def edge(self, tensors: Sequence[int], equation: Equation | None) -> None:
        """Tie tensors that are one value: they get the same layout unless something forbids it."""
        tensors = tuple([t for t in tensors if t >= 0])
        if len(tensors) > 1:
            others = len(tensors) - 1
            self.link(tensors, equation, "... -> ..." + ", ..." * (others - 1))

    def stack_edge(self, outer: int, inner: int, equation: Equation) -> None:
        """Tie a value to its slices along a first dimension that is not split."""
        if outer >= 0 and inner >= 0:
            self.link((outer, inner), equation, "n ... -> ... | n!:replicate",
                      self.policy.loops_as_results)

    def link(self, tensors: tuple[int, ...], equation: Equation | None, text: str,
             structural: bool = False) -> None:
        """Add a node with the rule of this text, from the first tensor to the others."""
        shapes = tuple([self.layouts[t].shape for t in tensors])
        key = text, shapes
        if key not in self.known:
            rule = make_rule(text, shapes[:1], shapes[1:])
            self.known[key] = self.kind(rule_info(rule), False, structural)
        self.add(self.known[key], tensors, equation)

    def kind(self, info: RuleInfo, widens: bool, structural: bool = False) -> Kind:
        known = self.known
        if (info, widens, structural) not in known:
            known[info, widens, structural] = Kind(info, widens, (), structural)
        return known[info, widens, structural]
