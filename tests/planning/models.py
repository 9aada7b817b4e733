"""Programs to find plans for, as functions and the types of their arguments, with plans by hand.

A plan by hand says specs of arguments, by the last key of their path, over `data` and `model`; the
results that are like an argument lie as it does.
"""
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P


class Case(NamedTuple):
    """fun with arguments of these names; by_hand: name of a plan -> spec by the last key of a path.
    """
    fun: Any
    names: tuple[str, ...]
    args: tuple[Any, ...]
    by_hand: dict[str, dict[str, P]]


def shape(*sizes: int, dtype: Any = jnp.float32) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(sizes, dtype)


def trained(loss: Any) -> Any:
    """A step of gradient descent."""
    def step(params, *batch):
        value, grads = st.value_and_grad(loss)(params, *batch)
        return st.tree.map(lambda p, g: p - 0.01 * g, params, grads), value
    return step


def mlp(scale: int = 64) -> Case:
    width, hidden, batch = 4 * scale, 16 * scale, 8 * scale

    def loss(p, x, y):
        return jnp.mean((nn.relu(x @ p["up"]) @ p["down"] - y) ** 2)

    params = {"up": shape(width, hidden), "down": shape(hidden, width)}
    rows = {"x": P("data"), "y": P("data")}
    return Case(trained(loss), ("params", "x", "y"),
                (params, shape(batch, width), shape(batch, width)), {
        "data": {"x": P(("data", "model")), "y": P(("data", "model"))},
        "fsdp": {"x": P(("data", "model")), "y": P(("data", "model")),
                 "up": P(None, ("data", "model")), "down": P(("data", "model"))},
        "tensor": {"up": P(None, ("data", "model")), "down": P(("data", "model"))},
        "data and tensor": {**rows, "up": P(None, "model"), "down": P("model")},
        "fsdp and tensor": {**rows, "up": P("data", "model"), "down": P("model", "data")}})


def attention(batch: int = 32, length: int = 128, width: int = 256, heads: int = 8) -> Case:
    def block(p, x):
        def split(w):
            return (x @ w).reshape(*x.shape[:2], heads, -1)
        q, k, v = map(split, (p["q"], p["k"], p["v"]))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(width // heads)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores), v)
        return x + mixed.reshape(x.shape) @ p["o"]

    params = {name: shape(width, width) for name in "qkvo"}
    columns = dict.fromkeys("qkv", P(None, "model"))
    return Case(block, ("params", "x"), (params, shape(batch, length, width)), {
        "data": {"x": P(("data", "model"))},
        "tensor": {**dict.fromkeys("qkv", P(None, ("data", "model"))),
                   "o": P(("data", "model"))},
        "data and tensor": {"x": P("data"), **columns, "o": P("model")},
        "data and sequence": {"x": P("data", "model")}})


def _layer(p, x, heads):
    def norm(x):
        centred = x - x.mean(-1, keepdims=True)
        return centred * lax.rsqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5)

    h = norm(x)
    q, k, v = ((h @ p[n]).reshape(*x.shape[:2], heads, -1) for n in "qkv")
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tri(x.shape[1], dtype=bool), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores), v).reshape(x.shape)
    x = x + mixed @ p["o"]
    return x + nn.gelu(norm(x) @ p["up"]) @ p["down"]


def transformer(batch: int = 32, length: int = 64, width: int = 256, layers: int = 2,
                vocab: int = 1024, heads: int = 8) -> Case:
    """A step of training; its layers are written one after the other."""
    def loss(p, tokens, targets):
        x = p["embed"][tokens]
        for layer in p["layers"]:
            x = _layer(layer, x, heads)
        logits = x @ p["embed"].T
        picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return (nn.logsumexp(logits, -1) - picked).mean()

    layer = {**{n: shape(width, width) for n in "qkvo"}, "up": shape(width, 4 * width),
             "down": shape(4 * width, width)}
    params = {"embed": shape(vocab, width), "layers": [layer] * layers}
    batches = shape(batch, length, dtype=np.int32)
    both = P(("data", "model"))
    columns = dict.fromkeys(("q", "k", "v", "up"), P(None, "model"))
    rows = {"o": P("model"), "down": P("model"), "embed": P("model")}
    split = dict.fromkeys(("q", "k", "v", "up"), P("data", "model"))
    return Case(trained(loss), ("params", "tokens", "targets"), (params, batches, batches), {
        "data": {"tokens": both, "targets": both},
        "fsdp": {"tokens": both, "targets": both,
                 **dict.fromkeys(("q", "k", "v", "o", "up", "down", "embed"), both)},
        "data and tensor": {"tokens": P("data"), "targets": P("data"), **columns, **rows},
        "fsdp and tensor": {"tokens": P("data"), "targets": P("data"), **split,
                            **dict.fromkeys(("o", "down", "embed"), P("model", "data"))}})


