"""Partial evaluation: the results of a function that follow from its known arguments alone."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.program import Literal, Program
from ....ir.types import ArrayType
from ....tracer.autodiff.partial_eval import without_dead_equations
from ....tracer.autodiff.replay import evaluate
from ....tracer.staging.staging import trace_to_program
from ...wrapped_functions import WrappedFun

__all__ = ["PartialVal", "trace_to_jaxpr_nounits"]


class PartialVal(tuple):
    """(None, value) of a known value, (type, None) of one that is not."""

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        """A value."""
        return cls((None, const))

    @classmethod
    def unknown(cls, aval: ArrayType) -> PartialVal:
        """A type."""
        return cls((aval, None))

    def is_known(self) -> bool:
        """Is there a value?"""
        return self[0] is None


def trace_to_jaxpr_nounits(fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool = False
                           ) -> tuple[Program, list[PartialVal], list[Any]]:
    """(program, results, constants) of a function of flat values, some of which are unknown.

    Results that do not depend on an unknown argument are known, and computed. The program is that
    of the whole function on its unknown arguments, behind what it closes over, the constants.
    """
    def flat(*unknown: Any) -> Sequence[Any]:
        given = iter(unknown)
        return fun.call_wrapped(*[const if aval is None else next(given) for aval, const in pvals])

    types = [aval for aval, _ in pvals if aval is not None]
    program, captured = trace_to_program(flat, types, name=fun.__name__)
    if program.consts:
        captured = [x for _, x in program.consts]
        program = program.replace(invars=[*program.constvars, *program.invars], consts=())
    count = len(program.invars) - len(types)
    unknown = set(program.invars[count:])
    for eqn in program.eqns:
        if not unknown.isdisjoint(v for v in eqn.invars if not isinstance(v, Literal)):
            unknown.update(eqn.outvars)
    known = [isinstance(v, Literal) or v not in unknown for v in program.outvars]
    first = without_dead_equations(program.replace(
        outvars=[v for v, k in zip(program.outvars, known, strict=True) if k],
        invars=program.invars[:count],
        eqns=[eqn for eqn in program.eqns if unknown.isdisjoint(eqn.outvars)]))
    values = iter(evaluate(first, captured))
    results = [PartialVal.known(next(values)) if k else PartialVal.unknown(v.aval)
               for v, k in zip(program.outvars, known, strict=True)]
    return program, results, list(captured)
