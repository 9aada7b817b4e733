"""Where jit runs and where results lie: in_shardings, out_shardings, donation, mixed devices.

Messages are JAX's (0.10.2); the differential test at the end asks JAX itself for theirs.
"""
from __future__ import annotations

import collections
import re
import warnings

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from shardtrace.sharding import PartitionSpec as P

Foo = collections.namedtuple("Foo", "x")
DATA = np.arange(16, dtype=np.float32).reshape(8, 2)


@pytest.fixture
def mesh():
    return st.make_mesh((4, 2), ("x", "y"))


def _put(mesh, spec, value=DATA):
    return st.device_put(value, NamedSharding(mesh, spec))


# -- given shardings -------------------------------------------------------------------------------

@pytest.mark.parametrize(("shardings", "kind", "message"), [
    ("x", TypeError, "in_shardings leaf specifications are expected to be PartitionSpec instances "
     "or None, but got x"),
    (P("x", "x"), st.errors.DuplicateSpecError, "A single in_shardings specification can map every "
     r"mesh axis to at most one positional dimension, but P\('x', 'x'\) has duplicate entries"),
    (P("x", ("y", "x")), st.errors.DuplicateSpecError, "has duplicate entries for `x`"),
    (P(P.UNCONSTRAINED, "x"), ValueError,
     r"Unconstrained dims are not allowed when passed to in_shardings: P\(UNCONSTRAINED, 'x'\)"),
])
def test_what_is_never_right_is_refused_when_jit_is_called(shardings, kind, message):
    with pytest.raises(kind, match=message):
        st.jit(lambda v: v, in_shardings=shardings)
    with pytest.raises(kind, match=message.replace("in_shardings", "out_shardings")):
        st.jit(lambda v: v, out_shardings={"a": shardings})


def test_an_empty_mesh_is_refused():
    empty = NamedSharding(Mesh(np.empty((), object), ()), P())
    with pytest.raises(ValueError, match="got an empty NamedSharding"):
        st.jit(lambda v: v, out_shardings=empty)


def test_a_result_laid_out_like_an_argument_keeps_its_own_type():
    """An axis of size 1 lays out nothing, but is part of what types say."""
    mesh = st.make_mesh((2, 1), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Explicit),
                        devices=st.devices()[:2])
    with st.set_mesh(mesh):
        v = _put(mesh, P("y", "x"), DATA[:, :2])
        f = st.jit(lambda v: (jnp.cos(st.sharding.reshard(v, P())), v + 1))
        traced = [str(o.aval) for o in f.trace(v).jaxpr.outvars]
        assert traced == [str(r.aval) for r in f(v)] == ["float32[8,2]", "float32[8@y,2]"]


@pytest.mark.parametrize(("prefix", "args", "message"), [
    ((None,), (1, 2), "is the wrong length: got a tuple or list of length 1 for an args tuple of "
     "length 2"),
    ([None] * 3, (1, 2), "of length 3 for an args tuple of length 2"),
    (Foo(None), (Foo(1),), "is not a tuple: got .*Foo.* instead.*might need to be wrapped in a "
     "singleton tuple"),
    ({"a": None}, ({"a": 1},), "is not a tuple: got .*dict.*might need to be wrapped"),
])
def test_in_shardings_have_one_entry_an_argument(prefix, args, message):
    with pytest.raises(ValueError, match=message):
        st.jit(lambda *a: a[0], in_shardings=prefix)(*args)
    if len(args) == 1:
        st.jit(lambda a: a, in_shardings=(prefix,))(*args)


def test_all_mismatches_of_out_shardings_are_listed():
    asked = {"a": [None, None], "b": (None, None)}
    with pytest.raises(ValueError, match=r"Mismatch details \(2 found\)") as e:
        st.jit(lambda v: v, out_shardings=asked)({"a": 1.0, "b": 2.0})
    assert "pjit out_shardings['a']" in str(e.value)
    assert "pjit out_shardings['b']" in str(e.value)


@pytest.mark.parametrize(("spec", "shape", "message"), [
    (P("x"), (6, 2), r"Sharding NamedSharding\(.*array axis 0 is partitioned 4 times, but the "
     r"dimension size is 6 [\s\S]*asked of one of the arguments with pytree key path v\['w'\]"),
    (P(None, ("x", "y")), (8, 12), "array axis 1 is partitioned 8 times, but the dimension size "
     "is 12"),
    (P("x", None, "y"), (8, 2), r"One of pjit arguments with pytree key path v\['w'\] is "
     "incompatible with its sharding annotation .*only valid for values of rank at least 3"),
])
def test_what_does_not_fit_names_argument_sharding_and_sizes(mesh, spec, shape, message):
    f = st.jit(lambda v: v["w"], in_shardings=NamedSharding(mesh, spec))
    with pytest.raises(ValueError, match=message):
        f({"w": np.zeros(shape)})
    g = st.jit(lambda v: (v, v), out_shardings=(None, NamedSharding(mesh, spec)))
    with pytest.raises(ValueError, match="outputs with pytree key path result"):
        g(np.zeros(shape))


