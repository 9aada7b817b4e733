"""The simulated executor: a per-device program on numpy, all devices at once.

A value of all devices is one array. For every axis over which the devices' values differ, the
planner decides equation by equation whether the axis is in place in a dimension or stacked as a
leading one (runtime/layout.py, runtime/simulation/equation_plans.py); values that do not differ are
held and computed once. So a program costs about what the unsharded program costs, whatever the
number of devices, and most collectives cost nothing. The result is a straight-line plan
(runtime/plans/plan.py).

Plans follow the data, not the types: a value that the program fails to exchange stays different.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ...arrays.axes import MeshAtoms, mesh_atoms
from ...arrays.storage import Stored, new_stored
from ...ir.facts import IDENTITY, POSITION
from ...ir.kernels.key_data import storage_dtype
from ...ir.meshes.mesh import AbstractMesh
from ...ir.op import Op
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.source.wording import warn
from ...ir.support.caches import cached
from ...ir.support.lazy import lazy_import
from ...ir.types import ArrayType
from ..layout import Layout, whole
from ..plans.plan import Plan
from ..rewrites.pipeline import run_execution_passes
from . import collectives, control
from .conversions import StoredArgument, stored_argument, stored_result, usual_lead
from .device_sums import (
    NO_DEFERRED_SUMS,
    NONE,
    DeferredSums,
    deferrable_sums,
    device_dependent_ops,
    has_reductions,
    linear_set,
    varying_axes,
)
from .equation_plans import common_deferred_sums, equation_plan
from .workspace import Value, Workspace

callbacks = lazy_import("..callbacks", __package__)

def compile_simulated(local: Program, mesh: AbstractMesh) -> Simulated:
    """A LOCAL program as a function from stored arguments to stored results.

    mesh: the mesh of all device axes (empty for a single device). Arguments and results are the
    whole values whose types are `local.global_in` and `local.global_out`.
    """
    return Simulated(run_execution_passes(local), mesh)


class Simulated:
    """A compiled program: planned for the leading axes that its arguments usually have, and once
    more for each other combination of leading axes with which it is called.
    """

    __slots__ = ("_mesh", "_planned", "_program", "usual")

    def __init__(self, program: Program, mesh: AbstractMesh) -> None:
        leads = tuple([usual_lead(t, mesh) if t.sharding.spec.unreduced else () for t in
                       program.global_in or program.in_avals])
        self._program, self._mesh = program, mesh
        self.usual = PlannedProgram(program, mesh, leads)
        self._planned = {leads: self.usual}

    def __call__(self, arguments: Sequence[Stored]) -> list[Stored]:
        leads = tuple([x.lead for x in arguments])
        planned = self._planned.get(leads)
        if planned is None:
            planned = self._planned[leads] = PlannedProgram(self._program, self._mesh, leads)
        return planned([x.data for x in arguments])


class PlannedProgram:
    """The plan of a program for arguments with given leading axes.

    is_whole: no argument or result has leading axes, so that each is one array and no more.
    """

    __slots__ = ("expected", "is_whole", "leads", "plan")

    def __init__(self, program: Program, mesh: AbstractMesh,
                 leads: Sequence[tuple[str, ...]]) -> None:
        planner = Planner(program, mesh_atoms(mesh, used_axes(program, leads)))
        self.plan: Plan
        self.plan, self.leads = planner.make(leads)
        self.expected = planner.expected
        planner.planned_bodies.clear()      # their planners refer to it in turn
        self.is_whole = not any(leads) and not any(self.leads)

    def __call__(self, arguments: Sequence[np.ndarray]) -> list[Stored]:
        for x, wanted in zip(arguments, self.expected, strict=True):
            if x.shape != wanted.shape or x.dtype != wanted.dtype:
                raise ValueError(f"an argument has shape {x.shape} and dtype {x.dtype}; the "
                                 f"program was compiled for {wanted.shape} and {wanted.dtype}")
        return list(map(new_stored, zip(self.plan.run(arguments), self.leads, strict=True)))


def used_axes(program: Program, leads: Iterable[tuple[str, ...]]) -> set[str]:
    """The names of all axes and sub-axes that occur in a program."""
    used = {name for lead in leads for name in lead}
    for t in {*program.global_in, *program.global_out}:
        spec = t.sharding.spec
        used.update(spec.axes())
        used.update(spec.unreduced)
    ops = device_dependent_ops(program.ops)
    if not ops:
        return used
    for eqn in chain.from_iterable([eqn.walk() for eqn in program.eqns if eqn.op in ops]):
        used.update(eqn.axes)
    return used


MANY = 256              # from so many devices on, warn of values that differ between devices
LARGE = 1 << 28         # and take so many bytes together


class Planner(Workspace):
    """Walks a program once and decides how each equation is computed.

    mask: the active devices, in a loop or branch whose `predicate` differs between devices.
    expected: shape and dtype of each argument.
    """

    def __init__(self, program: Program, atoms: MeshAtoms) -> None:
        super().__init__(atoms)
        self.program = program
        self.expected: list[StoredArgument] = []
        self.mask: Value | None = None
        self.predicate: Equation | None = None
        self.literals: dict[tuple, Value] = {}
        self.deferred: dict[Var, DeferredSums] = {}
        self.planned_bodies: dict[tuple, control.PlannedBody] = {}     # of loops and branches

    def make(self, leads: Sequence[tuple[str, ...]]) -> tuple[Plan, list[tuple[str, ...]]]:
        """The plan, and the leading axes of each result."""
        program, at, known = self.program, self.at, self.atoms.borders
        expected = self.expected
        for var, t, lead in zip(program.invars, program.global_in or program.in_avals, leads,
                                strict=True):
            aval = var.aval
            found = known.get((aval, t, lead)) or stored_argument(self, aval, t, lead)
            expected.append(found)
            _, _, layout, same, kind, functions = found
            slot = self.plan.input()
            for function in functions:
                slot = self.call(function, slot)
            at[var] = Value(aval, layout, slot, same, kind)
        self.plan_equations()
        slots: list[int] = []
        stacks: list[tuple[str, ...]] = []
        for atom, t in zip(program.outvars, program.global_out or program.out_avals, strict=True):
            slot, stack = stored_result(self, atom, self.value_of(atom), t)
            slots.append(slot)
            stacks.append(stack)
        return self.plan.finish(slots, read_only=True), stacks

    def plan_equations(self, sums: Sequence[frozenset[str]] = ()) -> None:
        """Append the calls of all equations; the parameters are bound already.

        sums: of a loop's body, for each result the axes over which only its sum is wanted.
        """
        program = self.program
        for var, value in program.consts:
            self.at[var] = self.constant(value, var.aval)
        if any(sums) or has_reductions(program.ops):
            known = {v: x.kind.atoms for v, x in self.at.items()}
            varies = varying_axes(program, known, self.atoms)
            self.deferred = deferrable_sums(program.eqns, program.outvars, varies, self.atoms, sums,
                                         self.mask is None)
        for eqn in program.eqns:
            self.eqn = eqn
            _strategy(eqn.op)(self, eqn)
        self.eqn = None
        if self.atoms.count(self.atoms.order) >= MANY:
            _warn_of_large_stacks(self.at, self.atoms, program)

    def nested(self, program: Program) -> Planner:
        """A planner for the program of a loop or branch."""
        inside = Planner(program, self.atoms)
        inside.planned_bodies = self.planned_bodies
        return inside

    @functools.cached_property
    def read(self) -> set[Atom]:
        """The values that equations read, and the results of the program."""
        return {*self.program.outvars}.union(*[eqn.invars for eqn in self.program.eqns])

    # -- values --------------------------------------------------------------------------------
    def constant(self, value: Any, aval: ArrayType) -> Value:
        """A captured array, the same on all devices."""
        value = getattr(value, "value", value)
        data = np.asarray(value, storage_dtype(aval.dtype))
        return Value(aval, whole(aval.ndim), self.plan.constant(data))

    def value_of(self, atom: Atom) -> Value:
        return self.at[atom] if isinstance(atom, Var) else self.literal(atom)

    def literal(self, atom: Literal) -> Value:
        aval = atom.aval
        data = np.asarray(atom.val, storage_dtype(aval.dtype))
        key = aval, data.tobytes()
        if key not in self.literals:
            self.literals[key] = self.constant(data, aval)
        return self.literals[key]

    # -- equations -----------------------------------------------------------------------------
    def unsupported(self, eqn: Equation) -> None:
        raise TypeError(f"`{eqn.op.name}` of {eqn.location} cannot be executed: it has no "
                        "evaluator, and the simulated executor has no strategy for it")

    def identity(self, eqn: Equation) -> None:
        for a, out in zip(eqn.invars, eqn.outvars, strict=True):
            self.at[out] = self.value_of(a).with_type(out.aval)

    def collective(self, eqn: Equation) -> None:
        collectives.plan(self, eqn, self.value_of(eqn.invars[0]))

    def local(self, eqn: Equation) -> None:
        """Plan an equation that each device computes from its own operands."""
        at, outs = self.at, eqn.outvars
        operands = [at[a] if a in at else self.literal(a)       # type: ignore[index, arg-type]
                    for a in eqn.invars]
        types = [v.aval for v in outs]
        allowed = NO_DEFERRED_SUMS
        if self.deferred:
            found = [self.deferred.get(v, NO_DEFERRED_SUMS) for v in outs]
            allowed = found[0] if len(found) == 1 else common_deferred_sums(found)
        summed = [i for i, x in enumerate(operands) if x.layout.summed]
        done = NONE
        if summed:
            done = done.union(*[operands[i].layout.summed for i in summed])
            operands = self.reduce_linear_operands(eqn, operands, frozenset(summed), done)
        key: tuple = (*[x.kind for x in operands], *types)
        read: Sequence[int] | None = None
        if eqn.op.evaluator.narrowed is not None:   # type: ignore[union-attr]
            read = [i for i, v in enumerate(outs) if v in self.read]
            key = (*key, *read)
        if allowed or done:
            key = key, tuple(sorted(allowed.items())), done
        try:
            made = eqn.instance.tables[self.atoms.owner][key]
        except KeyError:
            made = eqn.instance.table(self.atoms.owner)[key] = equation_plan(
                eqn.op, eqn.params, operands, types, self.atoms, allowed, done, read)
        if made.operands is None:
            slots = [x.slot for x in operands]
        else:
            slots = [self.view(x, f.stack, f.split, f.lead, f.pad)
                     for x, f in zip(operands, made.operands, strict=True)]
        if eqn.op.multiple_results:
            results = self.plan.call_several(made.function, slots, len(outs), eqn)
        else:
            results = [self.plan.call(made.function, slots, eqn, made.kernel)]
        for var, slot, (layout, same, kind) in zip(outs, results, made.results, strict=True):
            at[var] = Value(var.aval, layout, slot, same, kind)

    def reduce_linear_operands(self, eqn: Equation, operands: list[Value], members: frozenset[int],
                               axes: frozenset[str]) -> list[Value]:
        """The operands; those jointly linear with `members` are combined over `axes`."""
        group = linear_set(eqn.op, eqn, members)
        assert group is not None, f"a summed value reached `{eqn.op.name}`, which is not linear"
        return [self.summed(x, axes) if i in group else x for i, x in enumerate(operands)]


def _warn_of_large_stacks(at: Mapping[Var, Value], atoms: MeshAtoms, program: Program) -> None:
    """Warn, before memory is taken, if values that differ between devices need much of it."""
    most, largest, results = LARGE, None, set(program.outvars)
    for v, x in at.items():
        if x.layout.stack:
            each = math.prod([1 if same and v not in results else n for n, same in
                              zip(x.aval.shape, x.uniform, strict=True)]) * x.kind.dtype.itemsize
            if each * atoms.count(x.layout.stack) >= most:
                most, largest = each * atoms.count(x.layout.stack), v
    if largest is None:
        return
    count = atoms.count(at[largest].layout.stack)
    eqn = next((e for e in program.eqns if largest in e.outvars), None)
    made = "an argument" if eqn is None else f"`{eqn.op.name}` of {eqn.location}"
    warn(f"{made} has values of its own on each of {count:,} devices, {most // count:,} bytes "
         f"each: {most:,} bytes are held here for them all. Fewer devices in the mesh, or a value "
         "that they share, take less.")


def _axis_index(p: Planner, eqn: Equation) -> None:
    """Append a constant: each device's position along the axes."""
    atoms = p.atoms
    group = atoms.of_all(eqn.axes)
    stack, (out,) = atoms.sort(group), eqn.outvars
    places = np.arange(atoms.count(group), dtype=storage_dtype(out.aval.dtype))
    places = places.reshape(atoms.sizes(group)).transpose([group.index(a) for a in stack])
    p.bind(out, Layout(stack, ()), p.plan.constant(places))


@cached(1024)
def _strategy(op: Op) -> Callable[[Planner, Equation], None]:
    """The method that plans equations of this op."""
    if IDENTITY in op.facts and op.collective is None:
        return Planner.identity
    if POSITION in op.facts:
        return _axis_index
    if op.name in control.STRATEGIES:
        return control.STRATEGIES[op.name]
    if op.effect:
        return callbacks.plan_callback
    if op.collective is not None:
        return Planner.collective
    return Planner.unsupported if op.evaluate is None else Planner.local
