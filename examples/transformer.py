"""A decoder-only transformer in sharding types: every value's type says where it lives.

The mesh is Explicit: `data` splits the batch, `model` splits heads, the hidden units of the MLP
and the vocabulary. Types are checked while the program is traced, so that a contraction over a
split dimension must say what its result is to be (`out_sharding`); here these are the two
all-reduces of a layer. Printing `st.typeof(x)` anywhere shows the type, say
`float32[8@data,16,32]`.

The task is to continue arithmetic progressions modulo the vocabulary's size. Replace the imports
by jax's, and the same losses come from JAX.
"""
from __future__ import annotations

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random
from shardtrace.sharding import AxisType, reshard
from shardtrace.sharding import PartitionSpec as P

BATCH, LENGTH, VOCAB = 16, 16, 16
LAYERS, WIDTH, HEADS, HEAD_WIDTH, HIDDEN = 2, 32, 4, 8, 64
LEARNING_RATE = 0.3

mesh = st.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
ACTIVATIONS = P("data", None, None)


def init(key):
    """Parameters; each is drawn block by block on the devices that hold it."""
    keys = iter(random.split(key, 2 + 4 * LAYERS))

    def weight(shape, inputs, spec):
        return random.normal(next(keys), shape, out_sharding=spec) / jnp.sqrt(inputs)

    def layer():
        return {
            "norm": jnp.ones((2, WIDTH)),
            "qkv": weight((3, WIDTH, HEADS, HEAD_WIDTH), WIDTH, P(None, None, "model", None)),
            "out": weight((HEADS, HEAD_WIDTH, WIDTH), WIDTH, P("model", None, None)),
            "up": weight((WIDTH, HIDDEN), WIDTH, P(None, "model")),
            "down": weight((HIDDEN, WIDTH), HIDDEN, P("model", None)),
        }

    return {
        "embed": weight((VOCAB, WIDTH), WIDTH, P(None, None)),
        "unembed": weight((WIDTH, VOCAB), WIDTH, P(None, "model")),
        "layers": [layer() for _ in range(LAYERS)],
    }


def rms_norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def rotate(x):
    """Rotary position embedding of x: (batch, length, heads, width)."""
    half = x.shape[-1] // 2
    speed = 1.0 / 100.0 ** (jnp.arange(half) / half)
    angle = jnp.arange(x.shape[1])[:, None] * speed
    sin, cos = jnp.sin(angle)[None, :, None, :], jnp.cos(angle)[None, :, None, :]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def attention(x, params):
    q, k, v = jnp.einsum("bsd,cdhk->cbshk", x, params["qkv"])
    scores = jnp.einsum("bqhk,bshk->bhqs", rotate(q), rotate(k)) / jnp.sqrt(HEAD_WIDTH)
    causal = jnp.arange(LENGTH)[:, None] >= jnp.arange(LENGTH)
    probs = nn.softmax(jnp.where(causal[None, None], scores, -1e9), axis=-1)
    mixed = jnp.einsum("bhqs,bshk->bqhk", probs, v)
    return jnp.einsum("bqhk,hkd->bqd", mixed, params["out"], out_sharding=ACTIVATIONS)


def mlp(x, params):
    hidden = nn.gelu(x @ params["up"])
    return jnp.einsum("bsf,fd->bsd", hidden, params["down"], out_sharding=ACTIVATIONS)


def loss_fn(params, tokens):
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = params["embed"].at[inputs].get(out_sharding=ACTIVATIONS)
    for layer in params["layers"]:
        x = x + attention(rms_norm(x, layer["norm"][0]), layer)
        x = x + mlp(rms_norm(x, layer["norm"][1]), layer)
    log_probs = nn.log_softmax(x @ params["unembed"], axis=-1)
    wanted = targets[..., None] == reshard(jnp.arange(VOCAB), P("model"))
    return -jnp.mean(jnp.sum(jnp.where(wanted, log_probs, 0.0), axis=-1))


@st.jit
def train_step(params, tokens):
    loss, grads = st.value_and_grad(loss_fn)(params, tokens)
    return st.tree.map(lambda p, g: p - LEARNING_RATE * g, params, grads), loss


@st.jit
def make_batch(key):
    start, stride = random.randint(key, (2, BATCH, 1), 0, VOCAB)
    tokens = (start + (stride % 4 + 1) * jnp.arange(LENGTH + 1)) % VOCAB
    return reshard(tokens, P("data", None))


def main(steps=10):
    losses = []
    with st.set_mesh(mesh):
        params = init(random.key(0))
        for step in range(steps):
            params, loss = train_step(params, make_batch(random.fold_in(random.key(1), step)))
            losses.append(float(loss))
            print(f"step {step:3d}  loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
