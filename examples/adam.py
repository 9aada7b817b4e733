"""Fifty steps of AdamW, with warm-up, cosine decay and gradients summed over microbatches.

The optimizer is a pair of functions, `init` and `update`, over trees of parameters; its moments
take on the parameters' shardings since they are made from them. A step reads its batch in four
parts by `lax.scan` and adds up their gradients. The mesh is Explicit: the batch is split over
`data`, the widest weights over `model`. "Decoupled Weight Decay Regularization" (Loshchilov and
Hutter 2019) is the source of the update.

The task is to fit a curve in the plane by random Fourier features. Replace the imports by jax's,
and the same losses come from JAX.
"""
from __future__ import annotations

import functools
from typing import Any, NamedTuple

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, random
from shardtrace.sharding import AxisType, reshard
from shardtrace.sharding import PartitionSpec as P

PARTS, BATCH, FEATURES, HIDDEN = 4, 64, 32, 32
STEPS, WARM_UP, PEAK = 50, 5, 0.02

mesh = st.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)


class AdamState(NamedTuple):
    count: st.Array
    mean: Any
    square: Any


class AdamW(NamedTuple):
    """AdamW; weights of two and more dimensions decay, biases do not."""

    b1: float = 0.9
    b2: float = 0.99
    epsilon: float = 1e-8
    decay: float = 1e-2

    def init(self, params):
        zeros = functools.partial(st.tree.map, jnp.zeros_like)
        return AdamState(jnp.int32(0), zeros(params), zeros(params))

    def update(self, state, grads, params, rate):
        count = state.count + 1
        mean = st.tree.map(lambda m, g: self.b1 * m + (1 - self.b1) * g, state.mean, grads)
        square = st.tree.map(
            lambda s, g: self.b2 * s + (1 - self.b2) * jnp.square(g), state.square, grads)

        def step(p, m, s):
            direction = m / (1 - self.b1**count)
            size = jnp.sqrt(s / (1 - self.b2**count)) + self.epsilon
            decay = self.decay * p if p.ndim > 1 else 0.0
            return p - rate * (direction / size + decay)

        return st.tree.map(step, params, mean, square), AdamState(count, mean, square)


optimizer = AdamW()


def learning_rate(count):
    """Linear warm-up to the peak, then half a cosine down to zero."""
    progress = jnp.clip((count - WARM_UP) / (STEPS - WARM_UP), 0.0, 1.0)
    falling = 0.5 * (1 + jnp.cos(jnp.pi * progress))
    return PEAK * jnp.where(count < WARM_UP, (count + 1) / WARM_UP, falling)


def init(key):
    frequencies, hidden, output = random.split(key, 3)
    return {
        "frequencies": 2.0 * random.normal(frequencies, (1, FEATURES)),
        "hidden": {
            "w": random.normal(hidden, (2 * FEATURES, HIDDEN), out_sharding=P(None, "model"))
                 / jnp.sqrt(2 * FEATURES),
            "b": reshard(jnp.zeros(HIDDEN), P("model")),
        },
        "output": {
            "w": random.normal(output, (HIDDEN, 2), out_sharding=P("model", None))
                 / jnp.sqrt(HIDDEN),
            "b": jnp.zeros(2),
        },
    }


def curve(t):
    return jnp.concatenate([jnp.sin(3 * t) * jnp.cos(t), jnp.cos(5 * t) * t / 3], axis=-1)


def loss_fn(params, t):
    angles = t @ params["frequencies"]
    x = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    x = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    y = jnp.matmul(x, params["output"]["w"], out_sharding=P("data", None)) + params["output"]["b"]
    return jnp.mean((y - curve(t)) ** 2)


def accumulated_grads(params, parts):
    """Mean loss and gradient over parts: (part, example, 1), one part in memory at a time."""
    def add(total, part):
        return st.tree.map(jnp.add, total, st.value_and_grad(loss_fn)(params, part)), None

    zero = jnp.float32(0.0), st.tree.map(jnp.zeros_like, params)
    total, _ = lax.scan(add, zero, parts)
    return st.tree.map(lambda x: x / PARTS, total)


@functools.partial(st.jit, donate_argnums=(0, 1))
def train_step(params, state, parts):
    loss, grads = accumulated_grads(params, parts)
    rate = learning_rate(state.count)
    params, state = optimizer.update(state, grads, params, rate)
    return params, state, loss, rate


@st.jit
def make_batch(key):
    t = random.uniform(key, (PARTS, BATCH // PARTS, 1), minval=-3.0, maxval=3.0)
    return reshard(t, P(None, "data", None))


def main(steps=STEPS):
    losses = []
    with st.set_mesh(mesh):
        params = st.jit(init)(random.key(0))
        state = optimizer.init(params)
        for step in range(steps):
            parts = make_batch(random.fold_in(random.key(1), step))
            params, state, loss, rate = train_step(params, state, parts)
            losses.append(float(loss))
            if step % 5 == 0 or step == steps - 1:
                print(f"step {step:3d}  rate {float(rate):.5f}  loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
