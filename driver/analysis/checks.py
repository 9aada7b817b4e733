"""Checks of a function's partitioned program against the function itself, for tests."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.storage import freeze_result
from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import Mesh
from ...ir.shardings.sharding import NamedSharding
from ...ir.spec import PartitionSpec, spec_from_entries
from ...ir.values.typeof import typeof
from ...tracer.trees import tree
from ..execution.arguments import stored_value
from ..execution.transfer import device_put
from ..jit.jit import jit
from ..jit.jitted import Jitted
from .equivalence import first_divergence, refuse


def assert_equivalent(fun: Callable[..., Any], *args: Any, tolerance: float | None = None,
                      **kwargs: Any) -> None:
    """Raise AssertionError unless `fun`, partitioned, computes what it does on one device.

    args: arrays, laid out as the program is to be checked. Every equation is checked by itself, so
    the error names the first that goes wrong with its line, its factor rule, and the factors whose
    splitting does it. tolerance: of differences, as a part of the largest value of a result (by
    default 1e-4 for float32). Values inside of a `shard_map`, and of what is seen outside, are
    taken as they are.

    It holds of functions over Auto, Explicit and Manual axes alike.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> a = st.device_put(np.arange(64.0), st.NamedSharding(mesh, P("x")))
    >>> st.testing.assert_equivalent(lambda a: jnp.cumsum(a) / a.sum(), a)
    """
    if tolerance is not None and not 0 <= tolerance < math.inf:
        fail(ValueError, f"tolerance must be a finite number of 0 or more, got {tolerance}",
             code="tolerance",
             help="leave it out for one that fits the dtypes, or give one such as 1e-5")
    jitted = fun if isinstance(fun, Jitted) else jit(fun)
    lowered = jitted.lower(*args, **kwargs)
    leaves = tree.leaves(lowered._traced._leaves)
    values = []
    for x in leaves:
        stored = stored_value(x)
        if stored.lead:
            fail(ValueError, f"an argument is {typeof(x)}, which has no whole value yet",
                 code="pending-argument", help="sum it first, or leave it out")
        values.append(np.asarray(freeze_result(stored.data)))
    partitioned = lowered._executable.partitioned
    if not any(any(a.aval.entries) or a.aval.varying for eqn in partitioned.resharded.eqns
               for a in (*eqn.invars, *eqn.outvars)):
        fail(ValueError, f"nothing is split in `{lowered.fun_name}`: no value has a dimension "
             f"over a mesh axis, so there is nothing to compare", code="nothing-split",
             help="place the arguments with `device_put` and a NamedSharding")
    found = first_divergence(partitioned, values, tolerance)
    if found is not None:
        raise refuse(found, lowered.fun_name)


def fuzz_equivalent(fun: Callable[..., Any], *args: Any, mesh: Mesh, count: int = 10,
                    seed: int = 0, tolerance: float | None = None) -> None:
    """`assert_equivalent` for `count` random layouts of the arguments over `mesh`.

    args: whole arrays. Each mesh axis splits a dimension that it divides, or none, drawn for every
    argument from `seed`. So the rule of an op is tried in the ways in which it may be split.

    >>> mesh = st.make_mesh((2, 4), ("x", "y"))
    >>> st.testing.fuzz_equivalent(jnp.matmul, np.ones((8, 8)), np.eye(8), mesh=mesh, count=3)
    """
    rng = np.random.default_rng(seed)
    leaves, form = tree.flatten(args)
    if count < 1:
        fail(ValueError, f"count must be at least 1, got {count}", code="nothing-split",
             help="leave it out for 10 layouts")
    if not any(n % k == 0 for x in leaves for n in np.shape(x)
               for k in mesh.axis_sizes if k > 1):
        fail(ValueError, f"nothing is split: no axis of {mesh} divides a dimension of "
             f"{[np.shape(x) for x in leaves]}", code="nothing-split",
             help="use a smaller mesh, or arguments with a dimension that an axis divides")
    for _ in range(count):
        specs = [PartitionSpec()]
        while not any(any(s.entries) for s in specs):
            specs = [_drawn(np.shape(x), mesh, rng) for x in leaves]
        placed = [device_put(x, NamedSharding(mesh, s)) for x, s in zip(leaves, specs, strict=True)]
        assert_equivalent(fun, *tree.unflatten(form, placed), tolerance=tolerance)


def _drawn(shape: tuple[int, ...], mesh: Mesh, rng: np.random.Generator) -> PartitionSpec:
    """A random spec that divides a shape: each mesh axis on one dimension, or on none."""
    entries: list[tuple[str, ...]] = [()] * len(shape)
    left = list(shape)
    for axis, size in mesh.shape.items():
        fits = [d for d, n in enumerate(left) if n % size == 0]
        d = int(rng.integers(-1, len(fits))) if fits else -1
        if d >= 0:
            left[fits[d]] //= size
            entries[fits[d]] = (*entries[fits[d]], axis)
    return spec_from_entries(tuple(entries))
