"""Programs whose sums and gathers are moved: both executors give what one device gives."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.ir.settings.context import config
from shardtrace.partitioner.collectives import collectives
from shardtrace.runtime.measure import measure
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

SIZES = {"x": 4, "y": 2}
COLUMNS, ROWS, STEPS = (16, 8), (8, 16), (3, 8, 8)


def mesh():
    auto = (st.sharding.AxisType.Auto,) * len(SIZES)
    return st.make_mesh(tuple(SIZES.values()), tuple(SIZES), axis_types=auto)


def numbers(shape, dtype, seed, special=False):
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, shape).astype(dtype)
    if special:
        x.flat[:: max(x.size // 3, 1)] = np.inf
        x.flat[1:: max(x.size // 2, 1)] = np.nan
    return x


def both(f, args, out=P(), *, dtype=np.float32, special=(), executors=("simulated", "per_device")):
    """`f` on arguments (shape, spec) of integers; per executor compared with one device."""
    grid = mesh()
    values = [numbers(a[0], a[2] if len(a) > 2 else dtype, i, i in special)
              for i, a in enumerate(args)]
    want = st.jit(f)(*values)
    placed = [st.device_put(v, NamedSharding(grid, a[1]))
              for v, a in zip(values, args, strict=True)]
    outs = st.tree.map(lambda _: NamedSharding(grid, out), want)
    with st.set_mesh(grid):
        compiled = st.jit(f, out_shardings=outs).lower(*placed).compile()
        for executor in executors:
            with config.override(shardtrace_engine=executor):
                got = st.jit(f, out_shardings=outs)(*placed)
            for a, b in zip(st.tree.leaves(got), st.tree.leaves(want), strict=True):
                a, b = np.asarray(a), np.asarray(b)
                assert a.dtype == b.dtype and a.shape == b.shape
                if a.dtype.kind in "fc":
                    np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-4)
                else:
                    np.testing.assert_array_equal(a, b)
        moved = [m.busiest for m in measure(compiled, *placed)]
    records = collectives(compiled.program)
    uncertain = any(r.conditional for r in records)
    if not uncertain and "while" not in {e.op.name for e in compiled.program.eqns}:
        assert moved == [r.total for r in records]
    return compiled


def reductions(compiled):
    return [r for r in collectives(compiled.program)
            if r.op in ("psum_invariant", "reduce_scatter")]


PRODUCTS = [(COLUMNS, P(None, "x")), (ROWS, P("x"))] * 2
SUMS = {
    "two products": lambda a, b, c, d: a @ b + c @ d,
    "difference, scaled": lambda a, b, c, d: 2 * (a @ b) - (c @ d) / 4,
    "negated and turned": lambda a, b, c, d: -(a @ b).T + (c @ d).T,
    "residual": lambda a, b, c, d: 1.0 + a @ b + c @ d,
    "reduced": lambda a, b, c, d: (a @ b + c @ d).sum(0),
    "one is needed by itself": lambda a, b, c, d: (a @ b + c @ d, jnp.tanh(a @ b)),
    "sliced": lambda a, b, c, d: (a @ b)[2:6, ::3] + (c @ d)[:4, ::3],
    "reshaped": lambda a, b, c, d: (a @ b).reshape(4, 64)[1:] + (c @ d).reshape(4, 64)[:3],
    "squared": lambda a, b, c, d: (a @ b) * (a @ b) + c @ d,
    "product of products": lambda a, b, c, d: (a @ b) @ (c @ d)[:, :2],
    "mean": lambda a, b, c, d: (a @ b).mean() + (c @ d).mean(),
    "selected": lambda a, b, c, d: jnp.where(a[:, :1] > 0, a @ b, c @ d),
    "complex": lambda a, b, c, d: ((a @ b) + 1j * (c @ d)).imag,
    "concatenated": lambda a, b, c, d: jnp.concatenate([a @ b, c @ d]).sum(1),
    "updated": lambda a, b, c, d: lax.dynamic_update_slice(a @ b, (c @ d)[:2], (3, 0)).sum(1),
    "clipped": lambda a, b, c, d: jnp.clip(a @ b + c @ d, -3, 3),
    "cumulated": lambda a, b, c, d: jnp.cumsum(a @ b, 0)[-1],
}


@rows("dtype", [np.float32, np.int32])
@rows("name", list(SUMS))
def test_sums_of_products(name, dtype):
    if dtype is np.int32 and name in ("complex", "mean", "difference, scaled"):
        pytest.skip("inexact by nature")
    for out in (P(), P("x")) if name in ("two products", "residual", "squared") else (P(),):
        both(SUMS[name], PRODUCTS, out, dtype=dtype)


def test_products_that_wrap_around_and_narrow_are_exact():
    both(lambda a, b, c, d: (a @ b * 9 + c @ d).astype(jnp.int8), PRODUCTS, dtype=np.int8)
    both(lambda a, b, c, d: (a @ b * 99).astype(jnp.int32) + (c @ d).astype(jnp.int32), PRODUCTS,
         dtype=np.int8)


@pytest.mark.parametrize("dtype, fill", [(np.float32, None), (np.float32, 7), (np.int32, None),
                                         (np.int32, 0), (np.int32, 5)])
def test_rows_that_are_not_there(dtype, fill):
    rows = np.array([0, 3, 40, -1], np.int32)
    both(lambda a, b: jnp.take(a @ b, rows, 0, mode="fill", fill_value=fill), PRODUCTS[:2],
         dtype=dtype)
    both(lambda a, b: jnp.take(a @ b, rows, 0, mode="clip").sum(0), PRODUCTS[:2], dtype=dtype)


def test_masks_that_are_or_ed_together():
    both(lambda a, b: ((a > 3).any(1), (a @ b > 5).any(0) | (b > 3).all(0)), PRODUCTS[:2])


def test_infinities_and_numbers_that_are_none_stay_where_they_are():
    both(lambda a, b, c: jnp.maximum(a @ b, 0) + c, [*PRODUCTS[:2], ((16, 16), P())],
         special=(2,))
    both(lambda a, b, c: a @ b + c, [*PRODUCTS[:2], ((16, 16), P())], special=(2,))
    both(lambda a, b, c: (a @ b) / c, [*PRODUCTS[:2], ((16, 16), P())], special=(2,))
    both(lambda a, b, c: jnp.where(c > 0, (a @ b) / c, 0.).sum(), [*PRODUCTS[:2], ((16, 16), P())])


def test_gathered_values_are_cut_and_rounded_before():
    def whole(x):
        on_one = st.sharding.get_abstract_mesh().empty
        return x if on_one else lax.with_sharding_constraint(x, P())
    both(lambda a: whole(whole(a).astype(jnp.bfloat16)).astype(jnp.float32), [(ROWS, P("x"))])
    both(lambda a: whole(a)[:, :2] * 3, [(ROWS, P("x"))])
    both(lambda a, b: whole(a) + whole(b).T, [(ROWS, P("x")), (COLUMNS, P(None, "x"))])


# -- loops -----------------------------------------------------------------------------------------

def gradient(w, x):
    return st.grad(lambda w: jnp.tanh(x @ w).sum())(w)


def microbatches(w, xs):
    return lax.scan(lambda t, x: (t + gradient(w, x), None), jnp.zeros_like(w), xs)[0]


def with_losses(w, xs):
    def body(carry, x):
        loss, g = st.value_and_grad(lambda w: jnp.tanh(x @ w).mean())(w)
        return {"loss": carry["loss"] + loss, "g": carry["g"] + 0.5 * g}, loss
    done, losses = lax.scan(body, {"loss": 0., "g": jnp.zeros_like(w)}, xs)
    return done, losses, losses.mean()


def decayed(w, xs):
    return lax.scan(lambda t, x: (0.5 * t + gradient(w, x), None), w, xs)[0]


def normed(w, xs):
    """The running total is looked at in every iteration."""
    def body(t, x):
        t = t + gradient(w, x)
        return t, jnp.abs(t).max()
    return lax.scan(body, jnp.zeros_like(w), xs)


def nested(w, xs):
    return lax.scan(lambda t, _: (microbatches(w, xs) + t, None), jnp.ones_like(w), None,
                    length=2)[0]


def backwards(w, xs):
    return lax.scan(lambda t, x: (t + gradient(w, x), t.sum()), jnp.zeros_like(w), xs,
                    reverse=True)


def counted(w, xs):
    return lax.fori_loop(0, 3, lambda i, t: t + gradient(w, xs[i]), jnp.zeros_like(w))


def until_large(w, xs):
    """The test reads what is accumulated."""
    def going(state):
        return (state[0] < 20) & (jnp.abs(state[1]).sum() < 500.)
    return lax.while_loop(going, lambda s: (s[0] + 1, s[1] + gradient(w, xs[0])),
                          (0, jnp.zeros_like(w)))


def sometimes(w, xs):
    def body(t, x):
        return lax.cond(x[0, 0] > 0, lambda: t + gradient(w, x), lambda: t), None
    return lax.scan(body, jnp.zeros_like(w), xs)[0]


def trained(w, xs):
    return lax.scan(lambda w, x: (w - 0.1 * gradient(w, x), None), w, xs)[0]


def through(w, xs):
    return gradient(w, xs[0]) + st.grad(
        lambda w: lax.scan(lambda c, x: (c + jnp.sin(x @ w).sum(), None), 0., xs)[0])(w)


def swapped(w, xs):
    """Two carried values change places."""
    def body(carry, x):
        a, b = carry
        return (b + gradient(w, x), a), None
    return lax.scan(body, (jnp.zeros_like(w), jnp.ones_like(w)), xs)[0]


def collected(w, xs):
    """A pipeline's output, written into a buffer at each tick."""
    def tick(carry, i):
        buffer, out = carry
        buffer = jnp.tanh(jnp.roll(buffer, 1, 0).at[0].set(xs[i % 3, 0]) + w)
        return (buffer, out.at[i].set(buffer[-1])), None
    return lax.scan(tick, (jnp.zeros_like(w), jnp.zeros((5, 8))), jnp.arange(5))[0][1]


