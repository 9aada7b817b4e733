"""Implicit derivatives: of a solution, from the equation that it solves and not its solver.

`custom_linear_solve`: of A x = b follows A dx = db - dA x, and the cotangent of b solves the
transposed system. `custom_root`: of f(x) = 0 follows f'(x) dx = -df, the implicit function theorem.
The user's function that finds the solution need not be differentiable.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.op import OPS
from ...ir.ops.control.custom import custom_linear_solve_p
from ...ir.ops.derivatives import has_tangent
from ...ir.program import Program
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from ..lax.control.bodies import Body, trace_body, with_common_captures
from ..shardings.sharding_functions import traced_or_run
from ..staging.constants import as_array
from ..trees import tree
from ..trees.tree_api import PyTreeDef
from .call_rules import register
from .custom.custom_jvp import custom_jvp
from .forward import jvp_program, weak_flags, zero_tangent
from .grad import jvp, linear_transpose, linearize
from .replay import evaluate
from .transpose import is_linear, zero_cotangent


def _check_tree(name: str, expected_name: str, actual: Any, expected: Any, has_aux: bool) -> None:
    """Raise TypeError unless a function of the user's gives what has the structure of another."""
    if has_aux:
        children = actual.children()
        if len(children) != 2:
            raise TypeError(f"{name}() produced a pytree with structure {PyTreeDef(actual)}, but a "
                            "pair with auxiliary data was expected because has_aux=True was set.")
        actual = children[0]
    if actual != expected:
        raise TypeError(f"{name}() output pytree structure must match {expected_name}, got "
                        f"{PyTreeDef(actual)} and {PyTreeDef(expected)}.")


def _check_shapes(name: str, given: Sequence[ArrayType], wanted: Sequence[ArrayType]) -> None:
    shapes, expected = [t.shape for t in given], [t.shape for t in wanted]
    if shapes != expected:
        raise ValueError(f"{name}() output shapes must match b, got {shapes} and {expected}")


# -- linear systems --------------------------------------------------------------------------------

def custom_linear_solve(matvec, b, solve, transpose_solve=None, symmetric=False, has_aux=False):
    """`solve(matvec, b)`, with the derivatives of the solution x of matvec(x) = b.

    matvec: a linear function on pytrees like b. solve: (matvec, b) -> x, or (x, aux) if has_aux.
    transpose_solve: (vecmat, b) -> x for the transposed map, which reverse mode needs; if the map
    is `symmetric` it is `solve`. Values that the functions close over may be differentiated.
    Raises TypeError where structures differ, ValueError where shapes do.
    Source: `jax.lax.custom_linear_solve`.

    >>> import shardtrace as st, shardtrace.numpy as jnp
    >>> from shardtrace import lax
    >>> f = lambda a, b: lax.custom_linear_solve(lambda x: a * x, b, lambda _, b: b / a)
    >>> st.jvp(f, (2.0, 6.0), (0.0, 1.0))[1]
    Array(0.5, dtype=float32, weak_type=True)
    """
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    leaves, treedef = tree.flatten(b)
    leaves = [as_array(x) for x in leaves]
    in_tree = tree.structure((tree.unflatten(treedef, leaves),))
    trees: list[Any] = []

    def run(*values: Any) -> list[Any]:
        types = [typeof(x) for x in values]

        def body(f: Callable[..., Any], name: str, aux: bool) -> Body:
            found = trace_body(f, in_tree, types)
            _check_tree(name, "b", found.out_tree, treedef, aux)
            _check_shapes(name, found.program.out_avals[:len(types)], types)
            return found

        solved = body(lambda x: solve(matvec, x), "solve", has_aux)
        bodies = [solved, body(matvec, "matvec", False)]
        back = transpose_solve
        if back is not None:
            vecmat = matvec if symmetric else _transposed(
                matvec, tree.unflatten(treedef, list(values)))
            bodies += [body(vecmat, "vecmat", False),
                       body(lambda x: back(vecmat, x), "transpose_solve", has_aux)]
        programs, captured = with_common_captures(bodies)
        trees.append(solved.out_tree)
        return custom_linear_solve_p.bind(
            *captured, *values, call_jaxpr=programs[0], maps=tuple(programs[1:]),
            num_consts=len(captured))

    results = traced_or_run("custom_linear_solve", run, *leaves)
    return tree.unflatten(trees[-1], results)


def _transposed(matvec: Callable[..., Any], example: Any) -> Callable[..., Any]:
    back = linear_transpose(matvec, example)
    return lambda x: back(x)[0]


