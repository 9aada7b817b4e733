"""Pipeline parallelism: one stage of the network on each device, microbatches handed along.

The schedule is GPipe's (Huang et al. 2019). At every tick each stage works on the microbatch that
it holds and passes the result on with `ppermute`; the first stage takes in a new one, the last
puts one out. With S stages and M microbatches this takes M + S - 1 ticks, of which S - 1 are the
"bubble" in which a stage has nothing to do. `lax.scan` makes the ticks, so that its derivative is
the pipeline run backwards.

The second mesh axis splits each microbatch over replicas of the pipeline. The model is residual,
and learns what a random teacher of its own kind does. Replace the imports by jax's, and the same
losses come from JAX.
"""
from __future__ import annotations

import functools

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, random
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

STAGES, REPLICAS = 4, 2
MICROBATCHES, SIZE, WIDTH = 6, 8, 16
LEARNING_RATE = 0.5

mesh = st.make_mesh((STAGES, REPLICAS), ("stage", "data"), axis_types=(AxisType.Auto,) * 2)
BY_STAGE = {"w": P("stage", None, None), "b": P("stage", None)}
MICROBATCHED = P(None, "data", None)                # microbatch, example, feature


def init(key):
    params = {"w": random.normal(key, (STAGES, WIDTH, WIDTH)) / jnp.sqrt(WIDTH),
              "b": jnp.zeros((STAGES, WIDTH))}
    return {name: st.device_put(p, NamedSharding(mesh, BY_STAGE[name]))
            for name, p in params.items()}


def apply_stage(stage, x):
    return x + jnp.tanh(x @ stage["w"] + stage["b"])


@functools.partial(st.shard_map, mesh=mesh, in_specs=(BY_STAGE, MICROBATCHED),
                   out_specs=MICROBATCHED)
def pipeline(params, x):
    """All stages applied to all microbatches x: (microbatch, example, feature)."""
    stage = st.tree.map(lambda p: p[0], params)
    first = lax.axis_index("stage") == 0
    last = lax.axis_index("stage") == STAGES - 1
    to_the_next = [(i, i + 1) for i in range(STAGES - 1)]

    def tick(carry, t):
        held, done = carry
        fresh = lax.dynamic_index_in_dim(x, jnp.minimum(t, MICROBATCHES - 1), keepdims=False)
        held = apply_stage(stage, jnp.where(first, fresh, held))
        # What the last stage finishes at tick t entered the first one S - 1 ticks ago.
        slot = jnp.maximum(t - (STAGES - 1), 0)
        done = lax.dynamic_update_index_in_dim(done, held, slot, axis=0)
        return (lax.ppermute(held, "stage", to_the_next), done), None

    varying = lax.pcast(jnp.zeros_like(x), "stage", to="varying")
    ticks = jnp.arange(MICROBATCHES + STAGES - 1)
    (_, done), _ = lax.scan(tick, (varying[0], varying), ticks)
    return lax.psum(jnp.where(last, done, 0.0), "stage")


def one_after_the_other(params, x):
    """The network without a pipeline: each stage on all of x."""
    return lax.scan(lambda x, stage: (apply_stage(stage, x), None), x, params)[0]


def loss_fn(params, x, targets):
    return jnp.mean((pipeline(params, x) - targets) ** 2)


@functools.partial(st.jit, donate_argnums=0)
def train_step(params, x, targets):
    loss, grads = st.value_and_grad(loss_fn)(params, x, targets)
    return st.tree.map(lambda p, g: p - LEARNING_RATE * g, params, grads), loss


@functools.partial(st.jit, out_shardings=NamedSharding(mesh, MICROBATCHED))
def make_batch(key, teacher):
    x = random.normal(key, (MICROBATCHES, SIZE, WIDTH))
    return x, one_after_the_other(teacher, x)


def main(steps=10):
    params, teacher = init(random.key(0)), init(random.key(1))
    losses = []
    for step in range(steps):
        x, targets = make_batch(random.fold_in(random.key(2), step), teacher)
        params, loss = train_step(params, x, targets)
        losses.append(float(loss))
        print(f"step {step:3d}  loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
