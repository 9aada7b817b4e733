"""A transformer whose layers are one `lax.scan` over stacked parameters, with rematerialisation.

Every leaf of `params["layers"]` has a leading dimension of size `LAYERS`. The body is traced once
however many layers there are, and `checkpoint` keeps of each layer only its inputs and the
results of its products, to save memory. The mesh is Auto: parameters carry shardings, and
`with_sharding_constraint` pins the activations between layers, which is enough for the compiler
to find the rest.

The task is to go on with a pattern that repeats itself after four tokens. Replace the imports by
jax's, and the same losses come from JAX.
"""
from __future__ import annotations

import functools

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

BATCH, LENGTH, PERIOD, VOCAB = 32, 16, 4, 8
LAYERS, WIDTH, HEADS, HIDDEN = 4, 32, 4, 64
LEARNING_RATE = 0.1

mesh = st.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

# The leading dimension of a layer's weights is the layer, which stays whole.
LAYER_SPECS = {
    "qkv": P(None, None, None, "model"),
    "out": P(None, "model", None),
    "up": P(None, None, "model"),
    "down": P(None, "model", None),
    "norm_scale": P(None, None, None),
    "norm_offset": P(None, None, None),
}
SPECS = {"embed": P(None, "model"), "positions": P(), "layers": LAYER_SPECS}


def init(key):
    embed_key, position_key, *layer_keys = random.split(key, 2 + LAYERS)

    def layer(key):
        qkv, out, up, down = random.split(key, 4)
        dense = nn.initializers.lecun_normal()
        shrink = 1 / jnp.sqrt(2 * LAYERS)
        return {
            "qkv": dense(qkv, (3, WIDTH, WIDTH)),
            "out": shrink * dense(out, (WIDTH, WIDTH)),
            "up": dense(up, (WIDTH, HIDDEN)),
            "down": shrink * dense(down, (HIDDEN, WIDTH)),
            "norm_scale": jnp.ones((2, WIDTH)),
            "norm_offset": jnp.zeros((2, WIDTH)),
        }

    params = {
        "embed": random.normal(embed_key, (VOCAB, WIDTH)) / jnp.sqrt(WIDTH),
        "positions": 0.3 * random.normal(position_key, (LENGTH - 1, WIDTH)),
        "layers": st.vmap(layer)(jnp.stack(layer_keys)),
    }
    return st.tree.map(lambda p, spec: st.device_put(p, NamedSharding(mesh, spec)), params, SPECS)


def constrain(x, *spec):
    return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


def layer_norm(x, layer, which):
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    scaled = centred * lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)
    return scaled * layer["norm_scale"][which] + layer["norm_offset"][which]


def attention(x, layer):
    q, k, v = (jnp.reshape(x @ w, (*x.shape[:2], HEADS, -1)) for w in layer["qkv"])
    scores = jnp.einsum("bqhk,bshk->bhqs", q, k) / jnp.sqrt(WIDTH // HEADS)
    scores = jnp.where(jnp.tri(scores.shape[-1], dtype=bool), scores, -jnp.inf)
    mixed = jnp.einsum("bhqs,bshk->bqhk", nn.softmax(scores), v)
    return jnp.reshape(mixed, x.shape) @ layer["out"]


@functools.partial(st.checkpoint, policy=st.checkpoint_policies.dots_with_no_batch_dims_saveable)
def apply_layer(x, layer):
    x = x + attention(layer_norm(x, layer, 0), layer)
    x = x + nn.gelu(layer_norm(x, layer, 1) @ layer["up"]) @ layer["down"]
    return constrain(x, "data", None, None), jnp.mean(x**2)


def loss_fn(params, tokens):
    x = params["embed"][tokens[:, :-1]] + params["positions"]
    x, sizes = lax.scan(apply_layer, constrain(x, "data", None, None), params["layers"])
    logits = x @ params["embed"].T
    log_probs = nn.log_softmax(logits)
    picked = jnp.take_along_axis(log_probs, tokens[:, 1:, None], axis=-1)[..., 0]
    return -jnp.mean(picked[:, PERIOD - 1 :]), jnp.sqrt(sizes)


@functools.partial(st.jit, donate_argnums=0)
def train_step(params, tokens):
    (loss, sizes), grads = st.value_and_grad(loss_fn, has_aux=True)(params, tokens)
    return st.tree.map(lambda p, g: p - LEARNING_RATE * g, params, grads), loss, sizes


@functools.partial(st.jit, out_shardings=NamedSharding(mesh, P("data", None)))
def make_batch(key):
    pattern = random.randint(key, (BATCH, PERIOD), 0, VOCAB)
    return jnp.tile(pattern, (1, LENGTH // PERIOD))


def main(steps=20):
    params = init(random.key(0))
    losses = []
    for step in range(steps):
        tokens = make_batch(random.fold_in(random.key(1), step))
        params, loss, sizes = train_step(params, tokens)
        losses.append(float(loss))
        shown = " ".join(f"{size:.2f}" for size in sizes)
        print(f"step {step:3d}  loss {losses[-1]:.5f}  activations by layer {shown}")
    return losses


if __name__ == "__main__":
    main()
