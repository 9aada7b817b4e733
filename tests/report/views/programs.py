"""Programs of which pages and data are made: what is in them is known."""
from __future__ import annotations

import functools

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.sharding import AbstractMesh
from shardtrace.sharding import PartitionSpec as P

from ... import specs

MESH = AbstractMesh((8, 4), ("data", "model"))
RING = AbstractMesh((8,), ("seq",))
struct = functools.partial(specs.struct, mesh=MESH)


def two_products(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2


def layers(x, ws):
    def layer(x, w):
        with st.named_scope("mlp"):
            h = nn.relu(x @ w["up"])
            x = x + h @ w["down"]
        return x, None
    x, _ = lax.scan(layer, x, ws)
    return x


def around(x):
    return x + lax.ppermute(x, "seq", [(i, (i + 1) % 8) for i in range(8)])


def unrolled(x, ws):
    for w in ws:
        h = jnp.tanh(x @ w["up"]) * 2
        x = x + jnp.exp(h @ w["down"])
    return x


def _weights(*lead):
    none = (None,) * len(lead)
    return {"up": struct((*lead, 64, 256), *none, None, "model"),
            "down": struct((*lead, 256, 64), *none, "model")}


CASES = {
    "two_products": (two_products, (struct((64, 64), "data"), struct((64, 256), None, "model"),
                                    struct((256, 64), None, "model"))),
    "layers": (layers, (struct((64, 64), "data"), _weights(12))),
    "ring": (st.shard_map(around, mesh=RING, in_specs=P("seq"), out_specs=P("seq")),
             (struct((64, 64), "seq", mesh=RING),)),
    "unrolled": (unrolled, (struct((64, 64), "data"), [_weights() for _ in range(40)])),
}


def explained(name):
    return _explained(name, st.config.read("shardtrace_objective"))


@functools.cache
def _explained(name, objective):
    """Kept for all tests: its suggestions are searched once."""
    fun, args = CASES[name]
    return st.explain(fun, "v5p")(*args)
