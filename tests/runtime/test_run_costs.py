"""What a run costs, by counts that times depend on: bytes held, calls made, arrays taken anew."""
from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.arrays.axes import MeshAtoms
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.rewriting.inline import inline
from shardtrace.ir.support.buffer_pool import POOL
from shardtrace.runtime.simulation.executor import Planner, used_axes
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

pytestmark = pytest.mark.usefixtures("only_own_objects")


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def chain(lib, x, y):
    for _ in range(4):
        x = lib.tanh(x) * y
        x = lib.maximum(x, -y) + x * x
    return x


def softmax(lib, x, y):
    e = lib.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) * y


def step(lib, x, y):
    h = lib.tanh(x @ y.T)
    g = h.T @ x
    return y - np.float32(0.1) * g[: y.shape[0]], (h * h).sum()


def peak(f):
    """Bytes by which a call raises what is held, beyond what is held before it."""
    gc.collect()
    tracemalloc.start()
    try:
        out = f()
        found = tracemalloc.get_traced_memory()[1]
        del out
    finally:
        tracemalloc.stop()
    return found


@pytest.mark.parametrize("program", [chain, softmax, step])
def test_a_run_holds_no_more_than_numpy_would(program):
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    x, y = data(1024, 512), data(1024, 512, seed=1)
    placed = [st.device_put(v, NamedSharding(mesh, P("x"))) for v in (x, y)]
    f = st.jit(lambda a, b: program(jnp, a, b))
    f(*placed)
    POOL.clear()                        # what is kept is memory held, too
    ours, plain = peak(lambda: f(*placed)), peak(lambda: program(np, x, y))
    assert ours <= 1.25 * plain, (ours, plain)


@pytest.mark.parametrize("program,rows", [(chain, 4096), (softmax, 4096), (step, 2048)])
def test_a_later_run_takes_no_large_memory_anew(program, rows):
    x, y = data(rows, 1024), data(rows, 1024, seed=1)
    f = st.jit(lambda a, b: program(jnp, a, b))
    out = [f(x, y) for _ in range(2)][-1]
    del out
    gc.collect()
    assert peak(lambda: f(x, y)) < x.nbytes // 8


def calls(f, mesh, *args):
    """The calls of the plan of a function."""
    compiled = st.jit(f).lower(*args).compile()
    program = compiled.program
    flat = inline(program)
    leads = [()] * len(program.invars)
    planner = Planner(flat, MeshAtoms(AbstractMesh((8,), ("x",)), used_axes(flat, leads)))
    return planner.make(leads)[0].calls


def test_groups_are_one_call_each():
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    x, w = data(512, 256), data(256, 256, seed=1)
    placed = [st.device_put(x, NamedSharding(mesh, P("x"))),
              st.device_put(w, NamedSharding(mesh, P()))]

    def layer(x, w):
        c = x - x.mean(-1, keepdims=True)
        n = c * lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5)
        return jnp.tanh(n @ w + 1) * 2
    names = [type(c.function).__name__ if c.eqn is None else c.eqn.op.name
             for c in calls(layer, mesh, *placed)]
    assert names == ["Blocked", "dot_general", "Blocked"]


def test_a_gradient_over_devices_has_two_calls_more_than_on_one_at_most():
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    x, w = data(64, 32), data(32, 32, seed=1)

    def loss(w, x):
        return jnp.sum(jnp.tanh(x @ w) ** 2)
    one = calls(st.grad(loss), mesh, w, x)
    eight = calls(st.grad(loss), mesh, st.device_put(w, NamedSharding(mesh, P())),
                  st.device_put(x, NamedSharding(mesh, P("x"))))
    assert len(eight) <= len(one) + 2


def table_lookups():
    return {
        "rows": lambda lib, x, i: lib.take(x, i, axis=0),
        "part": lambda lib, x, i: x[5:133] if lib is np else lax.dynamic_slice(
            x, (5, 0), (128, x.shape[1])),
    }


def joins():
    return {
        "concatenated": lambda lib, x: lib.concatenate([x, x * 2], 0),
        "with rows of others": lambda lib, x: lib.pad(x, ((1, 1), (0, 0)), mode="reflect"),
    }


@pytest.mark.parametrize("name", joins())
def test_what_devices_put_together_is_held_once(name):
    join = joins()[name]
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    x = data(1024, 512)
    placed = st.device_put(x, NamedSharding(mesh, P("x")))
    f = st.jit(lambda a: join(jnp, a))
    out = f(placed)
    np.testing.assert_array_equal(out, join(np, x))
    POOL.clear()
    assert peak(lambda: f(placed)) <= 4 * out.nbytes            # with one for each device: 8 times


@pytest.mark.parametrize("name", table_lookups())
def test_what_devices_look_up_in_their_parts_is_held_once(name):
    find = table_lookups()[name]
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    x, i = data(8192, 256), np.arange(0, 8192, 64, dtype=np.int32)
    placed = st.device_put(x, NamedSharding(mesh, P("x")))
    f = st.jit(lambda a, b: find(jnp, a, b))
    out = f(placed, i)
    np.testing.assert_array_equal(out, find(np, x, i))
    found = []
    for _ in range(3):                  # a call may prepare what later ones use
        POOL.clear()
        found.append(peak(lambda: f(placed, i)))
    assert min(found) <= 3 * out.nbytes         # with one for each device: 8 times