def _solve_jvp(operands: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
               ) -> tuple[list[Any], list[Any]]:
    """The solution's tangent solves the same system with right side db - dA x."""
    count = params["num_consts"]
    consts, moving = operands[:count], tangents[:count]
    results = list(custom_linear_solve_p.bind(*operands, **params))
    size = len(operands) - count
    right = [zero_tangent(x) if t is None else t
             for x, t in zip(operands[count:], tangents[count:], strict=True)]
    given = [t for t in moving if t is not None]
    if given:
        mask = (*(t is not None for t in moving), *(False,) * size)
        pushed, changed = jvp_program(params["maps"][0], mask, weak=weak_flags(given))
        found = iter(evaluate(pushed, [*consts, *results[:size], *given])[size:])
        right = [OPS["sub"].bind(r, next(found)) if m else r
                 for r, m in zip(right, changed, strict=True)]
    out = custom_linear_solve_p.bind(*consts, *right, **params)
    return results, [*out[:size], *(None,) * (len(results) - size)]


def _solve_transpose(cts: Sequence[Any], operands: Sequence[Any], params: dict[str, Any]
                     ) -> list[Any]:
    """The cotangent of b solves the transposed system; its maps are the same with roles exchanged.
    """
    count = params["num_consts"]
    if len(params["maps"]) < 3:
        raise TypeError("transpose_solve required for backwards mode automatic differentiation of "
                        "custom_linear_solve")
    if any(map(is_linear, operands[:count])):
        raise TypeError("custom_linear_solve is linear in b alone")
    matvec, vecmat, back = params["maps"]
    size = len(operands) - count
    filled = [zero_cotangent(x.aval) if ct is None else ct
              for x, ct in zip(operands[count:], cts, strict=False)]
    found = custom_linear_solve_p.bind(
        *operands[:count], *filled, call_jaxpr=back,
        maps=(vecmat, matvec, params["call_jaxpr"]), num_consts=count)
    return [*(None,) * count, *found[:size]]


register("custom_linear_solve", jvp=_solve_jvp, transpose=_solve_transpose)


# -- roots -----------------------------------------------------------------------------------------

def custom_root(f, initial_guess, solve, tangent_solve, has_aux=False):
    """`solve(f, initial_guess)`, with the derivatives of a root x of f(x) = 0.

    f: pytrees like the guess to pytrees like it. solve: (f, guess) -> x, or (x, aux) if has_aux.
    tangent_solve: (g, y) -> x with g(x) = y, g being f linearized at the root. Derivatives are by
    what f closes over. Raises TypeError where structures differ.
    Source: `jax.lax.custom_root`.

    >>> import shardtrace as st
    >>> from shardtrace import lax
    >>> def root(a):
    ...     return lax.custom_root(lambda x: x * x - a, a, lambda f, x: a ** 0.5,
    ...                            lambda g, y: y / g(1.0))
    >>> st.grad(root)(4.0)
    Array(0.25, dtype=float32, weak_type=True)
    """
    leaves, treedef = tree.flatten(initial_guess)
    leaves = [as_array(x) for x in leaves]
    trees: list[Any] = []

    def run(*values: Any) -> list[Any]:
        types = [typeof(x) for x in values]
        one, two = (tree.structure((initial_guess,) * n) for n in (1, 2))

        def tangents(x: Any, y: Any) -> Any:
            return tangent_solve(linearize(f, x)[1], y)

        bodies = [trace_body(f, one, types), trace_body(lambda x: solve(f, x), one, types),
                  trace_body(tangents, two, [*types, *types])]
        for body, name, wanted, aux in zip(
                bodies, ("f", "solve", "tangent_solve"), ("initial_guess", "initial_guess", "x"),
                (False, has_aux, False), strict=True):
            _check_tree(name, wanted, body.out_tree, treedef, aux)
        trees.append(bodies[1].out_tree)
        programs, captured = with_common_captures(bodies)
        return list(_root_of(programs, len(captured))(*captured, *values))

    results = traced_or_run("custom_root", run, *leaves)
    return tree.unflatten(trees[-1], results)


def _root_of(programs: Sequence[Program], count: int) -> custom_jvp:
    """The root as a function of what f closes over (`count` values) and the guess."""
    f, solve, tangents = programs
    size = len(f.outvars)

    @custom_jvp
    def root(*operands: Any) -> tuple[Any, ...]:
        return tuple(evaluate(solve, operands))

    @root.defjvp
    def root_jvp(primals: Sequence[Any], given: Sequence[Any]) -> tuple[Any, Any]:
        found = root(*primals)
        consts, solution = list(primals[:count]), list(found[:size])
        moved = [x for x in consts if has_tangent(typeof(x).dtype)]
        moving = [t for x, t in zip(consts, given, strict=False) if has_tangent(typeof(x).dtype)]

        def at_solution(*values: Any) -> list[Any]:
            it = iter(values)
            filled = [next(it) if has_tangent(typeof(x).dtype) else x for x in consts]
            return evaluate(f, [*filled, *solution])

        right = jvp(at_solution, tuple(moved), tuple(moving))[1] if moved else [
            zero_tangent(x) for x in solution]
        out = evaluate(tangents, [*consts, *solution, *right])
        return found, (*(OPS["neg"].bind(x) for x in out), *map(zero_tangent, found[size:]))

    return root
