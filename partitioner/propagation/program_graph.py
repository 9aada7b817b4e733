"""A program read into the tables of its propagation problem (graph.py).

Every variable of the program and of the programs inside it becomes a tensor, every equation a node.
Constraints are layouts that are partly closed: given arguments, asked-for results,
`sharding_constraint`, and all that the types decide. The boundary of a shard_map is a node of its
own kind, since a value has other dimensions inside than outside.
"""
from __future__ import annotations

from typing import Any

from ...ir.facts import PER_DEVICE, REPEATS
from ...ir.meshes.mesh import AbstractMesh
from ...ir.op_instance import OpInstance
from ...ir.ops.communication.sharding import sharding_constraint_p
from ...ir.ops.control.region import Region, Slot
from ...ir.program import Equation, Program, Var
from ...ir.reasons import reason_text
from ...ir.rules.rule import ELEMENTWISE, make_rule
from ...ir.spec import UNCONSTRAINED, PartitionSpec
from ...ir.types import ArrayType, Entries
from ..factors import rule_info
from ..policy import OWN, Policy
from ..regions import has_region, region_of
from .divisibility import dividing, warn_indivisible
from .graph import Graph, Kind, Root
from .step import Layout

_EMPTY: frozenset[str] = frozenset()
_BOUNDARY = Kind(None)


