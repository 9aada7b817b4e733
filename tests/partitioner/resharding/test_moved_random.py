"""Random programs: reshards that are moved take no more bytes, and change no value."""
from __future__ import annotations

import random

import numpy as np

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.ir.settings.context import config
from shardtrace.ir.verify import verify
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.resharding.move_reshards import move_reshards, traffic
from shardtrace.partitioner.resharding.reshards import insert_reshards
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

SPECS = [P(), P("x"), P(None, "x"), P("y", "x"), P("x", "y"), P(("x", "y")), P(None, "y"), P("y")]


def constrained(a, spec):
    on_one = st.sharding.get_abstract_mesh().empty
    return a if on_one else lax.with_sharding_constraint(a, spec)


def accumulated(a, b, c):
    def step(t, _):
        return t + jnp.sin(t[0, 0] * c / 64) @ b * 0.5, None        # small: errors do not grow
    return lax.scan(step, a, None, length=3)[0]


def invariant(a, b, c):
    return lax.scan(lambda t, _: (t + jnp.sin(c) @ b * 0.5, None), a, None, length=3)[0]


def two_carries(a, b, c):
    def body(carry, _):
        u = jnp.tanh(carry[0] @ c)
        return (u, carry[1] + u.T @ b), u.sum()
    (u, w), sums = lax.scan(body, (a, b), None, length=2)
    return w + u + sums.sum()


def branches(a, b, c):
    return lax.cond(a.sum() > 0, lambda: a @ c + b, lambda: b @ c)


OPERATIONS = [
    lambda a, b, c, spec: a @ b, lambda a, b, c, spec: a @ b + c, lambda a, b, c, spec: a + b,
    lambda a, b, c, spec: a - b.T, lambda a, b, c, spec: a * 3, lambda a, b, c, spec: jnp.tanh(a),
    lambda a, b, c, spec: constrained(a, spec), lambda a, b, c, spec: constrained(a, spec) + b,
    lambda a, b, c, spec: a * b, lambda a, b, c, spec: jnp.broadcast_to(a.sum(0), (8, 8)),
    lambda a, b, c, spec: jnp.where(b[:1] > 0, a, c),
    lambda a, b, c, spec: jnp.concatenate([a[:4], b[4:]]),
    lambda a, b, c, spec: (a.reshape(4, 16) + b.reshape(4, 16)).reshape(8, 8),
    lambda a, b, c, spec: accumulated(a, b, c), lambda a, b, c, spec: invariant(a, b, c),
    lambda a, b, c, spec: two_carries(a, b, c), lambda a, b, c, spec: branches(a, b, c),
]


def drawn(seed):
    """(function of three matrices with three results, specs of arguments, specs of results)"""
    draw = random.Random(seed)
    steps = [(draw.choice(OPERATIONS), draw.random(), draw.choice(SPECS), draw.random(),
              draw.random(), draw.random()) for _ in range(draw.randint(4, 12))]

    def f(*args):
        pool = list(args)
        for operation, bound, spec, *places in steps:
            v = operation(*(pool[int(x * len(pool))] for x in places), spec)
            pool.append(jnp.clip(v, -9, 9) if bound < .3 else
                        v / (1 + jnp.abs(v).max()) if bound < .6 else v)
        return pool[-1], pool[-2], pool[-3]
    return f, [draw.choice(SPECS) for _ in range(3)], [draw.choice(SPECS) for _ in range(3)]


@rows("seed", range(40))
def test_moved_sums_keep_values_and_never_add_traffic(seed):
    f, specs, outs = drawn(seed)
    mesh = st.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    rng = np.random.default_rng(seed)
    values = [rng.integers(-2, 3, (8, 8)).astype(np.float32) for _ in specs]
    want = st.jit(f)(*values)
    placed = [st.device_put(v, NamedSharding(mesh, s)) for v, s in zip(values, specs, strict=True)]
    shardings = tuple(NamedSharding(mesh, s) for s in outs)
    with st.set_mesh(mesh):
        for executor in ("simulated", "per_device"):
            with config.override(shardtrace_engine=executor):
                got = st.jit(f, out_shardings=shardings)(*placed)
            for a, b in zip(got, want, strict=True):
                scale = max(1.0, float(np.abs(b).max()))
                np.testing.assert_allclose(np.asarray(a) / scale, np.asarray(b) / scale, atol=1e-3)
        compiled = st.jit(f, out_shardings=shardings).lower(*placed).compile()
    for objective in ("time", "bytes"):
        prices = Objective.of(objective).prices(compiled.stages["resolved"].mesh)
        before = insert_reshards(compiled.stages["resolved"], prices)
        after = move_reshards(before, prices)
        verify(after)
        assert traffic(after, prices) <= traffic(before, prices)
