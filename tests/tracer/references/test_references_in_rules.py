"""References that derivative rules of the user's read and write, and where references may not go,
beside JAX."""
from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import shardtrace as st
from tests.real_jax import real_jax

from ...rows import rows


def stashing(m: ModuleType):
    """The identity, whose rule adds the gradient that comes by to a reference."""
    @m.custom_vjp
    def stash(ref, x):
        return x

    def bwd(ref, g):
        ref[...] = ref[...] + g
        return None, g

    stash.defvjp(lambda ref, x: (x, ref), bwd)
    return stash


def layer(m: ModuleType, ref, x):
    return m.numpy.sin(stashing(m)(ref, m.numpy.sin(x)))


def scanned(m: ModuleType, ref, x, length=3):
    return m.lax.scan(lambda x, _: (layer(m, ref, x), None), x, None, length=length)[0]


WITHIN = {
    "plain": layer,
    "scan": scanned,
    "jit": lambda m, ref, x: m.jit(lambda ref, x: layer(m, ref, x))(ref, x),
    "jit, closed over": lambda m, ref, x: m.jit(lambda x: layer(m, ref, x))(x),
    "checkpoint": lambda m, ref, x: m.checkpoint(lambda x: layer(m, ref, x))(x),
    "jit of scan": lambda m, ref, x: m.jit(lambda x: scanned(m, ref, x))(x),
    "checkpoint of scan": lambda m, ref, x: m.checkpoint(lambda x: scanned(m, ref, x))(x),
    "scan of checkpoint": lambda m, ref, x: m.lax.scan(
        lambda x, _: (m.checkpoint(lambda x: layer(m, ref, x))(x), None), x, None, length=2)[0],
}


def gradient(m: ModuleType, f, jitted: bool):
    ref = m.new_ref(m.numpy.float32(0))
    derivative = m.grad(lambda x: f(m, ref, x) * 2)
    if jitted:
        derivative = m.jit(derivative)
    return [derivative(np.float32(1)), ref[...], derivative(np.float32(0.5)), ref[...]]


@rows("jitted", [False, True])
@rows("name", WITHIN)
def test_a_rule_writes_a_reference_within_what_is_traced(name, jitted):
    jax = real_jax()
    got, want = (gradient(m, WITHIN[name], jitted) for m in (st, jax))
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5)


def test_a_jitted_function_that_ran_before_its_derivative():
    jax = real_jax()

    def run(m: ModuleType):
        ref = m.new_ref(m.numpy.float32(0))
        f = m.jit(lambda ref, x: scanned(m, ref, x))
        before = f(ref, np.float32(1))
        other = m.new_ref(m.numpy.float32(0))
        return [before, m.grad(f, 1)(ref, np.float32(1)), m.grad(f, 1)(other, np.float32(2)),
                ref[...], other[...], f(ref, np.float32(3))]

    np.testing.assert_allclose(np.asarray(run(st)), np.asarray(run(jax)), rtol=1e-5)


def test_a_rule_within_a_branch_that_is_known():
    ref = st.new_ref(np.float32(0))
    f = st.grad(lambda x: st.lax.cond(x > 0, lambda x: layer(st, ref, x), st.numpy.cos, x))
    assert float(f(1.0)) == pytest.approx(np.cos(np.sin(1)) * np.cos(1), rel=1e-6)
    assert float(ref[...]) == pytest.approx(np.cos(np.sin(1)), rel=1e-6)


REFUSED = {
    "scan": lambda m: m.lax.scan(lambda c, x: (m.new_ref(c), x), 0, m.numpy.arange(3)),
    "scan, stacked": lambda m: m.lax.scan(lambda c, x: (c, m.new_ref(c)), 0, m.numpy.arange(3)),
    "scan, carried": lambda m: m.lax.scan(lambda c, _: (c, None), m.new_ref(1.0), None, length=2),
    "while": lambda m: m.lax.while_loop(lambda c: c < 3, m.new_ref, 0),
    "while, carried": lambda m: m.lax.while_loop(lambda c: c[...] < 3, lambda c: c, m.new_ref(1.0)),
    "cond": lambda m: m.lax.cond(True, lambda: m.new_ref(1.0), lambda: m.new_ref(2.0)),
    "switch": lambda m: m.lax.switch(1, [lambda: m.new_ref(1.0), lambda: m.new_ref(2.0)]),
    "checkpoint": lambda m: m.checkpoint(lambda x: m.new_ref(x))(1.0),
    "jit": lambda m: m.jit(lambda x: m.new_ref(x))(1.0),
    "jit, passed in": lambda m: m.jit(lambda x_ref: x_ref)(m.new_ref(1.0)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_reference_that_is_returned_is_said_to_be_from_where(name):
    jax = real_jax()
    words = []
    for m in (st, jax):
        with pytest.raises(ValueError, match="returned a mutable array reference") as e:
            REFUSED[name](m)
        text = str(e.value)
        words.append([text.partition("traced for ")[2].partition(" returned")[0],
                      "was created on line" in text, "passed in as the argument" in text])
    assert words[0] == words[1]


def test_a_reference_in_a_carry():
    ref = st.new_ref(1.0)
    for match, call in {
        r"at both c\[0\] and c\[1\]":
            lambda: st.lax.scan(lambda c, _: (None, None), (ref, ref), None, length=1),
        "closed over and passed as the argument y":
            lambda: st.lax.scan(lambda y, _: (ref[...] + y[...], None), ref, None, length=1),
    }.items():
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(TypeError, match=r"input carry c\[1\] is a reference of type Ref"):
        st.lax.scan(lambda c, _: (c[0] + c[1][...], None), (1.0, ref), None, length=2)


def test_references_among_the_arguments_of_vjp():
    ref = st.new_ref(2.0)
    y, pull = st.vjp(lambda x, r: x * r[...], 3.0, ref)
    assert float(y) == 6 and [float(x) for x in pull(1.0)] == [2, 3]
    y, pull, aux = st.vjp(lambda x, r: (r.addupdate(x), (x * r[...], r[...]))[1], 3.0, ref,
                          has_aux=True)
    assert (float(y), float(aux), float(ref[...])) == (15, 5, 5)
    assert [float(x) for x in pull(1.0)] == [8, 3]
    with pytest.raises(ValueError, match="appeared at both x and r"):
        st.vjp(lambda x, r: x, ref, ref)
    f = st.custom_vjp(lambda x, r: x)
    f.defvjp(lambda x, r: (x, st.new_ref(0)), lambda r, g: (g, None))
    with pytest.raises(ValueError, match="custom_vjp fwd function"):
        st.vjp(f, 3.0, ref)
