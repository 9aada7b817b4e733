"""Closing a user's function over what it captures: custom_gradient and closure_convert.

A function that closes over traced values becomes one that takes them as further arguments, so that
they can be residuals of a derivative, or arguments of a function with a rule of its own.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ....ir.ops.derivatives import cotangent_type, has_tangent
from ....ir.program import Program
from ....ir.values.typeof import typeof
from ...staging.tracer import Tracer
from ...trees import tree
from ..replay import evaluate, flat_program, scalar
from .custom_vjp import custom_vjp


class _Closed:
    """A closed function as a pytree: what it closes over are the leaves."""

    def __init__(self, program: Program, out_tree: Any, captured: Sequence[Any]) -> None:
        self.program, self.out_tree, self.captured = program, out_tree, captured


tree.register_pytree_node(
    _Closed, lambda c: (tuple(c.captured), (c.program, c.out_tree)),
    lambda aux, children: _Closed(aux[0], aux[1], tuple(children)))


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a reverse derivative of its own, given by closure.

    `fun(*args)` returns (result, rule); `rule(ct)` returns the cotangent of the argument, or a
    tuple of them if there are several.
    """
    @functools.wraps(fun, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            bound = inspect.signature(fun).bind(*args, **kwargs)
            args = bound.args

        def primal(*values: Any) -> Any:
            return fun(*values)[0]

        def fwd(*values: Any) -> tuple[Any, Any]:
            out, rule = fun(*values)
            flat, out_tree = tree.flatten(out)
            types = [cotangent_type(typeof(x)) for x in flat]
            program, captured, ct_tree = flat_program(
                lambda ct: rule(ct), types, tree.structure((tree.unflatten(out_tree, flat),)))
            return out, _Closed(program, ct_tree, captured)

        def bwd(closed: _Closed, ct: Any) -> Any:
            cts = [scalar(x) if isinstance(x, (int, float, complex)) else x
                   for x in tree.leaves(ct)]
            found = tree.unflatten(closed.out_tree,
                                   evaluate(closed.program, [*closed.captured, *cts]))
            return tuple(found) if isinstance(found, (tuple, list)) and len(args) != 1 else (
                found if isinstance(found, tuple) and len(args) == 1 else (found,))

        function = custom_vjp(primal)
        functools.update_wrapper(function, fun)
        function.defvjp(fwd, bwd)
        return function(*args)

    return wrapped


def closure_convert(fun: Callable[..., Any], *example_args: Any
                    ) -> tuple[Callable[..., Any], list[Any]]:
    """(a function of the arguments and further values, these values).

    The values are those that `fun` closes over and that may be differentiated; called with them
    appended to the arguments, the new function does what `fun` does.
    """
    flat, treedef = tree.flatten(example_args)
    program, captured, out_tree = flat_program(fun, [typeof(x) for x in flat], treedef)
    hoisted = [isinstance(x, Tracer) and has_tangent(x.dtype) for x in captured]
    values = [x for x, h in zip(captured, hoisted, strict=True) if h]

    def converted(*args_and_values: Any) -> Any:
        count = len(args_and_values) - len(values)
        args, given = args_and_values[:count], iter(args_and_values[count:])
        leaves, tree_given = tree.flatten(tuple(args))
        if tree_given != treedef:
            raise TypeError(
                "The inputs to the closure produced by closure_convert must have the same Pytree "
                "structure as the example arguments passed when closure_convert was called. "
                f"Expected {treedef}, but got {tree_given}")
        closed = [next(given) if h else x for x, h in zip(captured, hoisted, strict=True)]
        return tree.unflatten(out_tree, evaluate(program, [*closed, *leaves]))

    return converted, values
