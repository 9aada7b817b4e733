"""Collectives of weakly typed operands: what `test_weak_collectives.py` and its recorder share.

A line of tests/golden/weak_collectives.txt is a way to call (`WAYS`), a collective (`COLLECTIVES`)
and the dtypes of what it gives there, `~` before weak ones.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...paths import GOLDEN
from ..operands.weak_types import Library, dtypes_of

TABLE = GOLDEN / "weak_collectives.txt"

COLLECTIVES: dict[str, Callable[[Any, Any], Any]] = {
    "psum": lambda lax, v: lax.psum(v, "i"),
    "psum in groups": lambda lax, v: lax.psum(v, "i", axis_index_groups=[[0, 1], [2, 3]]),
    "psum of two": lambda lax, v: lax.psum((v, 1.5), "i"),
    "psum of a number": lambda lax, v: lax.psum(1, "i"),
    "psum and the rest": lambda lax, v: lax.psum(v, "i") + v,
    "pmean": lambda lax, v: lax.pmean(v, "i"),
    "pmax": lambda lax, v: lax.pmax(v, "i"),
    "pmin": lambda lax, v: lax.pmin(v, "i"),
    "pmax of a number": lambda lax, v: lax.pmax(1.5, "i"),
    "all_gather": lambda lax, v: lax.all_gather(v, "i"),
    "ppermute": lambda lax, v: lax.ppermute(v, "i", [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "all_to_all": lambda lax, v: lax.all_to_all(v, "i", 0, 0),
    "all_to_all tiled": lambda lax, v: lax.all_to_all(v, "i", 0, 0, tiled=True),
    "psum_scatter": lambda lax, v: lax.psum_scatter(v, "i"),
    "pbroadcast": lambda lax, v: lax.pbroadcast(v, "i", 0),
    "axis_index": lambda lax, v: lax.axis_index("i"),
}


def _region(jax: Any, f: Any, varying: bool, tracked: bool) -> Callable[[Any], Any]:
    P = jax.sharding.PartitionSpec
    mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,),
                         devices=jax.devices()[:4])

    def body(v: Any) -> Any:
        return f(v if varying else v[0])

    return jax.shard_map(body, mesh=mesh, in_specs=P(None, "i") if varying else P(),
                         out_specs=P("i") if tracked else P(), check_vma=tracked)


WAYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "vmap, mapped": lambda jax, f, x: jax.vmap(f, axis_name="i")(x),
    "vmap, not mapped": lambda jax, f, x: jax.vmap(lambda _: f(x[0]), axis_name="i")(x),
    "vmap twice": lambda jax, f, x: jax.vmap(jax.vmap(f), axis_name="i")(x),
    "vmap twice, not mapped": lambda jax, f, x: jax.vmap(
        lambda v: jax.vmap(lambda _: f(v), axis_name="i")(v))(x),
    "gradient of vmap, not mapped": lambda jax, f, x: jax.grad(
        lambda x: sum(y.sum() for y in jax.tree.leaves(
            jax.vmap(lambda _: f(x[0]), axis_name="i")(x))))(x),
    "region, varying": lambda jax, f, x: _region(jax, f, True, True)(x),
    "region, invarying": lambda jax, f, x: _region(jax, f, False, True)(x),
    "region, varying, untracked": lambda jax, f, x: _region(jax, f, True, False)(x),
    "region, invarying, untracked": lambda jax, f, x: _region(jax, f, False, False)(x),
}


def answer(library: Library, way: str, collective: str) -> str:
    """The dtypes of what the collective gives, or that it is refused."""
    jax = library.jax
    x = library.weak(np.ones((4, 4, 4), np.float32))
    try:
        found = jax.eval_shape(
            lambda x: WAYS[way](jax, lambda v: COLLECTIVES[collective](jax.lax, v), x), x)
    except Exception:
        return "refused"
    return dtypes_of(found)


def read() -> dict[tuple[str, str], str]:
    """The table."""
    rows = [line.split("\t") for line in TABLE.read_text().splitlines()]
    return {(way, collective): found for way, collective, found in rows}
