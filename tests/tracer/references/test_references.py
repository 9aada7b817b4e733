"""Mutable references: what they hold after loops, branches, jit, vmap and derivatives."""
from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P
from tests.executors import EXECUTORS

from ...rows import rows

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def elements(m: ModuleType, ref):
    ref[0] = ref[1] * 2
    ref[1, 2] += 1
    ref[:, 0] = m.numpy.array([7.0, 8.0])
    m.ref.set(ref, (0, 1), m.numpy.float32(-1))
    m.ref.addupdate(ref, (0, slice(1, 3)), m.numpy.ones(2))
    return m.ref.swap(ref, (1, 1), 5.0), ref[...].sum()


def positions(m: ModuleType, ref):
    ref[m.numpy.array([0, 1]), m.numpy.array([1, 2])] = m.numpy.array([9.0, 10.0])
    return ref[-1], ref[m.numpy.array([1, 0])]


def a_loop(m: ModuleType, ref):
    def step(total, row):
        ref[...] += row
        return total + ref[0, 0], ref[1]

    return m.lax.scan(step, 0.0, m.numpy.asarray(X))


def rows_of_a_loop(m: ModuleType, ref):
    def step(carry, item):
        i, row = item
        row[...] += i
        row[0] = 0.0
        return carry + row[...].sum(), row[1]

    return m.lax.scan(step, 0.0, (m.numpy.arange(2.0), ref))


def counting(m: ModuleType, ref):
    def step(i, total):
        ref[0, i] = total
        return total + ref[1, i]

    return m.lax.fori_loop(0, 3, step, m.numpy.float32(1))


def while_small(m: ModuleType, ref):
    def step(i):
        ref[...] = ref[...] * 2
        return i + 1

    return m.lax.while_loop(lambda i: i < 3, step, 0)


def branches(m: ModuleType, ref):
    def yes(x):
        ref[0] = x

    def no(x):
        ref[1] = ref[1] + x

    m.lax.cond(ref[0, 0] > 0, yes, no, m.numpy.ones(3))
    m.lax.switch(m.numpy.int32(0), [lambda r: r.__setitem__((0, 0), 3.0), lambda r: None], ref)


def calls(m: ModuleType, ref):
    @m.jit
    def inner(x, other):
        ref[0] = x
        other[...] += ref[0].sum()
        return other[...] * 2

    other = m.new_ref(m.numpy.float32(1))
    return inner(m.numpy.ones(3), other), inner(m.numpy.full(3, 2.0), other), other[...]


def mapped(m: ModuleType, ref):
    def row(r, x):
        r[0] = r[1] + x
        r[...] += x
        return r[...].sum()

    return m.vmap(row)(ref, m.numpy.array([1.0, 2.0]))


def differentiated(m: ModuleType, ref):
    def f(x):
        own = m.new_ref(m.numpy.sin(x))
        own[...] = own[...] * own[...]
        m.lax.fori_loop(0, 2, lambda i, _: own.__setitem__(..., own[...] + x), None)
        ref[0, 0] = 42.0
        return m.freeze(own) * ref[1, 1]

    return m.grad(f)(0.5), m.value_and_grad(f)(0.5), m.jvp(f, (0.5,), (1.0,))


def recomputed(m: ModuleType, ref):
    @m.checkpoint
    def f(x):
        y = m.numpy.sin(x * ref[1, 1])
        ref[0] = ref[0] + 1
        return y

    return m.grad(f)(0.5)


def stashed_gradient(m: ModuleType, ref):
    @m.custom_vjp
    def through(x, kept):
        return x

    def back(kept, ct):
        kept[0, 1] = ct
        return ct, None

    through.defvjp(lambda x, kept: (x, kept), back)
    return m.grad(lambda x: m.numpy.sin(through(m.numpy.sin(x), ref)))(1.0)


PROGRAMS = (elements, positions, a_loop, rows_of_a_loop, counting, while_small, branches, calls,
            mapped, differentiated, recomputed, stashed_gradient)
KIND = {"recomputed": "no_grad_no_remat"}


def run(m: ModuleType, program, jitted: bool):
    ref = m.new_ref(m.numpy.asarray(X), kind=KIND.get(program.__name__))
    f = (lambda r: program(m, r)) if not jitted else m.jit(lambda r: program(m, r))
    out = f(ref)
    again = f(ref)
    return [np.asarray(x) for x in m.tree.leaves((out, again, ref[...]))]