# -- inside of another jit -------------------------------------------------------------------------

def test_shardings_of_a_nested_jit_are_constraints(mesh):
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "y"))
    inner = st.jit(lambda v: v * 2, in_shardings=rows, out_shardings=columns)
    outer = st.jit(lambda v: inner(v) + 1)
    text = str(outer.trace(DATA).jaxpr)
    assert text.count("sharding_constraint") == 2
    y = outer(DATA)
    np.testing.assert_array_equal(y, DATA * 2 + 1)
    assert y.sharding == NamedSharding(mesh, P(None, "y"))


def test_a_nested_jit_must_fit_too(mesh):
    inner = st.jit(lambda v: v, in_shardings=NamedSharding(mesh, P("x")))
    with pytest.raises(st.errors.IndivisibleError, match="arguments with pytree key path v"):
        st.jit(lambda v: inner(v))(np.zeros((6, 2)))


def test_over_explicit_axes_nested_shardings_leave_the_type():
    mesh = st.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    inner = st.jit(lambda v: v * 2, out_shardings=NamedSharding(mesh, P("y")))
    seen = []

    @st.jit
    def outer(v):
        y = inner(v)
        seen.append(str(st.typeof(y)))
        return y

    outer(_put(mesh, P("x")))
    assert seen == ["float32[8@x,2]"]


def test_vmap_and_grad_of_a_function_with_shardings(mesh):
    rows = NamedSharding(mesh, P("x"))
    f = st.jit(lambda v: (v * v).sum(), in_shardings=rows)
    np.testing.assert_allclose(st.grad(f)(DATA), 2 * DATA)
    np.testing.assert_allclose(st.vmap(f)(np.stack([DATA] * 3)), [(DATA * DATA).sum()] * 3)


def test_inline_leaves_no_call():
    inner = st.jit(lambda v: v * 2, inline=True)
    program = st.make_jaxpr(lambda v: inner(v) + 1)(1.0).jaxpr
    assert [e.primitive.name for e in program.eqns] == ["mul", "add"]


# -- devices ---------------------------------------------------------------------------------------

def _incompatible(message):
    return pytest.raises(ValueError, match="Received incompatible devices for jitted computation. "
                         "Got " + message)


def test_arguments_on_different_devices_are_named():
    a, b = st.device_put(DATA, st.devices()[0]), st.device_put(DATA, st.devices()[1])
    with _incompatible(r"argument v\[0\] of .*\.f with shape float32\[8,2\] and with device ids "
                       r"\[0\] on platform CPU and argument v\[1\] of .*\.f with shape "
                       r"float32\[8,2\] and with device ids \[1\] on platform CPU"):
        def f(*v):
            return v
        st.jit(f)(a, b)


def test_an_argument_that_is_not_used_may_lie_anywhere(mesh):
    a, b = st.device_put(DATA, st.devices()[0]), st.device_put(DATA, st.devices()[1])
    assert st.jit(lambda v, w: v * 2)(a, b).devices() == {st.devices()[0]}
    assert st.jit(lambda v, w: w * 2)(_put(mesh, P("x")), b).devices() == {st.devices()[1]}
    y = st.jit(lambda v, w: w * 2)(a, _put(mesh, P("x")))
    assert y.sharding == NamedSharding(mesh, P("x"))
    assert not st.jit(lambda v: jnp.ones(3))(b).committed
    with _incompatible("argument v"):
        st.jit(lambda v, w: v * 2, keep_unused=True)(a, b)


def test_the_same_devices_in_another_order_are_others(mesh):
    reversed_ = Mesh(mesh.devices.ravel()[::-1].reshape(4, 2), ("x", "y"))
    with _incompatible(r"argument a of .*\[0, 1, 2, 3, 4, 5, 6, 7\].* argument b of .*"
                       r"\[7, 6, 5, 4, 3, 2, 1, 0\]"):
        st.jit(lambda a, b: a + b)(_put(mesh, P("x")), _put(reversed_, P("x")))


