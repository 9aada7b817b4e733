"""Lists the residuals of a derivative: saved values of the forward pass, and where they come from.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.ops.control.custom import name_p
from ....ir.program import Equation, Literal, Var
from ....ir.types import ArrayType
from ....ir.values.typeof import typeof
from ...staging.signature import Arguments
from ...staging.staging import trace_to_program
from ...trees import tree
from ..custom.common import function_name
from ..grad import vjp


def saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any
                    ) -> list[tuple[ArrayType, str]]:
    """The values that `vjp(f, *args, **kwargs)` keeps, with where they come from.

    They are what a `checkpoint` may save memory by. Nothing is computed.
    """
    leaves, in_tree = tree.flatten((args, kwargs))
    names = Arguments(f, (), (), (), ()).leaf_names(args, kwargs)

    def derive(*values: Any) -> list[Any]:
        def flat(*values: Any) -> Any:
            inner_args, inner_kwargs = tree.unflatten(in_tree, values)
            return f(*inner_args, **inner_kwargs)
        return tree.leaves(vjp(flat, *values)[1])

    program, captured = trace_to_program(derive, [typeof(x) for x in leaves], arg_names=names,
                                         name=function_name(f))
    kept = {a for a in program.outvars if isinstance(a, Var)}
    found = [(a.aval, "from a literal") for a in program.outvars if isinstance(a, Literal)]
    constants = (*program.invars[:len(captured)], *program.constvars)
    found += [(v.aval, "from a constant") for v in constants if v in kept]
    found += [(v.aval, f"from the argument {name}")
              for v, name in zip(program.invars[len(captured):], names, strict=True) if v in kept]
    return found + [(v.aval, _origin(eqn)) for eqn in program.eqns for v in eqn.outvars
                    if v in kept]


def _origin(eqn: Equation) -> str:
    """Where a residual comes from, in JAX's words."""
    place = eqn.location
    where = f"from {place.file}:{place.line}:{place.column}"
    if place.function:
        where += f" ({place.function})"
    if eqn.op is name_p:
        return f"named {eqn.params['name']!r} {where}"
    if eqn.op.name == "jit":
        return f"output of jitted function {eqn.params['name']!r} {where}"
    return f"output of {eqn.op.name} {where}"


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print `saved_residuals(f, *args, **kwargs)`, a line for each value.

    >>> from shardtrace.ad_checkpoint import print_saved_residuals
    >>> print_saved_residuals(lambda x, w: x * w, jnp.ones(2), jnp.ones(2))
    f32[2] from the argument x
    f32[2] from the argument w
    """
    for t, where in saved_residuals(f, *args, **kwargs):
        print(f"{t.str_short(short_dtypes=True)} {where}")
