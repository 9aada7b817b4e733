"""Evaluates a traced program: eagerly outside a trace, as further equations inside one."""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.program import Program, Var
from .autodiff.differentiate import named_meshes
from .autodiff.replay import evaluate


def eval_jaxpr(jaxpr: Program, consts: Sequence[Any], *args: Any) -> list[Any]:
    """The results of a program on `args`, one for each of its parameters.

    consts: the values of the program's constants, `program.consts` or others in their place; with
    none a program has its own. Raises ValueError for another number of arguments than the program
    has parameters.

    >>> program = st.make_jaxpr(lambda x: x * 2 + 1)(3.0)
    >>> st.core.eval_jaxpr(program.jaxpr, program.consts, 5.0)
    [Array(11., dtype=float32, weak_type=True)]
    """
    if len(args) != len(jaxpr.invars):
        raise ValueError(f"the program {jaxpr.name} has {len(jaxpr.invars)} parameters, but got "
                         f"{len(args)} arguments")
    values = [c[1] if type(c) is tuple and isinstance(c[0], Var) else c for c in consts]
    own, meshes = [value for _, value in jaxpr.consts], jaxpr.attributes.get("meshes", ())
    if values and len(values) == len(own) and any(map(operator.is_not, values, own)):
        jaxpr = jaxpr.replace(invars=[*jaxpr.constvars, *jaxpr.invars], consts=())
        args = (*values, *args)
    with named_meshes(meshes):
        return evaluate(jaxpr, args)


def jaxpr_as_fun(closed_jaxpr: Program) -> Callable[..., list[Any]]:
    """A program as a function of its parameters, which gives the list of its results.

    >>> f = st.extend.core.jaxpr_as_fun(st.make_jaxpr(lambda x, y: x + y)(1.0, 2.0))
    >>> f(3.0, 4.0)
    [Array(7., dtype=float32, weak_type=True)]
    """
    def function(*args: Any) -> list[Any]:
        return eval_jaxpr(closed_jaxpr, (), *args)

    return function
