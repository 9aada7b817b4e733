"""Callbacks with results: pure_callback and io_callback."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.experimental import io_callback
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from .test_callbacks import F32, V, like, on


def test_pure_callback_gets_arrays_and_gives_arrays(executor):
    def host(d, *, k):
        return {"a": np.sin(d["z"]), "b": (np.asarray(k),)}
    shapes = {"a": like(V), "b": (st.ShapeDtypeStruct((), F32),)}
    out = st.jit(lambda x: st.pure_callback(host, shapes, {"z": x}, k=x[1]))(V)
    np.testing.assert_allclose(out["a"], np.sin(V), rtol=1e-6)
    assert float(out["b"][0]) == 1


def test_pure_callback_is_called_once_on_whole_values_and_once_a_device_in_regions(executor, mesh):
    seen = []

    def host(a):
        seen.append(a.shape)
        return np.sin(a)

    def f(v):
        return st.pure_callback(host, like(v), v)

    for g, shapes in ((f, [(4,)]), (st.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x")),
                                    [(2,)] * 4)):
        seen.clear()
        np.testing.assert_allclose(st.jit(g)(on(mesh)), np.sin(np.arange(4)), rtol=1e-6)
        assert seen == shapes


def test_unused_pure_callbacks_are_dropped_and_io_callbacks_are_not(executor):
    seen = []

    def host(name):
        def call(a):
            seen.append(name)
            return np.asarray(a)
        return call

    def f(x):
        st.pure_callback(host("pure"), like(x), x)
        io_callback(host("io"), like(x), x)
        return x
    st.jit(f)(V)
    assert seen == ["io"]


def test_io_callback_runs_in_program_order_and_once_an_iteration(executor):
    seen = []
    f = st.jit(lambda x: lax.fori_loop(
        0, 3, lambda i, c: c + io_callback(lambda a, i: (seen.append(int(i)), a)[1], like(c), c, i),
        x))
    assert float(f(F32(1))) == 8
    assert seen == [0, 1, 2]


def test_what_a_host_function_returns_may_differ_between_devices(executor, mesh):
    count = iter(range(100))
    f = st.shard_map(lambda v: v * 0 + io_callback(lambda: np.float32(next(count)), like(v[0])),
                     mesh=mesh, in_specs=P(("x", "y")), out_specs=P(("x", "y")))
    np.testing.assert_array_equal(st.jit(f)(on(mesh, P(("x", "y")))), [0, 1, 2, 3])


CASES = [
    (lambda a: a[:2], "Incorrect output shape for return value #0: Expected: (3,), Actual: (2,)"),
    (lambda a: np.asarray(a, np.int32),
     "Incorrect output dtype for return value #0: Expected: float32, Actual: int32"),
    (lambda a: (a, a), "Mismatched number of outputs from callback. Expected: 1, Actual: 2"),
    (lambda a: 1 / 0, "ZeroDivisionError: division by zero"),
]


@pytest.mark.parametrize(("host", "phrase"), CASES)
def test_failing_host_functions_end_the_program(host, phrase, executor):
    with pytest.raises(st.errors.JaxRuntimeError) as caught:
        st.jit(lambda x: st.pure_callback(host, like(x), x))(V)
    assert "INTERNAL: CpuCallback error calling callback" in str(caught.value)
    assert phrase in str(caught.value)


@pytest.mark.parametrize("name", ["pure_callback", "io_callback", "debug.callback"])
def test_failures_of_host_functions_are_logged(name, caplog):
    def fail(a):
        raise ValueError("Ooops")

    def f(x):
        if name == "debug.callback":
            st.debug.callback(fail, x)
            return x
        return (io_callback if name == "io_callback" else st.pure_callback)(fail, like(x), x)

    with pytest.raises(st.errors.JaxRuntimeError):
        st.jit(f)(V)
        st.effects_barrier()
    (record,) = [r for r in caplog.records if r.levelname == "ERROR"]
    assert record.message == f"st.{name} failed"
    assert record.exc_info[0] is ValueError


def test_results_of_64_bits_are_narrowed_as_usual():
    f = st.jit(lambda x: st.pure_callback(lambda a: np.float64(2), like(x), x))
    assert float(f(F32(1))) == 2
    with pytest.raises(ValueError, match="result_shape_dtypes cannot specify 64-bit types"):
        st.pure_callback(lambda a: a, st.ShapeDtypeStruct((3,), np.float64), V)


@pytest.mark.parametrize(("method", "shapes"), [
    ("sequential", [((2,), (2,))] * 3), ("sequential_unrolled", [((2,), (2,))] * 3),
    ("expand_dims", [((3, 2), (1, 2))]), ("broadcast_all", [((3, 2), (3, 2))]),
    ("legacy_vectorized", [((3, 2), (2,))]),
])
@pytest.mark.parametrize("jitted", [False, True])
def test_vmap_methods_say_how_the_function_is_called(method, shapes, jitted):
    seen = []

    def host(a, b):
        seen.append((a.shape, b.shape))
        return np.asarray(a) + np.asarray(b)

    f = st.vmap(lambda x, y: st.pure_callback(host, like(x), x, y, vmap_method=method),
                in_axes=(0, None))
    x = np.arange(6, dtype=F32).reshape(3, 2)
    np.testing.assert_array_equal((st.jit(f) if jitted else f)(x, np.ones(2, F32)), x + 1)
    assert seen == shapes


def test_the_mapped_dimension_may_be_split(mesh):
    x = on(mesh)
    f = st.vmap(lambda v: st.pure_callback(lambda a: np.asarray(a) * 2, like(v), v,
                                           vmap_method="expand_dims"))
    np.testing.assert_array_equal(st.jit(f)(x), [0, 2, 4, 6])


X = F32(1)


@pytest.mark.parametrize(("call", "error", "phrase"), [
    (lambda: st.vmap(lambda x: st.pure_callback(np.sin, like(x), x))(V), NotImplementedError,
     "vmap is only supported for the pure_callback primitive when vmap_method is one of"),
    (lambda: st.pure_callback(np.sin, like(V), V, vmap_method="no"), ValueError,
     "vmap_method must be on of the allowed methods"),
    (lambda: st.grad(lambda x: st.pure_callback(np.sin, like(x), x))(X), ValueError,
     "Pure callbacks do not support JVP. Please use `st.custom_jvp`"),
    (lambda: st.grad(lambda x: (st.pure_callback(np.sin, like(x), x), x)[1])(X), ValueError,
     "Pure callbacks do not support JVP"),
    (lambda: st.grad(lambda x: io_callback(np.sin, like(x), x))(X), ValueError,
     "IO callbacks do not support JVP."),
    (lambda: st.vmap(lambda x: io_callback(np.sin, like(x), x, ordered=True))(V), ValueError,
     "Cannot `vmap` ordered IO callback."),
    (lambda: st.vmap(lambda x: lax.cond(x > 1, lambda: io_callback(np.sin, like(x), x),
                                        lambda: x))(V),
     NotImplementedError, "IO effect not supported in vmap-of-cond."),
    (lambda: st.vmap(lambda x: lax.while_loop(
        lambda c: c < 5, lambda c: io_callback(np.cos, like(c), c) + c, x))(V),
     NotImplementedError, "not supported in while_loop with batched predicate"),
    (lambda: st.grad(st.checkpoint(lambda x: (io_callback(lambda: None, None), x * x)[1]))(X),
     NotImplementedError, "Effects not supported in partial-eval of `checkpoint`/`remat`"),
])
def test_refused_transformations_raise_what_jax_raises(call, error, phrase):
    with pytest.raises(error) as caught:
        call()
    assert phrase in str(caught.value)


def test_a_rule_of_the_users_makes_pure_callback_differentiable():
    @st.custom_jvp
    def sine(x):
        return st.pure_callback(np.sin, like(x), x, vmap_method="expand_dims")

    @sine.defjvp
    def _(primals, tangents):
        return sine(primals[0]), jnp.cos(primals[0]) * tangents[0]

    np.testing.assert_allclose(st.vmap(st.grad(sine))(V), np.cos(V), rtol=1e-6)
    assert float(st.grad(lambda x: st.pure_callback(np.sin, like(x), lax.stop_gradient(x)) * x)(X)
                 ) == pytest.approx(np.sin(1), rel=1e-6)


def test_partly_manual_regions_refuse_results(mesh):
    f = st.shard_map(lambda v: st.pure_callback(np.sin, like(v), v), mesh=mesh, in_specs=P("x"),
                     out_specs=P("x"), axis_names={"x"})
    with pytest.raises(NotImplementedError, match="no partial automatic sharding"):
        st.jit(f)(on(mesh))


def test_the_calling_device_may_be_named(mesh):
    one = st.sharding.SingleDeviceSharding(st.devices()[0])
    f = st.jit(lambda x: st.pure_callback(np.sin, like(x), x, sharding=one))
    np.testing.assert_allclose(f(V), np.sin(V), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="only supports SingleDeviceSharding"):
        st.pure_callback(np.sin, like(V), V, sharding=NamedSharding(mesh, P()))


def test_host_functions_may_use_arrays_outside_of_the_trace(executor, mesh):
    def host(a):
        return jnp.sin(a) + st.jit(jnp.cos)(a)
    f = st.jit(st.shard_map(lambda v: st.pure_callback(host, like(v), v), mesh=mesh,
                            in_specs=P("x"), out_specs=P("x")))
    want = np.sin(np.arange(4)) + np.cos(np.arange(4))
    np.testing.assert_allclose(f(on(mesh)), want, rtol=1e-6)
    assert st.effects_barrier() is None