def test_an_argument_and_an_op_inside_are_named(mesh):
    x = st.device_put(DATA, st.devices()[0])
    s = NamedSharding(mesh, P("x"))
    with _incompatible(r"argument v of .*\.f with shape float32\[8,2\] and with device ids \[0\] "
                       r"on platform CPU and sharding_constraint inside jit with device ids \[0"):
        def f(v):
            return st.lax.with_sharding_constraint(v, s)
        st.jit(f)(x)
    with _incompatible(r"argument v of .*\[0\].* and shard_map inside jit with device ids"):
        st.jit(lambda v: st.shard_map(lambda u: u, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(
            v))(x)


def test_an_argument_and_out_shardings_are_named(mesh):
    x = st.device_put(DATA, st.devices()[0])
    with _incompatible(r"argument v of .* and explicit output sharding with device ids \[0, 1"):
        st.jit(lambda v: v, out_shardings=NamedSharding(mesh, P("x")))(x)
    with _incompatible(r"argument v of .*\[0\].* and explicit output sharding with device ids "
                       r"\[1\]"):
        st.jit(lambda v: v, out_shardings=SingleDeviceSharding(st.devices()[1]))(x)


def test_free_arguments_follow_and_asked_results_are_committed(mesh):
    free = jnp.arange(8.0)
    assert not free.committed and not st.jit(lambda v: v * 2)(free).committed
    y = st.jit(lambda a, b: a + b[:, 0])(free, _put(mesh, P("x")))
    assert y.committed and y.devices() == set(mesh.devices.flat)
    one = SingleDeviceSharding(st.devices()[0])
    assert st.jit(lambda v: v * 2, out_shardings=one)(free).committed


def test_the_device_argument_is_deprecated_and_moves_what_it_is_given(mesh):
    with pytest.warns(DeprecationWarning, match="backend and device argument on jit is deprecated"):
        f = st.jit(lambda v: v * 2, device=st.devices()[3])
    assert f(DATA).devices() == f(_put(mesh, P("x"))).devices() == {st.devices()[3]}
    with st.set_mesh(mesh), pytest.raises(ValueError, match="Mesh context manager should not be"):
        f(DATA)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"device": 0, "backend": "cpu"}, "can't specify both a device and a backend"),
    ({"device": 0, "in_shardings": P()}, "then in_shardings should not be specified"),
    ({"backend": "cpu", "out_shardings": P()}, "then out_shardings should not be specified"),
])
def test_a_device_goes_with_no_other_placement(arguments, message):
    if "device" in arguments:
        arguments = {**arguments, "device": st.devices()[0]}
    with warnings.catch_warnings(), pytest.raises(ValueError, match=message):
        warnings.simplefilter("ignore", DeprecationWarning)
        st.jit(lambda v: v, **arguments)


# -- donation and the rest -------------------------------------------------------------------------

def test_a_donated_argument_is_used_by_a_result_of_its_size(mesh):
    @st.jit(donate_argnums=(0, 1, 2))
    def f(same, flat, other):
        return same * 2, flat.reshape(4, 4) + other[0, 0]

    same, flat, other = (_put(mesh, P("x"), v) for v in (DATA, DATA.ravel(), DATA[:, :1]))
    with pytest.warns(UserWarning, match=r"Some donated buffers were not usable: float32\[8,1\]"):
        f(same, flat, other)
    assert same.is_deleted() and flat.is_deleted() and not other.is_deleted()


def test_warnings_call_the_package_as_the_user_does():
    with pytest.warns(DeprecationWarning) as said:
        st.jit(lambda x: x, backend="cpu")(1.0)
    text = str(said[0].message)
    assert "`st.device_put(" in text and "jax" not in text
    with pytest.warns(UserWarning) as said:
        st.jit(lambda x: x[0], donate_argnums=0)(jnp.arange(3.0))
    assert "http" not in str(said[0].message)


def test_types_are_no_arguments():
    with pytest.raises(TypeError, match=r"Argument 'v\['b'\]' of shape float32\[3\] of type .*"
                       "ShapeDtypeStruct.* is not a valid JAX type"):
        st.jit(lambda v: v)({"a": 1.0, "b": st.ShapeDtypeStruct((3,), np.float32)})


def test_compiler_options_are_of_the_outermost():
    inner = st.jit(lambda v: v, compiler_options={"xla_embed_ir_in_executable": True})
    np.testing.assert_array_equal(inner(DATA), DATA)
    with pytest.raises(ValueError, match="can only be passed to top-level `st.jit`"):
        st.jit(lambda v: inner(v))(DATA)


