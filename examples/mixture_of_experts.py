"""A mixture of experts: tokens travel to their expert's device and back by `all_to_all`.

Each of eight devices holds a share of the tokens and one expert (expert parallelism, as in
"GShard", Lepikhin et al. 2020, and "Switch Transformers", Fedus et al. 2021). A router sends each
token to one expert. Inside `shard_map` a device sorts its tokens into one buffer per expert, of
fixed capacity; a token that finds its buffer full passes by. One `all_to_all` delivers buffers to
experts and a second one brings results home. Gradients take the same ways backwards.

A second loss term keeps the load even. Replace the imports by jax's, and the same losses come
from JAX.
"""
from __future__ import annotations

import functools

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

EXPERTS = 8
TOKENS, WIDTH, HIDDEN = 128, 16, 32
CAPACITY = 2 * TOKENS // EXPERTS // EXPERTS    # for each expert, from each device
LEARNING_RATE, BALANCE = 0.3, 0.01

mesh = st.make_mesh((EXPERTS,), ("expert",), axis_types=(AxisType.Auto,))

SPECS = {
    "router": P(None, None),
    "experts": {"up": P("expert", None, None), "down": P("expert", None, None)},
}


def init(key):
    router, up, down = random.split(key, 3)
    params = {
        "router": random.normal(router, (WIDTH, EXPERTS)) / jnp.sqrt(WIDTH),
        "experts": {
            "up": random.normal(up, (EXPERTS, WIDTH, HIDDEN)) / jnp.sqrt(WIDTH),
            "down": random.normal(down, (EXPERTS, HIDDEN, WIDTH)) / jnp.sqrt(HIDDEN),
        },
    }
    return st.tree.map(lambda p, spec: st.device_put(p, NamedSharding(mesh, spec)), params, SPECS)


def expert_mlp(expert, x):
    return nn.relu(x @ expert["up"]) @ expert["down"]


@functools.partial(st.shard_map, mesh=mesh, in_specs=(SPECS, P("expert", None)),
                   out_specs=(P("expert", None), P(), P()))
def moe_layer(params, x):
    """x: this device's tokens. Returns their updates, the balance loss, the share delivered."""
    probs = nn.softmax(x @ params["router"])
    choice = jnp.argmax(probs, axis=-1)
    gate = jnp.max(probs, axis=-1)

    # dispatch[token, expert, slot] is one where the token takes that slot of the expert's buffer.
    chosen = nn.one_hot(choice, EXPERTS)
    slot = jnp.sum((jnp.cumsum(chosen, axis=0) - 1) * chosen, axis=-1).astype(jnp.int32)
    dispatch = chosen[:, :, None] * nn.one_hot(slot, CAPACITY)[:, None, :]

    sent = jnp.einsum("tec,td->ecd", dispatch, x)
    received = lax.all_to_all(sent, "expert", split_axis=0, concat_axis=0, tiled=True)
    done = expert_mlp(st.tree.map(lambda w: w[0], params["experts"]), received)
    returned = lax.all_to_all(done, "expert", split_axis=0, concat_axis=0, tiled=True)
    y = jnp.einsum("tec,ecd->td", dispatch, returned) * gate[:, None]

    load = lax.pmean(jnp.mean(chosen, axis=0), "expert")
    importance = lax.pmean(jnp.mean(probs, axis=0), "expert")
    delivered = lax.pmean(jnp.sum(dispatch) / len(x), "expert")
    return y, EXPERTS * jnp.sum(load * importance), delivered


def loss_fn(params, x, targets):
    y, balance, delivered = moe_layer(params, x)
    error = jnp.mean((x + y - targets) ** 2)
    return error + BALANCE * balance, (error, delivered)


@st.jit
def train_step(params, x, targets):
    grad_fn = st.value_and_grad(loss_fn, has_aux=True)
    (_, (error, delivered)), grads = grad_fn(params, x, targets)
    return st.tree.map(lambda p, g: p - LEARNING_RATE * g, params, grads), error, delivered


@functools.partial(st.jit, out_shardings=NamedSharding(mesh, P("expert", None)))
def make_batch(key):
    """Points near one of eight centres; each centre has a linear map of its own to learn."""
    fixed, maps = random.split(random.key(7))
    centres = 2.0 * random.normal(fixed, (EXPERTS, WIDTH))
    maps = random.normal(maps, (EXPERTS, WIDTH, WIDTH)) / jnp.sqrt(WIDTH)
    which_key, noise_key = random.split(key)
    which = random.randint(which_key, (TOKENS,), 0, EXPERTS)
    x = centres[which] + 0.5 * random.normal(noise_key, (TOKENS, WIDTH))
    return x, jnp.einsum("td,tde->te", x, maps[which])


def main(steps=15):
    params = init(random.key(0))
    losses = []
    for step in range(steps):
        x, targets = make_batch(random.fold_in(random.key(1), step))
        params, error, delivered = train_step(params, x, targets)
        losses.append(float(error))
        print(f"step {step:3d}  loss {losses[-1]:.5f}  delivered {float(delivered):.0%}")
    return losses


if __name__ == "__main__":
    main()
