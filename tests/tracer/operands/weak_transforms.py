"""Transformations of functions of a weakly typed vector: what a test and its recorder share.

A line of tests/golden/weak_transforms.txt is a function of `x`, a way to transform it (`WAYS`), and
the dtypes of what that gives under jit, `~` before weak ones. `two` is a strong 2.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...paths import GOLDEN
from .weak_types import Library, dtypes_of

TABLE = GOLDEN / "weak_transforms.txt"


def _total(library: Library, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    jax, jnp = library.jax, library.numpy
    return lambda x: sum(jnp.sum(v) for v in jax.tree.leaves(f(x))
                         if jnp.issubdtype(v.dtype, jnp.floating))


WAYS: dict[str, Callable[[Library, Any, Any], Any]] = {
    "value": lambda lib, f, x: f(x),
    "grad": lambda lib, f, x: lib.jax.grad(_total(lib, f))(x),
    "grad of jit": lambda lib, f, x: lib.jax.grad(_total(lib, lib.jax.jit(f)))(x),
    "grad of checkpoint": lambda lib, f, x: lib.jax.grad(_total(lib, lib.jax.checkpoint(f)))(x),
    "jvp": lambda lib, f, x: lib.jax.jvp(f, (x,), (x,)),
    "vmap": lambda lib, f, x: lib.jax.vmap(f)(lib.numpy.stack([x, x])),
    "vmap of grad": lambda lib, f, x: lib.jax.vmap(lib.jax.grad(_total(lib, f)))(
        lib.numpy.stack([x, x])),
    "jacfwd": lambda lib, f, x: lib.jax.jacfwd(f)(x),
    "jacrev": lambda lib, f, x: lib.jax.jacrev(f)(x),
    "hessian": lambda lib, f, x: lib.jax.hessian(_total(lib, f))(x),
}


def answer(library: Library, expression: str, way: str) -> str:
    """The dtypes of what the transformed function gives, or that it is refused."""
    jax, lax = library.jax, library.jax.lax
    names = {"jax": jax, "jnp": library.numpy, "lax": lax, "two": np.float32(2)}
    function = eval(f"lambda x: {expression}", names)
    try:
        return dtypes_of(jax.eval_shape(lambda x: WAYS[way](library, function, x),
                                        library.weak(np.array([0.5, 1, 2], np.float32))))
    except Exception:
        return "refused"


def read() -> dict[str, dict[str, str]]:
    """The table: for each expression its ways with their results."""
    rows: dict[str, dict[str, str]] = {}
    for line in TABLE.read_text().splitlines():
        expression, way, found = line.split("\t")
        rows.setdefault(expression, {})[way] = found
    return rows
