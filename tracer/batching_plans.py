"""What an op becomes for a mapped axis is remembered: one kind of equation is batched once.

What a batching rule binds depends on the axis, on the op with its params, on the types and mapped
dimensions of its operands (on the values of numbers, which become literals), on which of these are
one value, and on the context. Where all that is as it was before, the same equations are recorded
again, and neither the rule nor inference runs. Rules that use anything else (programs, constants,
names of axes) are not remembered, nor is what somebody watches or what is computed at once.
"""
from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any

from ..ir.context import STATE, trace_settings
from ..ir.location import Location, capture
from ..ir.op import Op
from ..ir.program import Atom, Equation, Literal, Var
from ..ir.typeof import NUMPY_SCALARS
from ..ir.types import ArrayType
from ..ir.use import Use, use_of
from .staging import Builder
from .tracer import Tracer

# Of one equation: op, operands (numbers of values, or literals), params, types of results, use.
Step = tuple[Op, tuple[Any, ...], dict[str, Any], tuple[ArrayType, ...], Use]


class _Owner:
    """All that rules look at besides their operands: plans are kept in uses under it."""

    __slots__ = ("what",)

    def __init__(self, *what: Hashable) -> None:
        self.what = what


_owner = functools.lru_cache(maxsize=64)(_Owner)


class Plan:
    """Equations that a rule records, its results, and their mapped dimensions.

    Values are numbered: the operands, then the results of equations in their order.
    """

    __slots__ = ("dims", "results", "steps")

    def __init__(self, steps: list[Step], results: list[int], dims: Sequence[int | None]) -> None:
        self.steps, self.results, self.dims = steps, results, dims

    def repeat(self, builder: Builder, operands: Sequence[Any], atoms: Sequence[Atom]
               ) -> tuple[list[Any], Sequence[int | None]]:
        """Record the equations once more; the results and their mapped dimensions."""
        location: Location = builder.location or capture()
        values: list[Any] = list(atoms)
        for op, places, params, types, use in self.steps:
            outvars = (Var(types[0]),) if len(types) == 1 else tuple([Var(t) for t in types])
            eqn = Equation(op, [values[x] if type(x) is int else x for x in places], outvars,
                           params, location)
            eqn.use = use
            builder.eqns.append(eqn)
            values += outvars
        count = len(operands)
        return ([operands[n] if n < count else Tracer(builder, values[n]) for n in self.results],
                self.dims)


class Place:
    """Where the plan of an equation is, or shall be, kept; what it is made of."""

    __slots__ = ("_before", "_key", "_table", "atoms", "builder", "operands")

    def __init__(self, builder: Builder, operands: Sequence[Any], atoms: list[Atom],
                 table: dict[Any, Plan], key: tuple[Any, ...]) -> None:
        self.builder, self.operands, self.atoms = builder, operands, atoms
        self._table, self._key = table, key

    def repeated(self) -> tuple[list[Any], Sequence[int | None]] | None:
        """What the rule gives, recorded again; None where there is no plan. Then it is to be
        recorded, and `keep` to be called."""
        plan = self._table.get(self._key)
        if plan is not None:
            return plan.repeat(self.builder, self.operands, self.atoms)
        self._before = self._marks()
        return None

    def _marks(self) -> tuple[int, ...]:
        b = self.builder
        return len(b.consts), len(b.captured), len(b.meshes), len(b.eqns)

    def keep(self, results: Sequence[Any], dims: Sequence[int | None]) -> None:
        """Remember what was recorded, if it is all that happened."""
        if self._marks()[:3] != self._before[:3]:
            return
        numbers: dict[Any, int] = {a: i for i, a in enumerate(self.atoms)}
        count, steps = len(self.atoms), []
        for eqn in self.builder.eqns[self._before[3]:]:
            places = [a if isinstance(a, Literal) else numbers.get(a) for a in eqn.invars]
            if eqn.op.effect or eqn.op.subprograms or None in places:
                return
            try:
                use = eqn.use
            except TypeError:
                return                                   # a param cannot be hashed
            steps.append((eqn.op, tuple(places), eqn.params,
                          tuple([v.aval for v in eqn.outvars]), use))
            for v in eqn.outvars:
                numbers[v] = count
                count += 1
        given = {id(x): i for i, x in enumerate(self.operands)}
        found = [given.get(id(x), numbers.get(x.variable) if type(x) is Tracer else None)
                 for x in results]
        if None not in found:
            self._table[self._key] = Plan(steps, found, tuple(dims))     # type: ignore[arg-type]


def place_of(axis: Hashable, op: Op, operands: Sequence[Any], dims: Sequence[int | None],
             params: dict[str, Any], types: Sequence[ArrayType]) -> Place | None:
    """The place of the plan of an equation; None where it is not remembered."""
    state = STATE
    builder = state.interpreter
    if (type(builder) is not Builder or state.on_equation or op.subprograms or op.effect
            or op.collective is not None):
        return None
    atoms: list[Atom] = []
    key: list[Any] = [state.abstract_mesh, *dims, *types]
    for x in operands:
        if type(x) is Tracer:
            a = x.variable if x.builder is builder else builder.const_vars.get(id(x))
            if a is None:
                return None                              # it would be captured
            key.append(a.aval)
        elif type(x) in NUMPY_SCALARS or type(x) in (int, float, bool, complex):
            a = builder.atom(x)
            key += (type(x), a.aval, a.val.tobytes())    # type: ignore[union-attr]
        else:
            return None
        atoms.append(a)
    if len(set(atoms)) < len(atoms):
        key += [atoms.index(a) for a in atoms]
    try:
        use = use_of(op, params)
    except TypeError:
        return None                                      # a param cannot be hashed
    if use.identity is not use:
        return None                                      # not one object for all that are equal
    owner = _owner(axis, trace_settings(), state.mesh, state.named_axes, state.mapped_mesh_axes,
                   state.spmd_axes, state.check_vma)
    return Place(builder, operands, atoms, use.table(owner), tuple(key))
