"""Random loops whose devices pass on what they made: both executors agree."""
from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.ir.settings.context import config
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

STAGES = {
    "tanh": lambda w, x: jnp.tanh(x @ w), "affine": lambda w, x: x @ w + 0.5,
    "sums": lambda w, x: jnp.tanh(x @ w) + x.sum(-1, keepdims=True) * 0.1,
    "largest": lambda w, x: jnp.maximum(x @ w, x),
}
FIRST = {
    "where": lambda first, x, y: jnp.where(first, x, y),
    "masks": lambda first, x, y: x * first.astype(x.dtype) + y * (~first).astype(x.dtype),
    "select": lambda first, x, y: lax.select(
        jnp.broadcast_to(first, x.shape), lax.pcast(x, "s", to="varying"), y),
}
DONE = {
    "after": lambda last, k, m: last & (k >= 0), "within": lambda last, k, m: last & (k >= 0) & (
        k < m), "last": lambda last, k, m: last, "anywhere": lambda last, k, m: k >= 0,
}
LOOPS = ("fori", "scan", "stacked")


def pipeline(n, *, loop, shift, cyclic, more, late, stage, first, done, branches, adds, reduces):
    """Each device applies a stage to what the one before it sent; results are those of the last."""
    begins, ends = (0, n - 1) if shift > 0 else (n - 1, 0)
    ring = [(i, (i + shift) % n) for i in range(n) if cyclic or 0 <= i + shift < n]

    def f(ws, xs):
        w, me, m = ws[0], lax.axis_index("s"), xs.shape[0]
        start = [lax.pcast(x, "s", to="varying") for x in (
            jnp.zeros_like(xs[0]), jnp.zeros_like(xs), jnp.zeros((), xs.dtype))]

        def tick(t, state, out, total):
            y = STAGES[stage](w, FIRST[first](me == begins, xs[jnp.clip(t, 0, m - 1)], state))
            k = t - (n - 1) + late
            now = DONE[done](me == ends, k, m)

            def write(out):
                return lax.dynamic_update_index_in_dim(out, y, jnp.clip(k, 0, m - 1), 0)
            out = lax.cond(now, write, lambda out: out, out) if branches else jnp.where(
                now, write(out), out)
            if adds:
                total = total + jnp.where(now, y.sum(), 0.)
            return lax.ppermute(y, "s", ring), out, total

        times, ys = max(1, m + n - 1 + more), None
        if loop == "fori":
            _, out, total = lax.fori_loop(0, times, lambda t, c: tick(t, *c), tuple(start))
        else:
            (_, out, total), ys = lax.scan(
                lambda c, t: (tick(t, *c), c[0] if loop == "stacked" else None), tuple(start),
                jnp.arange(times))
        found = [out[None], total[None]]
        if reduces:
            found.append(lax.psum(jnp.where(me == ends, out, 0), "s"))
        if loop == "stacked":
            found.append(lax.psum(jnp.where(me == ends, ys, 0), "s"))
        return found

    return f, [P("s"), P("s"), *[P()] * (reduces + (loop == "stacked"))]


@settings(max_examples=25, deadline=None)
@given(draw.data())
def test_both_executors_agree(data):
    one_of = lambda *values: data.draw(draw.sampled_from(values))   # noqa: E731
    n, two = one_of(2, 4), data.draw(draw.booleans())
    mesh = st.make_mesh((n, 2) if two else (n,), ("s", "d") if two else ("s",),
                        axis_types=(AxisType.Auto,) * (2 if two else 1))
    f, out = pipeline(
        n, loop=one_of(*LOOPS), shift=one_of(1, 1, -1, 2), cyclic=one_of(True, False),
        more=one_of(0, 0, 1, -1, 2), late=one_of(0, 0, 1, -1), stage=one_of(*STAGES),
        first=one_of(*FIRST), done=one_of(*DONE), branches=one_of(False, False, True),
        adds=one_of(False, True), reduces=one_of(False, True))
    rng = np.random.default_rng(data.draw(draw.integers(0, 100)))
    m, b, d = one_of(1, 2, 3, 5), one_of(1, 2, 4), one_of(2, 3)
    ws = (rng.normal(size=(n, d, d)) / d).astype(np.float32)
    xs = rng.normal(size=(m, b, d)).astype(np.float32)
    g = mapped = st.shard_map(f, mesh=mesh, in_specs=(P("s"), P()), out_specs=out)
    if one_of(False, False, True):
        g = st.grad(lambda ws, xs: sum((v * v).sum() for v in mapped(ws, xs)), argnums=(0, 1))
    placed = [st.device_put(x, NamedSharding(mesh, s)) for x, s in ((ws, P("s")), (xs, P()))]
    want = None
    for executor, times in (("per_device", 1), ("simulated", 3)):
        with config.override(shardtrace_engine=executor):
            run = st.jit(g)
            for _ in range(times):
                got = [np.asarray(x) for x in st.tree.leaves(run(*placed))]
        want = want or got
        for x, y in zip(want, got, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-4)
