"""Fully sharded data parallelism: parameters and optimizer state are split like the batch.

Every weight lives in blocks over `data`, so that a device stores an eighth of the model and of
Adam's two moments. A layer gathers its weight just before use (`reshard`, an all-gather), and
rematerialisation drops it afterwards and gathers it again for the backward pass. That the
gradient comes back in blocks, as a reduce-scatter, follows from the types: a gradient has the
sharding of its parameter ("ZeRO", Rajbhandari et al. 2020).

The mesh is Explicit, so the gathers stand in the program and nowhere else. The network is a
residual autoencoder. Replace the imports by jax's, and the same losses come from JAX.
"""
from __future__ import annotations

from typing import NamedTuple

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import nn, random
from shardtrace.sharding import AxisType, reshard
from shardtrace.sharding import PartitionSpec as P

BATCH, FEATURES, WIDTH, CODE = 64, 32, 64, 8
LEARNING_RATE, B1, B2, EPSILON = 3e-3, 0.9, 0.99, 1e-8

mesh = st.make_mesh((8,), ("data",), axis_types=(AxisType.Explicit,))
SIZES = [(FEATURES, WIDTH), (WIDTH, WIDTH), (WIDTH, CODE), (CODE, WIDTH), (WIDTH, FEATURES)]


class TrainState(NamedTuple):
    step: st.Array
    params: list
    mean: list
    square: list


def init(key):
    def layer(key, inputs, outputs):
        w = random.normal(key, (inputs, outputs), out_sharding=P("data", None))
        return {"w": w / jnp.sqrt(inputs), "b": reshard(jnp.zeros(outputs), P("data"))}

    keys = random.split(key, len(SIZES))
    params = [layer(key, *sizes) for key, sizes in zip(keys, SIZES, strict=True)]
    zeros = st.tree.map(jnp.zeros_like, params)     # sharded as the parameters are
    return TrainState(jnp.int32(0), params, zeros, zeros)


@st.checkpoint
def dense(layer, x):
    whole = st.tree.map(lambda p: reshard(p, P()), layer)
    y = nn.silu(x @ whole["w"] + whole["b"])
    return x + y if x.shape == y.shape else y


def loss_fn(params, x):
    y = x
    for layer in params:
        y = dense(layer, y)
    return jnp.mean((y - x) ** 2)


def adam(state, grads):
    step = state.step + 1
    mean = st.tree.map(lambda m, g: B1 * m + (1 - B1) * g, state.mean, grads)
    square = st.tree.map(lambda s, g: B2 * s + (1 - B2) * g * g, state.square, grads)

    def update(p, m, s):
        m, s = m / (1 - B1**step), s / (1 - B2**step)
        return p - LEARNING_RATE * m / (jnp.sqrt(s) + EPSILON)

    return TrainState(step, st.tree.map(update, state.params, mean, square), mean, square)


@st.jit
def train_step(state, x):
    loss, grads = st.value_and_grad(loss_fn)(state.params, x)
    return adam(state, grads), loss


@st.jit
def make_batch(key):
    """Points on a curved surface of few dimensions, so that a short code can hold them."""
    basis = random.normal(random.key(3), (CODE // 2, FEATURES))
    code = random.normal(key, (BATCH, CODE // 2), out_sharding=P("data", None))
    return nn.softplus(code @ basis)


def bytes_per_device(tree):
    return sum(leaf.addressable_shards[0].data.nbytes for leaf in st.tree.leaves(tree))


def main(steps=15):
    losses = []
    with st.set_mesh(mesh):
        state = st.jit(init)(random.key(0))
        whole = sum(leaf.nbytes for leaf in st.tree.leaves(state))
        print(f"state: {whole} bytes, {bytes_per_device(state)} of them on each device")
        for step in range(steps):
            state, loss = train_step(state, make_batch(random.fold_in(random.key(1), step)))
            losses.append(float(loss))
            print(f"step {step:3d}  loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
