"""What a loop's body writes in place: results of iterations, buffers and sums that are carried."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.runtime.calls.call import Call
from shardtrace.runtime.calls.symbolic import Kernel
from shardtrace.runtime.plans.in_place import over_operands
from shardtrace.runtime.plans.passes import ordered
from shardtrace.runtime.rewrites import peepholes

F32 = np.dtype(np.float32)
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def call(function, inputs, output, shape=(3, 4), kernel=True):
    made = Kernel(function, [shape] * (len(inputs) + 1), [F32] * (len(inputs) + 1))
    return Call(function, tuple(inputs), (output,), False, None, made if kernel else None)


def test_only_what_nobody_else_reads_is_written_over():
    def over(*calls, outputs=(9,), writable=None):
        made, used = over_operands(calls, outputs, writable or {})
        return [m is not c for m, c in zip(made, calls, strict=True)], used

    add = call(np.add, [0, 1], 9)
    assert over(add, writable={0: 9}) == ([True], [0])
    assert over(add) == ([False], [])                                   # an argument of others
    assert over(add, writable={0: 8}) == ([False], [])                     # not what is carried on
    assert over(add, outputs=(9, 0), writable={0: 9}) == ([False], [])     # read at the end
    assert over(add, outputs=(9, 9), writable={0: 9}) == ([False], [])     # given twice
    assert over(add, call(np.tanh, [0], 8), writable={0: 9}) == ([False, True], [0])   # last
    view = call(lambda x: x.transpose(1, 0), [9], 8, (4, 3))
    assert over(add, view, outputs=(9, 8), writable={0: 9}) == ([False, False], [])
    assert over(add, view, writable={0: 9}) == ([True, False], [0])        # but not here
    assert over(call(np.add, [0, 0], 9), writable={0: 9}) == ([True], [0])
    assert over(call(np.maximum, [0, 1], 9), writable={0: 9}) == ([True], [0])
    assert over(call(np.tanh, [0], 1), call(np.add, [1, 2], 3), outputs=(3,)) == ([False] * 2, [])

    def update(x, y):
        return x + y
    update.over = lambda x, y: np.add(x, y, out=x)
    fresh = call(np.tanh, [0], 1)
    assert over(fresh, call(update, [1, 0], 9))[0] == [False, True]
    assert over(call(update, [0, 1], 9))[0] == [False]
    assert over(fresh, call(update, [1, 1], 9))[0] == [False, False]
    assert over(fresh, call(update, [1, 0], 9), call(np.tanh, [1], 8))[0] == [False] * 3


def test_a_product_is_computed_in_the_order_that_is_wanted():
    n, traced = 8, st.jit(lambda x, y: jnp.einsum("ki,kj->ij", x, y).T)
    x, y = np.random.default_rng(0).normal(size=(2, n, n)).astype(np.float32)
    np.testing.assert_allclose(traced(x, y), (x.T @ y).T, rtol=1e-5)

    def product(a, b):
        return a.T @ b
    product.permuted = lambda order: (lambda a, b: b.T @ a)
    flip = call(lambda x: x.transpose(1, 0), [2], 3, (n, n))
    calls = [call(product, [0, 1], 2, (n, n)), flip]
    (one,) = ordered(calls, [3])
    assert one.inputs == (0, 1) and one.outputs == (3,)
    np.testing.assert_allclose(one.function(x, y), y.T @ x)
    assert len(ordered(calls, [2, 3])) == 2

    def fixed(a, b):
        return a.T @ b
    fixed.permuted = lambda order: None
    assert len(ordered([call(fixed, [0, 1], 2, (n, n)), flip], [3])) == 2


@pytest.mark.parametrize("reverse", [False, True])
def test_results_of_iterations_and_what_is_carried(reverse):
    """Values that are carried, given, or both; the arguments stay as they were."""
    rng = np.random.default_rng(1)
    xs, w = (rng.normal(size=s).astype(np.float32) for s in ((5, 3, 4), (4, 4)))

    def body(carry, x):
        h, total, last, buffer, i = carry
        h = jnp.tanh(h @ w + x)
        total = total + h * h
        buffer = lax.dynamic_update_slice(buffer, h[:1], (i, 0))
        return (h, total, last + x, buffer, i + 1), (h, last, x @ w, buffer[0], total * 2)

    def expected():
        h, total, last, buffer = X * 0, X.copy(), X.copy(), np.zeros((5, 4), np.float32)
        ys = []
        for i, x in enumerate(xs[::-1] if reverse else xs):
            before, h = last, np.tanh(h @ w + x)
            total, last = total + h * h, last + x
            buffer[i] = h[0]
            ys.append((h, before, x @ w, buffer[0].copy(), total * 2))
        stacked = [np.stack(y) for y in zip(*ys[::-1] if reverse else ys, strict=True)]
        return [h, total, last, buffer, np.int32(5), *stacked]

    x = X.copy()
    f = st.jit(lambda x, xs: lax.scan(
        body, (x * 0, x, x, jnp.zeros((5, 4), np.float32), 0), xs, reverse=reverse))
    for _ in range(5):                      # the plan is followed first, then written out
        carry, ys = f(x, xs)
        for got, want in zip((*carry, *ys), expected(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(x, X)


def test_a_buffer_of_a_while_loop_is_copied_once():
    def f(x, n):
        def body(carry):
            i, buffer = carry
            return i + 1, lax.dynamic_update_slice(buffer, buffer[0, :1][None] * 0 + i * 1., (i, 1))
        return lax.while_loop(lambda c: c[0] < n, body, (0, x))[1]

    def g(x, n):
        def body(carry):
            i, buffer = carry
            row = jnp.full((1, 2), 1., np.float32) * i
            return i + 1, lax.dynamic_update_slice(buffer, row, (i, 1))
        return lax.while_loop(lambda c: c[0] < n, body, (0, x))[1]

    for n in (0, 1, 3):
        want = X.copy()
        want[:n, 1] = np.arange(n)
        np.testing.assert_array_equal(st.jit(f)(X, n), want)
        want[:n, 2] = np.arange(n)
        np.testing.assert_array_equal(st.jit(g)(X, n), want)
    assert X[1, 1] == 5


@pytest.mark.parametrize("change", [
    lambda x, i, v: x.at[i].set(v), lambda x, i, v: x.at[i].add(v),
    lambda x, i, v: x.at[jnp.array([0, 2, 0]) + i].add(jnp.stack([v, v, x[0]])),
    lambda x, i, v: x.at[i].add(x[i]), lambda x, i, v: x.at[:, 1].set(x[:, 0])])
def test_a_buffer_that_a_loop_scatters_into(change):
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    v = np.ones(4, np.float32)
    one = st.jit(change)
    f = st.jit(lambda x: lax.fori_loop(0, 3, lambda i, x: change(x, i, v * (i + 1)), x))
    g = st.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: (change(c[0], i, v * (i + 1)),
                                                           c[0].sum() + c[1]), (x, 0.)))
    want, total = x, 0.
    for i in range(3):
        total += want.sum()
        want = np.asarray(one(want, i, v * (i + 1)))
    for _ in range(4):
        np.testing.assert_array_equal(f(x), want)
        np.testing.assert_array_equal(g(x)[0], want)
        assert g(x)[1] == total
    np.testing.assert_array_equal(x, np.arange(24).reshape(6, 4))


def test_large_groups_write_rows_of_a_scan():
    xs = np.random.default_rng(2).normal(size=(3, 256, 256)).astype(np.float32)

    def body(carry, x):
        y = jnp.exp(-x * x)
        z = y / y.sum(-1, keepdims=True)
        return carry + z.sum(), (y, z, jnp.exp(-x.T * x.T) * 2)

    total, (y, z, t) = st.jit(lambda xs: lax.scan(body, np.float32(0), xs))(xs)
    want = np.exp(-xs * xs)
    np.testing.assert_allclose(y, want, rtol=1e-5)
    np.testing.assert_allclose(z, want / want.sum(-1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(t, want.transpose(0, 2, 1) * 2, rtol=1e-5)
    np.testing.assert_allclose(total, 3 * 256, rtol=1e-4)


def test_what_has_been_read_before_is_written_over():
    def change(x, y):
        return x + y
    change.over = lambda x, y: np.add(x, y, out=x)
    look, negative, put = (call(lambda x: x[:1], [0], 2, kernel=False),
                           call(np.negative, [2], 3), call(change, [0, 3], 4))
    assert over_operands([look, negative, put], [4], {0: 4})[1] == [0]
    assert over_operands([look, negative, put], [4, 3], {0: 4})[1] == [0]
    assert over_operands([look, negative, put], [4, 2], {0: 4})[1] == []      # a view of it stays
    put = call(change, [0, 1], 4)
    assert over_operands([put, look, negative], [4, 3], {0: 4})[1] == []      # it is read after


@pytest.mark.parametrize("after", [False, True])
def test_buffers_that_products_read(after):
    """A product that is written into a row of the results reads a buffer that is changed."""
    rng = np.random.default_rng(2)
    cache, w = rng.normal(size=(2, 6, 4)).astype(np.float32), rng.normal(size=(4, 4))
    w = w.astype(np.float32)

    def step(carry, i):
        cache, x = carry
        new = lax.dynamic_update_slice(cache, (x @ w)[:, None], (0, i, 0))
        weights = jnp.exp(-jnp.abs((new if after else cache).sum(-1)))
        x = jnp.einsum("bt,btd->bd", weights, new if after else cache)
        return (new, x), x

    def expected(cache, x):
        out = []
        for i in range(6):
            before, cache = cache, cache.copy()
            cache[:, i] = x @ w
            read = cache if after else before
            x = np.einsum("bt,btd->bd", np.exp(-np.abs(read.sum(-1))), read)
            out.append(x)
        return cache, np.stack(out)

    f = st.jit(lambda cache, x: lax.scan(step, (cache, x), jnp.arange(6)))
    given = cache.copy()
    for _ in range(5):
        (got, _), rows = f(cache, cache[:, 0])
        want, want_rows = expected(cache, cache[:, 0])
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(rows, want_rows, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(cache, given)


@pytest.mark.parametrize("mine_first", [False, True])
def test_devices_that_write_a_part_or_not(mine_first):
    """Only the part is chosen, not the array, as in the stages of a pipeline."""
    mesh = st.make_mesh((4,), ("x",))
    P = st.sharding.PartitionSpec
    x = np.random.default_rng(3).normal(size=(4, 6, 3)).astype(np.float32)

    def f(x):
        me = lax.axis_index("x")

        def tick(i, out):
            new = lax.dynamic_update_slice(out, x[0, :1] * i + out[i][None], (i, 0))
            if mine_first:
                return jnp.where(me >= i, new, out)
            return jnp.where(me < i, out, new)
        return lax.fori_loop(0, 6, tick, x[0] * 2)

    flats = []
    with pytest.MonkeyPatch.context() as patch:
        narrow = peepholes.NARROW_UPDATES
        patch.setattr(peepholes, "NARROW_UPDATES",
                      lambda p: flats.append(narrow(p)) or flats[-1])
        mapped = st.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        got = np.asarray(st.jit(mapped)(x))
    want = 2 * x
    for d in range(4):
        for i in range(d + 1):
            want[d, i] = x[d, 0] * i + want[d, i]
    np.testing.assert_allclose(got, want.reshape(24, 3), rtol=1e-6)
    sizes = [e.outvars[0].aval.size for flat in flats for e in flat.eqns if e.op.name == "select_n"]
    assert max(sizes) == 3


@pytest.mark.parametrize("rows", [2, 128])
def test_slices_at_starts_that_differ_between_devices(rows):
    """Small slices are taken all at once, large ones device by device."""
    mesh = st.make_mesh((4,), ("x",))
    big = np.random.default_rng(3).normal(size=(256, 128)).astype(np.float32)

    def body(x, mine):
        at = lax.axis_index("x") * 3
        taken = lax.dynamic_slice(x, (at, 0), (rows, 128))
        put = lax.dynamic_update_slice(mine, taken * 2, (at + 1, 0))
        return taken, put

    P = st.sharding.PartitionSpec
    f = st.jit(st.shard_map(body, mesh=mesh, in_specs=(P(), P(None, "x")),
                            out_specs=(P("x"), P(None, "x"))))
    mine = np.concatenate([big] * 4, 1)
    taken, put = f(big, mine)
    for i, (got, other) in enumerate(zip(np.split(np.asarray(taken), 4),
                                         np.split(np.asarray(put), 4, 1), strict=True)):
        want = big.copy()
        want[3 * i + 1:3 * i + 1 + rows] = 2 * big[3 * i:3 * i + rows]
        np.testing.assert_array_equal(got, big[3 * i:3 * i + rows])
        np.testing.assert_array_equal(other, want)


@pytest.mark.parametrize("loop", ["scan", "while"])
def test_what_is_carried_is_written_over_in_a_copy(loop):
    x, y = (np.linspace(a, 1, 512, dtype=np.float32) for a in (-1, 0))

    def step(x):
        return jnp.maximum(x * y, 0.5 * y) - 0.25, x.sum()

    def scanned(x):
        return lax.scan(lambda c, _: step(c), x, None, length=60), x

    def counted(x):
        return lax.while_loop(lambda c: c[1] < 60, lambda c: (step(c[0])[0], c[1] + 1), (x, 0)), x
    f = st.jit(scanned if loop == "scan" else counted)
    want, sums = x, []
    for _ in range(60):
        sums.append(want.sum())
        want = np.maximum(want * y, np.float32(0.5) * y) - np.float32(0.25)
    for _ in range(3):
        (got, more), same = f(x)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(same, x)
        np.testing.assert_allclose(more, sums if loop == "scan" else 60, rtol=1e-5, atol=1e-4)
