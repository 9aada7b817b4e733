"""The specs of a transformer's training step, found by `st.autoshard`, and the step run with them.

The step is written without a word about devices. Its arguments are given as shapes: 256 examples on
eight devices of a kind. What is proposed is printed: a spec for each row of the pytree, the plan
beside those that have names (data, FSDP, tensor, sequence parallel), and code to paste. Then the
step is jitted with it and trains, on eight simulated devices.

    python examples/autoshard.py
"""
from __future__ import annotations

import math

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random

BATCH, LENGTH, VOCAB = 256, 64, 256
LAYERS, WIDTH, HEADS, HIDDEN = 2, 64, 4, 256
LEARNING_RATE = 0.5

mesh = st.make_mesh((4, 2), ("data", "model"))


def init(key):
    embed_key, *layer_keys = random.split(key, 1 + LAYERS)
    dense = nn.initializers.lecun_normal()

    def layer(key):
        keys = random.split(key, 4)
        return {"qkv": dense(keys[0], (WIDTH, 3 * WIDTH)), "out": dense(keys[1], (WIDTH, WIDTH)),
                "up": dense(keys[2], (WIDTH, HIDDEN)), "down": dense(keys[3], (HIDDEN, WIDTH))}

    return {"embed": random.normal(embed_key, (VOCAB, WIDTH)) / math.sqrt(WIDTH),
            "layers": st.vmap(layer)(jnp.stack(layer_keys))}


def norm(x):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def attention(x, p):
    q, k, v = (part.reshape(*x.shape[:2], HEADS, -1)
               for part in jnp.split(x @ p["qkv"], 3, axis=-1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(WIDTH // HEADS)
    scores = jnp.where(jnp.tri(x.shape[1], dtype=bool), scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores), v).reshape(x.shape) @ p["out"]


def loss(params, tokens, targets):
    def block(x, p):
        x = x + attention(norm(x), p)
        return x + nn.gelu(norm(x) @ p["up"]) @ p["down"], None

    x, _ = lax.scan(block, params["embed"][tokens], params["layers"])
    logits = norm(x) @ params["embed"].T
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (nn.logsumexp(logits, -1) - picked).mean()


def train_step(params, tokens, targets):
    value, grads = st.value_and_grad(loss)(params, tokens, targets)
    return st.tree.map(lambda p, g: p - LEARNING_RATE * g, params, grads), value


def plan():
    """What is proposed for the step, from shapes alone."""
    params = st.eval_shape(init, random.key(0))
    tokens = st.ShapeDtypeStruct((BATCH, LENGTH), np.int32)
    return st.autoshard(st.jit(train_step, donate_argnums=0), params, tokens, tokens, mesh=mesh)


def main(steps=5):
    proposal = plan()
    print(proposal)
    step = proposal.jit()
    (param_shardings, tokens_sharding, _), _ = proposal.in_shardings
    params = st.tree.map(st.device_put, init(random.key(0)), param_shardings)
    rng = np.random.default_rng(0)
    losses = []
    for n in range(steps):
        text = (rng.integers(0, VOCAB, (BATCH, 1)) + np.arange(LENGTH + 1)) % VOCAB
        tokens, targets = (st.device_put(part.astype(np.int32), tokens_sharding)
                           for part in (text[:, :-1], text[:, 1:]))
        params, value = step(params, tokens, targets)
        losses.append(float(value))
        print(f"step {n}  loss {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