def experts(batch: int = 512, width: int = 128, hidden: int = 512, count: int = 8) -> Case:
    """A layer of a mixture of experts: all of them on all rows, weighed by a gate."""
    def loss(p, x, y):
        gate = nn.softmax(x @ p["gate"])
        h = nn.relu(jnp.einsum("bd,edh->beh", x, p["up"]))
        out = jnp.einsum("beh,ehd,be->bd", h, p["down"], gate)
        return jnp.mean((out - y) ** 2)

    params = {"gate": shape(width, count), "up": shape(count, width, hidden),
              "down": shape(count, hidden, width)}
    return Case(trained(loss), ("params", "x", "y"),
                (params, shape(batch, width), shape(batch, width)), {
        "data": {"x": P(("data", "model")), "y": P(("data", "model"))},
        "experts": {"x": P("data"), "y": P("data"), "up": P("model"), "down": P("model"),
                    "gate": P(None, "model")},
        "tensor": {"x": P("data"), "y": P("data"), "up": P(None, None, "model"),
                   "down": P(None, "model")}})


def convolutions(batch: int = 64, size: int = 32, width: int = 64) -> Case:
    def loss(p, images, labels):
        def conv(x, w):
            return nn.relu(lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        x = conv(conv(images, p["first"]), p["second"]).mean((1, 2))
        logits = x @ p["head"]
        picked = jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]
        return (nn.logsumexp(logits, -1) - picked).mean()

    params = {"first": shape(3, 3, 4, width), "second": shape(3, 3, width, width),
              "head": shape(width, 16)}
    both = P(("data", "model"))
    return Case(trained(loss), ("params", "images", "labels"),
                (params, shape(batch, size, size, 4), shape(batch, dtype=np.int32)), {
        "data": {"images": both, "labels": both},
        "data and space": {"images": P("data", "model"), "labels": P("data")},
        "data and channels": {"images": P("data"), "labels": P("data"),
                              "first": P(None, None, None, "model"),
                              "second": P(None, None, "model"), "head": P()}})


def recommender(batch: int = 1024, rows: int = 65536, width: int = 64, tables: int = 4) -> Case:
    def loss(p, ids, clicks):
        looked = [p["tables"][i][ids[:, i]] for i in range(tables)]
        h = nn.relu(jnp.concatenate(looked, -1) @ p["hidden"])
        score = (h @ p["out"])[:, 0]
        return jnp.mean((score - clicks) ** 2)

    params = {"tables": [shape(rows, width)] * tables, "hidden": shape(tables * width, 256),
              "out": shape(256, 1)}
    both = P(("data", "model"))
    table = {f"tables.{i}": both for i in range(tables)}
    return Case(trained(loss), ("params", "ids", "clicks"),
                (params, shape(batch, tables, dtype=np.int32), shape(batch)), {
        "data": {"ids": both, "clicks": both},
        "tables by rows": {"ids": both, "clicks": both, **table},
        "tables by columns": {"ids": P("data"), "clicks": P("data"),
                              **{name: P(None, "model") for name in table}}})


SMALL = {"mlp": mlp, "attention": attention, "transformer": transformer, "experts": experts,
         "convolutions": convolutions, "recommender": recommender}


def by_hand(case: Case, plan: dict[str, P], mesh: Any) -> tuple[Any, ...]:
    """The function's arguments laid out by a plan."""
    def laid_out(path: Any, x: Any) -> st.ShapeDtypeStruct:
        keys = [case.names[path[0].idx],
                *[str(getattr(k, "key", getattr(k, "idx", ""))) for k in path[1:]]]
        name = ".".join(keys[-2:]) if keys[-1].isdigit() else keys[-1]
        return st.ShapeDtypeStruct(x.shape, x.dtype,
                                   sharding=NamedSharding(mesh, plan.get(name, P())))

    return st.tree_util.tree_map_with_path(laid_out, case.args)
