"""From solved layouts to the RESOLVED program: the same equations, every type with its sharding.

The mesh is frozen: Auto axes have become Explicit, so the types show every axis. Shardings in
params are dropped (the result's type says it), `sharding_constraint` becomes `reshard` where it
changes anything, and values that are one value in and outside a loop get one type.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir import reasons as say
from ...ir.facts import BRANCHES, PER_DEVICE
from ...ir.meshes.mesh import AbstractMesh
from ...ir.op_instance import SIGNATURES
from ...ir.ops.communication.sharding import reshard_p, sharding_constraint_p
from ...ir.passes import LayoutConstraints
from ...ir.program import Atom, Equation, Level, Literal, Program, Var
from ...ir.reasons import Reason, asks, operand, reason_text
from ...ir.source.location import UNKNOWN, Location
from ...ir.spec import PartitionSpec
from ...ir.support.caches import in_memo
from ...ir.types import ArrayType, Entries
from ..policy import OWN, Policy
from ..regions import has_region, region_of, with_programs
from .boundary_reasons import (
    CAPTURED_USES,
    asked_reason,
    defined_at,
    layout_reason,
    slices_reason,
)
from .fixed_point import Solution
from .idle_axes import split_arguments_further, split_values_further
from .origins import KEY, Origins
from .program_graph import boundary_entries
from .propagate import solve
from .resolved_types import (
    bare_literal,
    brought,
    frozen_mesh,
    typed,
    typed_literals,
    without_sharding,
)
from .step import Layout


def enlarges(have: ArrayType, entries: Entries) -> bool:
    """Would the blocks of a stack be larger in this layout, without the stack itself being split?
    """
    return (not have.entries[0] and not have.sharding.spec.unreduced
            and typed(have, have.mesh, entries).local_size > have.local_size)


def propagate(program: Program, mesh: AbstractMesh,
              in_shardings: Sequence[PartitionSpec | None],
              out_shardings: Sequence[PartitionSpec | None], carried_rows: bool = False,
              policy: Policy = OWN, idle: str = "") -> Program:
    """The pass: solve the layouts of a TRACED program and write the RESOLVED one. carried_rows,
    policy: as for `solve`. idle: "arguments", "values" or "both" are split further (idle_axes.py).
    """
    if idle:
        solution = _solved(program, mesh, in_shardings, out_shardings, policy).copy()
    else:
        solution = solve(program, mesh, in_shardings, out_shardings, carried_rows=carried_rows,
                         policy=policy)
    if idle in ("arguments", "both"):
        split = split_arguments_further(program, solution)
        further = solution if split is program else solve(
            split, mesh, in_shardings, out_shardings, policy=policy)
        if solution.has_parts_of_axes or not further.has_parts_of_axes:
            program, solution = split, further          # parts have too many layouts for a trial
    if idle in ("values", "both"):
        split_values_further(program, solution)
    return _Resolver(solution).run(program, out_shardings)


@in_memo
def _solved(program: Program, mesh: AbstractMesh, in_shardings: Sequence[PartitionSpec | None],
            out_shardings: Sequence[PartitionSpec | None], policy: Policy) -> Solution:
    """The usual layouts of a program, which several of its plans begin with."""
    return solve(program, mesh, in_shardings, out_shardings, policy=policy)


class _Resolver:
    """Writes the RESOLVED program of a solution.

    env: each atom of the traced program, as it is now. tensors: of the new variables. pinned: new
    variables that keep the layout of their type. types: memo of `type_at`.
    """
    def __init__(self, solution: Solution) -> None:
        self.solution = solution
        self.graph = solution.graph
        self.env: dict[Atom, Atom] = {}
        self.tensors: dict[Var, int] = {}
        self.pinned: set[Var] = set()
        self.types: dict[tuple, ArrayType] = {}
        self.places: dict[Var, Location] = {}       # reasons of results with an out_sharding

    # -- types -----------------------------------------------------------------------------------

    def type_of(self, atom: Atom, mesh: AbstractMesh) -> ArrayType:
        """The resolved type of a variable of the traced program."""
        return self.type_at(self.graph.of(atom), atom.aval, mesh)

    def type_at(self, t: int, aval: ArrayType, mesh: AbstractMesh) -> ArrayType:
        """The resolved type of a value that is tensor t; of one that is none (-1), unsplit."""
        types = self.types
        if t >= 0:
            entries, pending = self.graph.layouts[t].entries, self.graph.pending[t]
        else:
            entries, pending = ((),) * len(aval.shape), aval.sharding.spec.unreduced
        key = (aval, mesh, entries, pending) if pending else (aval, mesh, entries)
        found = types.get(key)
        if found is None:
            found = types[key] = typed(aval, mesh, entries, pending)
        return found

    def bind(self, var: Var, mesh: AbstractMesh) -> Var:
        index = self.graph.index
        t = index[var] if var in index else -1
        new = self.env[var] = Var(self.type_at(t, var.aval, mesh), var.name)
        if t >= 0:
            self.tensors[new] = t
        return new

    def atom(self, atom: Atom) -> Atom:
        return bare_literal(atom) if isinstance(atom, Literal) else self.env[atom]

    def set_entries(self, atom: Atom, entries: Entries) -> None:
        """Give a value these entries, whatever propagation found."""
        t = self.graph.of(atom)
        if t >= 0 and self.graph.layouts[t].entries != entries:
            old = self.graph.layouts[t]
            self.graph.layouts[t] = Layout(old.shape, entries, old.open, old.blocked)

    # -- programs --------------------------------------------------------------------------------

    def run(self, program: Program, out_shardings: Sequence[PartitionSpec | None]) -> Program:
        """The RESOLVED program, with the origins of its axes and the layouts that may not change as
        attributes. A result of a loop that nothing constrains stays as the loop lays it out.
        """
        mesh = frozen_mesh(self.graph.mesh)
        loops = {v for e in program.eqns if e.op.region is not None for v in e.outvars} if (
            program.holds_programs) else ()
        targets: list[ArrayType | None] = []
        for atom, spec, t in zip(program.outvars, out_shardings, self.solution.results,
                                 strict=True):
            aval = atom.aval
            if t >= 0 and atom in loops and self.is_free(t):
                targets.append(None)        # as the loop will lay it out
            elif t >= 0:
                pending = self.graph.pending[t]
                targets.append(typed(aval, mesh, self.graph.layouts[t].entries, pending))
            else:
                pending = aval.sharding.spec.unreduced if spec is None else spec.unreduced
                targets.append(typed(aval, mesh, ((),) * aval.ndim, pending))
        reasons = [asked_reason(program, i, spec) for i, spec in enumerate(out_shardings)]
        new = self.program(program, mesh, targets, reasons)
        origins = new.attributes[KEY] = Origins(self.solution, self.tensors, frozenset(self.pinned))
        fixed, places = origins.constraints()
        new.attributes[LayoutConstraints.KEY] = LayoutConstraints(fixed, {**places, **self.places})
        return new

    def is_free(self, t: int) -> bool:
        """Has a result no axes that anyone asked for or propagated, nor could get parts of axes?"""
        return (t not in self.graph.asked and not any(self.graph.layouts[t].entries)
                and not self.solution.has_parts_of_axes)

    def program(self, program: Program, mesh: AbstractMesh,
                targets: Sequence[ArrayType | None], reasons: Sequence[Reason],
                arrivals: Mapping[Var, tuple[ArrayType, Location, Reason]] | None = None
                ) -> Program:
        """targets: the types in which the results leave (None: as they are). arrivals: parameters
        that come in another type than the one they have inside, and where and why they change.
        """
        eqns: list[Equation] = []
        consts = []
        invars = []
        for v in program.invars:
            var = self.bind(v, mesh)
            if arrivals and v in arrivals:
                aval, location, why = arrivals[v]
                given = Var(aval, v.name)
                self.env[v] = brought(given, var.aval, location, why, eqns)
                var = given
            invars.append(var)
        for var, value in program.consts:
            whole = Var(typed(var.aval, mesh, ((),) * var.aval.ndim), var.name)
            consts.append((whole, value))
            laid_out = self.type_of(var, mesh)
            self.env[var] = whole
            if laid_out is not whole.aval:
                self.env[var] = brought(whole, laid_out, UNKNOWN, CAPTURED_USES, eqns)
        self.equations(program, mesh, eqns)
        outvars = []
        for atom, target, reason in zip(program.outvars, targets, reasons, strict=True):
            new = self.atom(atom)
            if target is not None and isinstance(new, Var) and new.aval is not target:
                location = defined_at(program, atom)
                new = brought(new, target, location, reason, eqns)
            outvars.append(new)
        return Program(program.name, invars, eqns, outvars, consts=consts, mesh=mesh,
                       level=Level.RESOLVED, arg_names=program.arg_names,
                       result_names=program.result_names)

    # -- equations -------------------------------------------------------------------------------

    def equations(self, program: Program, mesh: AbstractMesh, eqns: list[Equation]) -> None:
        """Append the equations of a program on their resolved types. Most are written down here
        without a call, since this loop is where resolving spends its time.
        """
        env = self.env
        for literal in typed_literals(program):
            env[literal] = bare_literal(literal)
        usual = {op for op in program.ops if not (
            op is sharding_constraint_p or op is reshard_p or op.subprograms or op.sharding_param
            or op.multiple_results)}
        get, type_at, index, tensors = env.get, self.type_at, self.graph.index, self.tensors
        for eqn in program.eqns:
            op = eqn.op
            if op in usual:                     # most: `on`, written out
                invars = eqn.invars
                operands: tuple[Atom, ...]
                if len(invars) == 2:
                    first, second = invars
                    operands = first, second = get(first, first), get(second, second)
                    types: tuple[ArrayType, ...] = first.aval, second.aval
                else:
                    operands = tuple(map(get, invars, invars))          # type: ignore[arg-type]
                    types = tuple([a.aval for a in operands])
                (var,) = eqn.outvars
                t = index[var] if var in index else -1
                aval = type_at(t, var.aval, mesh)
                result = env[var] = Var.__new__(Var)
                result.aval, result.name = aval, var.name
                if t >= 0:
                    tensors[result] = t
                new = Equation.__new__(Equation)
                new.op, new.params, new.invars, new.outvars = op, eqn.params, operands, (result,)
                new.location, new.reason = eqn.location, eqn.reason
                new.known_types = SIGNATURES[types, (aval,)]
                try:
                    new.instance = eqn.instance
                except TypeError:
                    pass                        # a param cannot be hashed: the verifier will say so
                eqns.append(new)
            elif op is sharding_constraint_p or op is reshard_p:
                self.layout_equation(eqn, mesh, eqns)
            elif op.subprograms and PER_DEVICE in op.facts:
                self.shard_map(eqn, mesh, eqns)
            elif op.subprograms and has_region(eqn):
                self.region(eqn, mesh, eqns)
            else:
                eqns.append(self.on(eqn, mesh))

    def on(self, eqn: Equation, mesh: AbstractMesh) -> Equation:
        """The equation with every type as it was solved."""
        op, env = eqn.op, self.env
        operands = tuple(map(env.get, eqn.invars, eqn.invars))          # type: ignore[arg-type]
        instance, name = None, op.sharding_param
        if name is not None and eqn.params.get(name) is not None:
            instance = without_sharding(eqn.instance)
        if op.multiple_results:
            new = eqn.with_operands(operands, [self.bind(v, mesh) for v in eqn.outvars], instance)
        else:
            result = self.bind(eqn.outvars[0], mesh)
            new = eqn.with_operands(operands, (result,), instance)
            new.known_types = SIGNATURES[tuple([a.aval for a in operands]), (result.aval,)]
        if instance is not None and new.location.known and not new.location.transform:
            self.places.update(dict.fromkeys(new.outvars, new.location))
        return new

    def layout_equation(self, eqn: Equation, mesh: AbstractMesh, eqns: list[Equation]) -> None:
        """A reshard or constraint: nothing, where the operand is laid out so already."""
        (operand,), (result,) = eqn.invars, eqn.outvars
        new = self.atom(operand)
        target = self.type_of(result, mesh)
        whole = isinstance(new, Literal) and not target.sharding.spec.unreduced
        if whole or new.aval.sharding is target.sharding:
            self.env[result] = new
            if isinstance(new, Var):
                self.pinned.add(new)
            return
        reason: Reason = ()
        if eqn.op is not reshard_p:
            who = reason_text(eqn.reason) or "`with_sharding_constraint`"
            reason = (asks(who, str(eqn.params["sharding"].spec)),)
        bound = self.bind(result, mesh)
        eqns.append(Equation(reshard_p, (new,), (bound,), {"dst_sharding": target.sharding},
                             eqn.location, reason))

    def shard_map(self, eqn: Equation, mesh: AbstractMesh, eqns: list[Equation]) -> None:
        """Append a `shard_map`. Outside, a value is split over the axes of its spec and then over
        those that propagation gave its block; operands and results in another sharding are
        resharded.
        """
        body: Program = eqn.params["jaxpr"]
        manual = frozenset(eqn.params["manual_axes"]) | frozenset(mesh.manual_axes)
        body_mesh = frozen_mesh(self.graph.mesh, manual)
        operands = []
        for i, (outer, body_atoms, spec) in enumerate(
                zip(eqn.invars, body.invars, eqn.params["in_specs"], strict=True)):
            new = self.atom(outer)
            if outer.aval.shape:
                prefix = boundary_entries(spec, outer.aval.ndim)
                tail = self.type_of(body_atoms, body_mesh).entries
                entries = tuple(p + t for p, t in zip(prefix, tail, strict=True))
                pending = new.aval.sharding.spec.unreduced
                new = brought(new, typed(outer.aval, mesh, entries, pending), eqn.location,
                              (say.TAKES_AS("shard_map", operand(i), str(spec)),), eqns)
            operands.append(new)
        targets: list[ArrayType | None] = []
        for outer, body_atoms, spec in zip(eqn.outvars, body.outvars, eqn.params["out_specs"],
                                           strict=True):
            if not outer.aval.shape or isinstance(body_atoms, Literal):
                targets.append(None)
                continue
            prefix = boundary_entries(spec, outer.aval.ndim)
            whole = self.type_of(outer, mesh).entries
            tail = tuple(e[len(p):] for e, p in zip(whole, prefix, strict=True))
            targets.append(typed(body_atoms.aval, body_mesh, tail,
                                 self.graph.pending[self.graph.of(body_atoms)]))
        new_body = self.program(body, body_mesh, targets,
                                [(say.LEAVES_SO(),)] * len(targets))
        params = {**eqn.params, "jaxpr": new_body, "mesh": mesh}
        outvars = [self.bind(v, mesh) for v in eqn.outvars]
        eqns.append(Equation(eqn.op, operands, outvars, params, eqn.location, eqn.reason))

    def region(self, eqn: Equation, mesh: AbstractMesh, eqns: list[Equation]) -> None:
        """A loop or branch: every slot has one layout, that of the first name it has inside."""
        region = region_of(eqn)
        reason = layout_reason(eqn)
        operands = [self.atom(a) for a in eqn.invars]
        targets: dict[tuple[int, int], ArrayType] = {}
        arrivals: dict[Var, tuple[ArrayType, Location, Reason]] = {}
        for slot in region.slots:
            body_atoms = region.body_atoms(slot)
            leader = body_atoms[0]
            if slot.result >= 0 and not slot.inputs and not slot.stacked:
                leader = eqn.outvars[slot.result]
            if not leader.aval.shape and not slot.stacked:
                continue
            leading = self.type_of(leader, mesh)
            entries = leading.entries
            if slot.result >= 0 and self.graph.policy.loops_as_results:
                result = self.type_of(eqn.outvars[slot.result], mesh)
                entries = result.entries[int(slot.stacked):]
            if BRANCHES in eqn.op.facts and slot.operand >= 0:
                have = operands[slot.operand].aval
                if all(inner[:len(axes)] == axes for axes, inner in zip(
                        have.entries, entries, strict=True)):
                    entries = have.entries      # each branch takes the part that it wants
            for atom in body_atoms[:len(slot.inputs)]:
                self.set_entries(atom, entries)
            for at, atom in zip(slot.outputs, body_atoms[len(slot.inputs):], strict=True):
                targets[at] = typed(atom.aval, mesh, entries, leading.sharding.spec.unreduced)
            outer = ((), *entries) if slot.stacked else entries
            if slot.result >= 0:
                self.set_entries(eqn.outvars[slot.result], outer)
            if slot.operand >= 0:
                old = operands[slot.operand]
                if slot.stacked and enlarges(old.aval, outer):
                    # one slice after another is brought to where it is wanted, never all at once
                    assert isinstance(leader, Var)
                    have = typed(leader.aval, mesh, old.aval.entries[1:])
                    arrivals[leader] = (have, *self.requester(leader, eqn))
                    outer = ((), *old.aval.entries[1:])
                aval = typed(old.aval, mesh, outer, old.aval.sharding.spec.unreduced)
                operands[slot.operand] = brought(old, aval, eqn.location, reason, eqns)
        programs: dict[tuple[str, int], Program] = {}
        for p, (param, place, program) in enumerate(region.programs):
            wanted = [targets.get((p, k)) for k in range(len(program.outvars))]
            programs[param, place] = self.program(program, mesh, wanted, [reason] * len(wanted),
                                                  arrivals)
        outvars = [self.bind(v, mesh) for v in eqn.outvars]
        eqns.append(Equation(eqn.op, operands, outvars, with_programs(eqn.params, programs),
                             eqn.location, eqn.reason))

    def requester(self, atom: Atom, eqn: Equation) -> tuple[Location, Reason]:
        """Who wants a slice in the layout that it has in the body of a loop."""
        root = self.graph.asked.get(self.graph.of(atom))
        if root is not None and root.location is not UNKNOWN:
            return root.location, (asks(root.text, "it"),)
        return eqn.location, slices_reason(eqn)
