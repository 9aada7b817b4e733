"""Record what JAX makes of the expressions of tests/golden/surface.txt, for tests/tracer.

    ORACLE -m tests.record.surface          ORACLE: a Python with jax 0.10.2

To add a case, add a line with an expression and record. Equations marked `*` stay so.
"""
from __future__ import annotations

import os
import warnings
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
warnings.simplefilter("ignore")

import jax  # noqa: E402 - the platform is chosen before
import jax.extend.core  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from ..tracer.jnp import surface  # noqa: E402

CALLS = ("jit", "pjit", "custom_jvp_call", "custom_vjp_call", "closed_call")


def equations(jaxpr: Any, known: dict[Any, bool], names: list[str]) -> list[bool]:
    """Names of the equations, calls entered. known: variables that are scalar constants."""
    def constant(v: Any) -> bool:
        return isinstance(v, jax.extend.core.Literal) or known.get(v, False)

    for eqn in jaxpr.eqns:
        inputs = [constant(v) for v in eqn.invars]
        if eqn.primitive.name in CALLS:
            inner = next(eqn.params[p] for p in ("jaxpr", "call_jaxpr", "fun_jaxpr")
                         if p in eqn.params)
            inner = getattr(inner, "jaxpr", inner)
            known.update(zip(eqn.outvars, equations(
                inner, dict(zip(inner.invars, inputs, strict=True)), names), strict=True))
        elif inputs and all(inputs) and all(v.aval.shape == () for v in eqn.outvars):
            known.update(dict.fromkeys(eqn.outvars, True))
        else:
            names.append(eqn.primitive.name)
    return [constant(v) for v in jaxpr.outvars]


def record(line: surface.Line, arrays: dict[str, Any]) -> surface.Line:
    """The line with JAX's results."""
    expression = line.expression
    f = surface.function_of(expression, {"jnp": jnp, "lax": jax.lax, "nn": jax.nn, "np": np,
                                         "linalg": jax.lax.linalg})
    operands = [arrays[n] for n in surface.operands_of(expression)]
    try:
        closed = jax.make_jaxpr(f)(*operands)
        results = surface.leaves(jax.jit(f)(*operands))
    except Exception as error:
        return surface.Line(expression, f"!{type(error).__name__}",
                            str(error).split("\n")[0][:60].rstrip())
    types = [("~" if a.weak_type else "") + a.str_short(True) for a in closed.out_avals]
    numbers = "" if surface.NOT_UNIQUE.search(expression) else "; ".join(
        surface.printed(x) for x in results)
    names: list[str] = []
    equations(closed.jaxpr, {}, names)
    return surface.Line(expression, " ".join(types), numbers,
                        "*" if line.equations == "*" else " ".join(names))


if __name__ == "__main__":
    given = surface.operands()
    made = {n: jnp.asarray(x) for n, x in given.items()}
    rows = [record(line, made) for line in surface.lines()]
    surface.TABLE.write_text("".join("\t".join(row).rstrip() + "\n" for row in rows))
    print(len(rows), "lines")
