"""Tracing, partitioning and running in many threads at once: shared tables do not get mixed up."""
from __future__ import annotations

import gc
import sys
import threading

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.distributed import run_processes
from shardtrace.ir.meshes.manual_state import ManualState
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.settings.context import STATE, config
from shardtrace.ir.shardings.sharding import named_sharding_abstract
from shardtrace.ir.spec import spec_from_entries
from shardtrace.ir.types import array_type
from shardtrace.sharding import AxisType, Mesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

THREADS = 8


@pytest.fixture(autouse=True)
def quick_switches():
    """Let threads take turns every few bytecodes, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(f, count=THREADS):
    """What `f(i)` gives in each of many threads that begin together."""
    results, errors = [None] * count, []
    start = threading.Barrier(count)

    def run(i):
        try:
            start.wait(30)
            with config.override(jax_num_cpu_devices=8):
                results[i] = f(i)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]
    return results


def test_equal_things_are_one_thing_whoever_makes_them():
    def make(i):
        made = []
        for n in range(60):
            mesh = AbstractMesh((2, 4 + n), ("x", f"thread{n}"), (AxisType.Explicit,) * 2)
            spec = P("x", ("u", f"v{n}"))
            sharding = named_sharding_abstract(mesh, spec_from_entries((("x",), ())))
            made.append((mesh, spec, sharding, array_type((4 + 2 * n, 3), np.dtype(np.float32),
                                                          sharding=sharding),
                         ManualState({f"a{n}"}, {f"b{n}"})))
        return made

    first, *others = in_threads(make)
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert all(x is y for x, y in zip(a, b, strict=True))


def test_one_function_in_many_threads():
    @st.jit
    def f(x, w):
        return jnp.tanh(x @ w).sum(0), x.max()

    def run(i):
        mesh = st.make_mesh((4, 2), ("x", "y"))
        x = st.device_put(np.arange(32, dtype=np.float32).reshape(8, 4) / 32,
                          NamedSharding(mesh, P("x")))
        w = st.device_put(np.ones((4, 6), np.float32), NamedSharding(mesh, P(None, "y")))
        y, top = f(x, w)
        return np.asarray(y), float(top), f.lower(x, w).compile().as_text()

    first, *others = in_threads(run)
    for other in others:
        np.testing.assert_array_equal(other[0], first[0])
        assert other[1:] == first[1:]


def program_of(i):
    """A program of its own for every thread: size, mesh and ops depend on the number."""
    sizes = [(8,), (4, 2), (2, 4), (2, 2, 2)][i % 4]
    kind = (AxisType.Auto, AxisType.Explicit)[i // 4 % 2]
    mesh = st.make_mesh(sizes, tuple("xyz"[:len(sizes)]), axis_types=(kind,) * len(sizes))
    n = 8 * (i + 1)
    x = st.device_put(np.linspace(0, 1, n * 8, dtype=np.float32).reshape(n, 8),
                      NamedSharding(mesh, P("x")))

    def loss(x):
        h = jnp.sin(x) * (i + 1)
        h = lax.fori_loop(0, 2, lambda _, v: v * 0.5, h)
        return jnp.mean(jnp.where(h > 0, h, -h) ** 2)

    value, gradient = st.jit(st.value_and_grad(loss))(x)
    shown = st.jit(loss).lower(x).compile().as_text()
    mapped = st.vmap(lambda r: r.sum() + i)(np.ones((3, 4), np.float32))
    return float(value), np.asarray(gradient), shown, np.asarray(mapped), (x * 2).sharding.spec


def test_many_functions_in_many_threads():
    with config.override(jax_num_cpu_devices=8):
        expected = [program_of(i) for i in range(THREADS)]
    found = in_threads(lambda i: [program_of((i + k) % THREADS) for k in range(3)])
    for i, results in enumerate(found):
        for k, result in enumerate(results):
            for a, b in zip(result, expected[(i + k) % THREADS], strict=True):
                np.testing.assert_array_equal(a, b) if isinstance(b, np.ndarray) else None
                assert isinstance(b, np.ndarray) or a == b


def test_meshes_and_configuration_are_of_each_thread():
    def run(i):
        mesh = Mesh(np.array(st.devices()[:2 + i % 3]), (f"a{i}",))
        seen = set()
        for _ in range(50):
            with st.set_mesh(mesh), config.override(jax_enable_x64=bool(i % 2)):
                seen.add((STATE.mesh, STATE.abstract_mesh, jnp.arange(2).dtype.name))
        return seen == {(mesh, mesh.abstract_mesh, "int64" if i % 2 else "int32")}

    assert all(in_threads(run))


def test_the_garbage_collector_is_on_again_when_all_have_traced():
    assert gc.isenabled()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)             # threads meet between any two calls
    try:
        for _ in range(10):
            in_threads(lambda i: [st.make_jaxpr(lambda x: jnp.sin(x) * i)(1.0) for _ in range(20)])
            assert gc.isenabled()
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.usefixtures("only_own_objects")
def test_arrays_can_be_listed_while_others_are_made():
    """Asking the garbage collector would hand out tuples that other threads still fill."""
    def run(i):
        seen = []
        for k in range(30):
            x = jnp.ones(3) * (i + k)
            seen.append(any(y is x for y in st.live_arrays()))
            x.delete()
            seen.append(not any(y is x for y in st.live_arrays()))
        return all(seen)

    gc.collect()                                      # what other tests left in cycles
    before = len(st.live_arrays())
    assert all(in_threads(run))
    assert len(st.live_arrays()) <= before


def test_arrays_are_listed_for_the_process_that_made_them():
    def program(i):
        mine = [st.device_put(np.full(5, i, np.float32)) for _ in range(i + 1)]
        return {id(x) for x in st.live_arrays()}, mine

    found = run_processes(program, 3)
    made = [{id(x) for x in mine} for _, mine in found]
    assert [listed for listed, _ in found] == made
    assert set().union(*made) <= {id(x) for x in st.live_arrays()}


def test_layouts_are_chosen_in_many_threads_that_begin_at_once():
    """What is known of a rule grows with the axes that are met, while others read it."""
    def run(i):
        mesh = st.make_mesh((2, 2, 2), ("x", "y", "z"))
        names = [("x", "y", "z"), ("y", "z", "x"), ("z", "x", "y")][i % 3]
        put = [st.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P(*spec)))
               for spec in (names[:2], names[1:], (None, names[0]))]
        return float(st.jit(lambda a, b, c: (jnp.tanh(a @ b) @ c + a).sum())(*put))

    for _ in range(5):
        st.clear_caches()
        assert len(set(in_threads(run))) == 1


# -- one thread traces -----------------------------------------------------------------------------

def test_threads_that_call_a_function_for_the_first_time_trace_it_once():
    for _ in range(5):
        traced = []

        @st.jit
        def f(x):
            traced.append(threading.get_ident())                             # noqa: B023
            for _ in range(20):
                x = jnp.sin(x) * 2
            return x

        found = in_threads(lambda i: np.asarray(f(np.float32(i))))
        assert len(traced) == 1
        assert all(found[i] == np.asarray(f(np.float32(i))) for i in range(THREADS))


def test_threads_trace_other_shapes_beside_each_other():
    traced = []

    @st.jit
    def f(x):
        traced.append(x.shape)
        return x + 1

    in_threads(lambda i: f(np.zeros(1 + i % 3, np.float32)))
    assert sorted(traced) == [(1,), (2,), (3,)]


def test_threads_trace_functions_that_they_share_in_any_order():
    for _ in range(10):
        left, right = st.jit(lambda x: x + 1), st.jit(lambda x: x * 2)

        @st.jit
        def a(x):
            return left(right(x))                                            # noqa: B023

        @st.jit
        def b(x):
            return right(left(x))                                            # noqa: B023

        found = in_threads(lambda i: float((a, b)[i % 2](np.float32(3))))
        assert found == [7.0, 8.0] * (THREADS // 2)


def test_two_threads_may_each_wait_for_what_the_other_traces():
    meet = threading.Barrier(2)
    inside = threading.local()

    @st.jit
    def left(x):
        if not getattr(inside, "busy", False):
            inside.busy = True
            meet.wait(30)
            return right(x) + 1
        return x + 1

    @st.jit
    def right(x):
        if not getattr(inside, "busy", False):
            inside.busy = True
            meet.wait(30)
            return left(x) * 2
        return x * 2

    found = in_threads(lambda i: float((left, right)[i](np.float32(3))), 2)
    assert found[0] in (7.0, 9.0) and found[1] in (8.0, 14.0)


def test_when_a_trace_fails_the_others_try_themselves():
    tried = []

    @st.jit
    def f(x):
        tried.append(threading.get_ident())
        if len(tried) < 4:
            raise ValueError("not yet")
        return x + 1

    def call(i):
        try:
            return float(f(np.float32(1)))
        except ValueError:
            return None

    found = in_threads(call)
    assert found.count(None) == 3 and found.count(2.0) == THREADS - 3
    assert len(tried) == 4


def test_an_interrupted_trace_is_left_to_others():
    calls = []

    @st.jit
    def f(x):
        calls.append(x)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return x + 1

    kept = []
    try:
        f(np.float32(1))
    except KeyboardInterrupt as error:
        kept.append(error)                  # its traceback holds the frames
    assert in_threads(lambda i: float(f(np.float32(1)))) == [2.0] * THREADS
    assert len(calls) == 2
