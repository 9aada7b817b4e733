"""Arguments that are likely at fault are tried early, where there is time for few changes: small
ones whose axes spread over a layer's values, those that lack an axis that all others have, and
those that have an axis of others along a dimension of their own.
"""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.report.advice.changes import Respec
from shardtrace.report.advice.code.changes import Rewritten
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = AbstractMesh((4, 4, 4), ("data", "fsdp", "model"))
BATCH = ("data", "fsdp")


def struct(shape, *spec, dtype=np.float32):
    return st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


def scaled(params, x, y):
    """Layers with a scale, in a loop."""
    def layer(h, p):
        z = h * lax.rsqrt((h * h).mean(-1, keepdims=True)) * p["scale"]
        return h + nn.gelu(z @ p["up"]) @ p["down"], None

    def loss(params):
        return ((lax.scan(layer, x, params)[0] - y) ** 2).mean()
    return st.tree.map(lambda p, g: p - 0.1 * g, params, st.grad(loss)(params))


def taught(params, batch):
    """A student of a teacher's values."""
    def loss(params):
        h = params["table"][batch["ids"]]
        for p in params["layers"]:
            h = h + (nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
        h = h * batch["mask"][..., None]
        return (((h - batch["teacher"]) ** 2).sum(-1) * batch["mask"]).mean()
    return st.tree.map(lambda p, g: p - 0.1 * g, params, st.grad(loss)(params))


def windowed(params, x, y):
    """Attention within windows of pictures, each dimension of which is part of one of windows."""
    def loss(params):
        h = x
        for p in params:
            b, r, c, d = h.shape
            w = h.reshape(b, r // 8, 8, c // 8, 8, d).transpose(0, 1, 3, 2, 4, 5)
            w = w.reshape(-1, 64, d)
            q, k, v = ((w @ p[name]).reshape(-1, 64, 8, d // 8) for name in ("wq", "wk", "wv"))
            a = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k), -1)
            w = w + jnp.einsum("bhqk,bkhd->bqhd", a, v).reshape(-1, 64, d) @ p["wo"]
            h = w.reshape(b, r // 8, c // 8, 8, 8, d).transpose(0, 1, 3, 2, 4, 5)
            h = h.reshape(b, r, c, d)
            h = h + nn.gelu(h @ p["up"]) @ p["down"]
        return ((h - y) ** 2).mean()
    return st.tree.map(lambda p, g: p - 0.1 * g, params, st.grad(loss)(params))


CASES = {
    "a scale": (scaled, (
        {"scale": struct((6, 1024), None, "model"),
         "up": struct((6, 1024, 4096), None, None, "model"),
         "down": struct((6, 4096, 1024), None, "model")},
        struct((64, 256, 1024), BATCH), struct((64, 256, 1024), BATCH)),
        "pass `params['scale']` as P() instead of P(None, 'model')"),
    "an axis of the batch": (taught, (
        {"table": struct((32000, 2048), None, "fsdp"), "layers": [
            {"gate": struct((2048, 8192), "fsdp", "model"),
             "up": struct((2048, 8192), "fsdp", "model"),
             "down": struct((8192, 2048), "model", "fsdp")}] * 3},
        {"ids": struct((128, 512), BATCH, dtype=np.int32), "mask": struct((128, 512), BATCH),
         "teacher": struct((128, 512, 2048), "data")}),
        "pass `batch['teacher']` as P(('data', 'fsdp')) instead of P('data')"),
    "an axis along positions": (windowed, (
        [{**{name: struct((512, 512), None, "model") for name in ("wq", "wk", "wv")},
          "wo": struct((512, 512), "model"), "up": struct((512, 2048), None, "model"),
          "down": struct((2048, 512), "model")}] * 2,
        struct((32, 64, 64, 512), None, BATCH), struct((32, 64, 64, 512), BATCH)),
        "pass `x` as P(('data', 'fsdp')) instead of P(None, ('data', 'fsdp'))")}


@pytest.mark.parametrize("name", CASES)
def test_an_argument_that_is_likely_at_fault_is_told_first(name):
    f, args, change = CASES[name]
    found = st.explain(f, "v5p")(*args)
    cause = found.root_causes[0]
    best = cause.groups[0][0].suggestions[0]        # of what is shown first
    assert best.text == change
    assert cause.text.split(" as ")[0] in change
    assert best.time < found.time and best.received_bytes < found.received_bytes


def test_a_constraint_alone_is_tried_before_it_with_others():
    def step(ws, x):
        def loss(ws):
            h = x
            for up, down in ws:
                z = lax.with_sharding_constraint(
                    nn.gelu(h @ up), NamedSharding(MESH, P(BATCH, "model", None)))
                h = h + z @ down
            return (h * h).mean()
        return st.tree.map(lambda w, g: w - 0.1 * g, ws, st.grad(loss)(ws))

    ws = [(struct((1024, 4096), None, "model"), struct((4096, 1024), "model"))] * 2
    found = st.explain(step, "v5p")(ws, struct((64, 256, 1024), BATCH))
    best = found.root_causes[0].groups[0][0].suggestions[0]
    assert best.text.startswith("take out the `with_sharding_constraint`")
    assert ", and " not in best.text


def test_what_asked_for_an_exchange_is_changed_before_code_that_serves_it():
    def layer(w, x):
        x = lax.with_sharding_constraint(x * 2, NamedSharding(MESH, P("model", "data")))
        batch, length, width = x.shape
        h = (x @ w["in"]).reshape(batch, length, 16, -1)
        return x + nn.softmax(h).reshape(batch, length, width) @ w["out"]

    found = st.explain(layer)(
        {"in": struct((1024, 1024), None, "model"), "out": struct((1024, 1024), "model")},
        struct((64, 512, 1024), "data"))
    (asked,) = [c for c in found.collectives if c.cause.asked_by is not None]
    tried = [type(changes[0]) for changes in found.search.candidates.of(asked.record, asked.cause)]
    assert tried[:3] == [Respec, Respec, Rewritten]
