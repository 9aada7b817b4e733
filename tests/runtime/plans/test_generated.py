"""Plans that run often are functions: the same results, errors and lifetimes as call by call."""
from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.kernels.matrices.gemm import contract, prepared
from shardtrace.runtime.plans import generated, plan

from ...rows import rows

F32 = np.dtype(np.float32)


def data(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def programs():
    return [lambda x: jnp.tanh(x) @ x.T + 1, lambda x: (x.reshape(-1)[3:9], x.sum(0)[None] * x),
            lambda x: (x, x), lambda x: lax.scan(lambda c, r: (c + r, c * r), x[0], x),
            lambda x: jnp.where(x > 0, x, x.max()).astype(jnp.int32), lambda x: jnp.zeros(3),
            lambda x: lax.cond(x[0, 0] > 0, lambda y: y + 1, lambda y: y * 2, x),
            lambda x: lax.while_loop(lambda c: c[1] < 5, lambda c: (c[0] * 2, c[1] + 1), (x, 0)),
            lambda x: lax.logistic(x) + jnp.concatenate([x, x])[:6]]


@pytest.mark.parametrize("i", range(len(programs())))
def test_a_written_plan_gives_what_the_followed_one_gives(i, monkeypatch):
    x = data(6, 4)
    monkeypatch.setattr(plan, "FEW", 10**6)
    followed = st.tree.leaves(st.jit(programs()[i])(x))
    monkeypatch.setattr(plan, "FEW", 0)
    f = st.jit(programs()[i])
    for _ in range(2):
        for a, b in zip(followed, st.tree.leaves(f(x)), strict=True):
            assert a.aval == b.aval
            np.testing.assert_array_equal(a, b)
            assert not np.asarray(b).flags.writeable


def test_what_is_computed_of_constants_alone_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(plan, "FEW", 0)
    c, x = data(32, 32), data(32, 32)

    def f(x):
        y = (c + 1) * x             # c + 1 is computed once, and not written over
        z = jnp.maximum(y, c * 2) - x
        return z * 3, jnp.minimum(c + 2, 0.5), y.reshape(-1)[:3]
    jitted = st.jit(f)
    with np.errstate(all="ignore"):
        y = (c + 1) * x
    for _ in range(3):
        a, b, d = jitted(x)
        np.testing.assert_allclose(a, (np.maximum(y, c * 2) - x) * 3, rtol=1e-6)
        np.testing.assert_allclose(b, np.minimum(c + 2, 0.5), rtol=1e-6)
        np.testing.assert_allclose(d, y.reshape(-1)[:3], rtol=1e-6)


def test_a_row_of_a_constant_is_there_for_what_changes_another_array(monkeypatch):
    monkeypatch.setattr(plan, "FEW", 0)
    c = np.arange(8, dtype=np.float32).reshape(4, 2)

    def f(x):
        table = jnp.asarray(c)
        row = table[1]
        return table.at[jnp.int32(2)].add(row).at[jnp.int32(-1)].min(row)[2:] + x
    jitted = st.jit(f)
    for _ in range(3):
        np.testing.assert_array_equal(jitted(np.float32(1)), [[7, 9], [3, 4]])


def test_groups_write_over_nothing_that_was_computed_of_constants(monkeypatch):
    monkeypatch.setattr(plan, "FEW", 0)
    c, x = np.ones((256, 256), np.uint8), np.full((256, 256), 3, np.uint8)
    f = st.jit(lambda x: (jnp.sort(c, axis=1) + x) * x - x)
    for _ in range(4):
        np.testing.assert_array_equal(f(x), np.full((256, 256), 9, np.uint8))


def test_arguments_and_what_others_hold_are_not_written_over(monkeypatch):
    monkeypatch.setattr(plan, "FEW", 0)
    held = []

    def f(x):
        y = x + 1
        st.debug.callback(lambda v: held.append(np.asarray(v)), y)
        z = y * 2
        return z.T - 1, (x * 3 + 4) * 5
    jitted, x = st.jit(f), data(32, 32)
    before = x.copy()
    for _ in range(3):
        a, b = jitted(x)
        np.testing.assert_allclose(a, ((x + 1) * 2).T - 1, rtol=1e-5)
        np.testing.assert_allclose(b, (x * 3 + 4) * 5, rtol=1e-5)
    np.testing.assert_array_equal(x, before)
    for v in held:
        np.testing.assert_array_equal(v, x + 1)


def test_an_error_in_a_written_plan_names_its_equation(monkeypatch):
    monkeypatch.setattr(plan, "FEW", 0)

    def fails(x):
        raise ZeroDivisionError("no")

    def f(x):
        y = st.pure_callback(fails, st.ShapeDtypeStruct((4,), np.float32), x * 2)
        return y + 1
    with pytest.raises(Exception, match="no") as info:
        np.asarray(st.jit(f)(data(4)))
    assert any("while running `pure_callback`" in note for note in info.value.__notes__)


def test_equal_plans_are_compiled_once_and_name_their_own_equations(monkeypatch):
    monkeypatch.setattr(plan, "FEW", 0)
    compiled, compile_source = [], generated._compiled
    monkeypatch.setattr(generated, "_code", functools.lru_cache(
        lambda source: compiled.append(source) or compile_source(source)))
    there = []

    def fails(x):
        if there:
            raise ZeroDivisionError("no")
        return x

    def program(x):
        return st.pure_callback(fails, st.ShapeDtypeStruct((4,), np.float32), x * 2) + 1

    def other(x):
        return st.pure_callback(fails, st.ShapeDtypeStruct((4,), np.float32), x * 2) + 1
    functions = [st.jit(program), st.jit(other)]
    for f in functions:
        np.testing.assert_array_equal(f(data(4)), data(4) * 2 + 1)
    assert len(compiled) == 1
    there.append(True)
    for f in functions:
        with pytest.raises(Exception, match="no") as info:
            np.asarray(f(data(4)))
        location = f.trace(data(4)).jaxpr.eqns[1].location
        assert f"while running `pure_callback` of {location}" in info.value.__notes__


@rows("labels", ["ik,kj->ij", "ki,kj->ij", "ik,jk->ij", "bik,bkj->bij",
                 "bki,bjk->bij", "abk,kj->abj", "abk,abj->kj", "ik,kj->ji",
                 "i,j->ij", "k,k->", "aikb,bkj->aij", "aik,abik->kb",
                 "kai,ibk->ab"])
@rows("contiguous", [True, False])
def test_a_prepared_product_is_the_product(labels, contiguous):
    sizes = dict(zip("abijk", (2, 3, 4, 5, 6), strict=True))
    (a_labels, b_labels), out = labels.split("->")[0].split(","), labels.split("->")[1]
    a, b = (data(*(sizes[x] for x in t)) for t in (a_labels, b_labels))
    if not contiguous:
        a, b = (np.repeat(x, 2, axis=-1)[..., ::2] for x in (a, b))
    f = prepared(a.shape, a_labels, b.shape, b_labels, out, F32)
    assert f is not None
    np.testing.assert_allclose(f(a, b), contract(a, a_labels, b, b_labels, out, F32), rtol=1e-5)
    want = np.einsum(labels, a, b)
    np.testing.assert_allclose(f(a, b), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("labels", ["ik,kj->ij", "ki,kj->ij", "ik,jk->ji", "ik,k->i", "k,kj->j"])
@pytest.mark.parametrize("sizes", list(itertools.product((1, 3), repeat=3)), ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@np.errstate(invalid="ignore")
def test_zero_times_infinity_is_nan_in_products_of_any_size(labels, sizes, dtype):
    sizes = dict(zip("ijk", sizes, strict=True))
    (a_labels, b_labels), out = labels.split("->")[0].split(","), labels.split("->")[1]
    shapes = [tuple(sizes[x] for x in t) for t in (a_labels, b_labels)]
    for first, second in ((0, np.inf), (np.inf, 0), (np.nan, 0), (0, np.nan)):
        a, b = np.full(shapes[0], first, dtype), np.full(shapes[1], second, dtype)
        f = prepared(a.shape, a_labels, b.shape, b_labels, out, a.dtype)
        assert np.isnan(f(a, b)).all()
        assert np.isnan(contract(a, a_labels, b, b_labels, out, a.dtype)).all()


@pytest.mark.parametrize("labels", ["i,j->ij", "te,td->etd", "te,td->ted", "ab,c->abc", "t,t->t",
                                    ",ij->ji", "ba,ab->ab"])
def test_a_product_without_a_sum_is_one_multiplication(labels):
    sizes = dict(zip("abcdeijt", (2, 3, 4, 5, 6, 7, 8, 9), strict=True))
    (a_labels, b_labels), out = labels.split("->")[0].split(","), labels.split("->")[1]
    a, b = (data(*(sizes[x] for x in t)) for t in (a_labels, b_labels))
    f = prepared(a.shape, a_labels, b.shape, b_labels, out, F32)
    assert f is not None
    for product in (f(a, b), contract(a, a_labels, b, b_labels, out, F32)):
        np.testing.assert_array_equal(product, np.einsum(labels, a, b))
        assert product.flags.c_contiguous
    whole = [np.round(x * 10).astype(np.int8) for x in (a, b)]
    np.testing.assert_array_equal(
        contract(whole[0], a_labels, whole[1], b_labels, out, np.dtype(np.int32)),
        np.einsum(labels, *(x.astype(np.int32) for x in whole)))


def test_an_element_of_a_constant_that_a_large_group_reads(monkeypatch):
    monkeypatch.setattr(plan, "FEW", 0)
    places, values = np.sort(data(50)), data(50)
    x = data(1 << 20)
    mesh = st.make_mesh((8,), ("X",), axis_types=(st.sharding.AxisType.Auto,))
    with st.set_mesh(mesh):
        placed = st.device_put(x, st.NamedSharding(mesh, st.P("X")))
        f = st.jit(lambda x: jnp.interp(x, places, values))
        for got in (f(placed), f(placed)):
            np.testing.assert_allclose(got, np.interp(x, places, values), rtol=1e-4, atol=1e-4)
