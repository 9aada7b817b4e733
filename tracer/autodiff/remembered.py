"""What the rules of an equation record is remembered: one kind of equation is derived once.

What a rule binds depends on the op with its params, on the types of what it is given (on the values
of numbers, which become literals), on which of these are one value, and on the context. Where all
that is as it was before, the same equations are recorded again, and neither the rule nor inference
runs. Rules that use anything else (programs, constants, meshes) are not remembered.
"""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.context import STATE, trace_settings
from ...ir.location import Location
from ...ir.op import LinearOperand, Op
from ...ir.program import Equation, Literal, Var
from ...ir.types import ArrayType
from ...ir.use import Use
from ..staging import Builder
from ..tracer import Tracer
from .replay import Scalar

# Of one equation: number of the builder, op, operands (numbers of values, or literals), params,
# types of results, use.
Step = tuple[int, Op, tuple[Any, ...], dict[str, Any], tuple[ArrayType, ...], Use]


class Steps:
    """Equations that a rule records, and its results: numbers of values, None, or Scalars.

    Values are numbered: what the rule was given, then the results of equations in their order.
    """

    __slots__ = ("results", "steps")

    def __init__(self, steps: list[Step], results: list[Any]) -> None:
        self.steps, self.results = steps, results

    def repeat(self, builders: Sequence[Builder], given: Sequence[Any], location: Location
               ) -> list[Any]:
        """Record the equations once more; the rule's results."""
        values = list(given)
        for which, op, operands, params, types, use in self.steps:
            builder = builders[which]
            atoms = []
            for x in operands:
                if type(x) is int:
                    x = values[x]
                    x = x.variable if type(x) is Tracer and x.builder is builder else (
                        builder.atom(x))
                atoms.append(x)
            if len(types) == 1:
                var = Var(types[0])
                outvars = (var,)
                values.append(Tracer(builder, var))
            else:
                outvars = tuple([Var(t) for t in types])
                values += [Tracer(builder, v) for v in outvars]
            eqn = Equation(op, atoms, outvars, params, location)
            eqn.use = use
            builder.eqns.append(eqn)
        return [values[r] if type(r) is int else r for r in self.results]


class _Owner:
    """All that rules look at besides what they are given: steps are kept in uses under it."""

    __slots__ = ("what",)

    def __init__(self, what: Any) -> None:
        self.what = what


_owner = functools.lru_cache(maxsize=64)(_Owner)


# Of the classes of what a rule is given: whether numbers are among it; _NEVER for what is not
# remembered.
_NUMBERS: dict[tuple[type, ...], Any] = {}
_NEVER = object()


def _has_numbers(kinds: tuple[type, ...]) -> Any:
    if not {*kinds} <= {Tracer, Scalar, LinearOperand, type(None)}:
        return _NEVER
    return Scalar in kinds


class Remembered:
    """The steps of one kind of rule in the current context, as these builders record them.

    builders: one for all; or one for known values, then one for what waits for others.
    """

    __slots__ = ("builders", "owner")

    def __init__(self, kind: str, builders: tuple[Builder, ...]) -> None:
        state = STATE
        self.builders = builders
        self.owner = _owner((kind, trace_settings(), state.mesh, state.named_axes,
                             state.mapped_mesh_axes, state.spmd_axes, state.check_vma))

    def place(self, eqn: Equation, given: Sequence[Any]) -> tuple[dict[Any, Any], Any] | None:
        """The table and the key of an equation's steps, where its rule is given this; None where
        they are not remembered."""
        op = eqn.op
        if op.subprograms or op.effect:
            return None
        kinds = tuple(map(type, given))
        numbers = _NUMBERS.get(kinds)
        if numbers is None:
            numbers = _NUMBERS[kinds] = _has_numbers(kinds)
        if numbers is _NEVER:
            return None
        tracers = [x for x in given if type(x) is Tracer]
        key = [STATE.abstract_mesh, kinds, *[x if x is None else x.aval for x in given]]
        if len(tracers) > 1:
            variables = [x.variable for x in tracers]
            if len(set(variables)) < len(variables):
                key += [variables.index(v) for v in variables]
        if len(self.builders) > 1:
            last = self.builders[-1]
            key += [x.builder is last for x in tracers]
        if numbers:
            for x in given:
                if type(x) is Scalar:
                    if not isinstance(x.value, np.generic):
                        return None
                    key.append(x.value.tobytes())
        try:
            use = eqn.use
        except TypeError:
            return None                            # a param cannot be hashed
        if use.identity is not use:
            return None                            # not one object for all that are equal
        return use.tables.get(self.owner) or use.table(self.owner), tuple(key)

    def marks(self) -> list[tuple[int, ...]]:
        """How far the builders are."""
        return [(len(b.eqns), len(b.consts), len(b.captured), len(b.meshes))
                for b in self.builders]

    def noted(self, marks: Sequence[tuple[int, ...]], given: Sequence[Any],
              results: Sequence[Any]) -> Steps | None:
        """The steps of what was recorded since `marks`; None where they are not all there is."""
        numbers: dict[Any, int] = {x.variable: i for i, x in enumerate(given) if type(x) is Tracer}
        count = len(given)
        steps: list[Step] = []
        for which, (b, before) in enumerate(zip(self.builders, marks, strict=True)):
            if before[1:] != (len(b.consts), len(b.captured), len(b.meshes)):
                return None
            for eqn in b.eqns[before[0]:]:
                if eqn.op.subprograms or eqn.op.effect:
                    return None
                operands: list[Any] = []
                for a in eqn.invars:
                    n = a if isinstance(a, Literal) else numbers.get(a)
                    if n is None:
                        n = numbers.get(b.stands_for(a))     # type: ignore[arg-type]
                    if n is None:
                        return None
                    operands.append(n)
                try:
                    use = eqn.use
                except TypeError:
                    return None
                types = tuple([v.aval for v in eqn.outvars])
                steps.append((which, eqn.op, tuple(operands), eqn.params, types, use))
                for v in eqn.outvars:
                    numbers[v] = count
                    count += 1
        found: list[Any] = []
        for x in results:
            if type(x) is Tracer:
                x = numbers.get(x.variable)
                if x is None:
                    return None
            elif x is not None and type(x) is not Scalar:
                return None
            found.append(x)
        return Steps(steps, found)


def remembered(kind: str, builders: Any) -> Remembered | None:
    """For rules under `builders`, one or a tuple; None where something else runs them, or somebody
    watches equations being made."""
    several = builders if type(builders) is tuple else (builders,)
    if type(several[0]) is not Builder or STATE.on_equation:
        return None
    return Remembered(kind, several)
