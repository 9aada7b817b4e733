"""Functions that mean a plain program and carry a hint for the compiler.

`composite` names a function as one operation, `platform_dependent` chooses by the machine, `stage`
makes a value part of the traced program, `scaled_dot` is a product of block-scaled operands.
"""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import UnexpectedTracerError
from ...ir.dtypes import parse_long
from ...ir.ops.control.call import composite_p
from ...ir.ops.elementwise.identity import stage_p
from ...ir.values.array import Array
from ...ir.values.typeof import typeof
from ..operands.dtype_promotion import user_dtype
from ..operands.rank_promotion import shape_of
from ..shardings.sharding_functions import traced_or_run
from ..staging.constants import as_array
from ..staging.tracer import Tracer
from ..trees import tree
from .contraction import dot_general
from .control.bodies import trace_body
from .control.carry import check_branches
from .conversion import convert_element_type
from .creation import full
from .elementwise import mul
from .shape import broadcast_in_dim, reshape

__all__ = ["composite", "platform_dependent", "scaled_dot", "stage"]
PLATFORM = "cpu"          # what programs are made for, as `default_backend` says


def stage(x, /):
    """x, as a value of the program that is being traced; outside of a trace, as an array.

    >>> from shardtrace import lax
    >>> lax.stage(1.5)
    Array(1.5, dtype=float32, weak_type=True)
    """
    return x if isinstance(x, Array) else stage_p.bind(x)


def composite(decomposition, name, version=0):
    """`decomposition`, recorded as one operation called `name`, of a version.

    Keyword arguments of the new function are attributes of the operation. It means what the
    decomposition does, which is also what runs; it has no derivative (ValueError).
    Raises UnexpectedTracerError for attributes that are traced.

    >>> import shardtrace.numpy as jnp
    >>> from shardtrace import lax
    >>> tangent = lax.composite(lambda x: jnp.sin(x) / jnp.cos(x), "my.tangent")
    >>> tangent(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    @functools.wraps(decomposition)
    def wrapped(*args: Any, **attributes: Any) -> Any:
        if any(isinstance(v, Tracer) for v in attributes.values()):
            raise UnexpectedTracerError(
                "Found a JAX Tracer as an attribute in the decomposition for the composite op "
                f"'{name}'. Any values that aren't explicitly known at compile time must be "
                "explicitly passed as arguments to the composite.")
        leaves, in_tree = tree.flatten(args)
        trees: list[Any] = []

        def run(*values: Any) -> list[Any]:
            body = trace_body(functools.partial(decomposition, **attributes), in_tree,
                              [typeof(x) for x in values])
            trees.append(body.out_tree)
            return composite_p.bind(
                *body.captured, *values, name=name, version=int(version),
                attributes=tuple((k, _attribute(v)) for k, v in attributes.items()),
                jaxpr=body.program)

        results = traced_or_run(name, run, *leaves)
        return tree.unflatten(trees[-1], results)

    return wrapped


def _attribute(value: Any) -> Any:
    """An attribute as a param: plain values stay, all else is its text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(map(_attribute, value))
    return repr(value)


def platform_dependent(*args, default=None, **per_platform):
    """`per_platform["cpu"](*args)`, or `default(*args)` without a branch for CPUs.

    All branches are traced and must give results of the same types, else TypeError. Raises
    NotImplementedError where there is no branch for this platform, and no default.

    >>> from shardtrace import lax
    >>> lax.platform_dependent(3.0, cpu=lambda x: x + 1, default=lambda x: x)
    Array(4., dtype=float32, weak_type=True)
    """
    for platform, branch in [*per_platform.items(), ("default", default)]:
        if branch is not None and not callable(branch):
            raise TypeError(f"lax.platform_dependent: the '{platform}' branch must be a callable.")
        if platform == "gpu":
            raise ValueError("Use 'cuda' or 'rocm' for lax.platform_dependent.")
    chosen = per_platform.get(PLATFORM, default)
    if chosen is None:
        fail(NotImplementedError, "MLIR translation rule for primitive 'platform_index' not found "
             f"for platform {PLATFORM}", code="no-platform",
             because=(f"platform_dependent has branches for {sorted(per_platform)}, none of which "
                      f"is {PLATFORM!r}, and no default",), help="give it a `default`")
    others = [f for f in (*per_platform.values(), default) if f is not None and f is not chosen]
    leaves, in_tree = tree.flatten(args)
    trees: list[Any] = []

    def run(*values: Any) -> list[Any]:
        types = [typeof(x) for x in values]
        bodies = [trace_body(f, in_tree, types) for f in others]
        own = trace_body(chosen, in_tree, types)
        for f, body in zip(others, bodies, strict=True):
            check_branches("platform_dependent", ("branch 0", "branch 1"), [chosen, f],
                           [own.out_tree, body.out_tree],
                           [own.program.out_avals, body.program.out_avals],
                           [own.program, body.program])
        results, out_tree = tree.flatten(chosen(*tree.unflatten(in_tree, list(values))))
        trees.append(out_tree)
        return results

    results = traced_or_run("platform_dependent", run, *(as_array(x) for x in leaves))
    return tree.unflatten(trees[-1], results)


