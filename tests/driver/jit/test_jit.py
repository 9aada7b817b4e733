"""jit: its cache, its arguments, its stages."""
import collections

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType, NamedSharding, SingleDeviceSharding
from shardtrace.sharding import PartitionSpec as P

Point = collections.namedtuple("Point", "x y")


@pytest.fixture
def explicit():
    return st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)


@pytest.fixture
def auto():
    return st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def put(mesh, spec, shape=(8, 8)):
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return st.device_put(data, NamedSharding(mesh, spec))


def counting(f):
    calls = []

    @st.jit
    def wrapped(*args):
        calls.append(1)
        return f(*args)

    return wrapped, calls


def test_a_second_call_with_equal_types_does_not_trace_again():
    f, calls = counting(lambda x: x * 2)
    f(np.ones(3, np.float32))
    f(np.zeros(3, np.float32))
    assert len(calls) == 1
    f(np.ones(4, np.float32))
    f(np.ones(3, np.int32))
    assert len(calls) == 3


def test_explicit_specs_retrace_and_auto_shardings_do_not(explicit, auto):
    f, calls = counting(lambda x: x * 2)
    f(put(explicit, P("X")))
    f(put(explicit, P("Y")))
    f(put(explicit, P("X")))
    assert len(calls) == 2
    g, calls = counting(lambda x: x * 2)
    assert g(put(auto, P("x"))).sharding.spec == P("x")
    assert g(put(auto, P("y"))).sharding.spec == P("y")
    assert len(calls) == 1


def test_pytrees_go_in_and_out():
    tree = {"a": np.float32(1), "b": [np.float32(2), Point(np.float32(3), None)]}
    out = st.jit(lambda t: {"sum": t["a"] + t["b"][0] + t["b"][1].x, "same": t})(tree)
    assert float(out["sum"]) == 6.0
    assert isinstance(out["same"]["b"][1], Point) and out["same"]["b"][1].y is None


def test_static_arguments_by_number_and_name():
    f = st.jit(lambda x, n: x * n, static_argnums=1)
    assert float(f(2.0, 3)) == 6.0
    g = st.jit(lambda x, *, mode: x + 1 if mode == "inc" else x - 1, static_argnames="mode")
    assert float(g(1.0, mode="inc")) == 2.0 and float(g(1.0, mode="dec")) == 0.0
    h = st.jit(lambda n, x: x.reshape(n, -1), static_argnames=("n",))
    assert h(2, np.arange(4.0)).shape == (2, 2) and h(n=4, x=np.arange(4.0)).shape == (4, 1)


@pytest.mark.parametrize("kwargs, phrase", [
    ({"static_argnums": 3}, "static_argnums=(3,), but only accepts 1 positional"),
    ({"static_argnames": "zz"}, "invalid argnames {'zz'} in static_argnames"),
    ({"static_argnames": "x", "donate_argnames": "x"}, "cannot intersect"),
])
def test_wrong_static_arguments(kwargs, phrase):
    with pytest.raises(ValueError) as caught:
        st.jit(lambda x: x, **kwargs)
    assert phrase in str(caught.value)


def test_static_arguments_must_be_hashable():
    with pytest.raises(ValueError, match="Non-hashable static arguments are not supported"):
        st.jit(lambda x, n: x, static_argnums=1)(1.0, [1])


def test_what_is_no_array_is_refused_with_its_path():
    with pytest.raises(TypeError, match=r"passed to the function at path x\[1\]"):
        st.jit(lambda x: x)([1.0, "no"])
    with pytest.raises(TypeError, match="returned a value of type <class 'str'>"):
        st.jit(lambda x: "no")(1.0)


def test_shardings_of_results(explicit, auto):
    x = put(auto, P("x", "y"))
    assert st.jit(lambda x: 2 * jnp.sin(x) + 1)(x).sharding == x.sharding
    assert st.jit(lambda x: x.sum(axis=0))(x).sharding.spec == P("y")
    assert st.jit(lambda x: x.T)(x).sharding.spec == P("y", "x")
    assert st.jit(lambda x: x @ x.T)(put(auto, P("x"))).sharding.spec == P("x")
    y = put(explicit, P("X", "Y"))
    assert st.typeof(st.jit(lambda y: y.sum(axis=0))(y)).str_short(True) == "f32[8@Y]"
    assert isinstance(st.jit(lambda x: x)(1.0).sharding, SingleDeviceSharding)