@rows("jitted", [False, True])
@rows("program", PROGRAMS)
def test_references_hold_what_jax_puts_there(program, jitted):
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax.ref")
    for have, want in zip(run(st, program, jitted), run(jax, program, jitted), strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have, want, rtol=1e-5)


def closing_over(m: ModuleType):
    ref = m.new_ref(m.numpy.zeros(3))

    @m.jit
    def count(x):
        ref[...] += x
        return ref[0]

    return ref, count


def test_a_jitted_function_reads_and_writes_what_it_closes_over():
    ref, count = closing_over(st)
    assert [float(count(1.0)), float(count(2.0)), float(count(2.0))] == [1.0, 3.0, 5.0]
    ref[0] = 10.0
    assert float(count(1.0)) == 11.0
    np.testing.assert_array_equal(ref[...], [11, 6, 6])
    np.testing.assert_array_equal(st.jit(st.jit(count))(1.0), 12)


def test_stages_take_references():
    ref = st.new_ref(jnp.zeros(3))

    def f(r, x):
        r[0] = x
        return r[...] + 1

    compiled = st.jit(f).lower(ref, 2.0).compile()
    np.testing.assert_array_equal(compiled(ref, 5.0), [6, 1, 1])
    np.testing.assert_array_equal(ref[...], [5, 0, 0])
    assert st.eval_shape(f, ref, 2.0) == st.ShapeDtypeStruct((3,), np.float32)
    np.testing.assert_array_equal(ref[...], [5, 0, 0])
    ref, count = closing_over(st)
    compiled = count.lower(1.0).compile()
    compiled(1.0)
    compiled(1.0)
    np.testing.assert_array_equal(ref[...], [2, 2, 2])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_a_reference_holds_keeps_its_sharding(executor):
    mesh = st.make_mesh((4,), ("x",))
    x = st.device_put(jnp.arange(8.0), NamedSharding(mesh, P("x")))
    with st.config.override(shardtrace_engine=executor):
        ref = st.new_ref(x)
        f = st.jit(lambda r: r.__setitem__(..., r[...] * 2 + 1))
        f(ref)
        st.jit(lambda: ref.__setitem__(0, -1.0))()
    assert ref.sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 1)
    np.testing.assert_array_equal(ref[...], [-1, *range(3, 17, 2)])


@pytest.mark.parametrize("mistake, error, said", [
    (lambda ref: ref.__setitem__(0, 1.0), ValueError, "Invalid shape for `swap`"),
    (lambda ref: ref.__setitem__(0, jnp.arange(3)), ValueError, "Invalid dtype for `swap`"),
    (lambda ref: ref[5], ValueError, "Out of bound indexer: idx=5, dim=2"),
    (lambda ref: st.jit(lambda r: r)(ref), ValueError, "cannot be returned"),
    (lambda ref: st.jit(lambda: ref)(), ValueError, "cannot be returned"),
    (lambda ref: st.jit(lambda a, b: None)(ref, ref), ValueError, "appeared at both a and b"),
    (lambda ref: jnp.sin(ref), TypeError, "sin requires ndarray or scalar arguments"),
    (lambda ref: ref + 1, TypeError, "unsupported operand"),
    (lambda ref: st.new_ref(ref), TypeError, "not a reference"),
    (lambda ref: st.vmap(lambda x: ref.__setitem__((0, 0), x))(jnp.ones(2)), ValueError,
     "performing a set/swap operation with vmapped value"),
    (lambda ref: (st.freeze(ref), ref[...]), RuntimeError, "has no value any more"),
])
def test_mistakes_with_references_are_named(mistake, error, said):
    with pytest.raises(error, match=said):
        mistake(st.new_ref(jnp.asarray(X)))


def test_a_rule_inside_of_jit_does_not_lose_what_it_writes():
    """Unless the derivative was taken when the function was traced, the reference is written."""
    ref = st.new_ref(jnp.zeros(()))

    @st.custom_vjp
    def through(kept, x):
        return x

    def back(kept, ct):
        kept[...] = ct
        return None, ct

    through.defvjp(lambda kept, x: (x, kept), back)
    st.grad(st.jit(lambda r, x: jnp.sin(through(r, x))), 1)(ref, 1.0)
    assert float(ref[...]) == pytest.approx(np.cos(1.0))


