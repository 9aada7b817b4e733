"""A training step that is partitioned here and runs on JAX's devices.

`compile(engine="jax")` hands the program of one device to XLA: a function under `jax.shard_map`
with the collectives that are chosen here, and no other. The losses are those of the simulation.
`as_jax()` gives the function of JAX's own arrays, `as_jax_source()` the program as a Python file
that needs JAX alone; it is printed at the end.

Needs JAX (`pip install 'shardtrace[jax]'`). On a machine without accelerators JAX's devices are
virtual: as many as are simulated, unless XLA_FLAGS or JAX's own settings say otherwise.
"""
from __future__ import annotations

import functools

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import nn, random
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

BATCH, FEATURES, HIDDEN, CLASSES = 64, 32, 64, 8
LEARNING_RATE = 0.5

mesh = st.make_mesh((2, 4), ("data", "model"))
SPECS = {"up": P(None, "model"), "down": P("model", None), "bias": P()}


def put(value, spec):
    return st.device_put(value, NamedSharding(mesh, spec))


def init(key):
    up, down = random.split(key)
    params = {"up": random.normal(up, (FEATURES, HIDDEN)) / FEATURES ** 0.5,
              "down": random.normal(down, (HIDDEN, CLASSES)) / HIDDEN ** 0.5,
              "bias": jnp.zeros(CLASSES)}
    return st.tree.map(put, params, SPECS)


def loss_fn(params, x, labels):
    h = nn.gelu(x @ params["up"])
    log_probs = nn.log_softmax(h @ params["down"] + params["bias"])
    return -jnp.mean(jnp.sum(nn.one_hot(labels, CLASSES) * log_probs, axis=-1))


@functools.partial(st.jit, donate_argnums=0)
def train_step(params, x, labels):
    loss, grads = st.value_and_grad(loss_fn)(params, x, labels)
    return st.tree.map(lambda p, g: p - LEARNING_RATE * g, params, grads), loss


def batch(step):
    rng = np.random.default_rng(step)
    x = rng.standard_normal((BATCH, FEATURES)).astype(np.float32)
    return put(x, P("data", None)), put(np.argmax(x[:, :CLASSES], axis=1), P("data"))


def losses_on(engine, steps):
    """The losses of a training run on this engine."""
    params = init(random.key(0))
    step_fn = train_step.lower(params, *batch(0)).compile(engine=engine)
    losses = []
    for step in range(steps):
        params, loss = step_fn(params, *batch(step))
        losses.append(float(loss))
    return losses


def main(steps=10):
    simulated, xla = losses_on("simulated", steps), losses_on("jax", steps)
    for step, (a, b) in enumerate(zip(simulated, xla, strict=True)):
        print(f"step {step:3d}  loss {a:.5f}  on XLA {b:.5f}")
    np.testing.assert_allclose(xla, simulated, rtol=1e-5)
    print(train_step.lower(init(random.key(0)), *batch(0)).compile().as_jax_source())
    return simulated


if __name__ == "__main__":
    main()