def test_values_do_not_depend_on_shardings(explicit, auto):
    def f(x):
        return jnp.tanh(x @ x.T).sum(axis=1) + x[0]

    expected = np.asarray(st.jit(f)(np.asarray(put(auto, P()))))
    for mesh, spec in [(auto, P("x", "y")), (auto, P("y")), (auto, P(None, ("x", "y")))]:
        np.testing.assert_allclose(np.asarray(st.jit(f)(put(mesh, spec))), expected, rtol=1e-5)


def test_in_and_out_shardings(auto):
    s, t = NamedSharding(auto, P("x")), NamedSharding(auto, P(None, "y"))
    f = st.jit(lambda a: a + 1, in_shardings=s, out_shardings=t)
    out = f(np.zeros((8, 8), np.float32))
    assert out.sharding == t
    with pytest.raises(ValueError, match="Sharding passed to jit does not match the sharding on "
                       "the respective arg"):
        f(put(auto, P("y")))
    with pytest.raises(ValueError, match="wrong length: got a tuple or list of length 1"):
        st.jit(lambda a, b: a, in_shardings=(s,))(1.0, 2.0)
    with pytest.raises(RuntimeError, match="jit requires a non-empty mesh in context"):
        st.jit(lambda a: a, in_shardings=P("x"))(np.ones(8))


def test_mixed_device_sets_are_refused(auto):
    lone = st.device_put(np.ones((8, 8), np.float32), st.devices()[3])
    with pytest.raises(ValueError, match="Received incompatible devices for jitted computation"):
        st.jit(lambda a, b: a + b)(put(auto, P("x")), lone)


def test_each_stage_shows_its_types_and_the_compiled_one_runs(explicit):
    f = st.jit(lambda x, w: jnp.tanh(x @ w))
    x, w = put(explicit, P("X", None)), put(explicit, P(None, "Y"))
    traced = f.trace(x, w)
    assert str(traced.out_info.sharding.spec) == "P('X', 'Y')"
    lowered = traced.lower()
    compiled = lowered.compile()
    assert "dot_general" in lowered.as_text() and "f32[8@X,8@Y]" in lowered.as_text()
    assert "{V:(X,Y)}" in compiled.as_text()
    np.testing.assert_allclose(np.asarray(compiled(x, w)), np.asarray(f(x, w)))
    with pytest.raises(ValueError, match="input shardings that disagree"):
        compiled(w, x)


def test_lowering_needs_no_devices():
    big = st.sharding.AbstractMesh((256, 256), ("X", "Y"), (AxisType.Explicit,) * 2)
    x = st.ShapeDtypeStruct((4096, 64), np.float32, sharding=NamedSharding(big, P("X")))
    text = st.jit(lambda x: x.sum(0)).lower(x).compile().as_text()
    assert "psum_invariant" in text


def test_donated_arguments_are_deleted():
    x = jnp.ones(4)
    st.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        x + 1


def test_methods_can_be_jitted():
    class Model:
        scale = 3.0

        @st.jit
        def plain(x):
            return x * 2

        @__import__("functools").partial(st.jit, static_argnums=0)
        def __call__(self, x):
            return x * self.scale

    assert float(Model()(2.0)) == 6.0
    assert float(Model.plain(2.0)) == 4.0


def test_both_executors_agree(explicit):
    f = st.jit(lambda x: jnp.tanh(x * 2).sum(0))
    x = put(explicit, P("X", None))
    first = np.asarray(f(x))
    with st.config.override(shardtrace_engine="per_device"):
        np.testing.assert_allclose(np.asarray(f(x)), first, rtol=1e-6)


@pytest.mark.parametrize("make", [
    st.jit, st.pmap, st.vmap, st.grad, st.value_and_grad, st.jacfwd, st.jacrev, st.checkpoint,
    st.custom_jvp, st.custom_vjp], ids=lambda make: make.__name__)
def test_what_is_made_of_a_function_says_which(make):
    def f(x):
        """Doc."""
        return x
    made = make(f)
    assert made.__wrapped__ is f and made.__name__ == "f" and "Doc." in made.__doc__
