"""Ring attention: sequences longer than a device's memory, keys and values passed round a ring.

Each device holds one block of the sequence, for good its queries, and in turn everybody's keys
and values: at each of as many steps as there are devices it attends to the block at hand and
sends it on with `ppermute`. The softmax is accumulated with a running maximum and sum, so that
scores of the whole sequence never exist ("Ring Attention with Blockwise Transformers", Liu et
al. 2023). `lax.scan` makes the steps, and its derivative sends gradients round the other way.

The model, one attention layer, learns to sum up what it saw so far. `main` checks the ring
against plain attention first. Replace the imports by jax's, and the same losses come from JAX.
"""
from __future__ import annotations

import functools

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random
from shardtrace.sharding import AxisType, reshard
from shardtrace.sharding import PartitionSpec as P

RING = 8
BATCH, LENGTH, INPUTS, HEADS, HEAD_WIDTH = 4, 64, 8, 2, 8
LEARNING_RATE = 0.5

mesh = st.make_mesh((RING,), ("seq",), axis_types=(AxisType.Explicit,))
BLOCKS = P(None, "seq", None, None)                 # batch, position, head, width


@functools.partial(st.shard_map, mesh=mesh, in_specs=(BLOCKS,) * 3, out_specs=BLOCKS)
def ring_attention(q, k, v):
    me = lax.axis_index("seq")
    block = q.shape[1]
    rows = me * block + jnp.arange(block)
    to_the_right = [(i, (i + 1) % RING) for i in range(RING)]

    def attend(carry, step):
        total, top, weight, k, v = carry
        columns = (me - step) % RING * block + jnp.arange(block)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(HEAD_WIDTH)
        scores = jnp.where(rows[:, None] >= columns, scores, -1e9)
        new_top = jnp.maximum(top, jnp.max(scores, axis=-1))
        shrink = jnp.exp(top - new_top)
        probs = jnp.exp(scores - new_top[..., None])
        total = total * shrink[..., None] + jnp.einsum("bhqk,bkhd->bhqd", probs, v)
        weight = weight * shrink + jnp.sum(probs, axis=-1)
        k, v = lax.ppermute((k, v), "seq", to_the_right)
        return (total, new_top, weight, k, v), None

    start = jnp.swapaxes(q, 1, 2)                   # varies over seq, as what is summed up does
    zeros = jnp.zeros_like(start)
    carry = (zeros, zeros[..., 0] - 1e9, zeros[..., 0], k, v)
    (total, _, weight, _, _), _ = lax.scan(attend, carry, jnp.arange(RING))
    return jnp.swapaxes(total / weight[..., None], 1, 2)


def plain_attention(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(HEAD_WIDTH)
    causal = jnp.tri(q.shape[1], dtype=bool)
    probs = nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", probs, v)


def init(key):
    qkv, out = random.split(key)
    return {
        "qkv": random.normal(qkv, (3, INPUTS, HEADS, HEAD_WIDTH)) / jnp.sqrt(INPUTS),
        "out": random.normal(out, (HEADS, HEAD_WIDTH, INPUTS)) / jnp.sqrt(HEADS * HEAD_WIDTH),
    }


def loss_fn(params, x, targets):
    q, k, v = jnp.einsum("bsi,cihd->cbshd", x, params["qkv"])
    y = jnp.einsum("bshd,hdi->bsi", ring_attention(q, k, v), params["out"])
    return jnp.mean((y - targets) ** 2)


@st.jit
def train_step(params, x, targets):
    loss, grads = st.value_and_grad(loss_fn)(params, x, targets)
    return st.tree.map(lambda p, g: p - LEARNING_RATE * g, params, grads), loss


@st.jit
def make_batch(key):
    x = random.normal(key, (BATCH, LENGTH, INPUTS))
    means = jnp.cumsum(x, axis=1) / (1 + jnp.arange(LENGTH))[:, None]
    return reshard((x, 2.0 * means), P(None, "seq", None))


def check_against_plain_attention(key):
    q, k, v = random.normal(key, (3, BATCH, LENGTH, HEADS, HEAD_WIDTH))
    ring = st.jit(ring_attention)(*reshard((q, k, v), BLOCKS))
    assert jnp.allclose(reshard(ring, P()), plain_attention(q, k, v), atol=1e-5)


def main(steps=10):
    losses = []
    with st.set_mesh(mesh):
        check_against_plain_attention(random.key(2))
        params = init(random.key(0))
        for step in range(steps):
            params, loss = train_step(params, *make_batch(random.fold_in(random.key(1), step)))
            losses.append(float(loss))
            print(f"step {step:3d}  loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