class ProgramGraph(Graph):
    """The tables of a program.

    carried_rows: as for `solve`. moved: constraints that may hold for the operand as well, as
    (operand, entries, root, priority, pending axes).
    """

    def __init__(self, mesh: AbstractMesh, uneven: bool = False, carried_rows: bool = False,
                 policy: Policy = OWN) -> None:
        super().__init__(mesh, uneven, policy)
        self.carried_rows = carried_rows
        self.moved: list[tuple[int, tuple[Any, ...], Root, int, frozenset[str]]] = []

    def add_program(self, program: Program, manual: frozenset[str] = _EMPTY) -> None:
        """Add a tensor for each variable and a node for each equation, those of nested programs
        included. manual: the axes that are manual here.
        """
        for var in (*program.invars, *program.constvars):
            self.define(var, manual)
        uses, index = self.uses, self.index
        for eqn in program.eqns:
            tensors: tuple[int, ...] = ()
            ranked = False
            for atom in eqn.invars:
                if atom in index:
                    t = index[atom]  # type: ignore[index]
                    uses[t] += 1
                    tensors += (t,)
                    ranked = True
                else:
                    tensors += (-1,)
            for var in eqn.outvars:
                if var.aval.shape:
                    if var not in index:
                        index[var] = self.tensor(var.aval, manual, eqn.location)
                    tensors += (index[var],)
                    ranked = True
                else:
                    tensors += (-1,)
            if eqn.op.subprograms:
                self.add_region(eqn, manual)
            elif eqn.op is sharding_constraint_p and not eqn.outvars[0].aval.shape:
                if eqn.params.get("unreduced"):
                    self.add_pending_scalar(eqn, manual)
            elif ranked:
                self.add_whole(eqn, tensors, manual)

    def add_region(self, eqn: Equation, manual: frozenset[str]) -> None:
        """Add an equation that holds programs."""
        if PER_DEVICE in eqn.op.facts:
            self.add_shard_map(eqn, manual)
        elif has_region(eqn):
            region = region_of(eqn)
            if self.policy.loops_as_results:
                self.share_carries(eqn, region)
            for _, _, program in region.programs:
                for var in program.invars:
                    self.define(var, manual)
            # what a body only reads is laid out before the body, unless its rows are to win
            before: list[Slot] = []
            after: list[Slot] = []
            for slot in region.slots:
                (after if slot.result >= 0 or self.carried_rows else before).append(slot)
            if self.policy.loops_as_results:
                # a body writes what is stacked before it hands on the rest
                after.sort(key=lambda slot: not slot.stacked)
            for slot in before:
                self.add_slot(eqn, region, slot)
            for _, _, program in region.programs:
                self.add_program(program, manual)
            for slot in after:
                self.add_slot(eqn, region, slot)
        else:
            tensors = tuple(map(self.of, (*eqn.invars, *eqn.outvars)))
            if max(tensors, default=-1) >= 0:
                self.add_whole(eqn, tensors, manual)

    def share_carries(self, eqn: Equation, region: Region) -> None:
        """What a loop carries has one layout inside and after it, whatever its body makes of it."""
        for slot in region.slots:
            result = self.of(eqn.outvars[slot.result]) if slot.result >= 0 else -1
            if result >= 0 and not slot.stacked:
                for p, k in slot.inputs:
                    self.index[region.programs[p][2].invars[k]] = result

    def add_slot(self, eqn: Equation, region: Region, slot: Slot) -> None:
        """Tie what a slot stands for outside and inside of an equation that holds programs."""
        outer = [eqn.invars[slot.operand]] if slot.operand >= 0 else []
        outer += [eqn.outvars[slot.result]] if slot.result >= 0 else []
        inner = [self.of(a) for a in region.body_atoms(slot)]
        if slot.stacked:
            self.stack_edge(self.of(outer[0]), inner[0], eqn)
        else:
            self.edge([*inner, *map(self.of, outer)], eqn)

    def add_whole(self, eqn: Equation, tensors: tuple[int, ...], manual: frozenset[str]) -> None:
        """Add an equation by its factor rule; some tensor has dimensions."""
        instance, types = key = eqn.instance, eqn.known_types or eqn.types
        op, kind = eqn.op, self.known.get(key)
        if kind is None:
            kind = self.known[key] = (
                self.elementwise(instance, *types) if op.rule == ELEMENTWISE else
                self.kind(rule_info(instance.rule(*types)), REPEATS in op.facts
                          and eqn.invars[0].aval.size < eqn.outvars[0].aval.size))
        if kind.repeated:
            tensors = self.repeat(eqn, kind, tensors, manual)
        self.kinds.append(kind)
        self.tensors.append(tensors)
        self.equations.append(eqn)
        if op is sharding_constraint_p and tensors[1] >= 0:
            self.add_constraint(eqn, *tensors)

    def elementwise(self, instance: OpInstance, operands: tuple[ArrayType, ...],
                    results: tuple[ArrayType, ...]) -> Kind:
        """The kind of an elementwise equation. Operands of size 1 along a dimension are broadcast
        first, as JAX lowers them: axes of the result reach the broadcast value sooner than the
        operand.
        """
        whole, repeated = list(operands), []
        for k, x in enumerate(operands):
            if x.shape and x.shape != results[0].shape:
                whole[k] = x.update(shape=results[0].shape)
                dims = make_rule(ELEMENTWISE, (x.shape,), (whole[k].shape,))
                repeated.append((k, self.kind(rule_info(dims), True), whole[k]))
        info = rule_info(instance.rule(tuple(whole), results))
        return Kind(info, repeated=tuple(repeated)) if repeated else self.kind(info, False)

    def repeat(self, eqn: Equation, kind: Kind, tensors: tuple[int, ...],
               manual: frozenset[str]) -> tuple[int, ...]:
        """The tensors of an elementwise equation, with those of broadcast operands in place."""
        own = list(tensors)
        for k, broadcast, aval in kind.repeated:
            own[k] = self.tensor(aval, manual, eqn.location)
            self.uses[own[k]] = 1
            self.repeats[own[k]] = tensors[k]
            self.add(broadcast, (tensors[k], own[k]), eqn)
        return tuple(own)

    def add_constraint(self, eqn: Equation, operand: int, result: int) -> None:
        """Close the result where the constraint says so; explicit axes stay major."""
        spec: PartitionSpec = eqn.params["sharding"].spec
        aval = eqn.outvars[0].aval
        entries: list[Any] = []
        for axes, own in zip(spec.padded(aval.ndim).entries, aval.entries, strict=True):
            if axes is not UNCONSTRAINED:
                axes = own + tuple(a for a in axes if a not in own)
                n = self.layouts[result].shape[len(entries)]
                divides = dividing(axes, n, self.size)
                if divides != axes and not self.uneven:
                    warn_indivisible(eqn, aval, len(entries), axes, divides, self.size)
                axes = divides
            entries.append(axes)
        root = Root(reason_text(eqn.reason) or "`with_sharding_constraint`", eqn.location)
        self.constrain(result, entries, root)
        pending = frozenset(eqn.params.get("unreduced", ()))
        self.pending[result] |= pending
        priority = eqn.params.get("priority", 0)
        if priority:
            self.priority[result] = priority
        if operand >= 0 and UNCONSTRAINED not in entries:
            self.moved.append((operand, tuple(entries), root, priority, pending))

    def add_pending_scalar(self, eqn: Equation, manual: frozenset[str]) -> None:
        """Add a constraint on a scalar that is a partial sum, which gets tensors for this alone."""
        atoms = [a for a in (*eqn.invars, *eqn.outvars) if isinstance(a, Var)]
        for a in atoms:
            if a not in self.index:
                self.index[a] = self.tensor(a.aval, manual, eqn.location)
        self.add_constraint(eqn, *map(self.of, (*eqn.invars, *eqn.outvars)))

    def move_constraints(self) -> None:
        """Extend a constraint to the operand, if nothing else constrains that."""
        wanted: dict[int, set[tuple[Any, ...]]] = {}
        first: dict[int, int] = {}
        for t, entries, _, priority, _ in self.moved:
            wanted.setdefault(t, set()).add(entries)
            first[t] = min(first.get(t, priority), priority)
        for t, entries, root, _, pending in self.moved:
            layout = self.layouts[t]
            if first[t] and wanted[t] == {layout.entries}:
                self.priority[t] = first[t]          # an argument that is given in this layout
            if (len(wanted[t]) == 1 and t not in self.asked and all(layout.open)
                    and not any(layout.entries) and not self.pending[t]
                    and not any(a in layout.blocked for axes in entries for a in axes)):
                self.constrain(t, entries, root)
                self.pending[t] = pending
                if first[t]:
                    self.priority[t] = first[t]

    def add_shard_map(self, eqn: Equation, manual: frozenset[str]) -> None:
        """Add the body with its own types; operands and results begin with the manual axes of their
        specs.
        """
        body: Program = eqn.params["jaxpr"]
        inside = manual | frozenset(eqn.params["manual_axes"])
        self.add_program(body, inside)
        for outer, inner, spec in zip(eqn.invars, body.invars, eqn.params["in_specs"], strict=True):
            # the operand as the region takes it: led by the manual axes
            if outer.aval.shape:
                prefix = boundary_entries(spec, outer.aval.ndim)
                t = self.tensor(outer.aval, manual | inside, eqn.location)
                self.prepend(t, prefix, Root("the in_specs of this `shard_map`", eqn.location))
                self.edge((self.of(outer), t), eqn)
                self.cross(t, self.of(inner), prefix, eqn)
        for outer, inner, spec in zip(eqn.outvars, body.outvars, eqn.params["out_specs"],
                                      strict=True):
            t = self.of(outer)
            if t >= 0:
                prefix = boundary_entries(spec, outer.aval.ndim)
                self.prepend(t, prefix, Root("the out_specs of this `shard_map`", eqn.location))
                old = self.layouts[t]
                self.layouts[t] = Layout(old.shape, old.entries, old.open, old.blocked | inside)
                self.cross(t, self.of(inner), prefix, eqn)

    def prepend(self, t: int, prefix: Entries, root: Root) -> None:
        """Put axes in front of those that a layout has in each dimension; root: why they are there.
        """
        old = self.layouts[t]
        entries = tuple(p + tuple(a for a in axes if a not in p)
                        for p, axes in zip(prefix, old.entries, strict=True))
        leading = {a for p in prefix for a in p}
        entries = tuple(tuple(a for a in axes if a in p or a not in leading)
                        for p, axes in zip(prefix, entries, strict=True))
        self.layouts[t] = Layout(old.shape, entries, old.open, old.blocked)
        self.roots[t] = {(d, a): root if a in leading else self.root(t, d, a) or root
                         for d, axes in enumerate(entries) for a in axes}

    def cross(self, outer: int, inner: int, prefix: Entries, equation: Equation) -> None:
        if outer >= 0 and inner >= 0:
            self.prefixes[len(self.kinds)] = prefix
            self.add(_BOUNDARY, (outer, inner), equation)


def boundary_entries(spec: PartitionSpec, ndim: int) -> Entries:
    """The manual axes of each dimension, from an in_spec or out_spec."""
    return tuple(spec.padded(ndim).entries)
