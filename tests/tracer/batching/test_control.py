"""vmap of loops, branches, derivatives, and of collectives over the mapped axis."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows
from .examplewise import agree, ints, loop, same

X, Y, V = ints(3, 4), ints(3, 4), ints(4)


@pytest.fixture
def explicit():
    with st.set_mesh(st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)):
        yield


# -- collectives over a mapped axis ----------------------------------------------------------------

def named(f, **kwargs):
    return st.vmap(f, axis_name="i", **kwargs)


def test_reductions_over_a_mapped_axis_are_reductions_of_the_array():
    same(named(lambda a: lax.psum(a, "i"))(X), np.tile(X.sum(0), (3, 1)))
    same(named(lambda a: lax.pmean(a, "i"), out_axes=None)(X), X.mean(0))
    same(named(lambda a: a - lax.pmax(a, "i"))(X), X - X.max(0))
    same(named(lambda a: lax.pmin(a, "i"), out_axes=None)(X), X.min(0))
    same(named(lambda a: lax.psum(jnp.ones(2), "i"), out_axes=None)(X), [3, 3])
    assert named(lambda a: lax.psum(1, "i"), out_axes=None)(X) == 3
    assert named(lambda a: lax.axis_size("i"), out_axes=None)(X) == 3
    same(named(lambda a: lax.axis_index("i") * jnp.ones(2))(X), [[0, 0], [1, 1], [2, 2]])
    counted = named(lambda a: lax.psum(a > 0, "i"), out_axes=None)(X)
    assert counted.dtype == np.int32
    same(counted, (X > 0).sum(0))


def test_exchanges_over_a_mapped_axis_are_indexing():
    m = ints(3, 2, 6)
    same(named(lambda a: lax.all_gather(a, "i"), out_axes=None)(X), X)
    same(named(lambda a: lax.all_gather(a, "i", axis=1), out_axes=None)(X), X.T)
    same(named(lambda a: lax.all_gather(a, "i", tiled=True), out_axes=None)(X), X.ravel())
    same(named(lambda a: lax.all_gather(V, "i"), out_axes=None)(X), np.tile(V, (3, 1)))
    same(named(lambda a: lax.ppermute(a, "i", [(0, 1), (1, 2), (2, 0)]))(X), X[[2, 0, 1]])
    same(named(lambda a: lax.pshuffle(a, "i", [1, 2, 0]))(X), X[[1, 2, 0]])
    same(named(lambda a: lax.psum_scatter(a, "i", scatter_dimension=1, tiled=True))(m),
         m.sum(0).reshape(2, 3, 2).transpose(1, 0, 2))
    square = ints(3, 3)
    same(named(lambda a: lax.psum_scatter(a, "i"))(square), square.sum(0))
    same(named(lambda a: lax.all_to_all(a, "i", 0, 0))(square), square.T)
    same(named(lambda a: lax.all_to_all(a, "i", 1, 0, tiled=True))(m),
         m.reshape(3, 2, 3, 2).transpose(2, 0, 1, 3).reshape(3, 6, 2))


def test_a_collective_inside_a_call_and_over_two_mapped_axes():
    centre = st.jit(lambda a: a - lax.pmean(a, "i"))
    same(named(centre)(X), X - X.mean(0))
    more = ints(5, 4)
    same(named(centre)(more), more - more.mean(0))          # another size: another trace
    m = ints(2, 3, 4)

    def both(f, out_axes=0):
        return st.vmap(named(f, out_axes=out_axes), axis_name="j", out_axes=out_axes)(m)

    same(both(lambda a: lax.psum(a, ("i", "j")), None), m.sum((0, 1)))
    same(both(lambda a: lax.axis_index(("i", "j"))), np.arange(6).reshape(3, 2).T)
    same(both(lambda a: lax.all_gather(a, ("j", "i")), None), m.reshape(6, 4))
    same(st.vmap(named(lambda a: lax.psum(a, "i")), axis_name="i")(m),
         np.broadcast_to(m.sum(1, keepdims=True), m.shape))     # the inner axis has the name


# -- control flow, derivatives ---------------------------------------------------------------------

LOOPS = {
    "scan": lambda a: lax.scan(lambda c, t: (c + t, c * t), 0.0, a),
    "carry becomes mapped": lambda a: lax.scan(lambda c, t: (c + t * a.sum(), (c, jnp.ones(2))),
                                               jnp.zeros(4), jnp.arange(8.0).reshape(2, 4)),
    "while, mapped test": lambda a: lax.while_loop(
        lambda c: c[0].sum() < 20, lambda c: (c[0] + jnp.abs(a) + 1, c[1] + 1), (a, 0)),
    "while": lambda a: lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] + a, c[1] + 1),
                                      (jnp.zeros(4), 0)),
    "fori": lambda a: lax.fori_loop(0, 3, lambda i, c: c.at[i].set(a[i]), jnp.zeros(4)),
    "cond, mapped": lambda a: lax.cond(a.sum() > 0, lambda q: q * 2, lambda q: -q, a),
    "cond": lambda a: lax.cond(jnp.array(True), lambda q: (q, 1.0), lambda q: (jnp.ones(4), q[0]),
                               a),
    "switch": lambda a: lax.switch(a[0].astype(int), [lambda q: q, lambda q: q * 2,
                                                      lambda q: q * 3.0], a),
    "map": lambda a: lax.map(lambda t: t * 2, a),
    "associative scan": lambda a: lax.associative_scan(jnp.add, a),
}


@pytest.mark.parametrize("name", LOOPS)
def test_control_flow_is_mapped(name, explicit):
    f = LOOPS[name]
    agree(st.vmap(f)(X), loop(f, 0, X))
    agree(st.jit(st.vmap(f))(X), loop(f, 0, X))
    x = ints(4, 4)
    split = st.vmap(f)(st.device_put(x, P("x", None)))
    agree(split, loop(f, 0, x))


def test_a_trip_count_or_a_branch_for_each_index():
    counts = np.array([1, 4, 0], np.int32)

    def repeat(a, k):
        return lax.fori_loop(0, k, lambda i, c: c * 2 + i, a)

    agree(st.vmap(repeat)(X, counts), loop(repeat, 0, X, counts))
    agree(st.vmap(repeat, (None, 0))(V, counts), loop(repeat, (None, 0), V, counts))

    def branch(a, k):
        return lax.switch(k, [lambda q: (q, 1.0), lambda q: (V, q[0]), lambda q: (q * 3.0, 2.0)], a)

    agree(st.vmap(branch)(X, counts), loop(branch, 0, X, counts))
    agree(st.vmap(branch, (0, None))(X, 1), loop(branch, (0, None), X, 1))


def test_derivatives_and_vmap_in_each_other():
    def h(a):
        return (jnp.sin(a) ** 2).sum()

    wanted = 2 * np.sin(X) * np.cos(X)
    same(st.vmap(st.grad(h))(X), wanted)
    same(st.grad(lambda q: st.vmap(h)(q).sum())(X), wanted)
    same(st.jit(st.vmap(st.grad(st.checkpoint(h))))(X), wanted)
    same(st.grad(lambda q: st.vmap(st.checkpoint(h))(q).sum())(X), wanted)
    w = ints(2, 4)
    same(st.grad(lambda w: st.vmap(lambda a: (w @ a).sum())(X).sum())(w), np.tile(X.sum(0), (2, 1)))
    branch = st.vmap(lambda a, k: st.grad(lambda z: (z ** 2).sum() if k > 1 else z.sum())(a),
                     (0, None))
    same(branch(X, 2), 2 * X)


def test_rules_of_custom_derivatives_see_one_example():
    @st.custom_jvp
    def scaled(a, b):
        return a * b

    @scaled.defjvp
    def _(primals, tangents):
        (a, b), (da, db) = primals, tangents
        assert a.shape == b.shape == (4,)
        return a * b, 7.0 * da * b + db * a

    def product(f, q, r, axes=0):
        return st.vmap(f, axes)(q, r).sum()

    same(st.vmap(scaled, (0, None))(X, V), X * V)
    same(st.grad(lambda q: product(scaled, q, Y))(X), 7 * Y)
    same(st.grad(lambda v: product(scaled, X, v, (0, None)))(V), X.sum(0))

    @st.custom_vjp
    def total(a, b):
        return a * b.sum()

    def backward(residuals, ct):
        a, b = residuals
        assert a.shape == b.shape == ct.shape == (4,)
        return ct * b.sum() * 5, jnp.ones(4) * (ct * a).sum() * 3

    total.defvjp(lambda a, b: (a * b.sum(), (a, b)), backward)
    rows = Y.sum(1, keepdims=True)
    same(st.grad(lambda q: product(total, q, Y))(X), 5 * rows * np.ones_like(X))
    same(st.grad(lambda v: product(total, X, v, (0, None)))(V), np.full(4, 3 * X.sum()))
    same(st.jit(st.grad(lambda v: product(total, v, Y, (None, 0))))(V), np.full(4, 5 * rows.sum()))


@rows("where", ["vmap", "mixed"])
@rows("tiled", [False, True])
@rows("split, concat", [(0, 0), (0, 1), (1, 0), (1, 2), (2, 0), (2, 1)])
def test_all_to_all_over_several_axes_of_which_some_are_mapped(where, tiled, split, concat) -> None:
    """As over one axis of their product for size."""
    x = np.arange(8 * 512.0, dtype=np.float32).reshape(8, 8, 8, 8)
    concat = concat if tiled else min(concat, 2)
    exchanged = lambda axes: lambda v: lax.all_to_all(v, axes, split, concat, tiled=tiled)  # noqa: E731
    wanted = st.vmap(exchanged("k"), axis_name="k")(x)
    parts = x.reshape(2, 4, 8, 8, 8)
    if where == "vmap":
        both = st.vmap(st.vmap(exchanged(("i", "j")), axis_name="j"), axis_name="i")
        found = both(parts).reshape(wanted.shape)
        other = st.vmap(st.vmap(exchanged(("j", "i")), axis_name="j"), axis_name="i")(
            np.swapaxes(x.reshape(4, 2, 8, 8, 8), 0, 1))
        np.testing.assert_array_equal(np.swapaxes(other, 0, 1).reshape(wanted.shape), wanted)
    else:
        mesh = st.make_mesh((2,), ("i",), devices=st.devices()[:2])
        both = st.shard_map(lambda v: st.vmap(exchanged(("i", "j")), axis_name="j")(v[0])[None],
                            mesh=mesh, in_specs=P("i"), out_specs=P("i"))
        found = both(parts).reshape(wanted.shape)
    np.testing.assert_array_equal(found, wanted)
