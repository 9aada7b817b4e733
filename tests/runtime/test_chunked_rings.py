"""Collectives that are written by hand, chunk by chunk, are executed as what they amount to."""
from __future__ import annotations

import executed
import numpy as np
import pytest
from executed import RNG, normal
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.runtime.rewrites.flatten import every_equation
from shardtrace.sharding import PartitionSpec as P

N = 4
MESH = st.make_mesh((N, 2), ("x", "y"))
TRAVELLING = {"ppermute", "scan", "scatter", "scatter-add", "dynamic_update_slice"}


def sent(x, by=1):
    return lax.ppermute(x, "x", [(i, (i + by) % N) for i in range(N)])


def results(f, args, specs=P("x"), out=P("x")):
    """What both executors give, and the ops that the simulated one executes."""
    (found,), flat = executed.results(f, args, MESH, specs, out)
    return found, {e.op.name for e in every_equation(flat.eqns)}


def repeat(looped, length, turn, carry):
    if looped:
        return lax.fori_loop(0, length, turn, carry)
    for i in range(length):
        carry = turn(i, carry)
    return carry


def row(x, i, form):
    return x[i] if form == "index" else lax.dynamic_slice_in_dim(x, i, 1, 0)


def written(x, y, i, form):
    return x.at[i].set(y) if form == "index" else lax.dynamic_update_slice_in_dim(x, y, i, 0)


def plus(x, y, i, form):
    return x.at[i].add(y) if form == "index" else written(x, row(x, i, form) + y, i, form)


def sum_of(x, looped=True, form="slice", by=1):
    """An all-reduce: rows are summed up around the ring, and then the sums go round."""
    me = lax.axis_index("x") * by
    x = repeat(looped, N - 1, lambda i, x: plus(
        x, sent(row(x, (me - i) % N, form), by), (me - i - 1) % N, form), x)
    return repeat(looped, N - 1, lambda i, x: written(
        x, sent(row(x, (me + 1 - i) % N, form), by), (me - i) % N, form), x)


def totals(x):
    return np.concatenate([x.reshape(N, -1, *x.shape[1:]).sum(0, x.dtype)] * N)


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("form", ["slice", "index"])
def test_sums_of_rows_that_go_round_twice_are_a_sum(looped, form):
    x = normal(N * N, 6)
    got, ops = results(lambda x: sum_of(x, looped, form), (x,))
    np.testing.assert_allclose(got, totals(x), rtol=2e-5, atol=2e-5)
    assert "psum" in ops and ops.isdisjoint(TRAVELLING)


@pytest.mark.parametrize("form", ["slice", "index"])
def test_half_of_it_is_a_reduce_scatter(form):
    def f(x):
        me = lax.axis_index("x")
        x = lax.fori_loop(0, N - 1, lambda i, x: plus(
            x, sent(row(x, (me - i - 1) % N, form)), (me - i - 2) % N, form), x)
        return row(x, me, "index")
    x = normal(N * N, 6)
    got, ops = results(f, (x,))
    np.testing.assert_allclose(got.reshape(N, 6), x.reshape(N, N, 6).sum(0), rtol=2e-5, atol=2e-5)
    assert "reduce_scatter" in ops and ops.isdisjoint(TRAVELLING)


@pytest.mark.parametrize("looped", [False, True])
def test_the_other_half_is_an_all_gather(looped):
    def f(x):
        me = lax.axis_index("x")
        out = lax.pcast(jnp.zeros((N, *x.shape)), "x", to="varying").at[me].set(x)

        def turn(i, carry):
            x, out = sent(carry[0]), carry[1]
            return x, out.at[(me - i - 1) % N].set(x)
        return repeat(looped, N - 1, turn, (x, out))[1].sum((1, 2))
    got, ops = results(f, (normal(16, 6),))
    assert got.shape == (N * N,) and "all_gather" in ops and ops.isdisjoint(TRAVELLING)


def test_twice_as_many_rows_half_of_which_go_the_other_way():
    def f(x):
        me, up, down = lax.axis_index("x"), x[:N], x[N:]
        up, down = sum_of(up, False), sum_of(down, False, by=-1)
        return jnp.concatenate([up, down]) / (me + 1)
    x = normal(N * 2 * N, 6)
    got, ops = results(f, (x,))
    want = totals(x).reshape(N, -1) / (np.arange(N)[:, None] + 1)
    np.testing.assert_allclose(got.reshape(N, -1), want, rtol=2e-5, atol=2e-5)
    assert "psum" in ops and ops.isdisjoint(TRAVELLING)