LOOPS = [microbatches, with_losses, decayed, normed, nested, backwards, counted, until_large,
         sometimes, trained, through, swapped, collected]


@rows("weight", [P(), P("x"), P(None, "y")])
@rows("loop", LOOPS)
def test_sums_in_loops(loop, weight):
    both(loop, [((8, 8), weight), (STEPS, P(None, "x"))])


def test_an_integer_total_is_exact():
    def count(xs):
        return lax.scan(lambda t, x: (t + (x > 0).sum(0, dtype=jnp.int32), None),
                        jnp.zeros(8, jnp.int32), xs)[0]
    assert sum(r.count for r in reductions(both(count, [(STEPS, P(None, "x"))]))) == 1


@pytest.mark.parametrize("out", [P(), P("x")])
def test_layers_from_any_layout_to_any(out):
    for start in (P(), P("x"), P(None, "x")):
        for weights in (P(None, None, "x"), P(None, "x")):
            both(lambda x, ws: lax.scan(lambda c, w: (jnp.tanh(c @ w), c.sum()), x, ws),
                 [((8, 8), start), (STEPS, weights)], P())
            both(lambda x, ws: lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, ws)[0],
                 [((8, 8), start), (STEPS, weights)], out)


def test_a_weight_that_a_loop_does_not_change_is_gathered_once():
    # Steps that make differences smaller: blocks may be rounded otherwise than the whole.
    for loop in (lambda x, w: lax.scan(lambda c, _: (jnp.tanh(c @ w.T / 64), None), x, None, 9)[0],
                 lambda x, w: lax.fori_loop(0, 9, lambda i, c: jnp.tanh(c @ w.T / 64), x),
                 lambda x, w: lax.scan(lambda c, _: (lax.scan(
                     lambda c, _: (jnp.sin(c @ w / 64), None), c, None, length=3)[0], None), x,
                     None, length=3)[0]):
        compiled = both(loop, [((32, 8), P("x")), ((8, 8), P("x"))], P("x"))
        assert [(r.op, r.count) for r in collectives(compiled.program)] == [
            ("all_gather_invariant", 1)]


