"""shard_map programs that name their collectives, and chains of reshards."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..library import GRID, LINE, Placed, normal, program, weight


@program("shard_map, psum of partial products", LINE, True, lambda rng: (
    Placed(normal(rng, 256, 2048), (None, "X")), Placed(weight(rng, 2048, 512), ("X", None))),
    plain=lambda x, w: np.tanh(x @ w), wide={"X": 512})
def _psum(lib: Any) -> Any:
    P = lib.P
    return lib.shard_map(lambda x, w: lib.jnp.tanh(lib.lax.psum(x @ w, "X")),
                         (P(None, "X"), P("X", None)), P())


@program("shard_map, ring of products", LINE, True, lambda rng: (
    Placed(normal(rng, 512, 512), ("X", None)), Placed(weight(rng, 512, 1024), (None, "X"))),
    plain=lambda x, w: x @ w)
def _ring(lib: Any) -> Any:
    """Blocks of rows go round; each device multiplies each with its columns."""
    jnp, lax, P, n = lib.jnp, lib.lax, lib.P, lib.mesh.shape["X"]

    def body(x: Any, w: Any) -> Any:
        me, rows = lax.axis_index("X"), x.shape[0]

        def turn(i: Any, carry: Any) -> Any:
            x, out = carry
            out = lax.dynamic_update_slice(out, x @ w, ((me + i) % n * rows, 0))
            return lax.ppermute(x, "X", [(j, (j - 1) % n) for j in range(n)]), out
        out = lax.pcast(jnp.zeros((n * rows, w.shape[1]), x.dtype), "X", to="varying")
        return lax.fori_loop(0, n, turn, (x, out))[1]
    return lib.shard_map(body, (P("X", None), P(None, "X")), P(None, "X"))


@program("shard_map, reduction ring in a loop", LINE, False, lambda rng: (
    Placed(normal(rng, 512, 512), ("X", None)),), plain=lambda x: _averaged(x))
def _averaging(lib: Any) -> Any:
    """Ten rounds of: the mean of a device's block and its neighbours'."""
    lax, P, n = lib.lax, lib.P, lib.mesh.shape["X"]

    def body(x: Any) -> Any:
        def turn(i: Any, x: Any) -> Any:
            left = lax.ppermute(x, "X", [(j, (j + 1) % n) for j in range(n)])
            right = lax.ppermute(x, "X", [(j, (j - 1) % n) for j in range(n)])
            return (left + x + right) * (1 / 3)
        return lax.fori_loop(0, 10, turn, x)
    return lib.shard_map(body, (P("X", None),), P("X", None))


def _averaged(x: Any) -> Any:
    blocks = x.reshape(8, -1, x.shape[1])
    for _ in range(10):
        blocks = (np.roll(blocks, 1, 0) + blocks + np.roll(blocks, -1, 0)) * np.float32(1 / 3)
    return blocks.reshape(x.shape)


def _exchanged_plain(x: Any) -> Any:
    for _ in range(4):
        x = x + np.float32(1)
        x = x * np.float32(0.5)
    return x


@program("shard_map, chain of all_to_all", GRID, True, lambda rng: (
    Placed(normal(rng, 1024, 1024), ("X", "Y")),), plain=_exchanged_plain)
def _exchanges(lib: Any) -> Any:
    lax, P = lib.lax, lib.P

    def body(x: Any) -> Any:
        for _ in range(4):
            x = lax.all_to_all(x + 1, "Y", 0, 1, tiled=True)
            x = lax.all_to_all(x * 0.5, "Y", 1, 0, tiled=True)
        return x
    return lib.shard_map(body, (P("X", "Y"),), P("X", "Y"))


@program("chain of reshards", GRID, True, lambda rng: (
    Placed(normal(rng, 1024, 1024), ("X", "Y")),), wide={"X": 16, "Y": 32})
def _reshards(lib: Any) -> Any:
    def f(x: Any) -> Any:
        for specs in (("Y", "X"), (("X", "Y"), None), (None, ("X", "Y")), ("X", "Y")):
            x = lib.reshard(x * 2 + 1, *specs)
        return x
    return f
