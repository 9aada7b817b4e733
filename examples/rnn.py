"""A gated recurrent network: `lax.scan` over time, the batch over `data`, the state over `model`.

The body of the scan is traced once, and its carry keeps one sharding for all time steps. Since
the recurrent weights are cut by columns, each step gathers the state over `model`; weights that
do not change stay where they are, outside of the loop. The unit is that of "Learning Phrase
Representations using RNN Encoder-Decoder" (Cho et al. 2014).

The task is to remember: after every input say what the input was three steps ago. Gradients are
clipped by their global norm. Replace the imports by jax's, and the same losses come from JAX.
"""
from __future__ import annotations

import functools

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

BATCH, TIME, SYMBOLS, STATE, DELAY = 32, 20, 4, 32, 3
LEARNING_RATE, MAX_NORM = 1.0, 1.0

mesh = st.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

# Matrices of the three parts (update, reset, candidate) stand side by side in dimension 0.
SPECS = {
    "inputs": P(None, None, "model"),
    "state": P(None, None, "model"),
    "bias": P(None, "model"),
    "readout": P("model", None),
}


def init(key):
    inputs, state, readout = random.split(key, 3)
    params = {
        "inputs": nn.initializers.glorot_uniform()(inputs, (3, SYMBOLS, STATE)),
        "state": nn.initializers.orthogonal()(state, (3, STATE, STATE)),
        "bias": jnp.zeros((3, STATE)),
        "readout": nn.initializers.glorot_uniform()(readout, (STATE, SYMBOLS)),
    }
    return {name: st.device_put(p, NamedSharding(mesh, SPECS[name])) for name, p in params.items()}


def gru_cell(params, h, x):
    """One time step: state h (batch, state) and input x (batch, symbols) to the next state."""
    (update_x, reset_x, candidate_x), (update_h, reset_h, candidate_h) = (
        params["inputs"], params["state"])
    update_b, reset_b, candidate_b = params["bias"]
    update = nn.sigmoid(x @ update_x + h @ update_h + update_b)
    reset = nn.sigmoid(x @ reset_x + h @ reset_h + reset_b)
    candidate = jnp.tanh(x @ candidate_x + (reset * h) @ candidate_h + candidate_b)
    return (1 - update) * h + update * candidate


def forward(params, x):
    """x: (time, batch, symbols). Returns logits of the same shape."""
    def step(h, x):
        h = gru_cell(params, h, x)
        return h, h @ params["readout"]

    start = jnp.zeros((x.shape[1], STATE))
    _, logits = lax.scan(step, start, x)
    return logits


def loss_fn(params, symbols):
    logits = forward(params, nn.one_hot(symbols, SYMBOLS))
    log_probs = nn.log_softmax(logits[DELAY:])
    return -jnp.mean(jnp.take_along_axis(log_probs, symbols[:-DELAY, :, None], axis=-1))


def clip_by_global_norm(grads):
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in st.tree.leaves(grads)))
    scale = jnp.minimum(1.0, MAX_NORM / norm)
    return st.tree.map(lambda g: scale * g, grads), norm


@functools.partial(st.jit, donate_argnums=0)
def train_step(params, symbols):
    loss, grads = st.value_and_grad(loss_fn)(params, symbols)
    grads, norm = clip_by_global_norm(grads)
    return st.tree.map(lambda p, g: p - LEARNING_RATE * g, params, grads), loss, norm


def make_batch(key):
    symbols = random.randint(key, (TIME, BATCH), 0, SYMBOLS)
    return st.device_put(symbols, NamedSharding(mesh, P(None, "data")))


def main(steps=20):
    params = init(random.key(0))
    losses = []
    for step in range(steps):
        symbols = make_batch(random.fold_in(random.key(1), step))
        params, loss, norm = train_step(params, symbols)
        losses.append(float(loss))
        print(f"step {step:3d}  loss {losses[-1]:.5f}  gradient norm {float(norm):.3f}")
    return losses


if __name__ == "__main__":
    main()
