"""Taylor series through a function, as in `jax.experimental.jet`.

Arguments that move along curves, given by their series in t, give a curve of results. Its series is
read off derivatives in t, each of which is the forward derivative of the one before: they exist for
all that has a forward derivative, and each costs about twice the one before.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.dtypes import float0, issubdtype
from ..ir.values.typeof import typeof
from . import jnp, lax
from .autodiff.grad import jvp
from .trees import tree


def fact(n: Any) -> Any:
    """n!, of an array or a number of any dtype, as floats.

    >>> from shardtrace.experimental.jet import fact
    >>> fact(3.0).round()
    Array(6., dtype=float32, weak_type=True)
    """
    return jnp.exp(lax.lgamma(n + 1.0))


def jet(fun: Callable[..., Any], primals: Sequence[Any], series: Sequence[Sequence[Any]],
        factorial_scaled: bool = True, **_: Any) -> tuple[Any, Any]:
    """`(fun(*primals), series of the result)` for arguments with these series.

    primals: a tuple of the arguments, pytrees of arrays. series: for each a list of its first,
    second, ... derivative in t, all of one length. factorial_scaled: the terms are derivatives;
    otherwise they are coefficients of the powers of t. What comes out has a list of such terms in
    the place of each array of the result.

    >>> from shardtrace.experimental.jet import jet
    >>> jet(jnp.sin, (0.0,), ([1.0, 0.0],))
    (Array(0., dtype=float32, weak_type=True), [Array(1., dtype=float32, weak_type=True), \
Array(0., dtype=float32, weak_type=True)])
    """
    orders = {len(terms) for terms in series}
    if len(orders) != 1:
        raise ValueError("jet terms have inconsistent lengths for different arguments")
    (order,) = orders
    leaves, treedef = tree.flatten(tuple(primals))
    terms = []
    for k in range(order):
        found, structure = tree.flatten(tuple(one[k] for one in series))
        if structure != treedef:
            raise ValueError(f"primals and series differ in structure: {treedef}, {structure}")
        terms.append(found)
    scales = [math.factorial(k + 1) if factorial_scaled else 1 for k in range(order)]

    trees: list[Any] = []

    def along(t: Any) -> list[Any]:
        moved = []
        for i, x in enumerate(leaves):
            steps = [own[i] * (t ** (k + 1) / scales[k]) for k, own in enumerate(terms)]
            dtype = typeof(x).dtype
            if issubdtype(dtype, np.inexact):
                for step in steps:
                    x = x + step
                x = x if x.dtype == dtype else x.astype(dtype)
            moved.append(x)
        out, out_tree = tree.flatten(fun(*tree.unflatten(treedef, moved)))
        trees.append(out_tree)
        return out

    out, *derivatives = _with_derivatives(along, order)(0.0)
    if not factorial_scaled:
        derivatives = [[x / math.factorial(k + 1) for x in found]
                       for k, found in enumerate(derivatives)]
    by_leaf = [list(found) for found in zip(*derivatives, strict=True)] or [[] for _ in out]
    return tree.unflatten(trees[-1], out), tree.unflatten(trees[-1], by_leaf)


def _with_derivatives(f: Callable[[Any], list[Any]], k: int
                      ) -> Callable[[Any], list[list[Any]]]:
    """The leaves of the result of `f`, and of its first k derivatives in t."""
    if k == 0:
        return lambda t: [f(t)]
    before = _with_derivatives(f, k - 1)

    def further(t: Any) -> list[list[Any]]:
        values, tangents = jvp(before, (t,), (1.0,))
        last = [jnp.zeros_like(x) if d.dtype == float0 else d
                for x, d in zip(values[-1], tangents[-1], strict=True)]
        return [*values, last]

    return further