@pytest.mark.parametrize("turned", [False, True])
def test_sums_of_products_that_are_passed_on_are_the_sum_of_a_product(turned):
    def f(x, w):
        me, rows = lax.axis_index("x"), x.shape[0] // N

        def part(i):
            x_i = lax.dynamic_slice_in_dim(x, (me - i) % N * rows, rows, 0)
            return lax.dot_general(w, x_i, (((0,), (1,)), ((), ()))).T if turned else x_i @ w
        total = part(0)
        for i in range(1, N):
            total = sent(total) + part(i)
        out = lax.pcast(jnp.zeros((N * rows, w.shape[1])), "x", to="varying")
        for i in range(N):
            out = lax.dynamic_update_slice_in_dim(out, total, (me + 1 - i) % N * rows, 0)
            total = sent(total)
        return out
    x, w = normal(16, 24), normal(24, 8)
    got, ops = results(f, (x, w), (P(None, "x"), P("x")))
    np.testing.assert_allclose(got, np.concatenate([x @ w] * N), rtol=2e-5, atol=2e-5)
    assert "psum" in ops and ops.isdisjoint(TRAVELLING)


def test_integers_are_the_same_to_the_bit():
    x = RNG.integers(-2 ** 31, 2 ** 31, (16, 6)).astype(np.int32)
    got, ops = results(sum_of, (x,))
    np.testing.assert_array_equal(got, totals(x))
    assert ops.isdisjoint(TRAVELLING)


def test_short_floats_are_summed_one_by_one():
    _, ops = results(sum_of, (normal(16, 6).astype(jnp.bfloat16),))
    assert "scan" in ops


def test_what_is_no_number_stays_where_it_is():
    x = normal(16, 6)
    x[1, 2], x[4, 0], x[8, 0], x[5, 5] = np.nan, np.inf, -np.inf, np.inf
    with np.errstate(invalid="ignore"):
        got, ops = results(sum_of, (x,))
        np.testing.assert_allclose(got, totals(x), rtol=2e-5, atol=2e-5)
    assert "psum" in ops


def test_rows_that_are_outside_are_not_written():
    def f(x):
        me, total = lax.axis_index("x"), x
        for i in range(N):
            total = total.at[me + i].add(sent(x[i]), mode="drop")
        return total
    _, ops = results(f, (normal(16, 6),))
    assert "scatter-add" in ops


def test_its_gradient_is_a_sum_too():
    x, c = normal(16, 6), normal(16, 6)
    mapped = st.shard_map(sum_of, mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    got = st.jit(st.grad(lambda x: (mapped(x) * c).sum()))(x)
    np.testing.assert_allclose(got, totals(c), rtol=2e-5, atol=2e-5)


@given(draw.data())
@settings(max_examples=40)
def test_any_two_rings_over_rows_give_what_they_say(data):
    """Random places, lengths, directions and ways of writing: both executors agree."""
    forms = [data.draw(draw.sampled_from(["slice", "index"])) for _ in range(2)]
    places = [[data.draw(draw.sampled_from([k, k, k, k, k + 1, k - 1])) for k in each]
              for each in ((0, 0), (1, 0))]
    length = [data.draw(draw.sampled_from([N - 1, N - 1, N - 1, N, N - 2])) for _ in range(2)]
    by = [data.draw(draw.sampled_from([1, 1, 1, -1, 2])) for _ in range(2)]
    looped, again, mine = (data.draw(draw.booleans()) for _ in range(3))
    whole = data.draw(draw.booleans())
    dtype = data.draw(draw.sampled_from([np.float32, np.int32]))
    rows = data.draw(draw.sampled_from([N, N, N + 1]))

    def f(x):
        me = lax.axis_index("x")

        def reduce(i, x):
            got = sent(row(x, (me - i + places[0][0]) % N, forms[0]), by[0])
            return (written if again and mine else plus)(
                x, got, (me - i - 1 + places[0][1]) % N, forms[0])

        def gather(i, x):
            got = sent(row(x, (me - i + places[1][0]) % N, forms[1]), by[1])
            return (plus if again else written)(x, got, (me - i + places[1][1]) % N, forms[1])
        x = repeat(looped, length[0], reduce, x)
        if whole:
            x = repeat(looped, length[1], gather, x)
        return x[me] if mine else x
    x = (normal(N * rows, 3) * 100).astype(dtype)
    results(f, (x,))
