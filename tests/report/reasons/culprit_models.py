"""More programs with one unwanted collective each: models, training, another mesh."""
from __future__ import annotations

import functools

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding, reshard
from shardtrace.sharding import PartitionSpec as P

from . import culprit_styles
from .culprit_styles import struct as on_mesh

MESH = st.make_mesh((4, 2), ("dp", "tp"), axis_types=(AxisType.Auto,) * 2)
EXPLICIT = st.make_mesh((4, 2), ("dp", "tp"), axis_types=(AxisType.Explicit,) * 2)
CASES: dict = {}


def struct(shape, *spec, mesh=MESH, dtype=np.float32):
    return on_mesh(shape, *spec, mesh=mesh, dtype=dtype)


case = functools.partial(culprit_styles.case, into=CASES)


def constrain(v, *axes, mesh=MESH):
    """A helper as programs have it: nothing to do without a mesh."""
    if mesh is None:
        return v
    sharding = NamedSharding(mesh, P(*axes))
    return lax.with_sharding_constraint(v, sharding)


@case(struct((2048, 512), "dp"))
def full_reduce_then_broadcast(x):
    n = jnp.sqrt(jnp.sum(x * x))  # culprit
    return x / n


@case(struct((64, 64, 64), "dp"))
def transposed_batch(x):
    y = jnp.transpose(x, (1, 0, 2))
    return constrain(y, "dp", None, None) + 1  # culprit


@case(struct((1024, 512), "dp"))
def argsort_cols(x):
    order = jnp.argsort(x, axis=0)  # culprit
    return jnp.take_along_axis(x, order, axis=0)


@case(struct((512, 2048), "dp", "tp"), struct((2048, 512), "tp"), struct((512,)))
def mlp_norm(x, w, g):
    y = x @ w
    y = constrain(y, None, None)  # culprit
    return st.nn.relu(y) * g


@case(struct((512, 512), "dp"), struct((512, 512), None, "tp"))
def value_and_grad_step(x, w):
    def loss(w):
        h = jnp.tanh(x @ w)
        h = constrain(h, "dp", None)  # culprit
        return (h * h).mean()
    v, g = st.value_and_grad(loss)(w)
    return v, w - g


@case(struct((4, 512, 512), None, "dp"), struct((512, 512), None, "tp"))
def remat_scan(xs, w):
    @st.checkpoint
    def f(c, x):
        c = c + jnp.sin(x @ w)
        return constrain(c, "dp", None), None  # culprit
    return lax.scan(f, jnp.zeros((512, 512)), xs)[0]


@case(struct((512, 512), "dp", mesh=EXPLICIT), struct((512, 512), "dp", mesh=EXPLICIT),
      mesh=EXPLICIT)
def explicit_weights(x, w):
    w = reshard(w, P(None, "tp"))  # culprit
    return jnp.tanh(x @ w)


@case(struct((512, 512), "dp", "tp", mesh=EXPLICIT), mesh=EXPLICIT)
def explicit_sum_out(x):
    t = jnp.sum(x, axis=1)  # culprit
    return jnp.sin(x) * t[:, None]


@case(struct((512, 512), "dp", "tp", mesh=EXPLICIT), mesh=EXPLICIT)
def explicit_softmax(x):
    return st.nn.softmax(x, axis=-1)  # culprit


def outer(fn, x):
    return fn(x)


@case(struct((1024, 512), "dp"))
def higher_order(x):
    return outer(lambda v: v - v.mean(axis=0, keepdims=True), x)  # culprit


@case(struct((1024, 512), "dp"), in_shardings=(NamedSharding(MESH, P("dp")),),
      out_shardings=NamedSharding(MESH, P(None, "dp")))
def wrong_out(x):
    y = jnp.log1p(jnp.abs(x))  # culprit
    return y


@case((struct((512, 512), "dp"), struct((512, 512), None, "dp")), struct((512, 512), "dp"))
def tuple_params(ws, x):
    a, b = ws
    return (x * a) + b  # culprit


@case(struct((8, 128, 512), "dp"), struct((8, 128, 512), None, "dp"))
def batched_dot(q, k):
    return jnp.einsum("btd,bsd->bts", q, k)  # culprit


@case(struct((1024, 512), "dp"))
def pad_and_slice(x):
    return jnp.pad(x, ((1, 1), (0, 0)))[2:] - x  # culprit


@case(struct((1024, 512), "dp"))
def while_norm(x):
    def cond(c): return c[0] < 3
    def body(c):
        i, v = c
        return i + 1, v / jnp.max(jnp.abs(v))  # culprit
    return lax.while_loop(cond, body, (0, x))[1]

