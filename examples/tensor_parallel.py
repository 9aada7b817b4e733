"""Tensor parallelism with sequence parallelism: activations are never whole on a device.

Weights are cut over `model`, as in "Megatron-LM" (Shoeybi et al. 2019). Between the products the
residual stream is cut over the same axis along the *sequence* ("Reducing Activation
Recomputation", Korthikanti et al. 2022), so that norms and sums, too, are shared out. Each block
then gathers the sequence on its way in, and on its way out adds its partial sums and cuts them up
again in one reduce-scatter, which is all that `out_sharding=STREAM` says.

The mesh is Explicit with Auto `data`: types mention `model` only, and the batch is left to the
compiler. The task is to undo a fixed shuffle of each sequence. Replace the imports by jax's, and
the same losses come from JAX.
"""
from __future__ import annotations

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random
from shardtrace.sharding import AxisType, NamedSharding, reshard
from shardtrace.sharding import PartitionSpec as P

BATCH, LENGTH, WIDTH, HEADS, HEAD_WIDTH, HIDDEN, LAYERS = 8, 16, 16, 4, 8, 64, 2
LEARNING_RATE = 0.2

mesh = st.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Explicit))

STREAM = P(None, "model", None)                     # batch, sequence, width
WHOLE = P(None, None, None)
SPECS = {
    "norms": P(None, "model"),
    "qkv": P(None, None, "model", None),
    "out": P("model", None, None),
    "gate": P(None, "model"),
    "up": P(None, "model"),
    "down": P("model", None),
}


def init(key):
    def layer(key):
        keys = iter(random.split(key, 5))

        def weight(*shape, inputs):
            return random.normal(next(keys), shape) / jnp.sqrt(inputs)

        values = {
            "norms": jnp.ones((2, WIDTH)),
            "qkv": weight(3, WIDTH, HEADS, HEAD_WIDTH, inputs=WIDTH),
            "out": weight(HEADS, HEAD_WIDTH, WIDTH, inputs=HEADS * HEAD_WIDTH),
            "gate": weight(WIDTH, HIDDEN, inputs=WIDTH),
            "up": weight(WIDTH, HIDDEN, inputs=WIDTH),
            "down": weight(HIDDEN, WIDTH, inputs=HIDDEN),
        }
        return {name: reshard(value, SPECS[name]) for name, value in values.items()}

    position_key, *layer_keys = random.split(key, 1 + LAYERS)
    positions = reshard(random.normal(position_key, (LENGTH, WIDTH)), P("model", None))
    return {"positions": positions, "layers": [layer(key) for key in layer_keys]}


def rms_norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * reshard(scale, P(None))


def attention(x, layer):
    q, k, v = jnp.einsum("bsd,cdhk->cbshk", x, layer["qkv"])
    probs = nn.softmax(jnp.einsum("bqhk,bshk->bhqs", q, k) / jnp.sqrt(HEAD_WIDTH))
    mixed = jnp.einsum("bhqs,bshk->bqhk", probs, v)
    return jnp.einsum("bqhk,hkd->bqd", mixed, layer["out"], out_sharding=STREAM)


def gated_mlp(x, layer):
    hidden = nn.silu(x @ layer["gate"]) * (x @ layer["up"])
    return jnp.einsum("bsf,fd->bsd", hidden, layer["down"], out_sharding=STREAM)


def forward(params, x):
    """x: (batch, sequence, width), its sequence cut over `model`, as is the result's."""
    stream = x + params["positions"]
    for layer in params["layers"]:
        gathered = reshard(rms_norm(stream, layer["norms"][0]), WHOLE)
        stream = stream + attention(gathered, layer)
        gathered = reshard(rms_norm(stream, layer["norms"][1]), WHOLE)
        stream = stream + gated_mlp(gathered, layer)
    return stream


def loss_fn(params, x, targets):
    return jnp.mean((forward(params, x) - targets) ** 2)


@st.jit
def train_step(params, x, targets):
    loss, grads = st.value_and_grad(loss_fn)(params, x, targets)
    return st.tree.map(lambda p, g: p - LEARNING_RATE * g, params, grads), loss


@st.jit
def make_batch(key):
    x = random.normal(key, (BATCH, LENGTH, WIDTH))
    shuffle = random.permutation(random.key(5), LENGTH)
    return reshard((x, x[:, shuffle]), STREAM)


def main(steps=20):
    losses = []
    with st.set_mesh(mesh):
        params = init(random.key(0))
        for step in range(steps):
            x, targets = make_batch(random.fold_in(random.key(1), step))
            over_both = NamedSharding(mesh, P("data", "model", None))
            x, targets = st.device_put((x, targets), over_both)
            params, loss = train_step(params, x, targets)
            losses.append(float(loss))
            print(f"step {step:3d}  loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
