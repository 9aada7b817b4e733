"""Training over the ranks of an MPI job: one program text for every rank, as for many hosts.

    mpiexec -n 4 python examples/engines/train_mpi.py

The eight devices of the mesh are dealt out to the ranks: two each of four, one each of eight. Each
rank makes the rows of the batch that its devices hold and runs its devices' part of the step; what
devices of other ranks have comes over MPI. Losses do not depend on the number of ranks.

An argument names a folder for a checkpoint, of which each rank writes its part. The same text runs
with one process, by `python` without `mpiexec`, and in simulated ones, by `run_processes`.
docs/engines.md says what to install. `mpiexec` starts no more ranks than there are processor cores
unless it is given `--oversubscribe`, and as root wants `--allow-run-as-root`.
"""
from __future__ import annotations

import functools
import sys

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import nn, random
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

BATCH, FEATURES, HIDDEN, CLASSES = 64, 32, 64, 8
LEARNING_RATE = 0.5
SPECS = {"up": P(None, "model"), "down": P("model", None), "bias": P()}


def init(mesh):
    """Parameters, which every process computes and of which it keeps what its devices hold."""
    up, down = random.split(random.key(0))
    params = {"up": random.normal(up, (FEATURES, HIDDEN)) / FEATURES ** 0.5,
              "down": random.normal(down, (HIDDEN, CLASSES)) / HIDDEN ** 0.5,
              "bias": jnp.zeros(CLASSES)}
    return st.tree.map(lambda x, spec: st.device_put(x, NamedSharding(mesh, spec)), params, SPECS)


def batch(mesh, step):
    """A batch of which a process makes only its own rows."""
    rows = NamedSharding(mesh, P("data"))

    def row(i):
        return np.random.default_rng((step, i)).standard_normal(FEATURES).astype(np.float32)

    def features(index):
        return np.stack([row(i) for i in range(*index[0].indices(BATCH))])

    def labels(index):
        return np.argmax(features(index)[:, :CLASSES], axis=1).astype(np.int32)

    return (st.make_array_from_callback((BATCH, FEATURES), rows, features),
            st.make_array_from_callback((BATCH,), rows, labels))


def loss_fn(params, x, labels):
    h = nn.gelu(x @ params["up"])
    log_probs = nn.log_softmax(h @ params["down"] + params["bias"])
    return -jnp.mean(jnp.sum(nn.one_hot(labels, CLASSES) * log_probs, axis=-1))


@functools.partial(st.jit, donate_argnums=0)
def train_step(params, x, labels):
    loss, grads = st.value_and_grad(loss_fn)(params, x, labels)
    return st.tree.map(lambda p, g: p - LEARNING_RATE * g, params, grads), loss


def main(steps=10, folder=None):
    if not st.distributed.is_initialized():
        st.distributed.initialize(engine="mpi")
    me = st.process_index()
    mesh = st.make_mesh((2, 4), ("data", "model"))
    if me == 0:
        print(f"{st.process_count()} processes, {st.device_count()} devices")
    params = init(mesh)
    losses = []
    for step in range(steps):
        params, loss = train_step(params, *batch(mesh, step))
        losses.append(float(loss))
        if me == 0:
            print(f"step {step:3d}  loss {losses[-1]:.5f}")
    if folder is not None:
        st.checkpoints.save(folder, params)            # each process writes its own blocks
    return losses


if __name__ == "__main__":
    main(folder=sys.argv[1] if len(sys.argv) > 1 else None)
