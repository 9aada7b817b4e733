"""out_sharding= of functions: specs and shardings, results of that type, and what is refused."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.diagnostics.errors import DuplicateSpecError, ShardingTypeError
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

X = np.arange(32, dtype=np.float32).reshape(4, 8)


pytestmark = pytest.mark.usefixtures("eight_devices")


@pytest.fixture
def mesh():
    made = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with st.set_mesh(made):
        yield made


def put(value, *spec):
    return st.device_put(np.asarray(value), P(*spec))


# A call, the operands' specs, the sharding of the result, and its type.
CASES = {
    "zeros": (lambda o: jnp.zeros((4, 8), out_sharding=o), [], P("x", "y"), "f32[4@x,8@y]"),
    "ones": (lambda o: jnp.ones((4, 8), out_sharding=o), [], P("x"), "f32[4@x,8]"),
    "full": (lambda o: jnp.full((4, 8), 2, out_sharding=o), [], P(None, "y"), "~i32[4,8@y]"),
    "empty": (lambda o: jnp.empty(8, out_sharding=o), [], P(("x", "y")), "f32[8@(x,y)]"),
    "arange": (lambda o: jnp.arange(8, out_sharding=o), [], P("y"), "i32[8@y]"),
    "array": (lambda o: jnp.array([1, 2, 3, 4], out_sharding=o), [], P("x"), "i32[4@x]"),
    "iota": (lambda o: lax.broadcasted_iota("int32", (4, 8), 1, out_sharding=o), [], P("x"),
             "i32[4@x,8]"),
    "broadcast_to": (lambda v, o: jnp.broadcast_to(v, (2, 8), out_sharding=o), [("y", 1)],
                     P("x", "y"), "f32[2@x,8@y]"),
    "reshape": (lambda a, o: jnp.reshape(a, 32, out_sharding=o), [("x", 2)], P("x"), "f32[32@x]"),
    "ravel": (lambda a, o: jnp.ravel(a, out_sharding=o), [("x", 2)], P("x"), "f32[32@x]"),
    "matmul": (lambda a, b, o: jnp.matmul(a, b.T, out_sharding=o), [(None, "y"), (None, "y")],
               P("x"), "f32[4@x,4]"),
    "matmul-pending": (lambda a, b, o: jnp.matmul(a, b.T, out_sharding=o),
                       [(None, "y"), (None, "y")], P(unreduced={"y"}), "f32[4,4]{U:y}"),
    "einsum": (lambda a, b, o: jnp.einsum("ij,kj->ik", a, b, out_sharding=o),
               [("x", None), (None, "y")], P("x"), "f32[4@x,4]"),
    "dot_general": (lambda a, b, o: lax.dot_general(a, b, (((1,), (1,)), ((), ())), out_sharding=o),
                    [("x", None), (None, None)], P("x", "y"), "f32[4@x,4@y]"),
    "tensordot": (lambda a, b, o: jnp.tensordot(a, b, 2, out_sharding=o), [(), ()], P(), "f32[]"),
    "reduce_sum": (lambda a, o: lax.reduce_sum(a, (1,), out_sharding=o), [(None, "y")],
                   P(None, unreduced={"y"}), "f32[4]{U:y}"),
    "repeat": (lambda a, o: jnp.repeat(a, 2, axis=0, out_sharding=o), [("x", None)], P("x"),
               "f32[8@x,8]"),
    "at-get": (lambda a, o: a.at[np.array([0, 2])].get(out_sharding=o), [("x", None)],
               P(None, "y"), "f32[2,8@y]"),
    "at-set": (lambda a, o: a.at[np.array([0, 2])].set(1.0, out_sharding=o), [("x", "y")],
               P("x", "y"), "f32[4@x,8@y]"),
}


def operands(specs):
    """X on the mesh by each spec, or its first row where the spec says rank 1."""
    return [put(X[0], s[0]) if len(s) == 2 and s[1] == 1
            else put(X, *[n for n in s if not isinstance(n, int)]) for s in specs]


@pytest.mark.parametrize("as_named", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_result_has_the_sharding_asked_for(mesh, name, as_named):
    f, specs, spec, type = CASES[name]
    arrays = operands(specs)
    wanted = NamedSharding(mesh, spec) if as_named else spec
    aval = st.make_jaxpr(lambda *a: f(*a, wanted))(*arrays).jaxpr.outvars[0].aval
    assert ("~" if aval.weak_type else "") + aval.str_short(True) == type
    if "U:" not in type:
        got = st.jit(lambda *a: f(*a, wanted))(*arrays)
        assert got.sharding.is_equivalent_to(NamedSharding(mesh, spec), got.ndim)
        whole = f(*[np.asarray(a) if name[:2] != "at" else jnp.asarray(np.asarray(a))
                    for a in arrays], None)
        if name != "empty":
            np.testing.assert_allclose(got, whole, rtol=1e-6)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: jnp.zeros(8, out_sharding="x"), TypeError, "out_sharding"),
    (lambda: jnp.zeros(8, out_sharding=P("z")), ValueError, "z"),
    (lambda: jnp.zeros(7, out_sharding=P("x")), ValueError, "divi"),
    (lambda: jnp.zeros(8, out_sharding=P("x", "y")), ValueError, "rank"),
    (lambda: jnp.zeros(8, device=st.devices()[0], out_sharding=P("x")), ValueError,
     "Only one of `device` or `out_sharding` can be set"),
])
def test_shardings_that_do_not_fit_are_refused(mesh, call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_spec_needs_a_mesh():
    with pytest.raises(ValueError, match="mesh"):
        jnp.zeros(8, out_sharding=P("x"))


def test_a_spec_may_not_name_an_auto_axis():
    with st.set_mesh(st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)):
        with pytest.raises(ValueError, match="Auto"):
            jnp.zeros(8, out_sharding=P("x"))


def test_a_contraction_over_split_dimensions_has_to_be_told_its_result(mesh):
    a = put(X, None, "y")
    with pytest.raises(ShardingTypeError, match="Please specify the output sharding"):
        a @ a.T
    np.testing.assert_allclose(jnp.matmul(a, a.T, out_sharding=P()), X @ X.T, rtol=1e-5)


def test_values_of_selections_are_brought_to_one_sharding(mesh):
    a, row = put(X, "x", "y"), np.ones(8, np.float32)
    assert st.typeof(jnp.where(a > 3, a, row)).str_short(True) == "f32[4@x,8@y]"
    assert st.typeof(jnp.where(a > 3, a, 0)).str_short(True) == "f32[4@x,8@y]"
    with pytest.raises(ShardingTypeError, match=r"broadcast_shardings got incompatible shardings "
                                                r"for broadcasting: \('x', 'y'\)"):
        jnp.where(a > 3, a, put(X[0], "x"))


def test_like_functions_take_the_sharding_of_their_operand(mesh):
    a = put(X, "x", "y")
    assert st.typeof(jnp.zeros_like(a)).str_short(True) == "f32[4@x,8@y]"
    assert st.typeof(jnp.full_like(a, 1, dtype="int32")).str_short(True) == "i32[4@x,8@y]"
    assert st.typeof(jnp.ones_like(a, shape=(3,))).str_short(True) == "f32[3]"


@pytest.mark.parametrize("read", [
    lambda x, i: x.at[i], lambda x, i: x.at[2, i], lambda x, i: x.at[i, i], lambda x, i: x.at[:, i],
    lambda x, i: x.at[i, ::2], lambda x, i: x.at[i[:, None], i],
])
def test_split_index_arrays_have_to_be_told_their_result(mesh, read):
    x, ids = put(X), put(np.array([3, 0, 1, 2]), "y")
    with pytest.raises((ShardingTypeError, DuplicateSpecError)):
        read(x, ids).get()
    out = read(x, ids).get(out_sharding=P("x"))
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, P("x")), out.ndim)
    np.testing.assert_array_equal(out, read(jnp.asarray(X), np.asarray(ids)).get())