def test_sums_of_branches_of_which_some_are_weak_are_finished_after_them():
    """Each branch keeps its own weakness, and the result that of the first."""
    def more(v):
        return v + jnp.sum(v).astype(v.dtype)

    x = st.jit(lambda: 1.0)() * np.ones((4, 5), np.int8)
    y = np.ones((4, 5), np.float32)
    with (st.set_mesh(st.make_mesh((2,), ("x",))),
          config.override(shardtrace_objective="time")):
        x = st.device_put(x, P("x"))
        found = st.jit(lambda v, y: lax.switch(jnp.argmax(y) % 3, [lambda v: v, more, more], v))(
            x, y)
    assert x.weak_type and found.weak_type
    np.testing.assert_array_equal(found, np.ones((4, 5)))


@pytest.mark.parametrize("size", [1, 2])
def test_blocks_of_a_weak_value_that_become_terms_of_a_sum_are_weak(size):
    x = st.jit(lambda: 1.0)() * np.arange(64, dtype=np.int8).reshape(2, 8, 4)
    with (st.set_mesh(st.make_mesh((size,), ("x",))),
          config.override(shardtrace_objective="time")):
        found = st.jit(lambda v: lax.associative_scan(jnp.add, v))(st.device_put(x, P("x")))
    np.testing.assert_array_equal(found, np.cumsum(np.asarray(x), 0))
