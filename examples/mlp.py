"""A multilayer perceptron: the batch is split over `data`, the hidden units over `model`.

The mesh is Auto, so nothing but the inputs says how anything is sharded. The first weight is cut
by columns and the second by rows; what the compiler adds to the step is one all-reduce of
activations over `model` in each direction, and one of the gradients over `data`. To see them,
print `train_step.lower(...).compile().as_text()`.

Replace the imports by jax's, and the same losses come from JAX.
"""
from __future__ import annotations

import functools

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import nn, random
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

BATCH, FEATURES, HIDDEN, CLASSES = 64, 16, 32, 8
LEARNING_RATE = 0.5

mesh = st.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

SPECS = {
    "hidden": {"w": P(None, "model"), "b": P("model")},
    "output": {"w": P("model", None), "b": P()},
}


def put(value, spec):
    return st.device_put(value, NamedSharding(mesh, spec))


def init(key):
    """Parameters, each placed as `SPECS` says: w is (inputs, outputs), b is (outputs,)."""
    def dense(key, inputs, outputs):
        w = random.normal(key, (inputs, outputs)) / jnp.sqrt(inputs)
        return {"w": w, "b": jnp.zeros(outputs)}

    first, second = random.split(key)
    params = {"hidden": dense(first, FEATURES, HIDDEN), "output": dense(second, HIDDEN, CLASSES)}
    return st.tree.map(put, params, SPECS)


def forward(params, x):
    h = nn.gelu(x @ params["hidden"]["w"] + params["hidden"]["b"])
    return h @ params["output"]["w"] + params["output"]["b"]


def loss_fn(params, x, labels):
    log_probs = nn.log_softmax(forward(params, x))
    return -jnp.mean(jnp.sum(nn.one_hot(labels, CLASSES) * log_probs, axis=-1))


@functools.partial(st.jit, donate_argnums=0)
def train_step(params, x, labels):
    loss, grads = st.value_and_grad(loss_fn)(params, x, labels)
    return st.tree.map(lambda p, g: p - LEARNING_RATE * g, params, grads), loss


def batches(key):
    """Points labelled by a teacher: the class whose direction they point to most."""
    teacher_key, key = random.split(key)
    teacher = random.normal(teacher_key, (FEATURES, CLASSES))
    while True:
        key, x_key = random.split(key)
        x = random.normal(x_key, (BATCH, FEATURES))
        yield put(x, P("data", None)), put(jnp.argmax(x @ teacher, axis=-1), P("data"))


def main(steps=20):
    params = init(random.key(0))
    losses = []
    for step, (x, labels) in zip(range(steps), batches(random.key(1)), strict=False):
        params, loss = train_step(params, x, labels)
        losses.append(float(loss))
        print(f"step {step:3d}  loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
