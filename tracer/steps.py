"""Equations that were recorded once, to be recorded again.

What a function of ours binds depends on the types of what it is given and on its other arguments.
Where these are as they were before, its equations are recorded as they were before: neither the
function nor inference runs again. Who keeps steps must have all of that in his key.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.location import Location
from ..ir.op import Op
from ..ir.program import Equation, Literal, Var
from ..ir.types import ArrayType
from ..ir.use import Use
from .staging import Builder
from .tracer import Tracer

# Of one equation: number of the builder, op, operands (numbers of values, or literals), params,
# types of results, use.
Step = tuple[int, Op, tuple[Any, ...], dict[str, Any], tuple[ArrayType, ...], Use]


class Steps:
    """Equations that a function records, and its results: numbers of values, or constants.

    Values are numbered: what the function was given, then the results of equations in their order.
    """

    __slots__ = ("results", "steps")

    def __init__(self, steps: list[Step], results: list[Any]) -> None:
        self.steps, self.results = steps, results

    def repeat(self, builders: Sequence[Builder], given: Sequence[Any], location: Location
               ) -> list[Any]:
        """Record the equations once more; the function's results."""
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


def marks(builders: Sequence[Builder]) -> list[tuple[int, ...]]:
    """How far builders are."""
    return [(len(b.eqns), len(b.consts), len(b.captured), len(b.meshes)) for b in builders]


def steps_since(before: Sequence[tuple[int, ...]], builders: Sequence[Builder],
                given: Sequence[Any], results: Sequence[Any], constant: type | None = None
                ) -> Steps | None:
    """The steps that builders recorded since their marks were `before`; None where they are not
    all that happened: something else was captured, an equation has an effect or holds a program,
    or a result is neither traced, None, nor a `constant`.

    builders: in the order in which one may use what another recorded.
    """
    numbers: dict[Any, int] = {x.variable: i for i, x in enumerate(given) if type(x) is Tracer}
    count = len(given)
    steps: list[Step] = []
    for which, (b, mark) in enumerate(zip(builders, before, strict=True)):
        if mark[1:] != (len(b.consts), len(b.captured), len(b.meshes)):
            return None
        for eqn in b.eqns[mark[0]:]:
            if eqn.op.effect or eqn.op.subprograms:      # programs know where they were traced
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
                return None                              # a param cannot be hashed
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
        elif x is not None and type(x) is not constant:
            return None
        found.append(x)
    return Steps(steps, found)