def test_compiler_options_of_nobody_are_refused():
    f = lambda v: v * 2  # noqa: E731
    for given in ({"objectiv": "bytes"}, {"exec_time_compilation_effort": 0.0}):
        for attempt in (lambda given=given: st.jit(f, compiler_options=given)(DATA),
                        lambda given=given: st.jit(f).lower(DATA).compile(given)):
            with pytest.raises(st.errors.JaxRuntimeError,
                               match=f"No such compile option: '{[*given][0]}'"):
                attempt()
    inner = st.jit(f, compiler_options={"objectiv": "bytes"})     # nothing is compiled yet
    assert inner.trace(DATA).jaxpr.eqns
    with pytest.raises(ValueError, match="can only be passed to top-level `st.jit`"):
        st.jit(lambda v: inner(v))(DATA)
    for given in ({"exec_time_optimization_effort": 0.0}, {"xla_embed_ir_in_executable": True}, {},
                  {"memory_fitting_level": 1, "optimization_level": 1}, None, {"objective": None}):
        np.testing.assert_array_equal(st.jit(f, compiler_options=given)(DATA), DATA * 2)
        np.testing.assert_array_equal(st.jit(f).lower(DATA).compile(given)(DATA), DATA * 2)


def test_static_numbers_and_names_given_together_are_not_completed():
    seen = []

    def f(a, b):
        seen.append(isinstance(b, int))
        return a

    st.jit(f, static_argnums=1)(1, b=2)
    st.jit(f, static_argnums=1, static_argnames=())(1, b=2)
    assert seen == [True, False]


def test_a_compiled_function_needs_no_static_arguments():
    compiled = st.jit(lambda n, v: v * n, static_argnums=0).lower(3, DATA).compile()
    np.testing.assert_array_equal(compiled(DATA), DATA * 3)


def test_a_constraint_outside_of_jit_keeps_committed_arrays_on_their_devices(mesh):
    other = Mesh(mesh.devices.ravel()[::-1].reshape(4, 2), ("x", "y"))
    with pytest.raises(ValueError, match="Received incompatible devices"):
        st.lax.with_sharding_constraint(_put(mesh, P()), NamedSharding(other, P("x")))
    abstract = NamedSharding(mesh.abstract_mesh, P("y"))
    moved = st.lax.with_sharding_constraint(_put(mesh, P("x")), abstract)
    assert moved.sharding == NamedSharding(mesh, P("y"))
    with pytest.raises(TypeError, match="sharding on the input must be a `NamedSharding`"):
        st.lax.with_sharding_constraint(jnp.arange(8), abstract)
    with pytest.raises(ValueError, match="got sharding None which is not allowed"):
        st.lax.with_sharding_constraint(jnp.arange(8), None)


def test_messages_begin_as_those_of_jax(mesh):
    jax = pytest.importorskip("jax")
    if jax.device_count() < 8:
        pytest.skip("needs 8 devices: XLA_FLAGS=--xla_force_host_platform_device_count=8")

    def both(program):
        said = []
        for module in (st, jax):
            with pytest.raises(Exception) as e:
                program(module)
            text = str(e.value).splitlines()[0]
            text = re.sub(r"<class '[^']*'>|\S*<locals>\.", "", text)
            said.append((type(e.value).__name__, text[:90]))
        return said

    for program in (
        lambda m: m.jit(lambda v: v, in_shardings="x"),
        lambda m: m.jit(lambda v: v, in_shardings=m.P("x", "x")),
        lambda m: m.jit(lambda v: v, in_shardings=m.P(m.P.UNCONSTRAINED)),
        lambda m: m.jit(lambda v, w: v, in_shardings=(None,))(1.0, 2.0),
        lambda m: m.jit(lambda v: v, out_shardings=m.P("x"))(1.0),
        lambda m: m.jit(lambda v, w: (v, w))(m.device_put(DATA, m.devices()[0]),
                                        m.device_put(DATA, m.devices()[1])),
    ):
        ours, theirs = both(program)
        assert ours == theirs


def test_what_an_index_takes_is_on_the_device_of_its_array() -> None:
    """Also where it takes nothing, and nothing is computed."""
    device = st.devices()[1]
    x = jnp.asarray([1, 2], device=device)
    for index in (np.zeros(2, bool), np.array([True, False]), np.zeros(0, int), slice(0, 0),
                  jnp.zeros(0, int), (None, np.zeros(2, bool))):
        assert x[index].device == device
    assert x.at[np.zeros(0, int)].set(1).device == device