def test_references_print_as_what_they_hold():
    ref = st.new_ref(jnp.arange(3))
    assert repr(ref) == "Ref([0, 1, 2], dtype=int32)"
    assert str(ref.aval) == "Ref{int32[3]}"
    assert (ref.shape, ref.ndim, ref.size, len(ref), ref.dtype) == ((3,), 1, 3, 3, np.int32)
    assert isinstance(ref, st.Ref) and not isinstance(ref, st.Array)
    np.testing.assert_array_equal(st.jit(lambda i: ref[st.ds(i, 2)])(1), [1, 2])
    ref.at[st.ds(1, 2)].at[0].set(7)
    np.testing.assert_array_equal(ref[...], [0, 7, 2])


def test_in_shardings_place_what_references_hold_and_the_other_arguments() -> None:
    mesh = st.make_mesh((8,), ("x",))
    rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    total = st.new_ref(jnp.zeros(16))

    def add(ref, x):
        ref[...] += x
        return x

    found = st.jit(add, in_shardings=(rows, rows))(total, np.arange(16, dtype=np.float32))
    assert found.sharding.spec == P("x") == total.sharding.spec

    def closed(x):
        total[...] += x
        return x

    assert st.jit(closed, in_shardings=rows)(np.ones(16, np.float32)).sharding.spec == P("x")
    np.testing.assert_array_equal(np.asarray(total[...]), np.arange(16) + 1)
    with pytest.raises(ValueError, match="Sharding passed to jit does not match"):
        st.jit(add, in_shardings=(whole, rows))(total, found)


def test_what_writes_no_reference_is_not_looked_at_again_however_deep_it_is_nested() -> None:
    """Nor does jit look again, as it finds what is closed over."""
    kept, seen = st.new_ref(jnp.zeros(2)), []

    def nested(depth):
        def body(carry, _):
            seen.append(depth)
            if depth:
                carry = nested(depth - 1)(carry)
            return carry + kept[...], None
        return lambda x: st.lax.scan(body, x, None, length=1)[0]

    np.testing.assert_array_equal(st.jit(nested(20))(jnp.ones(2)), np.ones(2))
    assert len(seen) == 21
    branch = st.jit(lambda x: st.lax.cond(x[0] > 0, lambda x: (seen.append(0), x + kept[...])[1],
                                          lambda x: x, x))
    branch(jnp.ones(2))
    assert len(seen) == 22


@pytest.mark.parametrize("transform", [lambda f: f, st.jit, st.grad], ids=["eager", "jit", "grad"])
def test_jit_traces_what_closes_over_references_once(transform) -> None:
    """Whoever has effects on Python while traced sees them once; what is captured holds, too."""
    ref, other = st.new_ref(jnp.float32(2)), st.new_ref(jnp.ones(3, np.int32))
    seen = []

    def outer(x):
        @st.jit
        def inner():
            seen.append(1)
            other[1] = 5                            # written before it is read
            return ref[...] * jnp.sin(x) + other[...].sum()
        return inner()

    f = transform(outer)
    want = (lambda r, x: r * np.cos(x)) if transform is st.grad else (
        lambda r, x: r * np.sin(x) + 7)
    np.testing.assert_allclose(f(1.5), want(2, 1.5), rtol=1e-6)
    assert len(seen) == 1
    np.testing.assert_array_equal(other[...], [1, 5, 1])
    ref[...] = jnp.float32(4)
    np.testing.assert_allclose(f(0.5), want(4, 0.5), rtol=1e-6)


def test_where_references_exist_errors_of_out_axes_name_what_the_user_returns():
    kept = st.new_ref(1.0)
    with pytest.raises(ValueError, match=r"at vmap out_axes\[1\]\['a'\], got axis spec None"):
        st.vmap(lambda x: (x, {"a": x}), out_axes=(0, None))(jnp.arange(3))
    with pytest.raises(ValueError, match=r"at vmap out_axes, got axis spec None"):
        st.vmap(lambda x: x, out_axes=None)(jnp.arange(3))
    assert float(kept[...]) == 1
