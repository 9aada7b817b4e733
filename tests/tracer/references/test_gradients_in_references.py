"""Gradients that are added to references, and references in rules of derivatives."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax


def accumulated(m):
    """The sum of gradients over steps, by references in a loop and by adding them up."""
    def loss(w, x):
        return m.numpy.tanh(x @ w).sum()

    def step(_, x):
        value, pull = m.vjp(lambda w: loss(w, x), w)
        pull.with_refs(total)(m.numpy.ones_like(value))
        return (), value

    w = m.numpy.arange(6.0).reshape(3, 2) / 10
    xs = m.numpy.arange(24.0).reshape(4, 2, 3) / 10
    total = m.new_ref(m.numpy.zeros_like(w))
    m.lax.scan(step, (), xs)
    return total[...], sum(m.grad(loss)(w, x) for x in xs)


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_are_added_up_in_a_loop(jit):
    def both():
        return accumulated(st)
    by_reference, one_by_one = (st.jit(both) if jit else both)()
    np.testing.assert_allclose(by_reference, one_by_one, rtol=1e-5)


def test_places_say_what_becomes_of_each_gradient():
    ad = st.ad
    _, pull = st.vjp(lambda a, b: a["x"] * b, {"x": jnp.ones(2)}, jnp.full(2, 3.0))
    total = st.new_ref(jnp.ones(2))
    assert pull.with_refs({"x": total}, ad.DontWant())(jnp.ones(2)) == (
        {"x": ad.GradRef()}, ad.DidntWant())
    assert total[...].tolist() == [4.0, 4.0]
    (a, b) = st.jit(lambda: pull.with_refs({"x": ad.DontWant()}, ad.GradValue())(jnp.ones(2)))()
    assert a == {"x": ad.DidntWant()} and b.tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="a tree like the arguments"):
        pull.with_refs(total)
    with pytest.raises(ValueError, match="Incompatible types"):
        pull.with_refs({"x": st.new_ref(jnp.ones(3))}, 0)(jnp.ones(2))


def history():
    """A function whose rule keeps the last cotangent in a reference that it closes over."""
    last = st.new_ref(0.0)

    @st.custom_vjp
    def watched(x):
        return x

    def backward(_, ct):
        last[...] = ct
        return (ct,)

    watched.defvjp(lambda x: (x, None), backward)
    return watched, last


def test_a_rule_writes_a_reference_where_nothing_is_traced():
    watched, last = history()
    st.grad(lambda x: 5 * watched(x))(1.0)
    assert last[...] == 5


@pytest.mark.parametrize("around", [
    st.jit, st.checkpoint, lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, length=2)[0]])
def test_a_rule_does_not_keep_a_value_of_a_trace_in_a_reference(around):
    watched, last = history()
    with pytest.raises(RuntimeError, match="reads or writes a reference from outside"):
        st.grad(around(lambda x: 5 * watched(x)))(1.0)
    assert last[...] == 0



def with_rule(f):
    ruled = st.custom_vjp(f)
    ruled.defvjp(lambda *refs: (None, None), lambda *_: (None, None))
    return ruled


@pytest.mark.parametrize("call, names", [
    (lambda r: st.jit(lambda a, b: None)(r, r), "for jit .* at both a and b"),
    (lambda r: st.vmap(lambda a, b: None)(r, r), "for vmap .* at both a and b"),
    (lambda r: lax.scan(lambda c, x: (c, x[0][...]), 0.0, (r, r)),
     r"for scan .* at both x\[0\] and x\[1\]"),
    (lambda r: lax.cond(True, lambda a, b: a[...], lambda a, b: b[...], r, r),
     "for cond .* at both a and b"),
    (lambda r: with_rule(lambda a, b: a[...])(r, r), "for custom_vjp .* at both a and b"),
    (lambda r: st.jit(lambda a: a[...] + r[...])(r), "for jit, .* passed as the argument a"),
    (lambda r: lax.scan(lambda c, x: (c, x[...] + r[0]), 0.0, r), "for scan, .* the argument x")])
def test_a_reference_has_one_name_in_a_function(call, names):
    with pytest.raises(ValueError, match=names):
        call(st.new_ref(jnp.arange(3.0)))


def test_a_function_is_left_by_an_error_with_all_references_as_they_were():
    ref = st.new_ref(jnp.arange(3.0))
    with pytest.raises(ValueError, match="closed over"):
        st.jit(lambda a: a[...] + ref[...])(ref)
    ref[0] = 5.0
    assert st.jit(lambda a: a[0])(ref) == 5


def test_a_reference_is_freed_once():
    ref = st.new_ref(1.0)
    st.ref.free_ref(ref)
    with pytest.raises(RuntimeError, match="no value any more"):
        st.ref.free_ref(ref)


def test_a_function_with_rules_returns_no_reference():
    with pytest.raises(ValueError, match="returned a mutable array reference"):
        with_rule(lambda ref: ref)(st.new_ref(1.0))


def test_a_function_under_checkpoint_that_reads_a_reference_sees_what_that_holds():
    ref, seen = st.new_ref(2.0), []

    @st.checkpoint
    def reads(x):
        return x * ref[...]

    @st.checkpoint
    def given(x, other=None):
        return x if other is None else x * other[...]

    @st.checkpoint
    def plain(x):
        seen.append(1)
        return jnp.sin(x)

    for value in (2.0, 5.0):
        ref[...] = value
        assert reads(3.0) == given(3.0, ref) == 3 * value
        assert given(3.0) == 3
        assert st.grad(reads)(3.0) == value
        plain(1.0)
    assert len(seen) == 1


def test_messages_of_vmap_name_the_arguments_whether_a_reference_is_alive_or_not():
    ref = st.new_ref(1.0)
    with pytest.raises(ValueError, match="axis 0 of argument first of type"):
        st.vmap(lambda first, second: first + second)(jnp.ones(3), jnp.ones(2))
    assert ref[...] == 1
