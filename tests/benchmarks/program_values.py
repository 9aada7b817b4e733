"""Arguments drawn for a measured program, and its results in a few numbers.

JAX computes them whole, on one device; the recorded numbers judge the per-device executor.
"""
from __future__ import annotations

import importlib
import math
import zlib
from typing import Any

import numpy as np

MOST = 2_000_000                # elements of all arguments of a program that is run


def is_run(case: Any) -> bool:
    """Is it small enough? Pairs of few arguments can be many: those are named as large."""
    return sum(math.prod(a[0]) for a in case.args) <= MOST and not case.name.endswith("large")


def arguments(case: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    found = []
    for shape, _, *rest in case.args:
        dtype = np.dtype(rest[0]) if rest else np.dtype(np.float32)
        if dtype.kind in "iu":
            found.append(rng.integers(0, rest[1] if len(rest) > 1 else 8, shape, dtype))
        else:
            found.append((rng.standard_normal(shape) / 4).astype(dtype))
    return found


def numbers(results: list[Any]) -> list[list[float]]:
    """Per result: the mean of magnitudes, and three sums in which every element has its weight.

    What is no number counts as 0; a complex number is two.
    """
    found = []
    for result in results:
        v = np.asarray(result)
        if v.dtype.kind == "c":
            v = np.stack([v.real, v.imag])
        v = np.nan_to_num(v.astype(np.float64).ravel())
        sums = [v @ np.cos(step * np.arange(v.size)) / math.sqrt(v.size) for step in (0.1, 1, 2)]
        found.append([float(f"{n:.6g}") for n in (np.abs(v).mean(), *sums)])
    return found


def whole(case: Any) -> list[list[float]]:
    """By JAX on one device, in the process of JAX."""
    jax = importlib.import_module("jax")
    kinds = jax.sharding.AxisType
    mesh = jax.make_mesh((1,) * len(case.mesh), tuple(case.mesh), devices=jax.devices()[:1],
                         axis_types=((kinds.Explicit if case.explicit else kinds.Auto),)
                         * len(case.mesh))
    f = case.make(jax, jax.numpy, jax.lax, jax.P)
    args = [jax.device_put(a, jax.NamedSharding(mesh, jax.P(*spec)))
            for a, (_, spec, *_) in zip(arguments(case), case.args, strict=True)]
    with jax.set_mesh(mesh):
        return numbers(jax.tree.leaves(jax.jit(f)(*args)))
