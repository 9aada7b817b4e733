"""What an op becomes for a mapped axis is recorded again as it was: nothing else may differ."""
import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows


def softmax(x, w):
    return st.nn.softmax(x @ w) * 0.5 + x.sum()


def squares(x, w):
    return x * x + x * w[0], x - 0.0, x - (-0.0), x * True


def chosen(x, w):
    return lax.cond(x[0] > 0, lambda v: jnp.sin(v), lambda v: v @ w, x)


def looped(x, w):
    return lax.scan(lambda c, row: (jnp.tanh(c + row), c[:2]), x, w)


def summed(x, w):
    return lax.psum(x, "i") + lax.axis_index("i") * w[0], lax.psum(x, "i")


FUNCTIONS = [softmax, squares, chosen, looped, summed,
             lambda x, w: st.grad(lambda v: softmax(v, w).sum())(x),
             lambda x, w: st.vmap(lambda row: row * x, out_axes=1)(w)]


@rows("f", FUNCTIONS)
@rows("spec", [P(), P("X")])
def test_a_program_is_the_same_whatever_was_batched_before(f, spec):
    mesh = st.make_mesh((8,), ("X",), axis_types=(AxisType.Explicit,))
    x = st.device_put(np.ones((16, 4), np.float32), NamedSharding(mesh, spec))
    w = np.ones((4, 4), np.float32)

    def traced():
        mapped = st.vmap(lambda v: f(v, jnp.asarray(w)), axis_name="i")
        return st.jit(lambda v: mapped(v)).trace(x).jaxpr

    with st.set_mesh(mesh):
        first = traced()
        warm = [traced(), traced()]
        st.clear_caches()
        cold = traced()
    for other in (*warm, cold):
        assert programs_equal(first, other)
        assert [str(e.location) for e in first.eqns] == [str(e.location) for e in other.eqns]
        assert [e.location.transform for e in first.eqns] == [
            e.location.transform for e in other.eqns]


def test_numbers_that_are_equal_and_not_the_same_are_told_apart():
    def found(number):
        program = st.jit(st.vmap(lambda v: v * number)).trace(np.ones((3,), np.float32)).jaxpr
        return [a.val for e in program.eqns for a in e.invars if hasattr(a, "val")][0]

    assert [np.signbit(found(z)) for z in (0.0, -0.0, 0.0, -0.0)] == [False, True, False, True]
    assert found(1.0) == found(1) == 1 and found(2.0) == 2


def test_operands_that_are_one_value_are_told_apart_from_two():
    x, y = np.full(3, 2, np.float32), np.full(3, 3, np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(st.jit(st.vmap(lambda a, b: a * b))(x, y), [6, 6, 6])
        np.testing.assert_array_equal(st.jit(st.vmap(lambda a, b: a * a))(x, y), [4, 4, 4])
        np.testing.assert_array_equal(st.jit(st.vmap(lambda a, b: b * a))(x, y), [6, 6, 6])