# -- products of block-scaled operands -------------------------------------------------------------

_BF16 = parse_long("bfloat16")


def _check_scale(side: str, shape: tuple[int, ...], scale: tuple[int, ...],
                 contracting: Sequence[int]) -> None:
    """Refuse scales that do not have one number for each block of the contracting dimensions."""
    for d, (n, m) in enumerate(zip(shape, scale, strict=True)):
        if d not in contracting:
            if n != m:
                raise TypeError(f"{side} dim {d} of size {n} does not match scale dim size {m}.")
        elif not m or n % m:
            raise TypeError(f"{side} contracting dim {d} of size {n} must be divisible by its "
                            f"scale's dim size {m}.")
        elif n // m < 2:
            raise TypeError(f"The ratio of {side} contracting dim {d} to its scale's dim size "
                            f"({n // m}) must be at least 2.")


def _stretched(scale: Any, shape: tuple[int, ...]) -> Any:
    """A scale for every element: those of a block repeated along it."""
    have = shape_of(scale)
    wide, dims, at = [], [], 0
    for n, m in zip(shape, have, strict=True):
        dims.append(at)
        wide += [m, n // m] if n != m else [m]
        at = len(wide)
    return reshape(broadcast_in_dim(scale, tuple(wide), tuple(dims)), shape)


def scaled_dot(lhs, rhs, *, lhs_scale=None, rhs_scale=None, dimension_numbers=None,
               preferred_element_type=None):
    """`dot_general` of lhs * lhs_scale and rhs * rhs_scale, computed in bfloat16.

    A scale has the shape of its operand but for the contracted dimensions, where one number stands
    for a block of at least two. preferred_element_type: of the result, bfloat16 by default.
    Raises TypeError where shapes do not fit. Source: `jax.lax.scaled_dot`.

    >>> import shardtrace.numpy as jnp
    >>> from shardtrace import lax
    >>> lax.scaled_dot(jnp.ones((1, 4)), jnp.ones((4, 1)), lhs_scale=jnp.full((1, 2), 0.5))
    Array([[2]], dtype=bfloat16)
    """
    shapes = shape_of(lhs), shape_of(rhs)
    if dimension_numbers is None:
        n = len(shapes[0])
        if n < 2:
            raise TypeError("scaled_dot does not support 0-rank and 1-rank operands.")
        batch = tuple(range(n - 2))
        dimension_numbers = (((n - 1,), (n - 2,)), (batch, batch))
    (left, right), (left_batch, right_batch) = dimension_numbers
    ranks = {len(s) for s in (*shapes, *(shape_of(s) for s in (lhs_scale, rhs_scale)
                                         if s is not None))}
    if len(ranks) > 1:
        raise TypeError("All input tensors must have the same rank. Got ranks "
                        f"{sorted(ranks)}.")
    if len(left_batch) != len(right_batch) or len(left) != len(right):
        raise TypeError("LHS and RHS must have the same number of batch dimensions and of "
                        f"contracting dimensions, got {dimension_numbers}.")
    for i, j in zip(left, right, strict=True):
        if shapes[0][i] != shapes[1][j]:
            raise TypeError(f"LHS contracting dim {i} of size {shapes[0][i]} does not match RHS "
                            f"contracting dim {j} of size {shapes[1][j]}.")
    dtype = _BF16 if preferred_element_type is None else user_dtype(
        preferred_element_type, "scaled_dot")
    sides = []
    for side, x, shape, scale, contracting in (("LHS", lhs, shapes[0], lhs_scale, left),
                                               ("RHS", rhs, shapes[1], rhs_scale, right)):
        if scale is None:
            scale = full(tuple(1 if d in contracting else n for d, n in enumerate(shape)), 1,
                         _BF16)
        else:
            _check_scale(side, shape, shape_of(scale), contracting)
        scale = _stretched(convert_element_type(scale, _BF16), shape)
        sides.append(mul(convert_element_type(x, _BF16), scale))
    return dot_general(sides[0], sides[1], dimension_numbers,
                       preferred_element_type=np.dtype(dtype))
