"""Staging: what tracing records, and what it refuses."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.errors import (
    ConcretizationTypeError,
    ShardingTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P


@pytest.fixture
def mesh():
    return st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)


def names(program):
    return [e.primitive.name for e in program.eqns]


def test_a_program_has_one_equation_per_op_with_its_type():
    program = st.make_jaxpr(lambda x: jnp.sin(x) + 1)(np.ones((2, 3), np.float32))
    assert names(program) == ["sin", "add"]
    assert str(program.eqns[1].outvars[0].aval) == "float32[2,3]"


def test_equations_point_to_the_users_expression():
    def f(x):
        h = jnp.sin(x)
        return h

    (eqn,) = st.make_jaxpr(f)(1.0).eqns
    assert eqn.location.text() == "jnp.sin(x)"
    assert eqn.outvars[0].name == "h"
    assert eqn.location.function == "f"


def test_a_location_has_the_calls_around_it():
    def inner(x):
        return jnp.sin(x)

    def outer(x):
        return inner(x) + inner(jnp.cos(x))

    first, cos, second, add = st.make_jaxpr(outer)(1.0).eqns
    assert [[c.text() for c in e.location.calls] for e in (first, cos, second, add)] == [
        ["inner(x)"], [], ["inner(jnp.cos(x))"], []]
    assert first.location.place != second.location.place
    assert first.location.spot == second.location.spot
    assert [c.text() for c in first.location.under("jvp").calls] == ["inner(x)"]


def test_what_is_inlined_has_the_calls_around_the_jit():
    @st.jit
    def inner(x):
        return jnp.sin(x)

    def outer(x):
        return inner(x) + inner(x * 2)

    eqns = st.explain(outer)(1.0).partitioned.stages["inlined"].eqns
    assert [[c.text() for c in e.location.calls] for e in eqns if e.op.name == "sin"] == [
        ["inner(x)"], ["inner(x * 2)"]]


def test_types_are_seen_while_tracing(mesh):
    seen = []

    @st.jit
    def add(x, y):
        out = x + y
        seen.extend(str(st.typeof(v)) for v in (x, y, out))
        return out

    x = st.device_put(np.arange(4, dtype=np.int32).reshape(4, 1), NamedSharding(mesh, P("X", None)))
    y = st.device_put(np.arange(8, dtype=np.int32).reshape(1, 8), NamedSharding(mesh, P(None, "Y")))
    add(x, y)
    assert seen == ["int32[4@X,1]", "int32[1,8@Y]", "int32[4@X,8@Y]"]


def test_captured_arrays_are_constants_once():
    table = np.arange(6, dtype=np.float32)
    program = st.make_jaxpr(lambda x: x + table * table)(1.0)
    assert len(program.consts) == 1


def test_an_inner_jit_is_one_call_and_lifts_what_it_captures():
    def f(x):
        y = jnp.sin(x)
        return st.jit(lambda z: z * y)(x)

    program = st.make_jaxpr(f)(np.ones(3, np.float32))
    assert names(program) == ["sin", "jit"]
    assert len(program.eqns[1].invars) == 2


def test_branching_on_a_traced_value_names_the_line_and_the_way_out():
    def f(x):
        return 1 if x > 0 else 2

    with pytest.raises(TracerBoolConversionError) as caught:
        st.jit(f)(1.0)
    text = str(caught.value)
    assert "Attempted boolean conversion of traced array with shape bool[]" in text
    assert "return 1 if x > 0 else 2" in text and "lax.cond" in text and "the result of" in text


@pytest.mark.parametrize("f, error, phrase", [
    (lambda x: np.asarray(x), TracerArrayConversionError,
     "The numpy.ndarray conversion method __array__() was called on traced array"),
    (lambda x: range(x.astype(int)), TracerIntegerConversionError, "__index__() method was called"),
    (lambda x: float(x), ConcretizationTypeError, "x.astype(float)"),
    (lambda x: x.addressable_shards, ConcretizationTypeError, "addressable_shards"),
    (lambda x: x.sharding, AttributeError, "The 'sharding' attribute is not available on traced"),
])
def test_a_traced_value_has_no_value(f, error, phrase):
    with pytest.raises(error) as caught:
        st.jit(f)(1.0)
    assert phrase in str(caught.value)


def test_a_leaked_tracer_is_refused_inside_and_outside_of_a_trace():
    kept = []
    st.jit(lambda x: kept.append(x) or x)(1.0)
    with pytest.raises(UnexpectedTracerError, match="escape the scope of the transformation"):
        kept[0] + 1
    with pytest.raises(UnexpectedTracerError, match="argument `x` of `<lambda>`"):
        st.jit(lambda y: y + kept[0])(1.0)


def test_a_conflict_names_the_expression_the_types_and_a_fix(mesh):
    a = st.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, P("X", None)))
    b = st.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, P("Y", None)))

    def f(x, y):
        return x + y

    with pytest.raises(ShardingTypeError) as caught:
        st.eval_shape(f, a, b)
    text = str(caught.value)
    assert "add got incompatible shardings for broadcasting: ('X', None), ('Y', None)." in text
    assert "return x + y" in text and "^^^^^" in text and "reshard(" in text


def test_a_sharded_contraction_needs_out_sharding(mesh):
    a = st.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, P(None, "X")))
    b = st.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, P("X", None)))
    with pytest.raises(ShardingTypeError, match="it is ambiguous how the output should be sharded"):
        st.eval_shape(lambda x, y: x @ y, a, b)
    with st.set_mesh(mesh):
        out = st.eval_shape(lambda x, y: jnp.matmul(x, y, out_sharding=P("Y", None)), a, b)
    assert out.sharding.spec == P("Y", None)


def test_lax_ops_want_equal_dtypes_as_in_jax():
    with pytest.raises(TypeError, match="lax.add requires arguments to have the same dtypes"):
        st.make_jaxpr(lambda x, y: lax.add(x, y))(np.float32(1), np.int32(1))


def test_trace_state_is_per_thread():
    import threading

    inside, results = threading.Event(), []
    release = threading.Event()

    def slow(x):
        inside.set()
        release.wait(10)
        return x + 1

    thread = threading.Thread(target=lambda: results.append(float(st.jit(slow)(1.0))))
    thread.start()
    inside.wait(10)
    try:
        assert float(jnp.sin(0.0)) == 0.0      # this thread traces nothing
    finally:
        release.set()
        thread.join()
    assert results == [2.0]


def nested(wrap, depth):
    f = lambda x: x + 1                                     # noqa: E731
    for _ in range(depth):
        f = wrap(f)
    return f


LEVELS = {
    "jit": (200, lambda f: st.jit(lambda x: f(x) * 1.0)),
    "scan": (100, lambda f: lambda x: st.lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]),
    "cond": (100, lambda f: lambda x: st.lax.cond(x > 0, f, lambda y: y, x)),
    "while": (100, lambda f: lambda x: st.lax.while_loop(lambda c: c < 2, f, x)),
    "checkpoint": (100, st.checkpoint)}


@pytest.mark.parametrize("name", LEVELS)
def test_functions_may_nest_deeply(name):
    depth, wrap = LEVELS[name]
    f = nested(wrap, depth)
    assert float(f(1.0)) == float(st.jit(f)(1.0)) == 2
    if name != "while":
        assert float(st.grad(f)(1.0)) == 1


def test_functions_that_nest_without_end_are_named():
    def again(x):
        return st.lax.cond(x > 0, again, lambda y: y, x)
    endless = st.grad(lambda x: endless(x) + 1)
    for f in (st.jit(again), endless):
        with pytest.raises(RecursionError, match="functions are traced inside of one another"):
            f(1.0)
    with pytest.raises(RecursionError, match="maximum recursion depth"):    # not of traces
        def alone(x):
            return alone(x)
        st.jit(alone)(1.0)


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: {"a": x}, lambda x: (x, 0)])
def test_pytrees_may_be_deep(wrap):
    x = np.ones(2, np.float32)
    for _ in range(900):
        x = wrap(x)
    f = st.jit(lambda t: st.tree.leaves(t)[0] + 1)
    for _ in range(2):
        np.testing.assert_array_equal(f(x), [2, 2])
    for _ in range(200):
        x = wrap(x)
    for g in (f, st.tree.leaves_with_path):
        with pytest.raises(RecursionError, match="a pytree is nested more than 1000 levels deep"):
            g(x)
