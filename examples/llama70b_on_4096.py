"""A training step of a 70B-parameter transformer on 4,096 devices, explained from shapes alone.

No device, no array: the parameters are shapes with shardings on an AbstractMesh. The step (loss,
gradient, Adam) is traced, partitioned for every device and costed on TPU v5p in seconds: what each
device sends and why, the time of a step, and whether it fits into memory.

    python examples/llama70b_on_4096.py
"""
from __future__ import annotations

import math
import time

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

LAYERS, WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD, VOCAB = 80, 8192, 28672, 64, 8, 128, 128256
BATCH, LENGTH = 1024, 4096
MESH = AbstractMesh((512, 8), ("data", "model"))


def shape(*sizes, spec=None, dtype=jnp.bfloat16):
    return st.ShapeDtypeStruct(sizes, dtype, sharding=NamedSharding(MESH, spec or P()))


def parameters(dtype=jnp.bfloat16):
    """Weights split over both axes: rows over `data` (gathered when used), columns over `model`."""
    columns, rows = P(None, "data", "model"), P(None, "model", "data")
    return {
        "embed": shape(VOCAB, WIDTH, spec=P("model", "data"), dtype=dtype),
        "blocks": {
            "q": shape(LAYERS, WIDTH, HEADS * HEAD, spec=columns, dtype=dtype),
            "k": shape(LAYERS, WIDTH, KV_HEADS * HEAD, spec=columns, dtype=dtype),
            "v": shape(LAYERS, WIDTH, KV_HEADS * HEAD, spec=columns, dtype=dtype),
            "o": shape(LAYERS, HEADS * HEAD, WIDTH, spec=rows, dtype=dtype),
            "gate": shape(LAYERS, WIDTH, HIDDEN, spec=columns, dtype=dtype),
            "up": shape(LAYERS, WIDTH, HIDDEN, spec=columns, dtype=dtype),
            "down": shape(LAYERS, HIDDEN, WIDTH, spec=rows, dtype=dtype),
            "norm1": shape(LAYERS, WIDTH, dtype=dtype),
            "norm2": shape(LAYERS, WIDTH, dtype=dtype),
        },
        "norm": shape(WIDTH, dtype=dtype),
        "head": shape(WIDTH, VOCAB, spec=P("data", "model"), dtype=dtype),
    }


def pinned(x, *spec):
    return st.lax.with_sharding_constraint(x, NamedSharding(MESH, P(*spec)))


def weight(w, *spec):
    """A weight as its use wants it: whole over `data`, gathered when its layer comes.

    Pinned first as it rests: a gradient goes the same way back, so it is scattered at once and no
    layer's gradient is held whole.
    """
    rests = tuple(axis or "data" for axis in spec)
    return pinned(pinned(w, *rests), *spec)


def norm(x, scale):
    x32 = x.astype(jnp.float32)
    mean = (x32 * x32).mean(-1, keepdims=True)
    return (x32 * st.lax.rsqrt(mean + 1e-5)).astype(x.dtype) * scale


def attention(x, p):
    batch, length, _ = x.shape
    q = (x @ weight(p["q"], None, "model")).reshape(
        batch, length, KV_HEADS, HEADS // KV_HEADS, HEAD)
    k = (x @ weight(p["k"], None, "model")).reshape(batch, length, KV_HEADS, HEAD)
    v = (x @ weight(p["v"], None, "model")).reshape(batch, length, KV_HEADS, HEAD)
    scores = jnp.einsum("bqhgd,bkhd->bhgqk", q, k) / math.sqrt(HEAD)
    mask = jnp.arange(length)[:, None] >= jnp.arange(length)
    scores = jnp.where(mask, scores, jnp.asarray(-1e9, scores.dtype))
    mixed = jnp.einsum("bhgqk,bkhd->bqhgd", st.nn.softmax(scores), v)
    return mixed.reshape(batch, length, HEADS * HEAD) @ weight(p["o"], "model", None)


def feed_forward(x, p):
    gate = st.nn.silu(x @ weight(p["gate"], None, "model"))
    return (gate * (x @ weight(p["up"], None, "model"))) @ weight(p["down"], "model", None)


def loss(params, tokens):
    x = pinned(params["embed"][tokens[:, :-1]], "data", None, None)

    @st.checkpoint
    def block(x, p):
        x = pinned(x + attention(norm(x, p["norm1"]), p), "data", None, None)
        x = pinned(x + feed_forward(norm(x, p["norm2"]), p), "data", None, None)
        return x, None

    x, _ = st.lax.scan(block, x, params["blocks"])
    logits = (norm(x, params["norm"]) @ weight(params["head"], None, "model")).astype(jnp.float32)
    logits = pinned(logits, "data", None, "model")
    labels = st.nn.one_hot(tokens[:, 1:], VOCAB, dtype=jnp.float32)
    return (st.nn.logsumexp(logits, -1) - (logits * labels).sum(-1)).mean()


def step(params, first, second, tokens):
    """One step of Adam; moments in float32."""
    value, grads = st.value_and_grad(loss)(params, tokens)

    def update(p, g, m, v):
        g = g.astype(jnp.float32)
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
        return (p - (3e-4 * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype)), m, v

    done = st.tree.map(update, params, grads, first, second)
    parts = [st.tree.map(lambda t, i=i: t[i], done, is_leaf=lambda t: isinstance(t, tuple))
             for i in range(3)]
    return value, *parts


def main(hardware: str = "v5p"):
    tokens = shape(BATCH, LENGTH + 1, spec=P("data"), dtype=jnp.int32)
    moments = parameters(jnp.float32)
    start = time.perf_counter()
    traced = st.jit(step, donate_argnums=(0, 1, 2)).trace(parameters(), moments, moments, tokens)
    traced_at = time.perf_counter()
    lowered = traced.lower()
    lowered_at = time.perf_counter()
    found = lowered.explain(hardware)
    explained_at = time.perf_counter()
    count = sum(math.prod(x.shape) for x in st.tree.leaves(parameters()))
    print(f"{count / 1e9:.1f}B parameters, {MESH.size} devices: traced in "
          f"{traced_at - start:.1f} s, partitioned in {lowered_at - traced_at:.1f} s, explained in "
          f"{explained_at - lowered_at:.1f} s")
    return found


if __name__ == "__main__":
    explanation = main()
    print(explanation.summary(16))
    print(f"model FLOPs utilisation {explanation.utilisation():.0%}")
    for held in explanation.memory.held[:5]:
        print(f"  at the peak: {held.nbytes / 1e9:.2f} GB {held.name} {held.type}")
