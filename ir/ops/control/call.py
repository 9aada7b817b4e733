"""`jit` and `composite`: a call of another program, as one equation.

A jitted function used inside a traced one is recorded as a call; the partitioner inlines it. A
composite is a call under a name for which a compiler may have an implementation of its own.
"""
from __future__ import annotations

from typing import Any

from ...op import defop
from ...types import ArrayType, same_type
from ..rules import CALL_RULE, states_of


def _infer(*types: ArrayType, jaxpr: Any, **params: Any) -> list[ArrayType]:
    wanted = jaxpr.in_avals
    if len(types) != len(wanted) or not all(map(same_type, types, wanted)):
        given, taken = (", ".join(t.str_short(True) for t in ts) for ts in (types, wanted))
        raise TypeError(f"the called program takes ({taken}), but the operands are ({given})")
    return list(jaxpr.out_avals)


jit_p = defop(
    "jit", doc="Call `jaxpr`, the program of a jitted function, under its `name`.",
    infer=_infer, multiple_results=True, subprograms=("jaxpr",), rule=CALL_RULE,
    manual=states_of("jaxpr"))


def _no_derivative(operands: Any, tangents: Any, **params: Any) -> Any:
    raise ValueError(
        "JVP rule for composite not implemented. You can use `jax.custom_jvp` to add support. See "
        "https://docs.jax.dev/en/latest/_autosummary/jax.custom_jvp.html")


composite_p = defop(
    "composite",
    doc="Call `jaxpr`, which is what the operation `name` (of a `version`, with `attributes`) "
        "means; it has no derivative.",
    infer=_infer, multiple_results=True, subprograms=("jaxpr",), rule=CALL_RULE,
    manual=states_of("jaxpr"), jvp=_no_derivative)
